//! The ruleset against the judge, and against one that is made anew.

mod hosts;
mod model;
mod random;

use std::collections::BTreeSet;
use std::sync::Arc;

use ::model::resource::{Action, Direction};
use model::{Model, OnTheWay};
use net::{Cidr, Protocol};
use random::Dice;

use super::*;
use crate::input::PolicyKind;
use crate::intent::{Directions, TierInForce, Workload};
use crate::{
    Decision, End, IpSet, Judge, Member, Named, Outcome, Packet, Rule, RuleName, Rules, Tier,
    Verdict,
};

/// The rules of an endpoint for a direction.
fn rules(
    intent: &Intent,
    tiers: &[TierInForce],
    profiles: &[String],
    direction: Direction,
) -> Rules {
    let of = |it: &Arc<Directions>| match direction {
        Direction::Ingress => it.ingress.clone(),
        Direction::Egress => it.egress.clone(),
    };
    let tier = |tier: &TierInForce| Tier {
        name: tier.name.clone(),
        end: tier.end,
        policies: enforced(tier, direction)
            .into_iter()
            .map(|id| Named { name: id.to_string(), rules: of(&intent.policies[&id]) })
            .collect(),
    };
    let profile = |name: &String| Named { name: name.clone(), rules: of(&intent.profiles[name]) };
    Rules {
        tiers: tiers.iter().map(tier).collect(),
        profiles: profiles.iter().map(profile).collect(),
    }
}

fn enforced(tier: &TierInForce, direction: Direction) -> Vec<PolicyId> {
    let all = match direction {
        Direction::Ingress => &tier.ingress,
        Direction::Egress => &tier.egress,
    };
    all.iter().filter(|id| !id.kind.is_staged()).cloned().collect()
}

/// The texts of the names of what a verdict met.
fn texts(
    verdict: &Verdict,
    tiers: &[TierInForce],
    profiles: &[String],
    direction: Direction,
) -> Vec<String> {
    let name = |decision: &Decision| match *decision {
        Decision::Policy { tier, policy, rule } => {
            let ids = enforced(&tiers[tier], direction);
            RuleName::policy(direction, ids[policy].clone(), rule)
        }
        Decision::EndOfTier { tier } => RuleName::end_of_tier(direction, tiers[tier].name.clone()),
        Decision::Profile { profile, rule } => {
            RuleName::profile(direction, profiles[profile].clone(), rule)
        }
        Decision::NoProfile => RuleName::no_profile(direction),
    };
    verdict.trail.iter().map(|decision| name(decision).to_text()).collect()
}

/// What the judge says of a packet from one workload to another: both have to let it through.
fn judged(intent: &Intent, from: &Workload, to: &Workload, packet: &Packet) -> (bool, Vec<String>) {
    let judge = Judge { sets: &intent.sets };
    let mut met = Vec::new();
    for (workload, direction) in [(from, Direction::Egress), (to, Direction::Ingress)] {
        let (tiers, profiles) = (&workload.tiers, &workload.profiles);
        let verdict = judge.endpoint(&rules(intent, tiers, profiles, direction), packet);
        met.extend(texts(&verdict, tiers, profiles, direction));
        // A policy can be in two tiers here, and a denial says its name twice.
        met.dedup();
        if verdict.outcome == Outcome::Deny {
            return (false, met);
        }
    }
    (true, met)
}

