//! Facts about routes and permissions, stated on small clusters.

mod adopt;

use serde_json::{Value, json};

use super::*;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

fn cluster() -> Inputs {
    let mut inputs = Inputs::new("n1");
    for (name, address) in [("n1", "172.30.0.1/24"), ("n2", "172.30.0.2/24")] {
        let spec = json!({ "bgp": { "ipv4Address": address } });
        put(&mut inputs, &format!("{RESOURCES}/nodes/{name}"), resource("Node", name, spec));
    }
    let spec = json!({ "cidr": "10.0.0.0/24", "natOutgoing": true });
    put(&mut inputs, &format!("{RESOURCES}/ippools/p"), resource("IPPool", "p", spec));
    let spec = json!({
        "ingress": [{ "action": "Allow", "source": { "selector": "has(net1)" } }],
        "egress": [{ "action": "Allow" }],
        "labelsToApply": { "net1": "" },
    });
    put(&mut inputs, &format!("{RESOURCES}/profiles/net1"), resource("Profile", "net1", spec));
    inputs
}

fn resource(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "kind": kind, "apiVersion": "projectcalico.org/v3",
        "metadata": { "name": name }, "spec": spec,
    })
}

fn put(inputs: &mut Inputs, key: &str, value: Value) -> Changed {
    let changed = inputs.absorb(key, Some(value.to_string().as_bytes()));
    assert_eq!(inputs.quarantined().get(key), None);
    changed
}

fn endpoint(inputs: &mut Inputs, node: &str, container: &str, address: &str, profiles: Value) {
    let name = format!("{node}-cni-{container}-eth0");
    let object = json!({
        "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "orchestrator": "cni", "node": node, "containerID": container, "endpoint": "eth0",
            "ipNetworks": [format!("{address}/32")], "profiles": profiles,
            "interfaceName": format!("cali{container}"),
        },
    });
    put(inputs, &format!("{RESOURCES}/workloadendpoints/default/{name}"), object);
}

fn block(inputs: &mut Inputs, owner: &str, cidr: &str, state: &str, borrower: Option<&str>) {
    let mut allocations = vec![Value::Null; 64];
    let mut attributes = vec![];
    if let Some(borrower) = borrower {
        allocations[5] = 0.into();
        attributes.push(json!({ "handle_id": "h", "secondary": { "node": borrower } }));
    }
    let unallocated: Vec<usize> = (0..64).filter(|i| allocations[*i].is_null()).collect();
    let value = json!({
        "cidr": cidr, "affinity": format!("host:{owner}"), "allocations": allocations,
        "unallocated": unallocated, "attributes": attributes, "deleted": false,
    });
    let dashed = cidr.replace('/', "-");
    put(inputs, &format!("/calico/ipam/v2/assignment/ipv4/block/{dashed}"), value);
    let key = format!("/calico/ipam/v2/host/{owner}/ipv4/block/{dashed}");
    put(inputs, &key, json!({ "state": state, "deleted": false }));
}

/// A sandbox that lives here, as the journal has it; the key of its endpoint.
fn live(inputs: &mut Inputs, container: &str, address: &str) -> String {
    let live = Live {
        container: container.to_owned(),
        interface: format!("cali{container}"),
        addresses: vec![address.parse().unwrap()],
        handle: Some(format!("net1.{container}")),
        profiles: vec!["net1".to_owned()],
        labels: Default::default(),
    };
    let key = format!("{RESOURCES}/workloadendpoints/default/n1-cni-{container}-eth0");
    inputs.vouch(&key, live);
    key
}

fn route(inputs: &Inputs, destination: &str) -> Option<Hop> {
    inputs.routes().0.get(&destination.parse().unwrap()).cloned()
}

