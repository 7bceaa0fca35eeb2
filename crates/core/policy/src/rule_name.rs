//! The name of what decides about a packet: as people read it, and as the kernel carries it.
//!
//! A dataplane writes [`RuleName::to_text`] beside the rule it makes, as a comment or as the prefix
//! of a log entry, and whoever reads it there gets the name back with [`RuleName::read`]. The text
//! has at most [`TEXT_LEN_MAX`] bytes: a longer name becomes a digest, which is looked up among
//! the names that a node knows.

use std::fmt;

use model::resource::Direction;
use model::selector::unique_id;

use crate::input::{PolicyId, PolicyKind};
use crate::intent::Intent;

/// The most bytes that [`RuleName::to_text`] gives: nftables takes 127 in a prefix and in a
/// comment, and some are left for a mark of the one who writes them.
pub const TEXT_LEN_MAX: usize = 112;

/// What a digest begins with; no name of an object does.
const DIGEST: &str = "r:";

/// What decided, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleName {
    /// The direction of the traffic, seen from the endpoint.
    pub direction: Direction,
    /// Which of the things that can decide.
    pub place: Place,
}

/// The things that can decide.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A rule of a policy.
    Policy {
        /// The policy.
        policy: PolicyId,
        /// The rule's place among those of its direction, from 0.
        rule: usize,
    },
    /// The end of a tier.
    EndOfTier {
        /// The tier.
        tier: String,
    },
    /// A rule of a profile.
    Profile {
        /// The profile.
        profile: String,
        /// The rule's place among those of its direction, from 0.
        rule: usize,
    },
    /// No rule of any profile matched.
    NoProfile,
    /// Something that comes before policy, in words: `source address is not its own`.
    Guard {
        /// The words.
        reason: String,
    },
}

impl RuleName {
    /// A rule of a policy.
    pub fn policy(direction: Direction, policy: PolicyId, rule: usize) -> Self {
        Self { direction, place: Place::Policy { policy, rule } }
    }

    /// The end of a tier.
    pub fn end_of_tier(direction: Direction, tier: impl Into<String>) -> Self {
        Self { direction, place: Place::EndOfTier { tier: tier.into() } }
    }

    /// A rule of a profile.
    pub fn profile(direction: Direction, profile: impl Into<String>, rule: usize) -> Self {
        Self { direction, place: Place::Profile { profile: profile.into(), rule } }
    }

    /// The end of the profiles.
    pub fn no_profile(direction: Direction) -> Self {
        Self { direction, place: Place::NoProfile }
    }

    /// Something that comes before policy, in a few words.
    pub fn guard(direction: Direction, reason: impl Into<String>) -> Self {
        Self { direction, place: Place::Guard { reason: reason.into() } }
    }

    /// The name in at most [`TEXT_LEN_MAX`] printable bytes: the same for equal names, and another
    /// for others.
    pub fn to_text(&self) -> String {
        let direction = match self.direction {
            Direction::Ingress => "i",
            Direction::Egress => "e",
        };
        match &self.place {
            Place::Policy { policy, rule } => {
                let kind = kind_code(policy.kind);
                let name = short(policy.to_string());
                format!("{direction}:{kind}:{rule}:{name}")
            }
            Place::EndOfTier { tier } => format!("{direction}:end:{}", short(tier.clone())),
            Place::Profile { profile, rule } => {
                format!("{direction}:profile:{rule}:{}", short(profile.clone()))
            }
            Place::NoProfile => format!("{direction}:none"),
            Place::Guard { reason } => format!("{direction}:guard:{}", short(reason.clone())),
        }
    }

    /// Reads what [`Self::to_text`] gave; none for anything else, and for a digest of a name that
    /// the intent does not have.
    pub fn read(text: &str, intent: &Intent) -> Option<Self> {
        let (direction, rest) = text.split_once(':')?;
        let direction = match direction {
            "i" => Direction::Ingress,
            "e" => Direction::Egress,
            _ => return None,
        };
        let place = match rest.split_once(':') {
            None if rest == "none" => Place::NoProfile,
            None => return None,
            Some(("end", name)) => Place::EndOfTier { tier: long(name, || tiers(intent))? },
            Some(("guard", reason)) => Place::Guard { reason: long(reason, std::iter::empty)? },
            Some((kind, rest)) => {
                let (rule, name) = rest.split_once(':')?;
                let rule = rule.parse().ok()?;
                if kind == "profile" {
                    let profile = long(name, || intent.profiles.keys().cloned())?;
                    Place::Profile { profile, rule }
                } else {
                    let kind = KINDS.into_iter().find(|it| kind_code(*it) == kind)?;
                    let ids = || intent.policies.keys().filter(|id| id.kind == kind);
                    let name = long(name, || ids().map(PolicyId::to_string))?;
                    Place::Policy { policy: policy_id(kind, &name), rule }
                }
            }
        };
        Some(Self { direction, place })
    }
}

/// `policy shop/db, ingress rule 2`; rules are counted from 1.
impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        };
        match &self.place {
            Place::Policy { policy, rule } => {
                let staged = if policy.kind.is_staged() { "staged " } else { "" };
                write!(f, "{staged}policy {policy}, {direction} rule {}", rule.saturating_add(1))
            }
            Place::EndOfTier { tier } => write!(f, "end of tier {tier}"),
            Place::Profile { profile, rule } => {
                write!(f, "profile {profile}, {direction} rule {}", rule.saturating_add(1))
            }
            Place::NoProfile => f.write_str("no profile allows it"),
            Place::Guard { reason } => f.write_str(reason),
        }
    }
}

