//! Address management on a store: reads what a plan needs, commits it, and tries again when
//! somebody else was faster.
//!
//! A plan is one transaction. It rests on what it read, so two nodes cannot get one address, and a
//! crash leaves all of a change or nothing. The view may live long and be fed from a watch: with
//! everything known beforehand, an assignment costs one request.

use std::time::Duration;

use ::ipam::{
    Condition, Moment, Plan, Planned, Planner, Read, Release, Released, Step, View, plan,
};

use crate::{Committed, Compare, KeyValue, Op, Snapshot, Store, Txn};

/// How often a plan is made again because somebody else was faster.
const ATTEMPTS_MAX: u32 = 100;
/// Into so many transactions an operation over many blocks may fall.
const PARTS_MAX: u32 = 10_000;
/// From this attempt on there is a pause before the next one.
const PATIENT_FROM: u32 = 2;
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
    /// A condition of the caller's own did not hold.
    #[error("{key} was changed by somebody else")]
    Conflict {
        /// The key that the condition is about.
        key: String,
    },
}

/// An answer, and what it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done<T> {
    /// The answer.
    pub answer: T,
    /// The revision of the transaction; none if there was nothing to write.
    pub revision: Option<i64>,
    /// How many transactions were tried.
    pub commits: u32,
    /// What the transaction wrote.
    pub plan: Plan,
}

/// The present time.
pub fn now() -> Moment {
    let nanoseconds = jiff::Timestamp::now().as_nanosecond();
    Moment::from_nanoseconds(u64::try_from(nanoseconds).unwrap_or_default())
}

