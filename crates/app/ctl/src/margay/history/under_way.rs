//! Entries of writes that are under way.
//!
//! Such an entry is a line with its head, then for each transaction a line with what it is about
//! to change and a line with what became of it. The writer holds a lock on the file: an entry
//! without one was left by a writer that was killed, and the store tells what its last transaction
//! did.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use store::Store;
use store::resources::digest;

use super::{Change, Entry, History, NUMBER_MAX, make_room, numbers_in, path};

/// How a file of an entry under way begins.
pub(super) const MARK: &[u8] = b"{\"under_way\":true";

/// A line behind the head.
#[derive(Deserialize, Serialize)]
enum Step {
    /// One transaction is about to make these changes.
    Intended(Vec<Change>),
    /// It has made them, with this revision, or it has made none.
    Settled(Option<i64>),
}

/// An entry that this program is writing.
#[derive(Debug)]
pub(crate) struct UnderWay {
    dir: PathBuf,
    number: u64,
    file: File,
}

/// What one transaction did.
pub(crate) enum Effect {
    /// All its changes, with this revision; none where it only removed.
    Made(Option<i64>),
    /// Nothing.
    Nothing,
    /// Others have written all its keys since.
    Unknown,
}

impl History {
    /// Takes the next number for a write that is about to begin.
    pub(crate) fn begin(&self, head: &Entry) -> io::Result<UnderWay> {
        let dir = self.dir()?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let unfinished = unfinished(&dir);
        let begun = begin(&dir, &unfinished, head);
        let _ = fs::remove_file(&unfinished);
        let (number, file) = begun?;
        Ok(UnderWay { dir, number, file })
    }

    /// Settles what killed writers left, as far as this store can tell. Returns the numbers of
    /// those that stay open, and why.
    pub(crate) fn settle_leftovers(
        &self,
        store: Option<&Store>,
        is_here: impl Fn(&Entry) -> bool,
    ) -> Vec<(u64, String)> {
        let mut open = Vec::new();
        for number in self.numbers().unwrap_or_default() {
            let Ok(Some((left, entry, steps))) = self.leftover(number) else { continue };
            let settled = match store.filter(|_| is_here(&entry)) {
                Some(store) => settle(left, entry, steps, store),
                None => Err(format!("it went to {}", entry.store)),
            };
            open.extend(settled.err().map(|why| (number, why)));
        }
        open
    }

    /// Whether a killed writer left anything.
    pub(crate) fn has_leftovers(&self) -> bool {
        let numbers = self.numbers().unwrap_or_default();
        numbers.into_iter().any(|number| matches!(self.leftover(number), Ok(Some(_))))
    }

    /// The entry of this number, if its writer is dead; it is ours to settle then.
    fn leftover(&self, number: u64) -> io::Result<Option<(UnderWay, Entry, Vec<Step>)>> {
        let dir = self.dir()?;
        let path = path(&dir, number);
        let mut file = File::open(&path)?;
        let mut mark = [0; MARK.len()];
        if file.read_exact(&mut mark).is_err() || mark != MARK {
            return Ok(None);
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Its writer, or another reader, may have settled it before the lock was ours.
        if fs::metadata(&path)?.ino() != file.metadata()?.ino() {
            return Ok(None);
        }
        let (entry, steps) = parse(&fs::read(&path)?)?;
        Ok(Some((UnderWay { dir, number, file }, entry, steps)))
    }
}

impl UnderWay {
    /// Keeps what the next transaction is about to change, before it does.
    pub(crate) fn intend(&mut self, changes: &[Change]) -> io::Result<()> {
        self.append(&Step::Intended(changes.to_vec()))?;
        self.file.sync_data()
    }

    /// Keeps what became of it.
    pub(crate) fn settle(&mut self, revision: Option<i64>) -> io::Result<()> {
        self.append(&Step::Settled(revision))
    }

