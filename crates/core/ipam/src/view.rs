//! What was read of a datastore, for the planner to decide on.
//!
//! A view may be old: everything in it is a hint. What a plan rests on becomes a condition of its
//! transaction, so an old view costs another attempt and never a wrong result.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use crate::record::Parsed;

/// One stored value.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) value: Vec<u8>,
    /// The revision that last wrote it; 0 for what a plan would write.
    pub(crate) revision: i64,
    parsed: OnceLock<Parsed>,
}

impl Record {
    pub(crate) fn new(value: Vec<u8>, revision: i64) -> Self {
        Self { value, revision, parsed: OnceLock::new() }
    }

    pub(crate) fn parsed(&self, key: &str) -> &Parsed {
        self.parsed.get_or_init(|| Parsed::read(key, &self.value))
    }
}

/// What is known of a key.
#[derive(Clone, Debug)]
struct Known {
    /// What it holds; none if it is not there.
    record: Option<Arc<Record>>,
    /// The revision of the store at which that was so.
    revision: i64,
}

/// Something to read from the store before planning can go on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Read {
    /// One key.
    Key(String),
    /// Every key that starts with this.
    Prefix(String),
}

/// What was read of a datastore.
#[derive(Clone, Debug, Default)]
pub struct View {
    keys: BTreeMap<String, Known>,
    prefixes: BTreeMap<String, i64>,
}

impl View {
    /// Whether nothing was read yet.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.prefixes.is_empty()
    }

    /// Notes what a key holds (its bytes, and the revision that last wrote it), or that it is not
    /// there, as of a revision of the store. Older news than what is known changes nothing.
    pub fn observe(&mut self, key: &str, entry: Option<(Vec<u8>, i64)>, revision: i64) {
        let known = self.keys.get(key);
        if known.is_some_and(|known| known.revision > revision) {
            return;
        }
        let same = known.and_then(|known| known.record.clone()).filter(|record| {
            entry.as_ref().is_some_and(|(_, written)| *written == record.revision)
        });
        let record =
            same.or_else(|| entry.map(|(value, written)| Arc::new(Record::new(value, written))));
        self.keys.insert(key.to_owned(), Known { record, revision });
    }

    /// Notes every key under a prefix, as of a revision of the store.
    pub fn observe_prefix(
        &mut self,
        prefix: &str,
        entries: impl IntoIterator<Item = (String, Vec<u8>, i64)>,
        revision: i64,
    ) {
        let mut gone: Vec<String> = self.under(prefix).map(|(key, _)| key.clone()).collect();
        for (key, value, written) in entries {
            self.observe(&key, Some((value, written)), revision);
            if let Ok(index) = gone.binary_search(&key) {
                gone.remove(index);
            }
        }
        for key in gone {
            self.observe(&key, None, revision);
        }
        self.complete(prefix, revision);
    }

    /// Notes that every key under a prefix was observed, as of a revision.
    pub fn complete(&mut self, prefix: &str, revision: i64) {
        let known = self.prefixes.entry(prefix.to_owned()).or_insert(revision);
        *known = revision.max(*known);
    }

    /// Notes that a watch has delivered everything until a revision: prefixes that were known as a
    /// whole still are. What was never read, or was forgotten since, stays unknown.
    pub fn advance(&mut self, prefix: &str, revision: i64) {
        let below = self.prefixes.iter_mut().filter(|(known, _)| known.starts_with(prefix));
        for (_, known) in below {
            *known = revision.max(*known);
        }
    }

    /// Takes over what another view knows better.
    pub fn merge(&mut self, other: View) {
        for (prefix, revision) in other.prefixes {
            // What the other would have seen and does not know is not there.
            let gone: Vec<String> = self
                .under(&prefix)
                .filter(|(key, _)| !other.keys.contains_key(*key))
                .map(|(key, _)| key.clone())
                .collect();
            for key in gone {
                self.observe(&key, None, revision);
            }
            self.complete(&prefix, revision);
        }
        for (key, known) in other.keys {
            if self.keys.get(&key).is_none_or(|mine| mine.revision <= known.revision) {
                self.keys.insert(key, known);
            }
        }
    }

    /// Forgets what was read, so that it is read again.
    pub fn forget(&mut self, read: &Read) {
        match read {
            Read::Key(key) => {
                self.keys.remove(key);
                self.prefixes.retain(|prefix, _| !key.starts_with(prefix.as_str()));
            }
            Read::Prefix(prefix) => {
                self.prefixes.retain(|known, _| !prefix.starts_with(known.as_str()));
            }
        }
    }

    fn under(&self, prefix: &str) -> impl Iterator<Item = (&String, &Known)> {
        let from = (Bound::Included(prefix.to_owned()), Bound::Unbounded);
        self.keys.range(from).take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// What a key holds; the outer none if nobody looked.
    pub(crate) fn record(&self, key: &str) -> Option<Option<&Arc<Record>>> {
        match self.keys.get(key) {
            Some(known) => Some(known.record.as_ref()),
            None => self.revision_of(key).map(|_| None),
        }
    }

    /// The revision at which the keys under a prefix were read as a whole.
    pub(crate) fn revision_of(&self, prefix: &str) -> Option<i64> {
        let covering = self.prefixes.iter().filter(|(known, _)| prefix.starts_with(known.as_str()));
        covering.map(|(_, revision)| *revision).max()
    }

    /// The keys under a prefix; none if they were not read as a whole.
    pub(crate) fn scan(
        &self,
        prefix: &str,
    ) -> Option<impl Iterator<Item = (&String, &Arc<Record>)>> {
        self.revision_of(prefix)?;
        Some(self.under(prefix).filter_map(|(key, known)| Some((key, known.record.as_ref()?))))
    }

    /// Takes over what a plan wrote, at the revision it got.
    pub fn absorb(&mut self, plan: &crate::Plan, revision: i64) {
        for change in &plan.changes {
            let entry = change.value.clone().map(|value| (value, revision));
            self.observe(&change.key, entry, revision);
        }
        for condition in &plan.conditions {
            // Nothing was newer but what the plan itself wrote.
            if let crate::Condition::NothingNewer { prefix, .. } = condition {
                self.complete(prefix, revision);
            }
        }
    }
}
