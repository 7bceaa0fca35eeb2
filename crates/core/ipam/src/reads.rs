//! Typed reads: blocks, claims, handles, settings, pools, reservations, nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::Kind;
use api::keys::ipam::{Affinity, Block, Handle, IpamConfig};
use net::Cidr;
use serde_json::Value;

use crate::block::{collect, count_write};
use crate::plan::{Stop, family_of};
use crate::record::{self, Parsed, block_key};
use crate::span::Reserved;
use crate::view::Record;
use crate::{Cooldown, Error, Owner, Planned, Planner, Pool};

fn unreadable(key: &str, record: &Record, reason: &str) -> Stop {
    let value = String::from_utf8_lossy(&record.value).into_owned();
    Error::Unreadable { key: key.to_owned(), value, reason: reason.to_owned() }.into()
}

impl Planner<'_> {
    fn parsed<T>(&self, key: &str, pick: fn(&Parsed) -> Option<&T>) -> Result<Option<T>, Stop>
    where
        T: Clone,
    {
        let Some(record) = self.record(key)? else { return Ok(None) };
        match (record.parsed(key), pick(record.parsed(key))) {
            (_, Some(value)) => Ok(Some(value.clone())),
            (Parsed::Unreadable(why), None) => Err(unreadable(key, &record, why)),
            (_, None) => Err(unreadable(key, &record, "the value is of another kind")),
        }
    }

    pub(crate) fn block(&self, cidr: Cidr) -> Result<Option<Block>, Stop> {
        self.parsed(&block_key(cidr), |it| match it {
            Parsed::Block(block) => Some(block),
            _ => None,
        })
    }

    /// The block with what rested long enough freed.
    pub(crate) fn fresh_block(
        &self,
        cidr: Cidr,
        settings: &IpamConfig,
    ) -> Result<Option<Block>, Stop> {
        let mut block = self.block(cidr)?;
        if let Some(block) = &mut block {
            collect(block, self.cooldown(settings));
        }
        Ok(block)
    }

    pub(crate) fn cooldown(&self, settings: &IpamConfig) -> Cooldown {
        Cooldown { now: self.now(), seconds: settings.cooldown_seconds }
    }

    /// Writes a block, and counts the write.
    pub(crate) fn write_block(&mut self, cidr: Cidr, block: &mut Block) -> Planned<()> {
        count_write(block);
        self.put_json(&block_key(cidr), &block.encode())
    }

    pub(crate) fn put_json(&mut self, key: &str, value: &Value) -> Planned<()> {
        self.put(key, text::json::to_string(value).into_bytes())
    }

    pub(crate) fn claim(&self, owner: &Owner, cidr: Cidr) -> Result<Option<Affinity>, Stop> {
        let Some(key) = record::affinity_key(owner, cidr) else { return Ok(None) };
        self.parsed(&key, |it| match it {
            Parsed::Affinity(affinity) => Some(affinity),
            _ => None,
        })
    }

    pub(crate) fn handle(&self, handle: &str) -> Result<Option<Handle>, Stop> {
        let key = record::handle_key(handle).ok_or(Error::UnnamedHandle)?;
        self.parsed(&key, |it| match it {
            Parsed::Handle(handle) => Some(handle),
            _ => None,
        })
    }

    /// The settings, on which the plan rests from now on.
    pub(crate) fn settings(&mut self) -> Result<IpamConfig, Stop> {
        let key = record::settings_key();
        let stored = self.parsed(&key, |it| match it {
            Parsed::Settings(settings) => Some(settings),
            _ => None,
        })?;
        self.depend(&key)?;
        Ok(stored.unwrap_or_default())
    }

    /// The labels of a node, on which the plan rests from now on.
    pub(crate) fn node_labels(
        &mut self,
        node: &str,
    ) -> Result<Option<BTreeMap<String, String>>, Stop> {
        let Some(key) = record::node_key(node) else { return Ok(None) };
        let labels = self.parsed(&key, |it| match it {
            Parsed::Labels(labels) => Some(labels),
            _ => None,
        })?;
        self.depend(&key)?;
        Ok(labels)
    }

    /// All pools in the order of their names, and why the unusable ones are.
    pub(crate) fn all_pools(&self) -> Planned<Vec<Result<Pool, (String, String)>>> {
        let mut pools = Vec::new();
        for (key, record) in self.scan(&record::kind_prefix(Kind::IpPool))? {
            match record.parsed(&key) {
                Parsed::Pool(pool) => pools.push(Ok(pool.clone())),
                Parsed::Unreadable(why) => {
                    let name = key.rsplit('/').next().unwrap_or_default();
                    pools.push(Err((name.to_owned(), why.clone())));
                }
                _ => {}
            }
        }
        Ok(pools)
    }

    /// The pools of a family that addresses may be taken from.
    pub(crate) fn enabled_pools(&self, family: u8) -> Planned<Vec<Pool>> {
        let pools = self.all_pools()?.into_iter().flatten();
        let is_usable =
            |pool: &Pool| pool.closed.is_none() && family_of(pool.cidr.address()) == family;
        Ok(pools.filter(is_usable).collect())
    }

    /// The enabled pool that an address lies in.
    pub(crate) fn pool_of(&self, address: IpAddr) -> Planned<Option<Pool>> {
        let pools = self.enabled_pools(family_of(address))?;
        Ok(pools.into_iter().find(|pool| pool.cidr.contains(address)))
    }

    pub(crate) fn reservations(&self) -> Planned<Reserved> {
        let mut all = Vec::new();
        for (key, record) in self.scan(&record::kind_prefix(Kind::IpReservation))? {
            if let Parsed::Reserved(cidrs) = record.parsed(&key) {
                all.extend(cidrs);
            }
        }
        Ok(Reserved(all))
    }

    /// The blocks of a family in key order: where each lies, and what it holds if that can be read.
    pub(crate) fn blocks(&self, family: u8) -> Planned<Vec<(Cidr, Option<Block>)>> {
        let mut blocks = Vec::new();
        for (key, record) in self.scan(&record::blocks_prefix(family))? {
            let Some(cidr) = record::block_at(&key) else { continue };
            match record.parsed(&key) {
                Parsed::Block(block) => blocks.push((cidr, Some(block.clone()))),
                _ => blocks.push((cidr, None)),
            }
        }
        Ok(blocks)
    }

    /// The blocks that an owner claims, in key order.
    pub(crate) fn claims(&self, owner: &Owner, family: u8) -> Planned<Vec<Cidr>> {
        let entries = self.scan(&record::affinities_prefix(owner, Some(family)))?;
        let readable = entries
            .iter()
            .filter(|(key, record)| matches!(record.parsed(key), Parsed::Affinity(_)));
        Ok(readable.filter_map(|(key, _)| Some(record::affinity_at(key)?.cidr)).collect())
    }
}

/// The block of a pool that an address lies in.
pub(crate) fn block_of(address: IpAddr, pool: &Pool) -> Option<Cidr> {
    Cidr::new(address, pool.block_size).map(Cidr::masked)
}
