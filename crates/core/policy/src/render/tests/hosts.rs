//! The rules of hosts' endpoints against the judge.

use std::net::IpAddr;
use std::sync::Arc;

use ::model::resource::{Action, Direction};

use super::super::{Failsafe, Renderer, Settings, Surroundings, Tunnels, whole};
use super::model::{Model, OnTheWay};
use super::random::{self, Dice};
use super::{rules, texts};
use crate::intent::{Directions, Host, Intent, TierInForce};
use crate::{End, HostRules, Judge, Outcome, Packet, Tier};

/// Which endpoint is for an interface, as the random world has them.
fn of_interface<'a>(
    intent: &'a Intent,
    around: &Surroundings,
    interface: &str,
) -> Option<(&'a Host, bool)> {
    let expected = IpAddr::from([192, 0, 2, 1]);
    let has_address = around.interfaces.get(interface).is_some_and(|it| it.contains(&expected));
    let is_named = |key: &str| match key {
        "h0" => interface == "eth0",
        "h1" => has_address,
        "h3" => interface == "eth1",
        _ => false,
    };
    let mut own = ["h0", "h1", "h3"].into_iter().filter(|key| is_named(key));
    let own = own.find_map(|key| intent.hosts.get(key));
    let rest = intent.hosts.get("h2").filter(|_| interface != "lo");
    own.map(|host| (host, true)).or(rest.map(|host| (host, false)))
}

/// Without the ends of the tiers, which decide nothing before the packet's way is known.
fn endless(mut tiers: Vec<Tier>) -> Vec<Tier> {
    tiers.iter_mut().for_each(|tier| tier.end = End::Pass);
    tiers
}

/// What the endpoint of an interface makes of a packet, and the name of what decided.
fn judged(
    intent: &Intent,
    (host, is_named): (&Host, bool),
    direction: Direction,
    packet: &Packet,
) -> Option<(Outcome, String)> {
    let judge = Judge { sets: &intent.sets };
    let of = |tiers: &[TierInForce]| rules(intent, tiers, &[], direction).tiers;
    let named = |verdict: crate::Verdict, tiers: &[TierInForce]| {
        let name = texts(&verdict, tiers, &host.profiles, direction).pop().unwrap();
        Some((verdict.outcome, name))
    };
    if is_named && let Some(verdict) = judge.untracked(&endless(of(&host.untracked)), packet) {
        return named(verdict, &host.untracked);
    }
    let is_ingress = direction == Direction::Ingress;
    let pre_dnat = if is_ingress { endless(of(&host.pre_dnat)) } else { Vec::new() };
    let before = HostRules { pre_dnat, ..HostRules::default() };
    if let Some(verdict) = judge.host(&before, &Packet { is_of_host: false, ..packet.clone() }) {
        return named(verdict, &host.pre_dnat);
    }
    let normal = rules(intent, &host.tiers, &host.profiles, direction);
    let after =
        HostRules { pre_dnat: Vec::new(), forward: of(&host.forward), normal: Some(normal) };
    let tiers = if packet.is_of_host { &host.tiers } else { &host.forward };
    judge.host(&after, packet).and_then(|verdict| named(verdict, tiers))
}

/// Sends a packet through the chains of its way.
fn sent(model: &Model, packet: &Packet, came_by: &str, leaves_by: &str) -> (bool, Vec<String>) {
    let way: &[&str] = match (packet.is_of_host, came_by) {
        (false, _) => &["sources", "pre-dnat", "forward"],
        (true, "") => &["output-untracked", "output"],
        (true, _) => &["sources", "pre-dnat", "input", "local"],
    };
    let mut on_the_way = OnTheWay::new(packet.clone(), came_by, leaves_by);
    // What others have marked counts for nothing.
    on_the_way.mark = if way.iter().all(|chain| model.has(chain)) { u32::MAX } else { 0 };
    model.send_along(way, &mut on_the_way)
}

/// The same for a packet that IPVS sends on.
fn sent_on(model: &Model, packet: &Packet, came_by: &str, leaves_by: &str) -> (bool, Vec<String>) {
    let mut on_the_way = OnTheWay::new(packet.clone(), came_by, leaves_by);
    let way = ["sources", "pre-dnat", "input", "passed-on"];
    model.send_along(&way, &mut on_the_way)
}

