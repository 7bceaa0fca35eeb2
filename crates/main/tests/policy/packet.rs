//! Packets with a number: written byte by byte, and found again at the other end.

use std::net::IpAddr;

use policy::Packet;

/// Begins the payload of a probe.
const PROBE: [u8; 4] = *b"prob";
/// Begins the payload of an answer to a probe.
const ANSWER: [u8; 4] = *b"answ";
/// Begins the payload of the packet behind which no other can be under way.
const SENTINEL: [u8; 4] = *b"last";

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const SCTP: u8 = 132;

/// The code point that says that the kernel shall tell of a packet's way through the rules.
pub(crate) const TRACED: u8 = 1;

const SYN: u8 = 0x02;
const RST: u8 = 0x04;

/// What a numbered packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    Probe,
    Answer,
    Sentinel,
}

/// A numbered packet that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) sort: Sort,
    pub(crate) id: u32,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
}

/// A packet as the kernel sends it, with its number inside.
pub(crate) fn build(packet: &Packet, id: u32, dscp: u8) -> Vec<u8> {
    let body = transport(packet, (PROBE, id));
    with_network(packet, &body, dscp)
}

/// The packet after which nothing else is on the way.
pub(crate) fn sentinel(source: IpAddr, destination: IpAddr, id: u32) -> Vec<u8> {
    let packet = plain(source, destination, UDP, Some((9, 9)));
    let body = transport(&packet, (SENTINEL, id));
    with_network(&packet, &body, 0)
}

/// A packet without anything special.
pub(crate) fn plain(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: Option<(u16, u16)>,
) -> Packet {
    let before_nat = None;
    Packet { source, destination, protocol, ports, icmp: None, before_nat, is_of_host: false }
}

/// An answer to a UDP probe.
pub(crate) fn answer(packet: &Packet, id: u32) -> Vec<u8> {
    let ports = packet.ports.map(|(source, destination)| (destination, source));
    let back =
        Packet { source: packet.destination, destination: packet.source, ports, ..packet.clone() };
    let body = transport(&back, (ANSWER, id));
    with_network(&back, &body, 0)
}

/// What follows the network header, with its checksum.
fn transport(packet: &Packet, (magic, id): ([u8; 4], u32)) -> Vec<u8> {
    let (source, destination) = packet.ports.unwrap_or_default();
    let mut body = Vec::with_capacity(32);
    match packet.protocol {
        TCP => {
            body.extend(source.to_be_bytes());
            body.extend(destination.to_be_bytes());
            body.extend(id.to_be_bytes());
            body.extend([0, 0, 0, 0, 0x50, SYN, 0xff, 0xff, 0, 0, 0, 0]);
        }
        SCTP => {
            body.extend(source.to_be_bytes());
            body.extend(destination.to_be_bytes());
            // No tag and no checksum yet; then the chunk that begins an association.
            body.extend([0; 8]);
            body.extend([1, 0, 0, 20]);
            body.extend(id.to_be_bytes());
            body.extend([0, 0, 0x40, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
        }
        ICMP | ICMPV6 => {
            let (kind, code) = packet.icmp.unwrap_or_default();
            let [_, _, high, low] = id.to_be_bytes();
            body.extend([kind, code, 0, 0, high, low, 0, 1]);
            body.extend(magic);
            body.extend(id.to_be_bytes());
        }
        protocol => {
            if packet.ports.is_some() {
                body.extend(source.to_be_bytes());
                body.extend(destination.to_be_bytes());
                // UDP has its length here; of UDP-Lite it is how far the checksum goes.
                body.extend(if protocol == UDP { [0, 16] } else { [0, 0] });
                body.extend([0, 0]);
            }
            body.extend(magic);
            body.extend(id.to_be_bytes());
        }
    }
    seal(packet, &mut body);
    body
}

/// Puts the checksum in its place.
pub(crate) fn seal(packet: &Packet, body: &mut [u8]) {
    let at = match packet.protocol {
        TCP => 16,
        ICMP | ICMPV6 => 2,
        SCTP => {
            let sum = crc32c(body);
            body[8..12].copy_from_slice(&sum.to_le_bytes());
            return;
        }
        _ if packet.ports.is_some() => 6,
        _ => return,
    };
    body[at..at + 2].copy_from_slice(&[0, 0]);
    let mut sum = 0;
    if packet.protocol != ICMP {
        for address in [packet.source, packet.destination] {
            sum += match address {
                IpAddr::V4(address) => words(&address.octets()),
                IpAddr::V6(address) => words(&address.octets()),
            };
        }
        sum += u64::from(packet.protocol) + body.len() as u64;
    }
    sum += words(body);
    body[at..at + 2].copy_from_slice(&folded(sum).to_be_bytes());
}

/// The whole packet around what the transport says.
pub(crate) fn with_network(packet: &Packet, body: &[u8], dscp: u8) -> Vec<u8> {
    let mut whole = Vec::with_capacity(40 + body.len());
    let length = |n: usize| u16::try_from(n).expect("a small packet").to_be_bytes();
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            whole.extend([0x45, dscp << 2]);
            whole.extend(length(20 + body.len()));
            // The kernel fills in the checksum, and a number if there is none.
            whole.extend([0, 0, 0, 0, 64, packet.protocol, 0, 0]);
            whole.extend(source.octets());
            whole.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            whole.extend([0x60 | dscp >> 2, (dscp & 3) << 6, 0, 0]);
            whole.extend(length(body.len()));
            whole.extend([packet.protocol, 64]);
            whole.extend(source.octets());
            whole.extend(destination.octets());
        }
        (source, destination) => panic!("{source} and {destination} are of two families"),
    }
    whole.extend(body);
    whole
}

