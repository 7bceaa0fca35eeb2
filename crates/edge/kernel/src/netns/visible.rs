//! The network namespaces that can be found: those that are bound to a file, as container runtimes
//! do it, and those that a process is in.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Netns;

/// A namespace and the ways to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleNetns {
    /// A path that opens it: a file that it is bound to, or one of a process.
    pub path: PathBuf,
    /// How many processes are in it.
    pub n_processes: usize,
}

impl Netns {
    /// Every namespace that can be found, by the inode of its file.
    pub fn visible() -> BTreeMap<u64, VisibleNetns> {
        visible_below(Path::new("/proc"))
    }
}

fn visible_below(processes: &Path) -> BTreeMap<u64, VisibleNetns> {
    let mounts = fs::read_to_string(processes.join("self/mountinfo")).unwrap_or_default();
    let mut found: BTreeMap<u64, VisibleNetns> = mounts
        .lines()
        .filter_map(bound)
        .map(|(inode, path)| (inode, VisibleNetns { path, n_processes: 0 }))
        .collect();
    let entries = fs::read_dir(processes).into_iter().flatten().flatten();
    let is_process = |entry: &fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok())
    };
    for entry in entries.filter(is_process) {
        let path = entry.path().join("ns/net");
        let link = fs::read_link(&path).unwrap_or_default();
        let Some(inode) = link.to_str().and_then(inode) else { continue };
        found.entry(inode).or_insert(VisibleNetns { path, n_processes: 0 }).n_processes += 1;
    }
    found
}

/// The namespace that a line of the mount table is about, and where it is bound to.
fn bound(line: &str) -> Option<(u64, PathBuf)> {
    let mut words = line.split(' ');
    let (root, place) = (words.nth(3)?, words.next()?);
    line.contains(" - nsfs ").then_some(())?;
    // Blanks in paths are written as octal numbers: no runtime has any.
    Some((inode(root)?, PathBuf::from(place)))
}

/// The number in `net:[4026531840]`.
fn inode(text: &str) -> Option<u64> {
    text.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn bound_ones_and_those_of_processes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for process in ["self", "7/ns", "8/ns", "9/ns", "bus"] {
            fs::create_dir_all(at(process)).unwrap();
        }
        let mounts = "36 35 0:4 net:[11] /run/netns/a rw shared:5 - nsfs nsfs rw\n\
                      37 35 0:4 mnt:[12] /run/other rw - nsfs nsfs rw\n\
                      38 35 0:4 net:[13] /tmp/b rw - tmpfs tmpfs rw\n\
                      cut off";
        fs::write(at("self/mountinfo"), mounts).unwrap();
        for (process, inode) in [("7", 11), ("8", 20), ("9", 20)] {
            symlink(format!("net:[{inode}]"), at(&format!("{process}/ns/net"))).unwrap();
        }
        let found = visible_below(folder.path());
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [11, 20]);
        assert_eq!(found[&11].path, Path::new("/run/netns/a"));
        assert_eq!((found[&11].n_processes, found[&20].n_processes), (1, 2));
    }
}
