//! Random policies and random sequences of changes: after each of them, packets between random
//! pairs do what the oracle says.
//!
//! `MARGAY_POLICY_SEEDS=5000` runs that many sequences in place of a few; a failure names its seed,
//! and `MARGAY_POLICY_SEED=N` runs that one alone.

use std::collections::BTreeMap;

use fastrand::Rng;
use policy::Cluster as Input;
use policy::graph::Graph;
use policy::reference;
use serde_json::{Map, Value, json};

use crate::dataplane::{self, Dataplane};
use crate::objects::{self, Cluster, NODE};
use crate::probes::Prober;
use crate::semantics::{Question, all_shapes, mismatches};

const N_SEEDS: u64 = 80;
/// Flushes in a sequence.
const N_STEPS: usize = 5;
/// Packets after each of them.
const N_QUESTIONS: usize = 200;

const NAMESPACES: [&str; 3] = ["shop", "front", "dark"];
const TIERS: [&str; 3] = ["default", "early", "late"];
const SELECTORS: [&str; 14] = [
    "all()",
    "app == 'web'",
    "app == 'db'",
    "app != 'web'",
    "app in {'client', 'spy'}",
    "has(color)",
    "!has(color)",
    "color == 'red' || app == 'spy'",
    "color == 'blue' && app == 'web'",
    "kind == 'office'",
    "has(kind) || app == 'db'",
    "projectcalico.org/namespace == 'shop'",
    "mood == 'good'",
    "app == 'nobody'",
];
const NAMESPACE_SELECTORS: [&str; 6] = [
    "all()",
    "global()",
    "env == 'prod'",
    "team == 'front'",
    "projectcalico.org/name == 'dark'",
    "env == 'none'",
];
const NETS: [[&str; 10]; 2] = [
    [
        "10.65.0.0/24",
        "10.65.0.0/30",
        "10.65.0.4/31",
        "10.65.0.2/32",
        "10.65.1.0/24",
        "198.51.100.0/24",
        "198.51.100.0/25",
        "192.0.2.1/32",
        "0.0.0.0/0",
        "172.30.0.1/32",
    ],
    [
        "fd65::/64",
        "fd65::/126",
        "fd65::4/127",
        "fd65::2/128",
        "fd65:1::/64",
        "2001:db8:51::/48",
        "2001:db8:51::/121",
        "2001:db8:2::1/128",
        "::/0",
        "fd30::1/128",
    ],
];
const PORTS: [&str; 10] =
    ["22", "80", "443", "5432", "8080", "1:100", "100:6000", "4000:5000", "http", "names"];

/// A cluster that changes at random.
pub(crate) struct Changing {
    pub(crate) rng: Rng,
    /// The objects there are, by kind, namespace and name.
    pub(crate) objects: BTreeMap<[String; 3], Value>,
    pub(crate) graph: Graph,
    input: Input,
}

impl Changing {
    pub(crate) fn new(cluster: &Cluster, seed: u64) -> Self {
        let mut changing = Self {
            rng: Rng::with_seed(seed),
            objects: BTreeMap::new(),
            graph: Graph::new(NODE),
            input: Input::default(),
        };
        for object in &cluster.objects {
            changing.put(object.clone());
        }
        changing
    }

    pub(crate) fn put(&mut self, object: Value) {
        // What users may not store is not asked about.
        let Some(change) = objects::accepted(&object) else { return };
        self.objects.insert(place(&object), object);
        self.input.absorb(change.clone());
        self.graph.absorb(change);
    }

    pub(crate) fn remove(&mut self, place: &[String; 3]) {
        let Some(object) = self.objects.remove(place) else { return };
        let change = objects::removal(&object);
        self.input.absorb(change.clone());
        self.graph.absorb(change);
    }

