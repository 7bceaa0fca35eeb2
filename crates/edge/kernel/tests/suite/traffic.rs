//! Rules against packets: what a pod sends before IP (ARP), and what it forwards.

use std::net::{IpAddr, UdpSocket};

use ipnet::IpNet;
use kernel::nft::expression::{Ct, Meta, ct_state};
use kernel::nft::{
    Base, Batch, Chain, ChainKind, DataType, Element, Expression, Hook, Key, Nft, Rule, Set,
    Source, Table, TableFamily, TableId, Verdict,
};
use kernel::sysctl::{self, Sysctl};
use kernel::{
    Address, Family, LinkIndex, Neighbour, NeighbourKind, NextHop, Operation, Route, RouteProtocol,
};

use crate::world::{World, eventually, name, net, world};

const GATEWAY: &str = "169.254.1.1";
const POD: &str = "10.65.0.1";
const FORGED: &str = "10.65.0.99";

/// A node with one pod behind `cali1`, as Calico connects them: the node answers for the gateway.
struct Node {
    host: World,
    pod: World,
    pod_link: LinkIndex,
}

fn node() -> Option<Node> {
    let (mut host, mut pod) = (world()?, world()?);
    let cali = host.veth("cali1", "eth0", Some(&pod.netns)).index;
    let uplink = host.veth("up", "up-peer", None).index;
    let pod_link = pod.netlink.link_by_name(&name("eth0")).unwrap().unwrap().index;
    // Without a default route the node does not answer for the gateway.
    let routes = [
        Route::unicast(net("10.65.0.1/32"), RouteProtocol::BOOT, NextHop::on(cali)),
        Route::unicast(net("0.0.0.0/0"), RouteProtocol::BOOT, NextHop::on(uplink)),
    ];
    for route in routes {
        host.netlink.apply(&Operation::ReplaceRoute(route)).unwrap();
    }
    let settings = [
        (Sysctl::of_family(Family::V4, "ip_forward"), "1"),
        (Sysctl::of_link(Family::V4, &name("cali1"), "proxy_arp"), "1"),
        (Sysctl::of_neighbours(Family::V4, &name("cali1"), "proxy_delay"), "0"),
        (Sysctl::of_all(Family::V4, "rp_filter"), "0"),
    ];
    for result in sysctl::write_all(&host.netns, &settings).unwrap() {
        result.unwrap();
    }
    for address in [POD, FORGED] {
        let address = IpNet::from(address.parse::<IpAddr>().unwrap());
        pod.netlink.apply(&Operation::AddAddress(Address::new(pod_link, address))).unwrap();
    }
    let gateway = IpNet::from(GATEWAY.parse::<IpAddr>().unwrap());
    let boot = RouteProtocol::BOOT;
    let on_link = Route::unicast(gateway, boot, NextHop::on(pod_link));
    let hop = NextHop::via(gateway.addr(), Some(pod_link));
    let default = Route::unicast(net("0.0.0.0/0"), boot, hop);
    for route in [on_link, default] {
        pod.netlink.apply(&Operation::ReplaceRoute(route)).unwrap();
    }
    Some(Node { host, pod, pod_link })
}

impl Node {
    /// Sends a packet from `source`, which makes the pod ask for the gateway's Ethernet address.
    fn send(&self, source: &str) {
        let sent = self.pod.netns.enter(|| {
            let socket = UdpSocket::bind((source, 0))?;
            socket.send_to(b"hello", "192.0.2.7:9")
        });
        sent.unwrap().unwrap();
    }

    fn gateway(&mut self) -> Option<Neighbour> {
        let found = self.pod.netlink.neighbours(Some(self.pod_link)).unwrap();
        found.into_iter().find(|one| one.address == GATEWAY.parse::<IpAddr>().unwrap())
    }

    fn knows_the_gateway(&mut self) -> bool {
        let known = self.gateway();
        matches!(known, Some(Neighbour { kind: NeighbourKind::Learnt { mac: Some(_), .. }, .. }))
    }

    fn forget_the_gateway(&mut self) {
        if let Some(known) = self.gateway() {
            self.pod.netlink.apply(&Operation::DeleteNeighbour(known)).unwrap();
        }
    }
}

fn packets(nft: &mut Nft, table: &TableId, comment: &str) -> u64 {
    let rules = nft.rules(Some(table)).unwrap();
    let found = rules.iter().find(|one| one.rule.comment.as_deref() == Some(comment)).unwrap();
    let count = |expression: &Expression| match expression {
        Expression::Counter { packets, .. } => Some(*packets),
        _ => None,
    };
    found.rule.expressions.iter().find_map(count).unwrap()
}