const KINDS: [PolicyKind; 5] = [
    PolicyKind::GlobalNetworkPolicy,
    PolicyKind::NetworkPolicy,
    PolicyKind::StagedGlobalNetworkPolicy,
    PolicyKind::StagedKubernetesNetworkPolicy,
    PolicyKind::StagedNetworkPolicy,
];

pub(crate) fn kind_code(kind: PolicyKind) -> &'static str {
    match kind {
        PolicyKind::GlobalNetworkPolicy => "gnp",
        PolicyKind::NetworkPolicy => "np",
        PolicyKind::StagedGlobalNetworkPolicy => "sgnp",
        PolicyKind::StagedKubernetesNetworkPolicy => "sknp",
        PolicyKind::StagedNetworkPolicy => "snp",
    }
}

fn is_of_cluster(kind: PolicyKind) -> bool {
    matches!(kind, PolicyKind::GlobalNetworkPolicy | PolicyKind::StagedGlobalNetworkPolicy)
}

fn policy_id(kind: PolicyKind, name: &str) -> PolicyId {
    let split = || name.split_once('/').unwrap_or(("", name));
    let (namespace, name) = if is_of_cluster(kind) { ("", name) } else { split() };
    PolicyId { kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn tiers(intent: &Intent) -> impl Iterator<Item = String> {
    let of_workloads = intent.workloads.values().flat_map(|it| &it.tiers);
    let of_hosts = intent
        .hosts
        .values()
        .flat_map(|it| [&it.tiers, &it.forward, &it.pre_dnat, &it.untracked].into_iter().flatten());
    of_workloads.chain(of_hosts).map(|tier| tier.name.clone())
}

/// The name, or its digest if it would not fit or is nothing that a log should have in it.
fn short(name: String) -> String {
    /// What comes before a name: a direction, a kind and the largest number.
    const BEFORE_MAX: usize = "e:profile:18446744073709551615:".len();
    let is_plain = name.bytes().all(|byte| matches!(byte, b' '..=b'~' if byte != b'"'));
    if is_plain && name.len() <= TEXT_LEN_MAX - BEFORE_MAX && !name.starts_with(DIGEST) {
        name
    } else {
        unique_id(DIGEST.trim_end_matches(':'), &name)
    }
}

/// The name that [`short`] gave or digested.
fn long<I: Iterator<Item = String>>(name: &str, known: impl FnOnce() -> I) -> Option<String> {
    if !name.starts_with(DIGEST) {
        return Some(name.to_owned());
    }
    known().find(|full| short(full.clone()) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: PolicyKind, namespace: &str, name: &str) -> PolicyId {
        PolicyId { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn names_read_as_people_say_them() {
        use Direction::{Egress, Ingress};
        let db = id(PolicyKind::NetworkPolicy, "default", "db");
        let baseline = id(PolicyKind::StagedGlobalNetworkPolicy, "", "baseline");
        for (name, said) in [
            (RuleName::policy(Ingress, db, 1), "policy default/db, ingress rule 2"),
            (RuleName::policy(Egress, baseline, 0), "staged policy baseline, egress rule 1"),
            (RuleName::end_of_tier(Ingress, "default"), "end of tier default"),
            (RuleName::profile(Ingress, "kns.shop", 0), "profile kns.shop, ingress rule 1"),
            (RuleName::no_profile(Egress), "no profile allows it"),
            (RuleName::guard(Egress, "not its own source"), "not its own source"),
        ] {
            assert_eq!(name.to_string(), said);
            let text = name.to_text();
            assert_eq!(RuleName::read(&text, &Intent::default()), Some(name), "{text}");
        }
    }

    #[test]
    fn a_name_that_does_not_fit_is_found_among_those_of_the_intent() {
        let mut intent = Intent::default();
        let mut names = Vec::new();
        for kind in KINDS {
            let namespace = if is_of_cluster(kind) { String::new() } else { "n".repeat(63) };
            for name in ["p".repeat(253), "é\n\"".to_owned(), "r:x".to_owned(), "p".to_owned()] {
                let policy = id(kind, &namespace, &name);
                intent.policies.insert(policy.clone(), Default::default());
                names.push(RuleName::policy(Direction::Ingress, policy, usize::MAX));
            }
        }
        for profile in ["q".repeat(300), "a:b:c".to_owned(), String::new()] {
            intent.profiles.insert(profile.clone(), Default::default());
            names.push(RuleName::profile(Direction::Egress, profile, 7));
        }
        let tier = crate::intent::TierInForce {
            name: "t".repeat(253),
            end: crate::End::Deny,
            ingress: Vec::new(),
            egress: Vec::new(),
        };
        names.push(RuleName::end_of_tier(Direction::Egress, tier.name.clone()));
        let host = crate::intent::Host { untracked: vec![tier], ..Default::default() };
        intent.hosts.insert("h".to_owned(), host);
        let mut texts = std::collections::BTreeSet::new();
        for name in names {
            let text = name.to_text();
            assert!(text.len() <= TEXT_LEN_MAX, "{text}");
            assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
            assert_eq!(RuleName::read(&text, &intent), Some(name), "{text}");
            assert!(texts.insert(text));
        }
    }

    #[test]
    fn anything_else_is_no_name() {
        for text in ["", "i", "i:", "x:none", "i:end", "i:np:-1:a/b", "i:zz:1:a"] {
            assert_eq!(RuleName::read(text, &Intent::default()), None, "{text}");
        }
        let gone = RuleName::end_of_tier(Direction::Ingress, "t".repeat(200));
        assert_eq!(RuleName::read(&gone.to_text(), &Intent::default()), None);
    }
}
