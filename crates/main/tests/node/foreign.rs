//! Drops of other programs, in the shapes that they have, and denied packets of ours, while agents
//! come and go.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{Node, may_run, until};
use crate::outage::{address, events, interface, status};

/// How long another program's drop may go unnoticed.
const NOTICED_MAX: Duration = Duration::from_secs(3);

/// Removes every table that is not ours.
const UNLOAD: &str = "nft list tables | grep -v margay | while read it; do nft delete $it; done";

/// Two containers that may talk to each other.
struct Pair {
    node: Node,
    addresses: [String; 2],
}

impl Pair {
    fn new() -> Pair {
        let mut node = Node::new(2);
        node.start_agent();
        let addresses = [("one", 0), ("two", 1)].map(|(id, at)| address(&node.must("ADD", id, at)));
        let pair = Pair { node, addresses };
        until("they talk", || pair.talks());
        pair
    }

    fn talks(&self) -> bool {
        let words = ["-n", "-c1", "-W1", &self.addresses[1]];
        self.node.inside("c0", "ping", &words).output().unwrap().status.success()
    }

    /// Types a line on the host; false, said aloud, where there is no such program.
    fn types(&self, line: &str) -> bool {
        let done = self.node.inside("host", "sh", &["-ec", line]).output().unwrap();
        if done.status.code() == Some(127) {
            eprintln!("SKIPPED: {line}: {}", String::from_utf8_lossy(&done.stderr));
            return false;
        }
        assert!(done.status.success(), "{line}: {done:?}");
        true
    }

    /// What is said of other programs' chains.
    fn named(&self) -> Vec<String> {
        let said = status(&self.node);
        let all = said["findings"].as_array().cloned().unwrap_or_default();
        let of_others = all.iter().filter(|it| it["code"] == "MG-FILTER-002");
        of_others.map(|it| it["problem"].as_str().unwrap().to_owned()).collect()
    }

    fn is_named(&self, place: &str) -> bool {
        self.named().iter().any(|it| it.starts_with(&format!("chain {place}, ")))
    }

    /// A drop is lost on pods, is named, and is not any more when it is gone.
    fn drop_is_named(&self, make: &str, place: &str, is_between_pods: bool) {
        if !self.types(make) {
            return;
        }
        until(&format!("{make} is named"), || self.is_named(place));
        assert_eq!(self.named().len(), 1, "{make}: {:?}", self.named());
        assert_eq!(self.talks(), !is_between_pods, "{make}");
        self.types(UNLOAD);
        until(&format!("{make} is gone"), || self.named().is_empty());
        until("they talk again", || self.talks());
    }

    /// What pods do not lose is not named, though what they do lose is at the same time.
    fn others_are_not_named(&self, rules: &[&str]) {
        let chain = "type filter hook forward priority 5";
        let make = format!(
            "nft 'table inet fine {{ chain f {{ {chain}; {}; }}; }}; \
             table inet sentinel {{ chain f {{ {chain}; iifname cali* drop; }}; }}'",
            rules.join("; ")
        );
        self.types(&make);
        until("the sentinel is named", || self.is_named("f of table inet sentinel"));
        assert_eq!(self.named().len(), 1, "{:?}", self.named());
        self.types(UNLOAD);
        until("the sentinel is gone", || self.named().is_empty());
    }

    /// Lets nobody in.
    fn close(&self) {
        let closed = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
            "metadata": { "name": "closed" },
            "spec": { "selector": "all()", "types": ["Ingress"] },
        });
        let file = self.node.path("closed.json");
        std::fs::write(&file, closed.to_string()).unwrap();
        let applied = self.node.margay(&["apply", "-f", file.to_str().unwrap()]).output().unwrap();
        assert!(applied.status.success(), "{applied:?}");
        until("nobody is let in", || !self.talks());
    }
}

