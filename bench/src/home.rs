//! The datastores that are measured: a fresh SQLite file, and an etcd of our own.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use store::{Op, Store, Txn, etcd, sqlite};
use tempfile::TempDir;

/// What etcd takes in one transaction.
const CHUNK: usize = 100;

/// A member of a cluster of one, on a free port. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Etcd {
    child: Child,
    pub(crate) url: String,
    _directory: TempDir,
}

impl Etcd {
    /// Starts it and waits until it serves.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let url = || {
            let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
            anyhow::Ok(format!("http://{free}"))
        };
        let (url, peer) = (url()?, url()?);
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(directory.path())
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("etcd must be in PATH")?;
        let etcd = Self { child, url, _directory: directory };
        let store = open(&etcd.address())?;
        let began = Instant::now();
        while let Err(error) = store.get("/") {
            ensure!(began.elapsed() < Duration::from_secs(30), "etcd does not serve: {error}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(etcd)
    }

    /// Its address for [`open`].
    pub(crate) fn address(&self) -> String {
        self.url.clone()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a datastore by its address: a URL of etcd, or a file.
pub(crate) fn open(address: &str) -> anyhow::Result<Store> {
    if address.starts_with("http") {
        let config = etcd::Config { endpoints: vec![address.to_owned()], ..Default::default() };
        return Ok(Store::Etcd(etcd::Store::new(config)?));
    }
    Ok(Store::Sqlite(sqlite::Store::open(address)?))
}

/// The address of the file for [`open`].
pub(crate) fn address(path: &Path) -> String {
    path.display().to_string()
}

/// Writes keys as they are.
pub(crate) fn fill(
    store: &Store,
    entries: impl Iterator<Item = (String, Vec<u8>)>,
) -> anyhow::Result<()> {
    let mut entries = entries.map(|(key, value)| Op::Put { key, value }).peekable();
    while entries.peek().is_some() {
        let ops = entries.by_ref().take(CHUNK).collect();
        store.commit(Txn { compares: Vec::new(), ops })?;
    }
    Ok(())
}

/// Removes all keys with the prefix.
pub(crate) fn clear(store: &Store, prefix: &str) -> anyhow::Result<()> {
    let entries = store.list(prefix)?.entries;
    for chunk in entries.chunks(CHUNK) {
        let ops = chunk.iter().map(|entry| Op::Delete { key: entry.key.clone() }).collect();
        store.commit(Txn { compares: Vec::new(), ops })?;
    }
    Ok(())
}
