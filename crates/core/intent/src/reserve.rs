//! The addresses that a node holds for sandboxes to come, and how many there should be.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipam::{AutoAssign, Planned, Planner, Release, reserve_handle};
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

/// What makes a reserve what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restock {
    /// Addresses to give back.
    pub back: BTreeSet<IpAddr>,
    /// How many IPv4 addresses there should be, those that sandboxes use included.
    count4: usize,
    count6: usize,
    is_short: bool,
}

impl Restock {
    /// What is to be done about a reserve of which sandboxes have taken some.
    pub fn of(reserve: &Reserve, taken: &BTreeSet<IpAddr>) -> Self {
        let mut back: BTreeSet<IpAddr> = reserve.unfit.difference(taken).copied().collect();
        let mut is_short = false;
        let mut count = |is_ipv4: bool, wanted: usize| {
            let family = || reserve.fit.iter().filter(move |it| it.is_ipv4() == is_ipv4);
            let free = || family().filter(|address| !taken.contains(address));
            back.extend(free().skip(wanted));
            is_short |= free().count() < wanted;
            wanted + family().count() - free().count()
        };
        let count4 = count(true, reserve.wanted4);
        let count6 = count(false, reserve.wanted6);
        Self { back, count4, count6, is_short }
    }

    /// Whether it is as it should be.
    pub fn is_nothing(&self) -> bool {
        self.back.is_empty() && !self.is_short
    }

    /// Does it, in one transaction.
    pub fn plan(&self, planner: &mut Planner<'_>, node: &str) -> Planned<()> {
        let handle = reserve_handle(node);
        let back = |address: &IpAddr| Release {
            address: address.to_string(),
            handle: handle.clone(),
            sequence: None,
        };
        let back: Vec<Release> = self.back.iter().map(back).collect();
        if !back.is_empty() {
            planner.release_ips(&back)?;
        }
        let node = node.to_owned();
        let request = AutoAssign { node, purpose: "Workload".to_owned(), ..AutoAssign::default() };
        planner.fill_reserve(self.count4, self.count6, &request).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> BTreeSet<IpAddr> {
        list.iter().map(|it| it.parse().unwrap()).collect()
    }

    #[test]
    fn what_sandboxes_use_is_not_given_back_and_not_counted() {
        let reserve = Reserve {
            fit: addresses(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"]),
            unfit: addresses(&["10.9.0.1", "10.9.0.2"]),
            wanted4: 1,
            wanted6: 2,
        };
        let taken = addresses(&["10.0.0.1", "10.9.0.1", "10.5.5.5"]);
        let restock = Restock::of(&reserve, &taken);
        let back = addresses(&["10.0.0.3", "10.9.0.2"]);
        assert_eq!(restock, Restock { back, count4: 2, count6: 2, is_short: true });
        let none = Reserve { wanted4: 0, wanted6: 0, ..reserve.clone() };
        let back = addresses(&["10.0.0.2", "10.0.0.3", "10.9.0.2", "fd00::1"]);
        assert_eq!(Restock::of(&none, &taken).back, back);
        let right = Reserve { fit: addresses(&["10.0.0.2"]), wanted4: 1, ..Reserve::default() };
        assert!(Restock::of(&right, &taken).is_nothing());
    }
}
