//! Why a packet is let through or dropped: what [`Judge`] did, told step by step.
//!
//! Nothing is decided here. The verdict and the rules that matched are the judge's; what a rule
//! that did not match lacks is found by asking for each of its conditions alone.

mod condition;
#[cfg(test)]
pub(crate) mod tests;
mod words;

use model::resource::{Action, Direction};

use crate::input::PolicyId;
use crate::intent::{ALL_INTERFACES, Host, Intent, TierInForce, Workload};
use crate::packet::Packet;
use crate::rule::Rule;
use crate::rule_name::RuleName;
use crate::verdict::{Decision, End, Judge, Named, Outcome, Rules, Tier, Verdict};

pub use condition::{About, Condition, Met, Side};
pub use words::{Ends, Party, Words, action, protocol};

/// The way of a packet through the policies of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The direction, seen from the endpoint.
    pub direction: Direction,
    /// What becomes of it; none if the endpoint leaves it to others.
    pub outcome: Option<Outcome>,
    /// What decided that.
    pub decided_by: Option<RuleName>,
    /// The tiers that it came to, in order.
    pub tiers: Vec<TierWalk>,
    /// The profiles that it came to, in order.
    pub profiles: Vec<ProfileWalk>,
}

/// What happened in one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierWalk {
    /// Its name.
    pub name: String,
    /// Where in the packet's way it stands.
    pub layer: Layer,
    /// The policies that it came to, in order.
    pub policies: Vec<PolicyWalk>,
    /// How many policies come after the one that decided.
    pub n_unreached: usize,
    /// What policies would do that are not in force.
    pub staged: Vec<StagedWalk>,
    /// How it ended.
    pub step: Step,
}

/// Where in a packet's way tiers stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// A workload, or the host itself.
    Normal,
    /// What a host passes on.
    Forward,
    /// Before destination NAT.
    PreDnat,
    /// Before connection tracking.
    Untracked,
}

/// How a tier ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A rule decided.
    Rule {
        /// Its policy, as a place in [`TierWalk::policies`].
        policy: usize,
        /// Its place in the policy.
        rule: usize,
        /// Its action.
        action: Action,
    },
    /// No rule did.
    End(End),
}

/// What happened in one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyWalk {
    /// Which one.
    pub id: PolicyId,
    /// Its rules, up to the one that decided.
    pub rules: Vec<RuleWalk>,
}

/// What happened in one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileWalk {
    /// Its name.
    pub name: String,
    /// Its rules, up to the one that decided.
    pub rules: Vec<RuleWalk>,
}

/// What a policy would do that is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedWalk {
    /// Which one.
    pub id: PolicyId,
    /// The rule that would decide, and its action; none if none matches.
    pub would: Option<(usize, Action)>,
}

/// What became of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleWalk {
    /// The rule.
    pub rule: Rule,
    /// Whether it matched.
    pub is_match: bool,
    /// The conditions that the packet does not meet.
    pub lacks: Vec<Condition>,
    /// The members of its sets that the packet meets.
    pub met: Vec<Met>,
}

/// The way of a packet through a workload's policies.
pub fn workload(
    intent: &Intent,
    workload: &Workload,
    direction: Direction,
    packet: &Packet,
) -> Walk {
    let mut teller = Teller { intent, walk: Walk::new(direction) };
    let rules = intent.rules(&workload.tiers, &workload.profiles, direction);
    teller.tell(Layer::Normal, &workload.tiers, &rules, packet);
    teller.walk
}

/// The way of a packet through the policies of a host's interface: what [`Judge::untracked`] and
/// then [`Judge::host`] do.
pub fn host(intent: &Intent, host: &Host, direction: Direction, packet: &Packet) -> Walk {
    let mut teller = Teller { intent, walk: Walk::new(direction) };
    let before_nat = packet.before_nat();
    let (last, tiers, profiles): (_, _, &[String]) = match packet.is_of_host {
        true => (Layer::Normal, &host.tiers, &host.profiles),
        false => (Layer::Forward, &host.forward, &[]),
    };
    // Nobody knows by which interface an untracked packet of all others goes.
    let none = Vec::new();
    let untracked = if host.interface == ALL_INTERFACES { &none } else { &host.untracked };
    let layers = [
        (Layer::Untracked, untracked, &[][..], &before_nat),
        (Layer::PreDnat, &host.pre_dnat, &[][..], &before_nat),
        (last, tiers, profiles, packet),
    ];
    for (layer, tiers, profiles, packet) in layers {
        let rules = intent.rules(tiers, profiles, direction);
        teller.tell(layer, tiers, &rules, packet);
        if teller.walk.outcome.is_some() {
            break;
        }
    }
    teller.walk
}

impl Walk {
    fn new(direction: Direction) -> Self {
        let (tiers, profiles) = (Vec::new(), Vec::new());
        Self { direction, outcome: None, decided_by: None, tiers, profiles }
    }
}

struct Teller<'a> {
    intent: &'a Intent,
    walk: Walk,
}

