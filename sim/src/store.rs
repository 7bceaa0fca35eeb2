//! A made-up datastore: keys, revisions and transactions as etcd has them, in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use ipam::{Condition, Entry, Plan, Read, View};

/// What happened to a key.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) revision: i64,
    pub(crate) key: String,
    pub(crate) value: Option<Vec<u8>>,
}

/// All keys, and what happened to them.
#[derive(Debug)]
pub(crate) struct Store {
    entries: BTreeMap<String, (Vec<u8>, i64)>,
    pub(crate) revision: i64,
    log: Vec<Event>,
    /// Events up to this revision are forgotten.
    pub(crate) compacted: i64,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { entries: BTreeMap::new(), revision: 1, log: Vec::new(), compacted: 1 }
    }

    pub(crate) fn get(&self, key: &str) -> Entry {
        self.entries.get(key).cloned()
    }

    pub(crate) fn under(&self, prefix: &str) -> impl Iterator<Item = (&String, &(Vec<u8>, i64))> {
        let from = (Bound::Included(prefix.to_owned()), Bound::Unbounded);
        self.entries.range::<String, _>(from).take_while(move |(key, _)| key.starts_with(prefix))
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
