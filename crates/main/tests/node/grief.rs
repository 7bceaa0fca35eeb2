//! An object at which the engine comes to grief is put aside, and nothing else is.

use serde_json::json;
use store::{Op, Txn};

use crate::node::{Node, may_run, until};
use crate::outage::{address, status};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

fn put(node: &Node, kind: &str, path: &str, spec: serde_json::Value) {
    let name = path.rsplit('/').next().unwrap();
    let object = json!({
        "apiVersion": "projectcalico.org/v3", "kind": kind,
        "metadata": { "name": name, "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6" },
        "spec": spec,
    });
    let key = format!("{RESOURCES}/{path}");
    let op = Op::Put { key, value: object.to_string().into_bytes() };
    node.store().commit(Txn { compares: Vec::new(), ops: vec![op] }).unwrap();
}

fn is_named(node: &Node) -> bool {
    let told = status(node)["findings"].to_string();
    told.contains("GlobalNetworkPolicy unbearable") && told.contains("cannot bear it")
}

/// Whether the second container reaches an address.
fn reaches(node: &Node, address: &str) -> bool {
    let mut ping = node.inside("c1", "ping", &["-n", "-c1", "-W1", address]);
    ping.output().unwrap().status.success()
}

#[test]
fn one_object_too_many_is_put_aside_and_the_rest_goes_on() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(2);
    node.fault = "panic-unbearable";
    node.start_agent();
    let first = address(&node.must("ADD", "pod1", 0));
    let policy = json!({ "selector": "all()", "types": ["Ingress"], "order": 1.0 });
    put(&node, "GlobalNetworkPolicy", "globalnetworkpolicies/unbearable", policy.clone());
    until("the object is named", || is_named(&node));
    node.must("ADD", "pod2", 1);
    until("the sandboxes talk", || reaches(&node, &first));
    // Another policy is carried out, and taken back.
    put(&node, "GlobalNetworkPolicy", "globalnetworkpolicies/closed", policy);
    until("a policy comes into force", || !reaches(&node, &first));
    node.delete_key(&format!("{RESOURCES}/globalnetworkpolicies/closed"));
    until("a policy goes", || reaches(&node, &first));
    // The next agent knows it from the list, and gets by without the fault.
    node.kill_agent(true);
    node.fault = "";
    node.start_agent();
    until("the object is still put aside", || is_named(&node));
    assert!(reaches(&node, &first));
    put(
        &node,
        "GlobalNetworkPolicy",
        "globalnetworkpolicies/unbearable",
        json!({
            "selector": "has(nobody)", "types": ["Ingress"],
        }),
    );
    until("another value is given a chance", || !is_named(&node));
    assert!(reaches(&node, &first));
}

/// A policy over which the engine comes to grief only when it is carried out: nothing says so until
/// then. It comes in a company of others, and while a pod is added.
#[test]
fn one_that_cannot_be_carried_out_is_found_among_others() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(3);
    node.fault = "flush-unbearable";
    node.start_agent();
    let first = address(&node.must("ADD", "pod1", 0));
    node.must("ADD", "pod2", 1);
    until("the sandboxes talk", || reaches(&node, &first));
    let open = json!({ "selector": "all()", "types": ["Ingress"], "order": 2.0,
        "ingress": [{ "action": "Allow" }] });
    let closed = json!({ "selector": "all()", "types": ["Ingress"], "order": 1.0,
        "ingress": [{ "action": "Deny" }] });
    let path = |name: &str| format!("globalnetworkpolicies/{name}");
    for name in ["before", "unbearable", "later"] {
        let spec = if name == "unbearable" { &closed } else { &open };
        put(&node, "GlobalNetworkPolicy", &path(name), spec.clone());
    }
    until("the object is named", || is_named(&node));
    let told = status(&node)["findings"].to_string();
    assert!(!told.contains("before") && !told.contains("later"), "{told}");
    assert!(reaches(&node, &first), "what cannot be carried out is as if it was not there");
    // A pod that is added afterwards, and a policy that is, are served.
    node.must("ADD", "pod3", 2);
    put(&node, "GlobalNetworkPolicy", &path("closed"), closed.clone());
    until("a policy comes into force", || !reaches(&node, &first));
    node.delete_key(&format!("{RESOURCES}/{}", path("closed")));
    until("a policy goes", || reaches(&node, &first));
    // The next agent has it on its list, and need not find it again.
    node.kill_agent(true);
    node.start_agent();
    until("the object is still put aside", || is_named(&node));
    assert!(reaches(&node, &first));
}
