//! What setting up puts on the host: folders, texts, links and this program.
//!
//! Each knows by its own mark whether what stands at its place is ours. Files are written beside
//! their place and moved there: a runtime never reads half of one.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use host::marks;

use super::super::failure::Failure;
use super::change::{Change, Verb};
use super::layout::Root;

/// What is put behind the name of a file that is put aside.
pub(crate) const ASIDE: &str = "NAME.before-margay";
const ASIDE_SUFFIX: &str = ".before-margay";
const FRESH_SUFFIX: &str = ".margay-new";

/// One thing on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A folder; it goes away only when it is empty.
    Folder { path: PathBuf },
    /// A text with our mark in it.
    Text { path: PathBuf, text: String, what: &'static str },
    /// A symbolic link to this program.
    Link { path: PathBuf, target: PathBuf },
    /// This program.
    Program { path: PathBuf },
}

/// What stands at an item's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Missing,
    Same,
    /// Ours, but not as it should be.
    Different,
    /// Somebody else's; what it is.
    Foreign(String),
}

/// Every item with what stands at its place.
pub(crate) fn compare(items: &[Item], root: &Root) -> Result<Vec<(Item, Standing)>, Failure> {
    items.iter().map(|item| Ok((item.clone(), item.standing(root)?))).collect()
}

impl Item {
    /// Its place on the host.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Folder { path }
            | Self::Text { path, .. }
            | Self::Link { path, .. }
            | Self::Program { path } => path,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "folder",
            Self::Text { .. } => "file",
            Self::Link { .. } => "link",
            Self::Program { .. } => "program",
        }
    }

    /// What people want to know of it.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::Folder { .. } => "folder".to_owned(),
            Self::Text { what, .. } => (*what).to_owned(),
            Self::Link { target, .. } => format!("link to {}", target.display()),
            Self::Program { .. } => "this program".to_owned(),
        }
    }

    /// What stands at its place.
    pub(crate) fn standing(&self, root: &Root) -> Result<Standing, Failure> {
        let path = root.join(self.path());
        let Some(found) = look(&path)? else { return Ok(Standing::Missing) };
        let foreign = |what: &str| Ok(Standing::Foreign(what.to_owned()));
        let stranger =
            if matches!(self, Self::Folder { .. }) { None } else { strange(&path, &found) };
        match self {
            Self::Folder { .. } if path.is_dir() => Ok(Standing::Same),
            Self::Folder { .. } => foreign("not a folder"),
            Self::Link { .. } if found.is_symlink() => self.standing_of_link(root, &path),
            _ if stranger.is_some() => foreign(&stranger.unwrap_or_default()),
            Self::Text { text, .. } => {
                let present = read(&path)?;
                if present == text.as_bytes() {
                    return Ok(Standing::Same);
                }
                match contains(&present, marks::TEXT.as_bytes()) {
                    true => Ok(Standing::Different),
                    false => foreign("a file of somebody else"),
                }
            }
            Self::Link { .. } => match is_program(&path) {
                true => Ok(Standing::Different),
                false => foreign("a file of somebody else"),
            },
            Self::Program { .. } => {
                if is_this_program(&path).map_err(|error| failed(&path, &error))? {
                    return Ok(Standing::Same);
                }
                match is_program(&path) {
                    true => Ok(Standing::Different),
                    false => foreign("a file of somebody else"),
                }
            }
        }
    }

    /// What a link is, that stands where one of ours should.
    fn standing_of_link(&self, root: &Root, path: &Path) -> Result<Standing, Failure> {
        let present = fs::read_link(path).map_err(|error| failed(path, &error))?;
        Ok(match self {
            Self::Link { target, .. } if present == *target => Standing::Same,
            // What a link of the host names is looked for on the host, not here.
            _ if is_program(&root.join(&present)) => Standing::Different,
            _ => Standing::Foreign(format!("a link to {}", present.display())),
        })
    }

    /// Puts it in its place. Whatever of somebody else's stands there is put aside.
    pub(crate) fn put(&self, root: &Root) -> Result<(), Failure> {
        let path = root.join(self.path());
        if let Standing::Foreign(_) = self.standing(root)? {
            let aside = aside(&path);
            if look(&aside)?.is_some() {
                let what = format!("{} is there already; nothing is put over it", aside.display());
                return Err(Failure::new(what).help("move it away, and set up again"));
            }
            fs::rename(&path, aside).map_err(|error| failed(&path, &error))?;
        }
        self.make(&path).map_err(|error| failed(&path, &error))
    }

    fn make(&self, path: &Path) -> io::Result<()> {
        let fresh = beside(path, FRESH_SUFFIX);
        let _ = fs::remove_file(&fresh);
        match self {
            Self::Folder { .. } => {
                return fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
            }
            Self::Text { text, .. } => {
                let mut file = create(&fresh, 0o644)?;
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
            }
            Self::Link { target, .. } => symlink(target, &fresh)?,
            Self::Program { .. } => {
                let mut file = create(&fresh, 0o755)?;
                io::copy(&mut File::open("/proc/self/exe")?, &mut file)?;
                file.sync_all()?;
            }
        }
        fs::rename(&fresh, path)
    }

    /// What removing it means, if there is anything of ours at its place, or put aside for it.
    pub(crate) fn removal(self, root: &Root) -> Result<Option<Change>, Failure> {
        let path = root.join(self.path());
        let standing = self.standing(root)?;
        if let Self::Folder { .. } = self {
            let is_there = standing == Standing::Same;
            return Ok(is_there.then(|| Change::removal(self, Verb::Remove, "folder, if empty")));
        }
        let is_half_made = look(&beside(&path, FRESH_SUFFIX))?.is_some();
        let is_ours = is_half_made || matches!(standing, Standing::Same | Standing::Different);
        let has_aside = look(&aside(&path))?.is_some();
        Ok(match (is_ours, has_aside) {
            (true, false) => Some(Change::removal(self, Verb::Remove, "")),
            (_, true) if !matches!(standing, Standing::Foreign(_)) => {
                Some(Change::removal(self, Verb::Restore, "what was put aside for ours"))
            }
            _ => None,
        })
    }

    /// Takes it away, if it is ours, and puts back what was put aside for it.
    pub(crate) fn remove(&self, root: &Root) -> Result<(), Failure> {
        let path = root.join(self.path());
        let standing = self.standing(root)?;
        if let Self::Folder { .. } = self {
            return remove_empty(&path).map_err(|error| failed(&path, &error));
        }
        // What was being written when a setup was killed has our name, and nobody else's use.
        let _ = fs::remove_file(beside(&path, FRESH_SUFFIX));
        if matches!(standing, Standing::Same | Standing::Different) {
            fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
        }
        if !matches!(standing, Standing::Foreign(_)) && look(&aside(&path))?.is_some() {
            fs::rename(aside(&path), &path).map_err(|error| failed(&path, &error))?;
        }
        Ok(())
    }
}

