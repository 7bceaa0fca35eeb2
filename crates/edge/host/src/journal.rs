//! The journal of sandboxes: a file each, replaced whole.
//!
//! It must outlive the process, not the machine: after a reboot no sandbox lives any more, so
//! nothing is synced to the disk.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use sandbox::identity::Identity;
use sandbox::life::Record;
use sha1::{Digest, Sha1};

use crate::file;

/// The most that a record has.
const SIZE_MAX: u64 = 1 << 20;

/// All records, in memory and on disk.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    records: Mutex<BTreeMap<Identity, Record>>,
    /// Whether a record could not be written.
    has_failed: AtomicBool,
}

/// A file that is no record.
#[derive(Debug)]
pub struct Unreadable {
    /// Where it was put aside.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// The records of a folder, for somebody who only looks: nothing is made, moved or put aside, and
/// what cannot be read is passed over.
pub fn read(folder: &Path) -> Vec<Record> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let records = files.filter(|path| path.extension().is_some_and(|it| it == "json"));
    records
        .filter_map(|path| serde_json::from_slice(&file::read(&path, SIZE_MAX).ok()?).ok())
        .collect()
}

impl Journal {
    /// Reads the journal. What cannot be read is put aside under another name, and named.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<(Self, Vec<Unreadable>)> {
        let folder = folder.into();
        file::make_folder(&folder, 0o700)?;
        let mut records = BTreeMap::new();
        let mut unreadable = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let read = file::read(&path, SIZE_MAX).map_err(|error| error.to_string());
            let read = read.and_then(|bytes| {
                serde_json::from_slice::<Record>(&bytes).map_err(|error| error.to_string())
            });
            match read {
                Ok(record) => {
                    records.insert(record.identity.clone(), record);
                }
                Err(why) => {
                    unreadable.push(Unreadable { path: file::put_aside(&path), why });
                }
            }
        }
        let (records, has_failed) = (Mutex::new(records), AtomicBool::new(false));
        Ok((Self { folder, records, has_failed }, unreadable))
    }

    /// The record of a sandbox.
    pub fn get(&self, identity: &Identity) -> Option<Record> {
        self.lock().get(identity).cloned()
    }

    /// All records.
    pub fn all(&self) -> Vec<Record> {
        self.lock().values().cloned().collect()
    }

    /// The records of which something holds.
    pub fn matching(&self, holds: impl Fn(&Record) -> bool) -> Vec<Record> {
        self.lock().values().filter(|record| holds(record)).cloned().collect()
    }

    /// So many records behind one, in their order; from the first if none is named.
    pub fn after(&self, last: Option<&Identity>, n: usize) -> Vec<Record> {
        let start = last.map_or(Bound::Unbounded, Bound::Excluded);
        let records = self.lock();
        let behind = records.range::<Identity, _>((start, Bound::Unbounded));
        behind.take(n).map(|(_, record)| record.clone()).collect()
    }

    /// Whether there is such a record.
    pub fn any(&self, holds: impl Fn(&Record) -> bool) -> bool {
        self.lock().values().any(holds)
    }

    /// Writes a record.
    pub fn put(&self, record: &Record) -> io::Result<()> {
        let written = self.write(record);
        self.has_failed.fetch_or(written.is_err(), Ordering::AcqRel);
        written?;
        self.lock().insert(record.identity.clone(), record.clone());
        Ok(())
    }

    /// Whether a record could not be written since the last time.
    pub fn take_failed(&self) -> bool {
        self.has_failed.swap(false, Ordering::AcqRel)
    }

    /// Writes all records into a folder that is gone.
    pub fn write_anew(&self) -> io::Result<()> {
        file::make_folder(&self.folder, 0o700)?;
        // Nobody changes a record meanwhile.
        self.lock().values().try_for_each(|record| self.write(record))
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let body = serde_json::to_vec(record).map_err(io::Error::other)?;
        let path = self.path(&record.identity);
        file::replace(&path, &path.with_extension("new"), &body)
    }

    /// Removes a record.
    pub fn forget(&self, identity: &Identity) -> io::Result<()> {
        match fs::remove_file(self.path(identity)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.lock().remove(identity);
        Ok(())
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, identity: &Identity) -> PathBuf {
        self.folder.join(file_name(identity))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Identity, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the file about a sandbox is called. Container ids are longer than file names may be in the
/// worst case, so names are digests.
pub(crate) fn file_name(identity: &Identity) -> String {
    let digest = Sha1::digest(identity.alias().as_bytes());
    let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}.json")
}
