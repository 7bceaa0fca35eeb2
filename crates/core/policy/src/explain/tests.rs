//! What is told is what the judge did.

use std::net::IpAddr;
use std::sync::Arc;

use model::resource::{Action, Direction};
use net::Protocol;
use proptest::prelude::*;

use super::*;
use crate::input::PolicyKind;
use crate::intent::Directions;
use crate::rule::{Icmp, Peer, Ports};
use crate::set::{IpSet, IpSets, Member};
use crate::verdict::HostRules;

fn id(number: usize, is_staged: bool) -> PolicyId {
    let kind = match is_staged {
        true => PolicyKind::StagedNetworkPolicy,
        false => PolicyKind::NetworkPolicy,
    };
    PolicyId { kind, namespace: "shop".to_owned(), name: format!("p{number}") }
}

pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    let address = || (0_u8..4).prop_map(|last| IpAddr::from([10, 0, 0, last]));
    let above = prop_oneof![
        (1_u16..4, 1_u16..4).prop_map(|ports| (6, Some(ports), None)),
        (1_u16..4, 1_u16..4).prop_map(|ports| (17, Some(ports), None)),
        (0_u8..3, 0_u8..2).prop_map(|icmp| (1, None, Some(icmp))),
        Just((47, None, None)),
    ];
    let nat = proptest::option::of((address(), 1_u16..4));
    (address(), address(), above, nat, any::<bool>()).prop_map(
        |(source, destination, (protocol, ports, icmp), before_nat, is_of_host)| Packet {
            source,
            destination,
            protocol,
            ports,
            icmp,
            before_nat,
            is_of_host,
        },
    )
}

fn set_ids() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec((0_usize..4).prop_map(|n| format!("s{n}")), 0..2)
}

fn ports() -> impl Strategy<Value = Ports> {
    let ranges = proptest::collection::vec((1_u16..4, 1_u16..4), 0..2);
    (ranges, set_ids()).prop_map(|(ranges, named)| Ports { ranges, named })
}

fn peer() -> impl Strategy<Value = Peer> {
    let nets = || {
        let net = (0_u8..4, 30_u8..33).prop_map(|(last, len)| {
            net::Cidr::new([10, 0, 0, last].into(), len).expect("at most 32")
        });
        proptest::collection::vec(net, 0..2)
    };
    let rare =
        |strategy: BoxedStrategy<Ports>| prop_oneof![3 => Just(Ports::default()), 1 => strategy];
    (nets(), nets(), set_ids(), set_ids(), rare(ports().boxed()), rare(ports().boxed()), set_ids())
        .prop_map(|(nets, not_nets, sets, not_sets, ports, not_ports, port_sets)| Peer {
            nets,
            not_nets,
            sets,
            not_sets,
            ports,
            not_ports,
            port_sets: if sets_are_rare(&port_sets) { port_sets } else { Vec::new() },
        })
}

fn sets_are_rare(sets: &[String]) -> bool {
    sets.first().is_some_and(|id| id == "s3")
}

fn protocols() -> impl Strategy<Value = Option<Protocol>> {
    proptest::option::of(prop_oneof![
        Just(Protocol::Number(6)),
        Just(Protocol::from("udp")),
        Just(Protocol::from("nobody-knows-it")),
    ])
}

pub(crate) fn rule() -> impl Strategy<Value = Rule> {
    let action =
        prop_oneof![Just(Action::Allow), Just(Action::Deny), Just(Action::Log), Just(Action::Pass)];
    let icmp = || {
        let icmp = (0_u8..3, proptest::option::of(0_u8..2));
        proptest::option::weighted(0.1, icmp.prop_map(|(kind, code)| Icmp { kind, code }))
    };
    let peers = prop_oneof![
        2 => Just((Peer::default(), Peer::default())),
        3 => (peer(), Just(Peer::default())),
        3 => (Just(Peer::default()), peer()),
        1 => (peer(), peer()),
    ];
    let version = proptest::option::weighted(0.2, any::<bool>());
    (action, version, protocols(), protocols(), icmp(), icmp(), peers).prop_map(
        |(action, is_ipv4, protocol, not_protocol, icmp, not_icmp, (source, destination))| Rule {
            action,
            is_ipv4,
            protocol,
            not_protocol,
            icmp,
            not_icmp,
            source,
            destination,
        },
    )
}

pub(crate) fn sets() -> impl Strategy<Value = IpSets> {
    let member = prop_oneof![
        (0_u8..4).prop_map(|last| Member::Net(net::Cidr::host([10, 0, 0, last].into()))),
        (0_u8..4, 1_u16..4).prop_map(|(last, port)| Member::Port {
            address: [10, 0, 0, last].into(),
            protocol: 6,
            port,
        }),
    ];
    let set = proptest::collection::btree_set(member, 0..4).prop_map(|members| IpSet { members });
    proptest::collection::btree_map((0_usize..4).prop_map(|n| format!("s{n}")), set, 0..5)
}

