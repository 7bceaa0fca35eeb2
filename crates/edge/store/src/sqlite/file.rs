//! The file itself: creating, opening and judging it, and the doorbell beside it.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use rustix::fs::{FlockOperation, flock};

use crate::Error;

/// "MARG": what `file` and SQLite's own tools show, and how we know our own.
const APPLICATION_ID: i64 = 0x4d41_5247;
/// The format of the tables below.
const FORMAT: i64 = 1;
/// How long a call waits for other processes' transactions.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A wait is told of after this long, and then as often again.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// How long a waiting call sleeps before it looks again.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

const WAL_BYTES_KEPT: i64 = 4 * 1024 * 1024;

pub(super) const SCHEMA: &str = "
CREATE TABLE meta (revision INTEGER NOT NULL, compacted INTEGER NOT NULL,
    log_bytes INTEGER NOT NULL) STRICT;
INSERT INTO meta VALUES (1, 0, 0);
CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL, create_revision INTEGER NOT NULL,
    mod_revision INTEGER NOT NULL, version INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE log (revision INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
    key TEXT NOT NULL, value BLOB, create_revision INTEGER NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (revision, seq)) STRICT, WITHOUT ROWID;
";

/// Tells of a wait for other processes' transactions.
pub(super) type Tell = Option<fn(&Waiting)>;

/// A wait for other processes' transactions that takes long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The file.
    pub file: PathBuf,
    /// How long the call has taken so far.
    pub elapsed: Duration,
    /// When the call will be given up.
    pub limit: Duration,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, elapsed, limit) =
            (self.file.display(), self.elapsed.as_secs(), self.limit.as_secs());
        write!(f, "waiting for {file} (locked by another process, {elapsed} s of {limit} s)")
    }
}

/// Which file a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl Identity {
    pub(super) fn of(path: &Path) -> Result<Identity, Error> {
        let metadata = fs::metadata(path).map_err(|error| io_error(path, &error))?;
        Ok(Identity(metadata.dev(), metadata.ino()))
    }
}

/// An open connection.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) identity: Identity,
}

/// Opens the store at `path`, creating what is missing.
pub(super) fn open_or_create(path: &Path, tell: Tell) -> Result<Session, Error> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() > 0 => open(path, tell),
        Ok(metadata) if !metadata.is_file() => open(path, tell),
        // Nobody's data are lost if an empty file is replaced.
        Ok(_) => create(path, tell),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(path) {
            // What it leads to may only be absent for the moment, say with a disk to be mounted.
            Ok(target) => {
                let target = target.display();
                let reason = format!("a symbolic link to {target}, which does not exist");
                Err(Error::File { file: path.to_path_buf(), reason })
            }
            Err(_) => create(path, tell),
        },
        Err(error) => Err(io_error(path, &error)),
    }
}

/// Opens an existing store.
pub(super) fn open(path: &Path, tell: Tell) -> Result<Session, Error> {
    check_access(path)?;
    let identity = Identity::of(path)?;
    let connection = connect_probed(path, tell).map_err(|error| describe(path, &error))?;
    check_format(path, &connection)?;
    restrict(path)?;
    Ok(Session { connection, identity })
}

/// Whether there is no store under the name yet: no file, or an empty one.
pub(super) fn is_absent(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) => metadata.is_file() && metadata.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound && fs::read_link(path).is_err(),
    }
}

/// A log beside the file is always there while anybody has it open, and SQLite would make one.
/// Where it cannot, because nobody can write there, the file alone holds everything.
fn connect_probed(path: &Path, tell: Tell) -> rusqlite::Result<Connection> {
    let probed = connect(path, tell).and_then(|connection| {
        connection.pragma_query_value(None, "application_id", |_| Ok(()))?;
        Ok(connection)
    });
    let log_len = fs::metadata(beside(path, "-wal")).map_or(0, |metadata| metadata.len());
    match probed {
        Err(error)
            if matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)
            ) && log_len == 0
                && !is_directory_writable(path) =>
        {
            connect_immutable(path)
        }
        other => other,
    }
}

fn is_directory_writable(path: &Path) -> bool {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

fn connect_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = "file:".to_owned();
    for byte in Path::new(".").join(path).as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri + "?immutable=1", flags)
}

/// Waits for other processes' transactions, and tells of it when it takes long.
fn patience(path: &Path, tell: Tell) -> impl FnMut(i32) -> bool + Send + 'static {
    let file = path.to_path_buf();
    let mut began = Instant::now();
    let mut told = Duration::ZERO;
    move |n_calls| {
        if n_calls == 0 {
            (began, told) = (Instant::now(), Duration::ZERO);
        }
        let elapsed = began.elapsed();
        if elapsed >= BUSY_TIMEOUT {
            return false;
        }
        if let Some(tell) = tell
            && elapsed >= told + TELL_AFTER
        {
            told = elapsed;
            tell(&Waiting { file: file.clone(), elapsed, limit: BUSY_TIMEOUT });
        }
        std::thread::sleep(BUSY_PAUSE);
        true
    }
}

/// The database file is never opened by any other means than SQLite: closing a second descriptor
/// would drop the locks that SQLite holds on the first.
fn connect(path: &Path, tell: Tell) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // To SQLite, names that begin with `file:` or `:memory:` are not those of files.
    let mut connection = Connection::open_with_flags(Path::new(".").join(path), flags)?;
    connection.busy_handler(Some(patience(path, tell)))?;
    // Else the planner looks at each bound key, and prepares the statement anew for it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // A burst of large values must not leave a large WAL behind for ever.
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
    Ok(connection)
}

