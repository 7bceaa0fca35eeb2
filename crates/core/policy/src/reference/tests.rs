//! Corner cases of what a node has to carry out.

use super::*;
use crate::input::{Change, Entity, NetworkSet, Policy, PolicyKind, Profile, Tier};

const NODE: &str = "here";

fn id(name: &str) -> PolicyId {
    let kind = PolicyKind::GlobalNetworkPolicy;
    PolicyId { kind, namespace: String::new(), name: name.to_owned() }
}

/// A policy that allows traffic from what `source` selects to what has `app == 'web'`.
fn policy(source: &str) -> Policy {
    let source = Entity { selector: Some(source.parse().unwrap()), ..Entity::default() };
    Policy {
        tier: "default".to_owned(),
        order: None,
        selector: "app == 'web'".parse().unwrap(),
        is_for_ingress: true,
        is_for_egress: false,
        ingress: vec![input::Rule {
            action: Action::Allow,
            is_ipv4: None,
            protocol: None,
            not_protocol: None,
            icmp: None,
            not_icmp: None,
            source,
            destination: Entity::default(),
        }],
        egress: Vec::new(),
        stage: Stage::Normal,
        is_for_forward: false,
        is_needed_everywhere: false,
    }
}

fn labels(app: &str) -> input::Labels {
    [("app".to_owned(), app.to_owned())].into()
}

fn workload(node: &str, address: &str, app: &str) -> input::Workload {
    input::Workload {
        node: node.to_owned(),
        interface: "cali1".to_owned(),
        addresses: vec![address.parse().unwrap()],
        labels: labels(app),
        profiles: vec!["p".to_owned()],
        ..input::Workload::default()
    }
}

fn cluster(changes: impl IntoIterator<Item = Change>) -> Cluster {
    let mut cluster = Cluster::default();
    changes.into_iter().for_each(|change| cluster.absorb(change));
    cluster
}

fn put_policy(name: &str, policy: Policy) -> Change {
    Change::Policy(id(name), Some(Arc::new(policy)))
}

fn put_workload(key: &str, workload: input::Workload) -> Change {
    Change::Workload(key.to_owned(), Some(Arc::new(workload)))
}

fn only_set(intent: &Intent) -> Vec<String> {
    assert_eq!(intent.sets.len(), 1, "{:?}", intent.sets);
    let members = intent.sets.values().flat_map(|set| &set.members);
    let text = |member: &Member| match member {
        Member::Net(net) => net.to_string(),
        Member::Port { address, protocol, port } => format!("{address},{protocol}:{port}"),
    };
    members.map(text).collect()
}

#[test]
fn policies_of_nobody_here_and_their_sets_are_not_here() {
    let mut everywhere = policy("all()");
    everywhere.is_needed_everywhere = true;
    let cluster = cluster([
        put_policy("p", policy("app == 'db'")),
        put_policy("q", everywhere),
        put_workload("w", workload("elsewhere", "10.0.0.1/32", "web")),
    ]);
    let intent = intent(&cluster, NODE);
    assert_eq!(intent.policies.keys().collect::<Vec<_>>(), [&id("q")]);
    assert_eq!(only_set(&intent), ["10.0.0.1/32"]);
}

#[test]
fn a_profile_that_nobody_wrote_denies() {
    let intent = intent(&cluster([put_workload("w", workload(NODE, "10.0.0.1/32", "x"))]), NODE);
    assert_eq!(*intent.profiles["p"], missing_profile());
}

