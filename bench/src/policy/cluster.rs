//! A node with real pods, in a cluster of others that exist in the datastore only, and its agent.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use kernel::nft::{Nft, Table, TableFamily};
use serde_json::Value;
use store::realised::{self, Following};
use store::{Op, Store, Txn};

use crate::node::place::{Place, Pod, Way, container_id};
use crate::node::weight::fill;
use crate::process::ms;
use crate::{home, samples};

use super::scene::{self, Reach};

const TABLE: &str = "margay";
const NODE: &str = "n1";
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is looked whether the table is in force.
const LOOK: Duration = Duration::from_micros(500);

/// The node.
pub(super) struct Cluster {
    pub(super) place: Place,
    pub(super) store: Store,
    pub(super) pods: Vec<Pod>,
    /// The policies as they are stored.
    pub(super) policies: BTreeMap<String, Vec<u8>>,
}

/// What a start of the agent took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// From the start of the process until the filter is in force; only if nothing stood before.
    pub(super) enforced_ms: f64,
    /// Until the node has told so.
    pub(super) told_ms: f64,
    pub(super) cpu_ms: f64,
    pub(super) peak_mib: f64,
}

impl Cluster {
    /// A node with so many pods, made by CNI calls, and pods elsewhere.
    pub(super) fn new(
        margay: &Path,
        folder: &Path,
        (n_local, n_remote): (usize, usize),
    ) -> anyhow::Result<Self> {
        let mut cluster = Self::bare(margay, folder, n_local)?;
        cluster.label()?;
        home::fill(&cluster.store, scene::scope(n_remote))?;
        let remote = (0..n_remote).map(|number| scene::remote(number, ""));
        home::fill(&cluster.store, remote.collect::<anyhow::Result<Vec<_>>>()?.into_iter())?;
        Ok(cluster)
    }

    /// A node with so many pods, made by CNI calls, alone.
    pub(super) fn bare(margay: &Path, folder: &Path, n_local: usize) -> anyhow::Result<Self> {
        let way = Way::Ours {
            margay: margay.to_owned(),
            is_on_etcd: false,
            has_agent: true,
            join_every: None,
        };
        let mut place = Place::new(&way, folder)?;
        let mut pods = Vec::new();
        fill(&place, &mut pods, n_local, "local")?;
        place.kill_agent();
        let store = home::open(&home::address(&store_file(&place)))?;
        Ok(Self { place, store, pods, policies: BTreeMap::new() })
    }

    /// Gives one pod the label by which policies select it.
    pub(super) fn mark_endpoint(&self, number: usize) -> anyhow::Result<()> {
        let (key, mut endpoint) = self.endpoint(number)?;
        endpoint["metadata"]["labels"]["role"] = "server".into();
        self.put(&key, Some(text::json::to_string(&endpoint).into_bytes())).map(drop)
    }

    /// Gives the pods of the node the labels of the scene.
    fn label(&mut self) -> anyhow::Result<()> {
        let stored = self.store.list(samples::WORKLOAD_ENDPOINTS)?.entries;
        ensure!(stored.len() >= self.pods.len(), "{} endpoints", stored.len());
        for (number, entry) in stored.iter().enumerate() {
            let value = scene::labelled(&entry.value, number, number, "")?;
            self.put(&entry.key, Some(value))?;
        }
        Ok(())
    }

    /// The keys of the endpoints of the node's pods.
    pub(super) fn local_keys(&self) -> anyhow::Result<Vec<String>> {
        let prefix = format!("{}default/", samples::WORKLOAD_ENDPOINTS);
        Ok(self.store.list(&prefix)?.entries.into_iter().map(|entry| entry.key).collect())
    }

    /// These policies and no others.
    pub(super) fn set_policies(&mut self, n: usize, reach: Reach) -> anyhow::Result<()> {
        let documents = (0..n).map(|number| scene::policy(number, reach).to_string());
        self.apply(&documents.collect::<Vec<_>>().join("\n---\n"))
    }

    /// The policies of these documents and no others.
    pub(super) fn apply(&mut self, documents: &str) -> anyhow::Result<()> {
        home::clear(&self.store, samples::POLICIES)?;
        self.store.commit(Txn {
            compares: Vec::new(),
            ops: vec![Op::Delete { key: realised::key(NODE) }],
        })?;
        if !documents.is_empty() {
            let file = self.place.folder().join("policies.yaml");
            std::fs::write(&file, documents)?;
            let mut apply = self.place.margay(&["apply", "-f"]);
            let done = apply.arg(&file).output()?;
            let said = String::from_utf8_lossy(&done.stderr);
            ensure!(done.status.success(), "{said}");
        }
        let stored = self.store.list(samples::POLICIES)?.entries;
        self.policies = stored.into_iter().map(|entry| (entry.key, entry.value)).collect();
        Ok(())
    }

    /// Writes or removes a key; when that was begun.
    pub(super) fn put(&self, key: &str, value: Option<Vec<u8>>) -> anyhow::Result<Instant> {
        let key = key.to_owned();
        let op = match value {
            Some(value) => Op::Put { key, value },
            None => Op::Delete { key },
        };
        let began = Instant::now();
        self.store.commit(Txn { compares: Vec::new(), ops: vec![op] })?;
        Ok(began)
    }

