//! One rule, and which packets it matches.

use std::net::IpAddr;

use model::resource::Action;
use net::{Cidr, Protocol};

use crate::packet::{Packet, protocol_number};
use crate::set::{IpSets, SetId};

/// A rule as dataplanes carry it out. Every condition that is given must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What to do with what matches.
    pub action: Action,
    /// Only IPv4, or only IPv6.
    pub is_ipv4: Option<bool>,
    /// Only this protocol.
    pub protocol: Option<Protocol>,
    /// Any protocol but this.
    pub not_protocol: Option<Protocol>,
    /// Only these ICMP messages.
    pub icmp: Option<Icmp>,
    /// Only ICMP messages other than these.
    pub not_icmp: Option<Icmp>,
    /// Where the packet comes from.
    pub source: Peer,
    /// Where it goes.
    pub destination: Peer,
}

/// ICMP messages of a type, and of a code within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Icmp {
    /// The type.
    pub kind: u8,
    /// The code; none for any.
    pub code: Option<u8>,
}

/// One end of the traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// In one of these networks.
    pub nets: Vec<Cidr>,
    /// In none of these networks.
    pub not_nets: Vec<Cidr>,
    /// In each of these sets.
    pub sets: Vec<SetId>,
    /// In none of these sets.
    pub not_sets: Vec<SetId>,
    /// On one of these ports.
    pub ports: Ports,
    /// On none of these ports.
    pub not_ports: Ports,
    /// With its port in each of these sets.
    pub port_sets: Vec<SetId>,
}

/// Ports by number and by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Ranges, both ends included.
    pub ranges: Vec<(u16, u16)>,
    /// Sets of the ports that have a name.
    pub named: Vec<SetId>,
}

impl Rule {
    /// A rule without conditions.
    pub fn all(action: Action) -> Self {
        Self {
            action,
            is_ipv4: None,
            protocol: None,
            not_protocol: None,
            icmp: None,
            not_icmp: None,
            source: Peer::default(),
            destination: Peer::default(),
        }
    }

    /// Whether a packet meets every condition.
    pub fn matches(&self, packet: &Packet, sets: &IpSets) -> bool {
        let is = |protocol: &Protocol| protocol_number(protocol) == Some(packet.protocol);
        let ports = packet.ports;
        self.is_ipv4.is_none_or(|is_ipv4| is_ipv4 == packet.source.is_ipv4())
            && self.protocol.as_ref().is_none_or(is)
            && !self.not_protocol.as_ref().is_some_and(is)
            // A condition on ICMP messages is for ICMP messages.
            && self.icmp.is_none_or(|icmp| packet.icmp.is_some_and(|it| icmp.is(it)))
            && self.not_icmp.is_none_or(|icmp| packet.icmp.is_some_and(|it| !icmp.is(it)))
            && {
                let end = End { address: packet.source, port: ports.map(|it| it.0) };
                self.source.matches(&end, packet.protocol, sets)
            }
            && {
                let end = End { address: packet.destination, port: ports.map(|it| it.1) };
                self.destination.matches(&end, packet.protocol, sets)
            }
    }
}

impl Icmp {
    fn is(self, (kind, code): (u8, u8)) -> bool {
        self.kind == kind && self.code.is_none_or(|wanted| wanted == code)
    }
}

/// One end of a packet.
struct End {
    address: IpAddr,
    port: Option<u16>,
}

impl Peer {
    fn matches(&self, end: &End, protocol: u8, sets: &IpSets) -> bool {
        let within = |net: &Cidr| net.contains(end.address);
        let is_in = |id: &SetId| sets.get(id).is_some_and(|set| set.has(end.address));
        let has_port = |id: &SetId| {
            let port = end.port.zip(sets.get(id));
            port.is_some_and(|(port, set)| set.has_port(end.address, protocol, port))
        };
        (self.nets.is_empty() || self.nets.iter().any(within))
            && !self.not_nets.iter().any(within)
            && self.sets.iter().all(is_in)
            && !self.not_sets.iter().any(is_in)
            && (self.ports.is_empty() || self.ports.has(end, has_port))
            && !self.not_ports.has(end, has_port)
            && self.port_sets.iter().all(has_port)
    }
}

impl Ports {
    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.named.is_empty()
    }

    fn has(&self, end: &End, is_named: impl Fn(&SetId) -> bool) -> bool {
        let is_in = |port| self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&port));
        end.port.is_some_and(is_in) || self.named.iter().any(is_named)
    }
}