#[test]
fn of_networks_in_each_other_the_widest_is_a_member_and_all_is_two_halves() {
    let set = |nets: &[&str]| {
        let nets = nets.iter().map(|net| net.parse().unwrap()).collect();
        Some(Arc::new(NetworkSet { nets, labels: labels("db"), profiles: Vec::new() }))
    };
    let mut cluster = cluster([
        put_policy("p", policy("app == 'db'")),
        put_workload("w", workload(NODE, "10.0.0.1/32", "web")),
        put_workload("v", workload("elsewhere", "10.1.0.0/24", "db")),
        Change::NetworkSet("a".to_owned(), set(&["10.0.0.0/8", "10.2.0.0/16", "fd00::/8"])),
        Change::NetworkSet("b".to_owned(), set(&["10.0.0.0/8", "9.0.0.0/8"])),
    ]);
    assert_eq!(only_set(&intent(&cluster, NODE)), ["9.0.0.0/8", "10.0.0.0/8", "fd00::/8"]);
    cluster.absorb(Change::NetworkSet("a".to_owned(), set(&["0.0.0.0/0"])));
    assert_eq!(only_set(&intent(&cluster, NODE)), ["0.0.0.0/1", "128.0.0.0/1"]);
    cluster.absorb(Change::NetworkSet("a".to_owned(), None));
    cluster.absorb(Change::NetworkSet("b".to_owned(), None));
    assert_eq!(only_set(&intent(&cluster, NODE)), ["10.1.0.0/32"]);
}

#[test]
fn labels_of_profiles_select() {
    let profile = Profile { labels: labels("web"), ..Profile::default() };
    let mut plain = workload(NODE, "10.0.0.1/32", "x");
    plain.labels.clear();
    let cluster = cluster([
        put_policy("p", policy("app == 'web'")),
        put_workload("w", plain),
        Change::Profile("p".to_owned(), Some(Arc::new(profile))),
    ]);
    let intent = intent(&cluster, NODE);
    assert_eq!(intent.workloads["w"].tiers[0].ingress, [id("p")]);
    assert_eq!(only_set(&intent), ["10.0.0.1/32"]);
}

#[test]
fn early_policies_are_for_hosts_and_never_end_with_their_tier() {
    let at = |stage| Policy { stage, is_for_egress: true, ..policy("all()") };
    let host = input::Host {
        node: NODE.to_owned(),
        interface: "*".to_owned(),
        labels: labels("web"),
        ..input::Host::default()
    };
    let cluster = cluster([
        Change::Tier("default".to_owned(), Some(Tier { order: None, end: End::Deny })),
        put_policy("nat", at(Stage::PreDnat)),
        put_policy("raw", at(Stage::Untracked)),
        put_policy("on", Policy { is_for_forward: true, ..at(Stage::Normal) }),
        put_policy("own", at(Stage::Normal)),
        Change::Host("h".to_owned(), Some(Arc::new(host))),
        put_workload("w", workload(NODE, "10.0.0.1/32", "web")),
    ]);
    let intent = intent(&cluster, NODE);
    let tier = |end, ingress: &[&str], egress: &[&str]| {
        let ids = |names: &[&str]| names.iter().map(|name| id(name)).collect();
        let name = "default".to_owned();
        vec![TierInForce { name, end, ingress: ids(ingress), egress: ids(egress) }]
    };
    let host = &intent.hosts["h"];
    assert_eq!(host.pre_dnat, tier(End::Pass, &["nat"], &[]));
    assert_eq!(host.untracked, tier(End::Pass, &["raw"], &["raw"]));
    assert_eq!(host.forward, tier(End::Deny, &["on"], &["on"]));
    assert_eq!(host.tiers, tier(End::Deny, &["on", "own"], &["on", "own"]));
    assert_eq!(intent.workloads["w"].tiers, host.tiers);
    // They are prepared all the same where a workload is selected.
    assert_eq!(intent.policies.len(), 4);
}

#[test]
fn named_ports_are_those_of_selected_endpoints_with_the_protocol() {
    let port = |name: &str, protocol: &str, port| input::NamedPort {
        name: name.to_owned(),
        protocol: net::Protocol::from(protocol),
        port,
    };
    let mut rule = policy("app == 'web'");
    rule.ingress[0].protocol = Some(net::Protocol::from("tcp"));
    rule.ingress[0].source = Entity::default();
    rule.ingress[0].destination.ports = vec![net::Port::Name("http".to_owned())];
    let mut web = workload(NODE, "10.0.0.1/32", "web");
    web.ports = vec![port("http", "tcp", 80), port("http", "udp", 81), port("dns", "tcp", 53)];
    web.addresses.push("fd00::1/128".parse().unwrap());
    let cluster = cluster([put_policy("p", rule), put_workload("w", web)]);
    assert_eq!(only_set(&intent(&cluster, NODE)), ["10.0.0.1,6:80", "fd00::1,6:80"]);
}
