//! A packet, as far as rules look at it.

use std::net::IpAddr;

use net::Protocol;

/// The first packet of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// Its protocol number.
    pub protocol: u8,
    /// The ports, source first; none for protocols without them.
    pub ports: Option<(u16, u16)>,
    /// Type and code, if it is an ICMP message.
    pub icmp: Option<(u8, u8)>,
    /// Where it went before destination NAT, if that was somewhere else.
    pub before_nat: Option<(IpAddr, u16)>,
    /// Whether one side of it is this host itself.
    pub is_of_host: bool,
}

impl Packet {
    /// As it was before destination NAT.
    pub(crate) fn before_nat(&self) -> Self {
        let Some((destination, port)) = self.before_nat else { return self.clone() };
        let ports = self.ports.map(|(source, _)| (source, port));
        Self { destination, ports, before_nat: None, ..self.clone() }
    }
}

/// The number of a protocol; none for a name that nobody knows.
pub fn protocol_number(protocol: &Protocol) -> Option<u8> {
    let name = match protocol {
        Protocol::Number(number) => return Some(*number),
        Protocol::Name(name) => name.to_lowercase(),
    };
    Some(match name.as_str() {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "icmpv6" => 58,
        "sctp" => 132,
        "udplite" => 136,
        _ => return None,
    })
}