#[test]
fn drops_of_others_are_named_in_every_shape() {
    if !may_run() {
        return;
    }
    let pair = Pair::new();
    let one = interface("one");
    let forward = |rules: &str| {
        let chain = "type filter hook forward priority 5; policy accept";
        format!("nft 'table inet x {{ chain s {{ }}; chain f {{ {chain}; {rules}; }}; }}'")
    };
    let f = "f of table inet x";
    pair.drop_is_named(&forward("iifname \"cali*\" drop"), f, true);
    pair.drop_is_named(&forward(&format!("iifname \"{one}\" drop")), f, true);
    let jump = forward("jump s") + "; nft add rule inet x s drop";
    pair.drop_is_named(&jump, f, true);
    pair.drop_is_named(&forward("ct state new drop"), f, true);
    pair.drop_is_named(&forward("oifname \"eth0\" reject"), f, false);
    pair.drop_is_named(&forward("ip saddr { 10.65.0.0/24, 192.0.2.0/24 } drop"), f, true);
    let netdev = |device: &str| {
        let chain = format!("type filter hook ingress device \"{device}\" priority 0");
        format!("nft 'table netdev x {{ chain i {{ {chain}; drop; }}; }}'")
    };
    pair.drop_is_named(&netdev(&one), "i of table netdev x", true);
    pair.drop_is_named(&netdev("eth0"), "i of table netdev x", false);
    let place = "FORWARD of table ip filter";
    let user =
        "iptables-nft -N MINE; iptables-nft -A MINE -j DROP; iptables-nft -A FORWARD -j MINE";
    pair.drop_is_named(user, place, true);
    let comment = "iptables-nft -A FORWARD -m comment --comment closed -j DROP";
    pair.drop_is_named(comment, place, true);
    let state = "iptables-nft -A FORWARD -m conntrack --ctstate NEW -j REJECT";
    pair.drop_is_named(state, place, true);

    pair.others_are_not_named(&[
        "ip daddr 9.9.9.9 drop",
        "ip daddr { 9.9.9.9, 10.96.0.10 } drop",
        "iifname \"docker0\" drop",
        "ct state invalid drop",
        "meta mark 0x8000 drop",
        "tcp flags & (fin|syn) == fin|syn drop",
        "limit rate over 10000/second drop",
    ]);

    // What cannot be looked into makes nobody ill.
    if pair.types("iptables-legacy -P FORWARD DROP") {
        let said = status(&pair.node);
        assert_eq!((&said["status"], &said["findings"]), (&json!("fine"), &json!([])), "{said}");
        let notes = said["notes"].to_string();
        assert!(notes.contains("iptables-legacy has tables here (filter)"), "{notes}");
        let screen = pair.node.margay(&["status"]).output().unwrap();
        let screen = String::from_utf8(screen.stdout).unwrap();
        assert!(screen.contains("note: iptables-legacy has tables here"), "{screen}");
    }
}

#[test]
fn a_drop_is_named_though_another_program_never_rests() {
    if !may_run() {
        return;
    }
    let pair = Pair::new();
    let restless = "while :; do nft 'table inet y { set s { type ipv4_addr; }; }'; sleep 0.1; \
                    nft delete table inet y; sleep 0.1; done";
    let mut restless = pair.node.inside("host", "sh", &["-c", restless]).spawn().unwrap();
    let chain = "type filter hook forward priority 5; policy drop";
    pair.types(&format!("nft 'table inet x {{ chain f {{ {chain}; }}; }}'"));
    let began = Instant::now();
    let mut is_named = false;
    while !is_named && began.elapsed() < NOTICED_MAX {
        is_named = pair.is_named("f of table inet x");
    }
    let is_restless = restless.try_wait().unwrap().is_none();
    restless.kill().unwrap();
    restless.wait().unwrap();
    assert!(is_named && is_restless, "{is_named} {is_restless}");
}

/// `margay drops -f`, and what it said so far.
struct Follower {
    process: Child,
    said: PathBuf,
    complained: PathBuf,
}

