//! What begins while our tables are gone does not outlive that moment.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kernel::Netns;
use serde_json::json;
use store::{Op, Txn};

use crate::node::{Node, may_run, until};
use crate::outage::{address, status};

const PORT: u16 = 7001;

fn socket(node: &Node, place: &str, local: &str) -> UdpSocket {
    let netns = Netns::open(node.netns(place)).unwrap();
    netns.enter(|| UdpSocket::bind(local).unwrap()).unwrap()
}

fn forbid(node: &Node) {
    let policy = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
        "metadata": { "name": "closed", "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6" },
        "spec": { "selector": "all()", "types": ["Ingress"] },
    });
    let key = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/closed".to_owned();
    let op = Op::Put { key, value: policy.to_string().into_bytes() };
    node.store().commit(Txn { compares: Vec::new(), ops: vec![op] }).unwrap();
}

/// A pod that never stops trying gets through while our tables are gone, and not a moment longer:
/// the connection that it began then is not taken for one that was allowed.
#[test]
fn a_connection_begun_while_our_tables_were_gone_ends_with_their_return() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(2);
    node.start_agent();
    let first = address(&node.must("ADD", "pod1", 0));
    node.must("ADD", "pod2", 1);
    forbid(&node);
    until("the policy is in force", || status(&node)["policyRevision"] != json!(0));
    let receiver = socket(&node, "c0", "0.0.0.0:7001");
    receiver.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let sender = socket(&node, "c1", "0.0.0.0:5555");
    let (is_over, n_arrived) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let sending = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::SeqCst) {
                let _ = sender.send_to(b"?", (first.as_str(), PORT));
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    let receiving = std::thread::spawn({
        let (is_over, n_arrived) = (Arc::clone(&is_over), Arc::clone(&n_arrived));
        move || {
            let mut bytes = [0; 16];
            while !is_over.load(Ordering::SeqCst) {
                if let Ok((_, from)) = receiver.recv_from(&mut bytes) {
                    n_arrived.fetch_add(1, Ordering::SeqCst);
                    // An answer makes it a connection for good.
                    let _ = receiver.send_to(b"!", from);
                }
            }
        }
    });
    let n_now = || n_arrived.load(Ordering::SeqCst);
    let is_quiet = || {
        let before = n_now();
        std::thread::sleep(Duration::from_millis(300));
        n_now() == before
    };
    until("the policy holds", is_quiet);
    let mut n_through = 0;
    for _ in 0..50 {
        let before = n_now();
        let flushed = node.inside("host", "nft", &["flush", "ruleset"]).status().unwrap();
        assert!(flushed.success());
        until("the policy holds again", is_quiet);
        n_through += n_now() - before;
        if n_through > 0 {
            break;
        }
    }
    is_over.store(true, Ordering::SeqCst);
    sending.join().unwrap();
    receiving.join().unwrap();
    assert!(n_through > 0, "nothing got through meanwhile: nothing was shown");
    let events = node.margay(&["events", "repaired"]).output().unwrap();
    let events = String::from_utf8(events.stdout).unwrap();
    assert!(events.contains("that policy forbids may have begun meanwhile; ended"), "{events}");
}
