//! What a container may not do, whoever it is.

use std::net::{Ipv6Addr, SocketAddrV6};

use kernel::Netns;
use rustix::net::{self, AddressFamily, SendFlags, SocketType, ipproto};
use serde_json::Value;

use crate::node::{Node, may_run, until};

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

/// Sends an ICMPv6 message from inside a container to everybody on its link.
fn send(node: &Node, netns: &str, message: &[u8]) {
    let place = Netns::open(node.path("netns").join(netns)).unwrap();
    let sent = place.enter(|| {
        let raw = net::socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6))?;
        let scope = net::netdevice::name_to_index(&raw, "eth0")?;
        let everybody = SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, scope);
        net::sendto(&raw, message, SendFlags::empty(), &everybody)
    });
    assert_eq!(sent.unwrap().unwrap(), message.len());
}

/// How many packets a rule with this comment has counted.
fn counted(node: &Node, family: &str, chain: &str, comment: &str) -> u64 {
    let listed = node.inside("host", "nft", &["list", "chain", family, "margay", chain]).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let rule = listed.lines().find(|line| line.contains(&format!("\"{comment}\"")));
    let rule = rule.unwrap_or_else(|| panic!("{comment}: {listed}"));
    let mut words = rule.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).unwrap().parse().unwrap()
}

#[test]
fn nobody_speaks_for_routers_gateways_and_other_addresses() {
    if !may_run() {
        return;
    }
    let node = Node::new(2);
    let own = addresses(&node.must("ADD", "first", 0));
    let other = addresses(&node.must("ADD", "second", 1));
    let advertisement = |target: &str| {
        let target: Ipv6Addr = target.parse().unwrap();
        [&[136, 0, 0, 0, 0x20, 0, 0, 0][..], &target.octets()].concat()
    };
    let router = [&[134, 0, 0, 0, 64, 0, 7, 8][..], &[0; 8]].concat();
    let foreign = "neighbour advertisement for an address that is not the endpoint's";
    let gateway = "neighbour advertisement for the gateway";
    for (message, chain, comment) in [
        (router, "from-pod", "router advertisement"),
        (vec![137; 40], "from-pod", "redirect"),
        (advertisement(&other[1]), "spoken-for", foreign),
        (advertisement("fe80::ecee:eeff:feee:eeee"), "from-pod", gateway),
    ] {
        let before = counted(&node, "inet", chain, comment);
        send(&node, "c0", &message);
        until(comment, || counted(&node, "inet", chain, comment) > before);
    }
    let before = counted(&node, "inet", "spoken-for", foreign);
    send(&node, "c0", &advertisement(&own[1]));
    assert!(
        node.inside("c0", "ping", &["-c1", "-W5", &other[1]]).output().unwrap().status.success()
    );
    assert_eq!(counted(&node, "inet", "spoken-for", foreign), before, "its own it may speak for");

    // A kernel announces its addresses when its hardware address changes.
    let comment = "ARP for an address that is not the endpoint's";
    let before = counted(&node, "arp", "neighbours", comment);
    let run = |words: &[&str]| {
        let done = node.inside("c0", words[0], &words[1..]).output().unwrap();
        assert!(done.status.success(), "{words:?}: {done:?}");
    };
    run(&["sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/eth0/arp_notify"]);
    run(&["ip", "addr", "add", "169.254.1.1/32", "dev", "eth0"]);
    run(&["ip", "link", "set", "eth0", "address", "02:00:00:00:00:01"]);
    until(comment, || counted(&node, "arp", "neighbours", comment) > before);
    let neighbours = node.ip(&["neigh", "show", "169.254.1.1"]);
    assert_eq!(neighbours, "", "and the host believes nothing of it");
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
fn so_they_have_when_they_come_at_once() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(4);
    node.start_agent();
    let ids = ["bbbbbbbbbbbbb1", "bbbbbbbbbbbbb2", "bbbbbbbbbbbbb3", "bbbbbbbbbbbbb4"];
    let calls: Vec<_> = ids.iter().enumerate().map(|(n, id)| node.call("ADD", id, n, "")).collect();
    for call in calls {
        let added = call.wait_with_output().unwrap();
        assert!(added.status.success(), "{added:?}");
    }
    assert_eq!(node.interfaces().len(), 4);
    for (container, id) in ids.iter().enumerate() {
        node.must("CHECK", id, container);
        node.must("DEL", id, container);
    }
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

/// What the host offers to itself alone stays that, also where containers may talk to the host.
#[test]
fn the_hosts_loopback_is_not_for_containers() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent();
    node.must("ADD", "first", 0);
    let config = serde_json::json!({
        "apiVersion": "projectcalico.org/v3", "kind": "FelixConfiguration",
        "metadata": { "name": "default", "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6" },
        "spec": { "defaultEndpointToHostAction": "Return" },
    });
    let key = "/calico/resources/v3/projectcalico.org/felixconfigurations/default".to_owned();
    let op = store::Op::Put { key, value: config.to_string().into_bytes() };
    node.store().commit(store::Txn { compares: Vec::new(), ops: vec![op] }).unwrap();
    node.ip(&["addr", "add", "192.0.2.77/32", "dev", "lo"]);
    node.ip(&["link", "set", "lo", "up"]);
    let ping = |address: &str| {
        let mut ping = node.inside("c0", "ping", &["-n", "-c1", "-W1", address]);
        ping.output().unwrap().status.success()
    };
    until("containers may talk to the host", || ping("192.0.2.77"));
    // Without a loopback of its own, such packets leave it.
    let own = "ip link set lo down; echo 1 > /proc/sys/net/ipv4/conf/eth0/route_localnet";
    assert!(node.inside("c0", "sh", &["-c", own]).status().unwrap().success());
    assert!(!ping("127.0.0.1") && !ping("127.1.2.3"));
    until("the drop is named", || {
        let drops = node.margay(&["drops"]).output().unwrap();
        String::from_utf8(drops.stdout).unwrap().contains("loopback address of the host")
    });
}

