//! Endpoints of the host whose interface or address comes and goes: what is not there yet is closed
//! when it comes, and the command line says of it what the kernel does.

use serde_json::{Value, json};

use crate::node::{Node, may_run, until};
use crate::outage::status;

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({ "name": name, "labels": { "endpoint": name } });
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": metadata, "spec": spec,
    })
}

fn endpoint(name: &str, interface: &str) -> Value {
    object("HostEndpoint", name, json!({ "node": "n1", "interfaceName": interface }))
}

/// Runs a command on the host; what it prints.
fn margay(node: &Node, words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let done = node.margay(&words).output().unwrap();
    String::from_utf8(done.stdout).unwrap()
}

fn apply(node: &Node, objects: &[Value]) {
    let file = node.path("change.yaml");
    let texts: Vec<String> = objects.iter().map(ToString::to_string).collect();
    std::fs::write(&file, texts.join("\n---\n")).unwrap();
    let done = node.margay(&["apply", "-f", file.to_str().unwrap()]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn delete(node: &Node, endpoint: &str) {
    let done = node.margay(&["delete", "hep", endpoint, "--yes"]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A node with an agent, and a neighbour on its eth0 with the address 172.30.0.9.
fn node() -> Option<Node> {
    if !may_run() {
        return None;
    }
    let mut node = Node::new(1);
    wire(&node, "far", "172.30.0.9");
    node.ip(&["link", "set", "far", "master", "eth0"]);
    node.start_agent();
    until("the neighbour is heard", || hears(&node, "172.30.0.1"));
    Some(node)
}

/// Makes an interface of the host that leads to the neighbour, who has an address there.
fn wire(node: &Node, interface: &str, neighbours: &str) {
    let there = node.netns("c0");
    let (there, near) = (there.to_str().unwrap(), format!("{interface}n"));
    node.ip(&["link", "add", interface, "type", "veth", "peer", "name", &near, "netns", there]);
    node.ip(&["link", "set", interface, "up"]);
    let inside = |words: &[&str]| {
        let done = node.inside("c0", "ip", words).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    inside(&["addr", "add", &format!("{neighbours}/24"), "dev", &near]);
    inside(&["link", "set", &near, "up"]);
}

/// Whether the host answers its neighbour at an address.
fn hears(node: &Node, address: &str) -> bool {
    let words = ["-c1", "-W1", "-q", address];
    node.inside("c0", "ping", &words).output().unwrap().status.success()
}

#[test]
fn an_interface_that_comes_later_is_closed_from_the_first_packet_on() {
    let Some(node) = node() else { return };
    apply(&node, &[endpoint("late", "late0")]);
    until("it is in force", || status(&node)["policyRevision"] != json!(0));
    for _ in 0..2 {
        wire(&node, "late0", "10.9.0.2");
        node.ip(&["addr", "add", "10.9.0.1/24", "dev", "late0"]);
        for _ in 0..3 {
            assert!(!hears(&node, "10.9.0.1"), "late0 is open");
        }
        node.ip(&["link", "del", "late0"]);
        // Something about hosts changes while it is away.
        apply(&node, &[endpoint("other", "other0")]);
    }
    wire(&node, "late0", "10.9.0.2");
    node.ip(&["addr", "add", "10.9.0.1/24", "dev", "late0"]);
    delete(&node, "late");
    until("without its endpoint it is open", || hears(&node, "10.9.0.1"));
}

#[test]
fn an_address_that_comes_later_closes_its_interface_until_it_goes() {
    let Some(node) = node() else { return };
    let spec = json!({ "node": "n1", "expectedIPs": ["172.30.0.99"] });
    apply(&node, &[object("HostEndpoint", "late", spec)]);
    until("it is in force", || status(&node)["policyRevision"] != json!(0));
    for _ in 0..2 {
        assert!(hears(&node, "172.30.0.1"));
        node.ip(&["addr", "add", "172.30.0.99/24", "dev", "eth0"]);
        until("its interface is closed", || !hears(&node, "172.30.0.1"));
        assert!(!hears(&node, "172.30.0.99"));
        node.ip(&["addr", "del", "172.30.0.99/24", "dev", "eth0"]);
        until("its interface is open again", || hears(&node, "172.30.0.1"));
    }
}

/// What `margay explain` says of a packet of the neighbour: its first line.
fn explained(node: &Node) -> String {
    let said = margay(node, "explain 172.30.0.9 172.30.0.1 --protocol icmp");
    said.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn what_is_said_of_hosts_is_what_the_kernel_does() {
    let Some(node) = node() else { return };
    let open = json!({
        "selector": "endpoint in { 'n1-eth0', 'n1-all' }", "ingress": [{ "action": "Allow" }],
        "egress": [{ "action": "Allow" }],
    });
    let web = json!({
        "selector": "endpoint == 'web'", "types": ["Ingress"],
        "ingress": [{ "action": "Allow", "protocol": "TCP", "destination": { "ports": [80] } }],
    });
    let address = json!({ "bgp": { "ipv4Address": "172.30.0.1/24" } });
    apply(
        &node,
        &[
            object("Node", "n1", address),
            object("GlobalNetworkPolicy", "open", open),
            object("GlobalNetworkPolicy", "only-web", web),
            endpoint("n1-storage", "eth9"),
        ],
    );
    until("an interface that is not there says nothing", || explained(&node).contains("allowed"));
    assert!(hears(&node, "172.30.0.1"));
    apply(&node, &[endpoint("n1-all", "*")]);
    until("all others are open", || explained(&node).contains("allowed"));
    assert!(hears(&node, "172.30.0.1"));
    apply(&node, &[endpoint("aa", "eth0"), endpoint("n1-eth0", "eth0")]);
    until("the first by name closes eth0", || !hears(&node, "172.30.0.1"));
    until("and so it is said", || explained(&node).contains("denied at ingress of n1"));
    let of_claims = |it: &&Value| it["code"] == "MG-HOST-002";
    let said = || {
        let status = status(&node);
        let mut findings = status["findings"].as_array().into_iter().flatten();
        findings.find(of_claims).map(|it| it["problem"].to_string()).unwrap_or_default()
    };
    assert!(
        said().contains("eth0 has 2 host endpoints: aa is in force, n1-eth0 not"),
        "{}",
        said()
    );
    delete(&node, "aa");
    until("the other one opens it", || hears(&node, "172.30.0.1"));
    until("and so it is said", || explained(&node).contains("allowed"));
    assert_eq!(said(), "");
    // What is denied is told with the policies that might have allowed it.
    delete(&node, "n1-eth0");
    apply(&node, &[endpoint("web", "eth0")]);
    until("only the web is open", || !hears(&node, "172.30.0.1"));
    until("the policies are named", || {
        margay(&node, "drops").contains("end of tier default (policies only-web)")
    });
}
