//! Somebody else removes or spoils records of sandboxes that live.

use serde_json::{Value, json};
use store::{Op, Txn};

use crate::node::{Node, may_run, until};

const ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";

impl Node {
    fn change(&self, ops: Vec<Op>) {
        self.store().commit(Txn { compares: Vec::new(), ops }).unwrap();
    }

    fn remove(&self, prefix: &str) -> Vec<(String, Value)> {
        let gone = self.stored(prefix);
        assert!(!gone.is_empty(), "{prefix}");
        self.change(gone.iter().map(|(key, _)| Op::Delete { key: key.clone() }).collect());
        gone
    }

    fn put(&self, key: &str, value: &str) {
        self.change(vec![Op::Put { key: key.to_owned(), value: value.into() }]);
    }

    fn keys(&self, prefix: &str) -> Vec<String> {
        let listed = self.store().list(prefix).unwrap();
        listed.entries.into_iter().map(|entry| entry.key).collect()
    }

    /// What `margay` says on the host about its agent.
    fn told(&self, words: &[&str]) -> String {
        let run = self.path("run").display().to_string();
        let words = [words, &["--run-dir", &run]].concat();
        let done = self.inside("host", env!("CARGO_BIN_EXE_margay"), &words).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    }

    fn finding(&self, code: &str) -> Option<String> {
        let status: Value = serde_json::from_str(&self.told(&["status", "-o", "json"])).ok()?;
        let mut findings = status["findings"].as_array()?.iter();
        let found = findings.find(|finding| finding["code"] == code)?;
        Some(found["problem"].as_str()?.to_owned())
    }

    fn answers(&self, address: &str) -> bool {
        let done = self.inside("c1", "ping", &["-c1", "-W5", address]).output().unwrap();
        done.status.success()
    }
}

fn first_address(answer: &Value) -> String {
    let address = answer["ips"][0]["address"].as_str().unwrap();
    address.split('/').next().unwrap().to_owned()
}

/// Two containers with an agent; the address of the first.
fn pair() -> (Node, String) {
    let mut node = Node::new(2);
    node.start_agent();
    let address = first_address(&node.must("ADD", "first", 0));
    node.must("ADD", "second", 1);
    assert!(node.answers(&address));
    (node, address)
}

#[test]
fn whatever_is_removed_of_a_live_sandbox_is_claimed_back() {
    if !may_run() {
        return;
    }
    let (mut node, address) = pair();
    let (endpoints, held) = (node.keys(ENDPOINTS), node.allocated());
    let claims = node.keys("/calico/ipam/v2/host/");
    let handles = node.keys("/calico/ipam/v2/handle/");
    let is_whole = |node: &Node| {
        node.keys(ENDPOINTS) == endpoints
            && node.allocated() == held
            && node.keys("/calico/ipam/v2/host/") == claims
            && node.keys("/calico/ipam/v2/handle/") == handles
    };
    for prefix in [
        ENDPOINTS,
        "/calico/ipam/v2/handle/",
        "/calico/ipam/v2/host/",
        "/calico/ipam/v2/assignment/",
    ] {
        node.remove(prefix);
        until(&format!("{prefix} to be claimed back"), || is_whole(&node));
        assert!(node.answers(&address), "{prefix}");
    }
    let events = node.told(&["events", "repaired"]);
    for said in [
        "somebody removed the endpoint n1-cni-first-eth0",
        "the handle net1.first",
        "the claim of this node on",
        "the allocation of",
        "written back from the journal, because its interface califirst stands",
    ] {
        assert!(events.contains(said), "{said}: {events}");
    }
    // What happens while no agent runs is found when one starts.
    node.kill_agent(true);
    node.remove(ENDPOINTS);
    node.remove("/calico/ipam/v2/assignment/");
    node.start_agent();
    until("everything to be claimed back", || is_whole(&node));
    // The numbers under which the addresses are held now are those that their release names.
    node.must("CHECK", "first", 0);
    node.must("DEL", "first", 0);
    node.must("DEL", "second", 1);
    node.assert_empty();
}

