//! The embedded store: an etcd in a file.
//!
//! One SQLite file in WAL mode holds the keys, the log of changes and the revision. Any number of
//! processes share it: writers queue up by SQLite's lock, readers never wait. After each commit the
//! writer rings a *doorbell*, a file beside the store that watchers observe by inotify. The WAL
//! itself is no bell: it is written before the commit can be seen.
//!
//! A killed process or a full disk leaves no trace of a half-done transaction. A power failure can
//! take the last few commits with it (`synchronous=NORMAL`), but never the file.

mod commit;
mod file;
mod watch;

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

pub use self::file::Waiting;
pub(crate) use self::watch::Watch;
use crate::foreign::ForeignKeys;
use crate::key_range::end_of_prefix;
use crate::watch::Known;
use crate::{Committed, Error, KeyValue, Txn};
use file::{Bell, Identity, Session};

/// Idle connections kept for the next call; more are opened when more threads ask at once.
const IDLE_SESSIONS_MAX: usize = 4;

/// The columns of an entry, in the order of [`read_entry`].
const GET: &str = "SELECT meta.revision, kv.key, kv.value, kv.create_revision, kv.mod_revision, \
                   kv.version FROM meta LEFT JOIN kv ON kv.key = ?1";
const LIST: &str = "SELECT 0, key, value, create_revision, mod_revision, version FROM kv \
                    WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3";

/// The revision of a store that nobody has written to.
const FIRST_REVISION: i64 = 1;

/// A store in a file. Clones share its connections.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    path: PathBuf,
    /// Whether the file has been seen. Before that it may be missing, and is empty then.
    is_there: AtomicBool,
    tell: file::Tell,
    foreign: ForeignKeys,
    idle: Mutex<Vec<Session>>,
    bell: OnceLock<Bell>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite::Store({})", self.0.path.display())
    }
}

impl Store {
    /// Opens the store at `path`, and creates it, and the directories above it, if it is missing.
    pub fn open(path: impl Into<PathBuf>) -> Result<Store, Error> {
        let store = Store::shared(path.into(), None);
        store.create()?;
        Ok(store)
    }

    /// Opens the store at `path`. A missing one reads as an empty one, and is created by the first
    /// write. `tell` is called every second while a call waits for other processes.
    pub fn open_lazily(
        path: impl Into<PathBuf>,
        tell: Option<fn(&Waiting)>,
    ) -> Result<Store, Error> {
        let store = Store::shared(path.into(), tell);
        if !store.is_absent() {
            store.create()?;
        }
        Ok(store)
    }

    fn shared(path: PathBuf, tell: file::Tell) -> Store {
        let (is_there, idle) = (AtomicBool::new(false), Mutex::default());
        let (foreign, bell) = (ForeignKeys::default(), OnceLock::new());
        Store(Arc::new(Shared { path, is_there, tell, foreign, idle, bell }))
    }

