//! Objects at which the engine came to grief: they are put aside until somebody changes them.
//!
//! No object should be able to do that. Should one do it all the same, it is written down by its
//! key and a digest of its value, before the engine is built anew from everything else; the next
//! start of the agent finds it there, too.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

/// What is written down of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Poisoned {
    digest: String,
    why: String,
}

/// The list.
#[derive(Debug)]
pub(crate) struct Poison {
    path: PathBuf,
    objects: BTreeMap<String, Poisoned>,
}

/// The list is read up to this size; what is longer is not ours.
const BYTES_MAX: u64 = 1 << 20;

impl Poison {
    /// What was written down, if it can be read: a list that is lost costs one more rebuild.
    pub(crate) fn read(state: &Path) -> Self {
        let path = state.join("poison.json");
        let bytes = host::bounded::read_file(&path, BYTES_MAX).unwrap_or_default();
        let objects = serde_json::from_slice(&bytes).unwrap_or_default();
        Self { path, objects }
    }

    /// Why the value of a key must not be touched; none if it may.
    pub(crate) fn why(&self, key: &str, value: &[u8]) -> Option<&str> {
        let known = self.objects.get(key)?;
        (known.digest == digest(value)).then_some(known.why.as_str())
    }

    /// The keys of all of them.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.objects.keys().map(String::as_str)
    }

    /// Puts a value on the list.
    pub(crate) fn add(&mut self, key: &str, value: &[u8], why: &str) -> io::Result<()> {
        let poisoned = Poisoned { digest: digest(value), why: why.to_owned() };
        self.objects.insert(key.to_owned(), poisoned);
        self.write()
    }

    /// The key has another value by now, or none.
    pub(crate) fn forgive(&mut self, key: &str) {
        if self.objects.remove(key).is_some() {
            // The digest decides: an entry that stays on the disk does no harm.
            let _ = self.write();
        }
    }

    fn write(&self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.objects).map_err(io::Error::other)?;
        host::file::replace(&self.path, &self.path.with_extension("new"), &text)
    }
}

fn digest(value: &[u8]) -> String {
    Sha1::digest(value).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_put_aside_until_it_changes_and_over_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let mut poison = Poison::read(folder.path());
        poison.add("/k", b"bad", "it went wrong").unwrap();
        let again = Poison::read(folder.path());
        assert_eq!(again.why("/k", b"bad"), Some("it went wrong"));
        assert_eq!(again.why("/k", b"good"), None);
        assert_eq!(again.why("/other", b"bad"), None);
        poison.forgive("/k");
        assert_eq!(Poison::read(folder.path()).why("/k", b"bad"), None);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("poison.json"), b"{\"a\":").unwrap();
        assert_eq!(Poison::read(folder.path()).why("a", b""), None);
    }
}