/// Whether the kernel's rules do with packets by hosts' interfaces what the judge says.
pub(super) fn compare(intent: &Intent, around: &Surroundings, model: &Model, dice: &mut Dice) {
    let interfaces = ["eth0", "eth1", "eth2", "lo"];
    let judged = |interface, direction, packet: &Packet| {
        judged(intent, of_interface(intent, around, interface)?, direction, packet)
    };
    for _ in 0..30 {
        let (from, is_ipv4) = (dice.below(8), dice.one_in(2));
        let packet = random::packet(dice, from, 7, is_ipv4);
        let interface = interfaces[usize::try_from(dice.below(4)).unwrap()];
        let of_host = Packet { is_of_host: true, ..packet.clone() };
        let wanted = judged(interface, Direction::Ingress, &of_host);
        check(&wanted, &sent(model, &of_host, interface, ""), intent, &of_host, interface);
        let wanted = judged(interface, Direction::Egress, &of_host);
        check(&wanted, &sent(model, &of_host, "", interface), intent, &of_host, interface);
        if interface == "lo" {
            continue;
        }
        let other = interfaces[usize::try_from(dice.below(3)).unwrap()];
        let mut wanted = judged(interface, Direction::Ingress, &packet);
        let is_denied = |it: &Option<(Outcome, String)>| matches!(it, Some((Outcome::Deny, _)));
        if !is_denied(&wanted) {
            let (host, _) = of_interface(intent, around, other).unzip();
            let forward = host.map(|it| Host { untracked: Vec::new(), ..it.clone() });
            let leaving = forward
                .and_then(|host| self::judged(intent, (&host, false), Direction::Egress, &packet));
            wanted = leaving.or(wanted);
        }
        let found = sent(model, &packet, interface, other);
        check(&wanted, &found, intent, &packet, interface);
        if !model.knows_sender(packet.source) {
            let by_service = sent_on(model, &packet, interface, other);
            assert_eq!(by_service, found, "{interface} {other} {packet:?} {:#?}", intent.hosts);
        }
    }
}

fn check(
    wanted: &Option<(Outcome, String)>,
    found: &(bool, Vec<String>),
    intent: &Intent,
    packet: &Packet,
    interface: &str,
) {
    let is_allowed = !matches!(wanted, Some((Outcome::Deny, _)));
    let context = || format!("{interface} {packet:?} {wanted:?} {found:?} {:#?}", intent.hosts);
    assert_eq!(found.0, is_allowed, "{}", context());
    match wanted {
        Some((Outcome::Deny, name)) => assert_eq!(found.1.last(), Some(name), "{}", context()),
        Some((Outcome::Allow, name)) => assert!(found.1.contains(name), "{}", context()),
        None => {}
    }
}

#[test]
fn failsafe_ports_are_open_and_nothing_else_of_a_closed_host() {
    let closed = Host { interface: "*".to_owned(), ..Host::default() };
    let intent = Intent { hosts: [("h".to_owned(), closed)].into(), ..Intent::default() };
    let mut settings = Settings::default();
    let near = Some("192.0.2.0/24".parse().unwrap());
    settings.failsafe_inbound.push(Failsafe { protocol: 17, port: 514, net: near });
    let renderer = Renderer::new(settings);
    let surroundings = random::surroundings();
    let (_, plan) = renderer.drafted(&intent, &whole(&intent), &surroundings, true);
    let mut model = Model::default();
    plan.carry_out(&intent, &mut model);
    let packet = |protocol, port, from: &str| Packet {
        source: from.parse().unwrap(),
        destination: "192.0.2.77".parse().unwrap(),
        protocol,
        ports: Some((40_000, port)),
        icmp: None,
        before_nat: None,
        is_of_host: true,
    };
    let comes = |packet: &Packet, interface| sent(&model, packet, interface, "").0;
    let leaves = |packet: &Packet, interface| sent(&model, packet, "", interface).0;
    assert!(comes(&packet(6, 22, "10.0.0.1"), "eth2"));
    assert!(!comes(&packet(17, 22, "10.0.0.1"), "eth2"));
    assert!(!comes(&packet(6, 80, "10.0.0.1"), "eth9"), "also an interface that just came");
    assert!(comes(&packet(17, 514, "192.0.2.5"), "eth0"));
    assert!(!comes(&packet(17, 514, "198.51.100.5"), "eth0"));
    assert!(comes(&packet(6, 80, "10.0.0.1"), "lo"));
    assert!(leaves(&packet(17, 53, "10.0.0.1"), "eth0"));
    assert!(!leaves(&packet(6, 22, "10.0.0.1"), "eth0"));
    assert!(leaves(&packet(6, 22, "10.0.0.1"), "cali0"), "a host reaches its workloads");
    let translated = Packet {
        before_nat: Some(("192.0.2.1".parse().unwrap(), 80)),
        ..packet(6, 22, "10.0.0.1")
    };
    let mut on_the_way = OnTheWay::new(translated, "", "lo");
    assert!(model.send("output", &mut on_the_way).is_accepted, "it is not known where it goes");
    on_the_way.leaves_by = "eth0".to_owned();
    assert!(!model.send("output-translated", &mut on_the_way).is_accepted);
    assert_eq!(on_the_way.mark, 0, "nothing of it is left");
}