/// The numbered packet in bytes that came from the wire, if it is one.
pub(crate) fn read(bytes: &[u8]) -> Option<Seen> {
    let (network, body) = match bytes.first()? >> 4 {
        4 => bytes.split_at_checked(20)?,
        6 => bytes.split_at_checked(40)?,
        _ => return None,
    };
    let (sort, id) = number(network, body)?;
    let (source, destination) = addresses(network)?;
    Some(Seen { sort, id, source, destination })
}

/// Where a packet goes.
pub(crate) fn destination(bytes: &[u8]) -> Option<IpAddr> {
    ends(bytes).map(|it| it.1)
}

/// Where a packet comes from.
pub(crate) fn source(bytes: &[u8]) -> Option<IpAddr> {
    ends(bytes).map(|it| it.0)
}

fn ends(bytes: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match bytes.first()? >> 4 {
        4 => addresses(bytes.get(..20)?),
        6 => addresses(bytes.get(..40)?),
        _ => None,
    }
}

/// The number in a packet of which the network header and what follows are known.
pub(crate) fn number(network: &[u8], body: &[u8]) -> Option<(Sort, u32)> {
    let protocol = match network.first()? >> 4 {
        4 => *network.get(9)?,
        _ => *network.get(6)?,
    };
    let number = |at: usize| Some(u32::from_be_bytes(*body.get(at..)?.first_chunk()?));
    let marked = |at: usize| {
        let sort = match *body.get(at..)?.first_chunk()? {
            PROBE => Sort::Probe,
            ANSWER => Sort::Answer,
            SENTINEL => Sort::Sentinel,
            _ => return None,
        };
        Some((sort, number(at + 4)?))
    };
    match protocol {
        TCP if *body.get(13)? & (SYN | RST) == SYN => Some((Sort::Probe, number(4)?)),
        TCP if *body.get(13)? & RST != 0 => Some((Sort::Answer, number(8)?.wrapping_sub(1))),
        TCP => None,
        SCTP => (*body.get(12)? == 1).then_some(()).and_then(|()| Some((Sort::Probe, number(16)?))),
        ICMP | ICMPV6 => {
            let (sort, id) = marked(8)?;
            let is_echoed = matches!((protocol, body[0]), (ICMP, 0 | 14) | (ICMPV6, 129));
            Some((if is_echoed { Sort::Answer } else { sort }, id))
        }
        UDP | 136 => marked(8),
        _ => marked(0),
    }
}

fn addresses(network: &[u8]) -> Option<(IpAddr, IpAddr)> {
    Some(match network.len() {
        20 => {
            let at = |at: usize| Some(IpAddr::from(*network.get(at..)?.first_chunk::<4>()?));
            (at(12)?, at(16)?)
        }
        _ => {
            let at = |at: usize| Some(IpAddr::from(*network.get(at..)?.first_chunk::<16>()?));
            (at(8)?, at(24)?)
        }
    })
}

fn words(bytes: &[u8]) -> u64 {
    let word =
        |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or_default());
    bytes.chunks(2).map(word).sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !u16::try_from(sum).expect("folded") {
        0 => 0xffff,
        sum => sum,
    }
}

/// The checksum of SCTP.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    };
    !bytes.iter().fold(!0, step)
}
