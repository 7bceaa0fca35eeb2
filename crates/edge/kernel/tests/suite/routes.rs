//! Routes: every sort, both families, many at once.

use std::net::Ipv4Addr;

use ipnet::IpNet;
use kernel::{
    Address, Family, LinkIndex, NextHop, Operation, Remedy, Route, RouteFilter, RouteKind,
    RouteProtocol, Scope, Table,
};

use crate::world::{World, net, world};

const OURS: RouteProtocol = RouteProtocol(80);

/// A world with two interfaces that have addresses.
fn connected() -> Option<(World, LinkIndex, LinkIndex)> {
    let mut host = world()?;
    let first = host.veth("eth0", "peer0", None).index;
    let second = host.veth("eth1", "peer1", None).index;
    for (link, address) in [(first, "10.7.0.1/24"), (second, "10.8.0.1/24"), (first, "fd07::1/64")]
    {
        let mut address = Address::new(link, net(address));
        address.has_no_dad = true;
        host.netlink.apply(&Operation::AddAddress(address)).unwrap();
    }
    Some((host, first, second))
}

fn via(gateway: &str, link: LinkIndex) -> NextHop {
    NextHop::via(gateway.parse().unwrap(), Some(link))
}

/// Routes of every sort that we make.
fn examples(first: LinkIndex, second: LinkIndex) -> Vec<(Route, &'static str)> {
    let unicast = |destination: &str, hop| Route::unicast(net(destination), OURS, hop);
    let onlink = NextHop { is_onlink: true, ..via("172.16.0.9", first) };
    let heavy = NextHop { weight: 3, ..via("10.8.0.3", second) };
    vec![
        (
            Route { protocol: RouteProtocol::BOOT, ..unicast("10.65.0.1/32", NextHop::on(first)) },
            "10.65.0.1 dev eth0 scope link",
        ),
        (
            unicast("10.65.1.0/26", via("10.7.0.2", first)),
            "10.65.1.0/26 via 10.7.0.2 dev eth0 proto 80",
        ),
        (unicast("10.65.2.0/26", onlink), "10.65.2.0/26 via 172.16.0.9 dev eth0 proto 80 onlink"),
        (
            Route {
                source: Some("10.7.0.1".parse().unwrap()),
                metric: 512,
                ..unicast("0.0.0.0/0", via("10.7.0.2", first))
            },
            "default via 10.7.0.2 dev eth0 proto 80 src 10.7.0.1 metric 512",
        ),
        (Route::blackhole(net("10.65.0.0/26"), OURS), "blackhole 10.65.0.0/26 proto 80"),
        (
            Route { table: Table(1000), ..unicast("10.66.0.0/16", via("10.8.0.2", second)) },
            "10.66.0.0/16 via 10.8.0.2 dev eth1 table 1000 proto 80",
        ),
        (
            Route {
                kind: RouteKind::Throw,
                table: Table(7),
                ..Route::blackhole(net("10.9.0.0/16"), OURS)
            },
            "throw 10.9.0.0/16 table 7 proto 80",
        ),
        (
            Route {
                next_hops: vec![via("10.7.0.3", first), heavy],
                ..unicast("10.67.0.0/16", via("10.7.0.3", first))
            },
            "10.67.0.0/16 proto 80 \n\tnexthop via 10.7.0.3 dev eth0 weight 1 \n\tnexthop via 10.8.0.3 dev eth1 weight 3",
        ),
        (
            unicast("10.68.0.0/16", via("fe80::1", first)),
            "10.68.0.0/16 via inet6 fe80::1 dev eth0 proto 80",
        ),
        (unicast("fd65::1/128", NextHop::on(first)), "fd65::1 dev eth0 proto 80 metric 1024"),
        (
            Route { metric: 99, ..unicast("fd66::/64", via("fd07::2", first)) },
            "fd66::/64 via fd07::2 dev eth0 proto 80 metric 99",
        ),
        (
            Route::blackhole(net("fd65::/122"), OURS),
            "blackhole fd65::/122 dev lo proto 80 metric 1024",
        ),
        (
            unicast("::/0", via("fe80::1", first)),
            "default via fe80::1 dev eth0 proto 80 metric 1024",
        ),
    ]
}

#[test]
fn what_is_written_is_what_is_listed() {
    let Some((mut host, first, second)) = connected() else { return };
    let examples = examples(first, second);
    for (route, _) in &examples {
        host.netlink.apply(&Operation::ReplaceRoute(route.clone())).unwrap();
        host.netlink.apply(&Operation::ReplaceRoute(route.clone())).unwrap();
    }
    let seen = host.run("ip", "route show table all") + &host.run("ip", "-6 route show table all");
    let listed = host.netlink.routes(&RouteFilter::default()).unwrap();
    for (route, line) in &examples {
        assert!(seen.contains(line), "{line} in\n{seen}");
        assert!(listed.contains(&route.as_listed()), "{route:?} in\n{listed:#?}");
    }
    for (route, line) in examples {
        host.netlink.apply(&Operation::DeleteRoute(route.clone())).unwrap();
        let error = host.netlink.apply(&Operation::DeleteRoute(route)).unwrap_err();
        assert!(error.is_not_found(), "{line}: {error}");
    }
    assert!(!host.run("ip", "route show table all").contains("proto 80"));
}

