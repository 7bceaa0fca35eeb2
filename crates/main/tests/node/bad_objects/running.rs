//! The same with an agent that runs, and fifty endpoints whose labels and policies keep changing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kernel::Netns;
use serde_json::{Value, json};
use store::resources::Name;
use store::{Op, Store, Txn, etcd};

use super::{RESOURCES, is_used, stride};
use crate::node::{Node, may_run};
use crate::outage::status;
use crate::samples::{self, Sample, problems};
use crate::spoil::{Spoilt, numbered, spoilt};

const N_ENDPOINTS: usize = 50;
/// One in so many is put into the datastore at once: some hundreds, of every kind.
const STRIDE: usize = 151;
/// So many times in CI.
const N_BATCHES: usize = 4;
/// etcd takes no more in one transaction.
const OPS_MAX: usize = 100;
const BYTES_MAX: usize = 1 << 20;
/// On a busy machine things take their time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node whose endpoints change all the time.
struct Busy {
    node: Node,
    store: Store,
    /// The endpoints as they are stored, by key.
    endpoints: Vec<(String, Value)>,
    addresses: Vec<String>,
    round: usize,
    process: u64,
    n_put: usize,
}

type Blocks = BTreeMap<String, Vec<String>>;

impl Busy {
    fn new(mut node: Node) -> Busy {
        node.start_agent_with(&["--join-every", "0"]);
        let mut addresses = Vec::new();
        let all: Vec<usize> = (0..N_ENDPOINTS).collect();
        for some in all.chunks(10) {
            let calls: Vec<_> =
                some.iter().map(|it| node.call("ADD", &format!("pod{it}"), *it, "")).collect();
            for call in calls {
                let done = call.wait_with_output().unwrap();
                assert!(done.status.success(), "{done:?}");
                let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
                addresses.push(crate::outage::address(&answer));
            }
        }
        let store = open(&node);
        let prefix = format!("{RESOURCES}/workloadendpoints/");
        let stored = store.list(&prefix).unwrap().entries;
        let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap();
        let endpoints: Vec<(String, Value)> =
            stored.iter().map(|it| (it.key.clone(), read(&it.value))).collect();
        assert_eq!(endpoints.len(), N_ENDPOINTS);
        let process = status(&node)["pid"].as_u64().unwrap();
        Busy { node, store, endpoints, addresses, round: 0, process, n_put: 0 }
    }

    /// Puts values straight into the datastore; none removes the key.
    fn put(&self, values: Vec<(String, Option<Vec<u8>>)>) {
        let (mut ops, mut n_bytes) = (Vec::new(), 0);
        for (key, value) in values {
            n_bytes += value.as_ref().map_or(0, Vec::len);
            ops.push(match value {
                Some(value) => Op::Put { key, value },
                None => Op::Delete { key },
            });
            if ops.len() == OPS_MAX || n_bytes > BYTES_MAX {
                self.store
                    .commit(Txn { compares: Vec::new(), ops: std::mem::take(&mut ops) })
                    .unwrap();
                n_bytes = 0;
            }
        }
        self.store.commit(Txn { compares: Vec::new(), ops }).unwrap();
    }

