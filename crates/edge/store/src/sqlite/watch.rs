//! Watching the file.
//!
//! There is no thread: the consumer's call reads what is new, or waits for the bell. The snapshot
//! is read in pages. Before each page the log is read for the part that was listed already, within
//! the same read transaction, so what was delivered is always the store of one revision, up to some
//! key.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use inotify::{Inotify, WatchMask};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::file::{Bell, Identity, bell_path};
use super::{LIST, Store, commit, has_foreign_key, read_entry, upper_bound};
use crate::watch::{Entry, Event, Known, Page, Source};
use crate::{Error, KeyValue};

/// A writer can die between its commit and the bell.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const PAGE_LEN: i64 = 256;

const LOG: &str = "SELECT seq, key, value, create_revision, revision, version FROM log \
                   WHERE (revision, seq) > (?1, ?2) AND key >= ?3 AND key < ?4 \
                   ORDER BY revision, seq LIMIT ?5";

/// How far the listing has come.
#[derive(Debug, PartialEq, Eq)]
enum Listed {
    /// Nothing yet.
    Nothing,
    /// All keys up to this one.
    UpTo(String),
    /// Everything.
    All,
}

/// A position in the log: after this change of this revision.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    revision: i64,
    /// `i64::MAX` if the revision was read to its end.
    seq: i64,
}

/// A watch on the embedded store.
pub(crate) struct Watch {
    store: Store,
    known: Known,
    end: Value,
    identity: Option<Identity>,
    listed: Listed,
    cursor: Option<Cursor>,
    is_in_sync: bool,
    ready: VecDeque<Event>,
    bell: Option<Inotify>,
    outage: Option<(Instant, String)>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite::Watch({}, {:?})", self.known.prefix(), self.listed)
    }
}

impl Watch {
    pub(super) fn start(store: Store, known: Known, revision: Option<i64>) -> crate::Watch {
        let mut watch = Watch {
            end: upper_bound(known.prefix()),
            listed: if revision.is_some() { Listed::All } else { Listed::Nothing },
            cursor: revision.map(|revision| Cursor { revision, seq: i64::MAX }),
            store,
            known,
            identity: None,
            is_in_sync: false,
            ready: VecDeque::new(),
            bell: None,
            outage: None,
        };
        watch.listen();
        crate::Watch(Source::Sqlite(Box::new(watch)))
    }

