//! What the oracle says of a packet from one party to another, in terms of what the kernel tells.

use model::resource::Direction;
use policy::intent::{Directions, Intent, TierInForce, Workload};
use policy::{Decision, Judge, Named, Outcome, Packet, RuleName, Rules, Tier};

use crate::objects::Party;
use crate::probes::Place;

/// What should become of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) is_allowed: bool,
    /// The rules that match on its way, in order, by the texts that the kernel's rules bear.
    pub(crate) trail: Vec<RuleName>,
}

impl Wanted {
    /// What decided; none where no policy had to.
    pub(crate) fn by(&self) -> Option<&RuleName> {
        self.trail.last()
    }
}

/// The verdict at the sender, and then the one at the receiver.
pub(crate) fn wanted(intent: &Intent, (from, to): (&Party, &Party), packet: &Packet) -> Wanted {
    let mut wanted = Wanted { is_allowed: true, trail: Vec::new() };
    // A node always reaches its own pods.
    if from.place == Place::Node {
        return wanted;
    }
    for (party, direction) in [(from, Direction::Egress), (to, Direction::Ingress)] {
        if !matches!(party.place, Place::Pod(_)) {
            continue;
        }
        let has = |it: &&Workload| it.addresses.iter().any(|net| net.contains(party.addresses[0]));
        let Some(workload) = intent.workloads.values().find(has) else {
            return Wanted { is_allowed: false, ..wanted };
        };
        let rules = rules(intent, (&workload.tiers, &workload.profiles), direction);
        let verdict = Judge { sets: &intent.sets }.endpoint(&rules, packet);
        let lists = (&workload.tiers[..], &workload.profiles[..]);
        let named = verdict.trail.iter().map(|it| name(lists, direction, *it));
        wanted.trail.extend(named);
        if verdict.outcome == Outcome::Deny {
            return Wanted { is_allowed: false, ..wanted };
        }
    }
    wanted
}

fn of(directions: &Directions, direction: Direction) -> Vec<policy::Rule> {
    match direction {
        Direction::Ingress => directions.ingress.clone(),
        Direction::Egress => directions.egress.clone(),
    }
}

/// Tiers with policies that are enforced, as places in the list of all, and profiles.
pub(crate) type Lists<'a> = (&'a [TierInForce], &'a [String]);

pub(crate) fn rules(intent: &Intent, (tiers, profiles): Lists<'_>, direction: Direction) -> Rules {
    let tiers = tiers.iter().map(|tier| {
        let ids = policies(tier, direction);
        let policies = ids.map(|id| {
            let rules = intent.policies.get(id).unwrap_or_else(|| panic!("{id} is missing"));
            Named { name: id.to_string(), rules: of(rules, direction) }
        });
        Tier { name: tier.name.clone(), end: tier.end, policies: policies.collect() }
    });
    let profiles = profiles.iter().map(|name| {
        let rules = intent.profiles.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        Named { name: name.clone(), rules: of(rules, direction) }
    });
    Rules { tiers: tiers.collect(), profiles: profiles.collect() }
}

fn policies(
    tier: &TierInForce,
    direction: Direction,
) -> impl Iterator<Item = &policy::input::PolicyId> {
    let all = match direction {
        Direction::Ingress => &tier.ingress,
        Direction::Egress => &tier.egress,
    };
    all.iter().filter(|id| !id.kind.is_staged())
}

pub(crate) fn name(
    (tiers, profiles): Lists<'_>,
    direction: Direction,
    decision: Decision,
) -> RuleName {
    match decision {
        Decision::Policy { tier, policy, rule } => {
            let id = policies(&tiers[tier], direction).nth(policy).unwrap();
            RuleName::policy(direction, id.clone(), rule)
        }
        Decision::EndOfTier { tier } => RuleName::end_of_tier(direction, tiers[tier].name.clone()),
        Decision::Profile { profile, rule } => {
            RuleName::profile(direction, profiles[profile].clone(), rule)
        }
        Decision::NoProfile => RuleName::no_profile(direction),
    }
}
