//! Addresses of interfaces.

use std::fmt;

use ipnet::IpNet;

use crate::link::LinkIndex;
use crate::route::{Scope, family_of};
use crate::wire::{self, Malformed, Writer};

pub(crate) const NEW: u16 = 20;
pub(crate) const DELETE: u16 = 21;
pub(crate) const GET: u16 = 22;

const FIXED_LEN: usize = 8;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const FLAGS: u16 = 8;

const FLAG_NO_DAD: u32 = 0x02;
const FLAG_DAD_FAILED: u32 = 0x08;
const FLAG_TENTATIVE: u32 = 0x40;
const FLAG_NO_PREFIX_ROUTE: u32 = 0x200;

/// An address on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The interface.
    pub link: LinkIndex,
    /// The address with the length of its prefix; host bits are kept.
    pub address: IpNet,
    /// How far it is valid.
    pub scope: Scope,
    /// IPv6: used at once, without looking for another host that has it.
    pub has_no_dad: bool,
    /// The kernel adds no route for the prefix.
    pub has_no_prefix_route: bool,
    /// IPv6: not yet found to be unique, so not yet usable.
    pub is_tentative: bool,
    /// IPv6: another host has it.
    pub is_duplicate: bool,
}

impl Address {
    /// A global address with the kernel's defaults.
    pub fn new(link: LinkIndex, address: IpNet) -> Self {
        Self {
            link,
            address,
            scope: Scope::Universe,
            has_no_dad: false,
            has_no_prefix_route: false,
            is_tentative: false,
            is_duplicate: false,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address {} on {}", self.address, self.link)
    }
}

pub(crate) fn encode_get(writer: &mut Writer, link: Option<LinkIndex>) {
    writer.put(&[0; 4]);
    writer.put(&link.map_or(0, |link| link.0).to_ne_bytes());
}

pub(crate) fn encode(writer: &mut Writer, address: &Address) {
    let ip = address.address.addr();
    writer.put(&[family_of(ip), address.address.prefix_len(), 0, address.scope.code()]);
    writer.put(&address.link.0.to_ne_bytes());
    writer.address(LOCAL, ip);
    writer.address(ADDRESS, ip);
    let mut flags = 0;
    if address.has_no_dad {
        flags |= FLAG_NO_DAD;
    }
    if address.has_no_prefix_route {
        flags |= FLAG_NO_PREFIX_ROUTE;
    }
    if flags != 0 {
        writer.u32(FLAGS, flags);
    }
}

pub(crate) fn decode(body: &[u8]) -> Result<Address, Malformed> {
    const SHORT: Malformed = Malformed("an address is cut off");
    let [_, prefix_len, short_flags, scope] = body.first_chunk().copied().ok_or(SHORT)?;
    let link = LinkIndex(wire::u32_at(body, 4).ok_or(SHORT)?);
    let mut flags = u32::from(short_flags);
    let (mut local, mut other) = (None, None);
    for attribute in wire::attributes_after(body, FIXED_LEN)? {
        let (kind, value) = attribute?;
        match kind {
            LOCAL => local = Some(wire::read_address(value)?),
            ADDRESS => other = Some(wire::read_address(value)?),
            FLAGS => flags = wire::read_u32(value)?,
            _ => {}
        }
    }
    // With a peer, the first is ours and the second is the peer's.
    let ip = local.or(other).ok_or(Malformed("an address without its value"))?;
    Ok(Address {
        link,
        address: IpNet::new(ip, prefix_len).map_err(|_| Malformed("a prefix is too long"))?,
        scope: Scope::from_code(scope),
        has_no_dad: flags & FLAG_NO_DAD != 0,
        has_no_prefix_route: flags & FLAG_NO_PREFIX_ROUTE != 0,
        is_tentative: flags & FLAG_TENTATIVE != 0,
        is_duplicate: flags & FLAG_DAD_FAILED != 0,
    })
}
