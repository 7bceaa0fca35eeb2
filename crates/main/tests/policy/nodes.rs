//! A host that is closed still talks to the other nodes by tunnels, and to its neighbours.

use std::net::IpAddr;

use policy::render::{EndpointToHost, Settings, Surroundings, Tunnels};
use serde_json::{Value, json};

use crate::conntrack;
use crate::dataplane::{self, Dataplane};
use crate::hostile::Scene;
use crate::hosts::{LAST, host_endpoint, interfaces};
use crate::objects::Cluster;
use crate::packet::{self, ICMPV6, UDP};
use crate::probes::{Place, Probe, Prober};
use crate::semantics::intent_with;

const IPIP: u8 = 4;
const VXLAN: u16 = 4789;
const WIREGUARD: u16 = 51_820;

struct Node {
    scene: Scene,
    dataplane: Dataplane,
}

/// A node whose host is closed, and another one: office. The printer counts as one, too.
fn node(settings: Settings, objects: &[Value]) -> Option<Node> {
    let cluster = Cluster::read();
    let prober = cluster.prober()?;
    let mut settings = settings;
    settings.failsafe_inbound.clear();
    settings.failsafe_outbound = vec![LAST];
    let mut dataplane = Dataplane::new(&prober.world.node, settings);
    let office = cluster.party("office").addresses;
    dataplane.surroundings = Surroundings {
        interfaces: interfaces(),
        host_addresses: office.into(),
        ..Surroundings::default()
    };
    dataplane.install(intent_with(&cluster, objects));
    Some(Node { scene: Scene { cluster, prober }, dataplane })
}

impl Node {
    /// Whether a packet gets from one party to another, and what it met.
    fn passes(&mut self, from: &str, to: &str, protocol: u8, port: u16, v4: bool) -> bool {
        let (from, to) = (self.scene.party(from), self.scene.party(to));
        let ports = (protocol == UDP).then_some((40_000, port));
        let packet = packet::plain(from.address(v4), to.address(v4), protocol, ports);
        let probe = Probe { from: from.place, to: to.place, packet, is_traced: true };
        let prober: &mut Prober = &mut self.scene.prober;
        conntrack::forget(&prober.world.node);
        let fate = prober.send(&[probe]).remove(0);
        if from.place == Place::Remote && !fate.arrived && self.dataplane.has_tunnels() {
            let guards = self.dataplane.guards(&fate.trace);
            assert_eq!(guards, ["i:guard:tunnel packet of a host that is no node"]);
        }
        fate.arrived
    }
}

impl Dataplane {
    fn has_tunnels(&self) -> bool {
        self.surroundings.tunnels != Tunnels::default()
    }
}

#[test]
fn nodes_reach_each_other_by_tunnels_and_nobody_else_does() {
    let settings = Settings {
        external_nodes: vec!["198.51.100.200/32".parse().unwrap()],
        wireguard_v4: Some(WIREGUARD),
        ..dataplane::settings()
    };
    let Some(mut node) = node(settings, &[host_endpoint("all")]) else { return };
    for (protocol, port) in [(IPIP, 0), (UDP, VXLAN)] {
        for is_ipv4 in [true, false] {
            assert!(!node.passes("office", "node", protocol, port, is_ipv4), "it is closed");
            assert!(!node.passes("node", "office", protocol, port, is_ipv4), "it is closed");
        }
    }
    let change = |node: &mut Node, tunnels| {
        node.dataplane.surroundings.tunnels = tunnels;
        let intent = node.dataplane.intent.clone();
        node.dataplane.update(intent, &Default::default());
    };
    change(&mut node, Tunnels { ipip: true, vxlan_v4: true, vxlan_v6: true });
    for (protocol, port, is_ipv4) in [(IPIP, 0, true), (UDP, VXLAN, true), (UDP, VXLAN, false)] {
        assert!(node.passes("office", "node", protocol, port, is_ipv4));
        assert!(node.passes("node", "office", protocol, port, is_ipv4));
        assert!(!node.passes("world", "node", protocol, port, is_ipv4));
        assert!(!node.passes("node", "world", protocol, port, is_ipv4));
        assert_eq!(node.passes("printer", "node", protocol, port, is_ipv4), is_ipv4);
        assert_eq!(node.passes("node", "printer", protocol, port, is_ipv4), is_ipv4);
        assert!(!node.passes("shop/web", "node", protocol, port, is_ipv4));
    }
    change(&mut node, Tunnels::default());
    assert!(!node.passes("office", "node", IPIP, 0, true));
    for far in ["office", "world"] {
        assert!(node.passes(far, "node", UDP, WIREGUARD, true));
        assert!(node.passes("node", far, UDP, WIREGUARD, true));
        assert!(!node.passes(far, "node", UDP, WIREGUARD, false), "it is for IPv4");
        assert!(!node.passes(far, "node", UDP, WIREGUARD + 1, true));
    }
}

