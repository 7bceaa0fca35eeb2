//! The files of the plugin `host-local`: one folder a network, one file an address. They belong to
//! another program, so nothing is changed but under the lock that it takes itself.
//!
//! The journal of moving them lies beside the folder: where Calico's own upgrade runs, in a
//! container, no other folder outlives it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sandbox::upgrade::Journal;

use crate::file;

/// Where it keeps its folders.
pub const USUAL_PLACE: &str = "/var/lib/cni/networks";
/// Names another place.
pub const PLACE_VARIABLE: &str = "MARGAY_NETWORKS_DIR";
/// The most that is read of a file.
const SIZE_MAX: u64 = 1 << 20;

/// The folder of one network.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    journal: PathBuf,
}

/// What holds the lock; dropping it lets it go.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Folder {
    /// That of a network, below the place where all of them are.
    pub fn of(place: &Path, network: &str) -> Self {
        let journal = place.join(format!("{network}.margay-upgrade.json"));
        Self { path: place.join(network), journal }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the journal of moving it lies.
    pub fn journal(&self) -> &Path {
        &self.journal
    }

    /// The names of its files, in order; none if there is no folder.
    pub fn names(&self) -> io::Result<Option<Vec<String>>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(Some(names))
    }

    /// What a file says.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        file::read(&self.path.join(name), SIZE_MAX)
    }

    /// Removes a file; one that is gone is no error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the folder, with the lock in it. One in which something is left stays.
    pub fn fold(&self) -> io::Result<()> {
        let names = self.names()?.unwrap_or_default();
        if let Some(left) = names.iter().find(|name| *name != "lock") {
            let told = format!("{left} is new in {}", self.path.display());
            return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, told));
        }
        self.remove("lock")?;
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the lock of host-local; none if somebody has it, or if there is no folder any more.
    pub fn try_lock(&self) -> io::Result<Option<Lock>> {
        let path = self.path.join("lock");
        let lock = match file::lock(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            lock => lock?,
        };
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            taken => taken?,
        }
        // Whoever had it may have removed it with the folder: then it locks nothing any more.
        let is_in_place = fs::metadata(&path).ok().zip(lock.metadata().ok());
        let is_in_place = is_in_place
            .is_some_and(|(there, held)| (there.dev(), there.ino()) == (held.dev(), held.ino()));
        Ok(is_in_place.then_some(Lock { _file: lock }))
    }

    /// What an earlier run left. One that cannot be read says nothing, and is written anew.
    pub fn recall(&self) -> io::Result<Option<Journal>> {
        match file::read(&self.journal, SIZE_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => Ok(serde_json::from_slice(&bytes?).ok()),
        }
    }

    /// Writes the journal.
    pub fn note(&self, journal: &Journal) -> io::Result<()> {
        let body = serde_json::to_vec(journal).map_err(io::Error::other)?;
        file::replace(&self.journal, &self.journal.with_extension("new"), &body)
    }

    /// Removes the journal.
    pub fn forget(&self) -> io::Result<()> {
        file::clear(&self.journal)
    }
}

/// Where host-local keeps its folders on this host.
pub fn place() -> PathBuf {
    let named = std::env::var_os(PLACE_VARIABLE).filter(|place| !place.is_empty());
    named.map_or_else(|| PathBuf::from(USUAL_PLACE), PathBuf::from)
}

/// Every address that host-local has given out on this host, whatever the network: nobody else may
/// get it here. What cannot be read names none.
pub fn addresses(place: &Path) -> BTreeSet<IpAddr> {
    let inside = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let names = inside(place).flat_map(|network| inside(&network.path()));
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(place: &Path) -> Folder {
        let folder = Folder::of(place, "net");
        fs::create_dir(folder.path()).unwrap();
        folder
    }

    #[test]
    fn files_are_listed_in_order_and_addresses_among_them_are_known() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(Folder::of(place.path(), "net").names().unwrap(), None);
        let folder = folder(place.path());
        for name in ["10.0.0.2", "fd00::1", "10.0.0.1", "lock", "last_reserved_ip.0"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let names = ["10.0.0.1", "10.0.0.2", "fd00::1", "last_reserved_ip.0", "lock"];
        assert_eq!(folder.names().unwrap().unwrap(), names);
        let given = names[..3].iter().map(|name| name.parse().unwrap()).collect();
        assert_eq!(addresses(place.path()), given);
        assert_eq!(addresses(&place.path().join("absent")), BTreeSet::new());
        assert!(folder.fold().is_err(), "somebody's file is in it");
    }

    #[test]
    fn the_lock_is_had_by_one_and_goes_with_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = folder(place.path());
        let held = folder.try_lock().unwrap().unwrap();
        assert!(folder.try_lock().unwrap().is_none());
        drop(held);
        let held = folder.try_lock().unwrap().unwrap();
        folder.fold().unwrap();
        assert!(folder.names().unwrap().is_none() && folder.try_lock().unwrap().is_none());
        drop(held);
    }

    #[test]
    fn a_journal_comes_back_and_a_spoilt_one_says_nothing() {
        let place = tempfile::tempdir().unwrap();
        let folder = folder(place.path());
        assert_eq!(folder.recall().unwrap(), None);
        let mut journal = Journal::resume(None, "guid", "n1");
        journal.claimed.insert("fd00::1".parse().unwrap(), "net.c".to_owned());
        folder.note(&journal).unwrap();
        assert_eq!(folder.recall().unwrap().as_ref(), Some(&journal));
        fs::write(folder.journal(), "{").unwrap();
        assert_eq!(folder.recall().unwrap(), None);
        folder.note(&journal).unwrap();
        assert_eq!(folder.recall().unwrap(), Some(journal));
        folder.forget().unwrap();
        assert!(!folder.journal().exists());
    }
}
