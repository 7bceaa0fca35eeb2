//! Entries of writes that are under way.
//!
//! Such an entry is a line with its head, then for each transaction a line with what it is about
//! to change and a line with what became of it. The writer holds a lock on the file: an entry
//! without one was left by a writer that was killed. What its last transaction did is told by the
//! store at the place it went to, as far as that can be known; the rest is kept as not certain.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use store::Store;
use store::resources::{Name, digest};

use super::{Change, Entry, History, NUMBER_MAX, make_room, numbers_in, open_regular, path};

/// How a file of an entry under way begins.
pub(super) const MARK: &[u8] = b"{\"under_way\":true";

/// A line behind the head.
#[derive(Deserialize, Serialize)]
enum Step {
    /// One transaction is about to make changes.
    Intended(Intent),
    /// It has made them, with this revision, or it has made none.
    Settled(Option<i64>),
}

/// What one transaction is about to do.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Intent {
    /// The revision of the store at that time, where it was told.
    pub(crate) store_revision: Option<i64>,
    /// The changes; which revision they get is not known yet.
    pub(crate) changes: Vec<Change>,
}

/// An entry that this program is writing.
#[derive(Debug)]
pub(crate) struct UnderWay {
    dir: PathBuf,
    pub(crate) number: u64,
    file: File,
}

/// What a killed writer left.
struct Leftover {
    under_way: UnderWay,
    entry: Entry,
    /// The transactions whose end nobody saw.
    open: Vec<Intent>,
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

