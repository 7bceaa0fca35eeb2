//! What a node says about itself: status, sandboxes, events, health and metrics. A lab of one node
//! is the node; everything is asked as its user would.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use store::{Op, Store, Txn, sqlite};

use crate::harness::{Done, Place, Running, policy, until};

const MARGAY: &str = env!("CARGO_BIN_EXE_margay");

/// A lab of one node, removed at the end.
struct Lab(Place);

impl Lab {
    /// None, said aloud, for whom may not make network namespaces.
    fn up(pods: usize) -> Option<Lab> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a node needs root");
            return None;
        }
        let lab = Lab(Place::embedded());
        lab.lab(&["up", "--nodes", "1", "--pods", &pods.to_string()]).ok();
        Some(lab)
    }

    fn lab(&self, words: &[&str]) -> Done {
        Done::from(self.command(words).output().unwrap())
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.0.command(&[&["lab"], words].concat());
        command.env("MARGAY_LAB_DIR", self.0.path("labs"));
        command
    }

    fn on_node(&self, words: &str) -> std::process::Command {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.command(&[&["exec", "n1", "--"], words.as_slice()].concat())
    }

    /// Runs a command on the node.
    fn run(&self, words: &str) -> Done {
        Done::from(self.on_node(words).output().unwrap())
    }

    /// Runs the program on the node.
    fn margay(&self, words: &str) -> Done {
        self.run(&format!("{MARGAY} {words}"))
    }

    fn json(&self, words: &str) -> Value {
        let done = self.margay(&format!("{words} -o json"));
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }

    /// The codes of what is wrong.
    fn codes(&self) -> Vec<String> {
        let status = self.json("status");
        let findings = status["findings"].as_array().unwrap();
        findings.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
    }

    fn until_codes(&self, codes: &[&str]) {
        until(&format!("{codes:?}"), || self.codes() == codes);
    }

    /// The address of the only pod.
    fn address(&self) -> String {
        let sandboxes = self.json("sandboxes");
        sandboxes["sandboxes"][0]["addresses"][0].as_str().unwrap().to_owned()
    }

    fn store(&self) -> Store {
        let path = self.0.path("labs").join("default/store.db");
        Store::Sqlite(sqlite::Store::open(path).unwrap())
    }

    fn put(&self, key: &str, value: &str) {
        let op = Op::Put { key: key.to_owned(), value: value.into() };
        self.store().commit(Txn { compares: vec![], ops: vec![op] }).unwrap();
    }

    /// The process of the agent that does the work.
    fn dataplane(&self) -> rustix::process::Pid {
        let folder = self.0.path("labs").display().to_string();
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_it = |pid: &i32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words);
            words.contains("\0--dataplane=") && words.contains(&folder)
        };
        let found = pids.into_iter().find(is_it).and_then(rustix::process::Pid::from_raw);
        found.expect("an agent has a dataplane")
    }

    /// What the node's HTTP server answers.
    fn get(&self, path: &str) -> String {
        let script = format!(
            "exec 3<>/dev/tcp/192.0.2.1/9099 && printf 'GET {path} HTTP/1.1\\r\\n\\r\\n' >&3 \
             && cat <&3"
        );
        let words = ["exec", "n1", "--", "bash", "-c", &script];
        self.lab(&words).out
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let down = self.lab(&["down"]);
        if !std::thread::panicking() {
            down.code(0);
        }
    }
}

