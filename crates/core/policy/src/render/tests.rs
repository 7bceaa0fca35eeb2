//! The ruleset against the judge, and against one that is made anew.

mod hosts;
mod model;
mod random;

use std::sync::Arc;

use ::model::resource::Direction;
use model::{Model, OnTheWay};
use random::Dice;

use super::*;
use crate::intent::{Directions, TierInForce, Workload};
use crate::{Decision, Judge, Named, Outcome, Packet, RuleName, Rules, Tier, Verdict};

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
        let mut on_the_way = OnTheWay {
            packet: packet.clone(),
            came_by: sender.interface.clone(),
            leaves_by: receiver.interface.clone(),
            mark: 0,
        };
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
        assert_eq!(said, (is_allowed, met), "{packet:?} {sender:#?} {receiver:#?} {intent:#?}");
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

#[test]
fn the_kernel_does_what_the_judge_says_also_after_changes() {
    let surroundings = random::surroundings();
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let mut intent = random::intent(&mut dice);
        let (mut renderer, mut model) = installed(&intent, &surroundings);
        compare(&intent, &model, &mut dice);
        hosts::compare(&intent, &model, &mut dice);
        for _ in 0..4 {
            let (after, dirty) = random::changed(&intent, &mut dice);
            let (change, plan) = renderer.drafted(&after, &dirty, &surroundings, false);
            plan.carry_out(&after, &mut model);
            renderer.committed(change);
            intent = after;
            compare(&intent, &model, &mut dice);
            hosts::compare(&intent, &model, &mut dice);
            let (anew, whole) = installed(&intent, &surroundings);
            assert_eq!(model, whole, "seed {seed}");
            assert_eq!(renderer.state, anew.state, "seed {seed}");
        }
    }
}
