//! The smallest rule that lets a packet through.
//!
//! It allows the packet's protocol and port between endpoints like the two, and nothing else: the
//! new policy stands before what denies the packet, in the tier that denies it, and is for
//! endpoints only for which that tier decides already, so that no other traffic of theirs is
//! judged in another way than before. Every suggestion has been tried on a copy of the cluster.

mod object;
mod select;

use std::sync::Arc;

use api::Kind;
use api::keys::{ResourceKey, ResourceKind};
use api::names::DEFAULT_TIER;
use model::resource::{Direction, Resource};
use model::selector::Selector;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::convert::convert;
use crate::endpoint::Endpoint;
use crate::explain::{Layer, Step, TierWalk, Walk};
use crate::input::{Change, Policy, PolicyId};
use crate::packet::Packet;
use crate::reference::intent;
use crate::rule_name::{Place, RuleName};
use crate::verdict::Outcome;

/// What should be let through.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// Where it is denied.
    pub endpoint: &'a Endpoint,
    /// The direction, seen from there.
    pub direction: Direction,
    /// The packet.
    pub packet: &'a Packet,
}

/// What can be done about a packet.
#[derive(Clone, Debug)]
pub enum Advice {
    /// Nothing: it is allowed already.
    Allowed(Option<RuleName>),
    /// A policy.
    Policy(Box<Suggestion>),
    /// Nothing that a policy could do; why, in words.
    Impossible(String),
}

/// A policy that lets a packet through.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// What denies the packet now.
    pub denied_by: RuleName,
    /// The tier of the policy.
    pub tier: String,
    /// The policy, as a resource.
    pub policy: Value,
    /// The rule alone, as in the resource.
    pub rule: Value,
    /// A policy for the same endpoints that could take the rule instead.
    pub into: Option<Into>,
}

/// Where in a policy a rule could go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Into {
    /// The policy.
    pub policy: PolicyId,
    /// The place of the rule it has to come before; none for the end.
    pub before: Option<usize>,
}

/// The tier that denies, and what the new rule has to come before.
struct Target {
    denied_by: RuleName,
    tier: String,
    layer: Layer,
    before: Option<(PolicyId, usize)>,
    /// A policy of the tier that is for the endpoint; none if the tier does not decide about it.
    example: Option<PolicyId>,
}

/// What to do so that a packet is let through.
pub fn suggest(cluster: &Cluster, wish: Wish<'_>) -> Advice {
    let Some(walk) = walk(cluster, wish) else {
        return Advice::Impossible("there is no such endpoint".to_owned());
    };
    let denied_by = match (walk.outcome, walk.decided_by.clone()) {
        (Some(Outcome::Deny), Some(name)) => name,
        (_, name) => return Advice::Allowed(name),
    };
    let target = target(cluster, &walk, denied_by);
    let Some(selector) = select::policy_selector(cluster, wish, &target) else {
        let why = "no label tells the endpoint from others that have other policies";
        return Advice::Impossible(why.to_owned());
    };
    let peer_address = match wish.direction {
        Direction::Ingress => wish.packet.source,
        Direction::Egress => wish.packet.destination,
    };
    let by_labels = select::peer(cluster, wish, peer_address);
    let by_address = select::Peer::Net(peer_address);
    for peer in by_labels.into_iter().chain([by_address]) {
        let suggestion = propose(cluster, wish, &target, &selector, &peer);
        if is_enough(cluster, wish, &suggestion.policy) {
            return Advice::Policy(Box::new(suggestion));
        }
    }
    Advice::Impossible("no rule of a policy matches this packet".to_owned())
}

fn walk(cluster: &Cluster, wish: Wish<'_>) -> Option<Walk> {
    let node = cluster.node_of(wish.endpoint)?;
    intent(cluster, node).explain(wish.endpoint, wish.direction, wish.packet)
}

/// Whether a packet is let through by a cluster with one more policy.
fn is_enough(cluster: &Cluster, wish: Wish<'_>, policy: &Value) -> bool {
    let Some(change) = as_change(policy) else { return false };
    let mut cluster = cluster.clone();
    cluster.absorb(change);
    walk(&cluster, wish).is_some_and(|walk| walk.outcome == Some(Outcome::Allow))
}

