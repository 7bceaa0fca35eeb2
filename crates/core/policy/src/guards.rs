//! What decides before policies do, or in their place: what no workload may send, what a host
//! lets through whatever its policies say, and what becomes of packets that leave.
//!
//! Slow and obvious as [`crate::Judge`] is: explanations repeat it and the kernel is held to it.
//! Nothing but the words is shared with `render`.

use std::net::IpAddr;

use model::resource::Direction;
use net::Cidr;

use crate::intent::Workload;
use crate::packet::Packet;
use crate::render::{EndpointToHost, Failsafe, ServiceLoops, Settings, Surroundings};

/// A source that is somebody else's.
pub const SOURCE: &str = "source is not the endpoint's";
/// A message of a router.
pub const ADVERTISEMENT: &str = "router advertisement";
/// The same.
pub const REDIRECT: &str = "redirect";
/// A tunnel that a workload would make itself.
pub const IPIP: &str = "IPIP packet of a workload";
/// The same by VXLAN.
pub const VXLAN: &str = "VXLAN packet of a workload";
/// Where a host talks to itself alone.
pub const LOOPBACK: &str = "loopback address of the host";
/// A packet of a workload to its own host.
pub const TO_HOST: &str =
    "defaultEndpointToHostAction is Drop, workloads do not reach their own host";
/// What no translation led to somebody.
pub const SERVICE: &str = "address of a service that nobody has";
/// Why a host lets something through.
pub const FAILSAFE: &str = "a failsafe port, which no policy closes";
/// Why a workload gets something.
pub const OWN_HOST: &str = "its own host, which no policy of a pod keeps out";

const IPIP_NUMBER: u8 = 4;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// What a node does beside its policies.
#[derive(Clone, Copy, Debug)]
pub struct Guards<'a> {
    /// Its settings.
    pub settings: &'a Settings,
    /// What is around its endpoints.
    pub around: &'a Surroundings,
}

impl Guards<'_> {
    /// Why a workload may not send a packet, whatever its policies say. What neighbours tell each
    /// other inside of their messages is not looked at.
    pub fn sender(&self, sender: &Workload, packet: &Packet) -> Option<&'static str> {
        let port = packet.ports.map(|it| it.1);
        let is_loopback = packet.destination.is_ipv4() && packet.destination.is_loopback();
        match packet.protocol {
            ICMPV6 if message(packet) == Some(134) => Some(ADVERTISEMENT),
            ICMPV6 if message(packet) == Some(137) => Some(REDIRECT),
            _ if !self.may_use_source(sender, packet) => Some(SOURCE),
            _ if is_loopback && packet.before_nat.is_none() => Some(LOOPBACK),
            IPIP_NUMBER if !self.settings.may_send_ipip => Some(IPIP),
            UDP if port == Some(self.settings.vxlan_port) && !self.settings.may_send_vxlan => {
                Some(VXLAN)
            }
            _ => None,
        }
    }

    fn may_use_source(&self, sender: &Workload, packet: &Packet) -> bool {
        let is_in = |nets: &[Cidr]| nets.iter().any(|net| net.masked().contains(packet.source));
        let is_own = is_in(&sender.addresses);
        let is_allowed = self.settings.may_spoof && is_in(&sender.allowed_sources);
        // Neighbour discovery and group membership come from link-local addresses, or from none.
        let is_of_link = match (packet.source, message(packet)) {
            (IpAddr::V6(source), Some(kind)) if source.is_unspecified() => {
                matches!(kind, 135 | 143)
            }
            (IpAddr::V6(source), Some(kind)) if source.is_unicast_link_local() => {
                matches!(kind, 131..=133 | 135 | 136 | 143)
            }
            _ => false,
        };
        is_own || is_allowed || is_of_link
    }

    /// Why a packet of a workload does not reach its own host although its policies allow it. What
    /// does is not judged by the host's policies, but for those before destination NAT.
    pub fn to_own_host(&self, packet: &Packet) -> Option<&'static str> {
        let is_discovery = matches!(message(packet), Some(130..=133 | 135 | 136 | 143));
        let is_closed = self.settings.endpoint_to_host == EndpointToHost::Drop;
        (is_closed && !is_discovery).then_some(TO_HOST)
    }

    /// Whether a packet to the host, or from it, is let through whatever the host's policies say.
    pub fn is_spared(&self, direction: Direction, packet: &Packet) -> bool {
        let port = packet.ports.map(|it| it.1);
        is_discovery(packet) || has(self.failsafes(direction), direction, packet, port)
    }

    /// The same before connection tracking, where nobody knows answers as such.
    pub fn is_spared_untracked(&self, direction: Direction, packet: &Packet) -> bool {
        let port = packet.ports.map(|it| it.0);
        let answered = match direction {
            Direction::Ingress => Direction::Egress,
            Direction::Egress => Direction::Ingress,
        };
        let is_answer = has(self.failsafes(answered), direction, packet, port);
        is_answer || self.is_spared(direction, packet)
    }

    fn failsafes(&self, direction: Direction) -> &[Failsafe] {
        match direction {
            Direction::Ingress => &self.settings.failsafe_inbound,
            Direction::Egress => &self.settings.failsafe_outbound,
        }
    }

    /// Why a packet is not passed on although policies allow it, if nobody translates it.
    pub fn passed_on(&self, packet: &Packet) -> Option<&'static str> {
        let is_open = self.settings.service_loops == ServiceLoops::Allow;
        let is_there =
            self.around.service_networks.iter().any(|it| it.contains(packet.destination));
        (!is_open && is_there).then_some(SERVICE)
    }

    /// The source of a packet after it has left a node with these addresses, by this interface if
    /// that is known.
    pub fn source_outside(
        &self,
        packet: &Packet,
        own: &[IpAddr],
        interface: Option<&str>,
    ) -> IpAddr {
        let Self { settings, around } = self;
        let (source, destination) = (packet.source, packet.destination);
        let is_host = around.host_addresses.contains(&destination)
            || settings.external_nodes.iter().any(|net| net.contains(destination));
        let is_other = |pattern: &String, name: &str| match pattern.strip_suffix('+') {
            Some(start) => !name.starts_with(start),
            None => pattern != name,
        };
        let is_elsewhere = settings.nat_interface.as_ref().zip(interface);
        let is_spared = around.pools.iter().any(|pool| pool.contains(destination))
            || (settings.nat_spares_hosts && is_host)
            || is_elsewhere.is_some_and(|(pattern, name)| is_other(pattern, name));
        if is_spared || !around.nat_outgoing.iter().any(|pool| pool.contains(source)) {
            return source;
        }
        let chosen = settings.nat_address.map(IpAddr::from).into_iter().chain(own.iter().copied());
        chosen.into_iter().find(|it| it.is_ipv4() == source.is_ipv4()).unwrap_or(source)
    }
}

/// The type of a message of IPv6.
fn message(packet: &Packet) -> Option<u8> {
    packet.icmp.filter(|_| packet.protocol == ICMPV6).map(|it| it.0)
}

/// What a host cannot do without in IPv6: group membership, routers and neighbours.
fn is_discovery(packet: &Packet) -> bool {
    matches!(message(packet), Some(130..=136 | 143))
}

fn has(ports: &[Failsafe], direction: Direction, packet: &Packet, port: Option<u16>) -> bool {
    let far = match direction {
        Direction::Ingress => packet.source,
        Direction::Egress => packet.destination,
    };
    ports.iter().any(|it| {
        let is_there = it.net.is_none_or(|net| net.contains(far));
        it.protocol == packet.protocol && Some(it.port) == port && is_there
    })
}
