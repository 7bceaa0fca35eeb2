//! What a node remembers of its datastore, for a start while that is gone: the objects that an ADD
//! needs, the endpoints of its own sandboxes, and the addresses in its reserve. Of objects that
//! cannot be used as they are stored, it remembers the last values that could be.
//!
//! One small file, written in full and renamed into place. What cannot be used is put aside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::file;
use crate::journal::Unreadable;

/// The most that is remembered. What does not fit is not remembered.
pub const BYTES_MAX: usize = 4 << 20;
/// The most that is read back: quotes and escapes take room.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The form of the file.
const FORMAT: u32 = 1;

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    format: u32,
    /// The node whose memory it is.
    pub node: String,
    /// The datastore that it is about.
    pub place: String,
    /// Values by key.
    pub objects: BTreeMap<String, String>,
    /// Whether nothing of what is worth remembering was left out.
    #[serde(default)]
    pub is_whole: bool,
    /// The revisions of these values, where they are known.
    #[serde(default)]
    pub revisions: BTreeMap<String, i64>,
    /// The last values that could be used, of objects whose stored value cannot be.
    #[serde(default)]
    pub earlier: BTreeMap<String, Earlier>,
    /// Addresses that the node holds for sandboxes to come.
    pub reserve: BTreeSet<IpAddr>,
}

/// A value that an object had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// The value.
    pub value: String,
    /// Its revision; 0 if that is not known.
    pub revision: i64,
}

impl Known {
    /// Nothing, about a node and its datastore.
    pub fn new(node: impl Into<String>, place: impl Into<String>) -> Self {
        let (node, place) = (node.into(), place.into());
        Self { format: FORMAT, node, place, ..Self::default() }
    }

    /// Reads the memory of a node: nothing if there is none, or if it is about another node or
    /// another datastore. A file that cannot be used is put aside under another name, and named.
    pub fn read(path: &Path, node: &str, place: &str) -> (Self, Option<Unreadable>) {
        let nothing = Self::new(node, place);
        let read = match file::read(path, FILE_BYTES_MAX) {
            Ok(bytes) => serde_json::from_slice::<Self>(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (nothing, None),
            Err(error) => Err(error.to_string()),
        };
        let read = read.and_then(|known| match known.format {
            FORMAT => Ok(known),
            other => Err(format!("form {other} is not known, {FORMAT} is")),
        });
        match read {
            Ok(known) if known.node == node && known.place == place => (known, None),
            Ok(_) => (nothing, None),
            // One that cannot even be renamed is written over later, or stays unreadable.
            Err(why) => (nothing, Some(Unreadable { path: file::put_aside(path), why })),
        }
    }

    /// When a memory was last known to be true, as far as its file says.
    pub fn as_of(path: &Path) -> Option<SystemTime> {
        fs::symlink_metadata(path).and_then(|file| file.modified()).ok()
    }

    /// Takes note that what is in the file was still true at a time.
    pub fn confirm(path: &Path, time: SystemTime) -> io::Result<()> {
        file::touch(path, time)
    }

    /// Writes it, so that a crash leaves the old or the new memory.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            file::make_folder(folder, 0o700)?;
        }
        let body = serde_json::to_vec(self).map_err(io::Error::other)?;
        let fresh = path.with_extension("new");
        file::write_new(&fresh, &body)?.sync_all()?;
        file::put_in_place(&fresh, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let objects = BTreeMap::from([("/calico/x".to_owned(), "{\"a\":\"\u{e9}\"}".to_owned())]);
        let reserve = BTreeSet::from(["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]);
        Known { objects, reserve, ..Known::new("n1", "etcd a") }
    }

    #[test]
    fn what_was_written_is_read_by_the_same_node_of_the_same_datastore() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/known.json");
        assert_eq!(Known::read(&path, "n1", "etcd a").0, Known::new("n1", "etcd a"));
        known().write(&path).unwrap();
        known().write(&path).unwrap();
        assert_eq!(Known::read(&path, "n1", "etcd a").0, known());
        assert_eq!(Known::read(&path, "n2", "etcd a").0, Known::new("n2", "etcd a"));
        assert_eq!(Known::read(&path, "n1", "etcd b").0, Known::new("n1", "etcd b"));
    }

    #[test]
    fn what_cannot_be_used_is_put_aside_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known.json");
        let half = serde_json::to_string(&known()).unwrap();
        let other_form = half.replace("\"format\":1", "\"format\":9");
        for bad in ["", "[]", "\u{0}", &half[..half.len() / 2], &other_form] {
            fs::write(&path, bad).unwrap();
            let (read, unreadable) = Known::read(&path, "n1", "etcd a");
            assert_eq!(read, Known::new("n1", "etcd a"), "{bad}");
            let aside = unreadable.unwrap().path;
            assert_eq!(aside, file::aside(&path), "{bad}");
            assert!(!path.exists() && aside.exists());
            fs::remove_file(aside).unwrap();
        }
    }
}
