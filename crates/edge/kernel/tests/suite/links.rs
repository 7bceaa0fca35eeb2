//! Interfaces: made, changed, listed, removed, and vanishing meanwhile.

use kernel::{
    Errno, Error, Event, LinkChange, Mac, Monitor, Netlink, Netns, NewLink, NewLinkKind, Operation,
    Remedy, Removals, TEMPORARY_NAME_PREFIX, Topic, VethPeer, Vxlan,
};
use std::time::Duration;

use crate::world::{name, world};

const HOST_MAC: Mac = Mac([0xee; 6]);

fn pod_veth(pod: &Netns) -> NewLink {
    let mut peer = VethPeer::new(name("eth0"), Some(pod.clone()));
    peer.mtu = Some(1440);
    peer.mac = Some(Mac([2, 0, 0, 0, 0, 1]));
    let mut link = NewLink::new(name("cali12345"), NewLinkKind::Veth(peer));
    link.alias = Some("margay sandbox 0123 eth0".into());
    link.mac = Some(HOST_MAC);
    link.mtu = Some(1440);
    link.n_queues = Some(2);
    link.is_up = true;
    link
}

#[test]
fn a_veth_is_born_with_its_peer_in_the_pod() {
    let (Some(mut host), Some(mut pod)) = (world(), world()) else { return };
    let made = host.netlink.create(&pod_veth(&pod.netns)).unwrap();
    let seen = &host.json("ip", "-j -d link show dev cali12345")[0];
    assert_eq!(seen["address"], "ee:ee:ee:ee:ee:ee");
    assert_eq!(seen["mtu"], 1440);
    assert_eq!(seen["ifalias"], "margay sandbox 0123 eth0");
    assert_eq!(seen["linkinfo"]["info_kind"], "veth");
    assert_eq!(seen["num_tx_queues"], 2);
    assert_eq!(seen["num_rx_queues"], 2);
    assert_eq!(seen["ifindex"], made.index.0);
    assert!(seen["flags"].to_string().contains("\"UP\""));

    let inside = pod.netlink.link_by_name(&name("eth0")).unwrap().unwrap();
    assert_eq!((inside.mtu, inside.mac), (1440, Some(Mac([2, 0, 0, 0, 0, 1]))));
    assert_eq!(made.peer, Some(inside.index));
    assert_eq!(made.peer_netns_id, host.netlink.netns_id(&pod.netns).unwrap());
    assert!(made.peer_netns_id.is_some());
    assert_eq!(made.alias.as_deref(), Some("margay sandbox 0123 eth0"));
    assert_eq!((made.kind.as_deref(), made.n_tx_queues), (Some("veth"), 2));
    assert!(made.is_up && !made.is_running && !made.is_loopback);
}

#[test]
fn no_event_shows_the_name_without_the_alias() {
    let (Some(mut host), Some(pod)) = (world(), world()) else { return };
    let mut monitor = Monitor::open(Some(&host.netns), &[Topic::Links]).unwrap();
    host.netlink.create(&pod_veth(&pod.netns)).unwrap();
    let mut n_seen = 0;
    while let Some(event) = monitor.next(Duration::ZERO).unwrap() {
        let Event::Link(link) = event else { panic!("{event:?}") };
        if link.name == name("cali12345") {
            n_seen += 1;
            assert!(link.alias.is_some());
        } else {
            assert!(link.name.as_str().starts_with(TEMPORARY_NAME_PREFIX), "{link:?}");
        }
    }
    assert!(n_seen > 0);
}

#[test]
fn interfaces_removed_at_once_are_all_gone_and_others_stay() {
    const N: usize = 12;
    let (Some(mut host), Some(mut pod)) = (world(), world()) else { return };
    let stays = host.veth("stays", "far", None);
    let links: Vec<_> = (0..N)
        .map(|n| host.veth(&format!("cali{n}"), &format!("eth{n}"), Some(&pod.netns)).index)
        .collect();
    let removals = Removals::new(&host.netns).unwrap();
    let start = std::sync::Barrier::new(N);
    std::thread::scope(|scope| {
        for link in &links {
            scope.spawn(|| {
                start.wait();
                removals.remove(*link).unwrap();
                let mut netlink = Netlink::in_netns(&host.netns).unwrap();
                assert_eq!(netlink.link_by_index(*link).unwrap(), None);
            });
        }
    });
    assert_eq!(pod.netlink.links().unwrap().len(), 1, "the other ends are gone too");
    assert!(host.netlink.link_by_index(stays.index).unwrap().is_some());
    removals.remove(links[0]).unwrap();
    removals.remove(stays.index).unwrap();
    assert_eq!(host.netlink.links().unwrap().len(), 1);
}

#[test]
fn a_name_that_is_taken_leaves_nothing_behind() {
    let (Some(mut host), Some(mut pod)) = (world(), world()) else { return };
    host.veth("cali12345", "other", None);
    let before = host.netlink.links().unwrap().len();
    let error = host.netlink.create(&pod_veth(&pod.netns)).unwrap_err();
    assert!(error.already_exists(), "{error}");
    assert!(error.to_string().starts_with("make the interface cali12345: "), "{error}");
    assert_eq!(host.netlink.links().unwrap().len(), before);
    assert_eq!(pod.netlink.links().unwrap().len(), 1);
}

