//! The addresses that a node holds for sandboxes to come, and how many there should be.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::resource::IpPool;

use crate::Inputs;

/// A reserve takes one of 64 addresses at most, as a power of two: small pools are for sandboxes.
const SHARE: u32 = 6;

/// The reserve of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Addresses that can be given to a sandbox.
    pub fit: BTreeSet<IpAddr>,
    /// Addresses that cannot, because their pool or their block is not for this node any more.
    pub unfit: BTreeSet<IpAddr>,
    /// How many IPv4 addresses there should be.
    pub wanted4: usize,
    /// How many IPv6 addresses there should be.
    pub wanted6: usize,
}

impl Inputs {
    /// The reserve that a handle holds, of which there should be so many of each family.
    pub fn reserve(&self, handle: &str, wanted: usize) -> Reserve {
        let mut reserve = Reserve {
            wanted4: wanted.min(self.share(true)),
            wanted6: wanted.min(self.share(false)),
            ..Reserve::default()
        };
        for (cidr, block) in &self.blocks {
            let is_holder = |it: &api::keys::ipam::Attribute| it.handle.as_deref() == Some(handle);
            if !block.attributes.iter().any(is_holder) {
                continue;
            }
            let is_own = self.confirmed_owner(*cidr) == Some(self.node.as_str());
            for ordinal in 0..block.allocations.len() {
                let held = block.attribute(ordinal).filter(|it| is_holder(it));
                let Some(address) = held.and_then(|_| block.address(ordinal)) else { continue };
                match is_own && self.open_pools().any(|pool| pool.cidr.contains(address)) {
                    true => reserve.fit.insert(address),
                    false => reserve.unfit.insert(address),
                };
            }
        }
        reserve
    }

    fn open_pools(&self) -> impl Iterator<Item = &IpPool> {
        self.pools.values().filter(|pool| !pool.disabled)
    }

    /// As many addresses as a reserve may take.
    fn share(&self, is_ipv4: bool) -> usize {
        let bits = if is_ipv4 { 32 } else { 128 };
        let pools = self.open_pools().filter(|pool| pool.cidr.is_ipv4() == is_ipv4);
        let share = |pool: &IpPool| {
            let width = u32::from(bits - pool.cidr.prefix_len()).checked_sub(SHARE);
            width.map_or(0, |width| 1_usize.checked_shl(width).unwrap_or(usize::MAX))
        };
        pools.map(share).fold(0, usize::saturating_add)
    }
}
