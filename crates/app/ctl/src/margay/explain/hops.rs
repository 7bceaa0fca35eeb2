//! The places on the way of a packet where policies decide.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use model::resource::Direction;
use policy::explain::{Layer, Walk};
use policy::{Endpoint, Outcome, Packet, RuleName, guards};

use super::ends::End;
use super::interfaces::Possible;
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

/// A place where a host may have one endpoint or another, which decide differently.
pub(crate) struct Unknown {
    pub(crate) direction: Direction,
    pub(crate) node: String,
    /// The endpoints; none among them if it may have none.
    pub(crate) possible: Possible,
    /// Whether the node told of its interfaces.
    pub(crate) is_told: bool,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, node, possible, is_told } = self;
        let why = match (is_told, direction) {
            (false, _) => format!("{node} has not told which interfaces it has"),
            (true, Direction::Ingress) => format!("it may come to {node} by several interfaces"),
            (true, Direction::Egress) => format!("it may leave {node} by several interfaces"),
        };
        let named = possible.iter().flatten().map(|key| format!("host endpoint {key}"));
        let none = possible.contains(&None).then(|| "none".to_owned());
        let meets: Vec<String> = named.chain(none).collect();
        write!(f, "{why}; it meets {}", meets.join(" or "))
    }
}

/// All places, in the order in which a packet comes to them.
#[derive(Default)]
pub(crate) struct Way {
    pub(crate) hops: Vec<Hop>,
    pub(crate) unknown: Vec<Unknown>,
}

/// The traffic whose way is sought.
struct Journey<'a> {
    world: &'a World,
    source: &'a End,
    destination: &'a End,
    packet: &'a Packet,
    /// Both ends' nodes.
    nodes: BTreeMap<&'a str, Node>,
    /// Whether it goes from one node to another, or outside.
    leaves: bool,
    way: Way,
}

/// Follows a packet from end to end.
pub(crate) fn way(world: &World, source: &End, destination: &End, packet: &Packet) -> Way {
    let mut nodes: BTreeMap<&str, Node> = BTreeMap::new();
    for node in [&source.node, &destination.node].into_iter().flatten() {
        nodes.entry(node).or_insert_with(|| world.node(node));
    }
    let leaves = source.node != destination.node;
    let way = Way::default();
    // What a host says to itself nobody judges.
    if source.is_host && destination.is_host && !leaves {
        return way;
    }
    let mut journey = Journey { world, source, destination, packet, nodes, leaves, way };
    journey.set_out();
    journey.arrive();
    let Journey { nodes, mut way, .. } = journey;
    if let Some(node) = source.node.as_deref().and_then(|name| nodes.get(name)) {
        to_own_host(node, (source, destination), &mut way.hops);
    }
    way
}

impl<'a> Journey<'a> {
    fn set_out(&mut self) {
        let (source, destination) = (self.source, self.destination);
        // A host always reaches its own pods.
        if source.is_host && !self.leaves {
            return;
        }
        match &source.endpoint {
            Some(endpoint) => self.come_to(Some(source), endpoint.clone(), Direction::Egress),
            None if source.is_host => self.pass(source, Some(source), None, Direction::Egress),
            None => {}
        }
        if source.is_host || (!self.leaves && destination.is_host) {
            return;
        }
        self.pass_workloads(source, Direction::Ingress);
        if self.leaves {
            self.pass(source, None, None, Direction::Egress);
        }
    }

    fn arrive(&mut self) {
        let (source, destination) = (self.source, self.destination);
        if self.leaves && !destination.is_host {
            self.pass(destination, None, None, Direction::Ingress);
        }
        let own = Some(self.packet.destination);
        match &destination.endpoint {
            Some(endpoint) => {
                self.come_to(Some(destination), endpoint.clone(), Direction::Ingress);
            }
            None if destination.is_host && self.leaves => {
                self.pass(destination, Some(destination), own, Direction::Ingress);
            }
            None if destination.is_host => self.pass_workloads(destination, Direction::Ingress),
            None => {}
        }
        // A host always reaches its own pods.
        if !destination.is_host && (self.leaves || !source.is_host) {
            self.pass_workloads(destination, Direction::Egress);
        }
    }