#[test]
fn confirmed_blocks_have_routes_and_pending_ones_have_none() {
    let mut inputs = cluster();
    block(&mut inputs, "n1", "10.0.0.0/26", "confirmed", None);
    block(&mut inputs, "n2", "10.0.0.64/26", "confirmed", None);
    block(&mut inputs, "n2", "10.0.0.128/26", "pending", None);
    assert_eq!(route(&inputs, "10.0.0.0/26"), Some(Hop::Blackhole));
    assert_eq!(route(&inputs, "10.0.0.64/26"), Some(Hop::Node("172.30.0.2".parse().unwrap())));
    assert_eq!(route(&inputs, "10.0.0.128/26"), None);
}

#[test]
fn a_borrowed_address_goes_to_the_borrower() {
    let mut inputs = cluster();
    block(&mut inputs, "n1", "10.0.0.0/26", "confirmed", Some("n2"));
    assert_eq!(route(&inputs, "10.0.0.5/32"), Some(Hop::Node("172.30.0.2".parse().unwrap())));
}

#[test]
fn only_what_is_used_in_blocks_of_this_node_counts_as_its_own() {
    let mut inputs = cluster();
    block(&mut inputs, "n1", "10.0.0.0/26", "confirmed", Some("n2"));
    block(&mut inputs, "n2", "10.0.0.64/26", "confirmed", Some("n1"));
    endpoint(&mut inputs, "n2", "b", "10.0.0.65", json!(["net1"]));
    let census = inputs.census();
    assert_eq!((census.blocks, census.addresses, census.addresses_used), (1, 64, 1));
    assert_eq!((census.nodes, census.endpoints, census.local_endpoints), (2, 1, 0));
}

#[test]
fn a_node_without_an_address_is_named() {
    let mut inputs = cluster();
    block(&mut inputs, "n3", "10.0.0.64/26", "confirmed", None);
    let (routes, unroutable) = inputs.routes();
    assert!(routes.is_empty());
    assert_eq!(unroutable.len(), 1);
    assert_eq!(unroutable[0].why, Obstacle::NoAddress("n3".to_owned()));
}

/// The interfaces that policy knows, with the addresses behind them.
fn interfaces(inputs: &mut Inputs) -> Vec<(String, Vec<String>)> {
    inputs.flush_policy();
    let told = inputs.policy().workloads.values().map(|it| {
        let addresses = it.addresses.iter().map(|network| network.address().to_string());
        (it.interface.clone(), addresses.collect())
    });
    told.collect()
}

fn only(interface: &str, address: &str) -> Vec<(String, Vec<String>)> {
    vec![(interface.to_owned(), vec![address.to_owned()])]
}

#[test]
fn policy_knows_this_nodes_endpoints_and_everybodys_addresses() {
    let mut inputs = cluster();
    endpoint(&mut inputs, "n1", "a", "10.0.0.1", json!(["net1"]));
    endpoint(&mut inputs, "n2", "b", "10.0.0.65", json!(["net1"]));
    endpoint(&mut inputs, "n2", "c", "10.0.0.66", json!([]));
    assert_eq!(interfaces(&mut inputs), only("calia", "10.0.0.1"));
    let policy = inputs.policy();
    let [set] = policy.sets.values().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(set.members.len(), 2, "{set:?}");
    assert_eq!(policy.profiles["net1"].ingress.len(), 1);
    assert_eq!(inputs.surroundings().nat_outgoing.len(), 1);
}

#[test]
fn pools_say_which_tunnels_there_are() {
    let mut inputs = Inputs::new("n1");
    let mut tunnels = |name: &str, cidr: &str, field: &str, mode: &str| {
        let spec = json!({ "cidr": cidr, field: mode });
        let key = format!("{RESOURCES}/ippools/{name}");
        put(&mut inputs, &key, json!({ "metadata": { "name": name }, "spec": spec }));
        let found = inputs.surroundings().tunnels;
        [found.ipip, found.vxlan_v4, found.vxlan_v6]
    };
    assert_eq!(tunnels("a", "10.0.0.0/16", "ipipMode", "Never"), [false, false, false]);
    assert_eq!(tunnels("a", "10.0.0.0/16", "ipipMode", "CrossSubnet"), [true, false, false]);
    assert_eq!(tunnels("b", "fd00::/64", "vxlanMode", "Always"), [true, false, true]);
    assert_eq!(tunnels("a", "10.0.0.0/16", "vxlanMode", "Always"), [false, true, true]);
}

