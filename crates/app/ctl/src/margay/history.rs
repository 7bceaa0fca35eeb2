//! The writes made under the name `margay`, kept so that each can be taken back.
//!
//! An entry is a file beside the user's state: the cluster, the stored bytes of every object before
//! the write, and the revision and digest that the write gave it. Taking it back is one
//! compare-and-swap, so what somebody else changed since is never overwritten. While the write is
//! under way the entry says what it is about to do, so that a killed one can be taken back too.

pub(crate) mod under_way;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use store::resources::{NotRestored, Resources, Restored, digest};
use store::{KeyValue, Store};

use super::failure::Failure;
use super::kept_bytes::KeptBytes;

/// How many writes are kept.
const ENTRIES_MAX: usize = 100;
/// How large all of them together may grow.
const BYTES_MAX: u64 = 64 << 20;
/// Numbers end here, so that counting on never overflows.
const NUMBER_MAX: u64 = 1 << 53;
/// A file that is still unfinished after this long was left by a command that was killed.
const UNFINISHED_MAX: Duration = Duration::from_secs(3600);

/// One write.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Entry {
    /// Whether its write has not ended; first, so that the file tells by how it begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) under_way: bool,
    /// When it was made, as RFC 3339.
    pub(crate) time: String,
    /// What was typed.
    pub(crate) command: String,
    /// Where the datastore was that it went to, for people.
    pub(crate) store: String,
    /// The identifier of that datastore's cluster: places are used again, this is not.
    pub(crate) cluster: Option<String>,
    /// The write that it took back.
    pub(crate) undoes: Option<u64>,
    /// What it changed.
    pub(crate) changes: Vec<Change>,
}

impl Entry {
    /// Whether both writes went to the same datastore: to one cluster, or before there was one,
    /// to one place.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.cluster == other.cluster && (self.cluster.is_some() || self.store == other.store)
    }
}

/// What a write did to one key.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Change {
    /// The object, for people.
    pub(crate) name: String,
    /// Its key.
    pub(crate) key: String,
    /// Its stored bytes before the write; none if it was not there.
    pub(crate) before: Option<KeptBytes>,
    /// The revision of those bytes.
    pub(crate) before_revision: Option<i64>,
    /// The revision the write gave it; none if the write removed it.
    pub(crate) revision: Option<i64>,
    /// The digest of the bytes that the write stored: revisions repeat in a restored store.
    pub(crate) digest: Option<String>,
    /// When the write put older bytes back: the revision those had before.
    pub(crate) stands_for: Option<i64>,
}

type Revisions<'e> = BTreeMap<&'e str, Vec<i64>>;

/// The folder of entries.
#[derive(Clone, Debug)]
pub(crate) struct History {
    state_dir: Option<PathBuf>,
}

impl History {
    /// The history below a state folder; without one nothing is kept.
    pub(crate) fn below(state_dir: Option<PathBuf>) -> Self {
        Self { state_dir }
    }

    /// Whether there is a folder to keep it in.
    pub(crate) fn has_place(&self) -> bool {
        self.state_dir.is_some()
    }

    fn dir(&self) -> io::Result<PathBuf> {
        let nowhere = || io::Error::other("there is no HOME to keep the history in");
        let state_dir = self.state_dir.as_ref().ok_or_else(nowhere)?;
        let dir = state_dir.join("history");
        let own = rustix::process::geteuid().as_raw();
        // Whoever owns the folder decides what an undo puts back.
        check_owner(state_dir, own)?;
        check_owner(&dir, own)?;
        Ok(dir)
    }

