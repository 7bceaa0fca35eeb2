//! How files of ours are opened: whatever stands in the place of one, a named pipe, a device, a
//! folder or a link, holds nobody up and is named.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::OFlags;

use crate::bounded;

/// So many names are tried for a file that is put aside.
const ASIDE_MAX: usize = 100;

/// The bytes of a file of ours, unless it has more than this many.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    bounded::read(open(path, OpenOptions::new().read(true), OFlags::NOFOLLOW)?, bytes_max)
}

/// The same of a file that others write, who may put a link to it in its place.
pub fn read_linked(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    bounded::read(open_linked(path)?, bytes_max)
}

/// A file of settings. Who names one may mean a pipe, such as a shell makes; the usual places hold
/// files.
pub fn read_settings(path: &Path, named: Option<&Path>) -> io::Result<Vec<u8>> {
    match named == Some(path) {
        true => bounded::read_file(path, bounded::SETTINGS_BYTES_MAX),
        false => read_linked(path, bounded::SETTINGS_BYTES_MAX),
    }
}

/// Such a file, open for reading.
pub fn open_linked(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true), OFlags::empty())
}

/// A file of ours, open for reading.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true), OFlags::NOFOLLOW)
}

/// A file of ours that is written on at its end; made if there is none.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().append(true).create(true).mode(0o600), OFlags::NOFOLLOW)
}

/// Sets the time at which a file of ours was last changed.
pub(crate) fn touch(path: &Path, time: SystemTime) -> io::Result<()> {
    open(path, OpenOptions::new().write(true), OFlags::NOFOLLOW)?.set_modified(time)
}

/// A file that is nothing but a lock; made if there is none.
pub fn lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    open(path, options, OFlags::NOFOLLOW)
}

/// Puts a file in place, by way of another: whoever reads it sees the old bytes or these, never a
/// part.
pub fn replace(path: &Path, fresh: &Path, body: &[u8]) -> io::Result<()> {
    write_new(fresh, body)?;
    put_in_place(fresh, path)
}

/// Gives a file its name.
pub(crate) fn put_in_place(fresh: &Path, path: &Path) -> io::Result<()> {
    fs::rename(fresh, path).map_err(|error| explained(path, error))
}

/// Makes a folder, with those above it.
pub fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    let found = || fs::symlink_metadata(path).ok().map(|found| found.file_type());
    made.map_err(|error| match found() {
        Some(kind) if !path.is_dir() => {
            let what = stranger(kind).unwrap_or("a file");
            let told = format!("{what} stands there instead of a folder; move it away");
            io::Error::new(error.kind(), told)
        }
        _ => error,
    })
}

/// Writes a file anew, whatever stood in its place. One that cannot be written whole is not left.
pub(crate) fn write_new(path: &Path, body: &[u8]) -> io::Result<File> {
    clear(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    match file.write_all(body) {
        Ok(()) => Ok(file),
        Err(error) => {
            let _ = fs::remove_file(path);
            Err(error)
        }
    }
}

/// Removes whatever stands at a path, unless it is a folder.
pub fn clear(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(explained(path, error)),
        _ => Ok(()),
    }
}

/// Puts what cannot be used under another name beside it, and says which; its own if that is not
/// possible.
pub fn put_aside(path: &Path) -> PathBuf {
    let first = aside(path);
    let others = (1..ASIDE_MAX).map(|n| path.with_extension(format!("{n}.{ASIDE}")));
    let mut names = std::iter::once(first).chain(others);
    let free = names.find(|name| fs::symlink_metadata(name).is_err());
    let moved = free.filter(|name| fs::rename(path, name).is_ok());
    moved.unwrap_or_else(|| path.to_owned())
}

/// Where the first one of this name is put.
pub fn aside(path: &Path) -> PathBuf {
    path.with_extension(ASIDE)
}

/// What was put aside in a folder, in order.
pub fn put_aside_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_aside = |path: &PathBuf| path.extension().is_some_and(|it| it == ASIDE);
    let mut found: Vec<PathBuf> = entries.filter(is_aside).collect();
    found.sort();
    found
}

/// How the names of files end that were put aside.
pub(crate) const ASIDE: &str = "unreadable";

/// What stands at a path, in the words of people; none if it is a file.
pub fn stranger(kind: FileType) -> Option<&'static str> {
    let kinds = [
        (kind.is_dir(), "a folder"),
        (kind.is_symlink(), "a symbolic link"),
        (kind.is_fifo(), "a named pipe"),
        (kind.is_socket(), "a socket"),
        (kind.is_char_device() || kind.is_block_device(), "a device"),
    ];
    kinds.into_iter().find(|(is_it, _)| *is_it).map(|(_, what)| what)
}

/// Opens a file without waiting for anybody, and nothing but a file.
fn open(path: &Path, options: &mut OpenOptions, more: OFlags) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | more;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path);
    let file = file.map_err(|error| explained(path, error))?;
    match stranger(file.metadata()?.file_type()) {
        None => Ok(file),
        Some(what) => Err(misplaced(what)),
    }
}

/// The kernel's words for what is no file say little.
fn explained(path: &Path, error: io::Error) -> io::Error {
    use io::ErrorKind::{NotFound, PermissionDenied, StorageFull};
    if matches!(error.kind(), NotFound | PermissionDenied | StorageFull) {
        return error;
    }
    let found = fs::symlink_metadata(path).ok();
    found.and_then(|found| stranger(found.file_type())).map_or(error, misplaced)
}

fn misplaced(what: &str) -> io::Error {
    let told = format!("{what} stands there instead of a file; move it away");
    io::Error::new(io::ErrorKind::InvalidData, told)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode};

    use super::*;

    fn strangers(folder: &Path) -> Vec<PathBuf> {
        let [pipe, link, inside] = ["pipe", "link", "inside"].map(|name| folder.join(name));
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        symlink("link", &link).unwrap();
        fs::create_dir(&inside).unwrap();
        fs::write(inside.join("x"), "").unwrap();
        vec![pipe, link, inside]
    }

    #[test]
    fn whatever_is_no_file_is_named_and_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        for path in strangers(folder.path()) {
            let failures = [
                read(&path, 9).err(),
                append(&path).err(),
                lock(&path).err(),
                read_linked(&path, 9).err(),
            ];
            for failure in failures {
                let told = failure.unwrap().to_string();
                assert!(told.contains(" stands there instead of a file; move it away"), "{told}");
            }
        }
        assert_eq!(read(&folder.path().join("x"), 9).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_can_be_replaced_is_and_everything_can_be_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        for path in strangers(folder.path()) {
            let fresh = path.with_extension("new");
            rustix::fs::mkfifoat(CWD, &fresh, Mode::RUSR).unwrap();
            let is_folder = path.ends_with("inside");
            assert_eq!(replace(&path, &fresh, b"1").is_err(), is_folder);
            assert_eq!(read(&path, 9).ok(), (!is_folder).then(|| b"1".to_vec()));
            let first = put_aside(&path);
            assert_eq!(first, aside(&path));
            fs::write(&path, "2").unwrap();
            let second = put_aside(&path);
            assert!(!path.exists() && second != first && second.exists(), "{second:?}");
        }
    }
}
