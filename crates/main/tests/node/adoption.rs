//! Sandboxes that live and are in no journal: as Calico leaves them, and after a journal was lost.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::node::{Node, may_run, until};
use crate::outage::{Ping, address, status};

const POD: [(&str, &str); 1] =
    [("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0")];
const ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";

/// Leaves the sandboxes of a node as Calico would: no record of ours, no mark on their interfaces.
fn as_calico_leaves_it(node: &mut Node) {
    node.kill_agent(true);
    for file in journal_files(node) {
        std::fs::remove_file(file).unwrap();
    }
    for interface in node.interfaces() {
        node.ip(&["link", "set", &interface, "alias", ""]);
    }
    // Calico's routes to sandboxes have the protocol that `ip` gives.
    for line in node.ip(&["-4", "route"]).lines().filter(|line| line.contains(" dev cali")) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let number = words.iter().position(|word| *word == "proto").unwrap() + 1;
        words[number] = "boot";
        node.ip(&[&["route", "replace"], words.as_slice()].concat());
    }
}

fn journal_files(node: &Node) -> Vec<PathBuf> {
    let files = std::fs::read_dir(node.path("state/sandboxes")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|it| it == "json")).collect()
}

fn events(node: &Node) -> String {
    std::fs::read_to_string(node.path("state/events.jsonl")).unwrap_or_default()
}

/// Two programs that see to one packet filter take turns until both know of a sandbox.
fn until_reached(node: &Node, address: &str) {
    until("the sandbox is reached", || {
        let mut ping = node.inside("host", "ping", &["-n", "-c1", "-W1", address]);
        ping.output().unwrap().status.success()
    });
}

fn delete_pod(node: &Node, container: usize) {
    let done = node.call_as("DEL", "pod1", container, &POD).wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn reconcile(node: &Node, words: &[&str]) -> (Option<i32>, String) {
    until("the agent has read everything", || status(node)["store"]["isConnected"] == true);
    let words = [&["reconcile"], words].concat();
    let done = node.margay(&words).output().unwrap();
    let told = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8(told).unwrap())
}

#[test]
fn sandboxes_of_others_are_taken_over_without_a_lost_packet() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(3);
    node.start_agent();
    let first = node.must("ADD", "plain", 0);
    let second = node.call_as("ADD", "pod1", 1, &POD).wait_with_output().unwrap();
    let second: Value = serde_json::from_slice(&second.stdout).unwrap();
    node.must("ADD", "forgotten", 2);
    let ping = Ping::start(&node, "c0", &address(&second));
    as_calico_leaves_it(&mut node);
    // Of one nothing is left but its interface and who holds its address.
    let endpoints = node.stored(ENDPOINTS);
    let is_its = |(_, it): &&(String, Value)| it["spec"]["containerID"] == "forgotten";
    node.delete_key(&endpoints.iter().find(is_its).unwrap().0);

    node.start_agent();
    until("all are in the journal", || node.journal().len() == 3);
    until("the lost endpoint is written again", || node.stored(ENDPOINTS).len() == 3);
    ping.assert_none_lost();
    until("nothing stands in the way", || status(&node)["status"] == "fine");
    let told = events(&node);
    assert_eq!(told.matches("\"adopted\"").count(), 3, "{told}");
    assert!(told.contains("net1.forgotten holds 10.65.0."), "{told}");
    node.must("CHECK", "plain", 0);
    node.must("CHECK", "forgotten", 2);
    let again = node.must("ADD", "plain", 0);
    assert_eq!(address(&again), address(&first));
    // They are ours now: what is missing of them comes back, and they leave as others do.
    node.delete_key(&endpoints[0].0);
    until("the endpoint is back", || node.stored(ENDPOINTS).len() == 3);
    node.must("DEL", "plain", 0);
    delete_pod(&node, 1);
    node.must("DEL", "forgotten", 2);
    node.assert_empty();
}

