//! Processes of a lab: started with a mark, found by it, ended, and waited for.
//!
//! Everything that a lab starts carries the lab's folder in its environment, and so does whatever
//! these processes start. Together with the namespaces that it runs in, this finds a process
//! whatever became of its parent.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use kernel::Netns;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use crate::failure::Failure;
use crate::place::{self, Place};

/// The variable that names the folder of the lab.
const FOLDER: &str = "MARGAY_LAB";
/// The variable that says which part of the lab the process is, such as `agent/n1`.
const PART: &str = "MARGAY_LAB_PART";
/// How long killed processes may take to be gone.
const END_WAIT: Duration = Duration::from_secs(10);

/// A process of a lab.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Which part of the lab it is; none for a stranger in one of the lab's namespaces.
    pub(crate) part: Option<String>,
}

/// This very binary.
pub(crate) fn own_binary() -> Result<PathBuf, Failure> {
    let found = std::env::current_exe();
    found.map_err(|error| Failure::new("this program does not find its own file").why(error))
}

/// The folder of the lab that this process runs in, where `lab exec` has started it. What is
/// mounted there is not seen outside.
pub(crate) fn surrounding() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// A command that carries the mark of the lab, in a process group of its own.
pub(crate) fn command(place: &Place, program: impl AsRef<OsStr>, part: &str) -> Command {
    let mut command = Command::new(program);
    mark(&mut command, place, part);
    command.process_group(0);
    command
}

/// Gives a command the mark of the lab.
pub(crate) fn mark(command: &mut Command, place: &Place, part: &str) {
    command.env(FOLDER, &place.folder).env(PART, part).env(place::VARIABLE, &place.base);
}

/// Starts a command inside a namespace.
pub(crate) fn spawn_in(netns: &Netns, command: &mut Command) -> Result<Child, Failure> {
    let program = command.get_program().to_owned();
    let started = netns.enter(|| command.spawn())?;
    started.map_err(|error| {
        Failure::new(format!("{} cannot be run", program.to_string_lossy())).why(error)
    })
}

/// Waits for a child to end, or kills it after the deadline (`None` is returned then).
pub(crate) fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
    let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut waited = [PollFd::new(&handle, PollFlags::IN)];
        match rustix::event::poll(&mut waited, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Every process of the lab but this one.
pub(crate) fn all(place: &Place) -> Vec<Process> {
    let namespaces = namespaces(place);
    let mine = rustix::process::getpid().as_raw_nonzero().get();
    let found = numbers().filter(|pid| *pid != mine).filter_map(|pid| {
        let part = part_of(place, pid);
        let is_inside = || namespace_of(pid).is_some_and(|found| namespaces.contains(&found));
        (part.is_some() || is_inside()).then_some(Process { pid, part })
    });
    let mut found: Vec<Process> = found.collect();
    found.sort();
    found
}

/// Whether a process has one of these files open.
pub(crate) fn holds(process: &Process, files: &[PathBuf]) -> bool {
    let entries = fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten();
    let opened = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    opened.into_iter().any(|file| files.contains(&file))
}

/// Processes that run in this namespace, but this one.
pub(crate) fn inside(place: &Place, namespace: &str) -> Vec<Process> {
    let Some(wanted) = identity(&place.namespace(namespace)) else { return Vec::new() };
    let mut found = all(place);
    found.retain(|process| namespace_of(process.pid) == Some(wanted));
    found
}

/// Kills whatever `find` finds, again and again until it finds nothing. Returns how many ended,
/// and those that do not.
pub(crate) fn end(find: impl Fn() -> Vec<Process>) -> (usize, Vec<Process>) {
    let began = Instant::now();
    let mut ended = BTreeSet::new();
    loop {
        let found = find();
        if found.is_empty() || began.elapsed() > END_WAIT {
            return (ended.len(), found);
        }
        for process in found {
            if let Some(pid) = Pid::from_raw(process.pid) {
                // One that is gone by now is what was wanted.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                ended.insert(process.pid);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills the children of this process, with those that become its children by that, until there are
/// none. Whether they are of a lab is not asked: one that has not become its program yet does not
/// say so.
pub(crate) fn end_children() -> Result<(), Failure> {
    let mine = rustix::process::getpid().as_raw_nonzero().get();
    let began = Instant::now();
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return Ok(()),
            Ok(Some(_)) | Err(Errno::INTR) => continue,
            Ok(None) => {}
            Err(errno) => return Err(Failure::new("the builder's processes").why(errno)),
        }
        let children = || numbers().filter(|pid| parent_of(*pid) == Some(mine));
        if began.elapsed() > END_WAIT {
            let pids: Vec<String> = children().map(|pid| pid.to_string()).collect();
            let what = format!("processes that do not end: {}", pids.join(" "));
            return Err(Failure::new(what));
        }
        for pid in children().filter_map(Pid::from_raw) {
            // One that is gone by now is what was wanted.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The numbers of all processes.
fn numbers() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What the kernel says of a process behind its name, which may hold anything.
fn statistics(pid: i32) -> Option<Vec<String>> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = line.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

fn parent_of(pid: i32) -> Option<i32> {
    statistics(pid)?.get(1)?.parse().ok()
}

/// Whether a process was stopped, as by Ctrl-Z, `kill -STOP` or a debugger.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let state = statistics(pid).and_then(|fields| fields.into_iter().next());
    matches!(state.as_deref(), Some("T" | "t"))
}

/// The part that a process says it is, if it belongs to this lab. A dead process that nobody has
/// asked about yet has no environment, and so is no process of ours any more.
fn part_of(place: &Place, pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = |name: &str| {
        environment.split(|byte| *byte == 0).find_map(|entry| {
            entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
        })
    };
    let is_ours = value(FOLDER)? == place.folder.as_os_str().as_bytes();
    is_ours.then(|| String::from_utf8_lossy(value(PART).unwrap_or_default()).into_owned())
}

/// What tells one namespace from another: device and inode of its file.
type Identity = (u64, u64);

fn namespace_of(pid: i32) -> Option<Identity> {
    identity(Path::new(&format!("/proc/{pid}/ns/net")))
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The lab's namespaces. A file with no namespace bound to it is on another device than any
/// namespace, so it does no harm here.
fn namespaces(place: &Place) -> BTreeSet<Identity> {
    let entries = fs::read_dir(place.namespaces()).into_iter().flatten().flatten();
    entries.filter_map(|entry| identity(&entry.path())).collect()
}

/// What a child complained about, after it ended; what it says would help is for who called it.
pub(crate) fn complaint(child: &mut Child) -> String {
    use std::io::Read as _;
    let mut said = String::new();
    let _ = child.stderr.take().map(|mut err| err.read_to_string(&mut said));
    let lines = said.trim().lines().filter(|line| !line.starts_with("help: "));
    let bare = |line: &str| {
        ["error: ", "why: "]
            .iter()
            .find_map(|word| line.strip_prefix(word))
            .unwrap_or(line)
            .to_owned()
    };
    lines.map(bare).collect::<Vec<_>>().join(": ")
}
