//! Transactions on the file: conditions, changes, log and its trimming.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, ffi, params};

use super::{GET, read_entry, upper_bound};
use crate::{Committed, Compare, Error, KeyValue, Op, Txn};

/// How much of the log is kept. What a watcher misses by it costs the watcher a new listing.
pub(super) struct Retention {
    /// Revisions that are kept unless the log is too long in bytes.
    pub(super) revisions_min: i64,
    /// Beyond `revisions_min`, a revision is kept for this long.
    pub(super) age_s: i64,
    /// Revisions beyond this number are not kept, however young.
    pub(super) revisions_max: i64,
    /// Bytes of keys and values in the log.
    pub(super) bytes_max: i64,
}

pub(super) const RETENTION: Retention = Retention {
    revisions_min: 10_000,
    age_s: 600,
    revisions_max: 100_000,
    bytes_max: 64 * 1024 * 1024,
};

/// The log is looked at after every so many revisions, and then loses at most `TRIM_MAX`: more than
/// came in, so that it cannot grow, but little, so that no single write is slow.
const TRIM_EVERY: i64 = 8;
const TRIM_MAX: usize = 32;

const NEWER: &str = "SELECT 1 FROM kv WHERE key >= ?1 AND key < ?2 AND mod_revision > ?3 LIMIT 1";

/// The counters of the store.
pub(super) struct Meta {
    /// The newest revision.
    pub(super) revision: i64,
    /// The newest revision that the log has lost.
    pub(super) compacted: i64,
    log_bytes: i64,
}

pub(super) fn read_meta(sql: &Connection) -> rusqlite::Result<Meta> {
    sql.prepare_cached("SELECT revision, compacted, log_bytes FROM meta")?.query_row([], |row| {
        Ok(Meta { revision: row.get(0)?, compacted: row.get(1)?, log_bytes: row.get(2)? })
    })
}

fn write_meta(sql: &Connection, meta: &Meta) -> rusqlite::Result<()> {
    sql.prepare_cached("UPDATE meta SET revision = ?1, compacted = ?2, log_bytes = ?3")?
        .execute(params![meta.revision, meta.compacted, meta.log_bytes])?;
    Ok(())
}

/// Applies a transaction within `sql`; says also whether there is anything to commit.
pub(super) fn apply(
    sql: &Connection,
    txn: &Txn,
    retention: &Retention,
) -> rusqlite::Result<(Committed, bool)> {
    let mut meta = read_meta(sql)?;
    let mut current = Vec::with_capacity(txn.compares.len());
    let mut all_hold = true;
    for compare in &txn.compares {
        let entry = compare.key().map_or(Ok(None), |key| get(sql, key))?;
        all_hold = all_hold && holds(sql, compare, entry.as_ref())?;
        current.push(entry);
    }
    if !all_hold {
        return Ok((Committed::Conflict { revision: meta.revision, current }, false));
    }
    let revision = meta.revision.checked_add(1).ok_or_else(no_next_revision)?;
    let mut change = Change { sql, revision, n_changes: 0, bytes: 0 };
    for op in &txn.ops {
        match op {
            Op::Put { key, value } => change.put(key, value)?,
            Op::Delete { key } => change.delete(key)?,
        }
    }
    if change.n_changes == 0 {
        return Ok((Committed::Applied { revision: meta.revision }, false));
    }
    meta.revision = change.revision;
    meta.log_bytes = meta.log_bytes.saturating_add(change.bytes);
    if meta.revision % TRIM_EVERY == 0 {
        trim(sql, &mut meta, retention)?;
    }
    write_meta(sql, &meta)?;
    Ok((Committed::Applied { revision: meta.revision }, true))
}

fn get(sql: &Connection, key: &str) -> rusqlite::Result<Option<KeyValue>> {
    sql.prepare_cached(GET)?.query_row([key], |row| read_entry(row).optional())
}

/// Only a damaged file, or one that somebody else wrote, is at the last revision there is.
fn no_next_revision() -> rusqlite::Error {
    let reason = format!("its revision is {}, and nothing comes after it", i64::MAX);
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(reason))
}

fn holds(sql: &Connection, compare: &Compare, entry: Option<&KeyValue>) -> rusqlite::Result<bool> {
    Ok(match compare {
        Compare::Absent(_) => entry.is_none(),
        Compare::Exists(_) => entry.is_some(),
        // etcd sees an absent key at revision 0, so that 0 means absent here too.
        Compare::ModRevision(_, revision) => {
            entry.map_or(0, |entry| entry.mod_revision) == *revision
        }
        Compare::NothingNewer { prefix, revision } => !sql
            .prepare_cached(NEWER)?
            .exists(params![prefix, upper_bound(prefix), (*revision).max(0)])?,
    })
}

/// A transaction in the making.
struct Change<'a> {
    sql: &'a Connection,
    revision: i64,
    n_changes: i64,
    bytes: i64,
}