    /// Runs a program in the node's namespace; what it prints.
    pub(super) fn run(&self, program: &str, words: &[&str], input: &str) -> anyhow::Result<String> {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.place.netns.enter(|| command.spawn())?.context(program.to_owned())?;
        child.stdin.take().context("it has an input")?.write_all(input.as_bytes())?;
        let done = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{program} {words:?}: {said}");
        Ok(String::from_utf8(done.stdout)?)
    }

    /// Ends the agent and takes its tables away.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        self.place.kill_agent();
        let began = Instant::now();
        // The tables are the agent's alone until the last of its processes has ended.
        loop {
            self.run("nft", &["flush", "ruleset"], "")?;
            if self.run("nft", &["list", "tables"], "")?.is_empty() {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "the tables of an agent that was killed stay");
            std::thread::sleep(LOOK);
        }
    }

    /// Starts the agent, in the place of one that runs: on an empty kernel, or on what stands.
    pub(super) fn start(&mut self, is_cold: bool) -> anyhow::Result<Start> {
        match is_cold {
            true => self.stop()?,
            false => self.place.kill_agent(),
        }
        self.put(&realised::key(NODE), None)?;
        let newest = self.store.list(samples::POLICIES)?.entries;
        let wanted = newest.iter().map(|entry| entry.mod_revision).max().unwrap_or(1);
        let is_told = AtomicBool::new(false);
        let mut nft = Nft::in_netns(&self.place.netns)?;
        let mut following = Following::start(&self.store);
        while following.nodes().is_none() {
            ensure!(following.next(PATIENCE), "the datastore does not answer");
        }
        let began = Instant::now();
        std::thread::scope(|scope| -> anyhow::Result<Start> {
            let looks = scope.spawn(|| -> anyhow::Result<f64> {
                let is_ours = |it: &Table| it.id.name == TABLE && it.id.family == TableFamily::Inet;
                // A table that is still being made can show for a moment without its flags: what
                // counts is since when it has been awake without a break.
                let mut since = None;
                while !is_told.load(Ordering::Acquire) {
                    let is_awake = nft.tables()?.iter().any(|it| is_ours(it) && !it.is_dormant);
                    since = is_awake.then(|| since.unwrap_or_else(|| ms(began.elapsed())));
                    std::thread::sleep(LOOK);
                }
                since.context("it was told, but there is no table")
            });
            self.place.spawn_agent(None)?;
            let told = until_told(&mut following, wanted);
            is_told.store(true, Ordering::Release);
            let told_ms = ms(told? - began);
            let enforced_ms = looks.join().ok().context("the look panicked")??;
            Ok(Start {
                enforced_ms,
                told_ms,
                cpu_ms: self.place.agent_cpu_ms()?,
                peak_mib: self.peak_mib()?,
            })
        })
    }

    /// The largest resident memory of all processes of the agent so far, together.
    pub(super) fn peak_mib(&self) -> anyhow::Result<f64> {
        let mut all = 0.0;
        for process in self.place.agent_processes() {
            let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let text = line.context("no VmHWM")?.trim().trim_end_matches(" kB");
            all += text.parse::<f64>()? / 1024.0;
        }
        Ok(all)
    }

    /// How many lines the listing of our table has, without the members of its sets and with them.
    pub(super) fn n_lines(&self) -> anyhow::Result<[usize; 2]> {
        let list = |words: &[&str]| {
            let words = [words, &["list", "table", "inet", TABLE]].concat();
            anyhow::Ok(self.run("nft", &words, "")?.lines().count())
        };
        Ok([list(&["--terse"])?, list(&[])?])
    }

    /// An interface pair that no runtime has asked for.
    pub(super) fn add_interface(&self, name: &str) -> anyhow::Result<()> {
        let script = format!("link add {name} type veth peer name x{}\n", &name[5..]);
        self.run("ip", &["-batch", "-"], &(script + &format!("link set {name} up\n"))).map(drop)
    }

    /// The address of a pod, by its number.
    pub(super) fn address_of(&self, number: usize) -> anyhow::Result<Ipv4Addr> {
        let (_, endpoint) = self.endpoint(number)?;
        let network = endpoint["spec"]["ipNetworks"][0].as_str().context("no address")?;
        Ok(network.trim_end_matches("/32").parse()?)
    }

    fn endpoint(&self, number: usize) -> anyhow::Result<(String, Value)> {
        let container = container_id(&format!("local-{number}"));
        for entry in self.store.list(samples::WORKLOAD_ENDPOINTS)?.entries {
            let endpoint = text::json::parse(&entry.value)?;
            if endpoint["spec"]["containerID"].as_str() == Some(&container) {
                return Ok((entry.key, endpoint));
            }
        }
        bail!("pod {number} has no endpoint")
    }
}

fn store_file(place: &Place) -> PathBuf {
    place.folder().join("store.db")
}

/// Waits until the node tells that it has come so far; when that was.
fn until_told(following: &mut Following, wanted: i64) -> anyhow::Result<Instant> {
    loop {
        let told = following.nodes().and_then(|nodes| nodes.get(NODE));
        if told.is_some_and(|told| told.revision >= wanted) {
            return Ok(Instant::now());
        }
        ensure!(following.next(PATIENCE), "the agent does not tell how far it has come");
    }
}
