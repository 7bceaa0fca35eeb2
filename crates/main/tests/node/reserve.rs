//! ADD while the datastore is gone: from the reserve, once each, and the datastore hears of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::node::{Node, until};
use crate::outage::{Ping, address, codes, interface, is_known_to_kernel, refusal, status};

/// How many addresses each handle holds; none is held twice.
fn by_handle(node: &Node) -> BTreeMap<String, usize> {
    let held = node.allocated();
    let places: BTreeSet<&String> = held.iter().map(|(place, _)| place).collect();
    assert_eq!(places.len(), held.len(), "an address was given twice: {held:?}");
    let mut handles = BTreeMap::new();
    for (_, handle) in held {
        *handles.entry(handle).or_default() += 1;
    }
    handles
}

/// Containers were given different addresses.
fn assert_different<'a>(answers: impl IntoIterator<Item = &'a Value>) {
    let ips = answers.into_iter().flat_map(|answer| answer["ips"].as_array().unwrap());
    let all: Vec<&str> = ips.map(|ip| ip["address"].as_str().unwrap()).collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
}

fn can_ping(node: &Node, from: &str, to: &str) -> bool {
    node.inside(from, "ping", &["-c1", "-W5", to]).output().unwrap().status.success()
}

/// How many sandboxes the datastore is still to hear of.
fn n_owed(node: &Node) -> usize {
    node.journal().iter().filter(|record| record["owed"].is_object()).count()
}

/// Waits until the reserve has this many addresses.
fn until_reserve(node: &Node, n: usize) {
    until("the reserve is as it should be", || status(node)["ipam"]["reserve"] == n);
}

/// How often the dataplane has ended at a fault; it is killed otherwise.
fn n_faults(node: &Node) -> usize {
    let log = std::fs::read_to_string(node.path("log")).unwrap_or_default();
    log.matches("the dataplane ended (signal: 6").count()
}

fn lose_etcd(node: &mut Node) {
    node.etcd.as_mut().unwrap().kill();
    until("the outage is said", || codes(node).contains("MG-STORE-001"));
}

fn restart(node: &mut Node, fault: &'static str, reserve: &str) {
    node.kill_agent(true);
    node.fault = fault;
    node.start_agent_with(&["--reserve", reserve]);
}

/// Gives the reserve back, and looks that nothing else is left.
fn assert_empty(node: &mut Node) {
    restart(node, "", "0");
    until("the reserve is given back", || node.allocated().is_empty());
    node.assert_empty();
}