impl Change<'_> {
    fn put(&mut self, key: &str, value: &[u8]) -> rusqlite::Result<()> {
        let (create_revision, version): (i64, i64) = self
            .sql
            .prepare_cached(
                "INSERT INTO kv (key, value, create_revision, mod_revision, version) \
                 VALUES (?1, ?2, ?3, ?3, 1) ON CONFLICT (key) DO UPDATE SET \
                 value = ?2, mod_revision = ?3, version = version + 1 \
                 RETURNING create_revision, version",
            )?
            .query_row(params![key, value, self.revision], |row| Ok((row.get(0)?, row.get(1)?)))?;
        self.log(key, Some(value), create_revision, version)
    }

    fn delete(&mut self, key: &str) -> rusqlite::Result<()> {
        match self.sql.prepare_cached("DELETE FROM kv WHERE key = ?1")?.execute([key])? {
            0 => Ok(()),
            _ => self.log(key, None, 0, 0),
        }
    }

    fn log(
        &mut self,
        key: &str,
        value: Option<&[u8]>,
        create_revision: i64,
        version: i64,
    ) -> rusqlite::Result<()> {
        self.sql
            .prepare_cached(
                "INSERT INTO log (revision, seq, at, key, value, create_revision, version) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                self.revision,
                self.n_changes,
                now_s(),
                key,
                value,
                create_revision,
                version
            ])?;
        self.n_changes += 1;
        let bytes = key.len() + value.map_or(0, <[u8]>::len);
        self.bytes += i64::try_from(bytes).unwrap_or(i64::MAX);
        Ok(())
    }
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn trim(sql: &Connection, meta: &mut Meta, retention: &Retention) -> rusqlite::Result<()> {
    let now = now_s();
    for _ in 0..TRIM_MAX {
        let (oldest, at, bytes): (i64, i64, i64) = sql
            .prepare_cached(
                "SELECT revision, max(at), sum(octet_length(key) + \
                 coalesce(octet_length(value), 0)) FROM log \
                 WHERE revision = (SELECT min(revision) FROM log)",
            )?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let n_kept = meta.revision.saturating_sub(oldest);
        // A clock that was set back must not keep the log for ever.
        let is_old = at > now || now.saturating_sub(at) >= retention.age_s;
        let is_surplus = n_kept >= retention.revisions_max
            || n_kept >= retention.revisions_min && is_old
            || n_kept > 0 && meta.log_bytes > retention.bytes_max;
        if !is_surplus {
            break;
        }
        sql.prepare_cached("DELETE FROM log WHERE revision = ?1")?.execute([oldest])?;
        meta.compacted = oldest;
        meta.log_bytes = meta.log_bytes.saturating_sub(bytes);
    }
    Ok(())
}

/// Drops the log up to and including `revision`. The outer error is SQLite's.
pub(super) fn compact(sql: &Connection, revision: i64) -> rusqlite::Result<Result<(), Error>> {
    let mut meta = read_meta(sql)?;
    if revision <= meta.compacted {
        return Ok(Err(Error::Compacted { revision }));
    }
    if revision > meta.revision {
        let now = meta.revision;
        let reason = format!("revision {revision} is in the future: the store is at {now}");
        return Ok(Err(Error::Rejected(reason)));
    }
    sql.execute("DELETE FROM log WHERE revision <= ?1", [revision])?;
    meta.compacted = revision;
    meta.log_bytes = sql.query_row(
        "SELECT coalesce(sum(octet_length(key) + coalesce(octet_length(value), 0)), 0) FROM log",
        [],
        |row| row.get(0),
    )?;
    write_meta(sql, &meta)?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::file::SCHEMA;

    fn write(sql: &Connection, retention: &Retention, value: &[u8]) {
        let op = Op::Put { key: "/a".into(), value: value.to_vec() };
        apply(sql, &Txn { compares: vec![], ops: vec![op] }, retention).unwrap();
    }

    fn log_of(n_writes: usize, retention: &Retention) -> (i64, Meta) {
        let sql = Connection::open_in_memory().unwrap();
        sql.execute_batch(SCHEMA).unwrap();
        for _ in 0..n_writes {
            write(&sql, retention, &[0; 1000]);
        }
        let n_log = sql.query_row("SELECT count(*) FROM log", [], |row| row.get(0)).unwrap();
        (n_log, read_meta(&sql).unwrap())
    }

    const ROOMY: Retention =
        Retention { revisions_min: 10, age_s: 600, revisions_max: 1000, bytes_max: 1 << 40 };

    #[test]
    fn the_log_keeps_its_minimum_and_what_is_young() {
        assert_eq!(log_of(200, &ROOMY).0, 200);
        let (n_log, meta) = log_of(200, &Retention { age_s: 0, ..ROOMY });
        assert!((10..=10 + TRIM_EVERY).contains(&n_log), "{n_log}");
        assert_eq!(meta.compacted, meta.revision - n_log);
        assert_eq!(meta.log_bytes, n_log * 1002);
    }

    #[test]
    fn the_log_is_bounded_in_revisions_and_in_bytes() {
        let (n_log, _) = log_of(200, &Retention { revisions_max: 50, ..ROOMY });
        assert!((50..=50 + TRIM_EVERY).contains(&n_log), "{n_log}");
        let (n_log, meta) = log_of(200, &Retention { bytes_max: 20_040, ..ROOMY });
        assert!((20..=20 + TRIM_EVERY).contains(&n_log), "{n_log}");
        assert_eq!(meta.compacted, meta.revision - n_log);
        let (n_log, _) = log_of(200, &Retention { bytes_max: 1, ..ROOMY });
        assert!((1..=1 + TRIM_EVERY).contains(&n_log), "{n_log}");
    }
}
