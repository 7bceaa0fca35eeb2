//! A change of the host's policy that cuts the node off from its datastore is taken back and named;
//! one that does not is left alone, whatever becomes of the datastore.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::node::{Node, until};
use crate::outage::{codes, events, status};

const CODE: &str = "MG-HOST-001";

/// Applies objects from where the datastore is: no policy of the host is in the way.
fn apply(node: &Node, objects: &[Value]) {
    let file = node.path("change.yaml");
    let texts: Vec<String> = objects.iter().map(ToString::to_string).collect();
    std::fs::write(&file, texts.join("\n---\n")).unwrap();
    let words = ["apply", "-f", file.to_str().unwrap()];
    let done = node.inside("c0", env!("CARGO_BIN_EXE_margay"), &words).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({ "name": name, "labels": { "role": "host" } });
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": metadata, "spec": spec,
    })
}

/// A policy for what this host sends: it does something about a port, and allows the rest.
fn policy(name: &str, action: &str, port: u16) -> Value {
    let rule = json!({
        "action": action, "protocol": "TCP", "destination": { "ports": [port] },
    });
    let spec = json!({
        "selector": "role == 'host'", "order": 10, "types": ["Egress"],
        "egress": [rule, { "action": "Allow" }],
    });
    object("GlobalNetworkPolicy", name, spec)
}

/// An endpoint for the host's interface; nothing is failsafe.
fn endpoint() -> [Value; 2] {
    let no_failsafes = json!({ "failsafeInboundHostPorts": [], "failsafeOutboundHostPorts": [] });
    [
        object("FelixConfiguration", "default", no_failsafes),
        object("HostEndpoint", "n1-eth0", json!({ "node": "n1", "interfaceName": "eth0" })),
    ]
}

/// The host has an endpoint, and a policy that allows everything.
fn protected() -> Option<Node> {
    let mut node = Node::with_etcd_beyond(1)?;
    let everything = json!({
        "selector": "role == 'host'", "order": 1000, "types": ["Ingress", "Egress"],
        "ingress": [{ "action": "Allow" }], "egress": [{ "action": "Allow" }],
    });
    apply(&node, &[object("GlobalNetworkPolicy", "everything", everything)]);
    node.start_agent();
    apply(&node, &endpoint());
    until("the endpoint is in force", || ruleset(&node).contains("chain host-out"));
    // What comes before that is judged together with it.
    until("the endpoint is acquitted", || held_file(&node).contains("\"objects\":{}"));
    Some(node)
}

fn ruleset(node: &Node) -> String {
    let listed = node.inside("host", "nft", &["list", "ruleset"]).output().unwrap();
    String::from_utf8(listed.stdout).unwrap()
}

/// Whether a new connection from the host to the datastore comes about.
fn reaches(node: &Node) -> bool {
    let words = ["2", "bash", "-c", "exec 3<>/dev/tcp/172.30.0.9/2379"];
    let mut connection = node.inside("host", "timeout", &words);
    connection.stderr(Stdio::null()).status().unwrap().success()
}

/// What is said of what is held.
fn finding(node: &Node) -> Value {
    let status = status(node);
    let mut findings = status["findings"].as_array().into_iter().flatten();
    findings.find(|it| it["code"] == CODE).cloned().unwrap_or_default()
}

fn until_held(node: &Node, object: &str) {
    until("it is held", || codes(node).contains(CODE));
    let finding = finding(node);
    let (problem, fix) = (finding["problem"].to_string(), finding["fix"].to_string());
    assert!(problem.contains(object), "{problem}");
    assert!(problem.contains("cuts n1 off from etcd http://172.30.0.9:2379"), "{problem}");
    assert!(fix.contains("tcp 2379 to 172.30.0.9"), "{fix}");
    until("a new connection comes about", || reaches(node));
}

/// What the node tells the others that it does not carry out.
fn refused(node: &Node) -> String {
    let at = format!("--endpoints={}", node.etcd.as_ref().unwrap().endpoint);
    let words = [&at, "get", "/calico/margay/v1/realised/n1"];
    let told = node.inside("c0", "etcdctl", &words).output().unwrap();
    String::from_utf8(told.stdout).unwrap()
}