/// Who sends a lot that is denied fills no log: what others are denied is told too, and how much
/// was not.
#[test]
fn a_flood_of_one_container_hides_no_drops_of_others() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(3);
    node.start_agent();
    let address = |id: &str, container| {
        let added = node.must("ADD", id, container);
        let address = added["ips"][0]["address"].as_str().unwrap().to_owned();
        address.split('/').next().unwrap().to_owned()
    };
    let [target, flooder, other] =
        [("target", 0), ("flooder", 1), ("other", 2)].map(|(id, at)| address(id, at));
    let closed = serde_json::json!({
        "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
        "metadata": { "name": "closed", "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf7" },
        "spec": { "selector": "all()", "types": ["Ingress"], "tier": "default" },
    });
    let key = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/closed".to_owned();
    let op = store::Op::Put { key, value: closed.to_string().into_bytes() };
    node.store().commit(store::Txn { compares: Vec::new(), ops: vec![op] }).unwrap();
    let ping = |from: &str, words: &[&str]| {
        let words = [words, &["-n", "-q", "-W1", &target]].concat();
        node.inside(from, "ping", &words).output().unwrap().status.success()
    };
    until("the target is closed", || !ping("c2", &["-c1"]));
    let drops = || -> serde_json::Value {
        let said = node.margay(&["drops", "-o", "json"]).output().unwrap();
        serde_json::from_slice(&said.stdout).unwrap()
    };
    let n_of = |drops: &serde_json::Value, source: &str| -> u64 {
        let all = drops["drops"].as_array().unwrap().iter();
        let of = all.filter(|it| it["source"]["address"] == source);
        of.map(|it| it["count"].as_u64().unwrap()).sum()
    };
    ping("c1", &["-c1000", "-l1000"]);
    until("the flood is told of", || n_of(&drops(), &flooder) >= 20);
    let said = drops();
    let (told, untold) = (n_of(&said, &flooder), said["unrecorded"][0]["count"].as_u64().unwrap());
    assert!((20..500).contains(&told), "{said}");
    assert_eq!(told + untold, 1000, "every packet is told of or counted: {said}");
    let text = node.margay(&["drops"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(&format!("and {untold} more ")), "{text}");

    // One packet in the midst of a flood: a rate that all share would be used up.
    let before = n_of(&drops(), &other);
    let flood = |_| {
        let words = ["-n", "-q", "-i0.001", &target];
        let mut ping = node.inside("c1", "ping", &words);
        ping.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut floods: Vec<_> = (0..10).map(flood).collect();
    let n_untold = || drops()["unrecorded"][0]["count"].as_u64().unwrap();
    until("the flood is on", || n_untold() > untold + 500);
    ping("c2", &["-c1"]);
    let mut is_told = false;
    for _ in 0..100 {
        is_told = n_of(&drops(), &other) > before;
        if is_told {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let is_on = floods.iter_mut().all(|it| it.try_wait().unwrap().is_none());
    for mut it in floods {
        it.kill().unwrap();
        it.wait().unwrap();
    }
    assert!(is_on, "the flood outlasts the question");
    assert!(is_told, "{}", drops());
}
