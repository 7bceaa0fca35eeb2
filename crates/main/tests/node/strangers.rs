//! What is not ours stays, and what was ours goes to nobody else: interfaces of others, namespaces
//! that are gone, conversations of an address, and several sandboxes of one pod.

use std::process::Child;

use serde_json::Value;

use crate::node::{Node, may_run, until};

/// Whether a call went well.
fn is_fine(call: Child) -> bool {
    let done = call.wait_with_output().unwrap();
    done.status.success()
}

fn has(node: &Node, netns: &str, interface: &str) -> bool {
    let done = node.inside(netns, "ip", &["link", "show", interface]).output().unwrap();
    done.status.success()
}

#[test]
fn deletions_of_unknown_containers_leave_the_interfaces_of_others() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent();
    // An uplink that is a veth, as nodes in containers have it, and one of somebody's container.
    node.ip(&["link", "add", "up0", "type", "veth", "peer", "name", "up1"]);
    let container = node.netns("c0").display().to_string();
    node.ip(&[
        "link", "add", "other0", "type", "veth", "peer", "name", "eth0", "netns", &container,
    ]);
    node.ip(&["link", "add", "califoreign", "type", "bridge"]);
    let own = node.netns("host").display().to_string();
    let at_home = [("CNI_NETNS", own.as_str()), ("CNI_IFNAME", "up0")];
    assert!(is_fine(node.call_as("DEL", "nobody", 0, &at_home)));
    assert!(has(&node, "host", "up0"), "the uplink of the node");
    assert!(is_fine(node.call("DEL", "never-added", 0, "")));
    assert!(has(&node, "c0", "eth0"), "the interface that somebody else made");
    assert!(is_fine(node.call("DEL", "foreign", 0, "")));
    assert!(has(&node, "host", "califoreign"), "a bridge that happens to have such a name");
    assert!(!is_fine(node.call_as("ADD", "foreign", 0, &[("CNI_IFNAME", "eth1")])));
    assert!(has(&node, "host", "califoreign"));
    assert_eq!(node.allocated(), []);
}

#[test]
fn an_add_that_is_repeated_looks_whether_everything_is_there() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent();
    node.must("ADD", "c1", 0);
    let first = node.interfaces();
    node.ip(&["link", "del", &first[0]]);
    node.must("ADD", "c1", 0);
    node.must("CHECK", "c1", 0);
    node.must("DEL", "c1", 0);
    node.assert_empty();
}

#[test]
fn a_pod_has_as_many_interfaces_as_it_was_given() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent();
    let pod = ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=multi");
    for interface in ["eth0", "net1"] {
        assert!(is_fine(node.call_as("ADD", "p1", 0, &[pod, ("CNI_IFNAME", interface)])));
    }
    for interface in ["eth0", "net1"] {
        assert!(has(&node, "c0", interface), "{interface}");
        let checked = node.call_as("CHECK", "p1", 0, &[pod, ("CNI_IFNAME", interface)]);
        let checked = checked.wait_with_output().unwrap();
        assert!(checked.status.success(), "{interface}: {checked:?}");
    }
    assert!(is_fine(node.call_as("DEL", "p1", 0, &[pod, ("CNI_IFNAME", "net1")])));
    assert!(is_fine(node.call_as("CHECK", "p1", 0, &[pod, ("CNI_IFNAME", "eth0")])));
    assert!(is_fine(node.call_as("DEL", "p1", 0, &[pod, ("CNI_IFNAME", "eth0")])));
    node.assert_empty();
}