#[test]
fn a_node_that_is_fine_says_so_with_its_sandboxes() {
    let Some(lab) = Lab::up(1) else { return };
    let fine = lab.margay("status").ok();
    assert!(fine.out.starts_with("✓ fine on n1: 1 sandbox\nAGENT      ✓  "), "{fine:?}");
    let fine = fine.says(&["STORE      ✓  ", "IPAM       ✓  1/64 addresses in 1 block"]);
    let fine = fine.says(&["ROUTES     ✓  2 in the kernel\n", "FILTER     ✓  1 interface"]);
    let fine = fine.says(&[", policy of revision "]);
    assert!(!fine.out.contains("fix:"), "{fine:?}");
    lab.margay("node status").ok().says(&["✓ fine on n1"]);
    let status = lab.json("status");
    assert_eq!((&status["status"], &status["findings"]), (&json!("fine"), &json!([])));
    assert_eq!(status["sandboxes"], json!({"ready": 1}));
    assert_eq!(status["routes"], json!({"isApplied": true, "count": 2, "repaired": 0}));
    assert_eq!(status["store"]["isConnected"], true);
    lab.margay("sandboxes").ok().says(&["CONTAINER", &lab.address(), "ready", "lab"]);
    lab.margay("sandboxes -o wide").ok().says(&["ENDPOINT", "n1-cni-"]);
    lab.margay("").code(0).says(&["agent   running ", "1 sandbox, status ✓ fine"]);
    let events = lab.margay("events --since 1h").ok().says(&[" n1  started ", " n1  added "]);
    assert_eq!(events.out.lines().count(), 2, "{events:?}");
    lab.lab(&["pod", "rm", "n1-web"]).ok();
    assert_eq!(lab.margay("events removed").ok().out.lines().count(), 1);
    lab.margay("sandboxes").code(0).complains(&["no sandboxes on n1"]);
}

#[test]
fn a_foreign_route_is_a_finding_until_it_is_gone_and_ours_is_put_back() {
    let Some(lab) = Lab::up(1) else { return };
    let address = lab.address();
    let follower = Running::start(lab.on_node(&format!("{MARGAY} events -f -o json repaired")));
    lab.run(&format!("ip route replace blackhole {address}/32")).code(0);
    lab.until_codes(&["MG-ROUTE-002"]);
    let broken = lab.margay("status").code(2);
    assert!(broken.out.starts_with("✗ 1 broken on n1\nROUTES     ✗  "), "{broken:?}");
    broken.says(&["MG-ROUTE-002", "AGENT      ✓", &format!("fix: ip route show {address}/32")]);
    lab.margay("").code(0).says(&["status ✗ 1 broken"]);
    lab.run(&format!("ip route del blackhole {address}/32")).code(0);
    lab.until_codes(&[]);
    lab.margay("status").ok().says(&["ROUTES     ✓  2 in the kernel, 1 repaired"]);
    lab.margay(&format!("events {address}/32")).ok().says(&["repaired", "restored"]);
    follower.until_says(&format!("route {address}/32 was removed"));
    lab.run(&format!("ip route del {address}/32")).code(0);
    until("a second repair", || lab.json("status")["routes"]["repaired"] == 2);
    lab.lab(&["break", "table-flushed", "n1"]).ok();
    until("the filter", || lab.json("status")["filter"]["repaired"].as_u64() >= Some(1));
    lab.until_codes(&[]);
    lab.margay("status").ok().says(&["FILTER     ✓  1 interface, 1 repaired"]);
    let repaired = lab.margay("events repaired").ok();
    let n_noted = repaired.out.matches("the packet filter was changed or removed").count();
    assert_eq!(
        n_noted, 1,
        "two tables in one transaction, and its own repair is none: {repaired:?}"
    );
}

#[test]
fn what_ends_or_vanishes_is_an_event_that_can_be_found() {
    let Some(lab) = Lab::up(1) else { return };
    lab.margay("events started").ok().says(&["agent 0.1.0 of n1, 0 sandboxes"]);
    lab.margay("events n1-web").ok().says(&[" added ", "-n1-web eth0"]);
    lab.margay("sandboxes").ok().says(&["-n1-web"]);
    lab.margay("events nonsense").code(0).complains(&["no event names nonsense on n1"]);
    rustix::process::kill_process(lab.dataplane(), rustix::process::Signal::KILL).unwrap();
    until("the restart", || lab.margay("events restarted").out.contains("signal: 9 (SIGKILL)"));
    until("the next start", || lab.margay("events started").out.contains("of n1, 1 sandbox\n"));
    lab.lab(&["break", "interface-deleted", "n1-web"]).ok();
    until("the loss", || {
        let lost = lab.margay("events lost").out;
        lost.contains("-n1-web eth0") && lost.contains("its interface is gone")
    });
}

