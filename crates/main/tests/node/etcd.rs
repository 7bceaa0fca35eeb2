//! A real etcd beside a node: it can be ended, made silent, and started again.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A member. Dropping it kills it.
pub(crate) struct Etcd {
    /// Where it listens.
    pub(crate) endpoint: String,
    netns: PathBuf,
    folder: PathBuf,
    child: Option<Child>,
}

/// Whether there is one; says so if not.
pub(crate) fn is_installed() -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("SKIPPED: there is no program `etcd` in PATH");
    }
    found
}

impl Etcd {
    /// Starts a member at an address in a namespace, with its files in a folder.
    pub(crate) fn start(address: &str, netns: PathBuf, folder: PathBuf) -> Etcd {
        let endpoint = format!("http://{address}:2379");
        let mut etcd = Etcd { endpoint, netns, folder, child: None };
        etcd.run();
        etcd
    }

    /// Starts it, again on its old files.
    pub(crate) fn run(&mut self) {
        let peer = "http://127.0.0.1:2380";
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.netns.display())).args(["etcd", "--name=m0"]);
        command.arg(format!("--data-dir={}", self.folder.display()));
        command.arg(format!("--listen-client-urls={}", self.endpoint));
        command.arg(format!("--advertise-client-urls={}", self.endpoint));
        command.arg(format!("--listen-peer-urls={peer}"));
        command.arg(format!("--initial-advertise-peer-urls={peer}"));
        command.arg(format!("--initial-cluster=m0={peer}"));
        command.args(["--heartbeat-interval=20", "--election-timeout=200"]);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(quiet.spawn().unwrap());
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// `kill -STOP`: connections stay, and nothing is answered.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// `kill -CONT`.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