#[test]
fn an_endpoint_that_moves_is_known_where_it_is() {
    let mut inputs = cluster();
    let moved = |inputs: &mut Inputs, node: &str| {
        let key = format!("{RESOURCES}/workloadendpoints/default/n1-cni-a-eth0");
        let spec = json!({
            "orchestrator": "cni", "node": node, "containerID": "a", "endpoint": "eth0",
            "ipNetworks": ["10.0.0.1/32"], "profiles": ["net1"], "interfaceName": "calia",
        });
        let mut object = resource("WorkloadEndpoint", "n1-cni-a-eth0", spec);
        object["metadata"]["namespace"] = "default".into();
        inputs.absorb(&key, Some(object.to_string().as_bytes()));
    };
    endpoint(&mut inputs, "n1", "b", "10.0.0.2", json!(["net1"]));
    for (node, n_local) in [("n1", 2), ("n2", 1), ("n1", 2), ("n2", 1)] {
        moved(&mut inputs, node);
        assert_eq!(interfaces(&mut inputs).len(), n_local, "on {node}");
        let n_members = inputs.policy().sets.values().map(|set| set.members.len()).sum::<usize>();
        assert_eq!(n_members, 2, "it is a member wherever it is");
    }
}

#[test]
fn a_bad_address_does_not_cost_a_host_its_policies() {
    let mut inputs = cluster();
    let key = format!("{RESOURCES}/hostendpoints/h");
    for interface in ["eth0", ""] {
        let ips = json!(["", "10.9.9.9"]);
        let spec = json!({ "node": "n1", "interfaceName": interface, "expectedIPs": ips });
        let object = resource("HostEndpoint", "h", spec);
        inputs.absorb(&key, Some(object.to_string().as_bytes()));
        let named = &inputs.quarantined()[&key];
        assert!(named[0].contains("expectedIPs"), "{named:?}");
        inputs.flush_policy();
        let host = &inputs.policy().hosts["h"];
        assert_eq!(host.addresses, ["10.9.9.9".parse::<std::net::IpAddr>().unwrap()]);
        assert!(host.is_rest, "another one for the same interface goes before it");
    }
    inputs.absorb(&key, None);
    inputs.flush_policy();
    assert!(inputs.policy().hosts.is_empty() && inputs.quarantined().is_empty());
}

#[test]
fn settings_of_the_node_go_before_selected_ones_and_those_before_all() {
    let mut inputs = cluster();
    let mut settings = |name: &str, selector: &str, value: &str| {
        let spec = json!({ "logPrefix": value, "nodeSelector": selector });
        let key = format!("{RESOURCES}/felixconfigurations/{name}");
        inputs.absorb(&key, Some(resource("FelixConfiguration", name, spec).to_string().as_bytes()))
    };
    assert!(settings("default", "", "all").settings);
    settings("others", "has(absent)", "others");
    settings("some", "all()", "some");
    settings("node.n1", "", "one");
    let texts: Vec<String> =
        inputs.settings().into_values().map(|texts| texts["LogPrefix"].clone()).collect();
    assert_eq!(texts, ["all", "some", "one"]);
}