    /// Creates the store, and the directories above it, if it is missing.
    pub fn create(&self) -> Result<(), Error> {
        if self.0.is_there.load(Ordering::Acquire) {
            return Ok(());
        }
        let session = file::open_or_create(&self.0.path, self.0.tell)?;
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        self.0.is_there.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether there is no store yet.
    pub fn is_absent(&self) -> bool {
        !self.0.is_there.load(Ordering::Acquire) && file::is_absent(&self.0.path)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    pub(crate) fn get(&self, key: &str) -> Result<(Option<KeyValue>, i64), Error> {
        if self.is_absent() {
            return Ok((None, FIRST_REVISION));
        }
        self.with(|connection| {
            let mut statement = connection.prepare_cached(GET)?;
            statement.query_row([key], |row| Ok((read_entry(row).optional()?, row.get(0)?)))
        })
    }

    pub(crate) fn list_each(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(KeyValue) -> ControlFlow<()>,
    ) -> Result<i64, Error> {
        if self.is_absent() {
            return Ok(FIRST_REVISION);
        }
        self.with(|connection| {
            let txn = connection.transaction()?;
            let revision = commit::read_meta(&txn)?.revision;
            let mut statement = txn.prepare_cached(LIST)?;
            let mut rows = statement.query(params![prefix, upper_bound(prefix), -1])?;
            while let Some(row) = rows.next()? {
                if matches!(row.get_ref(1), Ok(ValueRef::Text(key)) if self.0.foreign.has(key)) {
                    continue;
                }
                if each(read_entry(row)?).is_break() {
                    break;
                }
            }
            Ok(revision)
        })
    }

    pub(crate) fn foreign_keys(&self) -> Vec<String> {
        self.0.foreign.all()
    }

    pub(crate) fn commit(&self, txn: &Txn) -> Result<Committed, Error> {
        self.create()?;
        let (committed, is_changed) = self.with(|connection| {
            let sql = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let outcome = commit::apply(&sql, txn, &commit::RETENTION)?;
            if outcome.1 {
                sql.commit()?;
            }
            Ok(outcome)
        })?;
        if is_changed {
            self.ring();
        }
        Ok(committed)
    }

    pub(crate) fn compact(&self, revision: i64) -> Result<(), Error> {
        self.with(|connection| {
            let sql = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let outcome = commit::compact(&sql, revision)?;
            sql.commit()?;
            Ok(outcome)
        })?
    }

    pub(crate) fn watch(&self, prefix: &str) -> crate::Watch {
        Watch::start(self.clone(), Known::new(prefix), None)
    }

    pub(crate) fn watch_from(&self, known: Known, revision: i64) -> crate::Watch {
        Watch::start(self.clone(), known, Some(revision))
    }

    /// Tells the watchers. A bell that does not ring is no error: they also look once a second.
    fn ring(&self) {
        if self.0.bell.get().is_none()
            && let Ok(bell) = Bell::open(&self.0.path)
        {
            let _ = self.0.bell.set(bell);
        }
        if let Some(bell) = self.0.bell.get() {
            bell.ring();
        }
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.with_identity(|connection, _| work(connection))
    }

    /// Runs `work` on a connection to the file that now has the store's name: if it was replaced,
    /// say by a backup, connections to the old one lead nowhere.
    fn with_identity<T>(
        &self,
        work: impl FnOnce(&mut Connection, Identity) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let identity = Identity::of(&self.0.path)?;
        let mut session = {
            let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|session| session.identity == identity);
            idle.pop()
        }
        .map_or_else(|| file::open(&self.0.path, self.0.tell), Ok)?;
        let result = work(&mut session.connection, session.identity)
            .map_err(|error| file::describe(&self.0.path, &error));
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_SESSIONS_MAX {
            idle.push(session);
        }
        result
    }
}

/// What every key with this prefix is less than. To SQLite a blob is greater than any text, so the
/// empty one stands for "no bound" and leaves the query a plain range of the index.
fn upper_bound(prefix: &str) -> Value {
    end_of_prefix(prefix).map_or_else(|| Value::Blob(Vec::new()), Value::Text)
}

/// Whether the key is no text, as no key of ours or Calico's: nobody can name it, and the others
/// must not suffer from it.
fn has_foreign_key(row: &Row<'_>) -> bool {
    matches!(row.get_ref(1), Ok(ValueRef::Text(key)) if std::str::from_utf8(key).is_err())
}

/// Reads an entry; `QueryReturnedNoRows` if the key is NULL, as it is for an absent key in [`GET`].
fn read_entry(row: &Row<'_>) -> rusqlite::Result<KeyValue> {
    let key: Option<String> = row.get(1)?;
    Ok(KeyValue {
        key: key.ok_or(rusqlite::Error::QueryReturnedNoRows)?,
        value: row.get(2)?,
        create_revision: row.get(3)?,
        mod_revision: row.get(4)?,
        version: row.get(5)?,
        lease: 0,
    })
}
