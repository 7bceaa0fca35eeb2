//! Which rule decides about a packet.

use model::resource::Action;

use crate::packet::Packet;
use crate::rule::Rule;
use crate::set::IpSets;

/// The tiers and profiles of an endpoint for one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The tiers in their order.
    pub tiers: Vec<Tier>,
    /// The profiles in theirs.
    pub profiles: Vec<Named>,
}

/// The policies of a tier that concern an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// What becomes of packets that none of its policies decides.
    pub end: End,
    /// Its policies in their order.
    pub policies: Vec<Named>,
}

/// The end of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// They are dropped.
    Deny,
    /// The next tier decides.
    Pass,
}

/// The rules of a policy or a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// The rules of an interface of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRules {
    /// Those that come before destination NAT.
    pub pre_dnat: Vec<Tier>,
    /// Those for what is passed on.
    pub forward: Vec<Tier>,
    /// Those for the host itself; none if they are not carried out here.
    pub normal: Option<Rules>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is let through.
    Allow,
    /// It is dropped.
    Deny,
}

/// What decided, or was met on the way: places in the lists of [`Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A rule of a policy.
    Policy {
        /// The tier.
        tier: usize,
        /// The policy.
        policy: usize,
        /// The rule.
        rule: usize,
    },
    /// The end of a tier.
    EndOfTier {
        /// The tier.
        tier: usize,
    },
    /// A rule of a profile.
    Profile {
        /// The profile.
        profile: usize,
        /// The rule.
        rule: usize,
    },
    /// No rule of any profile matched.
    NoProfile,
}

/// What becomes of a packet, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of it.
    pub outcome: Outcome,
    /// The rules that matched, in order; the last one decided.
    pub trail: Vec<Decision>,
}

impl Verdict {
    /// What decided; none where nothing had to.
    pub fn decided_by(&self) -> Option<Decision> {
        self.trail.last().copied()
    }
}

/// Judges packets.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    /// The sets that rules name.
    pub sets: &'a IpSets,
}