#[test]
fn a_takeover_that_ends_anywhere_is_made_again() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent();
    for fault in ["before-name", "after-name", "before-adopt", "after-adopt"] {
        node.must("ADD", "c1", 0);
        as_calico_leaves_it(&mut node);
        node.fault = fault;
        node.start_agent();
        let log = || std::fs::read_to_string(node.path("log")).unwrap_or_default();
        until("the agent meets its fault", || log().contains("the dataplane ended (signal: 6"));
        node.kill_agent(true);
        std::fs::remove_file(node.path("log")).unwrap();
        node.fault = "";
        node.start_agent();
        until("it is in the journal", || node.journal().len() == 1);
        node.must("CHECK", "c1", 0);
        assert_eq!(node.allocated().len(), 2, "{fault}");
        node.must("DEL", "c1", 0);
        node.assert_empty();
    }
}

/// Spoils a file somehow.
type Damage = fn(&Path);

#[test]
fn a_spoilt_journal_is_made_anew_from_the_kernel_and_the_datastore() {
    if !may_run() {
        return;
    }
    let damages: [(&str, Damage); 5] = [
        ("changed", |file| {
            let text = std::fs::read_to_string(file).unwrap();
            std::fs::write(file, text.replace("\"node\":\"n1\"", "\"node\":\"n9\"")).unwrap();
        }),
        ("cut off", |file| {
            let text = std::fs::read(file).unwrap();
            std::fs::write(file, &text[..text.len() / 2]).unwrap();
        }),
        ("empty", |file| std::fs::write(file, "").unwrap()),
        ("no text", |file| std::fs::write(file, [0xff, 0, 7]).unwrap()),
        ("gone", |file| std::fs::remove_file(file).unwrap()),
    ];
    let mut node = Node::new(2);
    node.start_agent();
    let first = node.must("ADD", "c1", 0);
    node.must("ADD", "c2", 1);
    let mut n_adopted = 0;
    for (damage, spoil) in damages {
        let ping = Ping::start(&node, "c1", &address(&first));
        node.kill_agent(true);
        let files = journal_files(&node);
        assert_eq!(files.len(), 2, "{damage}");
        files.iter().for_each(|file| spoil(file));
        node.start_agent();
        n_adopted += 2;
        until("both are taken over", || {
            events(&node).matches("\"adopted\"").count() == n_adopted && node.journal().len() == 2
        });
        ping.assert_none_lost();
        node.must("CHECK", "c1", 0);
    }
    let told = events(&node);
    assert!(told.contains("journal file put aside"), "{told}");
    node.must("DEL", "c1", 0);
    node.must("DEL", "c2", 1);
    node.assert_empty();
}

#[test]
fn what_the_witnesses_disagree_about_is_told_and_settled() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(4);
    node.start_agent_with(&["--join-every", "0"]);
    let first = node.must("ADD", "kept", 0);
    node.must("ADD", "ghost", 1);
    let (code, told) = reconcile(&node, &[]);
    assert_eq!(
        (code, told.as_str()),
        (Some(0), "✓ datastore, kernel, journal and containers agree\n")
    );

    node.kill_agent(true);
    let file = journal_files(&node)
        .into_iter()
        .find(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains("\"ghost\"")));
    std::fs::remove_file(file.unwrap()).unwrap();
    node.ip(&["link", "del", "calighost"]);
    // An interface of nobody that leads to an empty place, and one to a place where somebody is.
    for (name, container) in [("caliorphan", "c2"), ("calibusy", "c3")] {
        let netns = node.netns(container).display().to_string();
        let pair = ["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", &netns];
        node.ip(&pair);
    }
    let mut somebody = node.inside("c3", "sleep", &["600"]).spawn().unwrap();
    node.start_agent_with(&["--join-every", "0"]);
    let (code, plan) = reconcile(&node, &["--plan"]);
    assert_eq!(code, Some(1), "{plan}");
    for line in [
        "endpoint default/n1-cni-ghost-eth0 has no sandbox",
        "interface caliorphan is nobody's",
        "to do: remove it (no endpoint names it, and no address is held for such a one; no process",
        "interface calibusy is nobody's",
        "fix: ip link show calibusy",
        "2 to do, 1 left to a person",
        "fix: margay reconcile",
    ] {
        assert!(plan.contains(line), "{line}: {plan}");
    }
    assert_eq!(node.stored(ENDPOINTS).len(), 2, "a plan changes nothing");
    let status = node.margay(&["status"]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("interface calibusy is nobody's: no endpoint names it"), "{status}");

    let (code, told) = reconcile(&node, &[]);
    assert_eq!(code, Some(1), "one is left to a person: {told}");
    assert!(told.contains("2 settled, 1 left to a person"), "{told}");
    somebody.kill().unwrap();
    somebody.wait().unwrap();
    let (code, told) = reconcile(&node, &[]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(node.interfaces(), ["calikept"]);
    assert_eq!(node.stored(ENDPOINTS).len(), 1);
    assert_eq!(node.allocated().len(), 2);
    let told = events(&node);
    assert!(told.contains("interface caliorphan: nobody's by the journal and the datastore"));
    assert_eq!(address(&node.must("ADD", "kept", 0)), address(&first));
    node.must("DEL", "kept", 0);
    node.assert_empty();
}

