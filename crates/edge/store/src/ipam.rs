//! Address management on a store: does what a [`Pursuit`] asks for.
//!
//! A plan is one transaction. It rests on what it read, so two nodes cannot get one address, and a
//! crash leaves all of a change or nothing. The view may live long and be fed from a watch: with
//! everything known beforehand, an assignment costs one request.

use std::time::Duration;

use ::ipam::{
    Condition, Entry, Moment, Next, Outcome, Plan, Planned, Planner, Pursuit, Read, Release,
    Released, View,
};

pub use ::ipam::Done;

use crate::{Committed, Compare, KeyValue, Op, Snapshot, Store, Txn};

/// So many addresses are let go in one transaction: each may touch a block, a claim and a handle.
pub(crate) const RELEASES_AT_ONCE: usize = 30;

/// Address management on a store. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Driver {
    store: Store,
}

/// Why an operation came to no answer. What it answers itself, refusals too, is no such error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store could not carry out a call.
    #[error(transparent)]
    Store(#[from] crate::Error),
    /// Others changed the same records again and again.
    #[error("Max retries hit - excessive concurrent IPAM requests")]
    Contended,
}

/// The present time.
pub fn now() -> Moment {
    let nanoseconds = jiff::Timestamp::now().as_nanosecond();
    Moment::from_nanoseconds(u64::try_from(nanoseconds).unwrap_or_default())
}

impl Driver {
    /// Address management on this store.
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Plans operations and commits them as one transaction. `operations` runs again whenever
    /// something must be read first or somebody else was faster, so it must do nothing but plan.
    pub fn run<T>(
        &self,
        view: &mut View,
        operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Result<Done<T>, Error> {
        self.run_with(view, now, operations)
    }

    /// As [`Driver::run`], with a clock.
    pub fn run_with<T>(
        &self,
        view: &mut View,
        clock: impl Fn() -> Moment,
        operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Result<Done<T>, Error> {
        let mut pursuit = Pursuit::new(view);
        let done = self.pursue(&mut pursuit, view, clock, operations);
        pursuit.end(view);
        done
    }

    fn pursue<T>(
        &self,
        pursuit: &mut Pursuit<T>,
        view: &mut View,
        clock: impl Fn() -> Moment,
        mut operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Result<Done<T>, Error> {
        let mut lost = None;
        loop {
            match pursuit.next(view, clock(), &mut operations) {
                Next::Read(reads) => self.read(pursuit.view(view), &reads)?,
                Next::Commit(plan) => {
                    let outcome = match self.store.commit(transaction(plan)) {
                        Ok(Committed::Applied { revision }) => Outcome::Applied(revision),
                        Ok(Committed::Conflict { revision, current }) => {
                            let current = current.into_iter().map(|it| it.map(parts));
                            Outcome::Conflict(current.collect(), revision)
                        }
                        Err(error @ crate::Error::Uncertain(_)) => {
                            lost = Some(error);
                            Outcome::Lost
                        }
                        Err(error) => return Err(error.into()),
                    };
                    pursuit.committed(view, outcome);
                }
                Next::Look(plan) => match self.look(plan) {
                    Ok((current, revision)) => pursuit.looked(view, &current, revision),
                    // Who cannot look does not know either.
                    Err(error) => return Err(lost.take().unwrap_or(error).into()),
                },
                Next::Wait(attempt) => pause(attempt),
                Next::Done(done) => return Ok(done),
                Next::GiveUp => return Err(Error::Contended),
            }
        }
    }

    /// Lets any number of addresses go, some at a time.
    pub fn release_ips(&self, view: &mut View, releases: &[Release]) -> Result<Released, Error> {
        let mut all = Released::default();
        for some in releases.chunks(RELEASES_AT_ONCE) {
            let done = self.run(view, |planner| planner.release_ips(some))?.answer;
            all.unallocated.extend(done.unallocated);
            all.done.extend(done.done);
            all.error = all.error.or(done.error);
        }
        Ok(all)
    }

    /// Reads what a plan needs.
    pub fn read(&self, view: &mut View, reads: &[Read]) -> Result<(), crate::Error> {
        for read in reads {
            match read {
                Read::Key(key) => {
                    let (entry, revision) = self.store.get(key)?;
                    view.observe(key, entry.map(parts), revision);
                }
                Read::Prefix(prefix) => {
                    observe_list(view, prefix, self.store.list(prefix)?);
                }
            }
        }
        Ok(())
    }

    /// What is under the keys that a plan changes.
    fn look(&self, plan: &Plan) -> Result<(Vec<Entry>, i64), crate::Error> {
        let (mut current, mut latest) = (Vec::new(), 0);
        for change in &plan.changes {
            let (entry, revision) = self.store.get(&change.key)?;
            current.push(entry.map(parts));
            latest = revision;
        }
        Ok((current, latest))
    }
}

fn observe_list(view: &mut View, prefix: &str, listed: Snapshot) {
    let entries = listed.entries.into_iter().map(|it| (it.key, it.value, it.mod_revision));
    view.observe_prefix(prefix, entries, listed.revision);
}

fn parts(entry: KeyValue) -> (Vec<u8>, i64) {
    (entry.value, entry.mod_revision)
}

fn transaction(planned: &Plan) -> Txn {
    let compares = planned.conditions.iter().map(|condition| match condition {
        Condition::Absent(key) => Compare::Absent(key.clone()),
        Condition::At(key, revision) => Compare::ModRevision(key.clone(), *revision),
        Condition::NothingNewer { prefix, revision } => {
            Compare::NothingNewer { prefix: prefix.clone(), revision: *revision }
        }
    });
    let ops = planned.changes.iter().map(|change| match &change.value {
        Some(value) => Op::Put { key: change.key.clone(), value: value.clone() },
        None => Op::Delete { key: change.key.clone() },
    });
    Txn { compares: compares.collect(), ops: ops.collect() }
}

/// Waits a little, longer each time and not the same for everybody.
fn pause(attempt: u32) {
    let longest = 1_u64 << attempt.min(6);
    let share = now().nanoseconds() / 1_000 % 1_000;
    std::thread::sleep(Duration::from_micros(longest * share));
}