/// Whether the kernel's rules do with packets at random what the judge says, for the same reasons.
fn compare(intent: &Intent, model: &Model, dice: &mut Dice) {
    let has_interface = |number: u64| {
        let workload = intent.workloads.get(&format!("w{number}"))?;
        (workload.interface == random::interface(number)).then_some(workload)
    };
    for _ in 0..40 {
        let (from, to) = (dice.below(4), dice.below(4));
        let is_ipv4 = dice.one_in(2);
        let (Some(sender), Some(receiver)) = (has_interface(from), has_interface(to)) else {
            continue;
        };
        let packet = random::packet(dice, from, to, is_ipv4);
        let (came_by, leaves_by) = (&sender.interface, &receiver.interface);
        let mut on_the_way = OnTheWay::new(packet.clone(), came_by, leaves_by);
        // The endpoints of the host have their say, too: here only those of the workloads count.
        let mut model = model.clone();
        model.forget_hosts();
        let fate = model.send("forward", &mut on_the_way);
        let has_family = |it: &Workload| it.addresses.iter().any(|net| net.is_ipv4() == is_ipv4);
        if !has_family(sender) || !has_family(receiver) {
            assert!(!fate.is_accepted, "who has no address of a family is closed for it");
            continue;
        }
        let (is_allowed, met) = judged(intent, sender, receiver, &packet);
        let said = (fate.is_accepted, fate.met);
        let context = || format!("{packet:?} {sender:#?} {receiver:#?} {intent:#?}");
        assert_eq!(said, (is_allowed, met), "{}", context());
        let mut on_the_way = OnTheWay::new(packet.clone(), came_by, leaves_by);
        let by_service = model.send_along(&["input", "passed-on"], &mut on_the_way);
        if model.knows_sender(packet.source) {
            assert_eq!(by_service, said, "by a service: {}", context());
            assert!(!by_service.0 || on_the_way.mark == 0, "nothing of it is left");
        } else {
            assert!(!by_service.0, "whose it is nobody can tell: {}", context());
        }
    }
}

fn installed(intent: &Intent, surroundings: &Surroundings) -> (Renderer, Model) {
    let none = Vec::new();
    let settings =
        Settings { failsafe_inbound: none.clone(), failsafe_outbound: none, ..Settings::default() };
    let mut renderer = Renderer::new(settings);
    let mut model = Model::default();
    let (change, plan) = renderer.drafted(intent, &whole(intent), surroundings, true);
    plan.carry_out(intent, &mut model);
    renderer.committed(change);
    (renderer, model)
}

/// An intent in which one workload has many policies.
fn with_policies(n: u16, of: impl Fn(u16) -> Rule) -> Intent {
    let mut intent = Intent::default();
    let mut ids = Vec::new();
    for number in 0..n {
        let id = PolicyId {
            kind: PolicyKind::NetworkPolicy,
            namespace: "shop".to_owned(),
            name: format!("p{number:04}"),
        };
        let ingress = vec![of(number)];
        intent.policies.insert(id.clone(), Arc::new(Directions { ingress, egress: Vec::new() }));
        ids.push(id);
        let [high, low] = number.to_be_bytes();
        let member = Member::Net(Cidr::host([10, 1, high, low].into()));
        intent.sets.insert(format!("s:{number}"), IpSet { members: [member].into() });
    }
    let tier = |ingress| TierInForce {
        name: "default".to_owned(),
        end: End::Deny,
        ingress,
        egress: Vec::new(),
    };
    let workload = |number: u8, tiers| Workload {
        interface: random::interface(number.into()),
        addresses: vec![Cidr::host([10, 0, 0, number].into())],
        tiers,
        profiles: vec!["open".to_owned()],
        ..Workload::default()
    };
    let all = Arc::new(Directions {
        ingress: vec![Rule::all(Action::Allow)],
        egress: vec![Rule::all(Action::Allow)],
    });
    intent.profiles.insert("open".to_owned(), all);
    intent.workloads.insert("w1".to_owned(), workload(1, Vec::new()));
    intent.workloads.insert("w2".to_owned(), workload(2, vec![tier(ids)]));
    intent
}

/// How many rules the first packet meets that the last policy allows.
fn n_walked(intent: &Intent, source: [u8; 4], port: u16, name: &str) -> usize {
    let (_, model) = installed(intent, &Surroundings::default());
    let packet = Packet {
        source: source.into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 6,
        ports: Some((40_000, port)),
        icmp: None,
        before_nat: None,
        is_of_host: false,
    };
    let (came_by, leaves_by) = (random::interface(1), random::interface(2));
    let fate = model.send("forward", &mut OnTheWay::new(packet, &came_by, &leaves_by));
    assert!(fate.is_accepted, "{fate:?}");
    assert_eq!(fate.met.last().map(String::as_str), Some(name));
    fate.n_walked
}

