//! Why traffic is let through or denied, as users ask: from documents in the store to the verdict.

use serde_json::Value;
use store::realised::Realised;

use crate::harness::Place;

fn endpoint(node: &str, pod: &str, address: &str, app: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: WorkloadEndpoint\nmetadata:\n  \
         name: {node}-k8s-{}-eth0\n  namespace: shop\n  labels:\n    app: {app}\n    \
         projectcalico.org/namespace: shop\n    projectcalico.org/orchestrator: k8s\nspec:\n  \
         node: {node}\n  orchestrator: k8s\n  pod: {pod}\n  endpoint: eth0\n  containerID: c1\n  \
         interfaceName: cali{app}\n  ipNetworks: [{address}/32]\n  profiles: [kns.shop]\n---\n",
        pod.replace('-', "--")
    )
}

const POLICIES: &str = r#"apiVersion: projectcalico.org/v3
kind: Profile
metadata: {name: kns.shop}
spec:
  ingress: [{action: Allow}]
  egress: [{action: Allow}]
---
apiVersion: projectcalico.org/v3
kind: Tier
metadata: {name: security}
spec: {order: 10}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: baseline}
spec:
  tier: security
  selector: all()
  ingress:
  - {action: Deny, protocol: TCP, destination: {ports: [23]}}
  - {action: Pass}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: db-in, namespace: shop}
spec:
  selector: app == 'db'
  ingress:
  - {action: Allow, protocol: TCP, source: {selector: app == 'api'}, destination: {ports: [5432]}}
  - {action: Allow, protocol: TCP, source: {selector: app == 'api'}, destination: {ports: [5432]}}
"#;

fn shop() -> Place {
    let place = Place::embedded();
    let pods = [
        endpoint("n1", "web-1", "10.65.0.1", "web"),
        endpoint("n2", "db-0", "10.65.0.2", "db"),
        endpoint("n1", "api-1", "10.65.0.3", "api"),
    ];
    place.file("shop.yaml", &(pods.concat() + POLICIES));
    place.margay("apply -f shop.yaml").ok();
    place
}

#[test]
fn a_denied_connection_is_explained_and_the_suggestion_allows_it() {
    let place = shop();
    let asked = "shop/web-1 shop/db-0 --port 5432";
    let denied = place.margay(&format!("explain {asked}")).code(1);
    let lines: Vec<&str> = denied.out.lines().collect();
    assert!(
        lines[0]
            .starts_with("✗ denied at ingress of shop/db-0 by tier default: no policy allows it"),
        "{denied:?}"
    );
    let near =
        r#"policy shop/db-in rule 1  allow tcp 5432 from app == "api"      web-1 has app=web"#;
    let help = format!("margay policy suggest {asked}");
    let passed = "tier security: pass (policy baseline, rule 2) → tier default: 1 policy applies";
    denied.says(&[near, &help, passed, "web-1 → caliweb (n1) → calidb (n2) → db-0"]);

    let suggested = place.margay(&format!("policy suggest {asked}")).code(0);
    assert!(suggested.out.starts_with("apiVersion: projectcalico.org/v3\n"), "{suggested:?}");
    assert!(suggested.err.contains("or put its rule into policy shop/db-in"), "{suggested:?}");
    place.file("allow.yaml", &suggested.out);
    place.margay("apply -f allow.yaml").ok().says(&["1 created"]);
    let allowed = place.margay(&format!("explain {asked}")).ok();
    allowed.says(&["✓ allowed: tcp 5432 from shop/web-1 to shop/db-0", "10.65.0.1/32"]);
    place.margay(&format!("policy suggest {asked}")).code(0).complains(&["it is allowed"]);
    // Nothing else.
    place.margay("explain shop/web-1 shop/db-0 --port 5433").code(1);
    place.margay("explain 192.0.2.7 shop/db-0 --port 5432").code(1);
}