/// Removes a folder unless something is in it.
pub(crate) fn remove_empty(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(mode).open(path)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn aside(path: &Path) -> PathBuf {
    beside(path, ASIDE_SUFFIX)
}

/// What is at a path, itself and not what it links to.
fn look(path: &Path) -> Result<Option<fs::Metadata>, Failure> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(failed(path, &error)),
    }
}

/// What stands where a file should, unless it is one, or a link to one.
fn strange(path: &Path, found: &fs::Metadata) -> Option<String> {
    if !found.is_symlink() {
        return host::file::stranger(found.file_type()).map(str::to_owned);
    }
    match fs::metadata(path) {
        Err(_) => Some("a symbolic link that leads nowhere".to_owned()),
        Ok(target) => {
            host::file::stranger(target.file_type()).map(|it| format!("a symbolic link to {it}"))
        }
    }
}

/// The most of a text that is compared.
const TEXT_MAX: u64 = 1 << 20;

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    host::file::read_linked(path, TEXT_MAX).map_err(|error| failed(path, &error))
}

/// Whether a file is this very program, to the byte.
fn is_this_program(path: &Path) -> io::Result<bool> {
    let (mut own, mut other) = (File::open("/proc/self/exe")?, host::file::open_linked(path)?);
    let (own_is, other_is) = (own.metadata()?, other.metadata()?);
    if (own_is.dev(), own_is.ino()) == (other_is.dev(), other_is.ino()) {
        return Ok(true);
    }
    if own_is.len() != other_is.len() {
        return Ok(false);
    }
    let (mut ours, mut theirs) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let n = own.read(&mut ours)?;
        if n == 0 {
            return Ok(true);
        }
        other.read_exact(&mut theirs[..n])?;
        if ours[..n] != theirs[..n] {
            return Ok(false);
        }
    }
}

/// Whether a file is a build of this program.
fn is_program(path: &Path) -> bool {
    /// Larger than any program that anybody ships.
    const PROGRAM_MAX: u64 = 1 << 30;
    const ELF: &[u8] = b"\x7fELF";
    let Ok(bytes) = host::file::read_linked(path, PROGRAM_MAX) else { return false };
    bytes.starts_with(ELF) && contains(&bytes, marks::PROGRAM)
}

fn contains(bytes: &[u8], mark: &[u8]) -> bool {
    let Some((first, _)) = mark.split_first() else { return true };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = &rest[at..];
        if rest.starts_with(mark) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {}", path.display(), text::plain_reason(error)))
}