#[test]
fn an_interface_is_closed_before_it_comes() {
    let named = |name: &str| Host { interface: name.to_owned(), ..Host::default() };
    let hosts = [("a".to_owned(), named("late0")), ("b".to_owned(), named("eth0"))];
    let intent = Intent { hosts: hosts.into(), ..Intent::default() };
    let around = random::surroundings();
    let (mut renderer, mut model) = super::installed(&intent, &around);
    let hello = packet(6, Some((40_000, 80)), "10.0.0.1", "192.0.2.77");
    let mut expect = |around: &Surroundings| {
        let (change, plan) = renderer.drafted(&intent, &Default::default(), around, false);
        plan.carry_out(&intent, &mut model);
        renderer.committed(change);
        let passes = |interface| {
            (sent(&model, &hello, interface, "").0, sent(&model, &hello, "", interface).0)
        };
        assert_eq!(passes("late0"), (false, false), "{around:?}");
        assert_eq!(passes("eth0"), (false, false), "{around:?}");
        assert_eq!(passes("eth1"), (true, true), "{around:?}");
    };
    expect(&around);
    let mut other = around.clone();
    other.interfaces.remove("eth0");
    other.interfaces.insert("late0".to_owned(), [IpAddr::from([192, 0, 2, 5])].into());
    expect(&other);
    expect(&around);
}

fn packet(protocol: u8, ports: Option<(u16, u16)>, from: &str, to: &str) -> Packet {
    Packet {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        protocol,
        ports,
        icmp: None,
        before_nat: None,
        is_of_host: true,
    }
}

#[test]
fn a_closed_host_talks_to_its_nodes_by_tunnels_and_to_no_others() {
    let closed = Host { interface: "*".to_owned(), ..Host::default() };
    let intent = Intent { hosts: [("h".to_owned(), closed)].into(), ..Intent::default() };
    let settings = Settings {
        wireguard_v6: Some(51_821),
        external_nodes: vec!["198.51.100.0/24".parse().unwrap()],
        ..Settings::default()
    };
    let mut around = Surroundings {
        host_addresses: ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()].into(),
        ..random::surroundings()
    };
    let mut renderer = Renderer::new(settings);
    let mut model = Model::default();
    let (change, plan) = renderer.drafted(&intent, &whole(&intent), &around, true);
    plan.carry_out(&intent, &mut model);
    renderer.committed(change);
    let ipip = |from, to| packet(4, None, from, to);
    let udp = |port, from, to| packet(17, Some((40_000, port)), from, to);
    let comes = |model: &Model, packet: &Packet| sent(model, packet, "eth2", "").0;
    let leaves = |model: &Model, packet: &Packet| sent(model, packet, "", "eth2").0;
    let (node, external, stranger, own) = ("192.0.2.7", "198.51.100.9", "203.0.113.1", "192.0.2.1");
    for far in [node, external, stranger] {
        assert!(!comes(&model, &ipip(far, own)), "nobody said that there is IPIP");
        assert!(!leaves(&model, &udp(4789, own, far)));
    }
    around.tunnels = Tunnels { ipip: true, vxlan_v4: true, vxlan_v6: true };
    let (change, plan) = renderer.drafted(&intent, &Default::default(), &around, false);
    plan.carry_out(&intent, &mut model);
    renderer.committed(change);
    for (far, is_node) in [(node, true), (external, true), (stranger, false)] {
        assert_eq!(comes(&model, &ipip(far, own)), is_node, "{far}");
        assert_eq!(leaves(&model, &ipip(own, far)), is_node, "{far}");
        assert_eq!(comes(&model, &udp(4789, far, own)), is_node, "{far}");
        assert_eq!(leaves(&model, &udp(4789, own, far)), is_node, "{far}");
        assert!(!comes(&model, &udp(4788, far, own)));
        assert!(!comes(&model, &udp(51_820, far, own)), "WireGuard is in use over IPv6 only");
    }
    for (far, is_node) in [("2001:db8::7", true), ("2001:db8::8", false)] {
        assert_eq!(comes(&model, &udp(4789, far, "2001:db8::1")), is_node, "{far}");
        assert_eq!(leaves(&model, &udp(4789, "2001:db8::1", far)), is_node, "{far}");
        assert!(comes(&model, &udp(51_821, far, "2001:db8::1")));
        assert!(leaves(&model, &udp(51_821, "2001:db8::1", far)));
    }
}

