//! Neighbours: which Ethernet address an IP address has, for whom we answer, and the forwarding
//! entries of a VXLAN device.

use std::fmt;
use std::net::IpAddr;

use crate::link::{LinkIndex, Mac};
use crate::route::family_of;
use crate::wire::{self, Malformed, Writer};

pub(crate) const NEW: u16 = 28;
pub(crate) const DELETE: u16 = 29;
pub(crate) const GET: u16 = 30;

const FIXED_LEN: usize = 12;
const DESTINATION: u16 = 1;
const MAC: u16 = 2;
const LINK: u16 = 8;

const STATE_PERMANENT: u16 = 0x80;
const STATE_NO_ARP: u16 = 0x40;
const FLAG_SELF: u8 = 0x02;
const FLAG_PROXY: u8 = 0x08;
const FAMILY_BRIDGE: u8 = 7;

/// An entry of the neighbour table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface.
    pub link: LinkIndex,
    /// The IP address of the neighbour.
    pub address: IpAddr,
    /// What is known of it.
    pub kind: NeighbourKind,
}

/// The sorts of neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourKind {
    /// Set by an administrator or by us: never asked for, never aged.
    Permanent(Mac),
    /// We answer for this address on the interface.
    Proxy,
    /// Learnt from traffic; the number is the kernel's state.
    Learnt {
        /// The Ethernet address, once it is known.
        mac: Option<Mac>,
        /// The state (`NUD_…`).
        state: u16,
    },
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "neighbour {} on {}", self.address, self.link)
    }
}

/// Where a VXLAN device sends frames for an Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// The VXLAN device.
    pub link: LinkIndex,
    /// The Ethernet address.
    pub mac: Mac,
    /// The address of the other tunnel end.
    pub remote: IpAddr,
}

impl fmt::Display for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "forwarding of {} on {}", self.mac, self.link)
    }
}

fn put_fixed(writer: &mut Writer, family: u8, link: u32, state: u16, flags: u8) {
    writer.put(&[family, 0, 0, 0]);
    writer.put(&link.to_ne_bytes());
    writer.put(&state.to_ne_bytes());
    writer.put(&[flags, 0]);
}

pub(crate) fn encode_get(writer: &mut Writer, link: Option<LinkIndex>, is_proxy: bool) {
    put_fixed(writer, 0, 0, 0, if is_proxy { FLAG_PROXY } else { 0 });
    if let Some(link) = link {
        writer.u32(LINK, link.0);
    }
}

pub(crate) fn encode_get_forwarding(writer: &mut Writer, link: LinkIndex) {
    put_fixed(writer, FAMILY_BRIDGE, link.0, 0, 0);
}

pub(crate) fn encode(writer: &mut Writer, neighbour: &Neighbour) {
    let (state, flags, mac) = match neighbour.kind {
        NeighbourKind::Permanent(mac) => (STATE_PERMANENT, 0, Some(mac)),
        NeighbourKind::Proxy => (0, FLAG_PROXY, None),
        NeighbourKind::Learnt { mac, state } => (state, 0, mac),
    };
    put_fixed(writer, family_of(neighbour.address), neighbour.link.0, state, flags);
    writer.address(DESTINATION, neighbour.address);
    if let Some(mac) = mac {
        writer.attribute(MAC, &mac.0);
    }
}

pub(crate) fn encode_forwarding(writer: &mut Writer, entry: &Forwarding) {
    let state = STATE_PERMANENT | STATE_NO_ARP;
    put_fixed(writer, FAMILY_BRIDGE, entry.link.0, state, FLAG_SELF);
    writer.attribute(MAC, &entry.mac.0);
    writer.address(DESTINATION, entry.remote);
}

struct Entry {
    family: u8,
    link: LinkIndex,
    state: u16,
    flags: u8,
    address: Option<IpAddr>,
    mac: Option<Mac>,
}

fn decode_entry(body: &[u8]) -> Result<Entry, Malformed> {
    const SHORT: Malformed = Malformed("a neighbour is cut off");
    let mut entry = Entry {
        family: *body.first().ok_or(SHORT)?,
        link: LinkIndex(wire::u32_at(body, 4).ok_or(SHORT)?),
        state: wire::u16_at(body, 8).ok_or(SHORT)?,
        flags: *body.get(10).ok_or(SHORT)?,
        address: None,
        mac: None,
    };
    for attribute in wire::attributes_after(body, FIXED_LEN)? {
        match attribute? {
            (DESTINATION, value) => entry.address = wire::read_address(value).ok(),
            (MAC, value) => entry.mac = value.try_into().ok().map(Mac),
            _ => {}
        }
    }
    Ok(entry)
}

/// A neighbour by IP address; `None` for entries of bridges.
pub(crate) fn decode(body: &[u8]) -> Result<Option<Neighbour>, Malformed> {
    let entry = decode_entry(body)?;
    let Some(address) = entry.address.filter(|_| entry.family != FAMILY_BRIDGE) else {
        return Ok(None);
    };
    let kind = match entry.mac {
        _ if entry.flags & FLAG_PROXY != 0 => NeighbourKind::Proxy,
        Some(mac) if entry.state & STATE_PERMANENT != 0 => NeighbourKind::Permanent(mac),
        mac => NeighbourKind::Learnt { mac, state: entry.state },
    };
    Ok(Some(Neighbour { link: entry.link, address, kind }))
}

/// A forwarding entry of a tunnel; `None` for other entries of bridges.
pub(crate) fn decode_forwarding(body: &[u8]) -> Result<Option<Forwarding>, Malformed> {
    let entry = decode_entry(body)?;
    Ok(match (entry.mac, entry.address) {
        (Some(mac), Some(remote)) if entry.family == FAMILY_BRIDGE => {
            Some(Forwarding { link: entry.link, mac, remote })
        }
        _ => None,
    })
}
