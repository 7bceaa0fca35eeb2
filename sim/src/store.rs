//! A made-up datastore: keys, revisions and transactions as etcd has them, in memory.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;

use api::keys::ipam::Block;
use ipam::{Condition, Entry, Plan, Read, View};

/// Where blocks lie.
const BLOCKS: &str = "/calico/ipam/v2/assignment/";

/// What happened to a key.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) revision: i64,
    pub(crate) key: String,
    pub(crate) value: Option<Vec<u8>>,
}

/// An address that changed hands.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub(crate) address: IpAddr,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
}

/// All keys, and what happened to them.
#[derive(Debug)]
pub(crate) struct Store {
    entries: BTreeMap<String, (Vec<u8>, i64)>,
    pub(crate) revision: i64,
    log: Vec<Event>,
    /// Events up to this revision are forgotten.
    compacted: i64,
    /// Blocks as they are read, and who holds which address by them.
    blocks: BTreeMap<String, Block>,
    pub(crate) holders: BTreeMap<IpAddr, String>,
    /// What changed hands since the laws last looked.
    pub(crate) moved: Vec<Moved>,
    /// Requests that are still under way, and the step at which they arrive.
    delayed: Vec<(usize, Plan)>,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            revision: 1,
            log: Vec::new(),
            compacted: 1,
            blocks: BTreeMap::new(),
            holders: BTreeMap::new(),
            moved: Vec::new(),
            delayed: Vec::new(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Entry {
        self.entries.get(key).cloned()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn under(&self, prefix: &str) -> impl Iterator<Item = (&String, &(Vec<u8>, i64))> {
        let from = (Bound::Included(prefix.to_owned()), Bound::Unbounded);
        self.entries.range::<String, _>(from).take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// All blocks that can be read.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.values()
    }

    /// Reads into a view.
    pub(crate) fn read(&self, view: &mut View, read: &Read) {
        match read {
            Read::Key(key) => view.observe(key, self.get(key), self.revision),
            Read::Prefix(prefix) => {
                let found = self.under(prefix);
                let found = found.map(|(key, (value, at))| (key.clone(), value.clone(), *at));
                view.observe_prefix(prefix, found.collect::<Vec<_>>(), self.revision);
            }
        }
    }

    /// Whether a plan may be applied.
    pub(crate) fn allows(&self, plan: &Plan) -> bool {
        plan.conditions.iter().all(|condition| match condition {
            Condition::Absent(key) => !self.entries.contains_key(key),
            Condition::At(key, revision) => {
                self.entries.get(key).is_some_and(|(_, at)| at == revision)
            }
            Condition::NothingNewer { prefix, revision } => {
                self.under(prefix).all(|(_, (_, at))| at <= revision)
            }
        })
    }

    /// What is under the keys of a plan's conditions.
    pub(crate) fn current(&self, plan: &Plan) -> Vec<Entry> {
        let current = plan.conditions.iter().map(|condition| match condition {
            Condition::Absent(key) | Condition::At(key, _) => self.get(key),
            Condition::NothingNewer { .. } => None,
        });
        current.collect()
    }

    /// Applies the changes of a plan, whatever its conditions.
    pub(crate) fn apply(&mut self, plan: &Plan) -> i64 {
        self.revision += 1;
        for change in &plan.changes {
            if change.key.starts_with(BLOCKS) {
                self.account(&change.key, change.value.as_deref());
            }
            match &change.value {
                Some(value) => {
                    self.entries.insert(change.key.clone(), (value.clone(), self.revision));
                }
                None => drop(self.entries.remove(&change.key)),
            }
            self.log.push(Event {
                revision: self.revision,
                key: change.key.clone(),
                value: change.value.clone(),
            });
        }
        self.revision
    }

    /// Takes note of who holds what by a block that is written.
    fn account(&mut self, key: &str, value: Option<&[u8]>) {
        let parsed = value.and_then(|value| text::json::parse(value).ok());
        let block = parsed.and_then(|value| Block::decode(&value).ok());
        let held = |block: &Block| -> BTreeMap<IpAddr, String> {
            let ordinals = 0..block.allocations.len();
            let held = ordinals.filter_map(|ordinal| {
                let holder = block.attribute(ordinal).filter(|it| it.released_at.is_none())?;
                Some((block.address(ordinal)?, holder.handle.clone()?))
            });
            held.collect()
        };
        let before = self.blocks.get(key).map(held).unwrap_or_default();
        let after = block.as_ref().map(held).unwrap_or_default();
        for (address, from) in &before {
            if !after.contains_key(address) {
                self.holders.remove(address);
                let (address, from) = (*address, Some(from.clone()));
                self.moved.push(Moved { address, from, to: None });
            }
        }
        for (address, to) in after {
            let from = before.get(&address).cloned();
            if from.as_ref() != Some(&to) {
                self.holders.insert(address, to.clone());
                self.moved.push(Moved { address, from, to: Some(to) });
            }
        }
        match block {
            Some(block) => drop(self.blocks.insert(key.to_owned(), block)),
            None => drop(self.blocks.remove(key)),
        }
    }

    /// A request is on its way, and arrives later.
    pub(crate) fn delay(&mut self, plan: &Plan, until: usize) {
        self.delayed.push((until, plan.clone()));
    }

    /// Requests arrive that were under way; what they changed.
    pub(crate) fn arrive(&mut self, step: usize) -> Vec<Plan> {
        if self.delayed.is_empty() {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.delayed);
        let (due, later) = all.into_iter().partition(|(until, _)| *until <= step);
        self.delayed = later;
        let mut applied = Vec::new();
        for (_, plan) in due {
            if self.allows(&plan) {
                self.apply(&plan);
                applied.push(plan);
            }
        }
        applied
    }

    /// Somebody writes or removes a key without asking.
    pub(crate) fn put(&mut self, key: &str, value: Option<Vec<u8>>) {
        let change = ipam::Change { key: key.to_owned(), value };
        self.apply(&Plan { changes: vec![change], ..Plan::default() });
    }

    /// What happened after a revision; none if that is forgotten.
    pub(crate) fn since(&self, revision: i64) -> Option<&[Event]> {
        if revision < self.compacted {
            return None;
        }
        let from = self.log.partition_point(|event| event.revision <= revision);
        Some(&self.log[from..])
    }

    /// Forgets what happened until now.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
        self.log.clear();
    }
}
