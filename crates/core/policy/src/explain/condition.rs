//! The conditions of a rule one by one: each is a rule of its own, and what a packet lacks is told
//! by the ones that do not match it.

use crate::packet::Packet;
use crate::rule::{Peer, Ports, Rule};
use crate::set::{IpSets, Member, SetId};

/// One condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The version of IP.
    Version,
    /// The protocol.
    Protocol,
    /// The type or code of an ICMP message.
    Icmp,
    /// Something about one end.
    Of(Side, About),
}

/// An end of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Side {
    Source,
    Destination,
}

/// What a condition on one end is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// The networks it is in.
    Nets,
    /// The networks it is not in.
    NotNets,
    /// A set that it is in.
    Set(SetId),
    /// A set that it is not in.
    NotSet(SetId),
    /// Its port.
    Ports,
    /// The ports it does not have.
    NotPorts,
    /// A set that its port is in.
    PortSet(SetId),
}

/// A member of a set that a packet met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// The set.
    pub set: SetId,
    /// Which end of the packet is in it.
    pub side: Side,
    /// The member.
    pub member: Member,
}

impl Rule {
    /// Its conditions, each with a rule that has no other. A packet matches the rule if it matches
    /// each of these.
    pub fn conditions(&self) -> Vec<(Condition, Self)> {
        let all = || Self::all(self.action);
        let mut found = Vec::new();
        if self.is_ipv4.is_some() {
            found.push((Condition::Version, Self { is_ipv4: self.is_ipv4, ..all() }));
        }
        if self.protocol.is_some() {
            let rule = Self { protocol: self.protocol.clone(), ..all() };
            found.push((Condition::Protocol, rule));
        }
        if self.not_protocol.is_some() {
            let rule = Self { not_protocol: self.not_protocol.clone(), ..all() };
            found.push((Condition::Protocol, rule));
        }
        if self.icmp.is_some() {
            found.push((Condition::Icmp, Self { icmp: self.icmp, ..all() }));
        }
        if self.not_icmp.is_some() {
            found.push((Condition::Icmp, Self { not_icmp: self.not_icmp, ..all() }));
        }
        for (about, source) in self.source.conditions() {
            found.push((Condition::Of(Side::Source, about), Self { source, ..all() }));
        }
        for (about, destination) in self.destination.conditions() {
            found.push((Condition::Of(Side::Destination, about), Self { destination, ..all() }));
        }
        found
    }

    /// The conditions that a packet does not meet; none if the rule matches it.
    pub fn lacks(&self, packet: &Packet, sets: &IpSets) -> Vec<Condition> {
        let unmet = |(condition, rule): (Condition, Self)| {
            (!rule.matches(packet, sets)).then_some(condition)
        };
        self.conditions().into_iter().filter_map(unmet).collect()
    }

    /// The members of the rule's sets that a packet meets.
    pub fn met(&self, packet: &Packet, sets: &IpSets) -> Vec<Met> {
        let ports = packet.ports;
        let source = (Side::Source, packet.source, ports.map(|it| it.0), &self.source);
        let destination =
            (Side::Destination, packet.destination, ports.map(|it| it.1), &self.destination);
        let mut found = Vec::new();
        for (side, address, port, peer) in [source, destination] {
            let names = peer.sets.iter().chain(&peer.ports.named).chain(&peer.port_sets);
            for (name, set) in names.filter_map(|name| Some((name, sets.get(name)?))) {
                let is_met = |member: &&Member| match member {
                    Member::Net(net) => net.contains(address),
                    Member::Port { address: its, protocol, port: number } => {
                        (*its, *protocol, Some(*number)) == (address, packet.protocol, port)
                    }
                };
                let met = set.members.iter().filter(is_met);
                found.extend(met.map(|it| Met { set: name.clone(), side, member: it.clone() }));
            }
        }
        found
    }
}

impl Peer {
    fn conditions(&self) -> Vec<(About, Self)> {
        let mut found = Vec::new();
        if !self.nets.is_empty() {
            found.push((About::Nets, Self { nets: self.nets.clone(), ..Self::default() }));
        }
        if !self.not_nets.is_empty() {
            let peer = Self { not_nets: self.not_nets.clone(), ..Self::default() };
            found.push((About::NotNets, peer));
        }
        for id in &self.sets {
            let peer = Self { sets: vec![id.clone()], ..Self::default() };
            found.push((About::Set(id.clone()), peer));
        }
        for id in &self.not_sets {
            let peer = Self { not_sets: vec![id.clone()], ..Self::default() };
            found.push((About::NotSet(id.clone()), peer));
        }
        let has_any = |ports: &Ports| !ports.is_empty();
        if has_any(&self.ports) {
            found.push((About::Ports, Self { ports: self.ports.clone(), ..Self::default() }));
        }
        if has_any(&self.not_ports) {
            let peer = Self { not_ports: self.not_ports.clone(), ..Self::default() };
            found.push((About::NotPorts, peer));
        }
        for id in &self.port_sets {
            let peer = Self { port_sets: vec![id.clone()], ..Self::default() };
            found.push((About::PortSet(id.clone()), peer));
        }
        found
    }
}