#[test]
fn forged_arp_is_dropped_by_one_arp_table_for_all_interfaces() {
    let Some(mut node) = node() else { return };
    let table = TableId::new(TableFamily::Arp, "margay");
    let dispatch = Set::new("pods", &[DataType::LinkName]).to_verdicts();
    let mut batch = Batch::new();
    batch.add_table(&Table::new(table.clone()));
    batch.add_chain(&table, &Chain::based("input", Base::new(ChainKind::Filter, Hook::Input, 0)));
    batch.add_chain(&table, &Chain::plain("pod-1"));
    batch.add_set(&table, &dispatch);
    let to_pod = Verdict::Goto("pod-1".into());
    batch.add_elements(&table, &dispatch, &[Element::verdict(Key::link_name("cali1"), to_pod)]);
    batch.add_rule(&table, &Rule::new("input").dispatch(Source::Meta(Meta::InputName), "pods"));
    let own: std::net::Ipv4Addr = POD.parse().unwrap();
    let forged = Rule::new("pod-1")
        .unless(Source::ARP_SENDER, &own.octets())
        .counted()
        .comment("forged")
        .verdict(Verdict::Drop);
    batch.add_rule(&table, &forged);
    let mut nft = Nft::in_netns(&node.host.netns).unwrap();
    nft.commit(&batch).unwrap();

    node.send(POD);
    assert!(eventually(|| node.knows_the_gateway()));
    assert_eq!(packets(&mut nft, &table, "forged"), 0);
    node.forget_the_gateway();
    node.send(FORGED);
    assert!(eventually(|| packets(&mut nft, &table, "forged") > 0));
    assert!(!node.knows_the_gateway());
    let shown = node.host.run("nft", "list ruleset");
    assert!(shown.contains("arp saddr ip != 10.65.0.1 counter packets"), "{shown}");
}

#[test]
fn an_ingress_chain_sees_everything_that_its_interfaces_receive() {
    let Some(mut node) = node() else { return };
    let table = TableId::new(TableFamily::Netdev, "margay");
    let mut base = Base::new(ChainKind::Filter, Hook::Ingress, 0);
    base.devices = vec!["cali1".into()];
    let mut batch = Batch::new();
    batch.add_table(&Table::new(table.clone()));
    batch.add_chain(&table, &Chain::based("ingress", base.clone()));
    let arp = Rule::new("ingress")
        .when(Source::Meta(Meta::Protocol), &[8, 6])
        .counted()
        .comment("arp")
        .verdict(Verdict::Drop);
    batch.add_rule(&table, &arp);
    let mut nft = Nft::in_netns(&node.host.netns).unwrap();
    nft.commit(&batch).unwrap();
    node.send(POD);
    assert!(eventually(|| packets(&mut nft, &table, "arp") > 0));
    assert!(!node.knows_the_gateway());
    let listed = nft.chains(Some(&table)).unwrap();
    assert_eq!(listed, [(table, Chain::based("ingress", base))]);
}

#[test]
fn a_forwarded_packet_meets_the_rules_of_its_interface() {
    let Some(node) = node() else { return };
    let table = TableId::new(TableFamily::Inet, "margay");
    let sources = Set::new("allowed", &[DataType::Ipv4]).with_ranges();
    let mut batch = Batch::new();
    batch.add_table(&Table::new(table.clone()));
    let base = Base::new(ChainKind::Filter, Hook::Forward, 0);
    batch.add_chain(&table, &Chain::based("forward", base));
    batch.add_set(&table, &sources);
    batch.add_elements(&table, &sources, &[Element::member(Key::prefix(net("10.65.0.0/26")))]);
    let from_pod = || {
        let mut name = b"cali1".to_vec();
        name.resize(16, 0);
        Rule::new("forward").when(Source::Meta(Meta::InputName), &name)
    };
    let fresh = from_pod()
        .when_any_bit(Source::Ct(Ct::State), ct_state::NEW)
        .when(Source::Meta(Meta::Family), &[2])
        .when_in(Source::IPV4_SOURCE, "allowed")
        .counted()
        .comment("let out")
        .verdict(Verdict::Accept);
    batch.add_rule(&table, &fresh);
    batch.add_rule(&table, &from_pod().counted().comment("denied").verdict(Verdict::Drop));
    let mut nft = Nft::in_netns(&node.host.netns).unwrap();
    nft.commit(&batch).unwrap();

    node.send(POD);
    assert!(eventually(|| packets(&mut nft, &table, "let out") == 1));
    // 10.65.0.99 is outside the first 64 addresses.
    node.send(FORGED);
    assert!(eventually(|| packets(&mut nft, &table, "denied") == 1));
    assert_eq!(packets(&mut nft, &table, "let out"), 1);
}
