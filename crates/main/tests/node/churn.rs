//! Many calls while plugins and agents are killed: nothing leaks, nothing is given twice.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::node::{Node, kill, may_run, until};

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn two_hundred_calls_with_kills_leave_no_leak_and_no_duplicate() {
    if !may_run() {
        return;
    }
    const CONTAINERS: usize = 6;
    let mut node = Node::new(CONTAINERS);
    node.start_agent();
    let mut dice = Dice(7);
    let mut ids: Vec<Option<String>> = vec![None; CONTAINERS];
    for round in 0..200 {
        let container = usize::try_from(dice.below(CONTAINERS as u64)).unwrap();
        let (command, id) = match ids[container].take() {
            Some(id) => ("DEL", id),
            None => ("ADD", format!("sandbox{round}")),
        };
        let mut call = node.call(command, &id, container, "");
        match dice.below(8) {
            0 => {
                std::thread::sleep(Duration::from_millis(dice.below(12)));
                kill(i32::try_from(call.id()).unwrap());
            }
            1 => {
                std::thread::sleep(Duration::from_millis(dice.below(12)));
                node.kill_agent(false);
            }
            2 if round % 3 == 0 => {
                std::thread::sleep(Duration::from_millis(dice.below(12)));
                node.kill_agent(true);
                node.start_agent();
            }
            _ => {}
        }
        let ended = call.wait().unwrap();
        // A runtime deletes what it does not know to be up, and repeats a DEL that failed.
        match (command, ended.success()) {
            ("ADD", true) => ids[container] = Some(id),
            ("ADD", false) => drop(node.must("DEL", &id, container)),
            (_, true) => {}
            (_, false) => drop(node.must("DEL", &id, container)),
        }
    }
    let live = ids.iter().flatten().count();
    until("what is live is all there is", || node.journal().len() == live);
    let held = node.allocated();
    let places: BTreeSet<_> = held.iter().map(|(place, _)| place).collect();
    assert_eq!(places.len(), held.len(), "an address was given twice: {held:?}");
    assert_eq!(held.len(), live * 2, "one address a family for each live sandbox: {held:?}");
    assert_eq!(node.interfaces().len(), live);
    for (container, id) in ids.iter().enumerate() {
        if let Some(id) = id {
            node.must("CHECK", id, container);
            node.must("DEL", id, container);
        }
    }
    node.assert_empty();
}

#[test]
fn many_calls_at_once_get_an_address_each() {
    if !may_run() {
        return;
    }
    const CONTAINERS: usize = 24;
    let mut node = Node::new(CONTAINERS);
    node.start_agent();
    let calls: Vec<_> =
        (0..CONTAINERS).map(|n| node.call("ADD", &format!("sandbox{n}"), n, "")).collect();
    for call in calls {
        let done = call.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    let held = node.allocated();
    let places: BTreeSet<_> = held.iter().map(|(place, _)| place).collect();
    assert_eq!(places.len(), CONTAINERS * 2, "{held:?}");
    let calls: Vec<_> =
        (0..CONTAINERS).map(|n| node.call("DEL", &format!("sandbox{n}"), n, "")).collect();
    for call in calls {
        assert!(call.wait_with_output().unwrap().status.success());
    }
    node.assert_empty();
}