    /// Settles what killed writers left at the place of this store. Returns the numbers of those
    /// that stay open, and why.
    pub(crate) fn settle_leftovers(
        &self,
        store: Result<&Store, String>,
        is_here: impl Fn(&Entry) -> bool,
    ) -> Vec<(u64, String)> {
        let mut open = Vec::new();
        for number in self.numbers().unwrap_or_default() {
            let Ok(Some(left)) = self.leftover(number) else { continue };
            let settled = match &store {
                Ok(store) if is_here(&left.entry) => self.settle(left, store),
                Ok(_) => Err(format!("it went to {}, which has to tell", left.entry.store)),
                Err(why) => Err(why.clone()),
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
    fn leftover(&self, number: u64) -> io::Result<Option<Leftover>> {
        let dir = self.dir()?;
        let path = path(&dir, number);
        let mut file = open_regular(&path)?;
        let mut bytes = vec![0; MARK.len()];
        if file.read_exact(&mut bytes).is_err() || bytes != MARK {
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
        file.read_to_end(&mut bytes)?;
        let (entry, open) = parse(&bytes)?;
        Ok(Some(Leftover { under_way: UnderWay { dir, number, file }, entry, open }))
    }

    /// Settles what a killed writer left, or says why it stays open.
    fn settle(&self, left: Leftover, store: &Store) -> Result<(), String> {
        let Leftover { under_way, mut entry, open } = left;
        let is_known = open.is_empty();
        for intent in open {
            conclude(store, &mut entry, intent).map_err(|error| error.to_string())?;
        }
        entry.is_part = entry.undoes.is_some_and(|undone| !self.is_whole(undone, &entry));
        match under_way.end(&entry) {
            Err(error) if !is_known => Err(error.to_string()),
            // What is known to its last line is read from its lines, should the disk be full.
            _ => Ok(()),
        }
    }

    /// What the file of an entry under way says. One whose writer is gone, and whose every
    /// transaction is known, is over.
    pub(super) fn read_under_way(
        &self,
        number: u64,
        file: &File,
        bytes: &[u8],
    ) -> io::Result<Entry> {
        let (mut entry, open) = parse(bytes)?;
        if open.is_empty() && file.try_lock_shared().is_ok() {
            entry.under_way = false;
            let undone = entry.undoes.filter(|undone| *undone < number);
            entry.is_part = undone.is_some_and(|undone| !self.is_whole(undone, &entry));
        }
        Ok(entry)
    }

    /// Whether all is back that was meant to be, whoever did it.
    fn is_whole(&self, undone: u64, entry: &Entry) -> bool {
        let Ok(undone) = self.read(undone) else { return false };
        let keys: BTreeSet<&str> = undone.changes.iter().map(|it| it.key.as_str()).collect();
        let is_back = |change: &&Change| keys.contains(change.key.as_str()) && !change.is_unknown();
        entry.changes.iter().filter(is_back).count() >= entry.n_to_undo
    }
}

impl UnderWay {
    /// Keeps what the next transaction is about to change, before it does.
    pub(crate) fn intend(&mut self, intent: &Intent) -> io::Result<()> {
        self.append(&Step::Intended(intent.clone()))?;
        self.file.sync_data()
    }

    /// Keeps what became of it.
    pub(crate) fn settle(&mut self, revision: Option<i64>) -> io::Result<()> {
        self.append(&Step::Settled(revision))
    }

    fn append(&mut self, step: &Step) -> io::Result<()> {
        let mut line = serde_json::to_vec(step)?;
        line.push(b'\n');
        let length = self.file.seek(SeekFrom::End(0))?;
        self.file.write_all(&line).inspect_err(|_| {
            // Half a line would hide all that comes after it.
            let _ = self.file.set_len(length);
        })
    }

    /// From now on its disk is full.
    #[cfg(test)]
    pub(crate) fn fill_disk(&mut self) {
        self.file = File::options().write(true).open("/dev/full").unwrap();
    }

    /// Removes it: nothing was kept, and nothing is to be.
    pub(crate) fn forget(self) {
        let _ = fs::remove_file(path(&self.dir, self.number));
    }

    /// Ends it: the entry stays under its number. Without changes there is none.
    pub(crate) fn end(self, entry: &Entry) -> io::Result<u64> {
        let Self { dir, number, file } = self;
        let place = path(&dir, number);
        // A taking back that was stopped before its first change may have cleared ahead of it.
        if entry.changes.is_empty() && !entry.is_part {
            fs::remove_file(&place)?;
            return Ok(number);
        }
        let unfinished = unfinished(&dir);
        let text = serde_json::to_vec(&Entry { under_way: false, ..entry.clone() })?;
        let written = new_file(&unfinished).and_then(|mut file| {
            file.write_all(&text)?;
            // A name must never lead to less than what it stood for.
            file.sync_all()
        });
        let ended = written.and_then(|()| fs::rename(&unfinished, &place));
        let _ = fs::remove_file(&unfinished);
        drop(file);
        ended?;
        File::open(&dir)?.sync_data()?;
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

/// Reads an entry under way, and the transactions whose end is not kept. A last line that is cut
/// off was never acted on.
fn parse(bytes: &[u8]) -> io::Result<(Entry, Vec<Intent>)> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let mut entry = Entry::deserialize(&mut reader)?;
    let mut open: Vec<Intent> = Vec::new();
    for step in reader.into_iter::<Step>().map_while(Result::ok) {
        match step {
            Step::Intended(intent) => open.push(intent),
            Step::Settled(revision) => {
                let intent = open.pop();
                if let (Some(intent), Some(revision)) = (intent, revision) {
                    merge(&mut entry.changes, intent.made_at(revision));
                }
            }
        }
    }
    Ok((entry, open))
}

impl Intent {
    /// Its changes, once it has been made with this revision.
    pub(crate) fn made_at(self, revision: i64) -> Vec<Change> {
        let mut changes = self.changes;
        for change in &mut changes {
            change.revision = change.digest.is_some().then_some(revision);
        }
        changes
    }
}

/// Adds to an entry what a transaction did of which nobody saw the end, as far as it can be known:
/// all its changes were made or none.
///
/// A key that was there and is untouched proves that none was made, and so does a store at the
/// same revision. A new object with the bytes of this write, which hold an identifier of its own,
/// proves that all were. Anything else others may have done as well: then each key counts that is
/// as the write would have left it, and the entry says that it is not certain.
///
/// Returns whether there is a trace of it.
pub(crate) fn conclude(
    store: &Store,
    entry: &mut Entry,
    mut intent: Intent,
) -> Result<bool, store::Error> {
    if intent.changes.is_empty() {
        return Ok(true);
    }
    let (mut is_untouched, mut is_proven, mut made_at, mut n_left) = (false, false, None, 0);
    let mut latest = None;
    for change in &mut intent.changes {
        let (now, store_revision) = store.get(&change.key)?;
        latest = latest.max(Some(store_revision));
        let at = now.as_ref().map(|now| now.mod_revision);
        is_untouched |= at.is_some()
            && at == change.before_revision
            && now.as_ref().map(|now| &now.value) == change.before.as_ref().map(|it| &it.0);
        if now.map(|now| digest(&now.value)) == change.digest {
            n_left += 1;
            change.revision = at;
            is_proven |= is_fresh(change);
            made_at = made_at.into_iter().chain(at).min();
        }
    }
    let is_older = latest < intent.store_revision;
    if !is_older && !is_proven && (is_untouched || latest == intent.store_revision) {
        return Ok(false);
    }
    let n = intent.changes.len();
    if is_proven && !is_untouched && !is_older {
        for change in intent.changes.iter_mut().filter(|change| change.digest.is_some()) {
            change.revision = change.revision.or(made_at);
        }
    } else {
        entry.uncertain = Some(format!(
            "whether it was made, or others did the same: {n_left} of {n} objects are as it would \
             have left them"
        ));
    }
    merge(&mut entry.changes, intent.changes);
    Ok(true)
}

/// Whether the bytes of the change can be of this write only: new objects get an identifier.
fn is_fresh(change: &Change) -> bool {
    let is_new = change.before_revision.is_none() && change.stands_for.is_none();
    is_new && change.digest.is_some() && Name::at_key(&change.key).is_some()
}

/// Adds what a transaction changed: of a key written twice, what was before the first time counts.
pub(crate) fn merge(made: &mut Vec<Change>, changes: Vec<Change>) {
    let places: BTreeMap<String, usize> =
        made.iter().enumerate().map(|(place, change)| (change.key.clone(), place)).collect();
    for change in changes {
        match places.get(&change.key).and_then(|place| made.get_mut(*place)) {
            Some(known) => {
                (known.revision, known.digest) = (change.revision, change.digest);
                let before = known.before.as_ref().map(|before| digest(&before.0));
                let is_same = before.is_some() && before == known.digest;
                known.stands_for = if is_same { known.before_revision } else { change.stands_for };
            }
            None => made.push(change),
        }
    }
}
