//! What a request sees: the store, with the writes of the same request that are still to come.

use std::collections::BTreeMap;

use api::Kind;
use api::keys::ListOptions;
use model::prepare::{Need, Neighbours, needs};
use net::Cidr;
use serde_json::Value;

use super::name::list_prefix;
use super::read::Found;
use super::{Error, Name};
use crate::{Compare, KeyValue, Store};

/// From so many objects of a kind on, all of the kind are read at once.
const LIST_FROM: usize = 8;

/// What lies under a key, as the request sees it.
#[derive(Clone, Debug)]
struct Seen {
    entry: Option<KeyValue>,
    /// What the store held when it was asked; the condition of the write.
    stored_revision: Option<i64>,
}

/// The store and the pending writes of one request.
pub(super) struct View<'a> {
    store: &'a Store,
    seen: BTreeMap<String, Seen>,
    /// The kinds of which all were read, and at which revision.
    listed: BTreeMap<Kind, i64>,
    /// The blocks, and at which revision they were read.
    blocks: Option<(Vec<Cidr>, i64)>,
}

impl<'a> View<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self { store, seen: BTreeMap::new(), listed: BTreeMap::new(), blocks: None }
    }

    /// Reads ahead what a request about these objects will ask for.
    pub(super) fn expect(&mut self, names: &[Name]) -> Result<(), Error> {
        let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
        names.iter().for_each(|name| *counts.entry(name.kind).or_default() += 1);
        for (kind, count) in counts {
            if count >= LIST_FROM {
                self.list(kind)?;
            }
        }
        Ok(())
    }

    /// Reads all of a kind; says as of which revision.
    fn list(&mut self, kind: Kind) -> Result<i64, Error> {
        if let Some(revision) = self.listed.get(&kind) {
            return Ok(*revision);
        }
        let snapshot = self.store.list(&list_prefix(kind, None))?;
        for entry in snapshot.entries {
            let key = entry.key.clone();
            let stored_revision = Some(entry.mod_revision);
            self.seen.entry(key).or_insert(Seen { entry: Some(entry), stored_revision });
        }
        self.listed.insert(kind, snapshot.revision);
        Ok(snapshot.revision)
    }

    fn seen(&mut self, name: &Name) -> Result<&Seen, Error> {
        let key = name.key();
        if !self.seen.contains_key(&key) {
            let entry = match self.listed.contains_key(&name.kind) {
                true => None,
                false => self.store.get(&key)?.0,
            };
            let stored_revision = entry.as_ref().map(|entry| entry.mod_revision);
            self.seen.insert(key.clone(), Seen { entry, stored_revision });
        }
        Ok(&self.seen[&key])
    }

    /// What lies under the name.
    pub(super) fn entry(&mut self, name: &Name) -> Result<Option<KeyValue>, Error> {
        Ok(self.seen(name)?.entry.clone())
    }

    /// The condition under which what was seen is still true.
    pub(super) fn condition(&mut self, name: &Name) -> Result<Compare, Error> {
        Ok(match self.seen(name)?.stored_revision {
            Some(revision) => Compare::ModRevision(name.key(), revision),
            None => Compare::Absent(name.key()),
        })
    }

    /// Notes a write that is still to come. Its revision is not known yet.
    pub(super) fn pend(&mut self, name: &Name, value: Vec<u8>) -> Result<(), Error> {
        self.seen(name)?;
        let key = name.key();
        if let Some(seen) = self.seen.get_mut(&key) {
            let (create_revision, mod_revision) = (0, 0);
            let entry =
                KeyValue { key, value, create_revision, mod_revision, version: 0, lease: 0 };
            seen.entry = Some(entry);
        }
        Ok(())
    }

    /// Notes a removal that is still to come.
    pub(super) fn pend_removal(&mut self, name: &Name) -> Result<(), Error> {
        self.seen(name)?;
        if let Some(seen) = self.seen.get_mut(&name.key()) {
            seen.entry = None;
        }
        Ok(())
    }

    fn all(&mut self, kind: Kind) -> Result<Vec<Found>, Error> {
        self.list(kind)?;
        let prefix = list_prefix(kind, None);
        let entries =
            self.seen.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let present = entries.filter_map(|(_, seen)| seen.entry.as_ref());
        Ok(present.filter_map(|entry| Found::read(kind, entry).ok()).collect())
    }

    /// What other objects have to say about this one. Unusable ones have nothing to say.
    /// The conditions are those under which that stays true.
    pub(super) fn neighbours(
        &mut self,
        kind: Kind,
        object: &Value,
        is_new: bool,
    ) -> Result<(Neighbours, Vec<Compare>), Error> {
        let mut neighbours = Neighbours::default();
        let mut conditions = Vec::new();
        for need in needs(kind, object) {
            match need {
                Need::Tier(tier) if is_new => {
                    let tier = Name::cluster(Kind::Tier, tier);
                    let seen = self.seen(&tier)?;
                    neighbours.tier_exists = seen.entry.is_some();
                    if seen.stored_revision.is_some() {
                        conditions.push(Compare::Exists(tier.key()));
                    }
                }
                Need::Tier(_) => neighbours.tier_exists = true,
                Need::IpPools => {
                    let revision = self.list(Kind::IpPool)?;
                    let prefix = list_prefix(Kind::IpPool, None);
                    conditions.push(Compare::NothingNewer { prefix, revision });
                    neighbours.ip_pools =
                        self.all(Kind::IpPool)?.into_iter().map(|pool| pool.value).collect();
                }
                Need::Blocks if is_new => {
                    let (blocks, revision) = self.blocks()?;
                    neighbours.blocks = blocks;
                    let prefix = ListOptions::Block { family: None }.root();
                    conditions.push(Compare::NothingNewer { prefix, revision });
                }
                Need::Blocks => {}
                Need::BgpFilters => {
                    neighbours.bgp_filters =
                        self.all(Kind::BgpFilter)?.into_iter().map(|it| it.name.name).collect();
                    conditions.extend(self.filters_stay(object)?);
                }
            }
        }
        Ok((neighbours, conditions))
    }

    /// The tier of a policy, if it is there only because the same request makes it.
    pub(super) fn pending_tier(
        &mut self,
        kind: Kind,
        object: &Value,
    ) -> Result<Option<Name>, Error> {
        for need in needs(kind, object) {
            if let Need::Tier(tier) = need {
                let tier = Name::cluster(Kind::Tier, tier);
                let seen = self.seen(&tier)?;
                let is_pending = seen.entry.is_some() && seen.stored_revision.is_none();
                return Ok(is_pending.then_some(tier));
            }
        }
        Ok(None)
    }

    /// The condition that the filters which a peer names are not deleted.
    fn filters_stay(&mut self, peer: &Value) -> Result<Vec<Compare>, Error> {
        let filters = peer.pointer("/spec/filters").and_then(Value::as_array);
        let mut conditions = Vec::new();
        for filter in filters.into_iter().flatten().filter_map(Value::as_str) {
            let filter = Name::cluster(Kind::BgpFilter, filter);
            if self.seen(&filter)?.stored_revision.is_some() {
                conditions.push(Compare::Exists(filter.key()));
            }
        }
        Ok(conditions)
    }

    fn blocks(&mut self) -> Result<(Vec<Cidr>, i64), Error> {
        if let Some(read) = &self.blocks {
            return Ok(read.clone());
        }
        let mut blocks = Vec::new();
        let revision =
            self.store.list_each(&ListOptions::Block { family: None }.root(), |entry| {
                blocks.extend(super::ipam::block_at(&entry.key));
                std::ops::ControlFlow::Continue(())
            })?;
        Ok(self.blocks.insert((blocks, revision)).clone())
    }
}
