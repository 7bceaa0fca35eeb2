//! The places on the way of a packet where policies decide.

use std::collections::BTreeMap;

use model::felix::Value;
use model::resource::Direction;
use net::Protocol;
use policy::explain::Walk;
use policy::intent::{ALL_INTERFACES, Intent};
use policy::{Endpoint, Outcome, Packet, RuleName, guards, protocol_number};

use super::ends::End;
use super::world::World;

/// One place.
pub(crate) struct Hop {
    pub(crate) direction: Direction,
    /// Whose policies: `shop/web-1`, or `host endpoint eth0`.
    pub(crate) name: String,
    /// The same beside its node.
    pub(crate) short: String,
    pub(crate) node: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) walk: Walk,
}

/// All places, in the order in which a packet comes to them.
pub(crate) fn hops(world: &World, source: &End, destination: &End, packet: &Packet) -> Vec<Hop> {
    let mut intents: BTreeMap<&str, Intent> = BTreeMap::new();
    for node in [&source.node, &destination.node].into_iter().flatten() {
        intents.entry(node).or_insert_with(|| world.intent(node));
    }
    let leaves = source.node != destination.node;
    let mut hops = Vec::new();
    // What a host says to itself nobody judges.
    if source.is_host && destination.is_host && !leaves {
        return hops;
    }
    let mut push = |end: Option<&End>, name: &str, endpoint: Endpoint, direction| {
        let node = world.cluster.node_of(&endpoint).unwrap_or_default().to_owned();
        let intent = intents.get(node.as_str());
        let packet = &seen_on(world, &node, (source, destination), packet);
        let walk = intent.and_then(|it| it.explain(&endpoint, direction, packet));
        let is_of_workload = matches!(endpoint, Endpoint::Workload(_));
        let guard = match direction {
            _ if is_failsafe(world, &endpoint, direction, packet) => {
                Some((Outcome::Allow, "a failsafe port, which no policy closes"))
            }
            Direction::Ingress if is_of_workload && source.is_host && !leaves => {
                Some((Outcome::Allow, "its own host, which no policy of a pod keeps out"))
            }
            Direction::Egress if is_of_workload => {
                guard(world, &node, packet).map(|why| (Outcome::Deny, why))
            }
            _ => None,
        };
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
        hops.push(Hop { direction, name, short, node, endpoint, walk });
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
    to_own_host(world, source, destination, &mut hops);
    hops
}

/// A packet as a node sees it: whether it is for the host or from it, and the address that it got
/// when it left its pool.
fn seen_on(world: &World, node: &str, (source, destination): (&End, &End), it: &Packet) -> Packet {
    let is_its_host = |end: &End| end.is_host && end.node.as_deref() == Some(node);
    let is_of_host = is_its_host(source) || is_its_host(destination);
    let mut seen = Packet { is_of_host, ..it.clone() };
    let Some(sender) = source.node.as_ref().filter(|sender| *sender != node) else { return seen };
    let leaves_pool = |(pool, has_nat): &(net::Cidr, bool)| *has_nat && pool.contains(it.source);
    let exclusions = world.config(sender).text("NATOutgoingExclusions").to_owned();
    let is_spared = exclusions == "IPPoolsAndHostIPs"
        && world.nodes.values().flatten().any(|address| *address == it.destination);
    if world.pools.iter().any(leaves_pool) && !world.is_of_pods(it.destination) && !is_spared {
        let addresses = world.nodes.get(sender).into_iter().flatten();
        let own = addresses.copied().find(|address| address.is_ipv4() == it.source.is_ipv4());
        seen.source = own.unwrap_or(it.source);
    }
    seen
}

/// What a workload may send to its own host a setting decides before the host's policies.
fn to_own_host(world: &World, source: &End, destination: &End, hops: &mut Vec<Hop>) {
    let is_own = source.node == destination.node && destination.is_host && !source.is_host;
    let Some(hop) = hops.first_mut().filter(|it| it.walk.outcome == Some(Outcome::Allow)) else {
        return;
    };
    let config = world.config(&hop.node);
    match config.text("DefaultEndpointToHostAction").to_ascii_uppercase().as_str() {
        _ if !is_own || hop.direction != Direction::Egress => {}
        // It comes in by the workload's interface, which is not one that has an endpoint by name.
        "RETURN" => hops.retain(|hop| match &hop.endpoint {
            Endpoint::Host(key) => is_for_all(world, key),
            Endpoint::Workload(_) => true,
        }),
        "ACCEPT" => hops.truncate(1),
        _ => {
            let why = "defaultEndpointToHostAction is Drop, workloads do not reach their own host";
            hop.walk = decided(hop.walk.clone(), Outcome::Deny, why);
            hops.truncate(1);
        }
    }
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

/// What no workload may send, whatever policies say.
fn guard(world: &World, node: &str, packet: &Packet) -> Option<&'static str> {
    const IPIP: u8 = 4;
    const UDP: u8 = 17;
    let config = world.config(node);
    let port = packet.ports.map(|it| i64::from(it.1));
    let is_loopback = packet.destination.is_ipv4() && packet.destination.is_loopback();
    match packet.protocol {
        IPIP if !config.is_on("AllowIPIPPacketsFromWorkloads") => Some(guards::IPIP),
        UDP if port == Some(config.int("VXLANPort"))
            && !config.is_on("AllowVXLANPacketsFromWorkloads") =>
        {
            Some(guards::VXLAN)
        }
        _ if is_loopback => Some(guards::LOOPBACK),
        _ => None,
    }
}

/// Whether it is one of the ports of a host that are always open.
fn is_failsafe(world: &World, at: &Endpoint, direction: Direction, packet: &Packet) -> bool {
    let (Endpoint::Host(_), Some((_, port)), true) = (at, packet.ports, packet.is_of_host) else {
        return false;
    };
    let (name, peer) = match direction {
        Direction::Ingress => ("FailsafeInboundHostPorts", packet.source),
        Direction::Egress => ("FailsafeOutboundHostPorts", packet.destination),
    };
    let config = world.config(world.cluster.node_of(at).unwrap_or_default());
    let Some(Value::FailsafePorts(ports)) = config.get(name) else { return false };
    ports.iter().any(|it| {
        protocol_number(&Protocol::from(it.protocol)) == Some(packet.protocol)
            && it.port == port
            && it.net.is_none_or(|net| net.contains(peer))
    })
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
