//! Who holds what, as the records have it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::stock::Slot;
use super::verdict::{Judgement, SlotVerdict, address_at, ordinal_of};
use super::witness::Witnesses;
use super::{Inventory, Reach};
use crate::Release;

/// An address that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAddress<'i> {
    /// The address.
    pub address: IpAddr,
    /// The handle that holds it.
    pub handle: Option<&'i str>,
    /// The node that uses it.
    pub node: Option<&'i str>,
    /// The node that owns its block.
    pub owner: Option<&'i str>,
}

impl fmt::Display for HeldAddress<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (handle, node) = (self.handle.unwrap_or("nobody"), self.node.unwrap_or("no node"));
        write!(to, "{} held by {handle} on {node}", self.address)?;
        match self.owner {
            Some(owner) if self.node.is_some_and(|node| node != owner) => {
                write!(to, ", borrowed from {owner}")
            }
            _ => Ok(()),
        }
    }
}

impl Inventory {
    /// Every address that is held, in order of blocks.
    pub fn held(&self) -> impl Iterator<Item = HeldAddress<'_>> {
        self.blocks.values().flat_map(|stock| {
            stock.slots.iter().filter_map(|(ordinal, slot)| match slot {
                Slot::Held(holder) if !holder.is_cooling => Some(HeldAddress {
                    address: address_at(stock.cidr, *ordinal)?,
                    handle: holder.handle.as_deref(),
                    node: holder.node.as_deref(),
                    owner: stock.node(),
                }),
                _ => None,
            })
        })
    }

    /// Every block: the node that owns it, and how many of its addresses are free.
    pub fn owned(&self) -> impl Iterator<Item = (Option<&str>, usize)> {
        self.blocks.values().filter(|stock| !stock.is_lost).map(|stock| {
            let bits = if stock.cidr.is_ipv4() { 32 } else { 128 };
            let free = u32::from(bits - stock.cidr.prefix_len());
            let size = 1_usize.checked_shl(free).unwrap_or(usize::MAX);
            (stock.node(), size.saturating_sub(stock.slots.len()))
        })
    }

    /// Who is known to use an address.
    pub fn user_of(&self, address: IpAddr) -> Option<String> {
        Witnesses::of(self).users(address).first().map(|user| user.spoken())
    }

    /// The addresses that may be let go, with what a release has to present.
    pub fn leaks(&self, reach: Reach) -> BTreeMap<IpAddr, Release> {
        let judgement = Judgement::of(self, reach);
        let is_leak = |held: &HeldAddress<'_>| {
            judgement.blocks_around(held.address).into_iter().any(|stock| {
                let slots = judgement.blocks.get(&stock.cidr).map(|verdict| &verdict.slots);
                let slot = ordinal_of(stock.cidr, held.address).and_then(|it| slots?.get(&it));
                slot == Some(&SlotVerdict::Free)
            })
        };
        let leaks = self.held().filter(is_leak);
        leaks
            .map(|held| {
                let handle = held.handle.unwrap_or_default().to_owned();
                (held.address, Release { handle, ..Release::address(held.address) })
            })
            .collect()
    }
}