impl Teller<'_> {
    fn tell(&mut self, layer: Layer, of: &[TierInForce], rules: &Rules, packet: &Packet) {
        let verdict = Judge { sets: &self.intent.sets }.endpoint(rules, packet);
        for (number, (tier, in_force)) in rules.tiers.iter().zip(of).enumerate() {
            let of_tier = |it: &&Decision| tier_of(it) == Some(number);
            let trail: Vec<Decision> = verdict.trail.iter().filter(of_tier).copied().collect();
            // Without policies in force a tier is not there, and after a decision it is not met.
            if let Some(last) = trail.last() {
                let told = self.tier(layer, tier, in_force, *last, packet);
                self.walk.tiers.push(told);
            }
        }
        let decided_by = verdict.decided_by();
        // A host's interface has profiles only for the host itself.
        if decided_by == Some(Decision::NoProfile) && layer != Layer::Normal {
            return;
        }
        if decided_by.is_some_and(|it| tier_of(&it).is_none()) {
            self.walk.profiles = self.profiles(&rules.profiles, &verdict, packet);
        }
        self.walk.outcome = Some(verdict.outcome);
        self.walk.decided_by = decided_by.and_then(|it| self.name(it, of, rules));
    }

    fn tier(
        &self,
        layer: Layer,
        tier: &Tier,
        in_force: &TierInForce,
        last: Decision,
        packet: &Packet,
    ) -> TierWalk {
        let (n_reached, step) = match last {
            Decision::Policy { policy, rule, .. } => {
                let action = tier.policies.get(policy).and_then(|it| it.rules.get(rule));
                let action = action.map_or(Action::Log, |it| it.action);
                (policy + 1, Step::Rule { policy, rule, action })
            }
            _ => (tier.policies.len(), Step::End(tier.end)),
        };
        let ids = in_force.enforced(self.walk.direction);
        let reached = tier.policies.iter().zip(ids).take(n_reached).enumerate();
        let policies = reached.map(|(at, (named, id))| {
            let decisive = match step {
                Step::Rule { policy, rule, .. } if policy == at => Some(rule),
                _ => None,
            };
            PolicyWalk { id: id.clone(), rules: self.rules(named, decisive, packet) }
        });
        TierWalk {
            name: tier.name.clone(),
            layer,
            policies: policies.collect(),
            n_unreached: tier.policies.len() - n_reached,
            staged: self.staged(in_force, packet),
            step,
        }
    }

    /// The rules up to the one that decided, or all.
    fn rules(&self, named: &Named, decisive: Option<usize>, packet: &Packet) -> Vec<RuleWalk> {
        let n_reached = decisive.map_or(named.rules.len(), |rule| rule + 1);
        let sets = &self.intent.sets;
        let told = named.rules.iter().take(n_reached).map(|rule| {
            let is_match = rule.matches(packet, sets);
            let met = if is_match { rule.met(packet, sets) } else { Vec::new() };
            RuleWalk { rule: rule.clone(), is_match, lacks: rule.lacks(packet, sets), met }
        });
        told.collect()
    }

    /// Each staged policy as if it were the only one.
    fn staged(&self, tier: &TierInForce, packet: &Packet) -> Vec<StagedWalk> {
        let direction = self.walk.direction;
        let judge = Judge { sets: &self.intent.sets };
        let would = |id: &PolicyId| {
            let rules = self.intent.policies.get(id).map(|it| it.of(direction).to_vec());
            let named = Named { name: id.to_string(), rules: rules.unwrap_or_default() };
            let alone = Tier { name: String::new(), end: End::Pass, policies: vec![named.clone()] };
            let rules = Rules { tiers: vec![alone], profiles: Vec::new() };
            let trail = judge.endpoint(&rules, packet).trail;
            let decides = |it: &Decision| match it {
                Decision::Policy { rule, .. } => {
                    let action = named.rules.get(*rule)?.action;
                    (action != Action::Log).then_some((*rule, action))
                }
                _ => None,
            };
            trail.iter().find_map(decides)
        };
        let policies = match direction {
            Direction::Ingress => &tier.ingress,
            Direction::Egress => &tier.egress,
        };
        let staged = policies.iter().filter(|id| id.kind.is_staged());
        staged.map(|id| StagedWalk { id: id.clone(), would: would(id) }).collect()
    }

    fn profiles(&self, profiles: &[Named], verdict: &Verdict, packet: &Packet) -> Vec<ProfileWalk> {
        let n_reached = match verdict.decided_by() {
            Some(Decision::Profile { profile, .. }) => profile + 1,
            _ => profiles.len(),
        };
        let told = profiles.iter().take(n_reached).enumerate().map(|(at, named)| {
            let is_last = |it: &Decision| match it {
                Decision::Profile { profile, rule } if *profile == at => {
                    let action = named.rules.get(*rule)?.action;
                    (action != Action::Log).then_some(*rule)
                }
                _ => None,
            };
            let last = verdict.trail.iter().find_map(is_last);
            ProfileWalk { name: named.name.clone(), rules: self.rules(named, last, packet) }
        });
        told.collect()
    }

    fn name(&self, decision: Decision, of: &[TierInForce], rules: &Rules) -> Option<RuleName> {
        let direction = self.walk.direction;
        Some(match decision {
            Decision::Policy { tier, policy, rule } => {
                let id = of.get(tier)?.enforced(direction).nth(policy)?;
                RuleName::policy(direction, id.clone(), rule)
            }
            Decision::EndOfTier { tier } => RuleName::end_of_tier(direction, &of.get(tier)?.name),
            Decision::Profile { profile, rule } => {
                RuleName::profile(direction, &rules.profiles.get(profile)?.name, rule)
            }
            Decision::NoProfile => RuleName::no_profile(direction),
        })
    }
}

fn tier_of(decision: &Decision) -> Option<usize> {
    match decision {
        Decision::Policy { tier, .. } | Decision::EndOfTier { tier } => Some(*tier),
        Decision::Profile { .. } | Decision::NoProfile => None,
    }
}