    /// Gives every endpoint another label, and a policy that lets in only who has it.
    fn change(&mut self, round: usize) {
        let mut values = Vec::new();
        for (number, (key, endpoint)) in self.endpoints.iter_mut().enumerate() {
            let role = if number == 0 { "victim" } else { "other" };
            endpoint["metadata"]["labels"]["round"] = json!(format!("r{round}"));
            endpoint["metadata"]["labels"]["role"] = json!(role);
            values.push((key.clone(), Some(endpoint.to_string().into_bytes())));
        }
        let rule = json!({
            "action": "Allow", "protocol": "TCP", "destination": { "ports": [round + 1] },
            "source": { "selector": format!("round == 'r{round}'") },
        });
        let policy = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
            "metadata": { "name": "default.probe", "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6" },
            "spec": {
                "tier": "default", "order": 1, "selector": "has(round)", "types": ["Ingress"],
                "ingress": [rule],
            },
        });
        let key = format!("{RESOURCES}/globalnetworkpolicies/default.probe");
        values.push((key, Some(policy.to_string().into_bytes())));
        self.put(values);
    }

    /// Every endpoint changes, and the kernel follows; the agent is the one it was.
    fn goes_on(&mut self, round: usize, when: &str) -> Blocks {
        self.change(round);
        let began = Instant::now();
        let blocks = loop {
            let blocks = self.ruleset();
            let has_all = |it: &Vec<String>| self.addresses.iter().all(|own| it.contains(own));
            if sets_of(&blocks, round).any(has_all) {
                break blocks;
            }
            let said = || status(&self.node);
            assert!(began.elapsed() < PATIENCE, "{when}: stands still: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        };
        self.round = round;
        let log = std::fs::read_to_string(self.node.path("log")).unwrap();
        assert!(!log.contains("panicked"), "{when}: {log}");
        let poison = std::fs::read_to_string(self.node.path("state/poison.json"));
        assert!(poison.as_ref().map_or(true, |it| it == "{}"), "{when}: {poison:?}");
        let process = status(&self.node)["pid"].as_u64().unwrap();
        assert_eq!(process, self.process, "{when}: another process serves");
        blocks
    }

    /// The chains, sets and maps of all tables: each with its lines, or its elements in order.
    fn ruleset(&self) -> Blocks {
        let listed = self.node.inside("host", "nft", &["-s", "list", "ruleset"]).output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        let text = String::from_utf8(listed.stdout).unwrap();
        let (mut blocks, mut table, mut block) = (Blocks::new(), String::new(), String::new());
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("table ") {
                table = name.trim_end_matches(" {").to_owned();
            } else if let Some(name) =
                line.strip_prefix('\t').filter(|it| it.ends_with('{') && !it.starts_with('\t'))
            {
                block = format!("{table} {}", name.trim_end_matches(" {"));
                blocks.insert(block.clone(), Vec::new());
            } else if let Some(lines) = blocks.get_mut(&block) {
                let is_chain = block.contains(" chain ");
                match is_chain {
                    true => lines.push(line.trim().to_owned()),
                    false => lines.extend(
                        line.split([',', '{', '}', '='])
                            .map(|it| it.trim().to_owned())
                            .filter(|it| !it.is_empty()),
                    ),
                }
            }
        }
        for (name, lines) in &mut blocks {
            if !name.contains(" chain ") {
                lines.sort();
            }
        }
        blocks
    }

    /// Puts objects that cannot be used beside everything else, and takes them away again.
    fn bear(&mut self, batch: &[(Sample, Spoilt)], before: &Blocks) {
        let about = format!("{} to {}", batch[0].1.what, batch[batch.len() - 1].1.what);
        let values = batch.iter().map(|(_, it)| (it.key.clone(), Some(it.bytes.clone())));
        self.put(values.collect());
        self.goes_on(self.round + 1, &about);
        let findings = status(&self.node)["findings"].clone();
        let told: Vec<&str> =
            findings.as_array().unwrap().iter().map(|it| it["problem"].as_str().unwrap()).collect();
        for (sample, bad) in batch {
            let invalid = problems(&bad.key, &bad.bytes);
            let name = Name::at_key(&bad.key).map_or(bad.key.clone(), |name| name.spoken());
            let line = told.iter().find_map(|it| {
                let rest = it.strip_prefix(&name)?;
                let ways = [
                    " is not used: ",
                    " is in force only as far as it can be used: ",
                    " is in force without what cannot be read, as if that were not given: ",
                    " is not in force, and no readable revision of it is known: ",
                ];
                ways.into_iter().find_map(|way| rest.strip_prefix(way))
            });
            let is_named = line.is_some_and(|line| invalid.iter().any(|it| line.contains(it)));
            assert!(invalid.is_empty() || !is_used(sample) || is_named, "{}: {line:?}", bad.what);
        }
        self.is_told_by_get(batch);
        let values = batch.iter().map(|(_, it)| (it.key.clone(), None));
        self.put(values.collect());
        self.goes_on(self.round + 1, "after their removal");
        self.settles(before, &about);
    }
}

impl Busy {
    /// Who lists a kind is told of the same objects.
    fn is_told_by_get(&self, batch: &[(Sample, Spoilt)]) {
        for kind in ["hostendpoints", "globalnetworkpolicies", "workloadendpoints"] {
            let listed = self.node.margay(&["get", kind, "-A"]).output().unwrap();
            let told = String::from_utf8_lossy(&listed.stderr);
            for (_, bad) in batch.iter().filter(|(_, bad)| bad.key.contains(&format!("/{kind}/"))) {
                let name = bad.key.rsplit('/').next().unwrap();
                let name = name.strip_prefix("default.").unwrap_or(name);
                let is_named = told
                    .lines()
                    .any(|line| line.contains(&format!("{name} is stored but cannot be used")));
                let is_bad = !problems(&bad.key, &bad.bytes).is_empty();
                assert!(is_named || !is_bad, "{} is listed", bad.what);
            }
        }
    }