    /// By an interface of the host, to the other end or from there.
    fn pass(
        &mut self,
        here: &'a End,
        end: Option<&'a End>,
        own: Option<IpAddr>,
        direction: Direction,
    ) {
        let Some(node) = here.node.as_deref().and_then(|name| self.nodes.get(name)) else { return };
        let far = match direction {
            Direction::Egress => self.neighbour(self.destination, self.packet.destination),
            Direction::Ingress => self.neighbour(self.source, self.packet.source),
        };
        let possible = node.possible_towards(own, far);
        self.meet(here, end, possible, direction);
    }

    /// By the interface of a workload, which only an endpoint for all interfaces is for.
    fn pass_workloads(&mut self, here: &'a End, direction: Direction) {
        let Some(node) = here.node.as_deref().and_then(|name| self.nodes.get(name)) else { return };
        let possible = node.possible_at_workloads();
        let end = Some(here).filter(|it| it.is_host);
        self.meet(here, end, possible, direction);
    }

    /// Who hands packets of an end over: the node of a workload.
    fn neighbour(&self, end: &End, address: IpAddr) -> IpAddr {
        let of_node = end.node.as_ref().filter(|_| !end.is_host);
        let of_node = of_node.and_then(|node| self.world.nodes.get(node)).into_iter().flatten();
        let mut of_family = of_node.filter(|it| it.is_ipv4() == address.is_ipv4());
        of_family.next().copied().unwrap_or(address)
    }

    /// Comes to one of several endpoints of a host. What all of them say is said.
    fn meet(&mut self, here: &End, end: Option<&End>, possible: Possible, direction: Direction) {
        let found: Vec<Option<Hop>> = possible
            .iter()
            .map(|key| self.hop(end, Endpoint::Host(key.clone()?), direction))
            .collect();
        let is_denied = |hop: &&Option<Hop>| {
            hop.as_ref().is_some_and(|it| it.walk.outcome == Some(Outcome::Deny))
        };
        let n_denied = found.iter().filter(is_denied).count();
        if n_denied == 0 || n_denied == found.len() {
            self.way.hops.extend(found.into_iter().flatten().next());
            return;
        }
        let node = here.node.clone().unwrap_or_default();
        let is_told = self.nodes.get(node.as_str()).is_some_and(Node::knows_interfaces);
        self.way.unknown.push(Unknown { direction, node, possible, is_told });
    }

    fn come_to(&mut self, end: Option<&End>, endpoint: Endpoint, direction: Direction) {
        let hop = self.hop(end, endpoint, direction);
        self.way.hops.extend(hop);
    }

    /// What an endpoint makes of the packet, if it has something to say about it.
    fn hop(&self, end: Option<&End>, endpoint: Endpoint, direction: Direction) -> Option<Hop> {
        let node = self.world.cluster.node_of(&endpoint).unwrap_or_default().to_owned();
        let at = self.nodes.get(node.as_str())?;
        let ends = (self.source, self.destination);
        let packet = seen_on(self.world, &node, &self.nodes, ends, self.packet);
        let walk = at.intent().explain(&endpoint, direction, &packet)?;
        let is_from_own_host = self.source.is_host && !self.leaves;
        let walk = match guard(at, (&endpoint, direction), &packet, is_from_own_host) {
            Some((outcome, why)) => decided(walk, outcome, why),
            None => walk,
        };
        // An interface of the host that leaves a packet to others has nothing to say about it.
        if walk.outcome.is_none() && walk.tiers.is_empty() {
            return None;
        }
        let key = match &endpoint {
            Endpoint::Workload(key) | Endpoint::Host(key) => key,
        };
        let name = end.map_or_else(|| format!("host endpoint {key}"), |it| it.name.clone());
        let short = end.map_or_else(|| name.clone(), |it| it.short.clone());
        let untranslated =
            at.guards().passed_on(&packet).filter(|_| walk.outcome == Some(Outcome::Allow));
        Some(Hop { direction, name, short, node, endpoint, packet, walk, untranslated })
    }
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
fn to_own_host(node: &Node, (source, to): (&End, &End), hops: &mut Vec<Hop>) {
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
        Endpoint::Host(_) => is_before_nat(&hop.walk),
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
