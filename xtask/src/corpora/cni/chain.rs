//! One chain of calls, inside namespaces of its own, and what was seen after each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::{OTHER_PLUGINS, items, state, text};
use crate::corpora::live::{Answer, Etcd, finish};

/// The endpoint of the recordings.
const RECORDED_ETCD: &str = "http://127.0.0.1:23990";
/// The folder of plugins of the recordings.
const RECORDED_PATH: &str = "/opt/cni/bin";
/// How long a link-local address may take to appear.
const PATIENCE: Duration = Duration::from_secs(2);

/// `xtask cni-chain FILE CHAIN BINARY`: one line of JSON for each call, on standard output.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<bool> {
    let [file, chain, binary] = arguments else { bail!("cni-chain FILE CHAIN BINARY") };
    let rows = crate::corpora::rows(Path::new(file))?;
    let rows: Vec<&Value> = rows.iter().filter(|row| text(row, "chain") == chain).collect();
    let first = rows.first().context("no such chain")?;
    let host = Host::prepare(first, Path::new(binary))?;
    for row in rows {
        let seen = host.perform(row).with_context(|| text(row, "id").to_owned())?;
        println!("{seen}");
    }
    Ok(true)
}

/// A host as the recordings had it: nothing but loopback, and empty folders.
struct Host {
    etcd: Etcd,
    plugins: tempfile::TempDir,
}

impl Host {
    fn prepare(first: &Value, binary: &Path) -> anyhow::Result<Self> {
        for folder in ["/run", "/var"] {
            run(&["mount", "-t", "tmpfs", "tmpfs", folder])?;
        }
        std::os::unix::fs::symlink("/run", "/var/run")?;
        for folder in ["/var/lib/calico", "/var/log"] {
            fs::create_dir_all(folder)?;
        }
        run(&["ip", "link", "set", "lo", "up"])?;
        let setup = &first["setup"];
        for (path, content) in setup["files"].as_object().into_iter().flatten() {
            fs::write(path, content.as_str().unwrap_or_default())?;
        }
        for netns in items(setup, "netns") {
            run(&["ip", "netns", "add", netns.as_str().unwrap_or_default()])?;
        }
        let plugins = tempfile::tempdir()?;
        for name in ["calico", "calico-ipam"] {
            std::os::unix::fs::symlink(binary, plugins.path().join(name))?;
        }
        for name in ["host-local", "static"] {
            let real = Path::new(OTHER_PLUGINS).join(name);
            std::os::unix::fs::symlink(real, plugins.path().join(name))?;
        }
        let etcd = Etcd::start()?;
        let pairs = items(setup, "store").iter().map(|pair| {
            let part = |at: usize| pair[at].as_str().unwrap_or_default().to_owned();
            (part(0), part(1))
        });
        etcd.put_all(pairs.collect())?;
        Ok(Self { etcd, plugins })
    }

    fn perform(&self, row: &Value) -> anyhow::Result<Value> {
        for action in items(&row["setup"], "before") {
            self.act(action.as_str().unwrap_or_default())?;
        }
        let before: BTreeMap<String, String> = self.etcd.dump()?.into_iter().collect();
        let answer = self.call(row)?;
        let after: BTreeMap<String, String> = self.etcd.dump()?.into_iter().collect();
        let store: Vec<Value> = after.iter().map(|(key, value)| json!([key, value])).collect();
        let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
        let mut changes: Vec<Value> = changed.map(|(key, value)| json!([key, value])).collect();
        let gone = before.keys().filter(|key| !after.contains_key(*key));
        changes.extend(gone.map(|key| json!([key, null])));
        let netns = match text(&row["env"], "CNI_NETNS").ends_with("hd-c2") {
            true => "hd-c2",
            false => "hd-c1",
        };
        let until = Instant::now() + PATIENCE;
        let containers = json!({
            "hd-c1": state::of_container("hd-c1", until)?,
            "hd-c2": state::of_container("hd-c2", until)?,
        });
        Ok(json!({
            "stdout": answer.stdout,
            "stderr": answer.stderr,
            "exit": answer.exit,
            "container_state": containers[netns],
            "containers": containers,
            "host_state": state::of_host(until)?,
            "etcd_after": changes,
            "store": store,
        }))
    }

    fn call(&self, row: &Value) -> anyhow::Result<Answer> {
        let program = self.plugins.path().join(text(row, "plugin"));
        let mut command = Command::new(program);
        command.args(items(row, "argv").iter().filter_map(Value::as_str));
        command.env_clear().env("PATH", "/usr/bin:/bin");
        for (name, value) in row["env"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            let folder = self.plugins.path().display().to_string();
            command.env(name, value.replace(RECORDED_PATH, &folder));
        }
        finish(&mut command, &text(row, "stdin").replace(RECORDED_ETCD, &self.etcd.endpoint))
    }

    fn act(&self, action: &str) -> anyhow::Result<()> {
        let (verb, rest) = action.split_once(' ').context("an action has words")?;
        match verb {
            "store-put" => {
                let (key, value) = rest.split_once(' ').context("a key and a value")?;
                self.etcd.put(key, value)
            }
            "store-del" => self.etcd.delete(&[rest]),
            "store-del-prefix" => self.etcd.delete(&["--prefix", rest]),
            "netns-del" => run(&["ip", "netns", "del", rest]),
            "ip" => run(&action.split(' ').collect::<Vec<_>>()),
            _ => bail!("no action {verb}"),
        }
    }
}

fn run(words: &[&str]) -> anyhow::Result<()> {
    let (program, arguments) = words.split_first().context("a command has words")?;
    let output = Command::new(program).args(arguments).output().context((*program).to_owned())?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {told}", words.join(" "));
    Ok(())
}