fn tiers() -> impl Strategy<Value = Vec<TierInForce>> {
    let ids = || {
        let id = (0_usize..6, proptest::bool::weighted(0.2)).prop_map(|(n, staged)| id(n, staged));
        proptest::collection::vec(id, 0..3)
    };
    let end = prop_oneof![Just(End::Deny), Just(End::Pass)];
    let tier = (ids(), ids(), end).prop_map(|(ingress, egress, end)| TierInForce {
        name: "t".to_owned(),
        end,
        ingress,
        egress,
    });
    proptest::collection::vec(tier, 0..3)
}

fn intent() -> impl Strategy<Value = Intent> {
    let rules = || proptest::collection::vec(rule(), 0..4);
    let directions = || {
        (rules(), rules()).prop_map(|(ingress, egress)| Arc::new(Directions { ingress, egress }))
    };
    let policies = (proptest::collection::vec(directions(), 6), directions());
    let layers = (tiers(), tiers(), tiers(), tiers());
    (policies, layers, sets()).prop_map(|((policies, profile), layers, sets)| {
        let mut intent = Intent { sets, ..Intent::default() };
        for (number, directions) in policies.into_iter().enumerate() {
            intent.policies.insert(id(number, false), directions.clone());
            intent.policies.insert(id(number, true), directions);
        }
        intent.profiles.insert("kns.shop".to_owned(), profile);
        let profiles = vec!["kns.shop".to_owned(), "nobody-wrote-it".to_owned()];
        let workload =
            Workload { tiers: layers.0.clone(), profiles: profiles.clone(), ..Workload::default() };
        let host = Host {
            tiers: layers.0,
            forward: layers.1,
            pre_dnat: layers.2,
            untracked: layers.3,
            profiles,
            ..Host::default()
        };
        intent.workloads.insert("w".to_owned(), workload);
        intent.hosts.insert("h".to_owned(), host);
        intent
    })
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Ingress), Just(Direction::Egress)]
}

/// The rules that were told of, and whether each matched.
fn told(walk: &Walk) -> Vec<(Rule, bool)> {
    let of_policies = walk.tiers.iter().flat_map(|tier| &tier.policies).flat_map(|it| &it.rules);
    let of_profiles = walk.profiles.iter().flat_map(|it| &it.rules);
    of_policies.chain(of_profiles).map(|it| (it.rule.clone(), it.is_match)).collect()
}

proptest! {
    #[test]
    fn a_rule_matches_what_meets_each_of_its_conditions(
        rule in rule(), packet in packet(), sets in sets()
    ) {
        prop_assert_eq!(rule.matches(&packet, &sets), rule.lacks(&packet, &sets).is_empty());
        let n_positive = rule.source.sets.len() + rule.destination.sets.len();
        if rule.matches(&packet, &sets) {
            let met = rule.met(&packet, &sets);
            for id in rule.source.sets.iter().chain(&rule.destination.sets) {
                prop_assert!(met.iter().any(|it| it.set == *id));
            }
            prop_assert!(met.len() >= n_positive.min(1));
        }
    }

    #[test]
    fn a_workload_is_told_as_it_is_judged(
        intent in intent(), packet in packet(), direction in direction()
    ) {
        let endpoint = &intent.workloads["w"];
        let rules = intent.rules(&endpoint.tiers, &endpoint.profiles, direction);
        let verdict = Judge { sets: &intent.sets }.endpoint(&rules, &packet);
        let walk = workload(&intent, endpoint, direction, &packet);
        prop_assert_eq!(walk.outcome, Some(verdict.outcome));
        let matched = told(&walk).iter().filter(|it| it.1).count();
        let of_rules = verdict.trail.iter().filter(|it| {
            matches!(it, Decision::Policy { .. } | Decision::Profile { .. })
        });
        prop_assert_eq!(matched, of_rules.count());
        let reached = verdict.trail.iter().filter_map(tier_of).collect::<Vec<_>>();
        let mut distinct = reached;
        distinct.dedup();
        prop_assert_eq!(walk.tiers.len(), distinct.len());
        let said = walk.decided_by.expect("something decides about a workload");
        prop_assert_eq!(RuleName::read(&said.to_text(), &intent), Some(said.clone()));
        let ended = matches!(said.place, crate::Place::EndOfTier { .. });
        prop_assert_eq!(
            ended,
            matches!(verdict.decided_by(), Some(Decision::EndOfTier { .. }))
        );
    }

    #[test]
    fn a_host_is_told_as_it_is_judged(
        intent in intent(), packet in packet(), direction in direction()
    ) {
        let endpoint = &intent.hosts["h"];
        let judge = Judge { sets: &intent.sets };
        let tiers = |of: &[TierInForce]| intent.rules(of, &[], direction).tiers;
        let untracked = judge.untracked(&tiers(&endpoint.untracked), &packet);
        let rules = HostRules {
            pre_dnat: tiers(&endpoint.pre_dnat),
            forward: tiers(&endpoint.forward),
            normal: Some(intent.rules(&endpoint.tiers, &endpoint.profiles, direction)),
        };
        let verdict = untracked.or_else(|| judge.host(&rules, &packet));
        let walk = host(&intent, endpoint, direction, &packet);
        prop_assert_eq!(walk.outcome, verdict.map(|it| it.outcome));
        prop_assert_eq!(walk.outcome.is_some(), walk.decided_by.is_some());
    }
}