    /// Some changes, of which each may take back what another did.
    pub(crate) fn change(&mut self, cluster: &Cluster) {
        for _ in 0..self.rng.usize(1..8) {
            let object = match self.rng.u8(0..20) {
                0..10 => self.policy(),
                10..12 => self.network_set(),
                12..14 => self.tier(),
                14 => self.profile(),
                _ => self.workload(cluster),
            };
            let is_gone = self.rng.u8(0..4) == 0;
            match is_gone {
                true => self.remove(&place(&object)),
                false => self.put(object),
            }
        }
    }

    /// The graph and the slow way agree.
    pub(crate) fn check(&self) {
        let slow = reference::intent(&self.input, NODE);
        assert!(*self.graph.intent() == slow, "the graph and its reference differ");
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.rng.usize(..from.len())]
    }

    pub(crate) fn is(&mut self, one_in: u32) -> bool {
        self.rng.u32(0..one_in) == 0
    }

    pub(crate) fn policy(&mut self) -> Value {
        let tier = self.pick(&TIERS);
        let number = self.rng.u8(0..4);
        let name = match tier {
            "default" => format!("p{number}"),
            tier => format!("{tier}.p{number}"),
        };
        let is_global = self.is(2);
        let kind = match (is_global, self.is(8)) {
            (true, false) => "GlobalNetworkPolicy",
            (true, true) => "StagedGlobalNetworkPolicy",
            (false, false) => "NetworkPolicy",
            (false, true) => "StagedNetworkPolicy",
        };
        let mut spec = Map::new();
        spec.insert("tier".to_owned(), json!(tier));
        if !self.is(3) {
            spec.insert("order".to_owned(), json!(self.rng.u8(0..4)));
        }
        if !self.is(3) {
            spec.insert("selector".to_owned(), json!(self.pick(&SELECTORS)));
        }
        if is_global && self.is(6) {
            let selector = self.pick(&NAMESPACE_SELECTORS);
            spec.insert("namespaceSelector".to_owned(), json!(selector));
        }
        let types = match self.rng.u8(0..5) {
            0 => json!(["Ingress", "Egress"]),
            1 | 2 => json!(["Ingress"]),
            3 => json!(["Egress"]),
            _ => Value::Null,
        };
        for (direction, field) in [("Ingress", "ingress"), ("Egress", "egress")] {
            let has_rules = match types.as_array() {
                Some(types) => types.contains(&json!(direction)),
                None => self.is(2),
            };
            if has_rules {
                spec.insert(field.to_owned(), self.rules());
            }
        }
        if !types.is_null() {
            spec.insert("types".to_owned(), types);
        }
        let mut metadata = json!({ "name": name });
        if !is_global {
            metadata["namespace"] = json!(self.pick(&NAMESPACES));
        }
        json!({ "kind": kind, "metadata": metadata, "spec": spec })
    }

    fn rules(&mut self) -> Value {
        let n = self.rng.usize(0..4);
        (0..n).map(|_| self.rule()).collect()
    }

    fn rule(&mut self) -> Value {
        let mut rule = Map::new();
        let action = self.pick(&["Allow", "Allow", "Allow", "Deny", "Deny", "Pass", "Log"]);
        rule.insert("action".to_owned(), json!(action));
        let is_ipv4 = self.rng.bool();
        if self.is(6) {
            rule.insert("ipVersion".to_owned(), json!(if is_ipv4 { 4 } else { 6 }));
        }
        let protocol = match self.rng.u8(0..10) {
            0..3 => json!("TCP"),
            3 => json!("UDP"),
            4 => json!("SCTP"),
            5 => json!(if is_ipv4 { "ICMP" } else { "ICMPv6" }),
            6 => json!(253),
            _ => Value::Null,
        };
        let has_ports = matches!(protocol.as_str(), Some("TCP" | "UDP" | "SCTP"));
        if matches!(protocol.as_str(), Some("ICMP" | "ICMPv6")) {
            let kind = if is_ipv4 { [8, 13] } else { [128, 139] }[self.rng.usize(..2)];
            let icmp = match self.is(2) {
                true => json!({ "type": kind, "code": self.rng.u8(0..2) }),
                false => json!({ "type": kind }),
            };
            let field = if self.is(3) { "notICMP" } else { "icmp" };
            if !self.is(3) {
                rule.insert(field.to_owned(), icmp);
            }
        }
        match protocol {
            Value::Null if self.is(6) => {
                let protocol = self.pick(&["TCP", "UDP", "ICMP", "SCTP"]);
                rule.insert("notProtocol".to_owned(), json!(protocol));
            }
            Value::Null => {}
            protocol => {
                rule.insert("protocol".to_owned(), protocol);
            }
        }
        for end in ["source", "destination"] {
            if self.is(2) {
                rule.insert(end.to_owned(), self.end(is_ipv4, has_ports));
            }
        }
        Value::Object(rule)
    }

    fn end(&mut self, is_ipv4: bool, has_ports: bool) -> Value {
        let mut end = Map::new();
        let nets = &NETS[usize::from(!is_ipv4)];
        for (field, one_in) in [("nets", 4), ("notNets", 8)] {
            if self.is(one_in) {
                let n = self.rng.usize(1..4);
                let nets: Vec<&str> = (0..n).map(|_| self.pick(nets)).collect();
                end.insert(field.to_owned(), json!(nets));
            }
        }
        for (field, one_in) in [("selector", 2), ("notSelector", 6)] {
            if self.is(one_in) {
                end.insert(field.to_owned(), json!(self.pick(&SELECTORS)));
            }
        }
        if self.is(8) {
            let selector = self.pick(&NAMESPACE_SELECTORS);
            end.insert("namespaceSelector".to_owned(), json!(selector));
        }
        if self.is(10) {
            let accounts = match self.is(2) {
                true => json!({ "names": [self.pick(&["web", "robot"])] }),
                false => json!({ "selector": "role == 'server'" }),
            };
            end.insert("serviceAccounts".to_owned(), accounts);
        }
        for (field, one_in) in [("ports", 2), ("notPorts", 5)] {
            if has_ports && self.is(one_in) {
                let n = self.rng.usize(1..4);
                let ports = (0..n).map(|_| {
                    let port = self.pick(&PORTS);
                    port.parse::<u16>().map_or_else(|_| json!(port), |number| json!(number))
                });
                end.insert(field.to_owned(), ports.collect());
            }
        }
        Value::Object(end)
    }

    fn network_set(&mut self) -> Value {
        let name = format!("set{}", self.rng.u8(0..3));
        let n = self.rng.usize(0..5);
        let nets: Vec<&str> = (0..n)
            .map(|_| {
                let family = self.rng.usize(..2);
                self.pick(&NETS[family])
            })
            .collect();
        let labels = match self.is(2) {
            true => json!({ "kind": "office" }),
            false => json!({ "kind": "other", "color": "blue" }),
        };
        let spec = json!({ "nets": nets });
        if self.is(2) {
            let metadata = json!({ "name": name, "labels": labels });
            return json!({ "kind": "GlobalNetworkSet", "metadata": metadata, "spec": spec });
        }
        let namespace = self.pick(&NAMESPACES);
        let metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
        json!({ "kind": "NetworkSet", "metadata": metadata, "spec": spec })
    }

    fn tier(&mut self) -> Value {
        let name = self.pick(&TIERS[1..]);
        let action = self.pick(&["Deny", "Pass"]);
        let mut spec = json!({ "defaultAction": action });
        if !self.is(4) {
            spec["order"] = json!(self.rng.u8(0..3));
        }
        json!({ "kind": "Tier", "metadata": { "name": name }, "spec": spec })
    }

    fn profile(&mut self) -> Value {
        let namespace = self.pick(&NAMESPACES);
        let mut labels = json!({ "pcns.projectcalico.org/name": namespace });
        if self.is(2) {
            labels["mood"] = json!("good");
        }
        if self.is(2) {
            labels["pcns.env"] = json!("prod");
        }
        let rules = |it: &mut Self| match it.is(3) {
            true => it.rules(),
            false => json!([{ "action": "Allow" }]),
        };
        let (ingress, egress) = (rules(self), rules(self));
        json!({
            "kind": "Profile", "metadata": { "name": format!("kns.{namespace}") },
            "spec": { "labelsToApply": labels, "ingress": ingress, "egress": egress },
        })
    }

    /// One of the cluster's, with other labels, ports or profiles.
    fn workload(&mut self, cluster: &Cluster) -> Value {
        let all: Vec<&Value> =
            cluster.objects.iter().filter(|it| it["kind"] == "WorkloadEndpoint").collect();
        let mut workload = all[self.rng.usize(..all.len())].clone();
        let labels = &mut workload["metadata"]["labels"];
        if self.is(2) {
            labels["color"] = json!(self.pick(&["red", "blue", "green"]));
        }
        if self.is(3) {
            labels["app"] = json!(self.pick(&["web", "db", "client", "spy"]));
        }
        if self.is(4) {
            let port = [80, 443, 5432, 8080][self.rng.usize(..4)];
            let named = json!([{ "name": "http", "protocol": "TCP", "port": port }]);
            workload["spec"]["ports"] = named;
        }
        if self.is(6) {
            let profiles = workload["spec"]["profiles"].as_array_mut();
            profiles.expect("every workload has some").reverse();
        }
        if self.is(8) {
            workload["spec"]["profiles"] = json!(["gone"]);
        }
        workload
    }
}