#[test]
fn an_agent_that_is_gone_is_missed_and_its_events_are_still_there() {
    let Some(lab) = Lab::up(1) else { return };
    lab.lab(&["break", "agent-killed", "n1"]).ok();
    let silent = lab.margay("status").code(2);
    silent.says(&["✗ no agent runs here", "agent.sock", "MG-AGENT-001", "fix: margay agent "]);
    let status = lab.json("status");
    assert_eq!((&status["status"], status.get("node")), (&json!("broken"), None));
    lab.margay("sandboxes").refused(&["no agent runs here", "help: margay agent "]);
    lab.margay("").code(0).says(&["agent   ✗ no agent runs here"]);
    let events = lab.margay("events").code(0).says(&["started", "added"]);
    events.complains(&["no agent runs here", "events.jsonl"]);
    lab.lab(&["heal"]).code(0);
    lab.until_codes(&[]);
    lab.margay("status").ok().says(&["✓ fine on n1: 1 sandbox"]);
    let numbers = lab.json("events started");
    let numbers: Vec<u64> = numbers["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 3], "events are counted on after a restart");
}

#[test]
fn an_object_that_cannot_be_used_degrades_and_is_noted_once() {
    let Some(lab) = Lab::up(0) else { return };
    let key = "/calico/resources/v3/projectcalico.org/ippools/bad";
    lab.put(key, r#"{"kind":"IPPool","metadata":{"name":"bad"},"spec":{"cidr":"nonsense"}}"#);
    lab.until_codes(&["MG-DATA-001"]);
    let shown = "fix: margay get ippools bad -o yaml";
    lab.margay("status").code(1).says(&["! 1 degraded on n1", "IPPool bad", "spec.cidr", shown]);
    lab.margay("get ippools bad -o yaml").code(1).says(&["cidr: nonsense"]);
    lab.put("/calico/resources/v3/projectcalico.org/profiles/other", "{}");
    lab.margay("status").code(1);
    let noted = lab.margay("events").ok();
    let n_noted = noted.out.lines().filter(|line| line.contains("IPPool bad cannot be used"));
    assert_eq!(n_noted.count(), 1, "{noted:?}");
}

/// A policy that becomes unreadable stays in force as it was, over a restart of the agent, too; one
/// that always was is named as missing.
#[test]
fn what_becomes_unreadable_stays_as_it_was() {
    let Some(lab) = Lab::up(1) else { return };
    let root = "/calico/resources/v3/projectcalico.org";
    let policy = |name: &str, selector: &str| {
        let value = format!(
            r#"{{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{{
            "name":"{name}","uid":"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}},"spec":{{
            "selector":"{selector}","types":["Ingress"],"ingress":[{{"action":"Deny"}}]}}}}"#
        );
        lab.put(&format!("{root}/globalnetworkpolicies/{name}"), &value);
    };
    policy("p", "all()");
    lab.margay("wait --for=realised gnp/p --timeout 1m").ok();
    policy("p", "app ==");
    lab.until_codes(&["MG-DATA-001"]);
    let kept = "GlobalNetworkPolicy p cannot be used as stored, its last readable revision ";
    lab.margay("status").code(1).says(&[kept, " stays in force: spec.selector: "]);
    let is_in_force = || {
        let rules = lab.lab(&["exec", "n1", "--", "nft", "list", "ruleset"]).code(0).out;
        rules.contains(":0:p\"")
    };
    assert!(is_in_force());
    lab.lab(&["break", "agent-killed", "n1"]).ok();
    lab.lab(&["heal"]).code(0);
    lab.until_codes(&["MG-DATA-001"]);
    lab.margay("status").code(1).says(&[kept]);
    assert!(is_in_force());
    policy("never", "app ==");
    let missing = "GlobalNetworkPolicy never is not in force, and no readable revision of it";
    lab.until_codes(&["MG-DATA-001", "MG-DATA-001"]);
    lab.margay("status").code(2).says(&[missing, kept]);
    // A key that lacks its namespace is named, too.
    lab.put(&format!("{root}/networkpolicies/only1"), "{}");
    lab.until_codes(&["MG-DATA-001", "MG-DATA-001", "MG-DATA-001"]);
    lab.margay("status").code(2).says(&["networkpolicies/only1 is not that of a NetworkPolicy"]);
}

