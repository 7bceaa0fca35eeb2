//! Labs of ordinary users: in a user namespace, where they may have network namespaces.
//!
//! A small process, the holder, makes a user namespace and a mount namespace and keeps them.
//! Every command enters both and is root there; nothing else differs from a lab of root's.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::mount::MountPropagationFlags;

use crate::failure::Failure;
use crate::lab::flag;
use crate::place::Place;
use crate::processes::{self, Process};

/// The hidden command of the holder.
pub(crate) const COMMAND: &str = "lab-hold";
/// The part of the lab that the holder is.
pub(crate) const PART: &str = "holder";

/// Enters the namespaces of the lab if it has any of its own. Only possible while this process
/// has one thread.
pub(crate) fn enter(place: &Place) -> Result<(), Failure> {
    // Any process of the lab will do: the holder may have been killed while others live.
    let mut found = processes::all(place);
    found.retain(|process| process.part.is_some());
    found.sort_by_key(|process| process.part.as_deref() != Some(PART));
    match found.first() {
        Some(process) => join(process).map_err(|error| {
            Failure::new(format!("the namespaces of the lab {:?} cannot be entered", place.name))
                .why(error)
                .help(format!("margay lab down{}", flag(&place.name)))
        }),
        None => Ok(()),
    }
}

/// Starts a holder and enters its namespaces, where the user has no other way to a lab.
pub(crate) fn start(place: &Place) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let mut command = processes::command(place, processes::own_binary()?, PART);
    command.arg(COMMAND).arg(&place.folder).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: io::Error| Failure::new("the lab's holder cannot be run").why(error);
    let mut child = command.spawn().map_err(failed)?;
    let mut said = [0; 1];
    let is_ready = child.stdout.take().is_some_and(|mut out| out.read(&mut said).unwrap_or(0) == 1);
    if !is_ready {
        let why = processes::complaint(&mut child);
        let _ = child.wait();
        return Err(refused(place, &why));
    }
    let pid = i32::try_from(child.id()).map_err(|error| failed(io::Error::other(error)))?;
    join(&Process { pid, part: None }).map_err(failed)
}

fn join(process: &Process) -> io::Result<()> {
    let path = |kind: &str| format!("/proc/{}/ns/{kind}", process.pid);
    let own = fs::metadata("/proc/self/ns/user")?.ino();
    if fs::metadata(path("user"))?.ino() == own {
        return Ok(());
    }
    let folder = std::env::current_dir();
    // Both are opened before the first is entered: what they are may not be seen from inside.
    let (user, mount) = (File::open(path("user"))?, File::open(path("mnt"))?);
    setns(&user, CloneFlags::CLONE_NEWUSER)?;
    setns(&mount, CloneFlags::CLONE_NEWNS)?;
    // The second call moves this process to the root folder.
    folder.and_then(std::env::set_current_dir).or(Ok(()))
}

/// The holder itself: makes the namespaces, says so, and stays until it is killed.
pub(crate) fn hold(_words: &[OsString]) -> Result<(), Failure> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let attempt = |what: &str, done: io::Result<()>| {
        done.map_err(|error| Failure::new(what.to_owned()).why(error))
    };
    let all = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
    attempt("unshare", unshare(all).map_err(io::Error::from))?;
    attempt("/proc/self/setgroups", fs::write("/proc/self/setgroups", "deny"))?;
    attempt("/proc/self/uid_map", fs::write("/proc/self/uid_map", format!("0 {user} 1")))?;
    attempt("/proc/self/gid_map", fs::write("/proc/self/gid_map", format!("0 {group} 1")))?;
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    attempt(
        "mount --make-rslave /",
        rustix::mount::mount_change("/", downstream).map_err(Into::into),
    )?;
    io::stdout().write_all(b".")?;
    io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

/// Why this user may not have a user namespace, as far as the kernel's settings tell.
fn refused(place: &Place, why: &str) -> Failure {
    const SETTINGS: [(&str, &str, &str); 3] = [
        ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let mut failure = Failure::new("a lab needs root, or unprivileged user namespaces").why(why);
    let mut fix = None;
    for (path, closed, setting) in SETTINGS {
        let value = fs::read_to_string(path).unwrap_or_default();
        if value.trim() == closed {
            failure = failure.detail(format!("{path} is {closed}"));
            fix = Some(setting);
        }
    }
    let up = format!("sudo margay lab up{}", flag(&place.name));
    match fix {
        Some(setting) => failure.help(format!("{up}     or: sudo sysctl -w {setting}")),
        None => failure.help(up),
    }
}