/// Two endpoints of interfaces, and as many bits for them as the mask has.
#[test]
fn where_the_mark_has_no_room_for_an_interface_services_are_closed() {
    let tier = |action| {
        let id = crate::input::PolicyId {
            kind: crate::input::PolicyKind::GlobalNetworkPolicy,
            namespace: String::new(),
            name: format!("{action:?}"),
        };
        let ingress = vec![crate::Rule::all(action)];
        let tier = TierInForce {
            name: "default".to_owned(),
            end: End::Deny,
            ingress: vec![id.clone()],
            egress: Vec::new(),
        };
        (tier, (id, Arc::new(Directions { ingress, egress: Vec::new() })))
    };
    let (open, allow) = tier(Action::Allow);
    let (closed, deny) = tier(Action::Deny);
    let host = |name: &str, tier: &TierInForce| {
        let (interface, forward) = (name.to_owned(), vec![tier.clone()]);
        (name.to_owned(), Host { interface, forward, ..Host::default() })
    };
    let intent = Intent {
        hosts: [host("eth0", &open), host("eth1", &closed)].into(),
        policies: [allow, deny].into(),
        ..Intent::default()
    };
    let packet = packet(6, Some((40_000, 80)), "203.0.113.1", "203.0.113.2");
    for (mark_mask, is_enough) in
        [(0xffff_0000, true), (0x8421_0100, true), (0x0421_0100, false), (0x3, false)]
    {
        let renderer = Renderer::new(Settings { mark_mask, ..Settings::default() });
        let around = random::surroundings();
        let (_, plan) = renderer.drafted(&intent, &whole(&intent), &around, true);
        let mut model = Model::default();
        plan.carry_out(&intent, &mut model);
        assert_eq!(sent_on(&model, &packet, "eth0", "eth2").0, is_enough, "{mark_mask:x}");
        assert_eq!(sent_on(&model, &packet, "eth2", "eth0").0, is_enough, "{mark_mask:x}");
        assert!(!sent_on(&model, &packet, "eth1", "eth2").0, "{mark_mask:x}");
    }
}

/// What is left of a bad endpoint must not cost a good one its interface.
#[test]
fn the_rest_of_a_bad_endpoint_displaces_no_other() {
    let rest = |interface: &str| Host {
        interface: interface.to_owned(),
        is_rest: true,
        ..Host::default()
    };
    let open = |interface: &str, address: Option<IpAddr>| Host {
        interface: interface.to_owned(),
        addresses: address.into_iter().collect(),
        profiles: vec!["open".to_owned()],
        ..Host::default()
    };
    let hosts = [
        ("bad-0", rest("eth0")),
        ("bad-1", rest("eth1")),
        ("bad-2", rest("eth2")),
        ("good-0", open("eth0", None)),
        ("good-1", open("", Some([192, 0, 2, 1].into()))),
    ];
    let allow = vec![crate::Rule::all(Action::Allow)];
    let rules = Directions { ingress: allow.clone(), egress: allow };
    let intent = Intent {
        hosts: hosts.map(|(key, host)| (key.to_owned(), host)).into(),
        profiles: [("open".to_owned(), Arc::new(rules))].into(),
        ..Intent::default()
    };
    let renderer = Renderer::new(Settings::default());
    let surroundings = random::surroundings();
    let (_, plan) = renderer.drafted(&intent, &whole(&intent), &surroundings, true);
    let mut model = Model::default();
    plan.carry_out(&intent, &mut model);
    let http = packet(6, Some((40_000, 80)), "198.51.100.5", "192.0.2.77");
    for (interface, is_open) in [("eth0", true), ("eth1", true), ("eth2", false)] {
        assert_eq!(sent(&model, &http, interface, "").0, is_open, "{interface}");
    }
}