#[test]
fn the_way_through_tiers_is_told_with_what_near_misses_lack() {
    let mut intent = Intent::default();
    let mut api = Rule::all(Action::Allow);
    api.protocol = Some(Protocol::from("tcp"));
    api.source.sets.push("api".to_owned());
    api.destination.ports.ranges.push((5432, 5432));
    let mut monitor = api.clone();
    monitor.source.sets = vec!["prometheus".to_owned()];
    monitor.destination.ports.ranges = vec![(9187, 9187)];
    let pass = Directions { ingress: vec![Rule::all(Action::Pass)], egress: Vec::new() };
    for (number, rules) in [(0, pass.ingress), (1, vec![api]), (2, vec![monitor])] {
        let directions = Directions { ingress: rules, egress: Vec::new() };
        intent.policies.insert(id(number, false), Arc::new(directions));
    }
    let tier = |name: &str, numbers: &[usize]| TierInForce {
        name: name.to_owned(),
        end: End::Deny,
        ingress: numbers.iter().map(|number| id(*number, false)).collect(),
        egress: Vec::new(),
    };
    let db = Workload {
        tiers: vec![tier("security", &[0]), tier("default", &[1, 2])],
        ..Workload::default()
    };
    let packet = Packet {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 6,
        ports: Some((40_000, 5432)),
        icmp: None,
        before_nat: None,
        is_of_host: false,
    };
    let walk = workload(&intent, &db, Direction::Ingress, &packet);
    assert_eq!(walk.outcome, Some(Outcome::Deny));
    assert_eq!(walk.decided_by, Some(RuleName::end_of_tier(Direction::Ingress, "default")));
    let steps: Vec<Step> = walk.tiers.iter().map(|it| it.step).collect();
    let passed = Step::Rule { policy: 0, rule: 0, action: Action::Pass };
    assert_eq!(steps, [passed, Step::End(End::Deny)]);
    let lacks = |policy: usize| &walk.tiers[1].policies[policy].rules[0].lacks;
    let about = |side, about| Condition::Of(side, about);
    assert_eq!(*lacks(0), [about(Side::Source, About::Set("api".to_owned()))]);
    assert_eq!(
        *lacks(1),
        [
            about(Side::Source, About::Set("prometheus".to_owned())),
            about(Side::Destination, About::Ports)
        ]
    );
}

#[test]
fn a_staged_policy_is_told_of_and_decides_nothing() {
    let mut intent = Intent::default();
    let deny = Directions { ingress: vec![Rule::all(Action::Deny)], egress: Vec::new() };
    let allow = Directions { ingress: vec![Rule::all(Action::Allow)], egress: Vec::new() };
    intent.policies.insert(id(0, true), Arc::new(deny));
    intent.policies.insert(id(1, false), Arc::new(allow));
    let tier = TierInForce {
        name: "default".to_owned(),
        end: End::Deny,
        ingress: vec![id(0, true), id(1, false)],
        egress: Vec::new(),
    };
    let endpoint = Workload { tiers: vec![tier], ..Workload::default() };
    let packet = Packet {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 6,
        ports: None,
        icmp: None,
        before_nat: None,
        is_of_host: false,
    };
    let walk = workload(&intent, &endpoint, Direction::Ingress, &packet);
    let decided = RuleName::policy(Direction::Ingress, id(1, false), 0);
    assert_eq!((walk.outcome, walk.decided_by), (Some(Outcome::Allow), Some(decided)));
    let staged = StagedWalk { id: id(0, true), would: Some((0, Action::Deny)) };
    assert_eq!(walk.tiers[0].staged, [staged]);
}
