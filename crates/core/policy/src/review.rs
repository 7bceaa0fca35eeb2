//! What one policy does: whom it is for, what it opens, and which of its rules never match.
//!
//! That a rule never matches is said only where it is certain: from the rule itself, from one rule
//! before it, or because nobody has the labels that it asks for.

mod cover;

use model::resource::{Action, Direction};

use crate::Cluster;
use crate::explain::Side;
use crate::input::{Key, Policy, PolicyId};
use crate::labels::Labelled;
use crate::reference::members;
use crate::rule::{Peer, Rule};
use crate::scan::{Scanned, SetDefinition, scan_policy};
use crate::set::SetId;

pub use cover::{Contradiction, contradiction, covers};

/// What a policy does.
#[derive(Clone, Debug)]
pub struct Review {
    /// The workloads it is for.
    pub workloads: Vec<Key>,
    /// The interfaces of hosts it is for.
    pub hosts: Vec<Key>,
    /// Its rules for traffic to them.
    pub ingress: Vec<Reviewed>,
    /// Its rules for traffic from them.
    pub egress: Vec<Reviewed>,
    /// What its rules are made of.
    pub scanned: Scanned,
}

/// What there is to say of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reviewed {
    /// The rule.
    pub rule: Rule,
    /// Why it never matches, if that is certain.
    pub never: Option<Never>,
}

/// Why a rule never matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Never {
    /// The policy does not decide about this direction.
    NotItsDirection,
    /// No packet meets all of its conditions.
    Contradiction(Contradiction),
    /// A rule before it, by its place, decides about all that it would match.
    After(usize),
    /// Nothing is in a set that it asks for, as things are.
    Empty(Side, SetId),
}

/// What a policy of the cluster does; none if it is not there.
pub fn review(cluster: &Cluster, id: &PolicyId) -> Option<Review> {
    let policy = cluster.policies.get(id)?;
    let scanned = scan_policy(policy);
    let is_for =
        |own, profiles| Labelled { own, profiles }.is_selected(&policy.selector, &cluster.profiles);
    let workloads = cluster.workloads.iter().filter(|(_, it)| is_for(&it.labels, &it.profiles));
    let hosts = cluster.hosts.iter().filter(|(_, it)| is_for(&it.labels, &it.profiles));
    let of = |direction| reviewed(cluster, policy, &scanned, direction);
    Some(Review {
        workloads: workloads.map(|(key, _)| key.clone()).collect(),
        hosts: hosts.map(|(key, _)| key.clone()).collect(),
        ingress: of(Direction::Ingress),
        egress: of(Direction::Egress),
        scanned,
    })
}

fn reviewed(
    cluster: &Cluster,
    policy: &Policy,
    scanned: &Scanned,
    direction: Direction,
) -> Vec<Reviewed> {
    let is_its_direction = match direction {
        Direction::Ingress => policy.is_for_ingress,
        Direction::Egress => policy.is_for_egress,
    };
    let rules = scanned.directions.of(direction);
    let never = |(at, rule): (usize, &Rule)| {
        if !is_its_direction {
            return Some(Never::NotItsDirection);
        }
        if let Some(why) = contradiction(rule) {
            return Some(Never::Contradiction(why));
        }
        let before = rules.iter().take(at);
        let decides = |it: &&Rule| it.action != Action::Log;
        let mut before = before.enumerate().filter(|(_, it)| decides(it));
        if let Some((place, _)) = before.find(|(_, it)| covers(it, rule)) {
            return Some(Never::After(place));
        }
        let empty = |side, peer| Some(Never::Empty(side, empty_set(cluster, scanned, peer)?));
        empty(Side::Source, &rule.source).or_else(|| empty(Side::Destination, &rule.destination))
    };
    let all = rules.iter().enumerate();
    all.map(|(at, rule)| Reviewed { rule: rule.clone(), never: never((at, rule)) }).collect()
}

/// A set without members that one must be in to match.
fn empty_set(cluster: &Cluster, scanned: &Scanned, peer: &Peer) -> Option<SetId> {
    let is_empty = |id: &&SetId| match scanned.sets.get(*id) {
        // Who serves a service is known to Kubernetes.
        Some(SetDefinition::Service { .. }) | None => false,
        Some(definition) => members(cluster, definition).is_empty(),
    };
    let needed = peer.sets.iter().chain(&peer.port_sets);
    if let Some(id) = needed.clone().find(is_empty) {
        return Some(id.clone());
    }
    let only_names = peer.ports.ranges.is_empty() && !peer.ports.named.is_empty();
    let all_empty = || peer.ports.named.iter().all(|id| is_empty(&id));
    (only_names && all_empty()).then(|| peer.ports.named.first().cloned()).flatten()
}

#[cfg(test)]
mod tests;
