//! Where a lab lies: one folder with everything of it, and a lock beside it.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::guard;
use crate::processes;
use crate::waiting::patiently;

/// The variable that names the folder of all labs.
pub(crate) const VARIABLE: &str = "MARGAY_LAB_DIR";
/// The file that says that the folder of all labs was made by us.
const OURS: &str = ".made-for-labs";
/// How long another command may take.
const LOCK_WAIT: Duration = Duration::from_secs(300);
/// How often others may be in the way of making the folder of all labs.
const MAKE_TRIES: usize = 100;
/// As long as the path of a socket can be.
const SOCKET_PATH_MAX: usize = 107;
const NAME_LEN_MAX: usize = 32;

/// The folder of one lab. It need not exist.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) base: PathBuf,
    pub(crate) folder: PathBuf,
}

/// Held while a lab is being changed.
pub(crate) struct Lock {
    _file: File,
}

impl Place {
    /// The lab of that name of this user.
    pub(crate) fn named(name: &str) -> Result<Self, Failure> {
        if !is_plain(name) {
            return Err(Failure::new(format!("{name:?} cannot be the name of a lab")).help(
                format!(
                    "small letters, digits and -, which it does not begin with, at most \
                     {NAME_LEN_MAX} of them"
                ),
            ));
        }
        let base = base_folder()?;
        let folder = base.join(name);
        Ok(Self { name: name.to_owned(), base, folder })
    }

