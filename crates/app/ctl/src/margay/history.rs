//! The writes made under the name `margay`, kept so that each can be taken back.
//!
//! An entry is a file beside the user's state: the cluster, the stored bytes of every object before
//! the write, and the revision and digest that the write gave it. Taking it back is one
//! compare-and-swap, so what somebody else changed since is never overwritten. While the write is
//! under way the entry says what it is about to do, so that a killed one can be taken back too.

mod lineage;
pub(crate) mod take_back;
mod unconfirmed;
pub(crate) mod under_way;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

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
    /// How many objects it set out to take back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) n_to_undo: usize,
    /// Whether it took back only a part of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_part: bool,
    /// What is not certain about it, for people. The keys that are known to be as it would have
    /// left them have a revision, or were removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uncertain: Option<String>,
    /// What it changed.
    pub(crate) changes: Vec<Change>,
}

impl Entry {
    /// Whether the store at this place, of this cluster, can tell what became of it. A copy has
    /// the same cluster, and tells of something else.
    pub(crate) fn is_told_by(&self, place: &str, cluster: Option<&str>) -> bool {
        self.store == place && (self.cluster.is_none() || self.cluster.as_deref() == cluster)
    }

    /// Whether no object is known to be as the write left it and not as it was before.
    fn has_nothing_to_take_back(&self) -> bool {
        let is_told = self.uncertain.is_some() || !self.changes.is_empty();
        is_told && self.changes.iter().all(|change| change.is_unknown() || change.is_idle())
    }
}

fn is_zero(n: &usize) -> bool {
    *n == 0
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
    /// The revision the write gave it; none if the write removed it, and where that is not known.
    pub(crate) revision: Option<i64>,
    /// The digest of the bytes that the write stored: revisions repeat in a restored store.
    pub(crate) digest: Option<String>,
    /// When the write left older bytes there: the revision those had before.
    pub(crate) stands_for: Option<i64>,
}

impl Change {
    fn is_unknown(&self) -> bool {
        self.revision.is_none() && self.digest.is_some()
    }

    /// Whether the write left what was there before.
    fn is_idle(&self) -> bool {
        self.stands_for.is_some() && self.stands_for == self.before_revision
    }

    fn is_removal(&self) -> bool {
        self.revision.is_none() && self.digest.is_none()
    }
}

/// The entries that are kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Those that can be read, oldest first, writes under way included.
    pub(crate) entries: Vec<(u64, Entry)>,
    /// The others, and why.
    pub(crate) unreadable: Vec<(u64, Failure)>,
}

/// The folder of entries.
#[derive(Clone, Debug)]
pub(crate) struct History {
    state_dir: Option<PathBuf>,
    /// How this program is called so that it meets the same datastore again.
    program: String,
}

impl History {
    /// The history below a state folder; without one nothing is kept.
    pub(crate) fn below(state_dir: Option<PathBuf>) -> Self {
        Self { state_dir, program: "margay".to_owned() }
    }

    /// The same, for a program that is called with flags that choose the datastore.
    pub(crate) fn called(self, program: String) -> Self {
        Self { program, ..self }
    }

    /// The command that takes a write back, to be pasted.
    pub(crate) fn undo_command(&self, number: u64) -> String {
        format!("{} undo {number}", self.program)
    }

    /// The command that keeps a write which is taken back otherwise, to be pasted.
    pub(crate) fn confirm_command(&self, number: u64) -> String {
        format!("{} confirm {number}", self.program)
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

    /// Reads an entry. Of a write under way it has what is certain by now.
    pub(crate) fn read(&self, number: u64) -> Result<Entry, Failure> {
        let gone = || Failure::new(format!("there is no write {number} to take back"));
        let path = match self.dir() {
            Ok(dir) => path(&dir, number),
            Err(error) => return Err(gone().why(error.to_string())),
        };
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => gone().help("margay history lists those that are kept"),
            _ => Failure::new(format!("the record of write {number} cannot be read"))
                .why(format!("{}: {error}", path.display())),
        };
        let mut bytes = Vec::new();
        let mut file = open_regular(&path).map_err(unreadable)?;
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.starts_with(under_way::MARK) {
            return self.read_under_way(number, &file, &bytes).map_err(unreadable);
        }
        serde_json::from_slice(&bytes).map_err(|error| unreadable(error.into()))
    }

    /// All entries. One that went away at this moment is none.
    pub(crate) fn kept(&self) -> Result<Kept, Failure> {
        let mut kept = Kept::default();
        for number in self.numbers()? {
            match self.read(number) {
                Ok(entry) => kept.entries.push((number, entry)),
                Err(_) if !self.is_there(number) => {}
                Err(failure) => kept.unreadable.push((number, failure)),
            }
        }
        Ok(kept)
    }

    fn is_there(&self, number: u64) -> bool {
        self.dir().is_ok_and(|dir| fs::symlink_metadata(path(&dir, number)).is_ok())
    }

    /// The newest write to a cluster that is neither taken back nor itself a taking back, of those
    /// before a number. Those that are `open` were cut short; others under way are not over yet.
    pub(crate) fn newest(
        &self,
        before: u64,
        is_here: impl Fn(&Entry) -> bool,
        open: &[(u64, String)],
    ) -> Result<Option<u64>, Failure> {
        let Kept { entries, mut unreadable } = self.kept()?;
        unreadable.retain(|(number, _)| *number < before);
        let undone = taken_back(&entries);
        let is_over = |number: &u64, entry: &Entry| {
            !entry.under_way || open.iter().any(|(open, _)| open == number)
        };
        let is_plain = |(number, entry): &&(u64, Entry)| {
            *number < before
                && entry.undoes.is_none()
                && !undone.contains_key(number)
                && !entry.has_nothing_to_take_back()
                && is_over(number, entry)
                && is_here(entry)
        };
        let newest = entries.iter().rev().find(is_plain).map(|(number, _)| *number);
        match unreadable.into_iter().rfind(|(number, _)| Some(*number) > newest) {
            None => Ok(newest),
            Some((_, failure)) => Err(match newest {
                Some(number) => {
                    failure.help(format!("{} passes over it", self.undo_command(number)))
                }
                None => failure,
            }),
        }
    }
}

/// Opens a file to read, and nothing that would make us wait or lead elsewhere.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Which writes are taken back, and by which. A taking back that was itself taken back is none.
pub(crate) fn taken_back(entries: &[(u64, Entry)]) -> BTreeMap<u64, u64> {
    let mut taken_back = BTreeMap::new();
    for (number, entry) in entries.iter().rev() {
        if let Some(undone) = entry.undoes
            && !entry.is_part
            && !entry.under_way
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

#[cfg(test)]
mod tests;