/// The kernel refuses every transaction with some set, as it would one that does not fit.
#[test]
fn what_is_refused_stands_as_before_and_is_owed() {
    let surroundings = random::surroundings();
    for seed in 100..120 {
        let mut dice = Dice::new(seed);
        let before = random::intent(&mut dice);
        let (mut renderer, mut model) = installed(&before, &surroundings);
        let (mut intent, mut dirty) = random::changed(&before, &mut dice);
        for key in intent.workloads.keys() {
            dirty.workloads.insert(key.clone());
        }
        let bad = "s:1".to_owned();
        for piece in renderer.pieces(&dirty) {
            let (change, plan) = renderer.drafted(&intent, &piece, &surroundings, false);
            if plan.sets.keys().any(|(_, name)| name.ends_with("s.1")) {
                drop(change);
                renderer.refused(&piece);
            } else {
                plan.carry_out(&intent, &mut model);
                renderer.committed(change);
            }
        }
        // Meanwhile the set changes again; then the kernel takes everything.
        let old = intent.sets.insert(bad.clone(), random::set(&mut dice, &bad)).unwrap();
        let (old, new) = (&old.members, &intent.sets[&bad].members);
        let mut dirty = renderer.debts().clone();
        dirty.sets.insert(
            bad,
            SetChange {
                added: new.difference(old).cloned().collect(),
                removed: old.difference(new).cloned().collect(),
            },
        );
        let (change, plan) = renderer.drafted(&intent, &dirty, &surroundings, false);
        plan.carry_out(&intent, &mut model);
        renderer.committed(change);
        let (anew, whole) = installed(&intent, &surroundings);
        assert_eq!(*renderer.debts(), Dirty::default());
        assert_eq!(model.chains, whole.chains, "seed {seed}");
        assert_eq!(model.sets, whole.sets, "seed {seed}");
        assert_eq!(renderer.state, anew.state, "seed {seed}");
    }
}

/// Of three transactions the kernel takes one, two or all; what is left over goes in the end.
#[test]
fn what_stops_half_way_is_made_good_by_later_changes() {
    let surroundings = random::surroundings();
    let mut n_left = 0;
    for seed in 200..240 {
        let mut dice = Dice::new(seed);
        let mut intent = random::intent(&mut dice);
        let (mut renderer, mut model) = installed(&intent, &surroundings);
        for round in 0..8 {
            let (after, mut dirty) = random::changed(&intent, &mut dice);
            intent = after;
            dirty.join(&renderer.debts().clone());
            let (change, plan) = renderer.drafted(&intent, &dirty, &surroundings, false);
            let at = |part| change.steps.iter().position(|step| step.part == part);
            let (switch, tidy) = (at(Part::Switch), at(Part::Tidy));
            plan.prepare(&intent, &mut model);
            match (dice.below(3), switch, tidy) {
                (0, Some(switch), _) if round < 7 => {
                    assert!(!renderer.stopped(change, switch));
                    renderer.refused(&dirty);
                }
                (1, _, Some(tidy)) => {
                    plan.switch(&intent, &mut model);
                    assert!(renderer.stopped(change, tidy));
                    compare(&intent, &model, &mut dice);
                }
                _ => {
                    plan.switch(&intent, &mut model);
                    plan.tidy(&mut model);
                    renderer.committed(change);
                    compare(&intent, &model, &mut dice);
                }
            }
            n_left += renderer.state.litter.len();
        }
        let rest = renderer.debts().clone();
        let (change, plan) = renderer.drafted(&intent, &rest, &surroundings, false);
        plan.carry_out(&intent, &mut model);
        renderer.committed(change);
        let (anew, whole) = installed(&intent, &surroundings);
        assert_eq!(model.chains, whole.chains, "seed {seed}");
        assert_eq!(model.sets, whole.sets, "seed {seed}");
        assert_eq!(renderer.state, anew.state, "seed {seed}");
    }
    assert!(n_left > 100, "only {n_left} were left over");
}

#[test]
fn rules_walked_do_not_grow_with_policies() {
    let tcp = |port| {
        let mut rule = Rule::all(Action::Allow);
        rule.protocol = Some(Protocol::Number(6));
        rule.destination.ports.ranges.push((port, port));
        rule
    };
    let by_port = |number: u16| tcp(1000 + number);
    let by_selector = |number: u16| {
        let mut rule = tcp(80);
        rule.source.sets.push(format!("s:{number}"));
        rule
    };
    let last = |n: u16| format!("i:np:0:shop/p{:04}", n - 1);
    let ports = [1, 10, 100, 1000].map(|n| {
        let intent = with_policies(n, by_port);
        n_walked(&intent, [10, 9, 9, 9], 999 + n, &last(n))
    });
    let selectors = [1, 10, 100, 1000].map(|n| {
        let intent = with_policies(n, by_selector);
        let [high, low] = (n - 1).to_be_bytes();
        n_walked(&intent, [10, 1, high, low], 80, &last(n))
    });
    assert_eq!(ports, [14, 15, 15, 15]);
    assert_eq!(selectors, [14, 16, 16, 16]);
}