impl Follower {
    fn start(node: &Node) -> Self {
        let (said, complained) = (node.path("said"), node.path("complained"));
        let open = |path: &PathBuf| Stdio::from(File::create(path).unwrap());
        let mut command = node.margay(&["drops", "-f"]);
        let process = command.stdout(open(&said)).stderr(open(&complained)).spawn().unwrap();
        Self { process, said, complained }
    }

    fn has_said(&self, port: u16) -> bool {
        std::fs::read_to_string(&self.said).unwrap().contains(&format!(":{port} tcp"))
    }

    fn complaints(&self) -> String {
        std::fs::read_to_string(&self.complained).unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn whoever_follows_denied_packets_hears_the_next_agent_too() {
    if !may_run() {
        return;
    }
    let mut pair = Pair::new();
    pair.close();
    let to = pair.addresses[1].clone();
    let connect = |node: &Node, port: u16| {
        let line = format!("timeout 1 bash -c 'echo > /dev/tcp/{to}/{port}'");
        let _ = node.inside("c0", "sh", &["-c", &line]).output().unwrap();
    };
    // Numbers of the first agent are higher than those of the next ones will be.
    for port in 7000..7003 {
        connect(&pair.node, port);
    }
    let follower = Follower::start(&pair.node);
    until("the first are told", || follower.has_said(7002));
    pair.node.kill_agent(false);
    until("what the next dataplane denies is told", || {
        connect(&pair.node, 7100);
        follower.has_said(7100)
    });
    pair.node.kill_agent(true);
    until("it waits", || follower.complaints().contains("waiting: no agent runs here"));
    pair.node.start_agent();
    until("what the next agent denies is told", || {
        connect(&pair.node, 7200);
        follower.has_said(7200)
    });
    let complaints = follower.complaints();
    assert_eq!(complaints.matches("waiting").count(), 1, "{complaints}");
    assert!(complaints.contains("the agent answers again"), "{complaints}");
}

/// Who reads the events knows what was changed, and by whom.
#[test]
fn a_repair_says_what_was_changed() {
    if !may_run() {
        return;
    }
    let mut pair = Pair::new();
    pair.node.kill_agent(true);
    pair.node.start_agent_with(&["--shared-tables"]);
    let said = "(chain intruder of table inet margay added or changed by nft); restored";
    // The tables are its predecessor's for a moment yet.
    until("the repair is told", || {
        let intrudes = ["add", "chain", "inet", "margay", "intruder"];
        pair.node.inside("host", "nft", &intrudes).output().unwrap();
        events(&pair.node, "filter").contains(said)
    });
}

#[test]
fn whoever_lies_about_its_address_is_named_by_its_interface() {
    if !may_run() {
        return;
    }
    let pair = Pair::new();
    let lie = format!(
        "ip addr add 10.9.9.9/32 dev eth0; ping -n -c1 -W1 -I 10.9.9.9 {}",
        pair.addresses[1]
    );
    let drops = || -> Value {
        let said = pair.node.margay(&["drops", "-o", "json"]).output().unwrap();
        serde_json::from_slice(&said.stdout).unwrap()
    };
    let of_liar = || {
        let said = drops();
        let all = said["drops"].as_array().unwrap().clone();
        all.into_iter().find(|it| it["source"]["address"] == "10.9.9.9")
    };
    until("the lie is told of", || {
        let _ = pair.node.inside("c0", "sh", &["-c", &lie]).output().unwrap();
        of_liar().is_some()
    });
    let liar = of_liar().unwrap();
    assert_eq!(liar["input"], json!(interface("one")), "{liar}");
    let name = liar["source"]["name"].as_str().unwrap_or_default();
    assert!(name.ends_with("one") && liar["isMasked"] == json!(true), "{liar}");
    let screen = pair.node.margay(&["drops"]).output().unwrap();
    let screen = String::from_utf8(screen.stdout).unwrap();
    assert!(screen.contains("one (as 10.9.9.9) → "), "{screen}");
    let plain = pair.node.margay(&["drops"]).env("LC_ALL", "C").output().unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("one (as 10.9.9.9) -> ") && plain.is_ascii(), "{plain}");
}
