//! The supervisor: holds the listening socket and keeps the dataplane running.
//!
//! It reads nothing from outside, so nothing from outside can end it. The socket outlives the
//! child: a call made during a restart waits in it instead of failing.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{CommandFactory, Parser};
use host::events::Events;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::arguments::Arguments;
use crate::{dataplane, register};

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
        Err(error) if error.use_stderr() => {
            print(&text::usage::plain(&error.render().to_string(), None));
            return ExitCode::from(2);
        }
        Err(answer) => {
            let _ = answer.print();
            return ExitCode::SUCCESS;
        }
    };
    let result = match parsed.dataplane {
        Some(supervisor) => dataplane::run(&parsed, supervisor),
        None => supervise(&parsed, arguments.get(1..).unwrap_or_default()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("error: {error}");
            match parsed.dataplane.is_some() {
                true => say(&text),
                false => print(&(text + "\n")),
            }
            ExitCode::from(2)
        }
    }
}

/// The command line of the agent, for help and completion.
pub fn command_line() -> clap::Command {
    Arguments::command()
}

fn supervise(arguments: &Arguments, given: &[OsString]) -> Result<(), dataplane::Error> {
    register::check(&arguments.node_name(), &arguments.address)?;
    if let Some(rival) = host::rivals::running().first() {
        return Err(dataplane::Error::Rival(rival.clone()));
    }
    host::file::make_folder(&arguments.run_dir, 0o755)
        .map_err(|why| unusable(&arguments.run_dir, why))?;
    let _only = become_only(&arguments.run_dir, "supervisor")?;
    let _state = hold_folder(&arguments.state_dir)?;
    // Where the dataplane could not begin, it would be started again and again.
    lock_file(&arguments.run_dir, "dataplane")?;
    let listener = listen(&arguments.run_dir)?;
    let listening = OwnedFd::from(listener);
    let mut pause = Duration::ZERO;
    let mut noted = None;
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
        // One that fails at every start is noted once.
        if pause.is_zero() || noted != Some(ended) {
            let text = format!("the agent's dataplane process ended ({ended}); it starts again");
            Events::open(arguments.state_dir.join("events.jsonl")).note("restarted", &text);
            noted = Some(ended);
        }
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
    host::file::clear(&path).map_err(|why| in_the_way(&path, &why))?;
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

fn in_the_way(path: &Path, why: &io::Error) -> dataplane::Error {
    dataplane::Error::Settings(format!("{}: {why}", path.display()))
}

fn unusable(folder: &Path, why: io::Error) -> dataplane::Error {
    dataplane::Error::RunFolder { folder: folder.to_owned(), why }
}

/// Makes this process the only one of its role on the node. One that was killed a moment ago may
/// still be on its way out.
pub(crate) fn become_only(folder: &Path, role: &str) -> Result<File, dataplane::Error> {
    let (path, file) = lock_file(folder, role)?;
    hold(path, file)
}

/// Makes this process the only agent that keeps its state in a folder. The folder itself is held,
/// so that nothing has to be written where nothing can be; what is wrong with a folder that cannot
/// be had is for the dataplane to say.
fn hold_folder(folder: &Path) -> Result<Option<File>, dataplane::Error> {
    let _ = host::file::make_folder(folder, 0o700);
    match File::open(folder) {
        Ok(file) => hold(folder.to_owned(), file).map(Some),
        Err(_) => Ok(None),
    }
}

fn hold(path: PathBuf, file: File) -> Result<File, dataplane::Error> {
    let started = Instant::now();
    let mut is_said = false;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if started.elapsed() < LOCK_WAIT => {
                if !std::mem::replace(&mut is_said, true) {
                    let (path, limit) = (path.display(), LOCK_WAIT.as_secs());
                    say(&format!(
                        "another agent holds {path}; waiting up to {limit} s for its end"
                    ));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => return Err(dataplane::Error::AlreadyRunning(path)),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

fn lock_file(folder: &Path, role: &str) -> Result<(PathBuf, File), dataplane::Error> {
    let path = folder.join(format!("{role}.lock"));
    let file = host::file::lock(&path).map_err(|why| in_the_way(&path, &why))?;
    Ok((path, file))
}

/// A line for the log, with the time.
pub(crate) fn say(line: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = api::schema::utc(i64::try_from(now).unwrap_or(i64::MAX));
    print(&format!("{now} {line}\n"));
}

fn print(text: &str) {
    use io::Write;
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