#[test]
fn a_policy_is_realised_when_the_kernels_have_it() {
    let Some(lab) = Lab::up(1) else { return };
    let apply = |order: i64| {
        lab.0.file("policy.yaml", &policy("shop", "web", order));
        lab.margay(&format!("apply -f {}", lab.0.path("policy.yaml").display())).ok()
    };
    apply(1).says(&["✓ 1 created   (revision ", "; realised on "]);
    let realised = lab.margay("wait --for=realised policy/web -n shop --timeout 5m").ok();
    realised.says(&["✓ NetworkPolicy shop/web is realised on 1/1 nodes (revision "]);
    lab.margay("get policy -A -o wide").ok().says(&["REALISED\n", " 1/1"]);
    lab.lab(&["break", "agent-killed", "n1"]).ok();
    apply(2).says(&["; realised on 0/1 nodes after "]);
    let late = lab.margay("wait policy/shop/web --timeout 100ms").code(1);
    late.complains(&["\n  n1: behind at revision "]);
}

#[test]
fn endpoint_status_is_told_as_calico_tells_it_where_that_is_asked_for() {
    let Some(lab) = Lab::up(1) else { return };
    let folder = lab.0.path("status");
    let asked = format!(
        "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {{name: default}}\n\
         spec:\n  endpointReportingEnabled: true\n  endpointStatusPathPrefix: {}\n",
        folder.display()
    );
    lab.put("/calico/felix/v2/no-region/host/n1/workload/k8s/old/endpoint/eth0", "{}");
    lab.0.file("felix.yaml", &asked);
    lab.margay(&format!("apply -f {}", lab.0.path("felix.yaml").display())).ok();
    let told = || {
        let keys = lab.store().list("/calico/felix/v2/no-region/host/n1/workload/").unwrap();
        let values = keys.entries.into_iter().map(|it| (it.key, it.value));
        values.map(|(key, value)| (key, String::from_utf8(value).unwrap())).collect::<Vec<_>>()
    };
    let files = || {
        let entries = std::fs::read_dir(folder.join("endpoint-status")).into_iter().flatten();
        entries.map(|it| it.unwrap().path()).collect::<Vec<_>>()
    };
    let is_told = |status: &str| {
        let told = told();
        told.len() == 1
            && told[0].0.contains("/workload/cni/default%2f")
            && told[0].1 == format!("{{\"status\":\"{status}\"}}")
    };
    until("the key of the pod alone", || is_told("up"));
    until("its file", || files().len() == 1);
    let file = std::fs::read_to_string(&files()[0]).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["ipv4Nets"], json!([format!("{}/32", lab.address())]));
    let interface = file["ifaceName"].as_str().unwrap();
    lab.run(&format!("ip link set {interface} down")).ok();
    until("the word down", || is_told("down") && files().is_empty());
    lab.run(&format!("ip link set {interface} up")).ok();
    until("the word up", || is_told("up") && files().len() == 1);
    lab.lab(&["pod", "rm", "n1-web"]).ok();
    until("nothing", || told().is_empty() && files().is_empty());
}

#[test]
fn health_and_metrics_are_served_once_the_address_can_be_had() {
    let Some(lab) = Lab::up(1) else { return };
    lab.lab(&["break", "agent-killed", "n1"]).ok();
    let words = format!("{MARGAY} agent --node n1 --address 172.30.0.11/24 --http 192.0.2.1:9099");
    let _agent = Running::start(lab.on_node(&words));
    until("the agent", || lab.margay("status").out.contains(" on n1"));
    lab.until_codes(&["MG-HTTP-001"]);
    lab.margay("status").code(1).says(&["192.0.2.1:9099", "fix: "]);
    lab.run("ip address add 192.0.2.1/32 dev lo").code(0);
    lab.until_codes(&[]);
    assert!(lab.get("/liveness").starts_with("HTTP/1.1 200 OK\r\n"));
    let ready = lab.get("/readiness");
    assert!(ready.ends_with("datastore: ok\nkernel: ok\nsocket: ok\n"), "{ready}");
    let metrics = lab.get("/metrics");
    for line in [
        "felix_active_local_endpoints 1",
        "felix_cluster_num_workload_endpoints 1",
        "felix_resync_state 3",
        "felix_int_dataplane_failures 0",
        "felix_host{host=\"n1\"} 1",
        "margay_sandboxes{phase=\"ready\"} 1",
        "margay_routes_applied 1",
        "margay_addresses_used 1",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is missing: {metrics}");
    }
    let table = lab.run("nft -j list table inet margay").out;
    for kind in ["chain", "rule", "set", "map"] {
        // Rules have sets without a name, too.
        let n = table.matches(&format!("{{\"{kind}\": {{\"family\"")).count();
        let line = format!("felix_nft_{kind}s {n}");
        assert!(metrics.lines().any(|it| it == line), "{line} is missing: {metrics}");
    }
    assert!(lab.get("/other").starts_with("HTTP/1.1 404 "));
}

