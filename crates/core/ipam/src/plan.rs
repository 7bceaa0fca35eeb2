//! Plans: what a transaction would change, and what it rests on.
//!
//! An operation is a function of a [`View`] and its arguments. Where it needs something that the
//! view lacks, it stops and names it ([`Pause::Read`]); the caller reads and runs it again from
//! the start. Its changes go into a draft that later reads of the same plan see, so that several
//! operations can be planned one after the other and become one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::view::Record;
use crate::{Error, Moment, Read, View};

/// Planning cannot go on with this view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pause {
    /// These must be read first.
    Read(Vec<Read>),
    /// The transaction is full. What is planned must be committed; running the operation again
    /// then does the rest. Only operations over many blocks ask for this.
    Commit,
}

/// The answer of an operation, or why it could not be planned yet.
pub type Planned<T> = Result<T, Pause>;

/// What ends an operation early.
#[derive(Debug)]
pub(crate) enum Stop {
    Pause(Pause),
    Failed(Error),
}

impl From<Pause> for Stop {
    fn from(pause: Pause) -> Self {
        Self::Pause(pause)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A key that a plan writes or removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// Its new bytes; none to remove it.
    pub value: Option<Vec<u8>>,
}

/// What must still be so when a plan is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key does not exist.
    Absent(String),
    /// The key was last written by this revision.
    At(String, i64),
    /// Nothing under the prefix was created or changed after the revision.
    NothingNewer {
        /// What the keys start with.
        prefix: String,
        /// The revision at which they were read.
        revision: i64,
    },
}

/// One transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes, in key order.
    pub changes: Vec<Change>,
    /// The conditions.
    pub conditions: Vec<Condition>,
    /// Whether an answer is one that an old view may have got wrong and that no condition covers:
    /// a refusal, fewer addresses than asked for, nothing to do. A view that was not read just now
    /// must then be read again.
    pub is_doubtful: bool,
}

/// How far planning came.
#[derive(Debug)]
pub enum Step<T> {
    /// These must be read first; then plan again.
    Read(Vec<Read>),
    /// Commit this, then plan again for the rest.
    Commit(Plan),
    /// The answer, and what must be committed for it to be true.
    Done(T, Plan),
}

/// Plans operations on a view.
pub fn plan<'v, T>(
    view: &'v View,
    now: Moment,
    operations: impl FnOnce(&mut Planner<'v>) -> Planned<T>,
) -> Step<T> {
    plan_around(BTreeSet::new(), view, now, operations)
}

/// Plans operations on a view. Where there is a choice, keys for which others contend are left to
/// them.
pub(crate) fn plan_around<'v, T>(
    contended: BTreeSet<String>,
    view: &'v View,
    now: Moment,
    operations: impl FnOnce(&mut Planner<'v>) -> Planned<T>,
) -> Step<T> {
    let mut planner = Planner { view, now, contended, draft: Draft::default() };
    match operations(&mut planner) {
        Ok(answer) => Step::Done(answer, planner.draft.finish()),
        Err(Pause::Read(reads)) => Step::Read(reads),
        Err(Pause::Commit) => Step::Commit(planner.draft.finish()),
    }
}

/// A plan in the making.
#[derive(Debug)]
pub struct Planner<'v> {
    view: &'v View,
    now: Moment,
    contended: BTreeSet<String>,
    draft: Draft,
}

#[derive(Clone, Debug, Default)]
struct Draft {
    changes: BTreeMap<String, Option<Arc<Record>>>,
    conditions: BTreeMap<String, Option<i64>>,
    prefixes: BTreeMap<String, i64>,
    is_doubtful: bool,
}

/// A point that a plan can go back to.
#[derive(Debug)]
pub struct Savepoint(Draft);

impl Draft {
    fn finish(self) -> Plan {
        let changes = self
            .changes
            .into_iter()
            .map(|(key, record)| Change { key, value: record.map(|record| record.value.clone()) });
        let keys = self.conditions.into_iter().map(|(key, revision)| match revision {
            Some(revision) => Condition::At(key, revision),
            None => Condition::Absent(key),
        });
        let prefixes = self.prefixes.into_iter();
        let prefixes =
            prefixes.map(|(prefix, revision)| Condition::NothingNewer { prefix, revision });
        let changes: Vec<Change> = changes.collect();
        Plan {
            is_doubtful: self.is_doubtful || changes.is_empty(),
            changes,
            conditions: keys.chain(prefixes).collect(),
        }
    }
}

/// Room for one more block, its claim and the handles in it.
const KEYS_MAX: usize = 90;
const BYTES_MAX: usize = 1 << 20;