/// Both versions of IP are judged; who asks by an address is answered by it.
#[test]
fn both_versions_of_ip_are_judged() {
    let place = shop();
    for (node, pod, app, last) in [("n1", "web-1", "web", 1), ("n2", "db-0", "db", 2)] {
        let both = endpoint(node, pod, &format!("10.65.0.{last}"), app)
            .replace("/32]", &format!("/32, \"fd65::{last}/128\"]"));
        place.give("apply", &both).ok();
    }
    let asked = "explain shop/web-1 shop/db-0 --port 5432";
    let alike = "✗ denied by IPv4 and by IPv6 at ingress of shop/db-0 by tier default: no policy";
    let denied = place.margay(asked).code(1);
    assert!(denied.out.starts_with(alike), "{denied:?}");
    denied.says(&["margay policy suggest shop/web-1 shop/db-0 --port 5432"]);

    let by_address = place.margay("explain fd65::1 fd65::2 --port 5432").code(1);
    by_address.says(&["margay policy suggest fd65::1 fd65::2 --port 5432"]);
    let plain = place.command(&asked.split(' ').collect::<Vec<_>>()).env("LC_ALL", "C").output();
    let plain = String::from_utf8(plain.unwrap().stdout).unwrap();
    assert!(plain.starts_with("FAIL denied") && plain.contains("web-1 -> caliweb (n1)"), "{plain}");

    // Only one of them is allowed.
    let v4 = "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\n\
        metadata: {name: v4, namespace: shop}\nspec:\n  selector: app == 'db'\n  \
        ingress: [{action: Allow, ipVersion: 4}]\n";
    place.give("apply", v4).ok();
    let denied = place.margay(asked).code(1);
    assert!(denied.out.starts_with("✗ denied by IPv6 at ingress of shop/db-0"), "{denied:?}");
    denied.says(&["✓ allowed by IPv4: tcp 5432 from shop/web-1 to shop/db-0"]);
    let said = place.margay(&format!("{asked} -o json")).code(1);
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said["verdict"], "deny");
    let versions = said["versions"].as_array().unwrap().iter();
    let versions: Vec<(&str, &str)> = versions
        .map(|it| (it["version"].as_str().unwrap(), it["verdict"].as_str().unwrap()))
        .collect();
    assert_eq!(versions, [("IPv6", "deny"), ("IPv4", "allow")]);
    let suggested = place.margay(&asked.replace("explain", "policy suggest")).code(0);
    assert!(suggested.out.contains("kind: NetworkPolicy"), "{suggested:?}");
}

#[test]
fn the_deciding_rule_is_named_and_json_says_the_same() {
    let place = shop();
    let denied = place.margay("explain api-1 10.65.0.2 -p 23 -n shop -o json").code(1);
    let said: Value = serde_json::from_str(&denied.out).unwrap();
    assert_eq!(said["verdict"], "deny");
    assert_eq!(said["deniedBy"], "policy baseline, ingress rule 1");
    assert_eq!(said["destination"]["name"], "shop/db-0");
    let tiers = said["hops"][1]["tiers"].as_array().unwrap();
    assert_eq!((tiers.len(), &tiers[0]["step"]), (1, &Value::from("deny")));
    let allowed = place.margay("explain shop/api-1 shop/db-0 --port 5432").ok();
    allowed.says(&["✓ allowed", "tier default: allow (policy shop/db-in, rule 1)"]);
    place.margay("explain shop/web-2 shop/db-0").refused(&["did you mean shop/web-1?"]);
    place.margay("explain shop/web-1 shop/db-0 --protocol tpc").refused(&["tpc is not a protocol"]);
}

#[test]
fn a_policy_is_reviewed() {
    let place = shop();
    let said = place.margay("explain policy shop/db-in").code(1);
    said.says(&[
        "policy shop/db-in: selects 1 endpoint, 1 rule never matches",
        "shop/db-0",
        "never matches: rule 1 decides all that it would match",
    ]);
    place.margay("explain policy baseline").ok().says(&["✓ policy baseline: selects 3 endpoints"]);
    place.margay("explain policy shop/db-im").refused(&["did you mean shop/db-in?"]);
}

