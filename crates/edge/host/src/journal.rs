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
    records.filter_map(|path| decode(&file::read(&path, SIZE_MAX).ok()?).ok()).collect()
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
            match read.and_then(|bytes| decode(&bytes)) {
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
        let body = encode(record)?;
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

/// What stands before the digest of a record, at the end of its file.
const DIGEST: &[u8] = b",\"digest\":\"";
/// What stands behind it.
const END: &[u8] = b"\"}";
/// How long it is.
const DIGEST_LEN: usize = 40;

/// A record with its digest as the last field: a spoilt one that can still be read would speak for
/// an address that is somebody else's.
fn encode(record: &Record) -> io::Result<Vec<u8>> {
    let mut body = serde_json::to_vec(record).map_err(io::Error::other)?;
    let digest = hex(&body);
    body.pop();
    body.extend([DIGEST, digest.as_bytes(), END].concat());
    Ok(body)
}

/// Reads a record; one of an older version has no digest.
fn decode(bytes: &[u8]) -> Result<Record, String> {
    let cut = bytes.len().checked_sub(DIGEST.len() + DIGEST_LEN + END.len());
    if let Some((body, seal)) = cut.and_then(|cut| bytes.split_at_checked(cut))
        && let Some(digest) = seal.strip_prefix(DIGEST).and_then(|it| it.strip_suffix(END))
        && digest != hex(&[body, b"}"].concat()).as_bytes()
    {
        return Err("its digest is another one".to_owned());
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// The digest of bytes, as text.
fn hex(bytes: &[u8]) -> String {
    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the file about a sandbox is called. Container ids are longer than file names may be in the
/// worst case, so names are digests.
pub(crate) fn file_name(identity: &Identity) -> String {
    format!("{}.json", hex(identity.alias().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        serde_json::from_str(
            r#"{"identity":{"container":"c1","interface":"eth0"},"network":"net1",
            "workload":"Plain","node":"n1","boot":"b","netns":{"device":4,"inode":7},
            "netns_path":"/run/netns/c1","endpoint":"n1-cni-c1-eth0","ipam":"calico-ipam",
            "addresses":[{"network":"10.65.0.5/26","sequence":3}],"wiring":{
            "host_interface":"calic1","container_interface":"eth0","mac":[2,0,0,0,0,1],
            "mtu":null,"queues":1,"addresses":["10.65.0.5"],"routes":["0.0.0.0/0"],
            "allow_forwarding":false},"profiles":["net1"],"labels":[],"phase":"ready"}"#,
        )
        .unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_older_files_too() {
        let record = record();
        assert_eq!(decode(&encode(&record).unwrap()), Ok(record.clone()));
        assert_eq!(decode(&serde_json::to_vec(&record).unwrap()), Ok(record));
    }

    #[test]
    fn a_file_that_is_spoilt_at_any_byte_says_nothing_wrong() {
        let record = record();
        let whole = encode(&record).unwrap();
        for place in 0..whole.len() {
            // Cut off, it is no record.
            assert!(decode(&whole[..place]).is_err(), "cut off at {place}");
            for bit in 0..8 {
                let mut spoilt = whole.clone();
                spoilt[place] ^= 1 << bit;
                // Whatever can still be read says the same.
                if let Ok(read) = decode(&spoilt) {
                    assert_eq!(read, record, "bit {bit} of byte {place}");
                }
            }
        }
    }
}