#[test]
fn two_sandboxes_of_one_pod_at_once_leave_one_that_works() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(2);
    node.start_agent();
    let pod = [("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=db-0")];
    for round in 0..10 {
        let ids = [format!("a{round}"), format!("b{round}")];
        let calls = [node.call_as("ADD", &ids[0], 0, &pod), node.call_as("ADD", &ids[1], 1, &pod)];
        let were_fine = calls.map(is_fine);
        assert!(were_fine.iter().any(|it| *it), "round {round}");
        let interface = node.interfaces().pop().expect("an interface");
        let link: Value =
            serde_json::from_str(&node.ip(&["-j", "link", "show", &interface])).unwrap();
        let owner = link[0]["ifalias"].as_str().unwrap().split(' ').nth(1).unwrap().to_owned();
        let container = usize::from(owner == ids[1]);
        let checked = node.call_as("CHECK", &owner, container, &pod).wait_with_output().unwrap();
        assert!(checked.status.success(), "round {round}: {owner}: {checked:?}");
        for (container, id) in ids.iter().enumerate() {
            assert!(is_fine(node.call_as("DEL", id, container, &pod)));
        }
        node.assert_empty();
    }
}

#[test]
fn conversations_end_with_the_sandbox() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent();
    let added = node.must("ADD", "c1", 0);
    let address = added["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap();
    let words = ["-I", "-p", "udp", "-s", "192.0.2.1", "-d", address, "--sport", "7", "--dport"];
    let words: Vec<&str> = words.into_iter().chain(["9", "-t", "300"]).collect();
    let Ok(made) = node.inside("host", "conntrack", &words).output() else {
        eprintln!("skipped: conntrack is not installed");
        return;
    };
    assert!(made.status.success(), "{made:?}");
    let known = || {
        let listed = node.inside("host", "conntrack", &["-L"]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().contains(address)
    };
    assert!(known());
    node.must("DEL", "c1", 0);
    assert!(!known());
}

#[test]
fn a_pipe_in_the_place_of_a_namespace_is_refused_at_once() {
    if !may_run() {
        return;
    }
    let node = Node::new(1);
    let pipe = node.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let netns = [("CNI_NETNS", pipe.to_str().unwrap())];
    let done = node.call_as("ADD", "c1", 0, &netns).wait_with_output().unwrap();
    assert!(!done.status.success());
    let error: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(error["msg"].as_str().unwrap().contains("pipe"), "{error}");
}

#[test]
fn a_node_that_somebody_deleted_is_in_the_datastore_again() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(0);
    node.start_agent();
    let key = "/calico/resources/v3/projectcalico.org/nodes/n1";
    let address = || {
        let found = node.stored(key);
        found
            .first()
            .and_then(|(_, it)| it["spec"]["bgp"]["ipv4Address"].as_str().map(str::to_owned))
    };
    until("the node to be known", || address().is_some());
    node.delete_key(key);
    until("the node to be known again", || address().as_deref() == Some("172.30.0.1/24"));
}

#[test]
fn forwarding_that_somebody_switched_off_is_on_again() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent();
    node.must("ADD", "c1", 0);
    let switches = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
    for switch in switches {
        let off = node.inside("host", "sysctl", &["-qw", &format!("{switch}=0")]).status();
        assert!(off.unwrap().success());
    }
    let is_on = |switch: &str| {
        let read = node.inside("host", "sysctl", &["-n", switch]).output().unwrap();
        read.stdout.starts_with(b"1")
    };
    until("packets to be passed on", || switches.into_iter().all(is_on));
    let events = std::fs::read_to_string(node.path("state/events.jsonl")).unwrap();
    assert!(events.contains("forwarding of packets was off"), "{events}");
}

#[test]
fn a_second_agent_on_the_same_state_is_refused() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent();
    let (state, run) = (node.path("state"), node.path("run2"));
    let words = ["agent", "--node", "n1", "--state-dir", state.to_str().unwrap()];
    let words = [&words[..], &["--run-dir", run.to_str().unwrap()]].concat();
    let done = node.margay(&words).output().unwrap();
    assert!(!done.status.success());
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    let holder = format!("another agent runs here: it holds {}", state.display());
    assert!(told.contains(&holder), "{told}");
    node.must("ADD", "first", 0);
    node.must("DEL", "first", 0);
}