/// One bad field must not open a port that another one closed.
#[test]
fn a_setting_that_cannot_be_read_costs_the_others_nothing() {
    let mut inputs = cluster();
    let key = format!("{RESOURCES}/felixconfigurations/default");
    let stored = |spec: Value| resource("FelixConfiguration", "default", spec).to_string();
    let closed = |reporting: Value, ports: Value| {
        stored(json!({
            "defaultEndpointToHostAction": "Accept", "failsafeInboundHostPorts": ports,
            "endpointReportingEnabled": reporting,
        }))
    };
    let bad = closed(json!("nope"), json!([]));
    inputs.absorb(&key, Some(bad.as_bytes()));
    let texts = |inputs: &Inputs| inputs.settings().into_values().next().unwrap();
    assert_eq!(texts(&inputs)["DefaultEndpointToHostAction"], "Accept");
    assert_eq!(texts(&inputs)["FailsafeInboundHostPorts"], "none");
    assert!(!texts(&inputs).contains_key("EndpointReportingEnabled"));
    let [problem] = inputs.quarantined()[&key].as_slice() else { panic!("{inputs:?}") };
    assert!(problem.starts_with("spec.endpointReportingEnabled: "), "{problem}");
    // What cannot be read is what it was, where that is known, and nothing else is.
    let good = closed(json!(true), json!([]));
    let bad = closed(json!(false), json!([{ "protocol": "tcp", "port": "ssh" }]));
    let read = |text: &str| Read::new(&key, text.as_bytes()).unwrap();
    let instead = read(&bad).instead(read(&good)).unwrap();
    inputs.keep(&key, instead, 7, read(&bad).problems().unwrap().to_vec());
    assert_eq!(texts(&inputs)["FailsafeInboundHostPorts"], "none");
    assert_eq!(texts(&inputs)["EndpointReportingEnabled"], "false");
    assert_eq!(inputs.kept(&key), Some(7));
    assert!(inputs.quarantined()[&key][0].starts_with("spec.failsafeInboundHostPorts"));
    inputs.absorb(&key, Some(good.as_bytes()));
    assert!(inputs.quarantined().is_empty() && inputs.kept(&key).is_none());
}

/// A value of the right type that no parameter takes is named, and is what it was.
#[test]
fn a_setting_that_means_nothing_is_one_that_cannot_be_read() {
    let key = format!("{RESOURCES}/felixconfigurations/default");
    let stored = |action: &str| {
        let spec = json!({ "defaultEndpointToHostAction": action, "vxlanPort": 4790 });
        resource("FelixConfiguration", "default", spec).to_string()
    };
    let read = |action: &str| Read::new(&key, stored(action).as_bytes()).unwrap();
    let maybe = read("Maybe");
    let [problem] = maybe.problems().unwrap() else { panic!("{maybe:?}") };
    assert!(problem.starts_with("spec.defaultEndpointToHostAction: "), "{problem}");
    let mut inputs = cluster();
    inputs.take(&key, read("Maybe"));
    assert_eq!(inputs.settings().into_values().next().unwrap().len(), 1);
    inputs.take(&key, read("Maybe").instead(read("Accept")).unwrap());
    let texts = inputs.settings().into_values().next().unwrap();
    assert_eq!(texts["DefaultEndpointToHostAction"], "Accept");
}

/// What cannot be read any more stays what it was; a bad rule is told by the new value.
#[test]
fn an_earlier_value_stands_in_where_more_than_a_rule_is_missing() {
    let key = format!("{RESOURCES}/globalnetworkpolicies/p");
    let read = |spec: Value| {
        let text = resource("GlobalNetworkPolicy", "p", spec).to_string();
        Read::new(&key, text.as_bytes()).unwrap()
    };
    let deny = json!([{ "action": "Deny" }]);
    let good = read(json!({ "selector": "a == 'b'", "order": 5, "ingress": deny }));
    assert!(good.is_whole() && good.instead(good.clone()).is_none());
    for bad in [
        json!({ "selector": "a == ", "ingress": deny }),
        json!({ "selector": "a == 'b'", "order": "x", "ingress": deny }),
        json!({ "selector": "a == 'b'", "ingress": "all" }),
        json!("nothing"),
    ] {
        let bad = read(bad);
        assert!(bad.is_lacking(), "{bad:?}");
        let instead = bad.instead(good.clone()).unwrap();
        assert_eq!(instead.change(), good.change());
        assert!(bad.instead(bad.clone()).is_none(), "that one cannot be used either");
    }
    let rule = json!([{ "action": "Deny", "protocol": "nonsense" }]);
    let bad = read(json!({ "selector": "a == 'b'", "ingress": rule }));
    assert!(!bad.is_whole() && !bad.is_lacking() && bad.instead(good).is_none());
}

