//! Writes the history while a command works: each transaction is kept before it is made.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use store::Store;
use store::resources::{self, Journal, Manner, Name, Resources};

use super::history::under_way::{Effect, UnderWay, effect, merge};
use super::history::{Change, Entry, History};
use super::kept_bytes::KeptBytes;
use super::session::{cluster, place, spoken};

/// What the settings of address management are called; they are no resource.
const IPAM_SETTINGS: &str = "IPAM settings";

/// The journal of one command.
#[derive(Debug)]
pub(crate) struct Recorder {
    history: History,
    store: Store,
    typed: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entry: Option<Entry>,
    under_way: Option<UnderWay>,
    /// Why the history could not be written.
    failure: Option<String>,
    /// The changes of the transaction whose end has not been seen.
    pending: Vec<Change>,
    undoes: Option<u64>,
    /// The revisions that the bytes to be put back had before, by key.
    stands_for: BTreeMap<String, i64>,
}

/// What the history made of a write.
pub(crate) enum Recorded {
    /// There was nothing to keep.
    Nothing,
    /// It is kept under this number.
    Number(u64),
    /// It could not be kept; why.
    Not(String),
}

impl Recorder {
    pub(crate) fn new(history: History, store: Store, typed: String) -> Self {
        Self { history, store, typed, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The changes to come take this write back.
    pub(crate) fn expect_undo(&self, number: u64, entry: &Entry) {
        let mut state = self.state();
        state.undoes = Some(number);
        let before = entry.changes.iter();
        let before = before.filter_map(|one| Some((one.key.clone(), one.before_revision?)));
        state.stands_for = before.collect();
    }

    /// Ends the entry; returns what was changed, too. A taking back that was not done as a whole
    /// does not count as one.
    pub(crate) fn finish(&self, is_whole: bool) -> (Recorded, Vec<Change>) {
        let mut state = std::mem::take(&mut *self.state());
        let Some(mut entry) = state.entry.take() else {
            return (Recorded::Nothing, Vec::new());
        };
        match effect(&self.store, &state.pending) {
            Ok(Effect::Made(revision)) => merge(&mut entry.changes, state.pending, revision),
            Ok(Effect::Nothing) => {}
            Ok(Effect::Unknown) | Err(_) => {
                // The entry stays open, and is settled when the store answers again.
                let why = "the answer of the datastore was lost; see margay history";
                return (Recorded::Not(why.to_owned()), entry.changes);
            }
        }
        entry.undoes = entry.undoes.filter(|_| is_whole);
        let changes = entry.changes.clone();
        let ended = state.under_way.map(|under_way| under_way.end(&entry));
        if changes.is_empty() {
            return (Recorded::Nothing, changes);
        }
        let recorded = match (state.failure, ended) {
            (Some(why), _) => Recorded::Not(why),
            (None, Some(Ok(number))) => Recorded::Number(number),
            (None, Some(Err(error))) => Recorded::Not(self.unwritable(&error)),
            (None, None) => Recorded::Nothing,
        };
        (recorded, changes)
    }

    fn unwritable(&self, error: &std::io::Error) -> String {
        match self.history.has_place() {
            true => format!("the history cannot be written: {error}"),
            false => error.to_string(),
        }
    }

    fn head(&self, undoes: Option<u64>) -> Entry {
        let plain = Resources::new(self.store.clone(), Manner::default());
        Entry {
            under_way: false,
            time: crate::clock::now(),
            command: self.typed.clone(),
            store: place(&self.store),
            cluster: cluster(&plain),
            undoes,
            changes: Vec::new(),
        }
    }
}

impl Journal for Recorder {
    fn intend(&self, changes: Vec<resources::Change>) {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.entry.is_none() {
            let head = self.head(state.undoes);
            // What a killed command left can be told best before more is written.
            let is_here = |entry: &Entry| entry.is_beside(&head);
            self.history.settle_leftovers(Some(&self.store), is_here);
            match self.history.begin(&head) {
                Ok(under_way) => state.under_way = Some(under_way),
                Err(error) => state.failure = Some(self.unwritable(&error)),
            }
            state.entry = Some(head);
        }
        let stands_for = &state.stands_for;
        state.pending = changes.into_iter().map(|change| kept(change, stands_for)).collect();
        if let Some(under_way) = &mut state.under_way
            && let Err(error) = under_way.intend(&state.pending)
        {
            state.failure = Some(self.unwritable(&error));
        }
    }

    fn settle(&self, revision: Option<i64>) {
        let mut guard = self.state();
        let state = &mut *guard;
        let pending = std::mem::take(&mut state.pending);
        if let (Some(entry), Some(_)) = (&mut state.entry, revision) {
            merge(&mut entry.changes, pending, revision);
        }
        if let Some(under_way) = &mut state.under_way
            && let Err(error) = under_way.settle(revision)
        {
            state.failure = Some(self.unwritable(&error));
        }
    }
}

fn kept(change: resources::Change, stands_for: &BTreeMap<String, i64>) -> Change {
    let (before, before_revision) = change.before.unzip();
    let name = match Name::at_key(&change.key) {
        Some(name) => spoken(&name),
        None if change.key == resources::ipam::settings_key() => IPAM_SETTINGS.to_owned(),
        None => change.key.clone(),
    };
    Change {
        name,
        stands_for: stands_for.get(&change.key).copied(),
        key: change.key,
        before: before.map(KeptBytes),
        before_revision,
        revision: None,
        digest: change.digest,
    }
}

impl Recorded {
    /// The number to take it back by.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Nothing | Self::Not(_) => None,
        }
    }

    /// How to take it back, as the last line of an answer.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Number(number) => format!("undo: margay undo {number}\n"),
            Self::Not(why) => {
                format!("undo: not possible, {why}\n")
            }
        }
    }
}

#[cfg(test)]
mod tests;
