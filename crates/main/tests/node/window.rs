//! What begins while our tables are gone does not outlive that moment.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
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

/// A pod that never stops trying to reach another one, which policy forbids.
struct Attempt {
    node: Node,
    is_over: Arc<AtomicBool>,
    n_arrived: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Attempt {
    fn begin(arguments: &[&str]) -> Self {
        let mut node = Node::new(2);
        node.start_agent_with(arguments);
        let first = address(&node.must("ADD", "pod1", 0));
        node.must("ADD", "pod2", 1);
        forbid(&node);
        until("the policy is in force", || status(&node)["policyRevision"] != json!(0));
        let receiver = socket(&node, "c0", "0.0.0.0:7001");
        receiver.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let sender = socket(&node, "c1", "0.0.0.0:5555");
        let is_over = Arc::new(AtomicBool::new(false));
        let n_arrived = Arc::new(AtomicUsize::new(0));
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
        let attempt = Self { node, is_over, n_arrived, threads: vec![sending, receiving] };
        until("the policy holds", || attempt.is_quiet());
        attempt
    }

    fn n_now(&self) -> usize {
        self.n_arrived.load(Ordering::SeqCst)
    }

    fn is_quiet(&self) -> bool {
        let before = self.n_now();
        std::thread::sleep(Duration::from_millis(300));
        self.n_now() == before
    }

    /// Whether another program on the host succeeds.
    fn nft(&self, words: &[&str]) -> bool {
        self.node.inside("host", "nft", words).output().unwrap().status.success()
    }

    fn end(self) -> Node {
        self.is_over.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.node
    }
}

/// It gets through while our tables are gone, and not a moment longer: the connection that it began
/// then is not taken for one that was allowed.
#[test]
fn a_connection_begun_while_our_tables_were_gone_ends_with_their_return() {
    if !may_run() {
        return;
    }
    let attempt = Attempt::begin(&["--shared-tables"]);
    let mut n_through = 0;
    for _ in 0..50 {
        let before = attempt.n_now();
        assert!(attempt.nft(&["flush", "ruleset"]));
        until("the policy holds again", || attempt.is_quiet());
        n_through += attempt.n_now() - before;
        if n_through > 0 {
            break;
        }
    }
    let node = attempt.end();
    assert!(n_through > 0, "nothing got through meanwhile: nothing was shown");
    let events = node.margay(&["events", "repaired"]).output().unwrap();
    let events = String::from_utf8(events.stdout).unwrap();
    assert!(events.contains("that policy forbids may have begun meanwhile; ended"), "{events}");
}

/// Where the kernel lets tables be the agent's own, there is no such moment: not when others flush
/// the ruleset, nor when the agent is killed, starts again, or is told to let others in.
#[test]
fn nothing_gets_through_when_others_flush_the_ruleset() {
    if !may_run() {
        return;
    }
    let mut attempt = Attempt::begin(&[]);
    let is_owned = |attempt: &Attempt| {
        let listed = attempt.node.inside("host", "nft", &["list", "tables"]).output().unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        assert!(text.contains("table inet margay"), "{text}");
        !attempt.nft(&["add", "chain", "inet", "margay", "intruder"])
    };
    if !is_owned(&attempt) {
        eprintln!("SKIPPED: this kernel has no tables that outlive their owner (Linux 6.9)");
        return drop(attempt.end());
    }
    let before = attempt.n_now();
    for _ in 0..20 {
        assert!(attempt.nft(&["flush", "ruleset"]));
        assert!(!attempt.nft(&["delete", "table", "inet", "margay"]));
    }
    attempt.node.kill_agent(false);
    until("the next one has them", || is_owned(&attempt));
    attempt.node.kill_agent(true);
    until("they are nobody's", || attempt.nft(&["add", "chain", "inet", "margay", "intruder"]));
    attempt.node.start_agent();
    until("the next one has them", || is_owned(&attempt));
    attempt.node.kill_agent(true);
    attempt.node.start_agent_with(&["--shared-tables"]);
    until("they are everybody's", || attempt.nft(&["add", "chain", "inet", "margay", "other"]));
    assert!(attempt.is_quiet());
    assert_eq!(attempt.n_now(), before, "something got through");
    attempt.end();
}
