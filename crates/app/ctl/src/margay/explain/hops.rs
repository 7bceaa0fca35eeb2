//! The places on the way of a packet where policies decide.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::resource::Direction;
use net::Cidr;
use policy::explain::Walk;
use policy::intent::ALL_INTERFACES;
use policy::render::{EndpointToHost, Settings};
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
        let sender = source.node.as_ref().filter(|sender| **sender != node);
        let sender = sender.and_then(|name| Some((name.as_str(), nodes.get(name.as_str())?)));
        let is_its_host = |end: &End| end.is_host && end.node.as_ref() == Some(&node);
        let is_of_host = is_its_host(source) || is_its_host(destination);
        let source_seen =
            sender.map_or(packet.source, |sender| source_after(world, sender, packet));
        let packet = Packet { source: source_seen, is_of_host, ..packet.clone() };
        let walk = at.intent().explain(&endpoint, direction, &packet);
        let is_of_workload = matches!(endpoint, Endpoint::Workload(_));
        let guard = match direction {
            _ if is_failsafe(&at.settings, &endpoint, direction, &packet) => {
                Some((Outcome::Allow, "a failsafe port, which no policy closes"))
            }
            Direction::Ingress if is_of_workload && source.is_host && !leaves => {
                Some((Outcome::Allow, "its own host, which no policy of a pod keeps out"))
            }
            Direction::Egress if is_of_workload => {
                guard(&at.settings, &packet).map(|why| (Outcome::Deny, why))
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
        hops.push(Hop { direction, name, short, node, endpoint, packet, walk });
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

/// The source of a packet after it has left its node: packets that leave their pool get the node's.
fn source_after(world: &World, (name, sender): (&str, &Node), packet: &Packet) -> IpAddr {
    let Node { settings, around, .. } = sender;
    let is_in = |nets: &BTreeSet<Cidr>, address| nets.iter().any(|net| net.contains(address));
    let is_host = || {
        let known = around.host_addresses.contains(&packet.destination);
        known || settings.external_nodes.iter().any(|net| net.contains(packet.destination))
    };
    let is_spared =
        is_in(&around.pools, packet.destination) || settings.nat_spares_hosts && is_host();
    if is_spared || !is_in(&around.nat_outgoing, packet.source) {
        return packet.source;
    }
    let is_same = |address: &IpAddr| address.is_ipv4() == packet.source.is_ipv4();
    let own = world.nodes.get(name).into_iter().flatten().copied();
    let chosen = settings.nat_address.map(IpAddr::from).into_iter().chain(own).find(is_same);
    chosen.unwrap_or(packet.source)
}

/// What a workload may send to its own host a setting decides before the host's policies.
fn to_own_host(world: &World, node: &Node, (source, to): (&End, &End), hops: &mut Vec<Hop>) {
    let is_own = source.node == to.node && to.is_host && !source.is_host;
    let Some(hop) = hops.first_mut().filter(|it| it.walk.outcome == Some(Outcome::Allow)) else {
        return;
    };
    if !is_own || hop.direction != Direction::Egress {
        return;
    }
    match node.settings.endpoint_to_host {
        // It comes in by the workload's interface, which is not one that has an endpoint by name.
        EndpointToHost::Return => hops.retain(|hop| match &hop.endpoint {
            Endpoint::Host(key) => is_for_all(world, key),
            Endpoint::Workload(_) => true,
        }),
        EndpointToHost::Accept => hops.truncate(1),
        EndpointToHost::Drop => {
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
fn guard(settings: &Settings, packet: &Packet) -> Option<&'static str> {
    const IPIP: u8 = 4;
    const UDP: u8 = 17;
    let port = packet.ports.map(|it| it.1);
    let is_loopback = packet.destination.is_ipv4() && packet.destination.is_loopback();
    match packet.protocol {
        IPIP if !settings.may_send_ipip => Some(guards::IPIP),
        UDP if port == Some(settings.vxlan_port) && !settings.may_send_vxlan => Some(guards::VXLAN),
        _ if is_loopback => Some(guards::LOOPBACK),
        _ => None,
    }
}

/// Whether it is one of the ports of a host that are always open.
fn is_failsafe(settings: &Settings, at: &Endpoint, direction: Direction, packet: &Packet) -> bool {
    let (Endpoint::Host(_), Some((_, port)), true) = (at, packet.ports, packet.is_of_host) else {
        return false;
    };
    let (ports, peer) = match direction {
        Direction::Ingress => (&settings.failsafe_inbound, packet.source),
        Direction::Egress => (&settings.failsafe_outbound, packet.destination),
    };
    ports.iter().any(|it| {
        let is_there = it.net.is_none_or(|net| net.contains(peer));
        (it.protocol, it.port) == (packet.protocol, port) && is_there
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
