//! Everything about addresses that a store holds, and mending it.
//!
//! What is wrong and what would be right is known to [`::ipam`] alone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ::ipam::check::{Inventory, endpoints_prefix, prefixes};
use ::ipam::repair::{Change, RepairPlan, Unit};

use crate::{Committed, Compare, Error, Op, Store, Txn};

/// So many changes go into one transaction: a stock etcd takes 128, and 1.5 MiB together.
const CHANGES_AT_ONCE: usize = 100;
const BYTES_AT_ONCE: usize = 1 << 20;
/// How often the reading begins again because etcd dropped the revision that was being read.
const READINGS_MAX: u32 = 5;

/// Everything about addresses, and when the endpoints were read.
#[derive(Debug, Default)]
pub struct Taken {
    /// The records.
    pub inventory: Inventory,
    /// The revision at which the endpoints were read.
    pub endpoints_at: i64,
}

/// Reads everything about addresses. `each` is told how many records were read so far.
pub fn take(store: &Store, each: &mut dyn FnMut(usize)) -> Result<Taken, Error> {
    for _ in 1..READINGS_MAX {
        match take_once(store, each) {
            Err(Error::Compacted { .. }) => {}
            taken => return taken,
        }
    }
    take_once(store, each)
}

fn take_once(store: &Store, each: &mut dyn FnMut(usize)) -> Result<Taken, Error> {
    let mut taken = Taken::default();
    let mut count = 0;
    for prefix in prefixes() {
        let revision = store.list_each(&prefix, |entry| {
            taken.inventory.absorb(&entry.key, &entry.value, entry.mod_revision);
            count += 1;
            each(count);
            ControlFlow::Continue(())
        })?;
        if prefix == endpoints_prefix() {
            taken.endpoints_at = revision;
        }
    }
    Ok(taken)
}

/// What became of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// How many units were carried out.
    pub done: usize,
    /// How many were not, because somebody changed what they rest on.
    pub conflicts: usize,
}

/// Carries a plan out, some units at a time. `before` is handed the changes of each transaction
/// before it is made, and may stop it; `after` how many units are done, and the revisions that
/// the keys got.
pub fn mend(
    store: &Store,
    taken: &Taken,
    plan: &RepairPlan,
    before: &mut dyn FnMut(&[&Change]) -> Result<(), Error>,
    after: &mut dyn FnMut(usize, &[&Change], i64),
) -> Result<Mended, Error> {
    let mut mended = Mended::default();
    let mut written = BTreeMap::new();
    for batch in batches(&plan.units) {
        let changes: Vec<&Change> = batch.iter().flat_map(|unit| &unit.changes).collect();
        let txn = transaction(batch, taken, &written, store)?;
        before(&changes)?;
        match store.commit(txn)? {
            Committed::Applied { revision } => {
                mended.done += batch.len();
                for change in &changes {
                    let now = change.after.as_ref().map(|_| revision);
                    written.insert(change.key.clone(), now);
                }
                after(mended.done, &changes, revision);
            }
            Committed::Conflict { .. } => mended.conflicts += batch.len(),
        }
    }
    Ok(mended)
}

/// The units of a plan in runs that fit into one transaction.
fn batches(units: &[Unit]) -> Vec<&[Unit]> {
    let mut batches = Vec::new();
    let (mut start, mut count, mut bytes) = (0, 0, 0);
    for (index, unit) in units.iter().enumerate() {
        let n_changes = unit.changes.len();
        let n_bytes: usize = unit
            .changes
            .iter()
            .map(|it| it.after.as_ref().map_or(0, Vec::len) + it.key.len())
            .sum();
        let is_full = count + n_changes > CHANGES_AT_ONCE || bytes + n_bytes > BYTES_AT_ONCE;
        if is_full && index > start {
            batches.extend(units.get(start..index));
            (start, count, bytes) = (index, 0, 0);
        }
        count += n_changes;
        bytes += n_bytes;
    }
    batches.extend(units.get(start..).filter(|rest| !rest.is_empty()));
    batches
}

fn transaction(
    batch: &[Unit],
    taken: &Taken,
    written: &BTreeMap<String, Option<i64>>,
    store: &Store,
) -> Result<Txn, Error> {
    let mut txn = Txn::default();
    let mut named = std::collections::BTreeSet::new();
    for change in batch.iter().flat_map(|unit| &unit.changes) {
        named.insert(change.key.as_str());
        txn.compares.push(at(&change.key, change.revision));
        txn.ops.push(match &change.after {
            Some(value) => Op::Put { key: change.key.clone(), value: value.clone() },
            None => Op::Delete { key: change.key.clone() },
        });
    }
    for key in batch.iter().flat_map(|unit| &unit.rests_on) {
        if !named.insert(key) {
            continue;
        }
        let seen = match written.get(key) {
            Some(revision) => *revision,
            None => match taken.inventory.revision_of_block(key) {
                Some(revision) => Some(revision),
                None => store.get(key)?.0.map(|entry| entry.mod_revision),
            },
        };
        txn.compares.push(at(key, seen));
    }
    if batch.iter().any(|unit| unit.frees) {
        let (prefix, revision) = (endpoints_prefix(), taken.endpoints_at);
        txn.compares.push(Compare::NothingNewer { prefix, revision });
    }
    Ok(txn)
}

fn at(key: &str, revision: Option<i64>) -> Compare {
    match revision {
        Some(revision) => Compare::ModRevision(key.to_owned(), revision),
        None => Compare::Absent(key.to_owned()),
    }
}