    /// The numbers of the entries kept, oldest first.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>, Failure> {
        let numbers = self.dir().and_then(|dir| numbers_in(&dir));
        numbers.map_err(|error| Failure::new("there is no history").why(error.to_string()))
    }

    /// Reads an entry.
    pub(crate) fn read(&self, number: u64) -> Result<Entry, Failure> {
        let gone = Failure::new(format!("there is no write {number} to take back"));
        let path = match self.dir() {
            Ok(dir) => path(&dir, number),
            Err(error) => return Err(gone.why(error.to_string())),
        };
        let bytes = fs::read(&path).map_err(|error| {
            gone.why(format!("{}: {error}", path.display())).help("margay history")
        })?;
        if bytes.starts_with(under_way::MARK) {
            return Err(Failure::new(format!("write {number} has not ended")));
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            Failure::new(format!("the record of write {number} cannot be read"))
                .why(format!("{}: {error}", path.display()))
        })
    }

    /// The entries with numbers above this one, oldest first. What cannot be read is left out.
    pub(crate) fn after(&self, number: u64) -> Result<Vec<(u64, Entry)>, Failure> {
        let later = self.numbers()?.into_iter().filter(|later| *later > number);
        Ok(later.filter_map(|later| Some((later, self.read(later).ok()?))).collect())
    }

    /// The newest write to a cluster that is neither taken back nor itself a taking back.
    pub(crate) fn newest(&self, is_here: impl Fn(&Entry) -> bool) -> Result<Option<u64>, Failure> {
        let entries = self.after(0)?;
        let undone = taken_back(&entries);
        let is_plain = |(number, entry): &&(u64, Entry)| {
            entry.undoes.is_none() && !undone.contains_key(number) && is_here(entry)
        };
        Ok(entries.iter().rev().find(is_plain).map(|(number, _)| *number))
    }
}

/// Which writes are taken back, and by which. A taking back that was itself taken back is none.
pub(crate) fn taken_back(entries: &[(u64, Entry)]) -> BTreeMap<u64, u64> {
    let mut taken_back = BTreeMap::new();
    for (number, entry) in entries.iter().rev() {
        if let Some(undone) = entry.undoes
            && !taken_back.contains_key(number)
        {
            taken_back.insert(undone, *number);
        }
    }
    taken_back
}

