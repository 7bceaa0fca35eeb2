//! One datastore, two homes: an embedded SQLite file and a real etcd v3.
//!
//! Both hold the same keys and bytes under the same rules: every transaction that changes something
//! gets the next revision of the whole store (the first one gets 2), all keys of a transaction
//! share it, and a transaction applies in full or not at all. [`Store::watch`] delivers a snapshot
//! and then every change in order, and repairs itself after anything that can be repaired.
//!
//! Calls block, with a deadline. What keys and values mean is known to [`resources`] and [`ipam`].

mod error;
pub mod etcd;
mod foreign;
pub mod inventory;
pub mod ipam;
mod key_range;
pub mod realised;
pub mod resources;
pub mod settings;
pub mod sqlite;
mod watch;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

pub use error::{Error, Outage};
pub use watch::{Event, Watch};

/// A datastore. Clones are cheap and share connections.
#[derive(Clone, Debug)]
pub enum Store {
    /// The embedded store: one file, shared by the processes of this host.
    Sqlite(sqlite::Store),
    /// An etcd v3 cluster.
    Etcd(etcd::Store),
}

/// One key as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The stored bytes.
    pub value: Vec<u8>,
    /// Revision of the transaction that created the key.
    pub create_revision: i64,
    /// Revision of the transaction that last wrote the key.
    pub mod_revision: i64,
    /// Number of writes since the key was created: 1 for a fresh key.
    pub version: i64,
    /// The etcd lease that will remove the key, or 0. The embedded store has no leases.
    pub lease: i64,
}

/// All keys under a prefix as of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision of the store that the entries show.
    pub revision: i64,
    /// The entries in key order.
    pub entries: Vec<KeyValue>,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key does not exist.
    Absent(String),
    /// The key exists, at whatever revision.
    Exists(String),
    /// The key exists and was last written by exactly this revision.
    ModRevision(String, i64),
    /// No key under the prefix was created or changed after the revision. Removals do not count.
    NothingNewer {
        /// What the keys start with.
        prefix: String,
        /// The revision at which the keys were read.
        revision: i64,
    },
}

/// A change made by a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates or overwrites a key.
    Put {
        /// The key to write.
        key: String,
        /// The bytes to store.
        value: Vec<u8>,
    },
    /// Removes a key; removing an absent key is no change.
    Delete {
        /// The key to remove.
        key: String,
    },
}

/// Changes that apply together, if all conditions hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Conditions; all must hold.
    pub compares: Vec<Compare>,
    /// Changes, applied in this order; a key may be named only once. A stock etcd takes 128 of
    /// them, and 1.5 MiB together.
    pub ops: Vec<Op>,
}

/// What became of a transaction that the store answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// All conditions held and all changes are stored.
    Applied {
        /// The revision of the store afterwards; the `mod_revision` of every key put.
        revision: i64,
    },
    /// A condition did not hold; nothing changed.
    Conflict {
        /// The revision of the store at which the conditions were checked.
        revision: i64,
        /// The state of each compared key, in the order of [`Txn::compares`]; none for a prefix.
        current: Vec<Option<KeyValue>>,
    },
}

impl Compare {
    /// The key that the condition is about; none if it is about a prefix.
    pub fn key(&self) -> Option<&str> {
        match self {
            Compare::Absent(key) | Compare::Exists(key) | Compare::ModRevision(key, _) => Some(key),
            Compare::NothingNewer { .. } => None,
        }
    }
}

impl Op {
    /// The key that the change touches.
    pub fn key(&self) -> &str {
        match self {
            Op::Put { key, .. } | Op::Delete { key } => key,
        }
    }
}

impl Txn {
    /// etcd refuses these, so the embedded store must as well; and no round trip is needed for it.
    fn check(&self) -> Result<(), Error> {
        let keys =
            self.compares.iter().filter_map(Compare::key).chain(self.ops.iter().map(Op::key));
        if keys.into_iter().any(str::is_empty) {
            return Err(Error::Rejected("a transaction names an empty key".into()));
        }
        let mut changed = BTreeSet::new();
        match self.ops.iter().find(|op| !changed.insert(op.key())) {
            Some(op) => {
                let key = op.key();
                Err(Error::Rejected(format!("a transaction changes the key {key} twice")))
            }
            None => Ok(()),
        }
    }
}