#[test]
fn the_kernel_does_what_the_judge_says_also_after_changes() {
    let mut sorts = BTreeSet::new();
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let mut surroundings = random::surroundings();
        let mut intent = random::intent(&mut dice);
        let (mut renderer, mut model) = installed(&intent, &surroundings);
        compare(&intent, &model, &mut dice);
        hosts::compare(&intent, &surroundings, &model, &mut dice);
        for _ in 0..4 {
            let (after, dirty) = random::changed(&intent, &mut dice);
            surroundings = random::moved(&mut dice);
            let (change, plan) = renderer.drafted(&after, &dirty, &surroundings, false);
            plan.carry_out(&after, &mut model);
            renderer.committed(change);
            intent = after;
            compare(&intent, &model, &mut dice);
            hosts::compare(&intent, &surroundings, &model, &mut dice);
            let (anew, whole) = installed(&intent, &surroundings);
            assert_eq!(model.chains, whole.chains, "seed {seed}");
            assert_eq!(model.sets, whole.sets, "seed {seed}");
            assert_eq!(renderer.state, anew.state, "seed {seed}");
        }
        sorts
            .extend(model.sets.keys().filter_map(|(_, it)| it.split('-').next()).map(String::from));
    }
    for sort in ["addresses4", "addresses6", "ports", "port", "nets", "h4", "r6", "p4"] {
        assert!(sorts.contains(sort), "{sort} in {sorts:?}");
    }
}

/// An address that two workloads have, and one that only one of them may use.
#[test]
fn services_are_closed_for_addresses_of_several_workloads() {
    let intent_of = |n: u8, is_shared: bool| {
        let mut intent = with_policies(0, |_| Rule::all(Action::Allow));
        let second = intent.workloads.get_mut("w2").unwrap();
        second.tiers.clear();
        if is_shared {
            second.addresses.push(Cidr::host([10, 0, 0, 1].into()));
        }
        intent.workloads.retain(|key, _| n == 2 || key == "w2");
        intent
    };
    let passes = |model: &Model, number: u8, source: [u8; 4]| {
        let packet = Packet {
            source: source.into(),
            destination: [192, 0, 2, 1].into(),
            protocol: 6,
            ports: Some((40_000, 80)),
            icmp: None,
            before_nat: None,
            is_of_host: false,
        };
        let mut on_the_way = OnTheWay::new(packet, &random::interface(number.into()), "eth0");
        model.send_along(&["input", "passed-on"], &mut on_the_way).0
    };
    let (apart, shared, alone) = (intent_of(2, false), intent_of(2, true), intent_of(1, true));
    let surroundings = Surroundings::default();
    let (mut renderer, mut model) = installed(&apart, &surroundings);
    assert!(passes(&model, 1, [10, 0, 0, 1]) && passes(&model, 2, [10, 0, 0, 2]));
    // As a workload may that is allowed other sources, of which the map knows nothing.
    assert!(!passes(&model, 1, [10, 7, 7, 7]));
    for (intent, is_open) in [(&shared, false), (&alone, true), (&apart, true), (&shared, false)] {
        let workloads = ["w1", "w2"].map(str::to_owned).into();
        let dirty = Dirty { workloads, ..Dirty::default() };
        let (change, plan) = renderer.drafted(intent, &dirty, &surroundings, false);
        plan.carry_out(intent, &mut model);
        renderer.committed(change);
        let number = if intent.workloads.len() == 1 { 2 } else { 1 };
        assert_eq!(passes(&model, number, [10, 0, 0, 1]), is_open);
        assert!(passes(&model, 2, [10, 0, 0, 2]));
        assert_eq!(renderer.state, installed(intent, &surroundings).0.state);
    }
}