    /// Settings of this node that cannot be used, one after the other, change nothing for good.
    fn bear_settings(&mut self, first: usize, stride: usize, before: &Blocks) {
        let all = samples::all();
        let sample = all.iter().find(|it| it.name == "settings").unwrap();
        let key = format!("{RESOURCES}/felixconfigurations/default");
        let fields = sample.value["spec"].as_object().unwrap();
        // Of these the agent would make folders all over the place.
        let fields = fields.iter().filter(|(name, _)| !name.ends_with("PathPrefix"));
        let bad = fields.flat_map(|(name, good)| {
            let mut only = sample.clone();
            only.value["spec"] = json!({ name: good });
            only.value["metadata"] = json!({ "name": "default" });
            let all = spoilt(&only, (0, 1)).into_iter();
            all.filter(|bad| bad.what.contains(" /spec/")).collect::<Vec<_>>()
        });
        let mut n_put = 0;
        for bad in bad.skip(first).step_by(stride) {
            self.put(vec![(key.clone(), Some(bad.bytes))]);
            n_put += 1;
            if n_put % 20 == 0 {
                self.goes_on(self.round + 1, &bad.what);
            }
        }
        assert!(n_put > 20, "{n_put}");
        self.put(vec![(key, None)]);
        self.settles(before, "settings");
    }

    /// Everything is as it was. What is not there any more, and nothing else is different, was
    /// already led to by nothing: unless packets come there by themselves.
    fn settles(&mut self, before: &Blocks, about: &str) {
        let mut now = self.goes_on(0, about);
        let began = Instant::now();
        loop {
            let is_other = |(name, it): &(&String, &Vec<String>)| before.get(*name) != Some(it);
            let more: Vec<_> = now.iter().filter(is_other).collect();
            let is_base = |lines: &Vec<String>| lines.iter().any(|line| line.contains(" hook "));
            let is_less =
                |(name, it): &(&String, &Vec<String>)| is_base(it) && !now.contains_key(*name);
            let less: Vec<_> = before.iter().filter(is_less).map(|(name, _)| name).collect();
            if more.is_empty() && less.is_empty() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{about}: {more:#?} are left, {less:#?} gone");
            std::thread::sleep(Duration::from_millis(20));
            now = self.ruleset();
        }
    }
}

/// The members of the sets that the rule of a round asks, which nothing but its port tells of.
fn sets_of(blocks: &Blocks, round: usize) -> impl Iterator<Item = &Vec<String>> {
    let port = format!("dport {} ", round + 1);
    let rules = blocks.values().flatten().filter(move |line| line.contains(&port));
    let named = rules.filter_map(|line| line.split('@').nth(1)?.split(' ').next());
    named.filter_map(|set| {
        let name = format!(" set {set}");
        blocks.iter().find(|(block, _)| block.ends_with(&name)).map(|(_, members)| members)
    })
}

fn open(node: &Node) -> Store {
    let Some(member) = &node.etcd else { return node.store() };
    let host = Netns::open(node.netns("host")).unwrap();
    let config =
        etcd::Config { endpoints: vec![member.endpoint.clone()], ..etcd::Config::default() };
    let opened = host.enter(|| {
        let store = Store::Etcd(etcd::Store::new(config).unwrap());
        // Its connections are made by a thread that the first call starts.
        store.get("/calico/none").unwrap();
        store
    });
    opened.unwrap()
}

fn bears_everything(node: Node, first: usize) {
    let mut busy = Busy::new(node);
    let before = busy.goes_on(0, "at the start");
    let samples = samples::all();
    let n_batches = if stride(0) == 1 { STRIDE } else { N_BATCHES };
    for number in 0..n_batches {
        let mut batch = Vec::new();
        for sample in &samples {
            for bad in spoilt(sample, (first + number, STRIDE)) {
                busy.n_put += 1;
                batch.push((sample.clone(), numbered(&bad, busy.n_put)));
            }
        }
        busy.bear(&batch, &before);
    }
    assert!(busy.n_put > 300 * n_batches, "{}", busy.n_put);
    // Settings in force make the tables anew each time.
    busy.bear_settings(first, stride(251), &before);
}

#[test]
fn incident_0_every_spoilt_field_stops_nothing_in_sqlite() {
    if may_run() {
        bears_everything(Node::new(N_ENDPOINTS), 0);
    }
}

#[test]
fn incident_0_every_spoilt_field_stops_nothing_in_etcd() {
    if let Some(node) = Node::with_etcd(N_ENDPOINTS) {
        bears_everything(node, N_BATCHES);
    }
}