/// A policy as a change of the cluster; none if it is not right.
pub(crate) fn as_change(policy: &Value) -> Option<Change> {
    let text = |field: &str| policy["metadata"][field].as_str().unwrap_or_default().to_owned();
    let kind = match policy["kind"].as_str()? {
        "NetworkPolicy" => Kind::NetworkPolicy,
        _ => Kind::GlobalNetworkPolicy,
    };
    let resource = Resource::read(kind, policy).ok()?;
    let (namespace, name) = (text("namespace"), text("name"));
    let key = ResourceKey { kind: ResourceKind::Api(kind), namespace, name };
    convert(&key, Some(&resource)).ok()?
}

fn target(cluster: &Cluster, walk: &Walk, denied_by: RuleName) -> Target {
    let last = walk.tiers.last();
    let (tier, rule, met) = match &denied_by.place {
        Place::Policy { policy, rule } => {
            let tier = cluster.policies.get(policy).map(|it| it.tier.as_str());
            (tier.unwrap_or_default(), Some((policy.clone(), *rule)), last)
        }
        Place::EndOfTier { tier } => (tier.as_str(), None, last),
        _ => {
            let is_it = |it: &&TierWalk| it.name == DEFAULT_TIER && it.layer == Layer::Normal;
            (DEFAULT_TIER, None, walk.tiers.iter().find(is_it))
        }
    };
    // Profiles decide about what a tier passed: the rule has to come before what passed it.
    let passed = met.and_then(|met| match met.step {
        Step::Rule { policy, rule, .. } => Some((met.policies.get(policy)?.id.clone(), rule)),
        Step::End(_) => None,
    });
    let tier = tier.to_owned();
    Target {
        denied_by,
        tier,
        layer: met.map_or(Layer::Normal, |it| it.layer),
        before: rule.or(passed),
        example: met.and_then(|it| it.policies.last()).map(|it| it.id.clone()),
    }
}

fn propose(
    cluster: &Cluster,
    wish: Wish<'_>,
    target: &Target,
    selector: &Selector,
    peer: &select::Peer,
) -> Suggestion {
    let rule = object::rule(wish, peer);
    let namespace = cluster.namespace_of(wish.endpoint).unwrap_or_default();
    let mut rules = vec![rule.clone()];
    if target.example.is_none() {
        // Nobody decided here so far; what the rule does not allow is left to whoever did.
        rules.push(object::pass());
    }
    let shape = object::Shape {
        name: object::name(cluster, wish, selector, peer),
        namespace,
        tier: &target.tier,
        order: target.before.as_ref().map(|(id, _)| order_before(cluster, &target.tier, id)),
        selector: select::without_scope(selector, namespace),
        direction: wish.direction,
        layer: target.layer,
    };
    Suggestion {
        denied_by: target.denied_by.clone(),
        tier: target.tier.clone(),
        policy: object::policy(&shape, rules),
        rule,
        into: into(cluster, target, selector),
    }
}

/// A policy of the tier that is for the same endpoints, and where in it the rule would do.
fn into(cluster: &Cluster, target: &Target, selector: &Selector) -> Option<Into> {
    let is_same = |policy: &Arc<Policy>| {
        cluster.endpoints().all(|it| {
            cluster.is_selected(&it, selector) == cluster.is_selected(&it, &policy.selector)
        })
    };
    let (id, before) = match &target.before {
        Some((id, rule)) => (id, Some(*rule)),
        None => (target.example.as_ref()?, None),
    };
    let is_it = cluster.policies.get(id).is_some_and(is_same);
    // What Kubernetes' own policies become is not written by hand.
    (is_it && !id.name.starts_with("knp.")).then(|| Into { policy: id.clone(), before })
}

/// A place in the tier right before a policy.
fn order_before(cluster: &Cluster, tier: &str, id: &PolicyId) -> f64 {
    let orders = cluster.policies.values().filter(|it| it.tier == tier).filter_map(|it| it.order);
    let Some(order) = cluster.policies.get(id).and_then(|it| it.order) else {
        // Every number comes before none.
        let last = orders.fold(f64::NEG_INFINITY, f64::max);
        return if last.is_finite() { (last + 100.0).max(last.next_up()) } else { 1000.0 };
    };
    let previous = orders.filter(|it| *it < order).fold(f64::NEG_INFINITY, f64::max);
    let middle = if previous.is_finite() { f64::midpoint(previous, order) } else { order - 10.0 };
    if middle < order { middle } else { order.next_down() }
}

#[cfg(test)]
mod tests;