#[test]
fn an_agent_that_cannot_be_is_refused_before_anything_is_written() {
    let place = Place::embedded();
    let agent = |words: &[&str]| {
        let folders = ["--state-dir", "state", "--run-dir", "run"];
        place.run(&[&["agent"], words, &folders].concat())
    };
    let address = agent(&["--address", "10.9.9.9"]);
    address.refused(&["10.9.9.9 has no subnet length; write 10.9.9.9/24"]);
    for name in ["", "a/b", "N1 "] {
        agent(&["--node", name]).refused(&["cannot be the name of a node", "help: --node NAME"]);
    }
    let folder = place.run(&["agent", "--node", "n1", "--run-dir", "/proc/x"]);
    folder.refused(&["the folder /proc/x: ", "choose another one with --run-dir"]);
    agent(&["--nod", "n1"]).refused(&["--nod", "help: "]);
    assert!(!place.path("store.db").exists() && !place.path("run").exists());
}

#[test]
fn without_an_agent_the_answer_says_how_to_start_one() {
    let place = Place::embedded();
    let folder = place.path("nowhere").display().to_string();
    let silent = place.margay(&format!("status --run-dir {folder}")).code(2);
    let said = ["✗ no agent runs here", "nowhere/agent.sock", "fix: margay agent --run-dir "];
    assert_eq!(silent.says(&said).err, "");
    let events = format!("events --run-dir {folder} --state-dir {folder}");
    place.margay(&events).refused(&["no agent runs here"]);
    place.margay("events --since yesterday").refused(&["yesterday", "1h"]);
    for words in ["status", "sandboxes", "events", "node status"] {
        place.margay(&format!("{words} --help")).ok().says(&["Examples:", "--run-dir"]);
    }
}

/// Every code that any part of the program knows, as its sources have it.
fn codes_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            codes_in(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("codes.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let quoted = text.split("\"MG-").skip(1).filter_map(|rest| rest.split_once('"'));
            let quoted = quoted.filter(|(code, _)| !code.is_empty());
            found.extend(quoted.map(|(code, _)| format!("MG-{code}")));
        }
    }
}

#[test]
fn every_code_has_a_meaning_and_every_meaning_a_code() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut used = BTreeSet::new();
    for ring in ["core", "edge", "app"] {
        for entry in std::fs::read_dir(crates.join(ring)).unwrap() {
            let sources = entry.unwrap().path().join("src");
            if sources.is_dir() {
                codes_in(&sources, &mut used);
            }
        }
    }
    let known: BTreeSet<String> = host::codes::CODES.iter().map(|it| it.code.to_owned()).collect();
    assert_eq!(used, known);
    assert_eq!(known.len(), host::codes::CODES.len(), "no code has two meanings");

    let place = Place::embedded();
    let listed = place.margay("help codes").ok();
    assert_eq!(listed.out.lines().count(), known.len());
    let said = place.margay("help mg-filter-003").ok();
    said.says(&[
        "MG-FILTER-003: another program keeps changing our packet filter\nwhy:  ",
        "help: ",
    ]);
    place.margay("help MG-FILTER-03").refused(&["did you mean MG-FILTER-003?"]);
    place.margay("explain MG-FILTER-003").refused(&["margay help MG-FILTER-003"]);
}
