//! The way from an operation to its answer: plan, read what is missing, commit, and plan again
//! when somebody else was faster or the answer of the store was lost.
//!
//! Only the decisions are here. Whoever drives a pursuit does what [`Pursuit::next`] says and tells
//! what came of it, so that a store that conflicts, delays and loses answers can be made up.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{family_of, plan_around};
use crate::record::{block_at, blocks_prefix};
use crate::{Condition, Moment, Plan, Planned, Planner, Read, Step, View};

/// How often a plan is made again because somebody else was faster.
const ATTEMPTS_MAX: u32 = 100;
/// Into so many transactions an operation over many blocks may fall.
const PARTS_MAX: u32 = 10_000;
/// From this attempt on there is a pause before the next one.
const PATIENT_FROM: u32 = 2;
/// A key over which so many transactions were lost is left to others where there is a choice.
const LOST_MAX: u32 = 2;

/// A value and the revision that last wrote it; none if the key is not there.
pub type Entry = Option<(Vec<u8>, i64)>;

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

/// What to do next.
#[derive(Debug)]
pub enum Next<'p, T> {
    /// Read these into [`Pursuit::view`].
    Read(Vec<Read>),
    /// Commit this, and tell [`Pursuit::committed`].
    Commit(&'p Plan),
    /// The answer to a transaction was lost: read the keys that it changes one by one, and tell
    /// [`Pursuit::looked`].
    Look(&'p Plan),
    /// Wait a little, longer for a higher number and not the same for everybody.
    Wait(u32),
    /// That is all.
    Done(Done<T>),
    /// Others changed the same records again and again.
    GiveUp,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was applied, at this revision.
    Applied(i64),
    /// Some condition did not hold: what is under the keys of the conditions, in their order
    /// (whatever for one about a prefix), at this revision.
    Conflict(Vec<Entry>, i64),
    /// Nobody knows.
    Lost,
}

#[derive(Debug)]
enum State<T> {
    Planning,
    Waiting,
    Committing(Plan, Option<T>),
    Looking(Plan, Option<T>),
    Done(Done<T>),
    GivenUp,
}

/// One operation on its way to an answer.
#[derive(Debug)]
pub struct Pursuit<T> {
    /// The view that was handed in may be the work of a watch, and must not be lost over one answer
    /// that has to be looked up: that is done on a view of its own.
    fresh: Option<View>,
    state: State<T>,
    /// What a refused transaction has shown to be out of date.
    stale: Vec<Read>,
    /// The keys that somebody else was faster to write, and how often.
    lost: BTreeMap<String, u32>,
    /// The families of whose blocks others have made some that were free.
    crowded: BTreeSet<u8>,
    attempt: u32,
    commits: u32,
}

impl<T> Pursuit<T> {
    /// A pursuit that begins with what `view` knows.
    pub fn new(view: &View) -> Self {
        let fresh = view.is_empty().then(View::default);
        Self {
            fresh,
            state: State::Planning,
            stale: Vec::new(),
            lost: BTreeMap::new(),
            crowded: BTreeSet::new(),
            attempt: 0,
            commits: 0,
        }
    }

    /// Where reads go.
    pub fn view<'v>(&'v mut self, long: &'v mut View) -> &'v mut View {
        self.fresh.as_mut().unwrap_or(long)
    }

    /// Ends the pursuit: what it has learned goes to the view it began with.
    pub fn end(self, long: &mut View) {
        if let Some(fresh) = self.fresh {
            long.merge(fresh);
        }
    }

    /// What to do next. `operations` runs again whenever something was read or somebody else was
    /// faster, so it must do nothing but plan.
    pub fn next(
        &mut self,
        long: &mut View,
        now: Moment,
        mut operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Next<'_, T> {
        match std::mem::replace(&mut self.state, State::Planning) {
            State::Planning => {}
            State::Waiting if self.attempt >= PATIENT_FROM => {
                // What was learned from the refusal is old by then, and a plan on it lost again.
                self.stale.extend(self.lost.keys().cloned().map(Read::Key));
                // Whoever is late for one block is late for others too: without a look at all of
                // them each would cost a try.
                let crowded = std::mem::take(&mut self.crowded).into_iter();
                self.stale.extend(crowded.map(|family| Read::Prefix(blocks_prefix(family))));
                return Next::Wait(self.attempt);
            }
            State::Waiting => {}
            State::Done(done) => return Next::Done(done),
            State::GivenUp => return Next::GiveUp,
            state @ (State::Committing(..) | State::Looking(..)) => {
                self.state = state;
                return self.asked();
            }
        }
        if !self.stale.is_empty() {
            return Next::Read(std::mem::take(&mut self.stale));
        }
        let contended = self.lost.iter().filter(|(_, count)| **count >= LOST_MAX);
        let contended: BTreeSet<String> = contended.map(|(key, _)| key.clone()).collect();
        loop {
            let is_old = self.fresh.is_none();
            let view = self.fresh.as_ref().unwrap_or(long);
            let (answer, planned) = match plan_around(contended.clone(), view, now, &mut operations)
            {
                Step::Read(reads) => return Next::Read(reads),
                Step::Commit(planned) => (None, planned),
                Step::Done(answer, planned) => (Some(answer), planned),
            };
            if planned.is_doubtful && is_old {
                self.fresh = Some(View::default());
                continue;
            }
            if planned.changes.is_empty() {
                let commits = self.commits;
                return match answer {
                    Some(answer) => {
                        Next::Done(Done { answer, revision: None, commits, plan: planned })
                    }
                    // A full transaction has changes; without any there is no end to this.
                    None => Next::GiveUp,
                };
            }
            self.commits += 1;
            self.state = State::Committing(planned, answer);
            return self.asked();
        }
    }

    fn asked(&self) -> Next<'_, T> {
        match &self.state {
            State::Committing(plan, _) => Next::Commit(plan),
            State::Looking(plan, _) => Next::Look(plan),
            State::Planning | State::Waiting | State::Done(_) | State::GivenUp => Next::GiveUp,
        }
    }

    /// Takes note of what became of the transaction.
    pub fn committed(&mut self, long: &mut View, outcome: Outcome) {
        let state = std::mem::replace(&mut self.state, State::GivenUp);
        let State::Committing(planned, answer) = state else { return };
        match outcome {
            Outcome::Applied(revision) => self.applied(long, planned, answer, revision),
            Outcome::Conflict(current, revision) => {
                let learned = learn(self.view(long), &planned, current, revision);
                self.stale = learned.stale;
                for key in learned.lost {
                    if learned.made.contains(&key) {
                        self.crowded.extend(block_at(&key).map(|it| family_of(it.address())));
                    }
                    *self.lost.entry(key).or_default() += 1;
                }
                self.again();
            }
            Outcome::Lost => self.state = State::Looking(planned, answer),
        }
    }

    /// Takes note of what is under the keys of a transaction whose answer was lost, as of a
    /// revision. It was applied if a key holds what it put there, and every other key is as it made
    /// it or was written later: a transaction applies in full or not at all, and another one may
    /// do the same to some of the keys. If it was not applied, or nobody can tell, planning starts
    /// again from what is there now.
    pub fn looked(&mut self, long: &mut View, current: &[Entry], revision: i64) {
        let state = std::mem::replace(&mut self.state, State::GivenUp);
        let State::Looking(planned, answer) = state else { return };
        match applied_at(&planned, current, revision) {
            // Later changes of others are found by the conditions of the next plan.
            Some(revision) => self.applied(long, planned, answer, revision),
            None => {
                self.fresh = Some(View::default());
                self.again();
            }
        }
    }

    fn applied(&mut self, long: &mut View, plan: Plan, answer: Option<T>, revision: i64) {
        self.view(long).absorb(&plan, revision);
        let commits = self.commits;
        self.state = match answer {
            Some(answer) => State::Done(Done { answer, revision: Some(revision), commits, plan }),
            // Each part makes the rest smaller; what does not is a conflict with ourselves.
            None if commits < PARTS_MAX => {
                self.attempt = 0;
                State::Planning
            }
            None => State::GivenUp,
        };
    }

    fn again(&mut self) {
        self.attempt += 1;
        self.state = if self.attempt < ATTEMPTS_MAX { State::Waiting } else { State::GivenUp };
    }
}

