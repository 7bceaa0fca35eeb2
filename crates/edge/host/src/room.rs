//! Whether the folder in which we keep things can be written to: a disk that is full or read-only
//! is found by looking, before a call needs it.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use crate::file;

/// With less room than this, only writing says whether there is any.
const SCARCE: u64 = 16 << 20;

/// What is written for a trial; more than a record of a sandbox has.
const TRIAL: [u8; 16 << 10] = [b'\n'; 16 << 10];

/// Looks whether a folder takes new files. That costs two calls of the kernel; one that is
/// doubted, or scarce of room, is written to.
pub fn look(folder: &Path, is_doubted: bool) -> io::Result<()> {
    access(folder, Access::WRITE_OK | Access::EXEC_OK)?;
    let is_scarce = statvfs(folder).is_ok_and(|there| {
        let has_few_names = there.f_files > 0 && there.f_favail == 0;
        there.f_bavail.saturating_mul(there.f_frsize) < SCARCE || has_few_names
    });
    if !is_doubted && !is_scarce {
        return Ok(());
    }
    let path = folder.join("trial.new");
    let written = file::write_new(&path, &TRIAL).map(drop);
    let _ = fs::remove_file(&path);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_gone_or_takes_no_file_is_said() {
        let folder = tempfile::tempdir().unwrap();
        look(folder.path(), false).unwrap();
        look(folder.path(), true).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the trial leaves nothing");
        fs::create_dir(folder.path().join("trial.new")).unwrap();
        assert!(look(folder.path(), true).is_err());
        let gone = look(&folder.path().join("gone"), false).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