#[test]
fn hosts_have_ports_that_no_policy_closes_and_pods_do_not_reach_their_own() {
    let place = shop();
    let host = "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: n1}\n\
        spec: {bgp: {ipv4Address: 172.30.0.11/24}}\n---\n\
        apiVersion: projectcalico.org/v3\nkind: HostEndpoint\n\
        metadata: {name: n1-all, labels: {role: gateway}}\n\
        spec: {node: n1, interfaceName: '*', expectedIPs: [172.30.0.11]}\n";
    place.give("apply", host).ok();
    place.margay("explain 192.0.2.7 n1 --port 22").ok().says(&["failsafe port"]);
    let denied = place.margay("explain shop/db-0 n1 --port 8080").code(1);
    denied.says(&["✗ denied at ingress of n1: no profile allows it"]);
    let own = place.margay("explain shop/web-1 n1 --port 22").code(1);
    own.says(&["denied at egress of shop/web-1: defaultEndpointToHostAction is Drop"]);
    let suggested = place.margay("policy suggest shop/db-0 n1 --port 8080").code(0);
    place.give("apply", &suggested.out).ok();
    place.margay("explain shop/db-0 n1 --port 8080").ok();
    // Pods of the host come by no interface of its own, so its policies have no say.
    let open = "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\n\
        metadata: {name: default}\nspec: {defaultEndpointToHostAction: Return}\n";
    place.give("apply", open).ok();
    place.margay("explain shop/web-1 n1 --port 8081").ok();
    place.margay("explain shop/db-0 n1 --port 8081").code(1);
}

/// Which endpoint of a host decides depends on its interfaces: where these are not told, and it
/// matters, nobody guesses.
#[test]
fn endpoints_of_hosts_decide_where_their_interfaces_are() {
    let place = shop();
    let node = |name: &str, address: &str| {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {{name: {name}}}\n\
             spec: {{bgp: {{ipv4Address: {address}/24}}}}\n---\n"
        )
    };
    let host = |name: &str, interface: &str| {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: HostEndpoint\n\
             metadata: {{name: {name}, labels: {{host: {name}}}}}\n\
             spec: {{node: n1, interfaceName: '{interface}'}}\n---\n"
        )
    };
    let policies = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\n\
        metadata: {name: gateway}\nspec:\n  selector: host == 'n1-storage'\n  \
        applyOnForward: true\n  types: [Ingress, Egress]\n---\n\
        apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: open}\n\
        spec: {selector: host == 'n1-eth0', ingress: [{action: Allow}], egress: [{action: Allow}]}\n";
    let (n1, n2) = (node("n1", "172.30.0.11"), node("n2", "172.30.0.12"));
    place.give("apply", &[n1, n2, host("n1-storage", "eth9"), policies.to_owned()].concat()).ok();
    let tell = |interfaces: &[(&str, &str)]| {
        let nets = |net: &str| [net.parse().unwrap()].into();
        let interfaces = interfaces.iter().map(|(name, net)| ((*name).to_owned(), nets(net)));
        let interfaces = Some(interfaces.collect());
        let told = Realised { revision: 1_000_000, interfaces, ..Realised::default() };
        told.publish(&place.store(), "n1").unwrap();
    };
    let (to_host, to_pod) = ("explain n2 n1 --port 8080", "explain api-1 db-0 --port 5432 -n shop");
    let unknown = "ingress of n1 is not known: n1 has not told which interfaces it has; it meets \
                   host endpoint n1-storage or none";
    place.margay(to_host).code(1).says(&["! not known: tcp 8080 from n2 to n1", unknown]);
    place.margay(to_pod).code(1).says(&["! not known: tcp 5432", "egress of n1 is not known"]);
    let said: Value = place.margay(&format!("{to_host} -o json")).code(1).out.parse().unwrap();
    assert_eq!((&said["verdict"], &said["unknown"][0]["node"]), (&"unknown".into(), &"n1".into()));
    place.margay("policy suggest n2 n1 --port 8080").refused(&["it is not known"]);
    tell(&[("eth0", "172.30.0.11/24"), ("lo", "127.0.0.1/8")]);
    place.margay(to_host).ok().says(&["n1 has no host endpoint on this way"]);
    place.margay(to_pod).ok();
    tell(&[("eth0", "10.0.0.11/24"), ("eth9", "172.30.0.11/24")]);
    place.margay(to_host).code(1).says(&["denied at ingress of n1"]);
    place.margay(to_pod).code(1).says(&["denied at egress of host endpoint n1-storage by tier"]);
    // The first by name is in force, whatever the others allow.
    tell(&[("eth0", "172.30.0.11/24")]);
    place.give("apply", &host("n1-eth0", "eth0")).ok();
    place.margay(to_host).ok().says(&["policy open, rule 1"]);
    place.give("apply", &host("aa", "eth0")).ok();
    place.margay(to_host).code(1).says(&["denied at ingress of n1: no profile allows it"]);
    // Nobody knows by which of two interfaces a stranger is reached.
    tell(&[("eth0", "172.30.0.11/24"), ("eth1", "10.0.0.11/24")]);
    place.margay("explain n1 192.0.2.7 --port 8080").code(1).says(&[
        "egress of n1 is not known: it may leave n1 by several interfaces; it meets host endpoint \
         aa or none",
    ]);
}