#[test]
fn settings_of_interfaces_that_somebody_changes_are_put_back_and_noted_once() {
    if !may_run() {
        return;
    }
    let (node, address) = pair();
    let settings = [
        ("ipv4/conf/califirst/proxy_arp", "0", "1"),
        ("ipv4/conf/califirst/forwarding", "0", "1"),
        ("ipv6/conf/califirst/proxy_ndp", "0", "1"),
        ("ipv6/conf/califirst/accept_ra", "2", "0"),
    ];
    let shell = |script: &str| {
        let done = node.inside("host", "sh", &["-ec", script]).output().unwrap();
        assert!(done.status.success(), "{script}: {done:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    for (name, wrong, _) in settings {
        shell(&format!("echo {wrong} > /proc/sys/net/{name}"));
    }
    for (name, _, right) in settings {
        until(name, || shell(&format!("cat /proc/sys/net/{name}")) == right);
    }
    assert!(node.answers(&address));
    let told = node.told(&["events", "repaired"]);
    for (name, wrong, right) in settings {
        assert!(told.contains(&format!("net/{name} was {wrong}, is {right}")), "{told}");
    }
    assert!(told.contains("container first eth0") && !told.contains("second"), "{told}");
}

#[test]
fn an_address_that_somebody_else_has_by_now_closes_the_interface_and_both_are_named() {
    if !may_run() {
        return;
    }
    let (node, address) = pair();
    let (key, block) = node
        .stored("/calico/ipam/v2/assignment/ipv4/")
        .into_iter()
        .find(|(_, block)| block["attributes"].to_string().contains("net1.first"))
        .unwrap();
    let taken = block.to_string().replace("net1.first", "net2.other");
    node.put(&key, &taken.replace("\"node\":\"n1\"", "\"node\":\"n9\""));
    until("the finding", || node.finding("MG-IPAM-001").is_some());
    let problem = node.finding("MG-IPAM-001").unwrap();
    for said in [&address, "net1.first", "net2.other on n9", "califirst is closed"] {
        assert!(problem.contains(said), "{said}: {problem}");
    }
    until("the interface to be closed", || !node.answers(&address));
    assert!(node.told(&["events", "closed"]).contains(&address));
    // The other one leaves: the address is the sandbox's again.
    let ours = node.stored("/calico/ipam/v2/assignment/ipv4/");
    let (_, now) = ours.into_iter().find(|(it, _)| *it == key).unwrap();
    node.put(&key, &now.to_string().replace("net2.other", "net1.first"));
    until("the finding to go", || node.finding("MG-IPAM-001").is_none());
    until("the interface to be open", || node.answers(&address));
    node.must("DEL", "first", 0);
}

#[test]
fn an_endpoint_that_cannot_be_read_costs_a_live_sandbox_nothing_and_is_named() {
    if !may_run() {
        return;
    }
    let (mut node, address) = pair();
    let key = format!("{ENDPOINTS}default/n1-cni-first-eth0");
    for (bad, field) in [
        ("{nonsense".to_owned(), "not valid JSON"),
        (
            json!({
                "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
                "metadata": { "name": "n1-cni-first-eth0", "namespace": "default" },
                "spec": { "node": "n1", "ipNetworks": ["10.65.0.999/32"] },
            })
            .to_string(),
            "spec.ipNetworks",
        ),
    ] {
        node.put(&key, &bad);
        until("the finding", || {
            node.finding("MG-DATA-001").is_some_and(|it| it.contains("n1-cni-first-eth0"))
        });
        let problem = node.finding("MG-DATA-001").unwrap();
        let says_field = problem.contains(field) || field == "not valid JSON";
        assert!(says_field && problem.contains("as the journal has it"), "{problem}");
        assert!(node.answers(&address), "{bad}");
        assert_eq!(node.store().get(&key).unwrap().0.unwrap().value, bad.as_bytes());
        // The same after a restart.
        node.kill_agent(true);
        node.start_agent();
        until("the agent to say so again", || node.finding("MG-DATA-001").is_some());
        assert!(node.answers(&address), "{bad}");
    }
    node.change(vec![Op::Delete { key: key.clone() }]);
    until("the endpoint to be claimed back", || node.stored(&key).len() == 1);
    until("the finding to go", || node.finding("MG-DATA-001").is_none());
    node.must("DEL", "first", 0);
    node.must("DEL", "second", 1);
    node.assert_empty();
}

/// The next sandbox of a stateful pod has an endpoint of the same name; the late DEL of the one
/// before takes nothing from it.
#[test]
fn a_sandbox_that_came_after_another_of_its_pod_is_looked_after_too() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(2);
    node.start_agent();
    let pod = [("CNI_ARGS", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0")];
    for (command, id, container) in [("ADD", "old", 0), ("ADD", "new", 1), ("DEL", "old", 0)] {
        let done = node.call_as(command, id, container, &pod).wait_with_output().unwrap();
        assert!(done.status.success(), "{command} {id}: {done:?}");
    }
    let is_back = |node: &Node| {
        let endpoints = node.stored(ENDPOINTS);
        endpoints.iter().any(|(_, it)| it["spec"]["containerID"] == "new")
    };
    assert!(is_back(&node));
    node.remove(ENDPOINTS);
    until("the endpoint is written back", || is_back(&node));
    // The same after a start, with both in the journal.
    let done = node.call_as("ADD", "newest", 0, &pod).wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    node.kill_agent(true);
    node.start_agent();
    node.remove(ENDPOINTS);
    until("the endpoint is the last one's", || {
        let endpoints = node.stored(ENDPOINTS);
        endpoints.iter().any(|(_, it)| it["spec"]["containerID"] == "newest")
    });
    for (id, container) in [("newest", 0), ("new", 1)] {
        let done = node.call_as("DEL", id, container, &pod).wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    node.assert_empty();
}
