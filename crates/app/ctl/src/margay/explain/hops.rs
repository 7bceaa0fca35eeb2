//! The places on the way of a packet where policies decide.

use std::collections::BTreeMap;

use model::resource::Direction;
use policy::explain::{Layer, Walk};
use policy::intent::ALL_INTERFACES;
use policy::{Endpoint, Outcome, Packet, RuleName, guards};

use super::ends::End;
use super::world::{Node, World};

/// One place.
pub(crate) struct Hop {
    pub(crate) direction: Direction,
    /// Whose policies: `shop/web-1`, or `host endpoint eth0`.
    pub(crate) name: String,
    /// The same beside its node.
    pub(crate) short: String,
    pub(crate) node: String,
    pub(crate) endpoint: Endpoint,
    /// The packet as it comes there.
    pub(crate) packet: Packet,
    pub(crate) walk: Walk,
    /// Why it is dropped there after all if nobody translates its destination.
    pub(crate) untranslated: Option<&'static str>,
}

/// All places, in the order in which a packet comes to them.
pub(crate) fn hops(world: &World, source: &End, destination: &End, packet: &Packet) -> Vec<Hop> {
    let mut nodes: BTreeMap<&str, Node> = BTreeMap::new();
    for node in [&source.node, &destination.node].into_iter().flatten() {
        nodes.entry(node).or_insert_with(|| world.node(node));
    }
    let leaves = source.node != destination.node;
    let mut hops = Vec::new();
    // What a host says to itself nobody judges.
    if source.is_host && destination.is_host && !leaves {
        return hops;
    }
    let mut push = |end: Option<&End>, name: &str, endpoint: Endpoint, direction| {
        let node = world.cluster.node_of(&endpoint).unwrap_or_default().to_owned();
        let Some(at) = nodes.get(node.as_str()) else { return };
        let packet = seen_on(world, &node, &nodes, (source, destination), packet);
        let walk = at.intent().explain(&endpoint, direction, &packet);
        let is_from_own_host = source.is_host && !leaves;
        let guard = guard(at, (&endpoint, direction), &packet, is_from_own_host);
        let walk = walk.map(|walk| match guard {
            Some((outcome, why)) => decided(walk, outcome, why),
            None => walk,
        });
        // An interface of the host that leaves a packet to others has nothing to say about it.
        let Some(walk) = walk.filter(|it| it.outcome.is_some() || !it.tiers.is_empty()) else {
            return;
        };
        let name = end.map_or_else(|| format!("host endpoint {name}"), |it| it.name.clone());
        let short = end.map_or_else(|| name.clone(), |it| it.short.clone());
        let untranslated =
            at.guards().passed_on(&packet).filter(|_| walk.outcome == Some(Outcome::Allow));
        hops.push(Hop { direction, name, short, node, endpoint, packet, walk, untranslated });
    };
    // A host always reaches its own pods.
    let is_own = source.is_host && !destination.is_host && !leaves;
    if let Some(endpoint) = source.endpoint.as_ref().filter(|_| !is_own) {
        push(Some(source), "", endpoint.clone(), Direction::Egress);
    }
    if leaves && !source.is_host {
        for (key, endpoint) in between(world, source) {
            push(None, &key, endpoint, Direction::Egress);
        }
    }
    if !leaves && !source.is_host && !destination.is_host {
        let for_all = between(world, source).into_iter().filter(|(key, _)| is_for_all(world, key));
        for (key, endpoint) in for_all {
            push(None, &key, endpoint.clone(), Direction::Ingress);
            push(None, &key, endpoint, Direction::Egress);
        }
    }
    if leaves && !destination.is_host {
        for (key, endpoint) in between(world, destination) {
            push(None, &key, endpoint, Direction::Ingress);
        }
    }
    if let Some(endpoint) = &destination.endpoint {
        push(Some(destination), "", endpoint.clone(), Direction::Ingress);
    }
    if let Some(node) = source.node.as_deref().and_then(|name| nodes.get(name)) {
        to_own_host(world, node, (source, destination), &mut hops);
    }
    hops
}

