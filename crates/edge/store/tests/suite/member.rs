//! Real etcd members on free ports of this host.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use store::{Store, etcd};
use tempfile::TempDir;

pub(crate) use crate::free_port::free_port;

/// A running member. Dropping it kills it.
pub(crate) struct Member {
    child: Child,
    arguments: Vec<String>,
    pub(crate) url: String,
    _directory: TempDir,
}

/// Whether etcd tests can run; says aloud if not.
pub(crate) fn is_installed() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !found {
            eprintln!("SKIPPED: etcd tests, because there is no program `etcd` in PATH");
        }
        found
    })
}

/// Options of a member beyond the usual.
#[derive(Default)]
pub(crate) struct Options<'a> {
    pub(crate) tls_directory: Option<&'a Path>,
    pub(crate) more: &'a [&'a str],
}

impl Member {
    /// Starts a cluster of one, and waits until it serves.
    pub(crate) fn start() -> Member {
        let member = Member::start_with(&Options::default());
        wait_until_serving(&member.store());
        member
    }

    /// Starts a cluster of one without waiting.
    pub(crate) fn start_with(options: &Options<'_>) -> Member {
        Member::cluster(1, options).remove(0)
    }

    /// Starts a cluster of `n` members without waiting.
    pub(crate) fn cluster(n: usize, options: &Options<'_>) -> Vec<Member> {
        let peers: Vec<String> =
            (0..n).map(|_| format!("http://127.0.0.1:{}", free_port())).collect();
        let initial: Vec<String> =
            peers.iter().enumerate().map(|(index, url)| format!("m{index}={url}")).collect();
        let initial = initial.join(",");
        peers
            .iter()
            .enumerate()
            .map(|(index, peer)| Member::spawn(index, peer, &initial, options))
            .collect()
    }

    fn spawn(index: usize, peer: &str, initial: &str, options: &Options<'_>) -> Member {
        let directory = tempfile::tempdir().unwrap();
        let scheme = if options.tls_directory.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{}", free_port());
        let mut arguments: Vec<String> = [
            ("--name", format!("m{index}").as_str()),
            ("--data-dir", directory.path().to_str().unwrap()),
            ("--listen-client-urls", &url),
            ("--advertise-client-urls", &url),
            ("--listen-peer-urls", peer),
            ("--initial-advertise-peer-urls", peer),
            ("--initial-cluster", initial),
            ("--heartbeat-interval", "20"),
            ("--election-timeout", "200"),
            // Tests look for dead connections more often than a stock etcd likes.
            ("--grpc-keepalive-min-time", "200ms"),
        ]
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
        if let Some(tls) = options.tls_directory {
            let file = |name: &str| tls.join(name).display().to_string();
            arguments.push(format!("--cert-file={}", file("server.pem")));
            arguments.push(format!("--key-file={}", file("server.key")));
            arguments.push(format!("--trusted-ca-file={}", file("ca.pem")));
        }
        arguments.extend(options.more.iter().map(ToString::to_string));
        let child = run(&arguments);
        Member { child, arguments, url, _directory: directory }
    }

    pub(crate) fn config(&self) -> etcd::Config {
        etcd::Config { endpoints: vec![self.url.clone()], ..quick() }
    }

    pub(crate) fn store(&self) -> Store {
        Store::Etcd(etcd::Store::new(self.config()).unwrap())
    }

    /// Kills the member as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a killed member again on its old files and ports.
    pub(crate) fn restart(&mut self) {
        self.child = run(&self.arguments);
    }

    /// Runs `etcdctl` on this member and returns what it prints.
    pub(crate) fn etcdctl(&self, arguments: &[impl AsRef<OsStr> + std::fmt::Debug]) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg("--endpoints")
            .arg(&self.url)
            .args(arguments)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "etcdctl {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(arguments: &[String]) -> Child {
    Command::new("etcd")
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A configuration with dead connections noticed fast.
pub(crate) fn quick() -> etcd::Config {
    etcd::Config { keep_alive: Duration::from_secs(1), ..etcd::Config::default() }
}

pub(crate) fn wait_until_serving(store: &Store) {
    let began = Instant::now();
    while let Err(error) = store.get("/") {
        assert!(began.elapsed() < Duration::from_secs(120), "etcd does not serve: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