    pub(crate) fn next(&mut self, timeout: Duration) -> Option<Event> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            // A bell that rings from here on is heard by the next wait.
            self.drain_bell();
            let is_caught_up = match self.read() {
                Ok(is_caught_up) => {
                    self.outage = None;
                    is_caught_up
                }
                Err(error) => {
                    self.report(&error);
                    true
                }
            };
            if is_caught_up && self.ready.is_empty() {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                self.wait(left.min(POLL_INTERVAL));
            }
        }
    }

    /// Reads the next portion. True if there is no more for now.
    fn read(&mut self) -> Result<bool, Error> {
        let store = self.store.clone();
        store.with_identity(|connection, identity| {
            let txn = connection.transaction()?;
            let meta = commit::read_meta(&txn)?;
            self.check_history(&meta, identity);
            if !self.read_log(&txn, meta.revision)? {
                return Ok(false);
            }
            if self.listed != Listed::All {
                self.read_page(&txn, meta.revision)?;
                return Ok(false);
            }
            if !self.is_in_sync {
                self.is_in_sync = true;
                self.ready.push_back(Event::InSync(meta.revision));
            }
            Ok(true)
        })
    }

    /// Starts a new listing if the log does not lead from what was delivered to the present.
    fn check_history(&mut self, meta: &commit::Meta, identity: Identity) {
        let is_replaced = self.identity.replace(identity).is_some_and(|known| known != identity);
        let is_rewound = self.cursor.is_some_and(|cursor| cursor.revision > meta.revision);
        if is_replaced || is_rewound {
            self.known.distrust();
            self.listen();
        }
        let is_connected = self.cursor.is_some_and(|cursor| match cursor.seq {
            i64::MAX => cursor.revision >= meta.compacted,
            _ => cursor.revision > meta.compacted,
        });
        if is_replaced || is_rewound || !is_connected {
            self.listed = Listed::Nothing;
            self.cursor = Some(Cursor { revision: meta.revision, seq: i64::MAX });
            self.is_in_sync = false;
        }
    }

    /// Reads changes of the keys listed so far. True if the log was read to its end.
    fn read_log(&mut self, txn: &Connection, revision: i64) -> rusqlite::Result<bool> {
        let end_of_log = Cursor { revision, seq: i64::MAX };
        let from = self.cursor.unwrap_or(end_of_log);
        if from.revision == revision && from.seq == i64::MAX {
            return Ok(true);
        }
        let mut statement = txn.prepare_cached(LOG)?;
        let prefix = self.known.prefix();
        let mut rows =
            statement.query(params![from.revision, from.seq, prefix, self.end, PAGE_LEN])?;
        let mut n_rows = 0;
        while let Some(row) = rows.next()? {
            n_rows += 1;
            let at = Cursor { revision: row.get(4)?, seq: row.get(0)? };
            self.cursor = Some(at);
            if has_foreign_key(row) {
                continue;
            }
            let key: String = row.get(1)?;
            let is_listed = match &self.listed {
                Listed::Nothing => false,
                Listed::UpTo(last) => key <= *last,
                Listed::All => true,
            };
            if !is_listed {
                continue;
            }
            let event = match row.get_ref(2)? {
                ValueRef::Null => self.known.delete(key.as_bytes(), at.revision),
                _ => self.known.put(entry(read_entry(row)?)),
            };
            self.ready.extend(event);
        }
        if n_rows == PAGE_LEN {
            return Ok(false);
        }
        self.cursor = Some(end_of_log);
        Ok(true)
    }

    fn read_page(&mut self, txn: &Connection, revision: i64) -> rusqlite::Result<()> {
        let after = match &self.listed {
            Listed::UpTo(key) => Some(key.clone()),
            _ => None,
        };
        // No string lies between a key and the same key followed by a NUL.
        let from = after
            .as_ref()
            .map_or_else(|| self.known.prefix().to_string(), |after| format!("{after}\0"));
        let mut statement = txn.prepare_cached(LIST)?;
        let mut rows = statement.query(params![from, self.end, -1])?;
        let mut entries = Vec::new();
        let mut n_entries = 0;
        while n_entries < PAGE_LEN
            && let Some(row) = rows.next()?
        {
            if !has_foreign_key(row) {
                entries.push(read_entry(row)?);
                n_entries += 1;
            }
        }
        let is_last = n_entries < PAGE_LEN;
        self.listed = match entries.last() {
            Some(last) if !is_last => Listed::UpTo(last.key.clone()),
            _ => Listed::All,
        };
        let page = Page {
            after: after.map(String::into_bytes),
            entries: entries.into_iter().map(entry).collect(),
            is_last,
            revision,
        };
        self.ready.extend(self.known.merge_page(page));
        Ok(())
    }

    fn report(&mut self, error: &Error) {
        let error = error.to_string();
        let since = self.outage.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        let is_new = self.outage.as_ref().is_none_or(|(_, known)| *known != error);
        if is_new {
            let endpoint = self.store.path().display().to_string();
            self.ready.push_back(Event::Disconnected { endpoint, error: error.clone(), since });
        }
        self.outage = Some((since, error));
        self.is_in_sync = false;
    }

    /// Without inotify (its limits are per user) the poll alone must do.
    fn listen(&mut self) {
        let path = self.store.path();
        let listening = Bell::open(path).ok().and_then(|_| {
            let inotify = Inotify::init().ok()?;
            inotify.watches().add(bell_path(path), WatchMask::MODIFY).ok()?;
            Some(inotify)
        });
        self.bell = listening;
    }

    fn wait(&self, timeout: Duration) {
        let Some(bell) = &self.bell else { return std::thread::sleep(timeout) };
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // An interrupted wait is a short one.
        let _ = poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&timeout));
    }

    fn drain_bell(&mut self) {
        let mut buffer = [0; 4096];
        let Some(bell) = &mut self.bell else { return };
        while bell.read_events(&mut buffer).is_ok_and(|events| events.count() > 0) {}
    }
}

fn entry(entry: KeyValue) -> Entry {
    Entry {
        key: entry.key.into_bytes(),
        value: entry.value,
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        version: entry.version,
        lease: entry.lease,
    }
}
