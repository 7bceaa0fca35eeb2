//! Addresses in the store: how full pools are, settings, and letting addresses and blocks go.
//!
//! How they are let go is known to [`::ipam`] alone.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::ControlFlow;

use ::ipam::{Borrowed, PoolUsage, Release, View, borrowed, holder_of, usage};
use api::keys::ipam::{Attribute, Block};
use api::keys::value::{self, Stored, ValueError};
use api::keys::{AffinityType, BlockAffinityKey, Key, ListOptions};
use api::{Kind, Problem};
use net::Cidr;
use serde_json::Value;

use super::node::cidr_of;
use super::read::{quarantined, whole};
use super::{Error, Quarantined, Resources};
use crate::KeyValue;
use crate::ipam::{Driver, RELEASES_AT_ONCE};

mod settings;
mod split;

pub use settings::settings_key;
pub use split::NotSplit;

/// All blocks of a store.
#[derive(Debug, Default)]
pub struct Blocks {
    /// The usable ones, in key order.
    pub blocks: Vec<Block>,
    /// The others.
    pub quarantined: Vec<Quarantined>,
}

/// How full the pools are, in key order of the blocks; unusable objects are named.
#[derive(Debug)]
pub struct Usage {
    /// Pool by pool; the last entry holds the blocks that lie in no pool.
    pub pools: Vec<PoolUsage>,
    /// Pools, reservations and blocks that could not be counted.
    pub quarantined: Vec<Quarantined>,
}

/// The block that a key is of.
pub(super) fn block_at(key: &str) -> Option<Cidr> {
    match Key::parse(key)? {
        Key::Block { cidr } => Some(cidr),
        _ => None,
    }
}

/// Reads what lies under a key.
fn read<T>(
    key: &Key,
    entry: &KeyValue,
    decode: fn(&Value) -> Result<T, Vec<Problem>>,
) -> Result<T, Quarantined> {
    let decoded = match value::parse(key, &entry.value) {
        Ok(Stored::Json(value)) => decode(&value),
        Ok(_) => Err(vec![whole("not JSON")]),
        Err(ValueError::Fields(problems)) => Err(problems),
        Err(ValueError::NotJson(why)) => Err(vec![whole(why)]),
        Err(error) => Err(vec![whole(error.to_string())]),
    };
    decoded.map_err(|problems| quarantined(entry, None, problems))
}

fn read_block(entry: &KeyValue) -> Result<Block, Quarantined> {
    let Some(cidr) = block_at(&entry.key) else {
        return Err(quarantined(entry, None, vec![whole("not a key of a block")]));
    };
    read(&Key::Block { cidr }, entry, |value| {
        let block = Block::decode(value)?;
        let problems = block.check();
        if problems.is_empty() { Ok(block) } else { Err(problems) }
    })
}

impl Resources {
    /// All blocks.
    pub fn blocks(&self) -> Result<Blocks, Error> {
        let mut all = Blocks::default();
        for entry in self.store.list(&ListOptions::Block { family: None }.root())?.entries {
            match read_block(&entry) {
                Ok(block) => all.blocks.push(block),
                Err(quarantined) => all.quarantined.push(quarantined),
            }
        }
        Ok(all)
    }

    /// How full the pools are.
    pub fn ipam_usage(&self) -> Result<Usage, Error> {
        let blocks = self.blocks()?;
        let pools = self.list(Kind::IpPool, None)?;
        let reservations = self.list(Kind::IpReservation, None)?;
        let named: Vec<(String, Cidr)> = pools
            .objects
            .iter()
            .filter_map(|pool| Some((pool.name.name.clone(), cidr_of(pool)?)))
            .collect();
        let reserved: Vec<Cidr> = reservations
            .objects
            .iter()
            .filter_map(|it| it.object.pointer("/spec/reservedCIDRs")?.as_array())
            .flatten()
            .filter_map(|cidr| cidr.as_str()?.trim().parse().ok())
            .collect();
        let quarantined = [blocks.quarantined, pools.quarantined, reservations.quarantined];
        let pools = usage(&named, &blocks.blocks, &reserved);
        Ok(Usage { pools, quarantined: quarantined.into_iter().flatten().collect() })
    }

    /// Addresses held by other nodes than those that own their blocks, and how many addresses do
    /// not say which node holds them.
    pub fn ipam_borrowed(&self) -> Result<(Vec<Borrowed>, usize), Error> {
        Ok(borrowed(&self.blocks()?.blocks))
    }

