//! CHECK, GC and STATUS: what they look at, what they leave alone, and what they say.

use std::process::Output;

use serde_json::{Value, json};
use store::{Op, Txn};

use crate::node::{Node, may_run};

const CLUSTER: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";

/// The error that a call must end with.
fn refused(done: &Output) -> Value {
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    serde_json::from_slice(&done.stdout).unwrap()
}

fn message(error: &Value) -> &str {
    error["msg"].as_str().unwrap()
}

/// A call about a network, with more in its configuration.
fn of_network(node: &Node, command: &str, network: &str, more: &Value) -> Output {
    let mut configuration = node.configuration();
    configuration["name"] = network.into();
    for (name, value) in more.as_object().into_iter().flatten() {
        configuration[name] = value.clone();
    }
    node.call_with(command, "unused", 0, &configuration).wait_with_output().unwrap()
}

#[test]
fn check_names_what_is_missing() {
    if !may_run() {
        return;
    }
    let node = Node::new(1);
    // What is broken is repaired by a DEL and an ADD, as a runtime would.
    type Break = (&'static str, fn(&Node, &str), &'static str);
    fn ip(node: &Node, place: &str, words: &[&str]) {
        let done = node.inside(place, "ip", words).output().unwrap();
        assert!(done.status.success(), "{words:?}: {done:?}");
    }
    fn nft(node: &Node, words: &[&str]) {
        let done = node.inside("host", "nft", words).output().unwrap();
        assert!(done.status.success(), "{words:?}: {done:?}");
    }
    fn forget(node: &Node, prefix: &str) {
        let gone = node.stored(prefix).into_iter().map(|(key, _)| Op::Delete { key }).collect();
        node.store().commit(Txn { compares: vec![], ops: gone }).unwrap();
    }
    let breaks: &[Break] = &[
        (
            "address",
            |node, it| ip(node, "c0", &["addr", "del", &format!("{it}/32"), "dev", "eth0"]),
            "is missing from the container's eth0",
        ),
        (
            "default route",
            |node, _| ip(node, "c0", &["route", "del", "default"]),
            "the container's route 0.0.0.0/0 is missing",
        ),
        ("link", |node, _| ip(node, "c0", &["link", "set", "eth0", "down"]), "eth0 is down"),
        (
            "interface",
            |node, _| ip(node, "host", &["link", "del", "califirst"]),
            "the host's interface califirst is missing",
        ),
        ("host route", |node, it| ip(node, "host", &["route", "del", it]), "the host's route to"),
        (
            "endpoint",
            |node, _| {
                forget(node, "/calico/resources/v3/projectcalico.org/workloadendpoints/");
            },
            "its endpoint n1-cni-first-eth0 is missing from the datastore",
        ),
        (
            "allocation",
            |node, _| forget(node, "/calico/ipam/v2/handle/"),
            "is not allocated to net1.first",
        ),
        (
            "filter",
            |node, _| nft(node, &["delete", "table", "inet", "margay"]),
            "the table margay of the packet filter is missing",
        ),
        (
            "element",
            |node, _| {
                nft(node, &["flush", "set", "inet", "margay", "source4"]);
            },
            "the packet filter does not know califirst (source4)",
        ),
        (
            "setting",
            |node, _| {
                let file = "/proc/sys/net/ipv4/conf/califirst/proxy_arp";
                let done = node.inside("host", "sh", &["-c", &format!("echo 0 > {file}")]).status();
                assert!(done.unwrap().success());
            },
            "proxy_arp is 0, not 1",
        ),
    ];
    for (what, break_it, said) in breaks {
        let answer = node.must("ADD", "first", 0);
        let address = answer["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap();
        node.must("CHECK", "first", 0);
        break_it(&node, address);
        let error = refused(&node.called("CHECK", "first", 0));
        assert!(message(&error).contains(said), "{what}: {error}");
        assert!(message(&error).starts_with("first eth0: "), "{what}: {error}");
        node.must("DEL", "first", 0);
    }
    let error = refused(&node.called("CHECK", "never", 0));
    assert_eq!((&error["code"], message(&error)), (&json!(3), "never eth0 was never added"));
    node.assert_empty();
}

fn gc(node: &Node, network: &str, valid: &[&str]) {
    let attachments: Vec<Value> =
        valid.iter().map(|id| json!({ "containerID": id, "ifname": "eth0" })).collect();
    let done =
        of_network(node, "GC", network, &json!({ "cni.dev/valid-attachments": attachments }));
    assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
}

#[test]
fn gc_takes_the_ghosts_of_its_network_and_nothing_else() {
    if !may_run() {
        return;
    }
    for has_agent in [false, true] {
        let mut node = Node::new(3);
        if has_agent {
            node.start_agent();
        }
        node.must("ADD", "kept", 0);
        node.must("ADD", "ghost", 1);
        let mut other = node.configuration();
        other["name"] = "net2".into();
        let added = node.call_with("ADD", "elsewhere", 2, &other).wait_with_output().unwrap();
        assert!(added.status.success(), "{added:?}");
        for _ in 0..2 {
            gc(&node, "net1", &["kept", "never-seen"]);
            assert_eq!(node.interfaces().len(), 2, "the ghost's is gone");
            node.must("CHECK", "kept", 0);
            let handles = node.stored("/calico/ipam/v2/handle/");
            let handles: Vec<&str> =
                handles.iter().filter_map(|(key, _)| key.rsplit('/').next()).collect();
            assert_eq!(handles, ["net1.kept", "net2.elsewhere"]);
        }
        let error = refused(&node.called("CHECK", "ghost", 1));
        assert_eq!(error["code"], 3, "{error}");
        // Who says nothing of what is in use has not said that nothing is.
        let error = refused(&of_network(&node, "GC", "net1", &json!({})));
        assert_eq!(error["code"], 7, "{error}");
        let kept = json!([{ "containerID": "kept", "ifname": "eth0" }]);
        let done = of_network(&node, "GC", "net1", &json!({ "cni.dev/attachments": kept }));
        assert!(done.status.success(), "{done:?}");
        node.must("CHECK", "kept", 0);
        // Without a list nothing is known to be valid; another interface is another attachment.
        gc(&node, "net2", &[]);
        gc(&node, "net1", &[]);
        node.assert_empty();
    }
}

#[test]
fn status_says_whether_an_add_could_be_served_and_why_not() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    let status = |node: &Node, more: &Value| of_network(node, "STATUS", "net1", more);
    let fine = |done: &Output| done.status.success() && done.stdout.is_empty();
    let answer = status(&node, &json!({}));
    assert!(fine(&answer), "{answer:?}");
    // A datastore that cannot be reached.
    let gone = json!({ "store": "", "etcd_endpoints": "http://127.0.0.1:1" });
    let error = refused(&status(&node, &gone));
    assert_eq!(error["code"], 50, "{error}");
    assert!(message(&error).contains("127.0.0.1:1"), "{error}");
    // One that is locked.
    let stored = node.stored(CLUSTER).remove(0).1;
    let locked = stored.to_string().replace("\"datastoreReady\":true", "\"datastoreReady\":false");
    assert_ne!(locked, stored.to_string());
    let put = |value: &str| {
        let op = Op::Put { key: CLUSTER.to_owned(), value: value.into() };
        node.store().commit(Txn { compares: vec![], ops: vec![op] }).unwrap();
    };
    put(&locked);
    let error = refused(&status(&node, &json!({})));
    assert_eq!(error["code"], 50, "{error}");
    assert!(error["details"].as_str().unwrap().contains("datastoreReady"), "{error}");
    put(&stored.to_string());
    // An agent that serves, and one that is gone.
    node.start_agent();
    let answer = status(&node, &json!({}));
    assert!(fine(&answer), "{answer:?}");
    node.kill_agent(true);
    let error = refused(&status(&node, &json!({})));
    assert_eq!(error["code"], 50, "{error}");
    assert!(message(&error).contains("agent.sock does not answer"), "{error}");
}

#[test]
fn a_del_of_another_interface_of_a_container_leaves_the_first_alone() {
    if !may_run() {
        return;
    }
    for has_agent in [false, true] {
        let mut node = Node::new(2);
        if has_agent {
            node.start_agent();
        }
        node.must("ADD", "first", 0);
        // The usual name of the host's interface is the same for both.
        let mut call = node.prepared("DEL", "first", 0);
        let done = call.env("CNI_IFNAME", "eth1").output().unwrap();
        assert!(done.status.success(), "{done:?}");
        node.must("CHECK", "first", 0);
        node.must("DEL", "first", 0);
        node.assert_empty();
    }
}