#[test]
fn an_add_without_the_datastore_takes_from_the_reserve() {
    let Some(mut node) = Node::with_etcd(4) else { return };
    node.start_agent_with(&["--reserve", "2"]);
    let first = node.must("ADD", "first", 0);
    until_reserve(&node, 4);
    assert_eq!(by_handle(&node)["margay-reserve.n1"], 4);

    let shown = |words: &[&str]| {
        let done = node.margay(words).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    // What is in reserve is in use by nobody, and shown as what it is; Calico knows no reserve.
    let pools: Value = serde_json::from_str(&shown(&["ipam", "show", "-o", "json"])).unwrap();
    for pool in pools.as_array().unwrap() {
        assert_eq!((&pool["inUse"], &pool["offlineReserve"]), (&"1".into(), &"2".into()), "{pool}");
    }
    assert!(shown(&["ipam", "show"]).contains("OFFLINE RESERVE"));
    let calico = shown(&["calicoctl", "ipam", "show"]);
    assert!(calico.contains(" 3 (1%) "), "as Calico counts: {calico}");
    let known = std::fs::read_to_string(node.path("state/known.json")).unwrap();
    let known: Value = serde_json::from_str(&known).unwrap();
    let held = known["reserve"][0].as_str().unwrap();
    let said = shown(&["ipam", "show", "--ip", held]);
    assert!(said.contains("is held by node n1 for times without the datastore"), "{said}");

    lose_etcd(&mut node);
    let second = node.must("ADD", "second", 1);
    node.must("CHECK", "second", 1);
    let ping = Ping::start(&node, "c0", &address(&second));
    assert!(can_ping(&node, "c1", &address(&first)));
    restart(&mut node, "", "2");
    until("it says what it remembers", || status(&node)["asOf"].is_string());
    let said = status(&node);
    assert_eq!((&said["ipam"]["pools"], said["ipam"].get("blocks")), (&2.into(), None), "{said}");
    assert!(said["routes"]["count"].as_u64() >= Some(4), "{said}");
    assert_eq!(said["filter"]["count"], 2, "{said}");
    let said = String::from_utf8(node.margay(&["status"]).output().unwrap().stdout).unwrap();
    for line in [
        "IPAM       !  2 pools, blocks not known yet, 2 in reserve; as of 20",
        " in the kernel, left as it is until the datastore answers",
        "FILTER     !  2 interfaces, left as it is until the datastore answers",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let third = node.must("ADD", "third", 2);
    assert_different([&first, &second, &third]);
    assert!(can_ping(&node, "c1", &address(&third)) && can_ping(&node, "c2", &address(&first)));
    assert!(codes(&node).contains("MG-STORE-003"));

    let refused = refusal(node.call("ADD", "fourth", 3, ""));
    assert_eq!(refused["code"], 11, "{refused}");
    assert!(refused["msg"].as_str().unwrap().contains("reserve"), "{refused}");
    node.must("DEL", "third", 2);
    assert!(!is_known_to_kernel(&node, &interface("third")));
    node.network = "net2";
    let refused = refusal(node.call("ADD", "fourth", 3, ""));
    node.network = "net1";
    assert_eq!(refused["code"], 11, "{refused}");
    assert!(refused["msg"].as_str().unwrap().contains("profiles/net2"), "{refused}");
    // What the datastore never heard of can be given again.
    let fourth = node.must("ADD", "fourth", 3);
    assert_different([&first, &second, &fourth]);

    node.etcd.as_mut().unwrap().run();
    until("the datastore hears of them", || n_owed(&node) == 0);
    until_reserve(&node, 4);
    until("all is well again", || status(&node)["status"] == "fine");
    ping.assert_none_lost();
    let handles = ["margay-reserve.n1", "net1.first", "net1.fourth", "net1.second"];
    let wanted = handles.map(str::to_owned).into_iter().zip([4, 2, 2, 2]).collect();
    assert_eq!(by_handle(&node), wanted);
    for (container, id) in [(0, "first"), (1, "second"), (3, "fourth")] {
        node.must("CHECK", id, container);
        node.must("DEL", id, container);
    }
    assert_empty(&mut node);
}

#[test]
fn what_was_settled_is_the_reserves_no_more_and_a_lost_handle_is_made_anew() {
    let Some(mut node) = Node::with_etcd(1) else { return };
    node.start_agent_with(&["--reserve", "2"]);
    node.must("ADD", "first", 0);
    node.must("DEL", "first", 0);
    until_reserve(&node, 4);
    // The blocks still say who holds the addresses.
    node.delete_key("/calico/ipam/v2/handle/margay-reserve.n1");
    lose_etcd(&mut node);
    let second = node.must("ADD", "second", 0);
    node.etcd.as_mut().unwrap().run();
    until("the datastore hears of it", || n_owed(&node) == 0);
    let known = std::fs::read_to_string(node.path("state/known.json")).unwrap();
    let own = format!("\"{}\"", address(&second));
    assert!(!known.contains(&own), "{own} could be given once more: {known}");
    node.must("CHECK", "second", 0);
    node.must("DEL", "second", 0);
    assert_empty(&mut node);
}

#[test]
fn an_agent_that_ends_while_it_takes_or_settles_leaks_nothing() {
    let Some(mut node) = Node::with_etcd(1) else { return };
    node.start_agent_with(&["--reserve", "2"]);
    node.must("ADD", "first", 0);
    node.must("DEL", "first", 0);
    until_reserve(&node, 4);
    lose_etcd(&mut node);
    for (n, fault) in ["before-take", "after-take"].into_iter().enumerate() {
        let before = n_faults(&node);
        restart(&mut node, fault, "2");
        let mut call = node.call("ADD", fault, 0, "");
        until("the fault is met", || n_faults(&node) > before);
        call.kill().unwrap();
        call.wait().unwrap();
        restart(&mut node, "", "2");
        node.must("ADD", fault, 0);
        if fault == "before-take" {
            // Nobody knows whether the datastore was asked: the address is not given again.
            node.must("DEL", fault, 0);
        }
        until_reserve(&node, 2 - 2 * n);
    }
    node.etcd.as_mut().unwrap().run();
    node.until_etcd_serves();
    for fault in ["before-settle", "after-settle"] {
        let before = n_faults(&node);
        restart(&mut node, fault, "2");
        until("the fault is met", || n_faults(&node) > before);
    }
    assert_eq!(n_owed(&node), 1);
    restart(&mut node, "", "2");
    until("the datastore hears of it", || n_owed(&node) == 0);
    until_reserve(&node, 4);
    assert_eq!(by_handle(&node).into_values().collect::<Vec<_>>(), [4, 2]);
    node.must("CHECK", "after-take", 0);
    node.must("DEL", "after-take", 0);
    assert_empty(&mut node);
}

#[test]
fn an_address_that_is_somebody_elses_by_then_is_closed() {
    let Some(mut node) = Node::with_etcd(2) else { return };
    node.start_agent_with(&["--reserve", "1"]);
    node.must("ADD", "first", 0);
    until_reserve(&node, 2);
    lose_etcd(&mut node);
    let second = address(&node.must("ADD", "second", 1));
    assert!(can_ping(&node, "c0", &second));
    node.kill_agent(true);
    node.etcd.as_mut().unwrap().run();
    node.until_etcd_serves();
    for (key, block) in node.stored("/calico/ipam/v2/assignment/") {
        let stolen = block.to_string().replace("margay-reserve.n1", "net1.thief");
        let put = node.inside("host", "etcdctl", &["put", &key, &stolen]).output().unwrap();
        assert!(put.status.success(), "{put:?}");
    }
    node.start_agent_with(&["--reserve", "1"]);
    until("both are named", || codes(&node).contains("MG-IPAM-001"));
    let said = status(&node)["findings"].to_string();
    assert!(said.contains("net1.thief") && said.contains("net1.second"), "{said}");
    let words = ["-c1", "-W1", &second];
    assert!(!node.inside("c0", "ping", &words).output().unwrap().status.success());
    node.must("DEL", "second", 1);
    until("its ticket is cashed", || node.journal().len() == 1);
    assert_eq!(by_handle(&node)["net1.thief"], 2);
    assert!(!codes(&node).contains("MG-IPAM-001"));
}

#[test]
fn an_add_that_meets_a_silent_datastore_ends_and_leaks_nothing() {
    let Some(mut node) = Node::with_etcd(2) else { return };
    node.start_agent_with(&["--reserve", "1"]);
    node.must("ADD", "first", 0);
    until_reserve(&node, 2);
    node.etcd.as_ref().unwrap().stop();
    node.must("ADD", "second", 1);
    assert_eq!(n_owed(&node), 1);
    node.etcd.as_ref().unwrap().go_on();
    until("the datastore hears of it", || n_owed(&node) == 0);
    until_reserve(&node, 2);
    assert_eq!(by_handle(&node).into_values().collect::<Vec<_>>(), [2, 2, 2]);
    for (container, id) in ["first", "second"].into_iter().enumerate() {
        node.must("CHECK", id, container);
        node.must("DEL", id, container);
    }
    assert_empty(&mut node);
}