#[test]
fn the_kernel_filters_by_table_protocol_and_interface() {
    let Some((mut host, first, second)) = connected() else { return };
    for (route, _) in examples(first, second) {
        host.netlink.apply(&Operation::ReplaceRoute(route)).unwrap();
    }
    let mut count = |filter: RouteFilter| host.netlink.routes(&filter).unwrap().len();
    assert_eq!(count(RouteFilter { protocol: Some(OURS), ..RouteFilter::default() }), 12);
    let v6 =
        RouteFilter { protocol: Some(OURS), family: Some(Family::V6), ..RouteFilter::default() };
    assert_eq!(count(v6), 4);
    assert_eq!(count(RouteFilter { table: Some(Table(1000)), ..RouteFilter::default() }), 1);
    assert_eq!(count(RouteFilter { table: Some(Table(4711)), ..RouteFilter::default() }), 0);
    let on_second =
        RouteFilter { protocol: Some(OURS), link: Some(second), ..RouteFilter::default() };
    assert_eq!(count(on_second), 2);
    let gone = RouteFilter { link: Some(LinkIndex(4711)), ..RouteFilter::default() };
    assert_eq!(count(gone), 0);
}

#[test]
fn a_refusal_is_in_the_kernel_s_own_words() {
    let Some((mut host, first, _)) = connected() else { return };
    let route = Route::unicast(net("10.70.0.0/16"), OURS, via("192.0.2.1", first));
    let error = host.netlink.apply(&Operation::ReplaceRoute(route)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "replace route 10.70.0.0/16 via 192.0.2.1 on {first} table 254: \
             Nexthop has invalid gateway (Network is unreachable (os error 101))"
        )
    );
    assert_eq!(error.remedy(), Remedy::Resync);
    let route = Route::unicast(net("10.70.0.0/16"), OURS, NextHop::on(LinkIndex(4711)));
    assert!(host.netlink.apply(&Operation::AddRoute(route)).unwrap_err().is_not_found());
}

#[test]
fn a_route_that_exists_is_not_added_twice() {
    let Some((mut host, first, second)) = connected() else { return };
    let mut route = Route::unicast(net("10.65.0.1/32"), OURS, NextHop::on(first));
    host.netlink.apply(&Operation::AddRoute(route.clone())).unwrap();
    route.next_hops = vec![NextHop::on(second)];
    let error = host.netlink.apply(&Operation::AddRoute(route)).unwrap_err();
    assert!(error.already_exists(), "{error}");
}

fn many(link: LinkIndex, n_routes: u32) -> Vec<Operation> {
    let gateway = "10.7.0.2".parse().unwrap();
    let route = |n: u32| {
        let address = Ipv4Addr::from(0x0a10_0000 + (n << 6)).into();
        let hop = NextHop::via(gateway, Some(link));
        Route::unicast(IpNet::new(address, 26).unwrap(), OURS, hop)
    };
    (0..n_routes).map(|n| Operation::ReplaceRoute(route(n))).collect()
}

#[test]
fn ten_thousand_routes_are_one_call_with_a_result_each() {
    let Some((mut host, first, _)) = connected() else { return };
    let mut operations = many(first, 10_000);
    let bad = Route::unicast(net("10.71.0.0/16"), OURS, via("192.0.2.1", first));
    operations.insert(5_000, Operation::ReplaceRoute(bad));
    let results = host.netlink.apply_all(&operations);
    let failed: Vec<usize> = (0..results.len()).filter(|&at| results[at].is_err()).collect();
    assert_eq!((results.len(), failed.as_slice()), (10_001, &[5_000][..]));
    let text = results[5_000].as_ref().unwrap_err().to_string();
    assert!(text.starts_with("replace route 10.71.0.0/16 via 192.0.2.1"), "{text}");
    let ours = RouteFilter { protocol: Some(OURS), ..RouteFilter::default() };
    let listed = host.netlink.routes(&ours).unwrap();
    assert_eq!(listed.len(), 10_000);
    assert!(listed.iter().all(|route| route.scope == Scope::Universe));
    assert_eq!(host.run("ip", "route show proto 80").lines().count(), 10_000);
    let deletions: Vec<_> = listed.into_iter().map(Operation::DeleteRoute).collect();
    assert!(host.netlink.apply_all(&deletions).iter().all(Result::is_ok));
    assert_eq!(host.netlink.routes(&ours).unwrap(), []);
}

#[test]
fn a_list_taken_while_routes_change_is_whole() {
    let Some((mut host, first, second)) = connected() else { return };
    assert!(host.netlink.apply_all(&many(first, 2_000)).iter().all(Result::is_ok));
    let netns = host.netns.clone();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = kernel::Netlink::in_netns(&netns).unwrap();
            let route = Route::unicast(net("10.65.0.1/32"), OURS, NextHop::on(second));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                other.apply(&Operation::AddRoute(route.clone())).unwrap();
                other.apply(&Operation::DeleteRoute(route.clone())).unwrap();
            }
        });
        let filter = RouteFilter {
            protocol: Some(OURS),
            family: Some(Family::V4),
            link: Some(first),
            ..RouteFilter::default()
        };
        for _ in 0..20 {
            match host.netlink.routes(&filter) {
                Ok(found) => assert_eq!(found.len(), 2_000),
                Err(error) => assert_eq!(error.remedy(), Remedy::Retry, "{error}"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
