//! `lab exec`: a command in a pod or on a node, with the names of the lab resolving inside.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::mount::MountPropagationFlags;

use crate::Outcome;
use crate::arguments::Exec;
use crate::failure::Failure;
use crate::lab::Lab;
use crate::place::Place;
use crate::processes;

/// Becomes the command; returns only if that fails.
pub(crate) fn run(place: &Place, exec: &Exec) -> Result<Outcome, Failure> {
    let lab = Lab::open(place)?;
    let target = &exec.target;
    let is_known = lab.state.node(target).is_some() || lab.state.pod(target).is_some();
    if !is_known {
        return Err(lab.state.unknown(target));
    }
    let [program, arguments @ ..] = exec.command.as_slice() else {
        return Err(Failure::new("which command?"));
    };
    enter(&lab, target)
        .map_err(|error| Failure::new(format!("{target} cannot be entered")).why(error))?;
    let mut command = Command::new(program);
    command.args(arguments);
    processes::mark(&mut command, &lab.place, &format!("exec/{target}"));
    lab.surround(&mut command);
    command.env("PATH", search_path(&lab));
    if lab.state.node(target).is_some() {
        command.env("NODENAME", target);
        command.env("MARGAY_STATE_DIR", lab.place.node(target, "state"));
        command.env("MARGAY_RUN_DIR", lab.place.node(target, "run"));
    }
    let error = command.exec();
    let name = program.to_string_lossy();
    Err(Failure::new(format!("{name} cannot be run in {target}")).why(error))
}

/// What the host has comes first; this very binary is there under its names where it is not
/// installed.
fn search_path(lab: &Lab) -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin".into());
    path.push(":");
    path.push(lab.place.programs());
    path
}

/// Moves this thread, which becomes the command, into the namespace, with a file system of its own
/// in which `/etc/hosts` knows the lab and nothing leads to another datastore.
fn enter(lab: &Lab, target: &str) -> io::Result<()> {
    let netns = File::open(lab.place.namespace(target))?;
    setns(&netns, CloneFlags::CLONE_NEWNET)?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)?;
    rustix::system::sethostname(target.as_bytes())?;
    // Downstream: when the lab is removed, its mounts go from here too.
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", downstream)?;
    if Path::new("/etc/hosts").exists() {
        rustix::mount::mount_bind(lab.place.hosts(), "/etc/hosts")?;
    }
    let empty = lab.place.folder.join("empty");
    std::fs::create_dir_all(&empty)?;
    for folder in settings_folders().iter().filter(|folder| folder.is_dir()) {
        rustix::mount::mount_bind(&empty, folder)?;
    }
    Ok(())
}

/// Where this host's own datastore may be named, before any variable is looked at.
fn settings_folders() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = variable("HOME").map(|home| home.join(".config"));
    let own = variable("XDG_CONFIG_HOME").or(home).map(|folder| folder.join("margay"));
    std::iter::once(PathBuf::from("/etc/calico")).chain(own).collect()
}