#[test]
fn addresses_of_nobody_go_by_the_list_of_the_runtime() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(2);
    node.start_agent_with(&["--join-every", "0"]);
    for (container, id) in ["kept", "leaked"].into_iter().enumerate() {
        node.must("ADD", id, container);
    }
    node.kill_agent(true);
    let file = journal_files(&node)
        .into_iter()
        .find(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains("\"leaked\"")));
    std::fs::remove_file(file.unwrap()).unwrap();
    node.ip(&["link", "del", "calileaked"]);
    let endpoints = node.stored(ENDPOINTS);
    let is_its = |(_, it): &&(String, Value)| it["spec"]["containerID"] == "leaked";
    node.delete_key(&endpoints.iter().find(is_its).unwrap().0);
    node.start_agent_with(&["--join-every", "0"]);
    let (code, told) = reconcile(&node, &[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("of net1.leaked has no endpoint, interface or route"), "{told}");
    assert_eq!(node.allocated().len(), 4, "{told}");

    let mut configuration = node.configuration();
    configuration["cni.dev/valid-attachments"] =
        serde_json::json!([{ "containerID": "kept", "ifname": "eth0" }]);
    let done = node.call_with("GC", "", 0, &configuration).wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(node.allocated().len(), 2);
    node.must("CHECK", "kept", 0);
    assert!(events(&node).contains("the runtime does not list its container"));
    node.must("DEL", "kept", 0);
    node.assert_empty();
}

fn put(node: &Node, key: &str, value: &Value) {
    let op = store::Op::Put { key: key.to_owned(), value: value.to_string().into() };
    node.store().commit(store::Txn { compares: Vec::new(), ops: vec![op] }).unwrap();
}

/// The key and the content of the endpoint of a container.
fn endpoint_of(node: &Node, container: &str) -> (String, Value) {
    let endpoints = node.stored(ENDPOINTS);
    endpoints.into_iter().find(|(_, it)| it["spec"]["containerID"] == container).unwrap()
}

fn n_held(node: &Node, container: &str) -> usize {
    let handle = format!("net1.{container}");
    node.allocated().iter().filter(|(_, held)| *held == handle).count()
}

