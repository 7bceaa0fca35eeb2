//! The same random operations on both backends give the same answers, listings and events.
//!
//! Revisions are compared too, so both stores live through all cases in lock step.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use store::{Committed, Compare, Error, Event, Op, Store, Txn, Watch, sqlite};

use crate::member::{self, Member};
use crate::view::{delete, put};

#[derive(Clone, Debug)]
enum Step {
    Commit(Txn),
    List(String),
    Get(String),
    /// Compacts this many revisions before the present.
    Compact(i64),
    /// Replaces the watch by a new one on this prefix.
    Watch(String),
    /// Replaces the watch by one that resumes this many revisions before the present.
    Resume(String, i64),
}

fn key() -> impl Strategy<Value = String> {
    "(/[ab]){1,2}|/a\u{10ffff}|b"
}

fn prefix() -> impl Strategy<Value = String> {
    "|/|/a|/b/|/a/[ab]|b"
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (key(), "[a-z]{0,3}").prop_map(|(key, value)| put(&key, value)),
        2 => key().prop_map(|key| delete(&key)),
    ]
}

fn compare() -> impl Strategy<Value = Compare> {
    prop_oneof![
        key().prop_map(Compare::Absent),
        key().prop_map(Compare::Exists),
        (key(), 0i64..400).prop_map(|(key, revision)| Compare::ModRevision(key, revision)),
        (prefix(), -1i64..400)
            .prop_map(|(prefix, revision)| Compare::NothingNewer { prefix, revision }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let txn = (prop::collection::vec(compare(), 0..2), prop::collection::vec(op(), 0..5))
        .prop_map(|(compares, ops)| Step::Commit(Txn { compares, ops }));
    prop_oneof![
        12 => txn,
        2 => prefix().prop_map(Step::List),
        2 => key().prop_map(Step::Get),
        1 => (-2i64..8).prop_map(Step::Compact),
        1 => prefix().prop_map(Step::Watch),
        1 => (prefix(), 0i64..6).prop_map(|(prefix, back)| Step::Resume(prefix, back)),
    ]
}

/// A store with a watch on it.
struct Side {
    store: Store,
    watch: Watch,
    /// The state that the watch's events amount to is not needed: both sides are compared.
    prefix: String,
}

impl Side {
    fn new(store: Store) -> Side {
        Side { watch: store.watch(""), store, prefix: String::new() }
    }

    /// Takes one step and returns all that can be seen of it, as text.
    fn take(&mut self, step: &Step) -> String {
        match step {
            Step::Commit(txn) => match self.store.commit(txn.clone()) {
                Err(error) => kind(&error),
                Ok(committed) => format!("{committed:?}"),
            },
            Step::List(prefix) => format!("{:?}", self.store.list(prefix).unwrap()),
            Step::Get(key) => format!("{:?}", self.store.get(key).unwrap()),
            Step::Compact(back) => {
                let now = self.store.get("/").unwrap().1;
                let compacted = self.store.compact((now - back).max(1));
                compacted.map_or_else(|error| kind(&error), |()| "compacted".into())
            }
            Step::Watch(prefix) => {
                self.watch = self.store.watch(prefix);
                self.prefix.clone_from(prefix);
                self.until_in_sync()
            }
            Step::Resume(prefix, back) => {
                // Knowing nothing of the past makes each put since then news.
                let now = self.store.get("/").unwrap().1;
                self.watch = self.store.watch_from(prefix, (now - back).max(1), []);
                self.prefix.clone_from(prefix);
                String::new()
            }
        }
    }

    fn until_in_sync(&mut self) -> String {
        let mut seen = Vec::new();
        loop {
            let event = self.watch.next(Duration::from_secs(120)).expect("an event");
            let is_last = matches!(event, Event::InSync(_));
            seen.push(format!("{event:?}"));
            if is_last {
                return seen.join("\n");
            }
        }
    }

    /// Everything that the watch has to say about what happened before a marker that is written
    /// now.
    fn drain(&mut self) -> Vec<String> {
        // After a compaction the watch lists in key order: the marker must come last in it.
        let marker = format!("{}\u{10ffff}\u{10ffff}marker", self.prefix);
        let written = Txn { compares: vec![], ops: vec![put(&marker, "")] };
        let Committed::Applied { revision } = self.store.commit(written).unwrap() else {
            panic!("no condition, no conflict")
        };
        let mut seen = Vec::new();
        loop {
            match self.watch.next(Duration::from_secs(120)).expect("an event") {
                Event::Put(entry) if entry.mod_revision == revision => break,
                // Where exactly a resumed watch is in sync is up to the backend.
                Event::InSync(_) => {}
                event => seen.push(format!("{event:?}")),
            }
        }
        self.store.commit(Txn { compares: vec![], ops: vec![delete(&marker)] }).unwrap();
        match self.watch.next(Duration::from_secs(120)).expect("an event") {
            Event::Delete { .. } => {}
            Event::InSync(_) => {
                self.watch.next(Duration::from_secs(120)).expect("an event");
            }
            other => panic!("{other:?}"),
        }
        seen
    }
}

fn kind(error: &Error) -> String {
    match error {
        Error::Rejected(_) => "rejected".into(),
        Error::Compacted { revision } => format!("compacted at {revision}"),
        other => panic!("{other}"),
    }
}

#[test]
fn both_backends_answer_alike() {
    if !member::is_installed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = sqlite::Store::open(directory.path().join("store.db")).unwrap();
    let member = Member::start();
    let sides =
        std::cell::RefCell::new([Side::new(Store::Sqlite(file)), Side::new(member.store())]);
    for side in sides.borrow_mut().iter_mut() {
        side.until_in_sync();
    }
    // Both stores move on with every attempt, so that a failing case cannot be shrunk.
    let config =
        Config { cases: 60, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let cases = prop::collection::vec(step(), 1..30);
    let outcome = TestRunner::new(config).run(&cases, |steps| {
        let [file, member] = &mut *sides.borrow_mut();
        for step in &steps {
            prop_assert_eq!(file.take(step), member.take(step), "{:?}", step);
            prop_assert_eq!(file.drain(), member.drain(), "events after {:?}", step);
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