/// Refuses a folder of somebody else; one that is not there yet will be ours.
fn check_owner(dir: &Path, own: u32) -> io::Result<()> {
    match fs::metadata(dir) {
        Ok(metadata) if metadata.uid() != own => Err(io::Error::other(format!(
            "{} belongs to another user (uid {}, not {own})",
            dir.display(),
            metadata.uid()
        ))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.json"))
}

fn numbers_in(dir: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number: Option<u64> =
            name.to_str().and_then(|name| name.strip_suffix(".json")?.parse().ok());
        numbers.extend(number.filter(|number| *number < NUMBER_MAX));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn make_room(dir: &Path) -> io::Result<()> {
    let mut kept_bytes = 0;
    for (age, number) in numbers_in(dir)?.iter().rev().enumerate() {
        let path = path(dir, *number);
        kept_bytes += fs::metadata(&path).map_or(0, |metadata| metadata.len());
        // The newest stays, however large: its number has been promised.
        if age > 0 && (age >= ENTRIES_MAX || kept_bytes > BYTES_MAX) {
            remove_if_there(&path)?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let changed = fs::symlink_metadata(&path).and_then(|metadata| metadata.modified());
        let age = changed.ok().and_then(|changed| changed.elapsed().ok());
        let is_unfinished = path.extension().is_some_and(|extension| extension == "new");
        if is_unfinished && age.is_some_and(|age| age > UNFINISHED_MAX) {
            remove_if_there(&path)?;
        }
    }
    Ok(())
}

/// Another command may make room at the same moment.
fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Per key, the revisions at which it is as the write left it: the one the write gave it, and
/// those by which later writes of ours were taken back to it.
fn equivalents<'e>(entry: &'e Entry, later: &[(u64, Entry)]) -> Revisions<'e> {
    let left = |change: &'e Change| (change.key.as_str(), change.revision.into_iter().collect());
    let mut same: Revisions<'e> = entry.changes.iter().map(left).collect();
    for one in later.iter().flat_map(|(_, entry)| &entry.changes) {
        if let Some(same) = same.get_mut(one.key.as_str())
            && one.stands_for.is_some_and(|revision| same.contains(&revision))
        {
            same.extend(one.revision);
        }
    }
    same
}

/// Which of our later writes left each key at its revision, or removed it.
fn culprits(later: &[(u64, Entry)]) -> BTreeMap<(&str, Option<i64>), u64> {
    let changes = later.iter().flat_map(|(number, entry)| {
        entry.changes.iter().map(|change| ((change.key.as_str(), change.revision), *number))
    });
    changes.collect()
}

/// What has to be put back to take a write back.
pub(crate) fn to_restore(
    store: &Store,
    history: &History,
    number: u64,
    entry: &Entry,
) -> Result<Vec<Restored>, Failure> {
    let mut later = history.after(number)?;
    later.retain(|(_, later)| later.cluster == entry.cluster);
    let to_do = to_do(store, entry, &later)?;
    if to_do.is_empty() {
        return Err(Failure::new(format!("all is as it was before write {number}")));
    }
    let restored = to_do.into_iter().map(|(change, current)| Restored {
        key: change.key.clone(),
        now: current.map(|current| (current.value, current.mod_revision)),
        value: change.before.as_ref().map(|before| before.0.clone()),
    });
    Ok(restored.collect())
}

/// Puts it back, in one transaction with the rules that delete and apply are held to.
pub(crate) fn take_back(
    resources: &Resources,
    number: u64,
    entry: &Entry,
    restored: &[Restored],
) -> Result<(), Failure> {
    resources.restore(restored).map_err(|why| match why {
        NotRestored::Refused(refusals) => {
            let what = Failure::new(format!("write {number} cannot be taken back"));
            refusals.iter().map(ToString::to_string).fold(what, Failure::detail)
        }
        NotRestored::Moved(keys) => {
            let what = Failure::new("somebody changed these objects at this moment");
            let moved = entry.changes.iter().filter(|change| keys.contains(&change.key));
            moved.map(|change| change.name.clone()).fold(what, Failure::detail)
        }
        NotRestored::Failed(error) => Failure::new(error.to_string()),
    })
}

type ToDo<'e> = Vec<(&'e Change, Option<KeyValue>)>;

/// The changes still to be taken back, each with what is stored now.
fn to_do<'e>(store: &Store, entry: &'e Entry, later: &[(u64, Entry)]) -> Result<ToDo<'e>, Failure> {
    let (equivalents, culprits) = (equivalents(entry, later), culprits(later));
    let (mut ours, mut theirs, mut to_do) = (Vec::new(), Vec::new(), Vec::new());
    for change in &entry.changes {
        let (current, _) = store.get(&change.key).map_err(unreachable)?;
        let is_as_left = match (&current, change.revision) {
            (None, None) => true,
            (Some(now), Some(_)) => {
                let same = equivalents.get(change.key.as_str());
                same.is_some_and(|same| same.contains(&now.mod_revision))
                    && change.digest.as_ref() == Some(&digest(&now.value))
            }
            _ => false,
        };
        // As an undo leaves it that was killed half way, and that can be said again.
        let before = change.before.as_ref().map(|before| &before.0);
        let is_back = current.as_ref().map(|current| &current.value) == before;
        let now = current.as_ref().map(|current| current.mod_revision);
        let culprit = culprits.get(&(change.key.as_str(), now));
        match (is_back, is_as_left, culprit) {
            (true, _, _) => {}
            (false, true, _) => to_do.push((change, current)),
            (false, false, Some(write)) => ours.push(format!(
                "{}: write {write} changed it later; margay undo {write} first",
                change.name
            )),
            (false, false, None) => theirs.push(describe(change, current.as_ref())),
        }
    }
    let what = match (theirs.is_empty(), ours.is_empty()) {
        (true, true) => return Ok(to_do),
        (true, false) => "later writes changed these objects; nothing was taken back",
        (false, _) => "somebody changed these objects since; nothing was taken back",
    };
    let is_theirs = !theirs.is_empty();
    let refused = theirs.into_iter().chain(ours).fold(Failure::new(what), Failure::detail);
    Err(match is_theirs {
        true => refused.help("margay get shows them; change them by hand"),
        false => refused.help("margay history"),
    })
}

fn describe(change: &Change, current: Option<&KeyValue>) -> String {
    let name = &change.name;
    match (change.revision, current) {
        (Some(then), Some(now)) if then == now.mod_revision => {
            format!("{name}: other contents at the same revision; was the store restored?")
        }
        (Some(then), Some(now)) => {
            format!("{name}: written again (revision {}, was {then})", now.mod_revision)
        }
        (Some(_), None) => format!("{name}: removed"),
        (None, _) => format!("{name}: made anew"),
    }
}

fn unreachable(error: store::Error) -> Failure {
    Failure::new(error.to_string())
}

#[cfg(test)]
mod tests;
