//! Writes the history while a command works: each transaction is kept before it is made.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use store::Store;
use store::resources::{self, Journal, Manner, Name, Resources};

use super::history::under_way::{Intent, UnderWay, conclude, merge};
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
    /// The transactions whose end has not been seen.
    open: Vec<Intent>,
    undoes: Option<u64>,
    n_to_undo: usize,
    /// The revisions that the bytes to be put back had before, by key.
    stands_for: BTreeMap<String, i64>,
    /// The changes that nodes tell of when they have carried them out: the revisions, by key.
    realisable: BTreeMap<String, i64>,
}

/// What the history made of a write.
pub(crate) enum Recorded {
    /// There was nothing to keep.
    Nothing,
    /// It is kept under this number.
    Number(u64),
    /// It is kept under this number, and what became of it is not certain.
    Uncertain(u64, String),
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
    pub(crate) fn expect_undo(&self, number: u64, entry: &Entry, n_to_undo: usize) {
        let mut state = self.state();
        (state.undoes, state.n_to_undo) = (Some(number), n_to_undo);
        let before = entry.changes.iter();
        let before = before.filter_map(|one| Some((one.key.clone(), one.before_revision?)));
        state.stands_for = before.collect();
    }

    /// The changes so far that nodes tell of when they have carried them out: the revisions, by
    /// key.
    pub(crate) fn realisable(&self) -> BTreeMap<String, i64> {
        self.state().realisable.clone()
    }

    /// Ends the entry; returns what was changed, too. A taking back that was not done as a whole
    /// does not count as one.
    pub(crate) fn finish(&self, is_whole: bool) -> (Recorded, Vec<Change>) {
        let mut state = std::mem::take(&mut *self.state());
        let Some(mut entry) = state.entry.take() else {
            return (Recorded::Nothing, Vec::new());
        };
        let number = state.under_way.as_ref().map(|under_way| under_way.number);
        for intent in std::mem::take(&mut state.open) {
            // What has left no trace yet may still be on its way to the store: the entry stays
            // open then, and is settled by a later command.
            if !conclude(&self.store, &mut entry, intent).unwrap_or(false) {
                let why = "the answer of the datastore was lost".to_owned();
                let recorded = match number {
                    Some(number) => Recorded::Uncertain(number, why),
                    None => Recorded::Not(why),
                };
                return (recorded, entry.changes);
            }
        }
        entry.is_part = entry.undoes.is_some() && !is_whole;
        // Where it cannot be ended it stays as it is, and is settled from that.
        let _ = state.under_way.map(|under_way| under_way.end(&entry));
        let recorded = match (state.failure, number, entry.uncertain) {
            _ if entry.changes.is_empty() => Recorded::Nothing,
            (Some(why), _, _) => Recorded::Not(why),
            (None, Some(number), Some(why)) => Recorded::Uncertain(number, why),
            (None, Some(number), None) => Recorded::Number(number),
            (None, None, _) => Recorded::Nothing,
        };
        (recorded, entry.changes)
    }

    fn unwritable(&self, error: &std::io::Error) -> String {
        match self.history.has_place() {
            true => format!("the history cannot be written: {error}"),
            false => error.to_string(),
        }
    }

    fn head(&self, undoes: Option<u64>, n_to_undo: usize) -> Result<Entry, store::Error> {
        let plain = Resources::new(self.store.clone(), Manner::default());
        Ok(Entry {
            under_way: false,
            time: crate::clock::now(),
            command: self.typed.clone(),
            store: place(&self.store),
            cluster: cluster(&plain)?,
            undoes,
            n_to_undo,
            is_part: false,
            uncertain: None,
            changes: Vec::new(),
        })
    }

    /// Begins the entry of this command.
    fn begin(&self, state: &mut State) -> Result<(), store::Error> {
        let head = self.head(state.undoes, state.n_to_undo)?;
        // What a killed command left can be told best before more is written.
        let is_here = |entry: &Entry| entry.is_told_by(&head.store, head.cluster.as_deref());
        self.history.settle_leftovers(Ok(&self.store), is_here);
        match self.history.begin(&head) {
            Ok(under_way) => state.under_way = Some(under_way),
            Err(error) => state.failure = Some(self.unwritable(&error)),
        }
        state.entry = Some(head);
        Ok(())
    }
}

impl Journal for Recorder {
    fn intend(&self, changes: Vec<resources::Change>) -> Result<(), String> {
        let mut guard = self.state();
        let state = &mut *guard;
        let is_first = state.entry.is_none();
        if is_first {
            self.begin(state).map_err(|error| error.to_string())?;
        }
        let stands_for = &state.stands_for;
        let changes = changes.into_iter().map(|change| kept(change, stands_for)).collect();
        let store_revision = self.store.get("/").ok().map(|(_, revision)| revision);
        let intent = Intent { store_revision, changes };
        if let Some(under_way) = &mut state.under_way
            && let Err(error) = under_way.intend(&intent)
        {
            let why = self.unwritable(&error);
            // A write of which nothing is kept can say so. One of which a part is kept must not
            // go on, or that part would pass for the whole.
            if !is_first {
                return Err(why);
            }
            state.failure = Some(why);
            state.under_way.take().into_iter().for_each(UnderWay::forget);
        }
        state.open.push(intent);
        Ok(())
    }

    fn settle(&self, revision: Option<i64>) {
        let mut guard = self.state();
        let state = &mut *guard;
        let intent = state.open.pop();
        if let (Some(entry), Some(intent), Some(revision)) = (&mut state.entry, intent, revision) {
            let keys = intent.changes.iter().map(|change| &change.key);
            let counting = keys.filter(|key| store::realised::counts(key));
            state.realisable.extend(counting.map(|key| (key.clone(), revision)));
            merge(&mut entry.changes, intent.made_at(revision));
        }
        if let Some(under_way) = &mut state.under_way {
            // Without this line the store is asked, should this program be killed.
            let _ = under_way.settle(revision);
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
            Self::Number(number) | Self::Uncertain(number, _) => Some(*number),
            Self::Nothing | Self::Not(_) => None,
        }
    }

    /// How to take it back, as the last line of an answer.
    pub(crate) fn line(&self, history: &History) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Number(number) => format!("undo: {}\n", history.undo_command(*number)),
            Self::Uncertain(number, why) => {
                format!("undo: {} (not certain: {why})\n", history.undo_command(*number))
            }
            Self::Not(why) => {
                format!("undo: not possible, {why}\n")
            }
        }
    }
}

#[cfg(test)]
mod tests;
