//! Who speaks to whom, from the first bytes of a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDPLITE: u8 = 136;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;

/// What rules can look at in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// The protocol above IP.
    pub protocol: u8,
    /// The ports, source first; none for protocols without them, and for what follows the first
    /// fragment.
    pub ports: Option<(u16, u16)>,
    /// Type and code of an ICMP message.
    pub icmp: Option<(u8, u8)>,
    /// Whether it is a fragment other than the first.
    pub is_later_fragment: bool,
}

/// Reads as much as there is; none if the addresses and the protocol are not in it.
pub fn decode_header(bytes: &[u8]) -> Option<Header> {
    match bytes.first()? >> 4 {
        4 => decode_v4(bytes),
        6 => decode_v6(bytes),
        _ => None,
    }
}

fn decode_v4(bytes: &[u8]) -> Option<Header> {
    let len = usize::from(bytes.first()? & 0xf) * 4;
    if len < 20 {
        return None;
    }
    let fragment_offset = u16_at(bytes, 6)? & 0x1fff;
    let protocol = *bytes.get(9)?;
    let source = Ipv4Addr::from(array_at::<4>(bytes, 12)?).into();
    let destination = Ipv4Addr::from(array_at::<4>(bytes, 16)?).into();
    let above = bytes.get(len..).unwrap_or(&[]);
    Some(header((source, destination), protocol, above, fragment_offset != 0))
}

fn decode_v6(bytes: &[u8]) -> Option<Header> {
    let source = Ipv6Addr::from(array_at::<16>(bytes, 8)?).into();
    let destination = Ipv6Addr::from(array_at::<16>(bytes, 24)?).into();
    let mut protocol = *bytes.get(6)?;
    let mut rest = bytes.get(40..).unwrap_or(&[]);
    let mut is_later_fragment = false;
    // Every turn takes 8 bytes or more off what is left.
    while let Some(len) = extension_len(protocol, rest) {
        if protocol == FRAGMENT {
            is_later_fragment = u16_at(rest, 2)? & 0xfff8 != 0;
        }
        let (next, after) = (*rest.first()?, rest.get(len..));
        protocol = next;
        // What is above the header of a later fragment is the middle of something.
        let (Some(after), false) = (after, is_later_fragment) else {
            rest = &[];
            break;
        };
        rest = after;
    }
    Some(header((source, destination), protocol, rest, is_later_fragment))
}

/// The length of an extension header; none if it is none, or if nothing of it is there.
fn extension_len(protocol: u8, bytes: &[u8]) -> Option<usize> {
    let n = usize::from(*bytes.get(1)?);
    match protocol {
        HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY => Some((n + 1) * 8),
        FRAGMENT => Some(8),
        AUTHENTICATION => Some((n + 2) * 4),
        _ => None,
    }
}

fn header(
    (source, destination): (IpAddr, IpAddr),
    protocol: u8,
    above: &[u8],
    is_later_fragment: bool,
) -> Header {
    let above = if is_later_fragment { &[] } else { above };
    let (mut ports, mut icmp) = (None, None);
    match protocol {
        TCP | UDP | SCTP | UDPLITE => ports = u16_at(above, 0).zip(u16_at(above, 2)),
        ICMP | ICMPV6 => icmp = above.first().copied().zip(above.get(1).copied()),
        _ => {}
    }
    Header { source, destination, protocol, ports, icmp, is_later_fragment }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.get(..N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(protocol: u8, fragment: u16, options: usize, above: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 20 + options * 4];
        bytes[0] = 0x45 + u8::try_from(options).unwrap();
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[9] = protocol;
        bytes[12..16].copy_from_slice(&[10, 0, 0, 1]);
        bytes[16..20].copy_from_slice(&[10, 0, 0, 2]);
        bytes.extend_from_slice(above);
        bytes
    }

    fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        bytes[0] = 0x60;
        bytes[6] = next;
        bytes[23] = 1;
        bytes[39] = 2;
        bytes.extend_from_slice(rest);
        bytes
    }

    const PORTS: [u8; 4] = [0x9c, 0x40, 0, 80];

    #[test]
    fn ports_are_behind_options_and_only_in_the_first_fragment() {
        for (fragment, ports, is_later) in [
            (0, Some((40_000, 80)), false),
            (0x4000, Some((40_000, 80)), false),
            (0x2000, Some((40_000, 80)), false),
            (0x2001, None, true),
            (0x0001, None, true),
        ] {
            for options in [0, 10] {
                let read = decode_header(&v4(TCP, fragment, options, &PORTS)).unwrap();
                assert_eq!((read.ports, read.is_later_fragment), (ports, is_later));
                assert_eq!(read.destination, IpAddr::from([10, 0, 0, 2]));
            }
        }
        assert_eq!(decode_header(&v4(ICMP, 0, 0, &[8, 0])).unwrap().icmp, Some((8, 0)));
        assert_eq!(decode_header(&v4(47, 0, 0, &PORTS)).unwrap().ports, None);
    }

    #[test]
    fn extension_headers_are_passed_over() {
        // Hop by hop (16 bytes), routing (8), authentication (12), destination options (8).
        let mut chain = vec![ROUTING, 1];
        chain.resize(16, 0);
        chain.extend([AUTHENTICATION, 0, 0, 0, 0, 0, 0, 0]);
        chain.extend([DESTINATION_OPTIONS, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        chain.extend([UDP, 0, 0, 0, 0, 0, 0, 0]);
        chain.extend(PORTS);
        let read = decode_header(&v6(HOP_BY_HOP, &chain)).unwrap();
        assert_eq!((read.protocol, read.ports), (UDP, Some((40_000, 80))));

        let fragment = |offset: u16| {
            let [high, low] = (offset << 3).to_be_bytes();
            let mut rest = vec![FRAGMENT, 0, 0, 0, 0, 0, 0, 0, TCP, 0, high, low, 0, 0, 0, 0];
            rest.extend(PORTS);
            decode_header(&v6(DESTINATION_OPTIONS, &rest)).unwrap()
        };
        let (first, later) = (fragment(0), fragment(5));
        assert_eq!(
            (first.protocol, first.ports.is_some(), first.is_later_fragment),
            (TCP, true, false)
        );
        assert_eq!((later.protocol, later.ports, later.is_later_fragment), (TCP, None, true));
        assert_eq!(decode_header(&v6(ICMPV6, &[135, 0])).unwrap().icmp, Some((135, 0)));
    }

    #[test]
    fn every_cut_of_a_packet_says_less_or_nothing() {
        let mut rest = vec![UDP, 0, 0, 0, 0, 0, 0, 0];
        rest.extend(PORTS);
        for whole in [v4(TCP, 0, 2, &PORTS), v6(HOP_BY_HOP, &rest), v6(FRAGMENT, &rest)] {
            let read = decode_header(&whole).unwrap();
            for len in 0..whole.len() {
                let cut = decode_header(&whole[..len]);
                assert!(cut.is_none_or(|cut| cut.source == read.source && cut.ports.is_none()));
            }
        }
        for bytes in [&[][..], &[0x44; 60], &[0x50; 60], &[0x6f]] {
            assert_eq!(decode_header(bytes), None);
        }
    }
}
