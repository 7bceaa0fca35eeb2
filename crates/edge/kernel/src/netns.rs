//! Network namespaces: opened, compared, entered, made and removed.
//!
//! No thread of the caller ever changes its namespace: work inside another one happens on a thread
//! that lives for it and ends with it, so a panic in between leaks nothing.

mod visible;

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;

use crate::error::{Errno, Error, Result};

pub use visible::VisibleNetns;

/// The magic number of the file system that namespaces live in.
const NSFS_MAGIC: i64 = 0x6e73_6673;
/// The namespace of the thread that opens it.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace, held open: it lives at least as long as this value and its clones.
#[derive(Clone)]
pub struct Netns {
    descriptor: Arc<OwnedFd>,
    id: NetnsId,
    label: Arc<str>,
}

/// What makes a namespace the same one under two paths: the device and inode of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetnsId {
    /// The device of the namespace file system.
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

impl fmt::Display for NetnsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net:[{}]", self.inode)
    }
}

impl fmt::Debug for Netns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Netns({} {})", self.label, self.id)
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Netns {
    /// Opens the namespace that a path names, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    ///
    /// Anything else at that path, another sort of namespace included, is [`Error::NotANetns`];
    /// a path that does not exist is an error for which [`Error::is_not_found`] holds.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::checked(open(path)?, &path.display().to_string())
    }

    /// Takes a descriptor that somebody else opened, after the same checks.
    pub fn from_fd(descriptor: OwnedFd) -> Result<Self> {
        Self::checked(descriptor, "the descriptor")
    }

    /// The namespace of the calling thread. Needs no privilege.
    pub fn current() -> Result<Self> {
        Self::identified(open(Path::new(OWN))?, OWN)
    }

    /// Makes a namespace that has no name: it is gone with the last value and process that hold it.
    pub fn create() -> Result<Self> {
        on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|errno| refused("make a namespace", errno))?;
            Self::current()
        })?
    }

    /// Makes a namespace and binds it to the file `name` in `folder`, as `ip netns add` does.
    ///
    /// The folder is made if it is missing. A file of that name is an error for which
    /// [`Error::already_exists`] holds. Works inside a user namespace that owns its mounts.
    pub fn create_named(folder: impl AsRef<Path>, name: &str) -> Result<Self> {
        let path = named(folder.as_ref(), name)?;
        let attempt = format!("make the namespace {}", path.display());
        let system = |source: io::Error| Error::system(attempt.clone(), source);
        fs::create_dir_all(folder.as_ref()).map_err(system)?;
        fs::File::create_new(&path).map_err(system)?;
        let made = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| refused(&attempt, errno))?;
            rustix::mount::mount_bind(OWN, &path).map_err(|errno| system(errno.into()))
        });
        if let Err(error) = made.and_then(|inner| inner) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Self::open(path)
    }

    /// Removes the name of a namespace; the namespace ends once nothing else holds it.
    ///
    /// A name that does not exist is not an error, nor a file with no namespace bound to it.
    pub fn delete_named(folder: impl AsRef<Path>, name: &str) -> Result<()> {
        let path = named(folder.as_ref(), name)?;
        let attempt = || format!("remove the namespace {}", path.display());
        match rustix::mount::unmount(&path, UnmountFlags::DETACH) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(Error::system(attempt(), errno)),
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::system(attempt(), error))
            }
            _ => Ok(()),
        }
    }

    /// The identity of the namespace.
    pub fn id(&self) -> NetnsId {
        self.id
    }

    /// Runs `work` inside the namespace and returns what it returns: on a thread of its own, unless
    /// the caller is there already.
    ///
    /// Sockets that `work` opens stay in the namespace wherever they are used afterwards. A panic
    /// in `work` becomes a panic of the caller.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        if self.is_here() {
            return Ok(work());
        }
        on_thread(|| {
            let attempt = || format!("enter the namespace {}", self.label);
            setns(&*self.descriptor, CloneFlags::CLONE_NEWNET)
                .map_err(|errno| refused(&attempt(), errno))?;
            Ok(work())
        })?
    }

    /// Whether the calling thread is in this namespace.
    fn is_here(&self) -> bool {
        rustix::fs::stat(OWN)
            .is_ok_and(|stat| self.id == NetnsId { device: stat.st_dev, inode: stat.st_ino })
    }

    fn checked(descriptor: OwnedFd, label: &str) -> Result<Self> {
        let netns = Self::identified(descriptor, label)?;
        // The one way to ask for the sort of a namespace that works without an ioctl.
        match netns.enter(|| ()) {
            Err(error) if error.errno() == Some(Errno::INVAL) => {
                Err(Error::NotANetns(label.to_owned()))
            }
            entered => entered.map(|()| netns),
        }
    }

    /// A namespace of some sort with its identity.
    fn identified(descriptor: OwnedFd, label: &str) -> Result<Self> {
        let system = |errno: Errno| Error::system(format!("look at {label}"), errno);
        let file_system = rustix::fs::fstatfs(&descriptor).map_err(system)?;
        if file_system.f_type as i64 != NSFS_MAGIC {
            return Err(Error::NotANetns(label.to_owned()));
        }
        let stat = rustix::fs::fstat(&descriptor).map_err(system)?;
        let id = NetnsId { device: stat.st_dev, inode: stat.st_ino };
        Ok(Self { descriptor: Arc::new(descriptor), id, label: label.into() })
    }
}

fn open(path: &Path) -> Result<OwnedFd> {
    // Without NONBLOCK a named pipe in the place of a namespace would block for ever.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| Error::system(format!("open {}", path.display()), errno))
}

/// The path of a named namespace; a name is one component of a path.
fn named(folder: &Path, name: &str) -> Result<PathBuf> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(Error::Invalid(format!("{name:?} cannot be the name of a namespace")));
    }
    Ok(folder.join(name))
}

fn refused(attempt: &str, errno: nix::errno::Errno) -> Error {
    Error::system(attempt, io::Error::from_raw_os_error(errno as i32))
}

fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let spawned = thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, work)
            .map_err(|error| Error::system("start a thread for a namespace", error))?;
        spawned.join().map_err(|panic| std::panic::resume_unwind(panic))
    })
}