/// What became of a transaction.
enum Attempt {
    Applied(i64),
    Conflict,
    /// Nothing that was known can be relied on.
    Unclear,
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
        self.run_with(view, now, operations, |_| Txn::default())
    }

    /// As [`Driver::run`], with a clock, and with conditions and changes of the caller's own in the
    /// same transaction; they may depend on the answer. Keys that the plan touches are its own.
    pub fn run_with<T>(
        &self,
        view: &mut View,
        clock: impl Fn() -> Moment,
        operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
        extra: impl Fn(&T) -> Txn,
    ) -> Result<Done<T>, Error> {
        // The view may be the work of a watch, and must not be lost over one answer that has to be
        // looked up: that is done on a view of its own.
        let mut fresh = None;
        let done = self.attempt(view, &mut fresh, clock, operations, extra);
        if let Some(fresh) = fresh {
            view.merge(fresh);
        }
        done
    }

    fn attempt<T>(
        &self,
        long: &mut View,
        fresh: &mut Option<View>,
        clock: impl Fn() -> Moment,
        mut operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
        extra: impl Fn(&T) -> Txn,
    ) -> Result<Done<T>, Error> {
        if long.is_empty() {
            *fresh = Some(View::default());
        }
        let mut commits = 0;
        let mut attempt = 0;
        while attempt < ATTEMPTS_MAX {
            let is_old = fresh.is_none();
            let view = fresh.as_mut().unwrap_or(long);
            let (answer, planned) = match plan(view, clock(), &mut operations) {
                Step::Read(reads) => {
                    self.read(view, &reads)?;
                    continue;
                }
                Step::Commit(planned) => (None, planned),
                Step::Done(answer, planned) => (Some(answer), planned),
            };
            if planned.is_doubtful && is_old {
                *fresh = Some(View::default());
                continue;
            }
            let own = answer.as_ref().map(&extra).unwrap_or_default();
            if planned.changes.is_empty() && own.ops.is_empty() {
                match answer {
                    Some(answer) => {
                        return Ok(Done { answer, revision: None, commits, plan: planned });
                    }
                    // A full transaction has changes; without any there is no end to this.
                    None => return Err(Error::Contended),
                }
            }
            commits += 1;
            match (self.commit(view, &planned, own)?, answer) {
                (Attempt::Applied(revision), Some(answer)) => {
                    return Ok(Done { answer, revision: Some(revision), commits, plan: planned });
                }
                // Each part makes the rest smaller; what does not is a conflict with ourselves.
                (Attempt::Applied(_), None) if commits < PARTS_MAX => attempt = 0,
                (Attempt::Applied(_), None) => return Err(Error::Contended),
                (Attempt::Conflict, _) => {
                    attempt += 1;
                    pause(attempt);
                }
                (Attempt::Unclear, _) => {
                    *fresh = Some(View::default());
                    attempt += 1;
                    pause(attempt);
                }
            }
        }
        Err(Error::Contended)
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

    fn commit(&self, view: &mut View, planned: &Plan, own: Txn) -> Result<Attempt, Error> {
        let n_planned = planned.conditions.len();
        let txn = transaction(planned, own);
        let own_keys: Vec<Option<String>> =
            txn.compares[n_planned..].iter().map(|it| it.key().map(str::to_owned)).collect();
        match self.store.commit(txn.clone()) {
            Ok(Committed::Applied { revision }) => {
                view.absorb(planned, revision);
                Ok(Attempt::Applied(revision))
            }
            Ok(Committed::Conflict { revision, current }) => {
                let is_ours = self.learn(view, planned, current, revision)?;
                match own_keys.into_iter().flatten().next().filter(|_| !is_ours) {
                    Some(key) => Err(Error::Conflict { key }),
                    None => Ok(Attempt::Conflict),
                }
            }
            Err(crate::Error::Uncertain(outage)) => {
                self.resolve(view, planned, &txn, crate::Error::Uncertain(outage))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes over what the refusal of a transaction says about the keys it rests on; what lies
    /// under prefixes is read again. False if everything is as the plan had it.
    fn learn(
        &self,
        view: &mut View,
        planned: &Plan,
        current: Vec<Option<KeyValue>>,
        revision: i64,
    ) -> Result<bool, crate::Error> {
        let mut is_explained = false;
        for (condition, entry) in planned.conditions.iter().zip(current) {
            let (key, expected) = match condition {
                Condition::Absent(key) => (key, None),
                Condition::At(key, revision) => (key, Some(*revision)),
                Condition::NothingNewer { .. } => continue,
            };
            is_explained |= expected != entry.as_ref().map(|entry| entry.mod_revision);
            view.observe(key, entry.map(parts), revision);
        }
        if is_explained {
            return Ok(true);
        }
        for condition in &planned.conditions {
            let Condition::NothingNewer { prefix, revision } = condition else { continue };
            let listed = self.store.list(prefix)?;
            is_explained |= listed.entries.iter().any(|entry| entry.mod_revision > *revision);
            observe_list(view, prefix, listed);
        }
        Ok(is_explained)
    }

    /// Finds out whether a transaction whose answer was lost was applied. It was if a key holds
    /// what it put there and every other key that it put was written then or later: a transaction
    /// applies in full or not at all. If it was not, planning starts again from what is there now.
    fn resolve(
        &self,
        view: &mut View,
        planned: &Plan,
        txn: &Txn,
        lost: crate::Error,
    ) -> Result<Attempt, Error> {
        let mut revisions = Vec::new();
        let mut applied_at = None;
        for op in &txn.ops {
            // Who cannot look does not know either.
            let Ok((entry, _)) = self.store.get(op.key()) else { return Err(lost.into()) };
            revisions.push(entry.as_ref().map(|entry| entry.mod_revision));
            if let (Op::Put { key, value }, Some(entry)) = (op, entry)
                && entry.value == *value
                && is_newer(&txn.compares, key, entry.mod_revision)
            {
                applied_at = Some(entry.mod_revision);
            }
        }
        let puts = txn.ops.iter().zip(&revisions).filter(|(op, _)| matches!(op, Op::Put { .. }));
        let is_whole = |at: i64| puts.clone().all(|(_, it)| it.is_none_or(|it| it >= at));
        if let Some(revision) = applied_at.filter(|at| is_whole(*at)) {
            view.absorb(planned, revision);
            // Later changes of others are found by the conditions of the next plan.
            return Ok(Attempt::Applied(revision));
        }
        let has_puts = txn.ops.iter().any(|op| matches!(op, Op::Put { .. }));
        if !has_puts && revisions.iter().all(Option::is_none) {
            let revision = self.store.get(txn.ops[0].key())?.1;
            view.absorb(planned, revision);
            return Ok(Attempt::Applied(revision));
        }
        // The caller's own changes can only be judged by the caller.
        if txn.ops.len() > planned.changes.len() {
            return Err(lost.into());
        }
        Ok(Attempt::Unclear)
    }
}

fn observe_list(view: &mut View, prefix: &str, listed: Snapshot) {
    let entries = listed.entries.into_iter().map(|it| (it.key, it.value, it.mod_revision));
    view.observe_prefix(prefix, entries, listed.revision);
}

fn parts(entry: KeyValue) -> (Vec<u8>, i64) {
    (entry.value, entry.mod_revision)
}

/// Whether a key was written after what a transaction took it for.
fn is_newer(compares: &[Compare], key: &str, revision: i64) -> bool {
    compares.iter().all(|compare| match compare {
        Compare::ModRevision(compared, before) if compared == key => revision > *before,
        _ => true,
    })
}

fn transaction(planned: &Plan, own: Txn) -> Txn {
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
    Txn { compares: compares.chain(own.compares).collect(), ops: ops.chain(own.ops).collect() }
}

/// Waits a little, longer each time and not the same for everybody.
fn pause(attempt: u32) {
    if attempt < PATIENT_FROM {
        return;
    }
    let longest = 1_u64 << attempt.min(6);
    let share = now().nanoseconds() / 1_000 % 1_000;
    std::thread::sleep(Duration::from_micros(longest * share));
}