impl Judge<'_> {
    /// What an endpoint's rules for a direction make of a packet.
    pub fn endpoint(&self, rules: &Rules, packet: &Packet) -> Verdict {
        let mut trail = Vec::new();
        let outcome = match self.tiers(&rules.tiers, packet, &mut trail) {
            Some(outcome) => outcome,
            None => self.profiles(&rules.profiles, packet, &mut trail),
        };
        Verdict { outcome, trail }
    }

    /// What the rules of a host's interface make of a packet: none if they leave it to others.
    ///
    /// What is allowed before destination NAT is not judged by the other rules of the host.
    pub fn host(&self, rules: &HostRules, packet: &Packet) -> Option<Verdict> {
        let mut trail = Vec::new();
        if let Some(outcome) = self.tiers(&rules.pre_dnat, &packet.before_nat(), &mut trail) {
            return Some(Verdict { outcome, trail });
        }
        match (packet.is_of_host, &rules.normal) {
            (true, Some(normal)) => Some(self.endpoint(normal, packet)),
            (true, None) => None,
            (false, _) => {
                let outcome = self.tiers(&rules.forward, packet, &mut trail)?;
                Some(Verdict { outcome, trail })
            }
        }
    }

    /// What tiers without an end of their own make of a packet, as before connection tracking; none
    /// if no rule decides.
    pub fn untracked(&self, tiers: &[Tier], packet: &Packet) -> Option<Verdict> {
        let mut trail = Vec::new();
        let outcome = self.tiers(tiers, &packet.before_nat(), &mut trail)?;
        Some(Verdict { outcome, trail })
    }

    fn tiers(&self, tiers: &[Tier], packet: &Packet, trail: &mut Vec<Decision>) -> Option<Outcome> {
        let in_force = tiers.iter().enumerate().filter(|(_, tier)| !tier.policies.is_empty());
        for (number, tier) in in_force {
            match self.tier(number, tier, packet, trail) {
                Some(Action::Allow) => return Some(Outcome::Allow),
                Some(Action::Deny) => return Some(Outcome::Deny),
                Some(Action::Pass | Action::Log) => {}
                None if tier.end == End::Pass => trail.push(Decision::EndOfTier { tier: number }),
                None => {
                    trail.push(Decision::EndOfTier { tier: number });
                    return Some(Outcome::Deny);
                }
            }
        }
        None
    }

    /// The action of the first rule that matches and decides.
    fn tier(
        &self,
        number: usize,
        tier: &Tier,
        packet: &Packet,
        trail: &mut Vec<Decision>,
    ) -> Option<Action> {
        for (policy, named) in tier.policies.iter().enumerate() {
            for (rule, it) in named.rules.iter().enumerate() {
                if it.matches(packet, self.sets) {
                    trail.push(Decision::Policy { tier: number, policy, rule });
                    if it.action != Action::Log {
                        return Some(it.action);
                    }
                }
            }
        }
        None
    }

    fn profiles(&self, profiles: &[Named], packet: &Packet, trail: &mut Vec<Decision>) -> Outcome {
        for (profile, named) in profiles.iter().enumerate() {
            for (rule, it) in named.rules.iter().enumerate() {
                if !it.matches(packet, self.sets) {
                    continue;
                }
                trail.push(Decision::Profile { profile, rule });
                match it.action {
                    Action::Allow => return Outcome::Allow,
                    Action::Deny => return Outcome::Deny,
                    // There is no tier to pass to: the next profile decides.
                    Action::Pass => break,
                    Action::Log => {}
                }
            }
        }
        trail.push(Decision::NoProfile);
        Outcome::Deny
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::{IpSet, Member};

    fn packet(destination: &str) -> Packet {
        Packet {
            source: "10.0.0.1".parse::<IpAddr>().unwrap(),
            destination: destination.parse::<IpAddr>().unwrap(),
            protocol: 6,
            ports: Some((40_000, 80)),
            icmp: None,
            before_nat: None,
            is_of_host: false,
        }
    }

    fn named(name: &str, rules: Vec<Rule>) -> Named {
        Named { name: name.to_owned(), rules }
    }

    fn tier(end: End, rules: Vec<Rule>) -> Tier {
        Tier { name: "t".to_owned(), end, policies: vec![named("p", rules)] }
    }

    #[test]
    fn logging_decides_nothing_and_passing_leaves_the_tier() {
        let sets = IpSets::new();
        let judge = Judge { sets: &sets };
        let rules = Rules {
            tiers: vec![
                tier(End::Deny, vec![Rule::all(Action::Log), Rule::all(Action::Pass)]),
                tier(End::Deny, vec![Rule::all(Action::Allow)]),
            ],
            profiles: Vec::new(),
        };
        let verdict = judge.endpoint(&rules, &packet("10.0.0.2"));
        assert_eq!(verdict.outcome, Outcome::Allow);
        assert_eq!(verdict.trail.len(), 3);
        let decided = Decision::Policy { tier: 1, policy: 0, rule: 0 };
        assert_eq!(verdict.decided_by(), Some(decided));
    }

    #[test]
    fn without_a_decision_profiles_decide_and_without_those_it_is_dropped() {
        let sets = IpSets::new();
        let judge = Judge { sets: &sets };
        let mut rules = Rules { tiers: vec![tier(End::Pass, Vec::new())], profiles: Vec::new() };
        let verdict = judge.endpoint(&rules, &packet("10.0.0.2"));
        assert_eq!(
            (verdict.outcome, verdict.decided_by()),
            (Outcome::Deny, Some(Decision::NoProfile))
        );
        rules.profiles.push(named("open", vec![Rule::all(Action::Allow)]));
        assert_eq!(judge.endpoint(&rules, &packet("10.0.0.2")).outcome, Outcome::Allow);
        rules.tiers.push(tier(End::Deny, Vec::new()));
        let verdict = judge.endpoint(&rules, &packet("10.0.0.2"));
        assert_eq!(verdict.decided_by(), Some(Decision::EndOfTier { tier: 1 }));
    }

    #[test]
    fn an_empty_set_matches_nothing_and_its_negation_everything() {
        let mut rule = Rule::all(Action::Allow);
        rule.destination.sets.push("s".to_owned());
        let mut not = Rule::all(Action::Allow);
        not.destination.not_sets.push("s".to_owned());
        let mut sets = IpSets::new();
        assert!(!rule.matches(&packet("10.0.0.2"), &sets));
        assert!(not.matches(&packet("10.0.0.2"), &sets));
        let members = ["10.0.0.0/24".parse::<Member>().unwrap()].into();
        sets.insert("s".to_owned(), IpSet { members });
        assert!(rule.matches(&packet("10.0.0.2"), &sets));
        assert!(!not.matches(&packet("10.0.0.2"), &sets));
    }
}