impl Planner<'_> {
    /// Whether others contend for a key.
    pub(crate) fn is_contended(&self, key: &str) -> bool {
        self.contended.contains(key)
    }

    /// The present time.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// A point to go back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.draft.clone())
    }

    /// Drops what was drafted since.
    pub fn roll_back(&mut self, savepoint: Savepoint) {
        self.draft = Draft { is_doubtful: self.draft.is_doubtful, ..savepoint.0 };
    }

    /// Notes that an answer must not come from an old view.
    pub(crate) fn doubt(&mut self) {
        self.draft.is_doubtful = true;
    }

    /// Errors of operations are answers; what was drafted before them stays.
    pub(crate) fn settle<T>(&mut self, result: Result<T, Stop>) -> Planned<Result<T, Error>> {
        match result {
            Ok(answer) => Ok(Ok(answer)),
            Err(Stop::Pause(pause)) => Err(pause),
            Err(Stop::Failed(error)) => {
                self.doubt();
                Ok(Err(error))
            }
        }
    }

    /// The bytes under a key as the plan would leave them.
    pub fn get(&self, key: &str) -> Planned<Option<Vec<u8>>> {
        Ok(self.record(key)?.map(|record| record.value.clone()))
    }

    /// Drafts a write, on the condition that the key is still as it was read. Writing what is
    /// there already changes nothing.
    pub fn put(&mut self, key: &str, value: Vec<u8>) -> Planned<()> {
        self.depend(key)?;
        if self.record(key)?.is_none_or(|record| record.value != value) {
            self.draft.changes.insert(key.to_owned(), Some(Arc::new(Record::new(value, 0))));
        }
        Ok(())
    }

    /// Drafts a removal, on the condition that the key is still as it was read.
    pub fn delete(&mut self, key: &str) -> Planned<()> {
        self.depend(key)?;
        match self.view.record(key).flatten() {
            Some(_) => self.draft.changes.insert(key.to_owned(), None),
            None => self.draft.changes.remove(key),
        };
        Ok(())
    }

    /// Makes the plan rest on a key being as it was read.
    pub fn depend(&mut self, key: &str) -> Planned<()> {
        let Some(known) = self.view.record(key) else { return Err(unread(key)) };
        let revision = known.map(|record| record.revision);
        self.draft.conditions.insert(key.to_owned(), revision);
        Ok(())
    }

    /// Makes the plan rest on nothing new being under a prefix.
    pub fn depend_on_prefix(&mut self, prefix: &str) -> Planned<()> {
        let Some(revision) = self.view.revision_of(prefix) else {
            return Err(Pause::Read(vec![Read::Prefix(prefix.to_owned())]));
        };
        self.draft.prefixes.insert(prefix.to_owned(), revision);
        Ok(())
    }

    /// Names everything that the view lacks at once, so that it is read in one go.
    pub(crate) fn want(&self, reads: impl IntoIterator<Item = Read>) -> Planned<()> {
        let is_missing = |read: &Read| match read {
            Read::Key(key) => self.view.record(key).is_none(),
            Read::Prefix(prefix) => self.view.revision_of(prefix).is_none(),
        };
        let missing: Vec<Read> = reads.into_iter().filter(is_missing).collect();
        if missing.is_empty() { Ok(()) } else { Err(Pause::Read(missing)) }
    }

    pub(crate) fn record(&self, key: &str) -> Planned<Option<Arc<Record>>> {
        if let Some(drafted) = self.draft.changes.get(key) {
            return Ok(drafted.clone());
        }
        self.view.record(key).map(|record| record.cloned()).ok_or_else(|| unread(key))
    }

    /// The keys under a prefix as the plan would leave them, in key order.
    pub(crate) fn scan(&self, prefix: &str) -> Planned<Vec<(String, Arc<Record>)>> {
        let Some(known) = self.view.scan(prefix) else {
            return Err(Pause::Read(vec![Read::Prefix(prefix.to_owned())]));
        };
        let mut found: BTreeMap<String, Arc<Record>> =
            known.map(|(key, record)| (key.clone(), record.clone())).collect();
        for (key, drafted) in &self.draft.changes {
            if !key.starts_with(prefix) {
                continue;
            }
            match drafted {
                Some(record) => found.insert(key.clone(), record.clone()),
                None => found.remove(key),
            };
        }
        Ok(found.into_iter().collect())
    }

    /// Stops when the transaction has no room for another block.
    pub(crate) fn need_room(&self) -> Planned<()> {
        let bytes: usize =
            self.draft.changes.values().flatten().map(|record| record.value.len()).sum();
        let keys = self.draft.changes.len().max(self.draft.conditions.len());
        match keys > KEYS_MAX || bytes > BYTES_MAX {
            true => Err(Pause::Commit),
            false => Ok(()),
        }
    }
}

fn unread(key: &str) -> Pause {
    Pause::Read(vec![Read::Key(key.to_owned())])
}

/// 4 or 6.
pub(crate) fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}
