//! A consumer of a watch that believes everything it is told, and panics on a contradiction.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use store::{Committed, Event, KeyValue, Op, Store, Txn, Watch};

const PATIENCE: Duration = Duration::from_secs(120);

/// What the events so far amount to.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) state: BTreeMap<String, KeyValue>,
    pub(crate) events: Vec<Event>,
}

impl View {
    /// Starts with a known state.
    pub(crate) fn of(entries: Vec<KeyValue>) -> View {
        let state = entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        View { state, events: Vec::new() }
    }

    fn apply(&mut self, event: Event) {
        match &event {
            Event::Put(entry) => {
                let old = self.state.insert(entry.key.clone(), entry.clone());
                if let Some(old) = old {
                    assert!(entry.mod_revision > old.mod_revision, "repeated: {event:?}");
                }
            }
            Event::Delete { key, mod_revision } => {
                let old = self.state.remove(key);
                let old = old.unwrap_or_else(|| panic!("deleted but never there: {event:?}"));
                assert!(*mod_revision > old.mod_revision, "late: {event:?}");
            }
            Event::InSync(_) | Event::Disconnected { .. } => {}
        }
        self.events.push(event);
    }

    /// Takes events until `is_done`.
    pub(crate) fn until(&mut self, watch: &mut Watch, what: &str, is_done: impl Fn(&View) -> bool) {
        let began = Instant::now();
        while !is_done(self) {
            assert!(
                began.elapsed() < PATIENCE,
                "{what} did not happen; last events: {:?}",
                self.events.iter().rev().take(5).map(shown).collect::<Vec<_>>()
            );
            if let Some(event) = watch.next(Duration::from_millis(100)) {
                self.apply(event);
            }
        }
    }

    pub(crate) fn until_in_sync(&mut self, watch: &mut Watch) {
        let n_before = self.n_in_sync();
        self.until(watch, "in-sync", |view| view.n_in_sync() > n_before);
    }

    /// Takes events until the view equals the store.
    pub(crate) fn until_equal(&mut self, watch: &mut Watch, store: &Store, prefix: &str) {
        let entries = store.list(prefix).unwrap().entries;
        let wanted = View::of(entries).state;
        self.until(watch, "the state of the store", |view| view.state == wanted);
    }

    pub(crate) fn n_in_sync(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::InSync(_))).count()
    }

    pub(crate) fn is_disconnected(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Disconnected { .. }))
    }

    /// The changes so far in short form: `+key@revision` and `-key@revision`.
    pub(crate) fn changes(&self) -> Vec<String> {
        let is_change = |event: &&Event| matches!(event, Event::Put(_) | Event::Delete { .. });
        self.events.iter().filter(is_change).map(shown).collect()
    }
}

/// An event in short form.
pub(crate) fn shown(event: &Event) -> String {
    match event {
        Event::Put(entry) => format!("+{}@{}", entry.key, entry.mod_revision),
        Event::Delete { key, mod_revision } => format!("-{key}@{mod_revision}"),
        Event::InSync(revision) => format!("in-sync@{revision}"),
        Event::Disconnected { endpoint, error, .. } => format!("{endpoint}: {error}"),
    }
}

pub(crate) fn put(key: &str, value: impl Into<Vec<u8>>) -> Op {
    Op::Put { key: key.into(), value: value.into() }
}

pub(crate) fn delete(key: &str) -> Op {
    Op::Delete { key: key.into() }
}

/// Applies changes without conditions and returns the revision.
pub(crate) fn write(store: &Store, ops: Vec<Op>) -> i64 {
    match store.commit(Txn { compares: vec![], ops }).unwrap() {
        Committed::Applied { revision } => revision,
        conflict => panic!("{conflict:?}"),
    }
}
