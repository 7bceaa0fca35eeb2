//! `lab down`: ends and removes everything of a lab, and looks whether anything is left.
//!
//! Nothing here relies on what was written down: processes are found by their mark and by the
//! namespaces they are in, mounts by the kernel's own list.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;
use serde_json::json;

use crate::Outcome;
use crate::arguments::Format;
use crate::failure::Failure;
use crate::lab::flag;
use crate::place::Place;
use crate::processes;
use crate::screen::{Screen, count};

/// What was removed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Removed {
    n_processes: usize,
    n_namespaces: usize,
}

/// The command.
pub(crate) fn run(place: &Place, all: bool, format: Format) -> Result<Outcome, Failure> {
    let screen = Screen::detect(format);
    let mut labs = Vec::new();
    let places = match all {
        true => Place::all()?,
        false => vec![place.clone()],
    };
    if places.is_empty() {
        screen.say(&format!("{} there is no lab\n", screen.mark(Outcome::Fine)))?;
    }
    for place in &places {
        let name = &place.name;
        let mark = screen.mark(Outcome::Fine);
        if !place.folder.exists() && processes::all(place).is_empty() {
            screen.say(&format!("{mark} there is no lab {name:?}\n"))?;
            continue;
        }
        let lock = place.lock()?;
        let removed = remove(place)?;
        place.forget(&lock);
        labs.push(json!({
            "name": name,
            "processes": removed.n_processes,
            "namespaces": removed.n_namespaces,
        }));
        let ended = count(removed.n_processes, "process");
        let namespaces = count(removed.n_namespaces, "namespace");
        screen.say(&format!(
            "{mark} lab {name:?} is down: {ended} ended, {namespaces} and the folder removed; \
             nothing is left\n"
        ))?;
    }
    screen.answer(&json!({"removed": labs}))?;
    Ok(Outcome::Fine)
}

/// Removes everything of a lab.
pub(crate) fn remove(place: &Place) -> Result<Removed, Failure> {
    // First of all: what is left of a removal that is interrupted must not pass for a lab.
    let _ = fs::remove_file(place.state());
    let entries = fs::read_dir(place.namespaces()).into_iter().flatten().flatten();
    let n_namespaces = entries.count();
    let (n_processes, left) = processes::end(|| processes::all(place));
    if !left.is_empty() {
        let pids: Vec<String> = left.iter().map(|process| process.pid.to_string()).collect();
        return Err(Failure::new(format!("processes of the lab {:?} do not end", place.name))
            .why(format!("still there: {}", pids.join(" ")))
            .help(format!("as the user who made it: margay lab down{}", flag(&place.name))));
    }
    for path in mounts_below(&place.folder)? {
        rustix::mount::unmount(&path, UnmountFlags::DETACH).map_err(|errno| {
            Failure::new(format!("{} cannot be unmounted", path.display())).why(errno)
        })?;
    }
    match fs::remove_dir_all(&place.folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            let what = format!("the folder {} cannot be removed", place.folder.display());
            return Err(Failure::new(what).why(error));
        }
    }
    // One that was just becoming a program of the lab has said only since whose it is.
    let (n_late, _) = processes::end(|| processes::all(place));
    verify(place)?;
    Ok(Removed { n_processes: n_processes + n_late, n_namespaces })
}

/// A second look, at what the kernel says and not at what was done.
fn verify(place: &Place) -> Result<(), Failure> {
    let mut failure = Failure::new(format!("something of the lab {:?} is left", place.name));
    let processes = processes::all(place);
    let mounts = mounts_below(&place.folder)?;
    for process in &processes {
        failure = failure.detail(format!("process {}", process.pid));
    }
    for mount in &mounts {
        failure = failure.detail(format!("mount {}", mount.display()));
    }
    let has_folder = place.folder.exists();
    if has_folder {
        failure = failure.detail(format!("folder {}", place.folder.display()));
    }
    match processes.is_empty() && mounts.is_empty() && !has_folder {
        true => Ok(()),
        false => Err(failure),
    }
}

/// Mount points below a folder, innermost first.
fn mounts_below(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let table = fs::read("/proc/self/mountinfo")
        .map_err(|error| Failure::new(format!("/proc/self/mountinfo: {error}")))?;
    let points = table.split(|byte| *byte == b'\n').filter_map(mount_point);
    let mut below: Vec<PathBuf> = points.filter(|path| path.starts_with(folder)).collect();
    below.sort();
    below.reverse();
    Ok(below)
}

/// The fifth field of a line, in which blanks and the like are written as octal digits.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let field = line.split(|byte| *byte == b' ').nth(4)?;
    let mut path = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let byte =
            octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_blanks() {
        let line = b"36 35 0:4 net:[4026532] /run/my\\040lab/netns/n1 rw shared:5 - nsfs nsfs rw";
        assert_eq!(mount_point(line), Some(PathBuf::from("/run/my lab/netns/n1")));
        assert_eq!(mount_point(b"1 2 3 4 a\\04"), Some(PathBuf::from("a\\04")));
        assert_eq!(mount_point(b"1 2"), None);
    }
}
