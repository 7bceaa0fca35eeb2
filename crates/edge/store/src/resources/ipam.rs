//! Addresses in the store: how full pools are, settings, and letting addresses and blocks go.
//!
//! A block and the handles that point into it change in one transaction, so counts cannot drift.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::ControlFlow;

use ::ipam::{Borrowed, PoolUsage, borrowed, clear_affinity, holder_of, is_empty, release, usage};
use api::keys::ipam::{Attribute, Block, Handle, IpamConfig};
use api::keys::value::{self, Stored, ValueError};
use api::keys::{AffinityType, BlockAffinityKey, Key, ListOptions};
use api::{Kind, Problem};
use net::Cidr;
use serde_json::Value;

use super::read::{quarantined, whole};
use super::{Error, Quarantined, Resources};
use crate::{Committed, Compare, KeyValue, Op, Txn};

mod settings;

pub use settings::settings_key;

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
            .filter_map(|pool| {
                let cidr = pool.object.pointer("/spec/cidr")?.as_str()?;
                Some((pool.name.name.clone(), Cidr::parse_strict(cidr)?))
            })
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

    /// Lets addresses go whose holder may be released; returns those that nobody held.
    pub fn release_addresses(
        &self,
        addresses: &[IpAddr],
        may_go: impl Fn(&Attribute) -> bool,
    ) -> Result<Vec<IpAddr>, Error> {
        self.release_addresses_telling(addresses, may_go, &mut Vec::new())
    }

    /// The same, for a caller who has to say what was done when it fails half way.
    pub(super) fn release_addresses_telling(
        &self,
        addresses: &[IpAddr],
        may_go: impl Fn(&Attribute) -> bool,
        done: &mut Vec<String>,
    ) -> Result<Vec<IpAddr>, Error> {
        let mut by_block: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        let mut free = Vec::new();
        for address in addresses {
            match self.block_of(*address)? {
                Some(entry) => by_block.entry(entry.key).or_default().push(*address),
                None => free.push(*address),
            }
        }
        let settings = self.ipam_settings()?;
        for (key, addresses) in by_block {
            let kept = self.release_in_block(&key, &addresses, &may_go, &settings)?;
            let gone = addresses.iter().filter(|address| !kept.contains(address));
            done.extend(gone.map(|address| format!("{address} was released")));
            free.extend(kept);
        }
        Ok(free)
    }

    fn release_in_block(
        &self,
        key: &str,
        addresses: &[IpAddr],
        may_go: &impl Fn(&Attribute) -> bool,
        settings: &IpamConfig,
    ) -> Result<Vec<IpAddr>, Error> {
        loop {
            let Some(entry) = self.store.get(key)?.0 else { return Ok(addresses.to_vec()) };
            let mut block = read_block(&entry).map_err(Error::Unreadable)?;
            let mut free = Vec::new();
            let mut going = Vec::new();
            for address in addresses {
                match holder_of(&block, *address) {
                    None => free.push(*address),
                    Some(holder) if may_go(holder) => going.push(*address),
                    Some(_) => {}
                }
            }
            if going.is_empty() {
                return Ok(free);
            }
            let lost = release(&mut block, &going, settings::cooldown(settings));
            let mut txn = Txn::default();
            txn.compares.push(Compare::ModRevision(entry.key.clone(), entry.mod_revision));
            let is_unused = is_empty(&block) && block.affinity.is_none();
            txn.ops.push(match is_unused {
                true => delete(entry.key),
                false => put(entry.key, &block.encode()),
            });
            for (id, count) in lost {
                self.lower_handle(id, block.cidr, count, &mut txn)?;
            }
            if let Committed::Applied { .. } = self.store.commit(txn)? {
                return Ok(free);
            }
        }
    }

    /// Adds to the transaction that a handle has fewer addresses in a block.
    fn lower_handle(&self, id: String, cidr: Cidr, count: i64, txn: &mut Txn) -> Result<(), Error> {
        // Addresses may be held without a handle, and then there is no path.
        let key = Key::IpamHandle { id };
        let Ok(path) = key.path() else { return Ok(()) };
        let Some(entry) = self.store.get(&path)?.0 else { return Ok(()) };
        // A handle that cannot be read is left for `ipam check`; the address goes all the same.
        let Ok(mut handle) = read(&key, &entry, Handle::decode) else { return Ok(()) };
        let cidr = cidr.masked().to_string();
        match handle.blocks.get(&cidr).map_or(0, |held| held.saturating_sub(count)) {
            ..=0 => handle.blocks.remove(&cidr),
            left => handle.blocks.insert(cidr, left),
        };
        txn.compares.push(Compare::ModRevision(path.clone(), entry.mod_revision));
        txn.ops.push(match handle.blocks.is_empty() {
            true => delete(path),
            false => put(path, &handle.encode()),
        });
        Ok(())
    }

    /// Takes blocks away from their owners. Blocks in use stay, without an owner.
    pub(super) fn release_affinities(
        &self,
        is_meant: impl Fn(&BlockAffinityKey) -> bool,
        done: &mut Vec<String>,
    ) -> Result<(), Error> {
        for owner_type in [AffinityType::Host, AffinityType::Virtual] {
            let claims = ListOptions::BlockAffinity { owner_type, owner: None, family: None };
            for KeyValue { key, .. } in self.store.list(&claims.root())?.entries {
                let Some(Key::BlockAffinity(claim)) = claims.read(&key) else { continue };
                if !is_meant(&claim) {
                    continue;
                }
                while !self.release_affinity(&key, &claim)? {}
                done.push(format!("block {} was taken from {}", claim.cidr, claim.owner));
            }
        }
        Ok(())
    }

    /// False when somebody else wrote at the same time.
    fn release_affinity(&self, key: &str, claim: &BlockAffinityKey) -> Result<bool, Error> {
        let Some(entry) = self.store.get(key)?.0 else { return Ok(true) };
        let mut txn = Txn {
            compares: vec![Compare::ModRevision(entry.key.clone(), entry.mod_revision)],
            ops: vec![delete(entry.key)],
        };
        let path = Key::Block { cidr: claim.cidr }.path().expect("every block has a path");
        match self.store.get(&path)?.0 {
            None => txn.compares.push(Compare::Absent(path)),
            Some(entry) => {
                txn.compares.push(Compare::ModRevision(path.clone(), entry.mod_revision));
                // A block that cannot be read is not touched; the claim on it goes.
                if let Ok(mut block) = read_block(&entry) {
                    let owner = Some((claim.owner_type.clone(), claim.owner.as_str()));
                    let is_theirs = block.affinity.is_none() || block.owner() == owner;
                    if is_theirs && is_empty(&block) {
                        txn.ops.push(delete(path));
                    } else if is_theirs && block.affinity.is_some() {
                        clear_affinity(&mut block);
                        txn.ops.push(put(path, &block.encode()));
                    }
                }
            }
        }
        Ok(matches!(self.store.commit(txn)?, Committed::Applied { .. }))
    }

    /// Takes all blocks from a host and removes what is left of it among the addresses.
    pub(super) fn forget_host(&self, host: &str, done: &mut Vec<String>) -> Result<(), Error> {
        let is_its = |claim: &BlockAffinityKey| {
            claim.owner_type == AffinityType::Host && claim.owner == host
        };
        self.release_affinities(is_its, done)?;
        let Ok(key) = (Key::IpamHost { host: host.to_owned() }).path() else { return Ok(()) };
        if self.store.get(&key)?.0.is_some() {
            self.store.commit(Txn { compares: Vec::new(), ops: vec![delete(key)] })?;
        }
        Ok(())
    }
}

fn put(key: String, value: &Value) -> Op {
    Op::Put { key, value: text::json::to_string(value).into_bytes() }
}

fn delete(key: String) -> Op {
    Op::Delete { key }
}
