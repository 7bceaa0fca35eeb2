//! The process is ended before and after every step of ADD and DEL; the next call puts it right.

use std::collections::BTreeSet;

use crate::node::{Node, may_run};

const UP: [&str; 3] = ["claim", "wire", "open"];
const DOWN: [&str; 3] = ["leave", "unwire", "release"];
/// Those of a sandbox that comes without the datastore, which are ended in `reserve`, and of one
/// that others made, which are ended in `adoption`.
const APART: [&str; 4] = ["take", "settle", "name", "adopt"];

#[test]
fn an_add_that_ends_anywhere_can_be_repeated_and_taken_back() {
    if !may_run() {
        return;
    }
    let node = Node::new(1);
    for step in UP {
        for when in ["before", "after"] {
            let fault = format!("{when}-{step}");
            let ended = node.call("ADD", &fault, 0, &fault).wait().unwrap();
            assert!(!ended.success(), "{fault} was not met");
            let again = node.must("ADD", &fault, 0);
            assert_eq!(again["ips"].as_array().unwrap().len(), 2, "{fault}");
            node.must("CHECK", &fault, 0);
            assert_eq!(node.allocated().len(), 2, "{fault}");
            node.must("DEL", &fault, 0);
            node.assert_empty();
            let ended = node.call("ADD", &fault, 0, &fault).wait().unwrap();
            assert!(!ended.success(), "{fault} was not met");
            node.must("DEL", &fault, 0);
            node.assert_empty();
        }
    }
}

#[test]
fn a_del_that_ends_anywhere_can_be_repeated() {
    if !may_run() {
        return;
    }
    let node = Node::new(1);
    for step in DOWN {
        for when in ["before", "after"] {
            let fault = format!("{when}-{step}");
            node.must("ADD", &fault, 0);
            let ended = node.call("DEL", &fault, 0, &fault).wait().unwrap();
            assert!(!ended.success(), "{fault} was not met");
            node.must("DEL", &fault, 0);
            node.assert_empty();
        }
    }
}

#[test]
fn every_step_has_its_crash_points() {
    let tested: BTreeSet<&str> = UP.into_iter().chain(DOWN).chain(APART).collect();
    let all: BTreeSet<&str> =
        sandbox::life::Step::ALL.into_iter().map(|step| step.name()).collect();
    assert_eq!(tested, all);
}