/// What the refusal of a transaction says.
struct Learned {
    /// What must be read again.
    stale: Vec<Read>,
    /// The keys that somebody else has written.
    lost: Vec<String>,
    /// Those of them that were not there before.
    made: BTreeSet<String>,
}

/// Takes over what the refusal of a transaction says about the keys it rests on. If that explains
/// nothing, something under a prefix is new, and must be read again.
fn learn(view: &mut View, planned: &Plan, current: Vec<Entry>, revision: i64) -> Learned {
    let (mut lost, mut made) = (Vec::new(), BTreeSet::new());
    let mut prefixes = Vec::new();
    for (condition, entry) in planned.conditions.iter().zip(current) {
        let (key, expected) = match condition {
            Condition::Absent(key) => (key, None),
            Condition::At(key, revision) => (key, Some(*revision)),
            Condition::NothingNewer { prefix, .. } => {
                prefixes.push(Read::Prefix(prefix.clone()));
                continue;
            }
        };
        if expected != entry.as_ref().map(|(_, written)| *written) {
            lost.push(key.clone());
            if expected.is_none() {
                made.insert(key.clone());
            }
        }
        view.observe(key, entry, revision);
    }
    let stale = if lost.is_empty() { prefixes } else { Vec::new() };
    Learned { stale, lost, made }
}