#[test]
fn a_deletion_takes_nothing_from_another_sandbox_that_no_journal_has() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(3);
    node.start_agent_with(&["--join-every", "0"]);
    until("the agent has read everything", || status(&node)["store"]["isConnected"] == true);
    // Two sandboxes of one pod, made after the agent has looked, by somebody else.
    node.call_beside("ADD", "old", 0, &POD);
    let new = node.call_beside("ADD", "new", 1, &POD);
    until_reached(&node, &address(&new));
    let ping = Ping::start(&node, "host", &address(&new));
    for netns in ["/gone", ""] {
        let late = [POD[0], ("CNI_NETNS", netns)];
        let done = node.call_as("DEL", "old", 0, &late).wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    assert_eq!((n_held(&node, "old"), n_held(&node, "new")), (0, 2));
    assert_eq!(endpoint_of(&node, "new").1["spec"]["pod"], "web-0");
    ping.assert_none_lost();
    // Another interface of a container that has one.
    let plain = node.call_beside("ADD", "plain", 2, &[]);
    until_reached(&node, &address(&plain));
    let second = Ping::start(&node, "host", &address(&plain));
    let other = [("CNI_IFNAME", "eth1")];
    let done = node.call_as("DEL", "plain", 2, &other).wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(n_held(&node, "plain"), 2);
    assert_eq!(node.interfaces().len(), 2);
    second.assert_none_lost();
    node.must("DEL", "plain", 2);
    let done = node.call_as("DEL", "new", 1, &POD).wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    node.assert_empty();
}

#[test]
fn what_lives_is_not_taken_for_anothers_ghost() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(3);
    node.start_agent_with(&["--join-every", "0"]);
    let first = node.must("ADD", "live", 0);
    // An endpoint that nobody has, with the container and the addresses of one that lives.
    let (key, mut copy) = endpoint_of(&node, "live");
    copy["metadata"]["name"] = "n1-cni-ghost-eth0".into();
    copy["spec"]["interfaceName"] = "calighost".into();
    put(&node, &key.replace("n1-cni-live-eth0", "n1-cni-ghost-eth0"), &copy);
    until("the ghost is told", || reconcile(&node, &["--plan"]).1.contains("n1-cni-ghost-eth0"));
    let (_, told) = reconcile(&node, &[]);
    assert!(told.contains("1 settled"), "{told}");
    assert_eq!((node.stored(ENDPOINTS).len(), n_held(&node, "live")), (1, 2));

    // Whatever the records say, an address that leads to a sandbox is nobody else's.
    let block = node.stored("/calico/ipam/v2/assignment/ipv4/").remove(0);
    node.pause_dataplane(true);
    let mut free = block.1.clone();
    free["allocations"] = vec![Value::Null; 64].into();
    free["unallocated"] = (0..64).collect::<Vec<u8>>().into();
    put(&node, &block.0, &free);
    node.pause_dataplane(false);
    let wish = format!("IP={}", address(&first));
    let asked = node.call_as("ADD", "greedy", 1, &[("CNI_ARGS", &wish)]);
    let asked = asked.wait_with_output().unwrap();
    assert!(!asked.status.success(), "{asked:?}");
    until("its address is its own again", || n_held(&node, "live") == 2);

    // An interface that the records contradict about is left to a person.
    node.call_beside("ADD", "odd", 2, &[]);
    let (key, mut endpoint) = endpoint_of(&node, "odd");
    endpoint["spec"]["ipNetworks"] = serde_json::json!(["10.65.0.250/32"]);
    put(&node, &key, &endpoint);
    until("it is told", || reconcile(&node, &["--plan"]).1.contains("inside there is"));
    let (code, told) = reconcile(&node, &[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(node.interfaces().contains(&"caliodd".to_owned()), "{told}");
    // Nor does a list of the runtime let go what is inside of it.
    let mut configuration = node.configuration();
    for (entry, is_refused) in [
        (serde_json::json!({ "containerID": "live" }), true),
        (serde_json::json!({ "ifname": "eth0" }), true),
        (serde_json::json!({ "containerID": "live", "ifname": "eth0" }), false),
    ] {
        configuration["cni.dev/valid-attachments"] = serde_json::json!([entry]);
        let done = node.call_with("GC", "", 0, &configuration).wait_with_output().unwrap();
        assert_eq!(done.status.success(), !is_refused, "{done:?}");
    }
    assert_eq!((n_held(&node, "live"), n_held(&node, "odd")), (2, 2));
}

#[test]
fn an_endpoint_that_says_what_is_not_so_costs_its_sandbox_nothing() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(2);
    node.start_agent();
    let first = node.must("ADD", "c1", 0);
    node.must("ADD", "c2", 1);
    let ping = Ping::start(&node, "host", &address(&first));
    let (key, endpoint) = endpoint_of(&node, "c1");
    for (field, value) in [("node", "n2"), ("interfaceName", "eth0"), ("interfaceName", "calic2")] {
        let mut wrong = endpoint.clone();
        wrong["spec"][field] = value.into();
        put(&node, &key, &wrong);
        let said = || status(&node)["findings"].to_string();
        until("it is named", || said().contains("its sandbox lives here on calic1"));
    }
    put(&node, &key, &endpoint);
    until("all is well", || status(&node)["status"] == "fine");
    ping.assert_none_lost();
    node.must("CHECK", "c1", 0);
}

