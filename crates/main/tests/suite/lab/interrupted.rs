//! Building that is interrupted at moments of our choice.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::sys::fanotify::{EventFFlags, Fanotify, FanotifyEvent, InitFlags, MarkFlags, MaskFlags};
use rustix::process::{Pid, Signal};

use super::{Labs, kill, signal};
use crate::harness::{Running, until};

/// Keeps whoever wants to become a program from it, until it is dropped.
struct Gate(Fanotify);

impl Gate {
    /// None, said aloud, where the kernel does not offer it.
    fn before(program: &Path) -> Option<Gate> {
        let flags = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let made = Fanotify::init(flags, EventFFlags::O_RDONLY).and_then(|gate| {
            let (add, exec) = (MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_OPEN_EXEC_PERM);
            gate.mark(add, exec, rustix::fs::CWD, Some(program)).map(|()| gate)
        });
        made.inspect_err(|errno| eprintln!("skipped: no fanotify here: {errno}")).ok().map(Gate)
    }

    /// Waits until somebody stands before it. What is returned must outlive the gate: dropping it
    /// first would leave nobody who answers.
    fn held(&self) -> Vec<FanotifyEvent> {
        let mut events = Vec::new();
        until("somebody at the gate", || {
            events = self.0.read_events().unwrap_or_default();
            !events.is_empty()
        });
        events
    }
}

/// A lab that is to be built on an etcd of ours, which nobody can start before the gate opens.
fn building(labs: &Labs) -> Option<(Gate, Running)> {
    let folder = labs.dir.path().join("bin");
    fs::create_dir_all(&folder).unwrap();
    let etcd = folder.join("etcd");
    fs::write(&etcd, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&etcd, fs::Permissions::from_mode(0o755)).unwrap();
    let gate = Gate::before(&etcd)?;
    let mut command = labs.command(&["up", "--datastore", "etcd"]);
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(folder).chain(std::env::split_paths(&usual));
    command.env("PATH", std::env::join_paths(path).unwrap()).process_group(0);
    Some((gate, Running::start(command)))
}

fn number(up: &Running) -> i32 {
    i32::try_from(up.child.id()).unwrap()
}

/// The exit code of a run, which may take a while but not for ever; -1 of one that was killed.
fn ended(up: &mut Running) -> i32 {
    let mut code = None;
    until("the run to end", || {
        let status = up.child.try_wait().unwrap();
        code = status.map(|status| status.code().unwrap_or(-1));
        code.is_some()
    });
    code.unwrap()
}

#[test]
fn an_interrupted_up_leaves_nothing_and_says_so() {
    let Some(labs) = Labs::of_root() else { return };
    let mut up = Running::start(labs.command(&["up", "--nodes", "60"]));
    let namespaces = labs.folder().join("default/netns");
    until("some nodes", || fs::read_dir(&namespaces).is_ok_and(|entries| entries.count() > 2));
    signal(number(&up), Signal::INT);
    assert_eq!(ended(&mut up), 2);
    up.until_complains("lab up was interrupted (by Ctrl-C)");
    up.until_complains("nothing is left of lab \"default\"");
    labs.is_clean("default");
    assert!(!labs.folder().exists(), "what was made for labs is gone with the last one");
}

/// Between the builder's making a process and that process becoming what it is to be, nothing tells
/// that it is of the lab, and it has the builder's lock.
#[test]
fn a_process_that_is_just_being_started_goes_too() {
    let Some(labs) = Labs::of_root() else { return };
    for to_group in [false, true] {
        let Some((gate, mut up)) = building(&labs) else { return };
        let events = gate.held();
        match to_group {
            true => {
                let group = Pid::from_raw(number(&up)).unwrap();
                rustix::process::kill_process_group(group, Signal::INT).unwrap();
            }
            false => signal(number(&up), Signal::TERM),
        }
        assert_eq!(ended(&mut up), 2);
        up.until_complains("nothing is left of lab \"default\"");
        for event in &events {
            assert!(!Path::new(&format!("/proc/{}", event.pid())).exists());
        }
        labs.is_clean("default");
        assert!(!labs.folder().exists());
        drop(gate);
    }
}

#[test]
fn down_waits_for_what_a_killed_up_was_just_starting() {
    let Some(labs) = Labs::of_root() else { return };
    let Some((gate, mut up)) = building(&labs) else { return };
    let events = gate.held();
    kill(number(&up));
    ended(&mut up);
    let down = Running::start(labs.command(&["down"]));
    down.until_complains("waiting for another command");
    drop(gate);
    drop(events);
    down.until_says("nothing is left");
    labs.is_clean("default");
}

#[test]
fn a_builder_that_nobody_watches_builds_nothing() {
    let Some(labs) = Labs::of_root() else { return };
    let mut builder = Command::new(&labs.binary);
    builder.args(["lab-build", "1", "up"]).env("MARGAY_LAB_DIR", labs.folder());
    let done = crate::harness::Done::from(builder.output().unwrap());
    done.refused(&["nobody watches over this builder any more"]);
    assert!(!labs.folder().exists());
}

#[test]
fn a_terminal_that_goes_does_not_end_what_is_to_outlive_it() {
    let Some(labs) = Labs::of_root() else { return };
    let direct = labs.command(&["up", "--nodes", "8", "--pods", "0"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    shell.arg(direct.get_program()).args(direct.get_args()).env_clear();
    for (name, value) in direct.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    let mut up = Running::start(shell);
    let namespaces = labs.folder().join("default/netns");
    until("some nodes", || fs::read_dir(&namespaces).is_ok_and(|entries| entries.count() > 2));
    signal(number(&up), Signal::HUP);
    assert_eq!(ended(&mut up), 0, "{:?}", up.err());
    labs.lab("down").ok();
}

#[test]
fn what_is_left_of_a_removal_does_not_pass_for_a_lab() {
    let Some(labs) = Labs::of_nobody() else { return };
    let up = labs.lab("up --nodes 1 --pods 0");
    if up.err.contains("unprivileged user namespaces") {
        eprintln!("skipped: {}", up.err);
        return;
    }
    up.ok();
    // What only root can remove.
    let obstacle = labs.folder().join("default/nodes/n1/obstacle");
    fs::create_dir_all(obstacle.join("inner")).unwrap();
    labs.lab("down").refused(&["cannot be removed"]);
    labs.lab("up --nodes 1 --pods 0").refused(&["cannot be removed"]);
    labs.lab("status").refused(&["there is no lab"]);
    fs::remove_dir_all(obstacle).unwrap();
    labs.lab("up --nodes 1 --pods 0").ok().says(&["is up in"]);
}