pub(crate) fn place(object: &Value) -> [String; 3] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    [text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"])]
}

/// Packets between random pairs.
fn some<'a>(cluster: &'a Cluster, rng: &mut Rng) -> Vec<Question<'a>> {
    let (pairs, shapes) = (cluster.pairs(), all_shapes());
    let mut questions: Vec<Question<'_>> = Vec::new();
    while questions.len() < N_QUESTIONS {
        let (from, to) = pairs[rng.usize(..pairs.len())];
        let shape = shapes[rng.usize(..shapes.len())];
        let is_traced = rng.u8(0..3) == 0;
        let question = Question { from, to, shape, is_traced };
        if !questions.iter().any(|it| it.is_one_connection(&question)) {
            questions.push(question);
        }
    }
    questions
}

fn sequence(cluster: &Cluster, prober: &mut Prober, seed: u64) {
    let mut changing = Changing::new(cluster, seed);
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    changing.graph.flush();
    dataplane.install(changing.graph.intent().clone());
    for step in 0..N_STEPS {
        changing.change(cluster);
        let dirty = changing.graph.flush();
        changing.check();
        dataplane.update(changing.graph.intent().clone(), &dirty);
        let questions = some(cluster, &mut changing.rng);
        let wrong = mismatches(prober, &mut dataplane, &questions);
        if !wrong.is_empty() {
            let objects: Vec<String> = changing.objects.values().map(Value::to_string).collect();
            panic!(
                "MARGAY_POLICY_SEED={seed}, step {step}, {} wrong:\n{}\nobjects:\n{}",
                wrong.len(),
                wrong[..wrong.len().min(10)].join("\n"),
                objects.join("\n")
            );
        }
    }
}

#[test]
fn the_kernel_follows_random_changes() {
    let cluster = Cluster::read();
    let Some(mut prober) = cluster.prober() else { return };
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("MARGAY_POLICY_SEED") {
        sequence(&cluster, &mut prober, seed);
        return;
    }
    for seed in 0..number("MARGAY_POLICY_SEEDS").unwrap_or(N_SEEDS) {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            sequence(&cluster, &mut prober, seed);
        }));
        assert!(done.is_ok(), "MARGAY_POLICY_SEED={seed} shows it alone");
    }
    // Of both there is plenty.
    let n_fewest = prober.n_arrived.min(prober.n_dropped);
    assert!(n_fewest > (prober.n_arrived + prober.n_dropped) / 10, "{n_fewest}");
}