#[test]
fn an_interface_changes_in_every_way() {
    let (Some(mut host), Some(mut pod)) = (world(), world()) else { return };
    let bridge = host.netlink.create(&NewLink::new(name("br0"), NewLinkKind::Bridge)).unwrap();
    let link = host.veth("a", "b", None);
    let change = LinkChange {
        alias: Some("mine".into()),
        mac: Some(Mac([2, 0, 0, 0, 0, 9])),
        mtu: Some(1300),
        master: Some(Some(bridge.index)),
        is_up: Some(false),
        ..LinkChange::default()
    };
    host.netlink.apply(&Operation::ChangeLink(link.index, change)).unwrap();
    let seen = &host.json("ip", "-j link show dev a")[0];
    assert_eq!(seen["ifalias"], "mine");
    assert_eq!(seen["address"], "02:00:00:00:00:09");
    assert_eq!(seen["mtu"], 1300);
    assert_eq!(seen["master"], "br0");
    assert!(!seen["flags"].to_string().contains("\"UP\""));

    let change = LinkChange {
        name: Some(name("moved")),
        master: Some(None),
        netns: Some(pod.netns.clone()),
        ..LinkChange::default()
    };
    host.netlink.apply(&Operation::ChangeLink(link.index, change)).unwrap();
    assert_eq!(host.netlink.link_by_name(&name("a")).unwrap(), None);
    let moved = pod.netlink.link_by_name(&name("moved")).unwrap().unwrap();
    assert_eq!((moved.master, moved.mtu), (None, 1300));
    pod.netlink.apply(&Operation::DeleteLink(moved.index)).unwrap();
    assert_eq!(host.netlink.link_by_name(&name("b")).unwrap(), None);
}

#[test]
fn a_vxlan_device_forwards_by_table_only() {
    let Some(mut host) = world() else { return };
    let vxlan = Vxlan { vni: 4096, port: 4789, local: "192.0.2.1".parse().unwrap(), device: None };
    let mut link = NewLink::new(name("vxlan.calico"), NewLinkKind::Vxlan(vxlan));
    link.is_up = true;
    let link = host.netlink.create(&link).unwrap();
    let seen = &host.json("ip", "-j -d link show dev vxlan.calico")[0]["linkinfo"]["info_data"];
    assert_eq!((&seen["id"], &seen["port"]), (&4096.into(), &4789.into()));
    assert_eq!(seen["local"], "192.0.2.1");
    assert_ne!(seen["learning"], true);
    let entry = kernel::Forwarding {
        link: link.index,
        mac: Mac([0x66, 0, 0, 0, 0, 2]),
        remote: "192.0.2.2".parse().unwrap(),
    };
    host.netlink.apply(&Operation::ReplaceForwarding(entry)).unwrap();
    assert_eq!(host.netlink.forwarding(link.index).unwrap(), [entry]);
    let seen = host.run("bridge", "fdb show dev vxlan.calico");
    assert!(seen.contains("66:00:00:00:00:02 dst 192.0.2.2 self permanent"), "{seen}");
    host.netlink.apply(&Operation::DeleteForwarding(entry)).unwrap();
    assert_eq!(host.netlink.forwarding(link.index).unwrap(), []);
}

#[test]
fn an_interface_that_vanished_is_said_to_be_gone() {
    let Some(mut host) = world() else { return };
    let link = host.veth("a", "b", None);
    let listed = host.netlink.links().unwrap();
    assert_eq!(listed.len(), 3);
    host.run("ip", "link delete dev a");
    let change = LinkChange::up();
    let error = host.netlink.apply(&Operation::ChangeLink(link.index, change)).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert_eq!(error.remedy(), Remedy::Resync);
    assert_eq!(error.errno(), Some(Errno::NODEV));
    let error = host.netlink.apply(&Operation::DeleteLink(link.index)).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert_eq!(host.netlink.link_by_index(link.index).unwrap(), None);
    assert_eq!(host.netlink.addresses(Some(link.index)).unwrap(), []);
}

#[test]
fn a_namespace_that_ended_takes_its_peer_along() {
    let (Some(mut host), Some(pod)) = (world(), world()) else { return };
    let mut monitor = Monitor::open(Some(&host.netns), &[Topic::Links]).unwrap();
    let made = host.netlink.create(&pod_veth(&pod.netns)).unwrap();
    drop(pod);
    let is_gone = |event: &Event| matches!(event, Event::LinkGone(l) if l.index == made.index);
    loop {
        let event = monitor.next(Duration::from_secs(120)).unwrap().expect("an event");
        if is_gone(&event) {
            break;
        }
    }
    assert_eq!(host.netlink.link_by_index(made.index).unwrap(), None);
}

#[test]
fn names_that_the_kernel_would_not_take_are_refused() {
    for bad in ["", ".", "..", "a/b", "a b", "a:b", "eth%d", "sixteen-bytes-xx"] {
        assert!(matches!(kernel::LinkName::new(bad), Err(Error::Invalid(_))), "{bad}");
    }
    for good in ["a", "cali0123456789a", "vxlan.calico", "wg-v6.cali"] {
        assert_eq!(name(good).as_str(), good);
    }
}

#[test]
fn a_list_taken_while_interfaces_come_and_go_is_whole() {
    let Some(mut host) = world() else { return };
    let kept = host.veth("kept", "kept-peer", None);
    let netns = host.netns.clone();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = Netlink::in_netns(&netns).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let peer = VethPeer::new(name("y"), None);
                let made = other.create(&NewLink::new(name("x"), NewLinkKind::Veth(peer))).unwrap();
                other.apply(&Operation::DeleteLink(made.index)).unwrap();
            }
        });
        for _ in 0..100 {
            let found = host.netlink.links().unwrap();
            assert_eq!(found.iter().filter(|link| link.index == kept.index).count(), 1);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
