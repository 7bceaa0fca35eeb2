//! A suggestion allows what was asked for, and nothing that it does not say.

use model::resource::Action;
use model::validate::validate;
use net::Protocol;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::input::{Entity, PolicyKind, Rule, Workload};
use crate::verdict::End;

const NAMESPACE: &str = "projectcalico.org/namespace";

fn labels(list: &[(&str, &str)]) -> crate::input::Labels {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn workload(namespace: &str, app: &str, role: &str, last: u8) -> Change {
    let workload = Workload {
        node: format!("n{}", last % 2),
        interface: format!("cali{last}"),
        addresses: vec![net::Cidr::host([10, 0, 0, last].into())],
        labels: labels(&[(NAMESPACE, namespace), ("app", app), ("role", role), ("env", "test")]),
        profiles: vec![format!("kns.{namespace}")],
        ..Workload::default()
    };
    Change::Workload(format!("{namespace}/w{last}"), Some(Arc::new(workload)))
}

fn packet(from: u8, to: u8, port: u16) -> Packet {
    Packet {
        source: [10, 0, 0, from].into(),
        destination: [10, 0, 0, to].into(),
        protocol: 6,
        ports: Some((40_000, port)),
        icmp: None,
        before_nat: None,
        is_of_host: false,
    }
}

fn id(namespace: &str, name: &str) -> PolicyId {
    let kind = match namespace {
        "" => PolicyKind::GlobalNetworkPolicy,
        _ => PolicyKind::NetworkPolicy,
    };
    PolicyId { kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn apply(cluster: &mut Cluster, policy: &Value) {
    let problems = validate(kind_of(policy), policy);
    assert!(problems.is_empty(), "{problems:?}: {policy}");
    cluster.absorb(as_change(policy).unwrap_or_else(|| panic!("not a policy: {policy}")));
}

fn kind_of(policy: &Value) -> Kind {
    match policy["kind"].as_str() {
        Some("NetworkPolicy") => Kind::NetworkPolicy,
        _ => Kind::GlobalNetworkPolicy,
    }
}

fn suggested(cluster: &Cluster, endpoint: &str, packet: &Packet) -> Suggestion {
    let endpoint = Endpoint::Workload(endpoint.to_owned());
    let wish = Wish { endpoint: &endpoint, direction: Direction::Ingress, packet };
    match suggest(cluster, wish) {
        Advice::Policy(suggestion) => *suggestion,
        other => panic!("{other:?}"),
    }
}

/// A shop whose database denies everything to itself, and a namespace of others.
fn shop() -> Cluster {
    let mut cluster = Cluster::default();
    for change in [
        workload("shop", "web", "front", 1),
        workload("shop", "db", "back", 2),
        workload("shop", "api", "back", 3),
        workload("ops", "prometheus", "x", 4),
    ] {
        cluster.absorb(change);
    }
    let deny = json!({
        "kind": "NetworkPolicy",
        "metadata": { "name": "db-in", "namespace": "shop" },
        "spec": {
            "order": 100,
            "selector": "app == 'db'",
            "types": ["Ingress"],
            "ingress": [{ "action": "Allow", "source": { "selector": "app == 'api'" } }],
        },
    });
    apply(&mut cluster, &deny);
    cluster
}

#[test]
fn a_rule_by_the_label_that_people_use_goes_into_the_policy_that_is_there() {
    let suggestion = suggested(&shop(), "shop/w2", &packet(1, 2, 5432));
    let rule = json!({
        "action": "Allow",
        "protocol": "TCP",
        "source": { "selector": "app == \"web\"" },
        "destination": { "ports": [5432] },
    });
    assert_eq!(suggestion.rule, rule);
    assert_eq!(suggestion.denied_by.to_string(), "end of tier default");
    assert_eq!(suggestion.into, Some(Into { policy: id("shop", "db-in"), before: None }));
    assert_eq!(
        suggestion.policy,
        json!({
            "apiVersion": "projectcalico.org/v3",
            "kind": "NetworkPolicy",
            "metadata": { "name": "allow-web-to-db-tcp-5432", "namespace": "shop" },
            "spec": { "selector": "app == \"db\"", "types": ["Ingress"], "ingress": [rule] },
        })
    );
}

/// Both ends of one packet may need a policy, in one namespace.
#[test]
fn what_both_directions_need_has_two_names() {
    let cluster = shop();
    let packet = packet(1, 2, 5432);
    let names = [("shop/w1", Direction::Egress), ("shop/w2", Direction::Ingress)].map(|it| {
        let (endpoint, direction) = it;
        let endpoint = crate::Endpoint::Workload(endpoint.to_owned());
        let wish = Wish { endpoint: &endpoint, direction, packet: &packet };
        let (own, peer) = match direction {
            Direction::Egress => ("web", "db"),
            Direction::Ingress => ("db", "web"),
        };
        let selector = |app: &str| format!("app == '{app}'").parse::<Selector>().unwrap();
        let peer = select::Peer::Labels { selector: selector(peer), namespaces: None };
        object::name(&cluster, wish, &selector(own), &peer)
    });
    assert_eq!(names, ["allow-egress-web-to-db-tcp-5432", "allow-web-to-db-tcp-5432"]);
}

#[test]
fn peers_elsewhere_are_named_with_where_they_are() {
    let mut cluster = shop();
    let source = |cluster: &Cluster, from| {
        suggested(cluster, "shop/w2", &packet(from, 2, 5432)).rule["source"].clone()
    };
    let own = r#"(projectcalico.org/namespace == "ops" && app == "prometheus")"#;
    assert_eq!(source(&cluster, 4), json!({ "selector": own, "namespaceSelector": "all()" }));
    let profile = crate::input::Profile {
        labels: labels(&[("pcns.kubernetes.io/metadata.name", "ops")]),
        ..Default::default()
    };
    cluster.absorb(Change::Profile("kns.ops".to_owned(), Some(Arc::new(profile))));
    let namespaces = r#"kubernetes.io/metadata.name == "ops""#;
    let selector = r#"app == "prometheus""#;
    let by_name = json!({ "selector": selector, "namespaceSelector": namespaces });
    assert_eq!(source(&cluster, 4), by_name);
    assert_eq!(source(&cluster, 99), json!({ "nets": ["10.0.0.99/32"] }));
}

#[test]
fn what_a_higher_tier_denies_is_allowed_there_and_before() {
    let mut cluster = shop();
    let tier = crate::input::Tier { order: Some(1.0), end: End::Pass };
    cluster.absorb(Change::Tier("security".to_owned(), Some(tier)));
    let deny = |name: &str, order: u32, port: u32| {
        json!({
            "kind": "GlobalNetworkPolicy",
            "metadata": { "name": name },
            "spec": {
                "tier": "security", "order": order, "selector": "all()", "types": ["Ingress"],
                "ingress": [{
                    "action": "Deny", "protocol": "TCP", "destination": { "ports": [port] },
                }],
            },
        })
    };
    apply(&mut cluster, &deny("first", 10, 1));
    apply(&mut cluster, &deny("second", 20, 5432));
    let suggestion = suggested(&cluster, "shop/w2", &packet(3, 2, 5432));
    assert_eq!(suggestion.denied_by.to_string(), "policy second, ingress rule 1");
    assert_eq!(suggestion.policy["spec"]["tier"], "security");
    assert_eq!(suggestion.policy["spec"]["order"], 15.0);
    assert_eq!(suggestion.into, None);
    apply(&mut cluster, &suggestion.policy);
    let endpoint = Endpoint::Workload("shop/w2".to_owned());
    let packet = packet(3, 2, 5432);
    let wish = Wish { endpoint: &endpoint, direction: Direction::Ingress, packet: &packet };
    assert!(matches!(suggest(&cluster, wish), Advice::Allowed(Some(_))));
}

#[test]
fn where_no_tier_decides_the_rest_is_passed_on() {
    let mut cluster = Cluster::default();
    cluster.absorb(workload("shop", "web", "front", 1));
    cluster.absorb(workload("shop", "db", "back", 2));
    // Nobody wrote the profile, so that everything is denied.
    let suggestion = suggested(&cluster, "shop/w2", &packet(1, 2, 80));
    let rules = suggestion.policy["spec"]["ingress"].as_array().unwrap();
    assert_eq!((rules.len(), &rules[1]), (2, &json!({ "action": "Pass" })));
}

#[test]
fn a_host_gets_a_policy_of_the_cluster() {
    let mut cluster = shop();
    let host = crate::input::Host {
        node: "n1".to_owned(),
        interface: "*".to_owned(),
        addresses: vec![[192, 0, 2, 1].into()],
        labels: labels(&[("role", "gateway")]),
        ..Default::default()
    };
    cluster.absorb(Change::Host("n1-all".to_owned(), Some(Arc::new(host))));
    let mut packet = packet(1, 2, 22);
    packet.destination = [192, 0, 2, 1].into();
    packet.is_of_host = true;
    let endpoint = Endpoint::Host("n1-all".to_owned());
    let wish = Wish { endpoint: &endpoint, direction: Direction::Ingress, packet: &packet };
    let Advice::Policy(suggestion) = suggest(&cluster, wish) else { panic!("no policy") };
    assert_eq!(suggestion.denied_by.to_string(), "no profile allows it");
    assert_eq!(suggestion.policy["kind"], "GlobalNetworkPolicy");
    assert_eq!(suggestion.policy["spec"]["selector"], "role == \"gateway\"");
    apply(&mut cluster, &suggestion.policy);
    assert!(matches!(suggest(&cluster, wish), Advice::Allowed(Some(_))));
}

fn rule() -> impl Strategy<Value = Rule> {
    let action = prop_oneof![
        3 => Just(Action::Allow), 3 => Just(Action::Deny), 1 => Just(Action::Log),
        2 => Just(Action::Pass)
    ];
    let selector = prop_oneof![
        2 => Just(None),
        3 => prop_oneof![Just("app"), Just("role")].prop_flat_map(|name| {
            prop_oneof![Just("a"), Just("b")].prop_map(move |value| {
                Some(Selector::equals(name, value))
            })
        }),
    ];
    let ports = proptest::option::of(1_u16..3);
    (action, selector, ports).prop_map(|(action, selector, port)| Rule {
        action,
        is_ipv4: None,
        protocol: port.map(|_| Protocol::from("tcp")),
        not_protocol: None,
        icmp: None,
        not_icmp: None,
        source: Entity { selector, ..Entity::default() },
        destination: Entity {
            ports: port.map(net::Port::single).into_iter().collect(),
            ..Entity::default()
        },
    })
}

fn policy() -> impl Strategy<Value = crate::input::Policy> {
    let selector = prop_oneof![
        Just("all()"),
        Just("app == 'a'"),
        Just("role == 'b'"),
        Just("projectcalico.org/namespace == 'x'"),
        Just("app == 'a' || role == 'a'"),
    ];
    let tier = prop_oneof![Just("default"), Just("security")];
    let order = proptest::option::of((0_u8..4).prop_map(f64::from));
    let rules = || proptest::collection::vec(rule(), 0..3);
    (selector, tier, order, rules(), rules(), any::<(bool, bool)>()).prop_map(
        |(selector, tier, order, ingress, egress, (is_for_ingress, is_for_egress))| {
            crate::input::Policy {
                tier: tier.to_owned(),
                order,
                selector: selector.parse().expect("a selector"),
                is_for_ingress,
                is_for_egress,
                ingress,
                egress,
                stage: crate::input::Stage::Normal,
                is_for_forward: false,
                is_needed_everywhere: false,
            }
        },
    )
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let one = || prop_oneof![Just("a"), Just("b")];
    let workloads = proptest::collection::vec(
        (prop_oneof![3 => Just("x"), 1 => Just("y")], one(), one()),
        2..6,
    );
    let policies = proptest::collection::vec(policy(), 0..5);
    let end = prop_oneof![Just(End::Deny), Just(End::Pass)];
    (workloads, policies, end, proptest::bool::weighted(0.8)).prop_map(
        |(workloads, policies, end, has_profile)| {
            let mut cluster = Cluster::default();
            for (last, (namespace, app, role)) in (1..).zip(workloads) {
                cluster.absorb(workload(namespace, app, role, last));
            }
            for (number, policy) in policies.into_iter().enumerate() {
                let id = id("", &format!("p{number}"));
                cluster.absorb(Change::Policy(id, Some(Arc::new(policy))));
            }
            let tier = crate::input::Tier { order: Some(1.0), end };
            cluster.absorb(Change::Tier("security".to_owned(), Some(tier)));
            if has_profile {
                let Change::Profile(_, profile) = crate::convert::default_allow() else {
                    return cluster;
                };
                cluster.absorb(Change::Profile("kns.x".to_owned(), profile));
            }
            cluster
        },
    )
}

/// What becomes of every packet between workloads, by endpoint, direction and packet.
fn verdicts(cluster: &Cluster) -> Vec<(Endpoint, Direction, Packet, Option<Outcome>)> {
    let mut found = Vec::new();
    let addresses: Vec<u8> = (1..7).collect();
    for endpoint in cluster.endpoints() {
        let Endpoint::Workload(key) = &endpoint else { continue };
        let std::net::IpAddr::V4(own) = cluster.workloads[key].addresses[0].address() else {
            continue;
        };
        let own = own.octets()[3];
        let intent = intent(cluster, cluster.node_of(&endpoint).unwrap());
        for (peer, port) in addresses.iter().flat_map(|it| [(*it, 1), (*it, 2), (*it, 3)]) {
            for direction in [Direction::Ingress, Direction::Egress] {
                let packet = match direction {
                    Direction::Ingress => packet(peer, own, port),
                    Direction::Egress => packet(own, peer, port),
                };
                let outcome = intent.explain(&endpoint, direction, &packet).unwrap().outcome;
                found.push((endpoint.clone(), direction, packet, outcome));
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn nothing_else_changes(
        cluster in cluster(), from in 1_u8..6, to in 1_u8..6, port in 1_u16..3,
        is_ingress in any::<bool>()
    ) {
        let packet = packet(from, to, port);
        let (direction, own) = match is_ingress {
            true => (Direction::Ingress, packet.destination),
            false => (Direction::Egress, packet.source),
        };
        let Some(endpoint) = cluster.endpoints_at(own).into_iter().next() else { return Ok(()) };
        let wish = Wish { endpoint: &endpoint, direction, packet: &packet };
        let Advice::Policy(suggestion) = suggest(&cluster, wish) else { return Ok(()) };
        let mut after = cluster.clone();
        apply(&mut after, &suggestion.policy);
        let Some(Change::Policy(id, Some(policy))) = as_change(&suggestion.policy) else {
            panic!("no policy")
        };
        prop_assert!(!cluster.policies.contains_key(&id));
        for (one, other) in verdicts(&cluster).into_iter().zip(verdicts(&after)) {
            let (at, way, packet, before) = one;
            if before == other.3 {
                continue;
            }
            prop_assert_eq!((before, other.3), (Some(Outcome::Deny), Some(Outcome::Allow)));
            prop_assert_eq!(way, direction);
            prop_assert_eq!(packet.ports.map(|it| it.1), Some(port));
            prop_assert!(cluster.is_selected(&at, &policy.selector));
            let rule = match direction {
                Direction::Ingress => &policy.ingress[0].source,
                Direction::Egress => &policy.egress[0].destination,
            };
            let peer = match direction {
                Direction::Ingress => packet.source,
                Direction::Egress => packet.destination,
            };
            let peers = cluster.endpoints_at(peer);
            let is_meant = match &rule.selector {
                Some(selector) => peers.iter().any(|it| cluster.is_selected(it, selector)),
                None => rule.nets.iter().any(|net| net.contains(peer)),
            };
            prop_assert!(is_meant);
        }
        let walk = walk(&after, wish).unwrap();
        prop_assert_eq!(walk.outcome, Some(Outcome::Allow));
    }
}
