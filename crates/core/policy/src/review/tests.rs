//! Rules that are said never to match never do.

use std::sync::Arc;

use net::{Port, Protocol};
use proptest::prelude::*;

use super::*;
use crate::explain::tests::{packet, rule, sets};
use crate::input::{self, Change, Entity, PolicyKind, Stage};
use crate::rule::Icmp;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_covered_matches_nothing_more(
        wide in rule(), narrow in rule(), packets in proptest::collection::vec(packet(), 20),
        sets in sets()
    ) {
        // Rules have little in common by chance.
        let mut near = narrow.clone();
        near.source = wide.source.clone();
        let mut nearer = near.clone();
        nearer.destination = wide.destination.clone();
        nearer.protocol = wide.protocol.clone();
        for narrow in [narrow, near, nearer] {
            let is_covered = covers(&wide, &narrow);
            let is_contradiction = contradiction(&narrow).is_some();
            for packet in &packets {
                if narrow.matches(packet, &sets) {
                    prop_assert!(!is_contradiction);
                    prop_assert!(!is_covered || wide.matches(packet, &sets));
                }
            }
        }
    }

    #[test]
    fn every_rule_covers_itself(it in rule()) {
        // One that asks for what nobody knows covers nothing.
        let is_sensible = contradiction(&it).is_none();
        prop_assert!(!is_sensible || covers(&it, &it));
        prop_assert!(covers(&Rule::all(Action::Deny), &it));
    }
}

fn allow(change: impl FnOnce(&mut Rule)) -> Rule {
    let mut rule = Rule::all(Action::Allow);
    rule.protocol = Some(Protocol::from("tcp"));
    change(&mut rule);
    rule
}

#[test]
fn one_rule_covers_another_by_ports_and_networks() {
    let wide = allow(|it| {
        it.destination.ports.ranges = vec![(1, 99), (100, 200)];
        it.source.nets = vec!["10.0.0.0/8".parse().unwrap()];
    });
    let narrow = |ports: (u16, u16), net: &str| {
        allow(|it| {
            it.destination.ports.ranges = vec![ports];
            it.source.nets = vec![net.parse().unwrap()];
        })
    };
    assert!(covers(&wide, &narrow((50, 150), "10.1.0.0/16")));
    assert!(!covers(&wide, &narrow((50, 201), "10.1.0.0/16")));
    assert!(!covers(&wide, &narrow((50, 150), "11.0.0.0/16")));
    assert!(!covers(&wide, &narrow((50, 150), "0.0.0.0/0")));
    assert!(!covers(&narrow((50, 150), "10.1.0.0/16"), &wide));
    let udp = Rule { protocol: Some(Protocol::Number(17)), ..narrow((50, 150), "10.1.0.0/16") };
    assert!(!covers(&wide, &udp));
}

#[test]
fn contradictions_are_named() {
    for (rule, why) in [
        (allow(|it| it.protocol = Some(Protocol::from("tpc"))), "UnknownProtocol(\"tpc\")"),
        (allow(|it| it.not_protocol = Some(Protocol::Number(6))), "Protocol"),
        (allow(|it| it.icmp = Some(Icmp { kind: 8, code: None })), "Icmp"),
        (
            allow(|it| {
                it.protocol = Some(Protocol::from("icmp"));
                it.destination.ports.ranges = vec![(80, 80)];
            }),
            "PortsWithoutProtocol",
        ),
        (
            allow(|it| {
                it.destination.ports.ranges = vec![(80, 81)];
                it.destination.not_ports.ranges = vec![(80, 80), (81, 90)];
            }),
            "Ports",
        ),
        (
            allow(|it| {
                it.source.nets = vec!["10.0.0.0/8".parse().unwrap()];
                it.destination.nets = vec!["fd00::/8".parse().unwrap()];
            }),
            "Versions",
        ),
    ] {
        let found = contradiction(&rule).map(|it| format!("{it:?}"));
        assert_eq!(found.as_deref(), Some(why));
    }
}

#[test]
fn a_policy_is_reviewed_with_whom_it_selects_and_what_never_matches() {
    let labels = |app: &str| [("app".to_owned(), app.to_owned())].into();
    let workload = |app: &str, last: u8| input::Workload {
        node: "n1".to_owned(),
        labels: labels(app),
        addresses: vec![net::Cidr::host([10, 0, 0, last].into())],
        ..Default::default()
    };
    let mut cluster = Cluster::default();
    for (name, last) in [("web", 1), ("db", 2)] {
        cluster.absorb(Change::Workload(name.to_owned(), Some(Arc::new(workload(name, last)))));
    }
    let from = |selector: &str, port: u16| input::Rule {
        action: Action::Allow,
        is_ipv4: None,
        protocol: Some(Protocol::from("tcp")),
        not_protocol: None,
        icmp: None,
        not_icmp: None,
        source: Entity { selector: Some(selector.parse().unwrap()), ..Entity::default() },
        destination: Entity { ports: vec![Port::single(port)], ..Entity::default() },
    };
    let id = PolicyId {
        kind: PolicyKind::GlobalNetworkPolicy,
        namespace: String::new(),
        name: "db".to_owned(),
    };
    let policy = input::Policy {
        tier: "default".to_owned(),
        order: None,
        selector: "app == 'db'".parse().unwrap(),
        is_for_ingress: true,
        is_for_egress: false,
        ingress: vec![
            from("app == 'web'", 5432),
            from("app == 'web'", 5432),
            from("app == 'api'", 5432),
            from("app == 'web'", 5433),
        ],
        egress: vec![from("app == 'web'", 80)],
        stage: Stage::Normal,
        is_for_forward: false,
        is_needed_everywhere: false,
    };
    cluster.absorb(Change::Policy(id.clone(), Some(Arc::new(policy))));
    let review = review(&cluster, &id).unwrap();
    assert_eq!((review.workloads.as_slice(), review.hosts.len()), (&["db".to_owned()][..], 0));
    let never = |rules: &[Reviewed]| rules.iter().map(|it| it.never.clone()).collect::<Vec<_>>();
    let api = review.ingress[2].rule.source.sets[0].clone();
    assert_eq!(
        never(&review.ingress),
        [None, Some(Never::After(0)), Some(Never::Empty(Side::Source, api)), None]
    );
    assert_eq!(never(&review.egress), [Some(Never::NotItsDirection)]);
}
