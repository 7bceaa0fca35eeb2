//! Packets that are refused with a message: the sender hears of it, and nobody else of the packet.

use policy::render::{DenyAction, ServiceLoops, Settings, Surroundings};
use serde_json::{Value, json};

use crate::dataplane::{self, Dataplane};
use crate::hostile::Scene;
use crate::hosts::{LAST, host_endpoint, interfaces};
use crate::objects::Cluster;
use crate::packet::{self, ICMP, ICMPV6, TCP, UDP};
use crate::semantics::intent_with;

fn scene(settings: Settings, surroundings: Surroundings, objects: &[Value]) -> Option<Scene> {
    let cluster = Cluster::read();
    let prober = cluster.prober()?;
    let mut settings = settings;
    settings.failsafe_outbound.push(LAST);
    let mut dataplane = Dataplane::new(&prober.world.node, settings);
    dataplane.surroundings = Surroundings { interfaces: interfaces(), ..surroundings };
    dataplane.install(intent_with(&cluster, objects));
    Some(Scene { cluster, prober })
}

impl Scene {
    /// What the sender of a packet gets back, and what comes to the receiver.
    fn refused(&mut self, from: &str, to: &str, packet: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let sender = self.party(from).place;
        self.prober.end(sender).listen();
        let arrived = self.heard(from, to, &[packet.to_vec()]);
        (self.prober.end(sender).heard(), arrived)
    }

    /// A packet of each sort between two parties: of those that the kernel answers, because it
    /// knows whether they are whole.
    fn packets(&self, from: &str, to: &str) -> Vec<Vec<u8>> {
        let (from, to) = (self.party(from), self.party(to));
        let mut packets = Vec::new();
        for is_ipv4 in [true, false] {
            let (icmp, echo) = if is_ipv4 { (ICMP, 8) } else { (ICMPV6, 128) };
            for (protocol, ports) in
                [(TCP, Some((40_000, 80))), (UDP, Some((40_000, 53))), (icmp, None)]
            {
                let ends = (from.address(is_ipv4), to.address(is_ipv4));
                let mut packet = packet::plain(ends.0, ends.1, protocol, ports);
                packet.icmp = (protocol == icmp).then_some((echo, 0));
                packets.push(packet::build(&packet, 1, 0));
            }
        }
        packets
    }

    /// Each packet is answered by the message that its port is closed.
    fn all_refused(&mut self, from: &str, to: &str) {
        for packet in self.packets(from, to) {
            let (back, arrived) = self.refused(from, to, &packet);
            assert!(to == "node" || arrived.is_empty(), "{from} > {to}: {arrived:x?}");
            assert_eq!(back.len(), 1, "{from} > {to} {packet:x?}: {back:x?}");
            let (start, wanted) = match packet[0] >> 4 {
                4 => (20, [3, 3]),
                _ => (40, [1, 4]),
            };
            assert_eq!(back[0][start..start + 2], wanted, "{from} > {to}");
            // The packet is inside; where it can change on the way is before its addresses.
            let inner = &back[0][start + 8..];
            assert_eq!(packet::destination(inner), packet::destination(&packet));
        }
    }

    /// No packet is answered at all.
    fn all_ignored(&mut self, from: &str, to: &str) {
        for packet in self.packets(from, to) {
            let (back, arrived) = self.refused(from, to, &packet);
            assert!(to == "node" || arrived.is_empty(), "{from} > {to}: {arrived:x?}");
            assert!(back.is_empty(), "{from} > {to}: {back:x?}");
        }
    }
}

/// The database, the spy and the host are closed.
fn policies() -> Vec<Value> {
    let closed = |name: &str, selector: &str, direction: &str| {
        json!({
            "kind": "GlobalNetworkPolicy", "metadata": { "name": name },
            "spec": { "selector": selector, "types": [direction] },
        })
    };
    vec![
        closed("db", "app == 'db'", "Ingress"),
        closed("spy", "app == 'spy'", "Egress"),
        host_endpoint("eth0"),
    ]
}

fn refusing() -> Settings {
    Settings { deny_action: DenyAction::Reject, ..dataplane::settings() }
}

#[test]
fn senders_hear_that_they_are_refused() {
    let around = Surroundings::default;
    let Some(mut scene) = scene(refusing(), around(), &policies()) else { return };
    for (from, to) in [
        ("front/client", "shop/db"),
        ("world", "shop/db"),
        ("dark/spy", "world"),
        ("dark/spy", "front/client"),
        ("dark/spy", "node"),
        ("world", "node"),
    ] {
        scene.all_refused(from, to);
    }
    // Whoever uses the address of another hears nothing, and the other does not, either.
    for forged in scene.packets("front/client", "shop/web") {
        let (back, arrived) = scene.refused("shop/db", "shop/web", &forged);
        assert!(back.is_empty() && arrived.is_empty(), "{back:x?} {arrived:x?}");
    }
    let settings = dataplane::settings();
    let Some(mut scene) = self::scene(settings, around(), &policies()) else { return };
    scene.all_ignored("front/client", "shop/db");
    scene.all_ignored("world", "node");
}

/// The message about a packet that is not tracked would be of no connection, and go nowhere.
#[test]
fn senders_hear_it_before_routing_too_but_not_before_tracking() {
    for sort in ["preDNAT", "doNotTrack"] {
        let mut policy = json!({
            "kind": "GlobalNetworkPolicy", "metadata": { "name": "closed" },
            "spec": {
                "selector": "host == 'n1'", "applyOnForward": true,
                "types": ["Ingress"], "ingress": [{ "action": "Deny" }],
            },
        });
        policy["spec"][sort] = json!(true);
        let objects = [host_endpoint("eth0"), policy];
        let Some(mut scene) = scene(refusing(), Surroundings::default(), &objects) else { return };
        for to in ["shop/web", "node"] {
            match sort {
                "preDNAT" => scene.all_refused("world", to),
                _ => scene.all_ignored("world", to),
            }
        }
    }
}

#[test]
fn addresses_of_services_that_nobody_has_lead_nowhere() {
    let around = || Surroundings {
        service_networks: ["192.0.2.0/24", "2001:db8:2::/64"].map(|it| it.parse().unwrap()).into(),
        ..Surroundings::default()
    };
    let with = |service_loops| Settings { service_loops, ..dataplane::settings() };
    let Some(mut dropping) = scene(with(ServiceLoops::Drop), around(), &[]) else { return };
    dropping.all_ignored("front/client", "world");
    let Some(mut rejecting) = scene(with(ServiceLoops::Reject), around(), &[]) else { return };
    rejecting.all_refused("front/client", "world");
    let Some(mut allowing) = scene(with(ServiceLoops::Allow), around(), &[]) else { return };
    for scene in [&mut dropping, &mut rejecting, &mut allowing] {
        for packet in scene.packets("front/client", "office") {
            assert_eq!(scene.refused("front/client", "office", &packet).1.len(), 1);
        }
    }
    for packet in allowing.packets("front/client", "world") {
        assert_eq!(allowing.refused("front/client", "world", &packet).1.len(), 1);
    }
}