impl Store {
    /// Reads one key, and the revision of the store at which it was read.
    pub fn get(&self, key: &str) -> Result<(Option<KeyValue>, i64), Error> {
        if key.is_empty() {
            return Err(Error::Rejected("the key to read is empty".into()));
        }
        match self {
            Store::Sqlite(store) => store.get(key),
            Store::Etcd(store) => store.get(key),
        }
    }

    /// Reads every key that starts with `prefix`, at one revision.
    pub fn list(&self, prefix: &str) -> Result<Snapshot, Error> {
        loop {
            let mut entries = Vec::new();
            let listed = self.list_each(prefix, |entry| {
                entries.push(entry);
                ControlFlow::Continue(())
            });
            match listed {
                Ok(revision) => return Ok(Snapshot { revision, entries }),
                // The revision being read was compacted between two pages: read a newer one.
                Err(Error::Compacted { .. }) => continue,
                Err(error) => return Err(error),
            }
        }
    }

    /// Hands over every key that starts with `prefix` in key order, at one revision, which is
    /// returned. Memory does not grow with the number of keys. [`Error::Compacted`] means that the
    /// reading took so long that etcd dropped the revision: what was handed over is incomplete.
    pub fn list_each(
        &self,
        prefix: &str,
        mut each: impl FnMut(KeyValue) -> ControlFlow<()>,
    ) -> Result<i64, Error> {
        match self {
            Store::Sqlite(store) => store.list_each(prefix, &mut each),
            Store::Etcd(store) => store.list_each(prefix, &mut each),
        }
    }

    /// Applies a transaction if its conditions hold.
    ///
    /// [`Error::Uncertain`] means that the answer was lost and the transaction may have been
    /// applied.
    pub fn commit(&self, txn: Txn) -> Result<Committed, Error> {
        txn.check()?;
        match self {
            Store::Sqlite(store) => store.commit(&txn),
            Store::Etcd(store) => store.commit(txn),
        }
    }

    /// Watches every key that starts with `prefix`: first the present state, then each change.
    pub fn watch(&self, prefix: &str) -> Watch {
        match self {
            Store::Sqlite(store) => store.watch(prefix),
            Store::Etcd(store) => store.watch(prefix),
        }
    }

    /// Goes on watching where an earlier watch or list ended: the caller knows the state under
    /// `prefix` as of `revision`, given as each key with its `mod_revision`. Delivers each later
    /// change, or, where the store has already compacted them, the differences.
    pub fn watch_from(
        &self,
        prefix: &str,
        revision: i64,
        known: impl IntoIterator<Item = (String, i64)>,
    ) -> Watch {
        let known = watch::Known::from_state(prefix, known);
        match self {
            Store::Sqlite(store) => store.watch_from(known, revision),
            Store::Etcd(store) => store.watch_from(known, revision),
        }
    }

    /// Whether the store can be reached anew: by a connection that is made now, within the time.
    /// One that stands already proves nothing of the way there, which a packet filter may have
    /// closed since. Any answer will do. A file of this host is always there.
    pub fn reach(&self, within: Duration) -> Result<(), Error> {
        match self {
            Store::Sqlite(_) => Ok(()),
            Store::Etcd(store) => store.reach(within),
        }
    }

    /// Forgets the history before `revision`: a watch cannot resume before it afterwards.
    pub fn compact(&self, revision: i64) -> Result<(), Error> {
        match self {
            Store::Sqlite(store) => store.compact(revision),
            Store::Etcd(store) => store.compact(revision),
        }
    }

    /// The keys that listings left out because they are no text, with the bytes that are no
    /// printable ASCII spelled out; the first hundred.
    pub fn foreign_keys(&self) -> Vec<String> {
        match self {
            Store::Sqlite(store) => store.foreign_keys(),
            Store::Etcd(store) => store.foreign_keys(),
        }
    }

    /// Names the store for people: the file, or the etcd endpoints.
    pub fn describe(&self) -> String {
        match self {
            Store::Sqlite(store) => store.path().display().to_string(),
            Store::Etcd(store) => store.describe(),
        }
    }
}