#[test]
fn what_a_sandbox_holds_beside_its_addresses_goes() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent_with(&["--join-every", "1"]);
    node.must("ADD", "c1", 0);
    // As a request leaves it that arrives after it was given up.
    let (key, mut block) = node.stored("/calico/ipam/v2/assignment/ipv4/").remove(0);
    let held = block["allocations"].as_array().unwrap().iter().position(|it| !it.is_null());
    let index = block["allocations"][held.unwrap()].clone();
    let free = block["unallocated"].as_array_mut().unwrap().pop().unwrap();
    block["allocations"][usize::try_from(free.as_u64().unwrap()).unwrap()] = index;
    let handle = "/calico/ipam/v2/handle/net1.c1";
    let (_, mut counted) = node.stored(handle).remove(0);
    let cidr = block["cidr"].as_str().unwrap().to_owned();
    counted["block"][&cidr] = 2.into();
    put(&node, handle, &counted);
    put(&node, &key, &block);
    until("it is let go", || n_held(&node, "c1") == 2 && events(&node).contains("has others"));
    node.must("CHECK", "c1", 0);
    node.must("DEL", "c1", 0);
    node.assert_empty();
}

#[test]
fn whoever_replaces_a_sandbox_of_ours_keeps_its_interface() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(3);
    node.start_agent_with(&["--join-every", "0"]);
    // Ours is replaced by another program's, which makes an interface of the same name.
    let done = node.call_as("ADD", "old", 0, &POD).wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let new = node.call_beside("ADD", "new", 1, &POD);
    until_reached(&node, &address(&new));
    let ping = Ping::start(&node, "host", &address(&new));
    let done = node.call_as("DEL", "old", 0, &POD).wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!((n_held(&node, "old"), n_held(&node, "new")), (0, 2));
    let (code, told) = reconcile(&node, &[]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(node.journal().len(), 1, "the new one is known now");
    ping.assert_none_lost();

    // Who calls does not have to know the pod: the endpoint does.
    let done = node.call_as("DEL", "new", 1, &[]).wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    node.assert_empty();
    node.call_beside("ADD", "other", 2, &POD);
    let done = node.call_as("DEL", "other", 2, &[]).wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    node.assert_empty();
}

#[test]
fn an_address_inside_of_what_nobody_recorded_is_not_let_go() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(2);
    node.start_agent_with(&["--join-every", "0"]);
    node.must("ADD", "c1", 0);
    let given = address(&node.call_beside("ADD", "odd", 1, &[]));
    node.delete_key(&endpoint_of(&node, "odd").0);
    let margay = |words: &[&str]| {
        let done = node.margay(words).output().unwrap();
        let told = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8(told).unwrap())
    };
    let (code, told) = margay(&["ipam", "release", "--ip", &given, "--yes"]);
    assert_eq!(code, Some(2), "{told}");
    margay(&["ipam", "repair", "--yes"]);
    assert_eq!(n_held(&node, "odd"), 2);
    let wish = format!("IP={given}");
    let asked = node.call_as("ADD", "greedy", 0, &[("CNI_ARGS", &wish), ("CNI_IFNAME", "eth9")]);
    assert!(!asked.wait_with_output().unwrap().status.success());
}