/// What agents salvage of an object decides here as there, and settings of selected nodes count.
#[test]
fn what_is_left_of_bad_objects_decides_as_on_nodes() {
    let place = shop();
    place.margay("explain shop/web-1 shop/api-1 --port 80").ok();
    let root = "/calico/resources/v3/projectcalico.org";
    let policy = r#"{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3",
        "metadata":{"name":"old","namespace":"shop"},"spec":{"selector":"app == 'api'",
        "ingress":[{"action":"Allow","protocol":"nonsense"},
        {"action":"Deny","source":{"nets":["10.0.0.0/99"]}}]}}"#;
    place.put(&format!("{root}/networkpolicies/shop/old"), policy);
    let denied = place.margay("explain shop/web-1 shop/api-1 --port 80").code(1);
    denied.says(&[
        "by policy shop/old, ingress rule 2",
        "note: 1 object cannot be used and is not in force as it is, such as NetworkPolicy shop/old",
    ]);
    let documents = "apiVersion: projectcalico.org/v3\nkind: Node\n\
        metadata: {name: n1, labels: {zone: a}}\nspec: {bgp: {ipv4Address: 172.30.0.11/24}}\n---\n\
        apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: some}\n\
        spec: {nodeSelector: zone == 'a', defaultEndpointToHostAction: Accept}\n";
    place.margay("explain shop/web-1 shop/db-0 --protocol 4").code(1).says(&["IPIP packet"]);
    let vxlan = "explain shop/web-1 shop/db-0 --protocol udp --port 4789";
    place.margay(vxlan).code(1).says(&["VXLAN packet of a workload"]);
    let services = "apiVersion: projectcalico.org/v3\nkind: BGPConfiguration\n\
        metadata: {name: default}\nspec: {serviceClusterIPs: [{cidr: 10.96.0.0/12}]}\n";
    place.give("apply", services).ok();
    let note = "note: unless something translates 10.96.0.10, n1 drops it: address of a service";
    place.margay("explain shop/web-1 10.96.0.10 --port 80").ok().says(&[note]);
    place.give("apply", documents).ok();
    place.margay("explain shop/web-1 n1 --port 80").ok();
}