    /// All labs of this user, in the order of their names.
    pub(crate) fn all() -> Result<Vec<Self>, Failure> {
        let base = base_folder()?;
        let entries = match fs::read_dir(&base) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let place = Self::named("default")?;
                return Err(place.unusable(&base, &error));
            }
        };
        let folders = entries.flatten().filter(|entry| entry.path().is_dir());
        let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_plain(name)).collect();
        names.sort();
        names.iter().map(|name| Self::named(name)).collect()
    }

    /// The folder of the names of its network namespaces.
    pub(crate) fn namespaces(&self) -> PathBuf {
        self.folder.join("netns")
    }

    /// The network namespace of a node, a pod or the fabric.
    pub(crate) fn namespace(&self, name: &str) -> PathBuf {
        self.namespaces().join(name)
    }

    /// The binary under its names.
    pub(crate) fn programs(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// A folder of a node: `state`, `run` or `log`.
    pub(crate) fn node(&self, node: &str, what: &str) -> PathBuf {
        self.folder.join("nodes").join(node).join(what)
    }

    /// Where an agent writes.
    pub(crate) fn agent_log(&self, node: &str) -> PathBuf {
        self.node(node, "log").join("agent.log")
    }

    /// What is remembered of the lab.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    /// The names that resolve in the lab.
    pub(crate) fn hosts(&self) -> PathBuf {
        self.folder.join("hosts")
    }

    /// The embedded store.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.join("store.db")
    }

    /// Makes a folder that only its user can look into.
    pub(crate) fn make(&self, folder: &Path) -> Result<(), Failure> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| {
            Failure::new(format!("the folder {} cannot be made", folder.display()))
                .why(text::plain_reason(&error))
                .help(format!("{VARIABLE}=DIR margay lab …     keeps labs in another folder"))
        })
    }

    /// Refuses a folder that is so deep that the sockets in it would have paths too long for them.
    pub(crate) fn check_depth(&self) -> Result<(), Failure> {
        let deepest = self.node("n200", "run").join("notify.sock");
        let n_too_many = deepest.as_os_str().len().saturating_sub(SOCKET_PATH_MAX);
        if n_too_many == 0 {
            return Ok(());
        }
        let what =
            format!("the path of {} is too long for the sockets in it", self.folder.display());
        Err(Failure::new(what)
            .why(format!("by {n_too_many} of at most {SOCKET_PATH_MAX} bytes"))
            .help(format!("{VARIABLE}=DIR margay lab …     keeps labs in another folder")))
    }

    fn lock_file(&self) -> PathBuf {
        self.base.join(format!("{}.lock", self.name))
    }

    /// Waits until nobody else changes this lab.
    pub(crate) fn lock(&self) -> Result<Lock, Failure> {
        match self.try_lock()? {
            Some(lock) => Ok(lock),
            None => {
                let holder = self.holder();
                let by = holder.map_or(String::new(), |pid| format!(" (process {pid})"));
                let name = &self.name;
                let what = format!("waiting for another command{by} that changes lab {name:?}");
                patiently(&what, LOCK_WAIT, || self.wait_for_lock())
            }
        }
    }

    fn wait_for_lock(&self) -> Result<Lock, Failure> {
        let began = Instant::now();
        loop {
            if let Some(lock) = self.try_lock()? {
                return Ok(lock);
            }
            let holder = self.holder();
            let is_stopped = holder.is_some_and(processes::is_stopped);
            if is_stopped || began.elapsed() > LOCK_WAIT {
                let failure =
                    Failure::new(format!("another command is at work on lab {:?}", self.name));
                let Some(pid) = holder else { return Err(failure) };
                return Err(match is_stopped {
                    true => {
                        failure.why(format!("process {pid} is stopped, and holds the lab")).help(
                            format!("kill -CONT {pid}     lets it go on; kill -KILL {pid} ends it"),
                        )
                    }
                    false => failure
                        .why(format!("process {pid} holds it since {} s", LOCK_WAIT.as_secs()))
                        .help(format!("wait for it, or end it: kill {pid}")),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The process that took the lock, as far as the kernel tells.
    fn holder(&self) -> Option<i32> {
        let file = fs::metadata(self.lock_file()).ok()?.ino().to_string();
        let table = fs::read_to_string("/proc/locks").ok()?;
        table.lines().find_map(|line| lock_on(line, &file))
    }

    /// The lock, unless somebody else has it.
    pub(crate) fn try_lock(&self) -> Result<Option<Lock>, Failure> {
        self.lock_by(|file| match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        })
    }

    fn lock_by(&self, take: impl Fn(&File) -> io::Result<bool>) -> Result<Option<Lock>, Failure> {
        let path = self.lock_file();
        let failed = |error: io::Error| self.unusable(&path, &error);
        loop {
            self.make_base()?;
            let Some(base) = self.hold_base(File::lock_shared)? else { continue };
            let options = File::options().create(true).truncate(false).write(true).open(&path);
            let file = options.map_err(failed)?;
            drop(base);
            if !take(&file).map_err(failed)? {
                return Ok(None);
            }
            // Whoever held the lock before may have removed the file.
            if is_at(&file, &path) {
                return Ok(Some(Lock { _file: file }));
            }
        }
    }

    /// The folder of all labs, locked: shared while something is put into it, alone while it is
    /// removed. None if it was removed meanwhile.
    fn hold_base(
        &self,
        lock: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<Option<File>, Failure> {
        let held = File::open(&self.base).and_then(|base| lock(&base).map(|()| base));
        match held {
            Ok(base) => Ok(is_at(&base, &self.base).then_some(base)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.unusable(&self.base, &error)),
        }
    }

    /// Makes the folder of all labs, and notes in it that it is ours to remove again, with the
    /// uppermost folder that had to be made for it. Others may make and remove it meanwhile.
    pub(crate) fn make_base(&self) -> Result<(), Failure> {
        let mut uppermost: Option<&Path> = None;
        for n_tries in 0.. {
            let missing = self.base.ancestors().take_while(|folder| !folder.exists()).last();
            if let Some(missing) = missing {
                uppermost = Some(uppermost.map_or(missing, |it| shorter(it, missing)));
                match self.make(&self.base) {
                    Err(failure) if n_tries > MAKE_TRIES => return Err(failure),
                    Err(_) => continue,
                    Ok(()) => {}
                }
            }
            let Some(uppermost) = uppermost else { break };
            if self.note_base(uppermost)? {
                break;
            }
        }
        Ok(())
    }

    /// Whether the folder was still there to note it in.
    fn note_base(&self, uppermost: &Path) -> Result<bool, Failure> {
        let Some(_base) = self.hold_base(File::lock)? else { return Ok(false) };
        let note = self.base.join(OURS);
        let ours = uppermost.as_os_str().as_bytes();
        // Whoever made only the last part of the way has noted less.
        if fs::read(&note).is_ok_and(|noted| noted.len() <= ours.len()) {
            return Ok(true);
        }
        fs::write(&note, ours).map_err(|error| self.unusable(&note, &error))?;
        Ok(true)
    }

    /// Removes the lock file, and the folders that were made for labs if this was the last.
    pub(crate) fn forget(&self, _held: &Lock) {
        guard::undisturbed(|| self.remove_lock_and_base());
    }

    fn remove_lock_and_base(&self) {
        let _ = fs::remove_file(self.lock_file());
        let Ok(Some(_base)) = self.hold_base(File::lock) else { return };
        let note = self.base.join(OURS);
        let Ok(uppermost) = fs::read(&note) else { return };
        let is_last = fs::read_dir(&self.base).is_ok_and(|entries| entries.count() == 1);
        if !is_last || fs::remove_file(&note).is_err() {
            return;
        }
        let uppermost = Path::new(OsStr::from_bytes(&uppermost));
        let ours = self.base.ancestors().take_while(|folder| folder.starts_with(uppermost));
        for folder in ours {
            // One that somebody else uses by now stays.
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }

    /// Refuses a lab of another user. Root may look into its files, but is nobody in its user
    /// namespace; removing it needs no more than to be root.
    pub(crate) fn check_owner(&self) -> Result<(), Failure> {
        let Ok(folder) = fs::metadata(&self.folder) else { return Ok(()) };
        if folder.uid() == rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        let (name, user) = (&self.name, folder.uid());
        let what = format!("lab {name:?} is of the user {user}, who alone can enter it");
        Err(Failure::new(what).help(format!(
            "run the command as that user: sudo -u '#{user}' {VARIABLE}={} margay lab …",
            self.base.display()
        )))
    }

    /// Says that a file of the lab cannot be used, and whose it is.
    pub(crate) fn unusable(&self, path: &Path, error: &io::Error) -> Failure {
        if error.kind() != io::ErrorKind::PermissionDenied {
            return Failure::new(format!("{}: {}", path.display(), text::plain_reason(error)));
        }
        let owner = path.ancestors().find_map(|folder| fs::metadata(folder).ok());
        let owner = owner.map_or(String::new(), |found| format!(", of the user {}", found.uid()));
        let what = format!("lab {:?} is not yours{owner}: {}", self.name, path.display());
        Failure::new(what).why(text::plain_reason(error)).help(format!(
            "run the command as that user (sudo), or keep your labs elsewhere: {VARIABLE}=DIR"
        ))
    }
}

fn shorter<'a>(one: &'a Path, other: &'a Path) -> &'a Path {
    if one.as_os_str().len() <= other.as_os_str().len() { one } else { other }
}

/// Whether this very file is still the one at that path: a lock on one that was removed is on
/// nothing that others will find.
fn is_at(file: &File, path: &Path) -> bool {
    let found = fs::metadata(path).and_then(|there| Ok((there, file.metadata()?)));
    found.is_ok_and(|(there, here)| (there.dev(), there.ino()) == (here.dev(), here.ino()))
}

/// The process that has a lock on the file with that number, by a line of the kernel's list:
/// `7: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF`. Waiting ones have an arrow, and are none.
fn lock_on(line: &str, file: &str) -> Option<i32> {
    let mut fields = line.split_whitespace().skip(1);
    let is_held = fields.next() == Some("FLOCK");
    let pid = fields.nth(2)?.parse().ok()?;
    let (_, number) = fields.next()?.rsplit_once(':')?;
    (is_held && number == file && pid > 0).then_some(pid)
}

fn is_plain(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_flag = name.starts_with('-');
    (1..=NAME_LEN_MAX).contains(&name.len()) && !is_flag && name.bytes().all(is_fine)
}

/// A word that can be part of the name of a pod.
pub(crate) fn is_role(word: &str) -> bool {
    is_plain(word) && word.len() <= 16 && !word.ends_with('-')
}

fn base_folder() -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = variable(VARIABLE) {
        let made_absolute = std::path::absolute(PathBuf::from(folder));
        return made_absolute.map_err(|error| Failure::new(format!("{VARIABLE}: {error}")));
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/run/margay/lab".into());
    }
    let own = variable("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("margay/lab"));
    let user = rustix::process::getuid().as_raw();
    Ok(own.unwrap_or_else(|| PathBuf::from(format!("/tmp/margay-lab-{user}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_folder_are_refused() {
        for name in ["", "..", "a/b", "A", "a b", "-a", &"x".repeat(33)] {
            assert!(Place::named(name).is_err(), "{name}");
        }
        assert!(Place::named("big-2").is_ok());
    }

    #[test]
    fn the_folder_of_all_labs_goes_with_the_last_whoever_that_is() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("labs");
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let folder = base.join(name);
                let place = Place { name: name.to_owned(), base: base.clone(), folder };
                scope.spawn(move || {
                    for _ in 0..300 {
                        let lock = place.lock().unwrap();
                        place.forget(&lock);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_holder_of_a_lock_is_read_from_the_kernels_list() {
        let of = |line| lock_on(line, "123");
        assert_eq!(of("7: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF"), Some(4711));
        assert_eq!(of("7: -> FLOCK  ADVISORY  WRITE 4712 fe:00:123 0 EOF"), None);
        assert_eq!(of("7: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"), None);
        assert_eq!(of("7: POSIX  ADVISORY  WRITE 4711 fe:00:123 0 EOF"), None);
        assert_eq!(of("nonsense"), None);
    }
}
