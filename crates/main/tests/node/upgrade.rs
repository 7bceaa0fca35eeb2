//! Addresses move from host-local while an agent runs and pods come.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::{Child, Stdio};

use rustix::fs::{FlockOperation, flock};

use crate::node::{Node, may_run, until};

/// Files for every address of the pool but the last ten.
fn give_out(node: &Node) -> BTreeSet<IpAddr> {
    let folder = node.path("networks/k8s-pod-network");
    std::fs::create_dir_all(&folder).unwrap();
    let names = (0..246).map(|n| format!("10.65.0.{n}"));
    let given = names.map(|name| {
        std::fs::write(folder.join(&name), format!("old-{name}\r\neth0")).unwrap();
        name.parse().unwrap()
    });
    given.collect()
}

fn upgrade(node: &Node) -> Child {
    let mut command = node.margay(&["ipam", "upgrade", "--node", "n1", "--conf-dir", "/nowhere"]);
    let log = std::fs::File::create(node.path("upgrade.log")).unwrap();
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

#[test]
fn pods_come_while_addresses_move_and_no_address_has_two_users() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(4);
    let given = give_out(&node);
    node.start_agent();
    let mut own = BTreeSet::new();
    let mut add = |id: &str, container: usize| {
        let answer = node.must("ADD", id, container);
        let ips = answer["ips"].as_array().unwrap().iter();
        let addresses = ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap());
        for address in addresses.map(|it| it.parse::<IpAddr>().unwrap()) {
            assert!(!given.contains(&address), "{address} is in use");
            assert!(own.insert(address), "{address} was given twice");
        }
    };
    add("before", 0);
    let mut moving = upgrade(&node);
    add("meanwhile", 1);
    add("later", 2);
    assert!(moving.wait().unwrap().success(), "{}", log(&node));
    assert!(!node.path("networks/k8s-pod-network").exists());
    add("after", 3);
    let checked = node.margay(&["ipam", "show", "--ip", "10.65.0.245", "-o", "json"]).output();
    let shown = String::from_utf8(checked.unwrap().stdout).unwrap();
    assert!(shown.contains("k8s-pod-network.old-10.65.0.245"), "{shown}");
}

#[test]
fn the_agent_starts_while_addresses_wait_to_be_moved() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    give_out(&node);
    let lock = std::fs::File::create(node.path("networks/k8s-pod-network/lock")).unwrap();
    flock(lock.as_fd(), FlockOperation::LockExclusive).unwrap();
    let mut moving = upgrade(&node);
    until("it waits for the lock", || log(&node).contains("another process holds it"));
    node.start_agent();
    node.must("ADD", "new", 0);
    assert!(moving.try_wait().unwrap().is_none(), "{}", log(&node));
    drop(lock);
    assert!(moving.wait().unwrap().success(), "{}", log(&node));
}

fn log(node: &Node) -> String {
    std::fs::read_to_string(node.path("upgrade.log")).unwrap()
}