    /// Who holds an address.
    pub fn ipam_holder(&self, address: IpAddr) -> Result<Option<Attribute>, Error> {
        let Some(entry) = self.block_of(address)? else { return Ok(None) };
        let block = read_block(&entry).map_err(Error::Unreadable)?;
        Ok(holder_of(&block, address).cloned())
    }

    /// The entry of the block that an address lies in.
    fn block_of(&self, address: IpAddr) -> Result<Option<KeyValue>, Error> {
        let family = if Cidr::host(address).is_ipv4() { 4 } else { 6 };
        let mut found = None;
        self.store.list_each(&ListOptions::Block { family: Some(family) }.root(), |entry| {
            match block_at(&entry.key).is_some_and(|cidr| cidr.contains(address)) {
                true => {
                    found = Some(entry);
                    ControlFlow::Break(())
                }
                false => ControlFlow::Continue(()),
            }
        })?;
        Ok(found)
    }

    /// Lets addresses go whose holder may be released, and says which went.
    pub(super) fn release_addresses(
        &self,
        addresses: &[IpAddr],
        may_go: impl Fn(&Attribute) -> bool,
        done: &mut Vec<String>,
    ) -> Result<(), Error> {
        let Blocks { blocks, quarantined } = self.blocks()?;
        let (mut releases, mut broken) = (Vec::new(), None);
        for address in addresses {
            let is_its = |cidr: Cidr| cidr.contains(*address);
            let Some(block) = blocks.iter().find(|block| is_its(block.cidr)) else {
                let is_broken = |it: &&Quarantined| block_at(&it.key).is_some_and(is_its);
                broken = broken.or_else(|| quarantined.iter().find(is_broken).cloned());
                continue;
            };
            let Some(holder) = holder_of(block, *address).filter(|it| may_go(it)) else { continue };
            // The handle holds the release to who was seen.
            let handle = holder.handle.clone().unwrap_or_default();
            releases.push(Release { handle, ..Release::address(*address) });
        }
        let driver = Driver::new(self.store.clone());
        for some in releases.chunks(RELEASES_AT_ONCE) {
            let released = driver.release_ips(&mut View::default(), some)?;
            let gone = released.done.iter().filter(|it| !released.unallocated.contains(it));
            done.extend(gone.map(|address| format!("{address} was released")));
            released.error.map_or(Ok(()), Err)?;
        }
        broken.map_or(Ok(()), |broken| Err(Error::Unreadable(broken)))
    }

    /// Gives back the addresses that a node's agent keeps for times without the datastore.
    pub(super) fn release_reserve(&self, node: &str, done: &mut Vec<String>) -> Result<(), Error> {
        let handle = ::ipam::reserve_handle(node);
        let released = Driver::new(self.store.clone()).run(&mut View::default(), |planner| {
            let Ok(held) = planner.reserve(node)? else { return Ok(Ok(0)) };
            match held.is_empty() {
                true => Ok(Ok(0)),
                false => Ok(planner.release_by_handle(&handle)?.map(|()| held.len())),
            }
        })?;
        let n = released.answer?;
        if n > 0 {
            done.push(format!("the reserve of {node} was let go ({n})"));
        }
        Ok(())
    }

    /// Takes blocks away from their owners. Blocks in use stay, without an owner.
    pub(super) fn release_affinities(
        &self,
        is_meant: impl Fn(&BlockAffinityKey) -> bool,
        done: &mut Vec<String>,
    ) -> Result<(), Error> {
        self.forget(is_meant, None, done)
    }

    /// Takes all blocks from a host and removes what is left of it among the addresses.
    pub(super) fn forget_host(&self, host: &str, done: &mut Vec<String>) -> Result<(), Error> {
        let is_its = |claim: &BlockAffinityKey| {
            claim.owner_type == AffinityType::Host && claim.owner == host
        };
        self.forget(is_its, Key::IpamHost { host: host.to_owned() }.path().ok(), done)
    }

    fn forget(
        &self,
        is_meant: impl Fn(&BlockAffinityKey) -> bool,
        host_key: Option<String>,
        done: &mut Vec<String>,
    ) -> Result<(), Error> {
        let mut taken = BTreeSet::new();
        let forgotten = Driver::new(self.store.clone()).run(&mut View::default(), |planner| {
            let forgotten = planner.forget_claims(|claim| {
                let is_meant = is_meant(claim);
                if is_meant {
                    taken.insert(format!("block {} was taken from {}", claim.cidr, claim.owner));
                }
                is_meant
            })?;
            if let Some(key) = &host_key
                && planner.get(key)?.is_some()
            {
                planner.delete(key)?;
            }
            Ok(forgotten)
        })?;
        done.extend(taken);
        Ok(forgotten.answer?)
    }
}