/// Others must not have been able to write here. That they could read is put right silently: a copy
/// made with an ordinary umask is the usual cause.
fn check_access(path: &Path) -> Result<(), Error> {
    let metadata = fs::metadata(path).map_err(|error| io_error(path, &error))?;
    let refuse = |reason: String| Err(Error::File { file: path.to_path_buf(), reason });
    if !metadata.is_file() {
        return refuse("not a regular file".into());
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o022 != 0 {
        return refuse(format!("mode {mode:04o} lets other users write; make it 0600"));
    }
    // Asked without opening it: closing the file would take this process's locks on it away.
    if rustix::fs::access(path, rustix::fs::Access::READ_OK).is_err() {
        return refuse(format!("permission denied: it is the user {}'s", metadata.uid()));
    }
    Ok(())
}

/// Takes a store of ours from the eyes of others; other files are none of our business.
fn restrict(path: &Path) -> Result<(), Error> {
    let metadata = fs::metadata(path).map_err(|error| io_error(path, &error))?;
    if metadata.mode() & 0o077 != 0 {
        match fs::set_permissions(path, fs::Permissions::from_mode(0o600)) {
            // Nothing can be put right there by us, and reading does no harm.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
                ) => {}
            other => other.map_err(|error| io_error(path, &error))?,
        }
    }
    Ok(())
}

fn check_format(path: &Path, connection: &Connection) -> Result<(), Error> {
    let read = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(|error| describe(path, &error))
    };
    let file = path.to_path_buf();
    if read("application_id")? != APPLICATION_ID {
        let reason = "not a margay store, but another program's database".into();
        return Err(Error::Damaged { file, reason });
    }
    match read("user_version")? {
        FORMAT => Ok(()),
        found => Err(Error::Newer { file, found, supported: FORMAT }),
    }
}

fn create(path: &Path, tell: Tell) -> Result<Session, Error> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| io_error(directory, &error))?;
    }
    // Others may be at the same. Nobody ever sees an unfinished store: it gets its name at the end.
    let bell = Bell::open(path)?;
    flock(&bell.file, FlockOperation::LockExclusive)
        .map_err(|error| io_error(&bell_path(path), &error.into()))?;
    if !fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
        let unfinished = beside(path, "-new");
        // SQLite would replay a log that an earlier file of either name left behind.
        for stale in ["-wal", "-shm", "-new", "-new-wal", "-new-shm"] {
            let _ = fs::remove_file(beside(path, stale));
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)
            .map_err(|error| io_error(&unfinished, &error))?;
        initialise(&unfinished).map_err(|error| describe(path, &error))?;
        fs::rename(&unfinished, path).map_err(|error| io_error(path, &error))?;
    }
    open(path, tell)
}

fn initialise(path: &Path) -> rusqlite::Result<()> {
    let mut connection = connect(path, None)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let txn = connection.transaction()?;
    txn.execute_batch(SCHEMA)?;
    txn.pragma_update(None, "application_id", APPLICATION_ID)?;
    txn.pragma_update(None, "user_version", FORMAT)?;
    txn.commit()?;
    connection.close().map_err(|(_, error)| error)
}

/// The file that is written after each commit, for watchers to wake up by.
pub(super) struct Bell {
    file: File,
}

impl Bell {
    /// Opens the bell of the store at `path`, and hangs it if it is missing.
    pub(super) fn open(path: &Path) -> Result<Bell, Error> {
        let bell = bell_path(path);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&bell)
            .map_err(|error| io_error(&bell, &error))?;
        // Root may work on another user's store, and must not lock that user out.
        if let (Ok(store), Ok(own)) = (fs::metadata(path), file.metadata())
            && (store.uid(), store.gid()) != (own.uid(), own.gid())
        {
            let _ = fchown(&file, Some(store.uid()), Some(store.gid()));
        }
        Ok(Bell { file })
    }

    pub(super) fn ring(&self) {
        let _ = self.file.write_at(b"\n", 0);
    }
}

/// The doorbell file of the store at `path`.
pub(super) fn bell_path(path: &Path) -> PathBuf {
    beside(path, "-bell")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn io_error(file: &Path, error: &io::Error) -> Error {
    let file = file.to_path_buf();
    match error.kind() {
        io::ErrorKind::StorageFull => Error::DiskFull(file),
        io::ErrorKind::PermissionDenied => {
            Error::File { file, reason: "permission denied".to_owned() }
        }
        _ => Error::File { file, reason: error.to_string() },
    }
}

/// Turns SQLite's word into a decision.
pub(super) fn describe(path: &Path, error: &rusqlite::Error) -> Error {
    let file = path.to_path_buf();
    let code = error.sqlite_error().map(|error| (error.code, error.extended_code));
    match code {
        Some((ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE)) => Error::DiskFull(file),
        Some((ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _)) => Error::Busy(file),
        Some((ErrorCode::DatabaseCorrupt, _)) => {
            Error::Damaged { file, reason: format!("the store is damaged: {error}") }
        }
        Some((ErrorCode::NotADatabase, _)) => {
            Error::Damaged { file, reason: "not a margay store, nor any SQLite database".into() }
        }
        Some((ErrorCode::TooBig, _)) => Error::Rejected(format!("value too large: {error}")),
        _ => Error::File { file, reason: error.to_string() },
    }
}
