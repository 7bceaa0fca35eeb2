//! Addresses and neighbours.

use kernel::{
    Address, Event, Mac, Monitor, Neighbour, NeighbourKind, NewLink, NewLinkKind, Operation, Topic,
};
use std::time::Duration;

use crate::world::{name, net, world};

#[test]
fn addresses_of_both_families_come_and_go() {
    let Some(mut host) = world() else { return };
    let link = host.veth("eth0", "peer", None);
    let v4 = Address::new(link.index, net("10.65.0.2/32"));
    let mut v6 = Address::new(link.index, net("fd00::2/64"));
    v6.has_no_dad = true;
    v6.has_no_prefix_route = true;
    for address in [&v4, &v6] {
        host.netlink.apply(&Operation::AddAddress(address.clone())).unwrap();
        let again = host.netlink.apply(&Operation::AddAddress(address.clone())).unwrap_err();
        assert!(again.already_exists(), "{again}");
        host.netlink.apply(&Operation::ReplaceAddress(address.clone())).unwrap();
    }
    let seen = host.json("ip", "-j addr show dev eth0")[0]["addr_info"].to_string();
    assert!(seen.contains(r#""local":"10.65.0.2","prefixlen":32,"scope":"global""#), "{seen}");
    assert!(seen.contains(r#""nodad":true"#) && seen.contains(r#""noprefixroute":true"#), "{seen}");
    let listed = host.netlink.addresses(Some(link.index)).unwrap();
    assert!(listed.contains(&v4) && listed.contains(&v6), "{listed:?}");
    let routes = host.netlink.routes(&kernel::RouteFilter::default()).unwrap();
    assert!(routes.iter().all(|route| route.destination != net("fd00::/64")));
    for address in [v4, v6] {
        host.netlink.apply(&Operation::DeleteAddress(address.clone())).unwrap();
        let error = host.netlink.apply(&Operation::DeleteAddress(address)).unwrap_err();
        assert!(error.is_not_found(), "{error}");
    }
    assert!(!host.run("ip", "addr show dev eth0").contains("10.65"));
}

#[test]
fn neighbours_are_permanent_or_proxies() {
    let Some(mut host) = world() else { return };
    let link = host.veth("cali1", "eth0", None);
    let other = host.netlink.create(&NewLink::new(name("br0"), NewLinkKind::Bridge)).unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 7]);
    let entry = |address: &str, kind| Neighbour {
        link: link.index,
        address: address.parse().unwrap(),
        kind,
    };
    let wanted = [
        entry("10.65.0.7", NeighbourKind::Permanent(mac)),
        entry("fd00::7", NeighbourKind::Permanent(mac)),
        entry("fe80::1", NeighbourKind::Proxy),
        entry("169.254.1.1", NeighbourKind::Proxy),
    ];
    for neighbour in &wanted {
        host.netlink.apply(&Operation::ReplaceNeighbour(neighbour.clone())).unwrap();
    }
    let listed = host.netlink.neighbours(Some(link.index)).unwrap();
    for neighbour in &wanted {
        assert!(listed.contains(neighbour), "{neighbour:?} in {listed:?}");
    }
    assert_eq!(host.netlink.neighbours(Some(other.index)).unwrap(), []);
    let seen = host.run("ip", "neigh show dev cali1 nud permanent");
    assert!(seen.contains("10.65.0.7 lladdr 02:00:00:00:00:07 PERMANENT"), "{seen}");
    let seen = host.run("ip", "neigh show proxy");
    assert!(seen.contains("169.254.1.1 dev cali1"), "{seen}");
    for neighbour in &wanted {
        host.netlink.apply(&Operation::DeleteNeighbour(neighbour.clone())).unwrap();
    }
    let left = host.netlink.neighbours(Some(link.index)).unwrap();
    assert!(wanted.iter().all(|neighbour| !left.contains(neighbour)), "{left:?}");
}

#[test]
fn changes_by_others_are_events() {
    let Some(mut host) = world() else { return };
    let link = host.veth("eth0", "peer", None);
    let mut monitor = Monitor::open(Some(&host.netns), &[Topic::Addresses, Topic::Routes]).unwrap();
    host.run("ip", "addr add 10.1.0.1/24 dev eth0");
    host.run("ip", "route add blackhole 10.2.0.0/16 proto 80");
    host.run("ip", "route del blackhole 10.2.0.0/16 proto 80");
    host.run("ip", "addr del 10.1.0.1/24 dev eth0");
    let mut seen = Vec::new();
    while let Some(event) = monitor.next(Duration::ZERO).unwrap() {
        seen.push(event);
    }
    let address = Address::new(link.index, net("10.1.0.1/24"));
    assert!(seen.contains(&Event::Address(address.clone())), "{seen:?}");
    assert!(seen.contains(&Event::AddressGone(address)), "{seen:?}");
    let route = kernel::Route::blackhole(net("10.2.0.0/16"), kernel::RouteProtocol(80));
    assert!(seen.contains(&Event::Route(route.clone())), "{seen:?}");
    assert!(seen.contains(&Event::RouteGone(route)), "{seen:?}");
}

#[test]
fn a_listener_that_is_too_slow_is_told_so() {
    let Some(mut host) = world() else { return };
    let mut monitor = Monitor::open(Some(&host.netns), &[Topic::Routes]).unwrap();
    let route = |n: u32| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + (n << 6)).into();
        let destination = ipnet::IpNet::new(address, 26).unwrap();
        kernel::Route::blackhole(destination, kernel::RouteProtocol(80))
    };
    let pair = |n| [Operation::ReplaceRoute(route(n)), Operation::DeleteRoute(route(n))];
    let operations: Vec<Operation> = (0..20_000).flat_map(pair).collect();
    // More than the queue holds.
    assert!(host.netlink.apply_all(&operations).iter().all(Result::is_ok));
    assert_eq!(monitor.next(Duration::ZERO).unwrap(), Some(Event::Lost));
    assert!(matches!(monitor.next(Duration::ZERO).unwrap(), Some(Event::Route(_))));
}
