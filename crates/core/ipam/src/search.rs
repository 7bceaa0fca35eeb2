//! Finding a block with room: one that the node has, a new one, or one that another node does not
//! use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::keys::ipam::{Block, IpamConfig};
use net::Cidr;

use crate::block::{collect, free, is_empty};
use crate::plan::Stop;
use crate::record;
use crate::span::Reserved;
use crate::walk::Walk;
use crate::{Error, HostReserved, Owner, Planner, Pool};

/// An empty block of another node is taken over after this many seconds, so that two nodes do not
/// take it from each other before either has used it.
const RECLAIM_AGE: i64 = 60;

/// What a search goes by, and how far it has come.
pub(crate) struct Search<'a> {
    pub(crate) owner: Owner,
    pub(crate) family: u8,
    pub(crate) pools: Vec<Pool>,
    /// The blocks of the owner that were not looked at yet.
    pub(crate) remaining: Vec<Cidr>,
    pub(crate) host_reserved: Option<&'a HostReserved>,
    pub(crate) reserved: Reserved,
    pub(crate) avoid: &'a BTreeSet<IpAddr>,
    pub(crate) settings: IpamConfig,
}

/// What a search found.
pub(crate) enum Found {
    /// A block with room, and whether it is new.
    Block(Cidr, bool),
    /// Every block of every pool is taken.
    NoFreeBlocks,
}

impl Search<'_> {
    pub(crate) fn may_use(&self, address: IpAddr) -> bool {
        !self.reserved.contains(address) && !self.avoid.contains(&address)
    }

    /// How many addresses of a block can be given out.
    fn room(&self, block: &Block) -> usize {
        let addresses = free(block).into_iter().filter_map(|ordinal| block.address(ordinal));
        addresses.filter(|address| self.may_use(*address)).count()
    }

    /// Whether every address of a block is to be passed over.
    fn avoids(&self, cidr: Cidr) -> bool {
        let longest: u8 = if cidr.is_ipv4() { 32 } else { 128 };
        let bits = longest.saturating_sub(cidr.prefix_len());
        let avoided = self.avoid.iter().filter(|address| cidr.contains(**address)).count();
        1_usize.checked_shl(bits.into()).is_some_and(|size| avoided >= size)
    }

    pub(crate) fn pool_names(&self) -> Vec<String> {
        self.pools.iter().map(|pool| pool.name.clone()).collect()
    }
}

impl Planner<'_> {
    /// The next block with at least so much room. With a limit the node may not have another one.
    pub(crate) fn find_or_claim(
        &mut self,
        search: &mut Search<'_>,
        needed: usize,
        limit: Option<i64>,
    ) -> Result<Found, Stop> {
        while !search.remaining.is_empty() {
            let cidr = search.remaining.remove(0);
            if search.reserved.cover(cidr) {
                continue;
            }
            let block = match self.block_of_claim(&search.owner, cidr, search.host_reserved) {
                // A block that cannot be read is passed over.
                Err(Stop::Failed(_)) => None,
                other => other?,
            };
            let Some(mut block) = block else { continue };
            collect(&mut block, self.cooldown(&search.settings));
            if search.room(&block) >= needed {
                return Ok(Found::Block(cidr, false));
            }
        }
        if let Some(limit) = limit {
            return Err(Error::BlockLimit { limit }.into());
        }
        if !search.settings.auto_allocate_blocks {
            return Err(Error::NoNewBlocks.into());
        }
        self.claim_new(search, needed)
    }

    fn claim_new(&mut self, search: &Search<'_>, needed: usize) -> Result<Found, Stop> {
        // Another process of the node may be claiming a block right now: one is enough.
        let claims = record::affinities_prefix(&search.owner, Some(search.family));
        self.depend_on_prefix(&claims)?;
        let Some(cidr) = self.find_usable(search)? else { return Ok(Found::NoFreeBlocks) };
        let Some(mut block) = self.block_of_claim(&search.owner, cidr, search.host_reserved)?
        else {
            return Ok(Found::NoFreeBlocks);
        };
        collect(&mut block, self.cooldown(&search.settings));
        match search.room(&block) {
            room if room < needed => Err(Error::NoRoom { cidr, free: room, needed }.into()),
            _ => Ok(Found::Block(cidr, true)),
        }
    }

    /// A block that does not exist, or is the owner's and has room, or was another's and empty.
    fn find_usable(&mut self, search: &Search<'_>) -> Result<Option<Cidr>, Stop> {
        let mut existing = BTreeMap::new();
        for (cidr, block) in self.blocks(search.family)? {
            let fresh = block.map(|mut block| {
                collect(&mut block, self.cooldown(&search.settings));
                block
            });
            existing.insert(cidr, fresh);
        }
        let mut empty = Vec::new();
        for pool in &search.pools {
            let walk = Walk::new(pool, &search.owner.name, self.now());
            for cidr in walk.unreserved(&search.reserved) {
                let Some(block) = existing.get(&cidr) else {
                    match search.avoids(cidr) {
                        true => continue,
                        false => return Ok(Some(cidr)),
                    }
                };
                let Some(block) = block else { continue };
                let is_ours = block.affinity.as_ref() == Some(&search.owner.to_string());
                match search.room(block) {
                    0 => {}
                    _ if is_ours => return Ok(Some(cidr)),
                    _ if is_empty(block) => empty.push((cidr, block)),
                    _ => {}
                }
            }
        }
        let cutoff = self.now().text_before(RECLAIM_AGE);
        for (cidr, block) in empty {
            let is_old = block.affinity_claim_time.as_ref().is_none_or(|time| *time <= cutoff);
            let Some((kind, name)) = block.owner().filter(|_| is_old) else { continue };
            let owner = Owner { kind, name: name.to_owned() };
            match self.give_up(&owner, cidr, true, &search.settings) {
                Ok(Ok(())) => return Ok(Some(cidr)),
                Err(Stop::Pause(pause)) => return Err(pause.into()),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The blocks of a pool that exist, in the order in which the owner looks through them; those
    /// for which others contend come last.
    pub(crate) fn existing_in_walk_order(
        &self,
        search: &Search<'_>,
        pool: &Pool,
    ) -> Result<Vec<Cidr>, Stop> {
        let walk = Walk::new(pool, &search.owner.name, self.now());
        let mut found: Vec<((bool, u128), Cidr)> = Vec::new();
        for (cidr, block) in self.blocks(search.family)? {
            if block.is_some() && !search.reserved.cover(cidr) {
                let is_contended = self.is_contended(&record::block_key(cidr));
                found.extend(walk.distance(cidr).map(|it| ((is_contended, it), cidr)));
            }
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, cidr)| cidr).collect())
    }
}