/// A packet as a node sees it: whether it is for the host or from it, and the address that it got
/// when it left its pool.
fn seen_on(
    world: &World,
    node: &str,
    nodes: &BTreeMap<&str, Node>,
    (source, destination): (&End, &End),
    packet: &Packet,
) -> Packet {
    let is_its_host = |end: &End| end.is_host && end.node.as_deref() == Some(node);
    let is_of_host = is_its_host(source) || is_its_host(destination);
    let mut seen = Packet { is_of_host, ..packet.clone() };
    if let Some(sender) = source.node.as_deref().filter(|sender| *sender != node)
        && let Some(at) = nodes.get(sender)
    {
        let own = world.nodes.get(sender).map_or(&[][..], Vec::as_slice);
        seen.source = at.guards().source_outside(packet, own, None);
    }
    seen
}

/// What decides in the place of an endpoint's policies.
fn guard(
    node: &Node,
    (endpoint, direction): (&Endpoint, Direction),
    packet: &Packet,
    is_from_own_host: bool,
) -> Option<(Outcome, &'static str)> {
    match (endpoint, direction) {
        (Endpoint::Host(_), _) => {
            let is_spared = packet.is_of_host && node.guards().is_spared(direction, packet);
            is_spared.then_some((Outcome::Allow, guards::FAILSAFE))
        }
        (Endpoint::Workload(_), Direction::Ingress) => {
            is_from_own_host.then_some((Outcome::Allow, guards::OWN_HOST))
        }
        (Endpoint::Workload(key), Direction::Egress) => {
            let sender = node.intent().workloads.get(key)?;
            Some((Outcome::Deny, node.guards().sender(sender, packet)?))
        }
    }
}

/// Whether a workload's packets reach its own host a setting decides. The host's own policies have
/// a say only before destination NAT, at all interfaces.
fn to_own_host(world: &World, node: &Node, (source, to): (&End, &End), hops: &mut Vec<Hop>) {
    let is_own = source.node == to.node && to.is_host && !source.is_host;
    let Some(hop) = hops.first_mut().filter(|it| it.walk.outcome == Some(Outcome::Allow)) else {
        return;
    };
    if !is_own || hop.direction != Direction::Egress {
        return;
    }
    if let Some(why) = node.guards().to_own_host(&hop.packet) {
        hop.walk = decided(hop.walk.clone(), Outcome::Deny, why);
        hops.truncate(1);
        return;
    }
    let is_before_nat = |walk: &Walk| {
        let last = walk.tiers.last().filter(|_| walk.profiles.is_empty());
        last.is_some_and(|tier| tier.layer == Layer::PreDnat)
    };
    hops.retain(|hop| match &hop.endpoint {
        Endpoint::Host(key) => is_for_all(world, key) && is_before_nat(&hop.walk),
        Endpoint::Workload(_) => true,
    });
}

/// A walk whose end something else decides than policies.
fn decided(mut walk: Walk, outcome: Outcome, why: &str) -> Walk {
    walk.outcome = Some(outcome);
    walk.decided_by = Some(RuleName::guard(walk.direction, why));
    walk.profiles.clear();
    walk.tiers.clear();
    walk
}

/// Whether a host endpoint is for all interfaces.
fn is_for_all(world: &World, key: &str) -> bool {
    world.cluster.hosts.get(key).is_some_and(|host| host.interface == ALL_INTERFACES)
}

/// The interfaces of the node that a workload's traffic may pass.
fn between(world: &World, end: &End) -> Vec<(String, Endpoint)> {
    let is_there = |node: &str| end.node.as_deref() == Some(node);
    let hosts = world.cluster.hosts.iter().filter(|(_, it)| is_there(&it.node));
    hosts.map(|(key, _)| (key.clone(), Endpoint::Host(key.clone()))).collect()
}

/// The place that denies the packet; none if all let it through.
pub(crate) fn denied(hops: &[Hop]) -> Option<&Hop> {
    hops.iter().find(|hop| hop.walk.outcome == Some(Outcome::Deny))
}

/// The word for a direction.
pub(crate) fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    }
}