#[test]
fn who_is_no_node_sends_nothing_into_tunnels_of_an_open_host() {
    let Some(mut node) = node(dataplane::settings(), &[]) else { return };
    node.dataplane.surroundings.tunnels = Tunnels { ipip: true, vxlan_v4: true, vxlan_v6: false };
    let intent = node.dataplane.intent.clone();
    node.dataplane.install(intent);
    for (protocol, port) in [(IPIP, 0), (UDP, VXLAN)] {
        assert!(node.passes("office", "node", protocol, port, true));
        assert!(!node.passes("world", "node", protocol, port, true));
        assert!(node.passes("node", "world", protocol, port, true));
    }
    assert!(node.passes("world", "node", UDP, VXLAN, false), "nobody uses it over IPv6");
    assert!(node.passes("world", "node", UDP, VXLAN + 1, true));
}

/// A packet of neighbour discovery, which counts only if no router has passed it on.
fn discovery(from: IpAddr, to: IpAddr, kind: u8, target: IpAddr) -> Vec<u8> {
    let packet = packet::plain(from, to, ICMPV6, None);
    let IpAddr::V6(target) = target else { panic!("{target}") };
    let mut body = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    body.extend(target.octets());
    packet::seal(&packet, &mut body);
    let mut whole = packet::with_network(&packet, &body, 0);
    whole[7] = 255;
    whole
}

#[test]
fn a_closed_host_still_finds_its_neighbours() {
    let closed = |name: &str, sort: &str| {
        let mut policy = json!({
            "kind": "GlobalNetworkPolicy", "metadata": { "name": name },
            "spec": {
                "selector": "host == 'n1'", "applyOnForward": true,
                "types": ["Ingress"], "ingress": [{ "action": "Deny" }],
            },
        });
        if sort == "doNotTrack" {
            policy["spec"]["types"] = json!(["Ingress", "Egress"]);
            policy["spec"]["egress"] = json!([{ "action": "Deny" }]);
        }
        policy["spec"][sort] = json!(true);
        policy
    };
    let all = [host_endpoint("eth0"), closed("before", "preDNAT"), closed("raw", "doNotTrack")];
    for n_objects in 1..=all.len() {
        let Some(mut node) = node(dataplane::settings(), &all[..n_objects]) else { return };
        let scene = &mut node.scene;
        let own = scene.party("node").address(false);
        let far = scene.prober.end(Place::Remote).address(false);
        // Who has this address? I have.
        let question = [discovery(far, own, 135, own)];
        let Place::Remote = scene.party("world").place else { panic!("the world is near") };
        scene.prober.end(Place::Remote).listen();
        scene.prober.end(Place::Remote).send(own, &question[0]);
        scene.prober.settle();
        let answers = scene.prober.end(Place::Remote).heard();
        let kinds: Vec<u8> = answers.iter().map(|it| it[40]).collect();
        assert_eq!(kinds, [136], "{answers:x?}");
        // What the host asks its neighbours gets there, and nothing else of the kind.
        for (kind, is_allowed) in
            [(133, true), (135, true), (136, true), (143, true), (137, false), (128, false)]
        {
            let packets = [discovery(own, far, kind, far)];
            let heard = scene.sent_by_node(&packets);
            assert_eq!(!heard.is_empty(), is_allowed, "{kind}: {heard:x?}");
        }
    }
}

impl Scene {
    /// What comes of packets of the node to the host behind its uplink.
    fn sent_by_node(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.prober.end(Place::Remote).listen();
        for packet in packets {
            let destination = packet::destination(packet).unwrap();
            self.prober.end(Place::Node).send(destination, packet);
        }
        self.prober.settle();
        self.prober.end(Place::Remote).heard()
    }
}

/// What a workload sends inside of other packets is its own business if that is set.
#[test]
fn workloads_send_tunnel_packets_where_they_may() {
    let settings = Settings {
        may_send_ipip: true,
        may_send_vxlan: true,
        endpoint_to_host: EndpointToHost::Drop,
        ..dataplane::settings()
    };
    let Some(mut node) = node(settings, &[]) else { return };
    for to in ["world", "front/client"] {
        assert!(node.passes("shop/web", to, IPIP, 0, true));
        assert!(node.passes("shop/web", to, UDP, VXLAN, true));
        assert!(node.passes("shop/web", to, UDP, VXLAN, false));
    }
    assert!(!node.passes("shop/web", "node", UDP, VXLAN, true), "the host is closed to them");
}