#[test]
fn failsafe_ports_that_are_needed_are_put_back() {
    let Some(mut node) = Node::with_etcd_beyond(1) else { return };
    node.start_agent();
    let [no_failsafes, endpoint] = endpoint();
    // Without a policy an endpoint denies everything but what is failsafe.
    apply(&node, &[endpoint]);
    until("the endpoint is in force", || ruleset(&node).contains("chain host-out"));
    apply(&node, &[no_failsafes]);
    until_held(&node, "FelixConfiguration default (revision ");
    assert!(ruleset(&node).contains("chain host-out"));
}

#[test]
fn a_policy_that_cuts_the_node_off_is_taken_back_until_it_is_mended() {
    let Some(mut node) = protected() else { return };
    apply(&node, &[policy("strict", "Deny", 2379)]);
    until_held(&node, "GlobalNetworkPolicy strict (revision ");
    assert!(finding(&node)["problem"].to_string().contains("it is not in force here"));
    let told = events(&node, "strict");
    assert!(told.contains("taken back") && told.contains("cuts n1 off"), "{told}");
    until("the others are told", || refused(&node).contains("globalnetworkpolicies/strict"));

    // Whoever asks hears that the kernel does something else.
    let asked = ["explain", "n1", "172.30.0.9", "--port", "2379"];
    let said = node.inside("c0", env!("CARGO_BIN_EXE_margay"), &asked).output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    let held = "n1 does not carry out GlobalNetworkPolicy strict (held: it cuts n1 off from etcd";
    assert!(said.status.code() == Some(1) && text.contains(held), "{text}");
    assert!(text.starts_with("✗ denied at egress of n1 by policy strict"), "{text}");

    // The next agent holds it from the first moment on.
    node.kill_agent(true);
    node.start_agent();
    until_held(&node, "GlobalNetworkPolicy strict (revision ");

    apply(&node, &[policy("strict", "Deny", 2390)]);
    until("the mended policy is in force", || ruleset(&node).contains("2390"));
    until("nothing is held any more", || status(&node)["node"] == "n1" && codes(&node).is_empty());
    until("the others are told", || !refused(&node).contains("globalnetworkpolicies/strict"));
    assert!(reaches(&node));
    assert_eq!(events(&node, "strict").matches("is in force: ").count(), 1);
}

#[test]
fn a_datastore_that_cannot_be_reached_at_all_is_no_policys_fault() {
    let Some(node) = protected() else { return };
    // New connections end at the datastore's door, those that stand go on.
    let closed = "table inet door { chain input { type filter hook input priority 0; \
                  iifname near tcp dport 2379 ct state new drop; }; }";
    let done = node.inside("c0", "nft", &[closed]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    apply(&node, &[policy("harmless", "Deny", 2390)]);
    until("it was tried without it", || events(&node, "harmless").contains("in force again"));
    assert!(ruleset(&node).contains("2390"), "{}", ruleset(&node));
    let done = node.inside("c0", "nft", &["delete table inet door"]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    until("it is acquitted", || held_file(&node).contains("\"objects\":{}"));
    assert!(ruleset(&node).contains("2390"));
    assert!(!codes(&node).contains(CODE), "{:?}", codes(&node));
    assert!(!events(&node, "harmless").contains("cuts n1 off"));
}

fn held_file(node: &Node) -> String {
    std::fs::read_to_string(node.path("state/held.json")).unwrap_or_default()
}

#[test]
fn an_agent_that_dies_while_cut_off_finds_its_way_back() {
    let Some(mut node) = protected() else { return };
    apply(&node, &[policy("strict", "Deny", 2379)]);
    until("it is in force", || ruleset(&node).contains("2379"));
    node.pause_dataplane(true);
    assert!(!reaches(&node), "{}", ruleset(&node));
    assert!(held_file(&node).contains("globalnetworkpolicies/strict"));
    node.kill_agent(true);
    node.start_agent();
    until_held(&node, "GlobalNetworkPolicy strict (revision ");
}

#[test]
fn the_first_endpoint_of_a_host_is_taken_back_if_it_cuts_the_node_off() {
    let Some(mut node) = Node::with_etcd_beyond(1) else { return };
    apply(&node, &endpoint());
    // Without a policy an endpoint denies everything.
    node.start_agent();
    until_held(&node, "HostEndpoint n1-eth0 (revision ");
    assert!(!ruleset(&node).contains("chain host-out"));
}
