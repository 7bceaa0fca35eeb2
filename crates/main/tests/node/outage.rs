//! The datastore is gone: what runs goes on, the agent starts, DEL works at once, and the datastore
//! hears of it when it is back.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::node::{Node, until};

/// The first address that a container was given.
pub(crate) fn address(answer: &Value) -> String {
    answer["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap().to_owned()
}

/// What the agent says of itself; nothing while it does not answer.
pub(crate) fn status(node: &Node) -> Value {
    let done = node.margay(&["status", "-o", "json"]).output().unwrap();
    serde_json::from_slice(&done.stdout).unwrap_or_default()
}

pub(crate) fn codes(node: &Node) -> BTreeSet<String> {
    let status = status(node);
    let findings = status["findings"].as_array().into_iter().flatten();
    findings.map(|it| it["code"].as_str().unwrap().to_owned()).collect()
}

/// What the agent says that happened.
pub(crate) fn events(node: &Node, about: &str) -> String {
    let told = node.margay(&["events", about]).output().unwrap();
    String::from_utf8(told.stdout).unwrap()
}

/// The host's interface of a container.
pub(crate) fn interface(id: &str) -> String {
    format!("cali{}", id.chars().take(11).collect::<String>())
}

/// Whether the kernel of the host knows an interface: as a link, in a route, or in the filter.
pub(crate) fn is_known_to_kernel(node: &Node, interface: &str) -> bool {
    let rules = node.inside("host", "nft", &["list", "ruleset"]).output().unwrap();
    let rules = String::from_utf8(rules.stdout).unwrap();
    [node.ip(&["link"]), node.ip(&["route"]), rules].iter().any(|text| text.contains(interface))
}

/// The error that a call must end with.
pub(crate) fn refusal(call: Child) -> Value {
    let done = call.wait_with_output().unwrap();
    assert!(!done.status.success(), "{done:?}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// A ping that goes on until it is asked how it went.
pub(crate) struct Ping(Child);

impl Ping {
    pub(crate) fn start(node: &Node, from: &str, to: &str) -> Ping {
        let mut command = node.inside(from, "ping", &["-n", "-i", "0.05", to]);
        Ping(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Every packet until now was answered, and there were some.
    pub(crate) fn assert_none_lost(mut self) {
        let output = self.0.stdout.take().unwrap();
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        let number = |line: &str| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok();
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let numbers: Vec<usize> = lines.filter_map(|line| number(&line)).collect();
        assert!(!numbers.is_empty(), "nothing was answered");
        assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>(), "a packet was lost");
    }
}

#[test]
fn an_agent_starts_without_the_datastore_and_pods_keep_talking() {
    let Some(mut node) = Node::with_etcd(3) else { return };
    node.start_agent_with(&["--reserve", "0"]);
    node.must("ADD", "first", 0);
    let second = address(&node.must("ADD", "second", 1));
    let ping = Ping::start(&node, "c0", &second);
    until("all is well", || status(&node)["status"] == "fine");

    node.etcd.as_mut().unwrap().kill();
    until("the outage is said", || codes(&node).contains("MG-STORE-001"));
    node.kill_agent(true);
    // Whatever stands in it, it is no reason not to start.
    std::fs::write(node.path("state/known.json"), "{\"format\":1,").unwrap();
    node.start_agent_with(&["--reserve", "0"]);
    until("the outage is said again", || codes(&node).contains("MG-STORE-001"));
    let said = status(&node);
    assert_eq!(said["store"]["isConnected"], false, "{said}");
    assert!(said["store"]["problem"].is_string() && said["store"]["since"].is_string(), "{said}");
    assert_eq!(said["sandboxes"]["ready"], 2, "{said}");
    assert!(codes(&node).contains("MG-STATE-001"), "{said}");
    std::fs::remove_file(node.path("state/known.unreadable")).unwrap();
    let refused = refusal(node.call("ADD", "third", 2, ""));
    assert_eq!(refused["code"], 11, "{refused}");
    assert_eq!(node.journal().len(), 2, "nothing is left of it");
    assert!(events(&node, "lost").contains("does not answer"));
    assert!(is_known_to_kernel(&node, &interface("second")));
    ping.assert_none_lost();

    // Twice, and neither waits for anybody.
    node.must("DEL", "second", 1);
    assert!(!is_known_to_kernel(&node, &interface("second")));
    node.must("DEL", "second", 1);
    node.kill_agent(true);
    node.start_agent_with(&["--reserve", "0"]);
    node.must("DEL", "second", 1);
    assert_eq!(node.journal().len(), 2, "a ticket is left");
    assert!(is_known_to_kernel(&node, &interface("first")));

    let count = |sort: &str| {
        let told = events(&node, sort);
        told.lines().filter(|line| line.contains(" the datastore a")).count()
    };
    assert_eq!(
        count("lost"),
        count("back") + 1,
        "an outage is lost once: {}",
        events(&node, "lost")
    );
    let waiting = events(&node, "waiting");
    assert_eq!(waiting.matches("container second eth0").count(), 1, "{waiting}");
    assert!(!events(&node, "failed").contains("to be tried again"), "{}", events(&node, "failed"));

    node.etcd.as_mut().unwrap().run();
    until("the ticket is cashed", || node.journal().len() == 1);
    until("all is well again", || status(&node)["status"] == "fine");
    until("it is said who left", || events(&node, "removed").contains("container second eth0"));
    assert!(events(&node, "back").contains("the datastore answers again; it was lost at 20"));
    assert_eq!(node.allocated().len(), 2, "{:?}", node.allocated());
    node.must("CHECK", "first", 0);
    node.must("DEL", "first", 0);
    node.assert_empty();
}

#[test]
fn a_silent_datastore_costs_a_del_no_more_than_its_deadline() {
    let Some(mut node) = Node::with_etcd(1) else { return };
    node.start_agent_with(&["--reserve", "0"]);
    node.must("ADD", "first", 0);
    node.etcd.as_ref().unwrap().stop();
    let del = node.call("DEL", "first", 0, "");
    until("the interface is gone at once", || !is_known_to_kernel(&node, &interface("first")));
    assert!(del.wait_with_output().unwrap().status.success());
    node.must("DEL", "first", 0);
    assert_eq!(node.journal().len(), 1, "a ticket is left");
    node.kill_agent(true);
    node.start_agent_with(&["--reserve", "0"]);
    node.must("DEL", "first", 0);
    node.etcd.as_ref().unwrap().go_on();
    until("the ticket is cashed", || node.journal().is_empty());
    node.assert_empty();
}
