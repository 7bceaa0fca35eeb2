//! The consumer's side of a watch, and the bookkeeping that both stores share.
//!
//! [`Known`] remembers which revision of which key was delivered. With it a new listing, taken
//! after a lost connection or a compaction, turns into exactly the events that the consumer misses,
//! and an event that arrives a second time is recognised.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use crate::{KeyValue, etcd, sqlite};

/// Something that a watch has to say.
///
/// There is no previous value in a change: after a compaction nobody has it any more, and a field
/// that is only sometimes there invites wrong code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The key has this value now.
    Put(KeyValue),
    /// The key is gone.
    Delete {
        /// The key.
        key: String,
        /// The revision that removed it; where that was compacted, the revision of the new listing.
        mod_revision: i64,
    },
    /// Everything up to this revision was delivered. Comes after the snapshot, again when a
    /// [`Event::Disconnected`] is over, and after differences that stand for compacted changes.
    InSync(i64),
    /// The store does not answer; what was delivered may be out of date until the next
    /// [`Event::InSync`]. The watch goes on trying by itself.
    Disconnected {
        /// The endpoint or file concerned.
        endpoint: String,
        /// What is wrong.
        error: String,
        /// When the trouble began.
        since: Instant,
    },
}

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watch(pub(crate) Source);

#[derive(Debug)]
pub(crate) enum Source {
    Sqlite(Box<sqlite::Watch>),
    Etcd(etcd::Watch),
}

impl Watch {
    /// Waits for the next event. None if there is none within `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Option<Event> {
        match &mut self.0 {
            Source::Sqlite(watch) => watch.next(timeout),
            Source::Etcd(watch) => watch.next(timeout),
        }
    }
}

/// An entry as it came from the store: the key is bytes, because another client of etcd may have
/// written a key that is not text. Such keys are counted but not delivered.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) create_revision: i64,
    pub(crate) mod_revision: i64,
    pub(crate) version: i64,
    pub(crate) lease: i64,
}

impl Entry {
    /// None if the key is not text.
    pub(crate) fn into_key_value(self) -> Option<KeyValue> {
        Some(KeyValue {
            key: String::from_utf8(self.key).ok()?,
            value: self.value,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            lease: self.lease,
        })
    }
}

/// The keys delivered so far, each with the revision delivered.
///
/// Keys are kept without the prefix that they share: with 100,000 keys that is several MiB.
#[derive(Debug)]
pub(crate) struct Known {
    prefix: String,
    revisions: BTreeMap<Box<[u8]>, i64>,
}

impl Known {
    pub(crate) fn new(prefix: &str) -> Known {
        Known { prefix: prefix.to_string(), revisions: BTreeMap::new() }
    }

    pub(crate) fn from_state(
        prefix: &str,
        state: impl IntoIterator<Item = (String, i64)>,
    ) -> Known {
        let suffixes = state.into_iter().filter_map(|(key, revision)| {
            Some((key.strip_prefix(prefix)?.as_bytes().into(), revision))
        });
        Known { prefix: prefix.to_string(), revisions: suffixes.collect() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn len(&self) -> usize {
        self.revisions.len()
    }

    /// Forgets the revisions but not the keys: the store is another one than before, so equal
    /// revisions do not mean equal values.
    pub(crate) fn distrust(&mut self) {
        self.revisions.values_mut().for_each(|revision| *revision = 0);
    }

    /// Takes a change. None if it was delivered before, or if its key is not text.
    pub(crate) fn put(&mut self, entry: Entry) -> Option<Event> {
        let suffix = entry.key.get(self.prefix.len()..)?;
        match self.revisions.get_mut(suffix) {
            Some(known) if *known >= entry.mod_revision => return None,
            Some(known) => *known = entry.mod_revision,
            None => {
                self.revisions.insert(suffix.into(), entry.mod_revision);
            }
        }
        entry.into_key_value().map(Event::Put)
    }

    /// Takes a removal. None if it was delivered before, or if its key is not text.
    pub(crate) fn delete(&mut self, key: &[u8], mod_revision: i64) -> Option<Event> {
        let suffix = key.get(self.prefix.len()..)?;
        match self.revisions.get(suffix) {
            Some(known) if *known < mod_revision => {}
            _ => return None,
        }
        self.revisions.remove(suffix);
        let key = String::from_utf8(key.to_vec()).ok()?;
        Some(Event::Delete { key, mod_revision })
    }

    /// Takes one page of a listing in key order and returns what it changes. The page holds all
    /// keys after `after` (None: from the first on) up to its own last key, or all that remain if
    /// `is_last`; a known key that it lacks is gone. `revision` is that of the listing.
    pub(crate) fn merge_page(&mut self, page: Page) -> Vec<Event> {
        let Page { after, entries, is_last, revision } = page;
        let mut events = Vec::new();
        let mut from: Box<[u8]> = after.as_deref().map(|key| self.suffix(key)).unwrap_or_default();
        let mut is_from_excluded = after.is_some();
        for entry in entries {
            let suffix = self.suffix(&entry.key);
            self.delete_between((&from, is_from_excluded), Some(&suffix), revision, &mut events);
            let known = self.revisions.insert(suffix.clone(), entry.mod_revision);
            if known != Some(entry.mod_revision) {
                events.extend(entry.into_key_value().map(Event::Put));
            }
            (from, is_from_excluded) = (suffix, true);
        }
        if is_last {
            self.delete_between((&from, is_from_excluded), None, revision, &mut events);
        }
        events
    }

    fn suffix(&self, key: &[u8]) -> Box<[u8]> {
        key.get(self.prefix.len()..).unwrap_or_default().into()
    }

    fn delete_between(
        &mut self,
        (from, is_from_excluded): (&[u8], bool),
        to: Option<&[u8]>,
        revision: i64,
        events: &mut Vec<Event>,
    ) {
        let lower = if is_from_excluded { Bound::Excluded(from) } else { Bound::Included(from) };
        let upper = match to {
            // An empty range must not be asked for: the map panics on one.
            Some(to) if to <= from => return,
            Some(to) => Bound::Excluded(to),
            None => Bound::Unbounded,
        };
        let gone: Vec<Box<[u8]>> =
            self.revisions.range::<[u8], _>((lower, upper)).map(|(key, _)| key.clone()).collect();
        for suffix in gone {
            self.revisions.remove(&suffix);
            let key = [self.prefix.as_bytes(), &suffix].concat();
            if let Ok(key) = String::from_utf8(key) {
                events.push(Event::Delete { key, mod_revision: revision });
            }
        }
    }
}

/// One page of a listing.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) after: Option<Vec<u8>>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) is_last: bool,
    pub(crate) revision: i64,
}

#[cfg(test)]
mod tests;
