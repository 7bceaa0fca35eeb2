//! The real binary against a real etcd: what the rows about command lines need.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use regex::Regex;
use serde_json::Value;

/// How long etcd may take to start, and a command to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A fresh etcd that ends with this value. Its folder is in memory where the host has that.
pub(crate) struct Etcd {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub(crate) endpoint: String,
    _dir: tempfile::TempDir,
}

impl Etcd {
    /// Starts one and waits until it answers.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        let dir = match memory.is_dir() {
            true => tempfile::tempdir_in(memory)?,
            false => tempfile::tempdir()?,
        };
        let (client, peer) = (free_address()?, free_address()?);
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(dir.path())
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("while starting etcd (is the package installed?)")?;
        let etcd = Self { child, endpoint: client, _dir: dir };
        let deadline = Instant::now() + PATIENCE;
        while etcd.etcdctl(&["get", "/"], None).is_err() {
            ensure!(Instant::now() < deadline, "etcd did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(etcd)
    }

    fn etcdctl(&self, arguments: &[&str], stdin: Option<&str>) -> anyhow::Result<Vec<u8>> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint]);
        command.args(["--dial-timeout", "1s", "--command-timeout", "5s"]).args(arguments);
        let finished = finish(&mut command, stdin.unwrap_or_default())?;
        ensure!(finished.exit == Some(0), "etcdctl {}: {}", arguments[0], finished.stderr);
        Ok(finished.stdout.into_bytes())
    }

    /// Puts a key.
    pub(crate) fn put(&self, key: &str, value: &str) -> anyhow::Result<()> {
        match value {
            // etcdctl reads a value from its input, but not an empty one.
            "" => self.etcdctl(&["put", "--", key, ""], None)?,
            value => self.etcdctl(&["put", key], Some(value))?,
        };
        Ok(())
    }

    /// Puts many keys at once.
    pub(crate) fn put_all(&self, pairs: Vec<(String, String)>) -> anyhow::Result<()> {
        let endpoints = vec![self.endpoint.clone()];
        let config = store::etcd::Config { endpoints, ..store::etcd::Config::default() };
        let ops = pairs
            .into_iter()
            .map(|(key, value)| store::Op::Put { key, value: value.into_bytes() })
            .collect();
        let client = store::etcd::Store::new(config)?;
        store::Store::Etcd(client).commit(store::Txn { compares: Vec::new(), ops })?;
        Ok(())
    }

    /// Deletes what the arguments of etcdctl name.
    pub(crate) fn delete(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.etcdctl(&[&["del"], arguments].concat(), None).map(drop)
    }

    /// All keys under `/calico`, in order.
    pub(crate) fn dump(&self) -> anyhow::Result<Vec<(String, String)>> {
        let answer = self.etcdctl(&["get", "/calico", "--prefix", "-w", "json"], None)?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let text = |pair: &Value, field: &str| -> anyhow::Result<String> {
            let encoded = pair.get(field).and_then(Value::as_str).unwrap_or_default();
            Ok(String::from_utf8(BASE64_STANDARD.decode(encoded)?)?)
        };
        let pairs = answer.get("kvs").and_then(Value::as_array);
        let pairs = pairs.into_iter().flatten();
        pairs.map(|pair| Ok((text(pair, "key")?, text(pair, "value")?))).collect()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // A process that is gone already needs no ending.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(format!("http://{}", listener.local_addr()?))
}

/// What a program answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// `None` when a signal ended it.
    pub(crate) exit: Option<i64>,
}

/// Runs a program to its end.
pub(crate) fn finish(command: &mut Command, stdin: &str) -> anyhow::Result<Answer> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("while starting {command:?}"))?;
    let mut input = child.stdin.take().context("no input")?;
    let mut output = child.stdout.take().context("no output")?;
    let mut errors = child.stderr.take().context("no error output")?;
    std::thread::scope(|scope| {
        let stdin = scope.spawn(move || input.write_all(stdin.as_bytes()));
        let read = |from: &mut dyn Read| {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
        };
        let stdout = scope.spawn(move || read(&mut output));
        let stderr = scope.spawn(move || read(&mut errors));
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("{command:?} did not end within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        // A program may end without reading its input.
        let _ = stdin.join();
        let joined = |text: std::thread::Result<std::io::Result<String>>| {
            text.map_err(|_| anyhow::anyhow!("reading the output failed"))?.context("output")
        };
        Ok(Answer {
            stdout: joined(stdout.join())?,
            stderr: joined(stderr.join())?,
            exit: status.code().map(i64::from),
        })
    })
}

/// Our binary under Calico's name.
pub(crate) struct Program {
    dir: tempfile::TempDir,
}

impl Program {
    /// Takes the binary that `MARGAY_BIN` names, or builds it.
    pub(crate) fn build() -> anyhow::Result<Self> {
        let binary = match std::env::var_os("MARGAY_BIN") {
            Some(binary) => PathBuf::from(binary),
            None => {
                let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
                let built =
                    Command::new(cargo).args(["build", "--quiet", "-p", "main"]).status()?;
                ensure!(built.success(), "cargo build -p main failed");
                let this = std::env::current_exe()?;
                this.parent().context("no folder of this program")?.join("margay")
            }
        };
        let binary = binary.canonicalize().with_context(|| format!("no {}", binary.display()))?;
        let dir = tempfile::tempdir()?;
        std::os::unix::fs::symlink(binary, dir.path().join("calicoctl"))?;
        Ok(Self { dir })
    }

    /// The file itself.
    pub(crate) fn binary(&self) -> anyhow::Result<PathBuf> {
        Ok(self.dir.path().join("calicoctl").canonicalize()?)
    }

    /// A command in this folder with the environment of the recordings and no other.
    pub(crate) fn command(&self, folder: &Path, endpoint: &str) -> Command {
        let mut command = Command::new(self.dir.path().join("calicoctl"));
        command.current_dir(folder).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", folder);
        command.env("MARGAY_STORE", self.dir.path().join("unused.db"));
        command.env("DATASTORE_TYPE", "etcdv3").env("ETCD_ENDPOINTS", endpoint);
        command
    }
}

/// Blots out what differs from run to run.
pub(crate) struct Masks(Vec<(String, Regex)>);

impl Masks {
    /// Reads the masks of a topic.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("while reading {}", file.display()))?;
        let masks: Vec<Value> = serde_json::from_str(&text)?;
        let masks = masks.iter().map(|mask| {
            let field = |name: &str| mask.get(name).and_then(Value::as_str).unwrap_or_default();
            Ok((format!("<{}>", field("name")), Regex::new(field("pattern"))?))
        });
        Ok(Self(masks.collect::<anyhow::Result<_>>()?))
    }

    /// Blots out what varies in a text.
    pub(crate) fn apply(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, pattern)| {
            pattern.replace_all(&text, name.as_str()).into_owned()
        })
    }
}