/// The revision at which a transaction was applied, by what is under its keys since.
fn applied_at(planned: &Plan, current: &[Entry], revision: i64) -> Option<i64> {
    let is_newer = |key: &str, written: i64| {
        planned.conditions.iter().all(|condition| match condition {
            Condition::At(compared, before) if compared == key => written > *before,
            _ => true,
        })
    };
    let mut all = planned.changes.iter().zip(current);
    let ours = all.clone().filter_map(|(change, entry)| {
        let (value, written) = entry.as_ref()?;
        let is_ours = change.value.as_ref() == Some(value) && is_newer(&change.key, *written);
        is_ours.then_some(*written)
    });
    if let Some(at) = ours.min() {
        let is_whole = all.all(|(change, entry)| match (&change.value, entry) {
            (_, Some((_, written))) if *written > at => true,
            (Some(ours), Some((value, written))) => *written == at && ours == value,
            // What was put and is gone may have been removed since, or never been there.
            (Some(_), None) | (None, Some(_)) => false,
            (None, None) => true,
        });
        return is_whole.then_some(at);
    }
    let has_puts = planned.changes.iter().any(|change| change.value.is_some());
    (!has_puts && current.iter().all(Option::is_none)).then_some(revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    fn put(key: &str, value: &str) -> Change {
        Change { key: key.to_owned(), value: Some(value.into()) }
    }

    fn entry(value: &str, revision: i64) -> Entry {
        Some((value.into(), revision))
    }

    /// Two transactions of one node confirm the same claim; one of them was lost on its way.
    #[test]
    fn a_key_that_another_transaction_wrote_alike_proves_nothing() {
        let changes = vec![put("block", "ours"), put("claim", "confirmed"), put("handle", "h1")];
        let conditions = vec![Condition::At("handle".to_owned(), 3)];
        let plan = Plan { changes, conditions, ..Plan::default() };
        let at = |current: &[Entry]| applied_at(&plan, current, 20);
        let applied = [entry("ours", 7), entry("confirmed", 7), entry("h1", 7)];
        assert_eq!(at(&applied), Some(7));
        let since = [entry("theirs", 9), entry("confirmed", 7), entry("h1", 7)];
        assert_eq!(at(&since), Some(7));
        assert_eq!(at(&[entry("theirs", 7), entry("confirmed", 7), None]), None);
        assert_eq!(at(&[entry("theirs", 7), entry("confirmed", 7), entry("h1", 3)]), None);
        assert_eq!(at(&[entry("theirs", 9), entry("confirmed", 7), None]), None);
        assert_eq!(at(&[None, None, None]), None);
    }

    /// A collector released the same address; our endpoint is still there.
    #[test]
    fn a_removal_that_did_not_happen_proves_the_contrary() {
        let endpoint = Change { key: "endpoint".to_owned(), value: None };
        let plan = Plan { changes: vec![put("block", "free"), endpoint], ..Plan::default() };
        assert_eq!(applied_at(&plan, &[entry("free", 7), entry("e", 3)], 20), None);
        assert_eq!(applied_at(&plan, &[entry("free", 7), None], 20), Some(7));
        assert_eq!(applied_at(&plan, &[entry("free", 7), entry("e2", 9)], 20), Some(7));
    }

    #[test]
    fn removals_alone_were_applied_when_all_is_gone() {
        let changes = vec![Change { key: "a".to_owned(), value: None }];
        let plan = Plan { changes, ..Plan::default() };
        assert_eq!(applied_at(&plan, &[None], 20), Some(20));
        assert_eq!(applied_at(&plan, &[entry("x", 3)], 20), None);
    }
}
