//! Calls that come while no agent serves, callers that do not wait, and deletions that overtake.

use std::time::Duration;

use crate::node::{Node, may_run, until};

#[test]
fn a_deletion_without_an_agent_is_done_when_it_is_back_and_never_twice() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(2);
    node.start_agent();
    node.must("ADD", "gone", 0);
    node.must("ADD", "anew", 1);
    node.kill_agent(true);
    let calls = [node.call("DEL", "gone", 0, ""), node.call("DEL", "anew", 1, "")];
    for call in calls {
        let deleted = call.wait_with_output().unwrap();
        assert!(deleted.status.success(), "{deleted:?}");
    }
    assert_eq!(node.interfaces().len(), 2, "nobody but the agent may touch them");
    node.start_agent();
    let anew = node.must("ADD", "anew", 1);
    until("the deletion to be carried out", || node.journal().len() == 1);
    // Tickets are looked for every two seconds.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(node.must("ADD", "anew", 1)["ips"], anew["ips"]);
    node.must("CHECK", "anew", 1);
    node.must("DEL", "anew", 1);
    node.assert_empty();
    assert_eq!(std::fs::read_dir(node.path("run/tickets")).unwrap().count(), 0);
}

#[test]
fn a_caller_that_hung_up_leaves_nothing_unless_another_has_asked_too() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(2);
    node.start_agent();
    node.must("ADD", "warm", 0);
    node.must("DEL", "warm", 0);
    // The dataplane stands still while the callers come and go.
    node.pause_dataplane(true);
    for (id, container) in [("gone", 0), ("kept", 1)] {
        node.ask_and_hang_up("ADD", id, container);
    }
    let second = node.call("ADD", "kept", 1, "");
    node.pause_dataplane(false);
    let kept = second.wait_with_output().unwrap();
    assert!(kept.status.success(), "{kept:?}");
    until("the abandoned one to go", || node.journal().len() == 1);
    assert_eq!(node.interfaces().len(), 1);
    node.must("CHECK", "kept", 1);
    node.must("DEL", "kept", 1);
    node.assert_empty();
}