    fn append(&mut self, step: &Step) -> io::Result<()> {
        let mut line = serde_json::to_vec(step)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    /// Ends it: the entry stays under its number, and without changes there is none.
    pub(crate) fn end(self, entry: &Entry) -> io::Result<u64> {
        let Self { dir, number, file } = self;
        let place = path(&dir, number);
        if entry.changes.is_empty() {
            fs::remove_file(&place)?;
            return Ok(number);
        }
        let unfinished = unfinished(&dir);
        let text = serde_json::to_vec(&Entry { under_way: false, ..entry.clone() })?;
        let written = new_file(&unfinished).and_then(|mut file| file.write_all(&text));
        let ended = written.and_then(|()| fs::rename(&unfinished, &place));
        let _ = fs::remove_file(&unfinished);
        drop(file);
        ended?;
        make_room(&dir)?;
        Ok(number)
    }
}

fn unfinished(dir: &Path) -> PathBuf {
    dir.join(format!("{}.new", uuid::Uuid::new_v4().simple()))
}

/// Stored objects may hold secrets in annotations: nobody else reads them here. And what lies
/// there already, be it a link, is not written to.
fn new_file(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn begin(dir: &Path, unfinished: &Path, head: &Entry) -> io::Result<(u64, File)> {
    let mut file = new_file(unfinished)?;
    file.lock()?;
    let head = Entry { under_way: true, changes: Vec::new(), ..head.clone() };
    let mut line = serde_json::to_vec(&head)?;
    line.push(b'\n');
    file.write_all(&line)?;
    let mut number = numbers_in(dir)?.last().map_or(1, |last| last + 1);
    // A link, unlike a rename, fails where another command took the number at this moment.
    while let Err(error) = fs::hard_link(unfinished, path(dir, number)) {
        match error.kind() {
            io::ErrorKind::AlreadyExists if number < NUMBER_MAX => number += 1,
            _ => return Err(error),
        }
    }
    File::open(dir)?.sync_data()?;
    Ok((number, file))
}

/// Reads an entry under way. A last line that is cut off was never acted on.
fn parse(bytes: &[u8]) -> io::Result<(Entry, Vec<Step>)> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let entry = Entry::deserialize(&mut reader)?;
    let steps = reader.into_iter::<Step>().map_while(Result::ok).collect();
    Ok((entry, steps))
}

/// Settles what a killed writer left, or says why it stays open.
fn settle(left: UnderWay, mut entry: Entry, steps: Vec<Step>, store: &Store) -> Result<(), String> {
    let mut pending = Vec::new();
    for step in steps {
        match step {
            Step::Intended(changes) => pending = changes,
            Step::Settled(Some(revision)) => {
                merge(&mut entry.changes, std::mem::take(&mut pending), Some(revision));
            }
            Step::Settled(None) => pending.clear(),
        }
    }
    match effect(store, &pending).map_err(|error| error.to_string())? {
        Effect::Made(revision) => merge(&mut entry.changes, pending, revision),
        Effect::Nothing => {}
        Effect::Unknown => return Err("others have written the same objects since".to_owned()),
    }
    left.end(&entry).map_err(|error| error.to_string()).map(|_| ())
}

/// What a transaction did of which nobody saw the end. All its changes were made or none, so the
/// first key that can tell tells for all.
pub(crate) fn effect(store: &Store, changes: &[Change]) -> Result<Effect, store::Error> {
    if changes.is_empty() {
        return Ok(Effect::Nothing);
    }
    for change in changes {
        let now = store.get(&change.key)?.0;
        let revision = now.as_ref().map(|now| now.mod_revision);
        if revision == change.before_revision {
            return Ok(Effect::Nothing);
        }
        if now.map(|now| digest(&now.value)) == change.digest {
            return Ok(Effect::Made(revision));
        }
    }
    Ok(Effect::Unknown)
}

/// Adds what a transaction changed: of a key written twice, what was before the first time counts.
pub(crate) fn merge(made: &mut Vec<Change>, changes: Vec<Change>, revision: Option<i64>) {
    let places: std::collections::BTreeMap<String, usize> =
        made.iter().enumerate().map(|(place, change)| (change.key.clone(), place)).collect();
    for mut change in changes {
        change.revision = revision.filter(|_| change.digest.is_some());
        match places.get(&change.key).and_then(|place| made.get_mut(*place)) {
            Some(known) => (known.revision, known.digest) = (change.revision, change.digest),
            None => made.push(change),
        }
    }
}
