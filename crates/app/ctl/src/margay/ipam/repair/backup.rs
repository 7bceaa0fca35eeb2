//! What a repair overwrote, so that it can be put back.
//!
//! A file with a line for each record, written before the record is: after a kill -9 it names at
//! least what was changed. What was changed is seen in the datastore itself.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use ipam::repair::Change;
use serde::{Deserialize, Serialize};
use store::{Committed, Compare, Op, Txn};

use super::super::super::failure::Failure;
use super::super::super::kept_bytes::KeptBytes;
use super::super::super::session::{Session, with_surroundings};
use super::super::super::terminal::Mark;
use super::ask;

const FILE: &str = "repair.jsonl";
/// So many records are put back in one transaction.
const CHANGES_AT_ONCE: usize = 100;

/// Which datastore a backup is of.
#[derive(Debug, Deserialize, Serialize)]
struct Head {
    store: String,
    cluster: Option<String>,
    time: String,
}

/// One record, before and after.
#[derive(Debug, Deserialize, Serialize)]
struct Line {
    key: String,
    before: Option<KeptBytes>,
    after: Option<KeptBytes>,
}

/// The backup that a repair writes.
pub(super) struct Backup {
    path: PathBuf,
    head: Head,
    file: Option<File>,
}

fn folder() -> Result<PathBuf, Failure> {
    let state = with_surroundings(&Default::default(), |it| it.state_dir());
    let state = state.ok_or_else(|| {
        Failure::new("there is no folder for a backup").help("MARGAY_STATE_DIR=DIR")
    })?;
    Ok(state.join("ipam"))
}

fn failed(path: &std::path::Path, error: &io::Error) -> Failure {
    Failure::new(format!("the backup cannot be kept, {}", path.display())).why(error.to_string())
}

impl Backup {
    /// Nothing is written before there is something to keep: the backup of the repair before
    /// stays until then.
    pub(super) fn begin(session: &Session) -> Result<Self, Failure> {
        let time = store::ipam::now().text();
        let head = Head { store: session.place(), cluster: session.cluster()?, time };
        Ok(Self { path: folder()?.join(FILE), head, file: None })
    }

    /// Keeps records before they are changed; an error stops the change.
    pub(super) fn keep(&mut self, changes: &[&Change]) -> Result<(), store::Error> {
        let kept = self.write(changes);
        kept.map_err(|error| store::Error::NotRecorded(format!("{}: {error}", self.path.display())))
    }

    fn write(&mut self, changes: &[&Change]) -> io::Result<()> {
        let mut text = Vec::new();
        if self.file.is_none() {
            if let Some(folder) = self.path.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            let fresh = self.path.with_extension("new");
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
            serde_json::to_writer(&mut text, &self.head)?;
            text.push(b'\n');
            if self.path.exists() {
                fs::rename(&self.path, self.path.with_extension("1.jsonl"))?;
            }
            fs::rename(&fresh, &self.path)?;
            self.file = Some(file);
        }
        for change in changes {
            let line = Line {
                key: change.key.clone(),
                before: change.before.clone().map(KeptBytes),
                after: change.after.clone().map(KeptBytes),
            };
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        if let Some(file) = &mut self.file {
            file.write_all(&text)?;
            file.sync_data()?;
        }
        Ok(())
    }
}

/// Reads a backup: where it belongs, and the first state and the last of each record.
fn read(path: &std::path::Path) -> Result<(Head, BTreeMap<String, Line>), Failure> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::new(format!("there is no repair to undo, {}", path.display())));
        }
        Err(error) => return Err(failed(path, &error)),
    };
    let mut lines = BufReader::new(file).split(b'\n');
    let unreadable = || Failure::new(format!("the backup cannot be read, {}", path.display()));
    let head = lines.next().and_then(Result::ok).ok_or_else(unreadable)?;
    let head: Head = serde_json::from_slice(&head).map_err(|_| unreadable())?;
    let mut records: BTreeMap<String, Line> = BTreeMap::new();
    for line in lines {
        // The last line may be cut off: what it would have named was not changed.
        let bytes = line.map_err(|error| failed(path, &error))?;
        let Ok(line) = serde_json::from_slice::<Line>(&bytes) else { continue };
        match records.get_mut(&line.key) {
            Some(known) => known.after = line.after,
            None => drop(records.insert(line.key.clone(), line)),
        }
    }
    Ok((head, records))
}

/// Puts back what the last repair overwrote, if nothing of it changed since.
pub(super) fn undo(session: &Session, is_meant: bool) -> Result<u8, Failure> {
    let path = folder()?.join(FILE);
    let (head, records) = read(&path)?;
    let cluster = session.cluster()?;
    if head.cluster != cluster || (cluster.is_none() && head.store != session.place()) {
        let what = format!("the repair of {} was made at {}", head.time, head.store);
        return Err(Failure::new(what).help("choose its datastore with --store or --config"));
    }
    let mut puts = Vec::new();
    let mut changed = Vec::new();
    for (key, line) in &records {
        let (entry, _) = session.store.get(key)?;
        let now = entry.as_ref().map(|entry| &entry.value);
        if now == line.before.as_ref().map(|it| &it.0) {
            continue;
        }
        match now == line.after.as_ref().map(|it| &it.0) {
            true => puts.push((key, entry.map(|entry| entry.mod_revision), line)),
            false => changed.push(key),
        }
    }
    if !changed.is_empty() {
        let n = text::words::count(changed.len(), "record");
        let failure = Failure::new(format!("nothing was put back: {n} changed since the repair"))
            .help(format!("{} has what was there before", path.display()));
        return Err(changed.into_iter().take(20).fold(failure, |it, key| it.detail(key.clone())));
    }
    if !is_meant && !puts.is_empty() {
        let n = text::words::count(puts.len(), "record");
        session.terminal.page(&format!("to put back, as before {}: {n}\n", head.time))?;
        ask()?;
    }
    for some in puts.chunks(CHANGES_AT_ONCE) {
        let mut txn = Txn::default();
        for (key, revision, line) in some {
            txn.compares.push(match revision {
                Some(revision) => Compare::ModRevision((*key).clone(), *revision),
                None => Compare::Absent((*key).clone()),
            });
            txn.ops.push(match &line.before {
                Some(value) => Op::Put { key: (*key).clone(), value: value.0.clone() },
                None => Op::Delete { key: (*key).clone() },
            });
        }
        if let Committed::Conflict { .. } = session.store.commit(txn)? {
            return Err(Failure::new("records changed meanwhile; not all were put back")
                .help("margay ipam repair --undo"));
        }
    }
    let fine = session.terminal.mark(Mark::Fine);
    let n = text::words::count(puts.len(), "record");
    session.terminal.page(&format!("{fine} {n} put back, as before {}\n", head.time))?;
    Ok(0)
}
