//! What a container may not do, whoever it is.

use serde_json::Value;

use crate::node::{Node, may_run};

fn addresses(answer: &Value) -> Vec<String> {
    let ips = answer["ips"].as_array().unwrap();
    let bare = |ip: &Value| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    ips.iter().map(bare).collect()
}

#[test]
fn neighbours_talk_and_a_forged_source_is_dropped() {
    if !may_run() {
        return;
    }
    let node = Node::new(2);
    let first = addresses(&node.must("ADD", "first", 0));
    let second = addresses(&node.must("ADD", "second", 1));
    let ping = |from: &str, words: &[&str]| {
        node.inside(from, "ping", words).output().unwrap().status.success()
    };
    for address in &second {
        assert!(ping("c0", &["-c1", "-W2", address]), "{address}");
    }
    // An address of its own that nobody gave it.
    let forged = "10.65.0.200";
    let added = node.inside("c0", "ip", &["addr", "add", "10.65.0.200/32", "dev", "eth0"]).status();
    assert!(added.unwrap().success());
    assert!(!ping("c0", &["-c1", "-W1", "-I", forged, &second[0]]));
    assert!(ping("c0", &["-c1", "-W2", "-I", &first[0], &second[0]]));
    let rules = node.inside("host", "nft", &["list", "chain", "inet", "margay", "from-pod"]);
    let rules = String::from_utf8({ rules }.output().unwrap().stdout).unwrap();
    let dropped = rules.lines().find(|line| line.contains("source is not the endpoint's"));
    assert!(!dropped.unwrap().contains("packets 0 "), "{rules}");
}

#[test]
fn two_containers_whose_ids_begin_alike_have_an_interface_each() {
    if !may_run() {
        return;
    }
    let node = Node::new(2);
    node.must("ADD", "aaaaaaaaaaaaa1", 0);
    node.must("ADD", "aaaaaaaaaaaaa2", 1);
    assert_eq!(node.interfaces().len(), 2);
    node.must("DEL", "aaaaaaaaaaaaa2", 1);
    node.must("CHECK", "aaaaaaaaaaaaa1", 0);
    node.must("DEL", "aaaaaaaaaaaaa1", 0);
    node.assert_empty();
}

#[test]
fn an_interface_that_was_there_before_is_in_the_way_and_stays() {
    if !may_run() {
        return;
    }
    let node = Node::new(1);
    let made = node.inside("c0", "ip", &["link", "add", "eth0", "type", "veth"]).status();
    assert!(made.unwrap().success());
    let refused = node.called("ADD", "first", 0);
    assert!(!refused.status.success());
    let told = String::from_utf8(refused.stdout).unwrap();
    assert!(told.contains("first eth0"), "the sandbox is named: {told}");
    let still = node.inside("c0", "ip", &["link", "show", "eth0"]).output().unwrap();
    assert!(still.status.success(), "what was there is not ours to remove");
    node.assert_empty();
}
