//! The supervisor: holds the listening socket and keeps the dataplane running.
//!
//! It reads nothing from outside, so nothing from outside can end it. The socket outlives the
//! child: a call made during a restart waits in it instead of failing.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::arguments::Arguments;
use crate::dataplane;

/// A child that ran this long was not failing at its start.
const SOUND: Duration = Duration::from_secs(10);
/// How long the one before may take to go away.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// The longest pause between two starts.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Runs the agent; `arguments` begin with the program's name.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let parsed = match Arguments::try_parse_from(&arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let result = match parsed.dataplane {
        Some(supervisor) => dataplane::run(&parsed, supervisor),
        None => supervise(&parsed, arguments.get(1..).unwrap_or_default()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::from(2)
        }
    }
}

fn supervise(arguments: &Arguments, given: &[OsString]) -> Result<(), dataplane::Error> {
    if let Some(rival) = host::rivals::running().first() {
        return Err(dataplane::Error::Rival(rival.clone()));
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&arguments.run_dir);
    made.map_err(|why| unusable(&arguments.run_dir, why))?;
    let _only = become_only(&arguments.run_dir, "supervisor")?;
    let listener = listen(&arguments.run_dir)?;
    let listening = OwnedFd::from(listener);
    let mut pause = Duration::ZERO;
    loop {
        let started = Instant::now();
        let mut child = start(&listening, given)?;
        let ended = child.wait()?;
        if ended.success() {
            return Ok(());
        }
        pause = match started.elapsed() > SOUND {
            true => Duration::ZERO,
            false => (pause * 2).clamp(Duration::from_millis(20), PAUSE_MAX),
        };
        say(&format!("the dataplane ended ({ended}); it starts again in {} ms", pause.as_millis()));
        std::thread::sleep(pause);
    }
}

fn start(listening: &OwnedFd, given: &[OsString]) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("margay")
        .arg("agent")
        .args(given)
        .arg(format!("--dataplane={}", std::process::id()))
        .stdin(Stdio::from(listening.try_clone()?))
        .spawn()
}

/// Where an agent listens that has this folder.
pub(crate) fn socket(folder: &Path) -> PathBuf {
    folder.join("agent.sock")
}

/// A fresh socket that only this user may connect to.
fn listen(folder: &Path) -> Result<UnixListener, dataplane::Error> {
    let path = socket(folder);
    match fs::remove_file(&path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(unusable(folder, why)),
        _ => {}
    }
    let bound = UnixListener::bind(&path).and_then(|listener| {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    });
    bound.map_err(|why| match why.kind() {
        io::ErrorKind::InvalidInput => {
            let told = "the path of the socket in it is longer than 107 bytes";
            unusable(folder, io::Error::new(io::ErrorKind::InvalidInput, told))
        }
        _ => unusable(folder, why),
    })
}

fn unusable(folder: &Path, why: io::Error) -> dataplane::Error {
    dataplane::Error::RunFolder { folder: folder.to_owned(), why }
}

/// Makes this process the only one of its role on the node. One that was killed a moment ago may
/// still be on its way out.
pub(crate) fn become_only(folder: &Path, role: &str) -> Result<File, dataplane::Error> {
    let path = folder.join(format!("{role}.lock"));
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|why| unusable(folder, why))?;
    let started = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if started.elapsed() < LOCK_WAIT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => return Err(dataplane::Error::AlreadyRunning(path)),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

/// A line for the journal of the system.
pub(crate) fn say(line: &str) {
    use io::Write;
    let _ = writeln!(io::stderr(), "{line}");
}