#[test]
fn a_key_that_lacks_its_namespace_is_named() {
    let mut inputs = cluster();
    let key = format!("{RESOURCES}/networkpolicies/only1");
    inputs.absorb(&key, Some(b"{}"));
    let [problem] = inputs.quarantined()[&key].as_slice() else { panic!("{inputs:?}") };
    assert!(problem.contains("networkpolicies/NAMESPACE/NAME"), "{problem}");
    inputs.absorb(&key, None);
    inputs.absorb(&format!("{RESOURCES}/nobodys/only1"), Some(b"{}"));
    assert!(inputs.quarantined().is_empty());
}

#[test]
fn a_bad_object_is_kept_aside_and_the_rest_goes_on() {
    let mut inputs = cluster();
    endpoint(&mut inputs, "n1", "a", "10.0.0.1", json!(["net1"]));
    let key = format!("{RESOURCES}/workloadendpoints/default/n1-cni-b-eth0");
    inputs.absorb(&key, Some(br#"{"kind":"WorkloadEndpoint","spec":{"ipNetworks":[""]}}"#));
    assert!(inputs.quarantined().contains_key(&key));
    assert_eq!(interfaces(&mut inputs).len(), 1);
    inputs.absorb(&key, None);
    assert!(inputs.quarantined().is_empty());
}

#[test]
fn the_plan_puts_before_it_removes_and_ends_at_what_is_wanted() {
    let (a, b) = ("10.0.0.0/26".parse().unwrap(), "10.0.0.64/26".parse().unwrap());
    let wanted = Routes::from([(a, Hop::Blackhole)]);
    let present = Routes::from([(b, Hop::Blackhole)]);
    assert_eq!(plan(&wanted, &present), (wanted.clone(), vec![b]));
    assert_eq!(plan(&wanted, &wanted), (Routes::new(), vec![]));
}

#[test]
fn a_live_sandbox_keeps_its_network_while_its_endpoint_cannot_be_used() {
    let mut inputs = cluster();
    endpoint(&mut inputs, "n1", "a", "10.0.0.1", json!(["net1"]));
    let key = live(&mut inputs, "a", "10.0.0.1/26");
    let before = (inputs.routes(), interfaces(&mut inputs));
    inputs.absorb(&key, Some(b"{nonsense"));
    assert!(inputs.quarantined().contains_key(&key), "and it is said");
    assert_eq!((inputs.routes(), interfaces(&mut inputs)), before);
    inputs.absorb(&key, None);
    assert_eq!((inputs.routes(), interfaces(&mut inputs)), before);
    inputs.withdraw(&key, "an-earlier-one");
    assert_eq!((inputs.routes(), interfaces(&mut inputs)), before);
    inputs.withdraw(&key, "a");
    assert_eq!(route(&inputs, "10.0.0.1/32"), None);
    assert_eq!(interfaces(&mut inputs), []);
}

#[test]
fn a_live_sandbox_whose_address_another_has_is_closed_and_both_are_named() {
    let mut inputs = cluster();
    endpoint(&mut inputs, "n1", "a", "10.0.0.5", json!(["net1"]));
    live(&mut inputs, "a", "10.0.0.5/26");
    assert_eq!(inputs.disputes(), []);
    // The block gives the place to the handle "h", for a workload on n2.
    block(&mut inputs, "n1", "10.0.0.0/26", "confirmed", Some("n2"));
    let [dispute] = inputs.disputes().try_into().unwrap();
    assert_eq!((dispute.ours.as_str(), dispute.theirs.as_str()), ("net1.a", "h on n2"));
    assert_eq!(interfaces(&mut inputs), []);
    assert_eq!(route(&inputs, "10.0.0.5/32"), Some(Hop::Node("172.30.0.2".parse().unwrap())));
    block(&mut inputs, "n1", "10.0.0.0/26", "confirmed", None);
    assert_eq!(inputs.disputes(), []);
    assert_eq!(route(&inputs, "10.0.0.5/32"), Some(Hop::Interface("calia".to_owned())));
}

#[test]
fn another_endpoint_with_the_address_of_a_live_sandbox_is_named() {
    let mut inputs = cluster();
    endpoint(&mut inputs, "n1", "a", "10.0.0.1", json!(["net1"]));
    live(&mut inputs, "a", "10.0.0.1/26");
    assert_eq!(inputs.twins(), []);
    endpoint(&mut inputs, "n2", "b", "10.0.0.1", json!(["net1"]));
    let [twin] = inputs.twins().try_into().unwrap();
    assert_eq!((twin.theirs.as_str(), twin.node.as_str()), ("n2-cni-b-eth0", "n2"));
}

#[test]
fn there_is_no_proof_before_everything_was_read() {
    let mut inputs = cluster();
    assert_eq!(inputs.in_sync(), None);
    inputs.complete();
    assert!(inputs.in_sync().is_some());
}

#[test]
fn a_stray_claim_on_a_block_costs_its_node_nothing() {
    let mut inputs = cluster();
    block(&mut inputs, "n2", "10.0.0.64/26", "confirmed", None);
    let stray = "/calico/ipam/v2/host/ghost/ipv4/block/10.0.0.64-26";
    put(&mut inputs, stray, json!({ "state": "confirmed", "deleted": false }));
    let way = Some(Hop::Node("172.30.0.2".parse().unwrap()));
    assert_eq!(route(&inputs, "10.0.0.64/26"), way);
    inputs.absorb(stray, None);
    assert_eq!(route(&inputs, "10.0.0.64/26"), way);
}

#[test]
fn nothing_is_routed_over_the_addresses_of_nodes_or_of_nobody() {
    let mut inputs = cluster();
    block(&mut inputs, "n2", "172.30.0.0/26", "confirmed", None);
    endpoint(&mut inputs, "n1", "a", "172.30.0.2", json!([]));
    endpoint(&mut inputs, "n1", "b", "127.0.0.1", json!([]));
    endpoint(&mut inputs, "n1", "c", "224.0.0.1", json!([]));
    endpoint(&mut inputs, "n1", "d", "10.0.0.9", json!([]));
    let (routes, unroutable) = inputs.routes();
    let left: Vec<String> = routes.keys().map(ToString::to_string).collect();
    assert_eq!(left, ["10.0.0.9/32"]);
    let why: Vec<&Obstacle> = unroutable.iter().map(|it| &it.why).collect();
    let (holds, none) = (|node: &str| Obstacle::HoldsNode(node.to_owned()), Obstacle::NotUnicast);
    assert_eq!(why, [&holds("n1"), &holds("n2"), &none, &none]);
}

#[test]
fn a_bad_field_of_a_node_does_not_cost_its_other_address() {
    let mut inputs = cluster();
    block(&mut inputs, "n2", "10.0.0.64/26", "confirmed", None);
    let spec = json!({ "bgp": { "ipv4Address": "172.30.0.7/24", "ipv6Address": "nonsense" } });
    let key = format!("{RESOURCES}/nodes/n2");
    let bytes = resource("Node", "n2", spec).to_string();
    inputs.absorb(&key, Some(bytes.as_bytes()));
    assert!(inputs.quarantined().contains_key(&key));
    assert_eq!(route(&inputs, "10.0.0.64/26"), Some(Hop::Node("172.30.0.7".parse().unwrap())));
}

#[test]
fn an_endpoint_with_the_interface_of_a_live_sandbox_is_not_used() {
    let mut inputs = cluster();
    live(&mut inputs, "a", "10.0.0.1/32");
    endpoint(&mut inputs, "n1", "a", "10.0.0.1", json!(["net1"]));
    let name = "n1-cni-zzz-eth0";
    let object = json!({
        "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "orchestrator": "cni", "node": "n1", "containerID": "zzz", "endpoint": "eth0",
            "ipNetworks": ["10.0.0.77/32"], "profiles": ["net1"], "interfaceName": "calia",
        },
    });
    put(&mut inputs, &format!("{RESOURCES}/workloadendpoints/default/{name}"), object);
    assert_eq!(route(&inputs, "10.0.0.77/32"), None);
    assert_eq!(interfaces(&mut inputs), only("calia", "10.0.0.1"));
    assert_eq!(inputs.impostors().len(), 1);
}

#[test]
fn what_a_live_sandbox_rests_on_is_known_and_so_is_what_it_lacks() {
    let mut inputs = cluster();
    let key = live(&mut inputs, "a", "10.0.0.5/26");
    assert!(inputs.lacks(&key), "no endpoint, no block");
    endpoint(&mut inputs, "n1", "a", "10.0.0.5", json!(["net1"]));
    assert!(inputs.lacks(&key), "no block");
    block(&mut inputs, "n1", "10.0.0.0/26", "confirmed", Some("n1"));
    assert!(inputs.lacks(&key), "the place is another's");
    let at = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26";
    let mut allocations = vec![Value::Null; 64];
    allocations[5] = 0.into();
    let unallocated: Vec<usize> = (0..64).filter(|i| *i != 5).collect();
    let value = json!({
        "cidr": "10.0.0.0/26", "affinity": "host:n1", "allocations": allocations,
        "unallocated": unallocated, "attributes": [{ "handle_id": "net1.a" }], "deleted": false,
    });
    put(&mut inputs, at, value);
    assert!(!inputs.lacks(&key));
    let claim = "/calico/ipam/v2/host/n1/ipv4/block/10.0.0.0-26";
    for (path, carries) in [
        (key.as_str(), true),
        (at, true),
        (claim, true),
        ("/calico/ipam/v2/handle/net1.a", true),
        ("/calico/ipam/v2/handle/net1.b", false),
        ("/calico/ipam/v2/host/n2/ipv4/block/10.0.0.0-26", false),
        ("/calico/ipam/v2/assignment/ipv4/block/10.0.0.64-26", false),
    ] {
        assert_eq!(inputs.carries_live(path), carries, "{path}");
    }
    inputs.absorb(claim, None);
    assert!(inputs.lacks(&key), "no claim");
}

#[test]
fn a_reserve_is_what_its_handle_holds_in_own_blocks_of_open_pools() {
    let mut inputs = cluster();
    for (cidr, owner) in [("10.0.0.0/26", "n1"), ("10.0.0.64/26", "n2")] {
        block(&mut inputs, owner, cidr, "confirmed", Some("n1"));
    }
    let held = inputs.reserve("h", 9);
    assert_eq!(held.fit, ["10.0.0.5".parse().unwrap()].into());
    assert_eq!(held.unfit, ["10.0.0.69".parse().unwrap()].into());
    assert_eq!((held.wanted4, held.wanted6), (4, 0), "256 addresses lend 4");
    assert_eq!(inputs.reserve("h", 1).wanted4, 1);
    assert_eq!(inputs.reserve("other", 1).fit, [].into());
    let spec = json!({ "cidr": "10.0.0.0/24", "disabled": true });
    put(&mut inputs, &format!("{RESOURCES}/ippools/p"), resource("IPPool", "p", spec));
    let held = inputs.reserve("h", 9);
    assert_eq!((held.fit.len(), held.unfit.len(), held.wanted4), (0, 2, 0));
}

#[test]
fn pools_are_full_when_every_address_of_every_open_one_is_taken() {
    let mut inputs = Inputs::new("n1");
    let pool = |inputs: &mut Inputs, name: &str, cidr: &str, disabled: bool| {
        let spec = json!({ "cidr": cidr, "blockSize": 30, "disabled": disabled });
        let key = format!("{RESOURCES}/ippools/{name}");
        put(inputs, &key, json!({ "metadata": { "name": name }, "spec": spec }));
    };
    let block = |inputs: &mut Inputs, cidr: &str, taken: usize| {
        let allocations: Vec<Value> =
            (0..4).map(|i| if i < taken { 0.into() } else { Value::Null }).collect();
        let value = json!({
            "cidr": cidr, "affinity": "host:n1", "allocations": allocations,
            "unallocated": (taken..4).collect::<Vec<_>>(),
            "attributes": [{ "handle_id": "h", "secondary": {} }], "deleted": false,
        });
        let dashed = cidr.replace('/', "-");
        put(inputs, &format!("/calico/ipam/v2/assignment/ipv4/block/{dashed}"), value);
    };
    assert_eq!(inputs.full_pools(true), None);
    pool(&mut inputs, "a", "10.0.0.0/30", false);
    block(&mut inputs, "10.0.0.0/30", 3);
    assert_eq!(inputs.full_pools(true), None);
    block(&mut inputs, "10.0.0.0/30", 4);
    assert_eq!(inputs.full_pools(true), Some(vec!["a".to_owned()]));
    assert_eq!(inputs.full_pools(false), None);
    pool(&mut inputs, "b", "10.0.0.4/30", true);
    assert!(inputs.full_pools(true).is_some(), "nobody gets an address of a closed one");
    pool(&mut inputs, "b", "10.0.0.4/30", false);
    assert_eq!(inputs.full_pools(true), None);
}

/// Containers whose ids begin alike have interfaces of one name, one after the other.
#[test]
fn an_interface_of_another_sandbox_does_not_keep_a_ghost() {
    let mut inputs = cluster();
    endpoint(&mut inputs, "n1", "c1", "10.0.0.5", json!(["net1"]));
    inputs.complete();
    let ghosts = |owner: Option<(&str, &str)>| {
        let identity = owner.map(|(container, interface)| sandbox::identity::Identity {
            container: container.to_owned(),
            interface: interface.to_owned(),
        });
        let interfaces = [("calic1".to_owned(), identity)].into();
        let seen = Witnesses { interfaces, ..Witnesses::default() };
        let found = inputs.leftovers(inputs.in_sync().unwrap(), &seen);
        found.iter().filter(|it| matches!(it, Leftover::Endpoint { .. })).count()
    };
    assert_eq!(ghosts(Some(("c1", "eth0"))), 0);
    assert_eq!(ghosts(Some(("c1", "net1"))), 1);
    assert_eq!(ghosts(Some(("c12", "eth0"))), 1);
    // One that does not say whose it is may be Calico's.
    assert_eq!(ghosts(None), 0);
}

/// The second interface of a pod has a name of its own, but whoever adds it again has the turn of
/// the usual one.
#[test]
fn a_ghost_is_removed_in_the_turn_of_who_would_add_it_again() {
    let mut inputs = cluster();
    let object = json!({
        "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": { "name": "n1-k8s-web-net1", "namespace": "shop" },
        "spec": {
            "orchestrator": "k8s", "node": "n1", "pod": "web", "containerID": "c1",
            "endpoint": "net1", "ipNetworks": ["10.0.0.5/32"], "interfaceName": "calispare",
        },
    });
    put(&mut inputs, &format!("{RESOURCES}/workloadendpoints/shop/n1-k8s-web-net1"), object);
    inputs.complete();
    let found = inputs.leftovers(inputs.in_sync().unwrap(), &Witnesses::default());
    let [Leftover::Endpoint { interface, usual, .. }] = found.as_slice() else {
        panic!("{found:?}")
    };
    let workload =
        sandbox::identity::Workload::Pod { namespace: "shop".into(), name: "web".into() };
    let (container, name) = ("c2".to_owned(), "net1".to_owned());
    let next = sandbox::identity::Identity { container, interface: name };
    assert_eq!(*usual, workload.host_interface(&next));
    assert_eq!(interface, "calispare");
}