/// A bad rule keeps its place, and whoever asks for an unusable object is told that it is there.
#[test]
fn what_cannot_be_read_is_shown_where_it_stands() {
    let place = shop();
    let root = "/calico/resources/v3/projectcalico.org";
    let put = |path: &str, spec: &str| {
        let name = path.rsplit('/').next().unwrap();
        let kind = match path.split('/').next().unwrap() {
            "networkpolicies" => "NetworkPolicy",
            "hostendpoints" => "HostEndpoint",
            _ => "WorkloadEndpoint",
        };
        let value = format!(
            r#"{{"kind":"{kind}","apiVersion":"projectcalico.org/v3",
            "metadata":{{"name":"{name}","namespace":"shop"}},"spec":{spec}}}"#
        );
        place.put(&format!("{root}/{path}"), &value);
    };
    let rules = r#"{"selector":"app == 'api'","ingress":[
        {"action":"Allow","source":{"nets":["10.0.0.0/33"]}},
        {"action":"Deny","protocol":"TCP","destination":{"ports":[80]}},{"action":"Allow"}]}"#;
    put("networkpolicies/shop/q", rules);
    let denied = place.margay("explain shop/web-1 shop/api-1 --port 80").code(1);
    denied.says(&["by policy shop/q, ingress rule 2"]);
    let reviewed = place.margay("explain policy shop/q").code(1);
    reviewed.says(&[
        "! policy shop/q: selects 1 endpoint",
        "wrong    spec.ingress[0].source.nets[0]: ",
        "ingress  rule 1  cannot be read: it matches nothing",
        "ingress  rule 2  deny tcp 80",
        "ingress  rule 3  allow",
    ]);
    let told: Value =
        serde_json::from_str(&place.margay("explain policy shop/q -o json").code(1).out).unwrap();
    assert_eq!(told["ingress"][1]["problem"], Value::Null);
    assert!(told["ingress"][0]["problem"].as_str().unwrap().contains("10.0.0.0/33"), "{told}");

    put("networkpolicies/shop/lost", r#"{"selector":"app =="}"#);
    let lost = "NetworkPolicy shop/lost is stored but cannot be used: spec.selector: ";
    place.margay("explain policy shop/lost").refused(&[
        lost,
        "nodes that have read an earlier revision keep that in force",
        "margay get networkpolicies lost -n shop -o yaml",
    ]);
    place.margay("get networkpolicies lost -n shop -o yaml").code(1).says(&["app =="]);
    let note = "a node that has read an earlier revision of NetworkPolicy shop/lost keeps that";
    place.margay("explain shop/web-1 shop/db-0 --port 80").code(1).says(&[note]);
    put("workloadendpoints/shop/n1-k8s-bad-eth0", r#"{"node":"n1","ipNetworks":["10.65.0.300"]}"#);
    place.margay("explain shop/bad shop/db-0").refused(&[
        "WorkloadEndpoint shop/n1-k8s-bad-eth0 is stored but cannot be used: spec.ipNetworks",
    ]);
    put("hostendpoints/gone", r#"{"node":"n1","expectedIPs":["",""]}"#);
    place.margay("explain gone shop/db-0").refused(&["HostEndpoint gone is stored but cannot"]);
}

/// A node that does not carry out what decides is named; what has no say there is not.
#[test]
fn a_policy_that_a_node_holds_is_named_where_it_decides() {
    let place = shop();
    let asked = "explain shop/api-1 shop/db-0 --port 5432";
    let root = "/calico/resources/v3/projectcalico.org";
    let tell = |key: &str, why: &str, is_absent: bool| {
        let key = format!("{root}/{key}");
        let told = Realised {
            revision: 1_000_000,
            refused: [(key.clone(), why.to_owned())].into(),
            absent: is_absent.then_some(key).into_iter().collect(),
            interfaces: None,
        };
        told.publish(&place.store(), "n2").unwrap();
    };
    let why = "held: it cuts n2 off from etcd";
    tell("networkpolicies/shop/db-in", why, true);
    place.margay(asked).code(1).says(&[
        "! allowed: tcp 5432 from shop/api-1 to shop/db-0",
        "not as such in the kernel of n2)",
        "\n! n2 does not carry out NetworkPolicy shop/db-in (held: it cuts n2 off from etcd); \
         the answer is what the datastore wants\n",
    ]);
    let said: Value = place.margay(&format!("{asked} -o json")).code(1).out.parse().unwrap();
    let kernel = &said["kernels"][0];
    assert_eq!(kernel["lacks"], format!("refused NetworkPolicy shop/db-in: {why}"));
    assert_eq!(kernel["refused"][0]["object"], "NetworkPolicy shop/db-in");
    // Nothing of it is in force there, and it has no say.
    place.margay("explain shop/db-0 shop/web-1 --port 80").ok().says(&["in the kernel of n2"]);
    // An earlier value of it may be.
    tell("networkpolicies/shop/db-in", why, false);
    place.margay("explain shop/db-0 shop/web-1 --port 80").code(1).says(&["n2 does not carry out"]);
    tell("globalnetworkpolicies/gone", why, false);
    place
        .margay(asked)
        .code(1)
        .says(&["! n2 goes on with GlobalNetworkPolicy gone, which was removed (held: "]);
    tell("workloadendpoints/shop/n2-k8s-other-eth0", why, false);
    place.margay(asked).ok();
}

#[test]
fn drops_are_asked_of_the_agent() {
    let place = Place::embedded();
    place.margay("drops --run-dir .").refused(&["no agent runs here"]);
}
