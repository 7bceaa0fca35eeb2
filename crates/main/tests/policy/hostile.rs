//! A pod that plays by no rules: what it sends raw gets nowhere that its policies do not allow.

use std::collections::BTreeSet;
use std::net::IpAddr;

use policy::Packet;
use policy::render::{EndpointToHost, Settings};
use serde_json::{Value, json};

use crate::conntrack;
use crate::dataplane::{self, Dataplane};
use crate::errors::error_about;
use crate::objects::{Cluster, Party};
use crate::packet::{self, TCP, UDP, with_network};
use crate::probes::{Place, Probe, Prober};
use crate::semantics::intent_with;

const SYN: u8 = 0x02;

/// A database that the client may reach on one port, and nobody else on any.
fn policies() -> Vec<Value> {
    let rule = json!({
        "action": "Allow", "protocol": "TCP",
        "source": { "selector": "app == 'client'" }, "destination": { "ports": [5432] },
    });
    vec![json!({
        "kind": "GlobalNetworkPolicy", "metadata": { "name": "db" },
        "spec": { "selector": "app == 'db'", "ingress": [rule] },
    })]
}

/// A cluster and somebody who sends packets in it.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) prober: Prober,
}

fn scene() -> Option<Scene> {
    let cluster = Cluster::read();
    let prober = cluster.prober()?;
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    dataplane.install(intent_with(&cluster, &policies()));
    Some(Scene { cluster, prober })
}

impl Scene {
    pub(crate) fn party(&self, name: &str) -> Party {
        self.cluster.party(name).clone()
    }

    /// Sends whole packets from a pod, and gives what comes to another place because of it.
    pub(crate) fn heard(&mut self, from: &str, to: &str, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (from, to) = (self.party(from).place, self.party(to).place);
        self.prober.end(to).listen();
        for packet in packets {
            let destination = destination(packet);
            self.prober.end(from).send(destination, packet);
        }
        self.prober.settle();
        self.prober.end(to).heard()
    }

    /// Nothing of it comes there.
    pub(crate) fn gets_nowhere(&mut self, what: &str, from: &str, to: &str, packets: &[Vec<u8>]) {
        let heard = self.heard(from, to, packets);
        assert!(heard.is_empty(), "{what}: {heard:x?}");
    }
}

fn destination(packet: &[u8]) -> IpAddr {
    match packet[0] >> 4 {
        4 => IpAddr::from(<[u8; 4]>::try_from(&packet[16..20]).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(&packet[24..40]).unwrap()),
    }
}

/// A TCP segment with these flags.
fn segment(packet: &Packet, flags: u8) -> Vec<u8> {
    let (source, destination) = packet.ports.unwrap();
    let mut body = Vec::new();
    body.extend(source.to_be_bytes());
    body.extend(destination.to_be_bytes());
    body.extend([0, 0, 0, 7, 0, 0, 0, 9, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet::seal(packet, &mut body);
    body
}

fn tcp(from: IpAddr, to: IpAddr, port: u16, flags: u8) -> Vec<u8> {
    let packet = packet::plain(from, to, TCP, Some((33_001, port)));
    with_network(&packet, &segment(&packet, flags), 0)
}

#[test]
fn sources_that_are_not_its_own_get_nowhere() {
    let Some(mut scene) = scene() else { return };
    let (client, db) = (scene.party("front/client"), scene.party("shop/db"));
    let (node, world) = (scene.party("node"), scene.party("world"));
    let mut forged: Vec<(IpAddr, IpAddr)> = Vec::new();
    for is_ipv4 in [true, false] {
        let own = db.address(is_ipv4);
        let others = [&client, &node, &world, &db].map(|it| it.address(is_ipv4));
        forged.extend(others.map(|source| (source, own)));
    }
    let (v4, v6) = (db.address(true), db.address(false));
    let odd = ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "169.254.1.1"];
    forged.extend(odd.map(|source| (source.parse().unwrap(), v4)));
    let odd = ["::", "::1", "ff02::1", "fe80::1", "fe80::ecee:eeff:feee:eeee"];
    forged.extend(odd.map(|source| (source.parse().unwrap(), v6)));
    for (source, destination) in forged {
        let packets = [
            tcp(source, destination, 5432, SYN),
            packet::build(&packet::plain(source, destination, UDP, Some((53, 53))), 1, 0),
            packet::build(&packet::plain(source, destination, 253, None), 1, 0),
        ];
        scene.gets_nowhere(&format!("as {source}"), "dark/spy", "shop/db", &packets);
        let to_world = world.address(source.is_ipv4());
        if source != to_world {
            let packets = [tcp(source, to_world, 80, SYN)];
            scene.gets_nowhere(&format!("as {source}"), "dark/spy", "world", &packets);
        }
    }
    // What is its own gets where it may.
    let spy = scene.party("dark/spy");
    let honest = [tcp(spy.address(true), world.address(true), 80, SYN)];
    assert_eq!(scene.heard("dark/spy", "world", &honest).len(), 1);
}

/// Packets of a pod that somebody may have set a guard against: from this source, of this protocol.
fn guarded(source: IpAddr, to: &Party) -> Vec<Packet> {
    let to = to.address(source.is_ipv4());
    let with = |protocol, ports| packet::plain(source, to, protocol, ports);
    let mut packets = vec![with(253, None), with(4, None), with(TCP, Some((33_005, 80)))];
    packets.extend([4789, 4790].map(|port| with(UDP, Some((33_006, port)))));
    if source.is_ipv6() {
        let message = |kind| Packet { icmp: Some((kind, 0)), ..with(packet::ICMPV6, None) };
        packets.extend([128, 134, 137].map(message));
    }
    packets
}

/// What comes before policy is what [`policy::guards`] says, and so what is explained.
#[test]
fn guards_stop_what_the_oracle_says() {
    let cluster = Cluster::read();
    let Some(mut prober) = cluster.prober() else { return };
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    let (spy, client) = (cluster.party("dark/spy"), cluster.party("front/client"));
    let usual = dataplane::settings();
    let free =
        Settings { may_spoof: true, may_send_ipip: true, may_send_vxlan: true, ..usual.clone() };
    let moved = Settings { vxlan_port: 4790, endpoint_to_host: EndpointToHost::Drop, ..usual };
    let (mut found, mut n_free) = (BTreeSet::new(), 0);
    for settings in [dataplane::settings(), free, moved] {
        let mut intent = intent_with(&cluster, &[]);
        for workload in intent.workloads.values_mut() {
            let allowed = ["172.29.0.0/16", "10.99.0.7/32", "fd99::/64"];
            workload.allowed_sources = allowed.map(|net| net.parse().unwrap()).into();
        }
        dataplane.set(settings, intent);
        conntrack::forget(&prober.world.node);
        let odd = ["10.99.0.7", "10.99.0.8", "fd99::7", "fe80::7", "::"];
        let odd = odd.map(|source| source.parse().unwrap());
        let sources = spy.addresses.into_iter().chain(client.addresses).chain(odd);
        let mut probes = Vec::new();
        for source in sources {
            for name in ["shop/db", "world", "node"] {
                let to = cluster.party(name);
                for mut packet in guarded(source, to) {
                    packet.is_of_host = to.place == Place::Node;
                    let is_traced = true;
                    probes.push((to, Probe { from: spy.place, to: to.place, packet, is_traced }));
                }
            }
        }
        let sent: Vec<Probe> = probes.iter().map(|(_, probe)| probe.clone()).collect();
        for ((to, probe), fate) in probes.iter().zip(prober.send(&sent)) {
            let wanted = dataplane.gates().judge(spy, to, &probe.packet);
            let guards = dataplane.guards(&fate.trace);
            let wanted_guards: Vec<String> =
                wanted.guard.iter().map(|why| format!("e:guard:{why}")).collect();
            assert_eq!(guards, wanted_guards, "{} {:?}", to.name, probe.packet);
            assert!(!(wanted.is_denied && fate.arrived), "{} {:?}", to.name, probe.packet);
            found.extend(wanted.guard);
            n_free += usize::from(wanted.guard.is_none());
        }
    }
    use policy::guards::{ADVERTISEMENT, IPIP, REDIRECT, SOURCE, TO_HOST, VXLAN};
    assert_eq!(found, [ADVERTISEMENT, IPIP, REDIRECT, SOURCE, TO_HOST, VXLAN].into());
    assert!(n_free > 50, "{n_free}");
}

#[test]
fn odd_flags_open_nothing() {
    let Some(mut scene) = scene() else { return };
    let (spy, client, db) =
        (scene.party("dark/spy"), scene.party("front/client"), scene.party("shop/db"));
    for is_ipv4 in [true, false] {
        let to = db.address(is_ipv4);
        // All 64 combinations, the first as well as the second packet of a connection.
        for (name, from, port) in [("dark/spy", &spy, 5432), ("front/client", &client, 22)] {
            let flags = (0..64).chain(0..64);
            let packets: Vec<Vec<u8>> =
                flags.map(|flags| tcp(from.address(is_ipv4), to, port, flags)).collect();
            scene.gets_nowhere("flags", name, "shop/db", &packets);
        }
    }
}

/// Cuts what follows the network header into fragments at these places.
fn fragments(packet: &Packet, body: &[u8], pieces: &[(usize, usize, bool)]) -> Vec<Vec<u8>> {
    let cut = |(start, end, has_more): &(usize, usize, bool)| {
        let at = u16::try_from(*start).unwrap();
        match packet.source {
            IpAddr::V4(_) => {
                let mut whole = with_network(packet, &body[*start..*end], 0);
                whole[4..6].copy_from_slice(&[0x77, 0x01]);
                let field = (at / 8) | if *has_more { 0x2000 } else { 0 };
                whole[6..8].copy_from_slice(&field.to_be_bytes());
                whole
            }
            IpAddr::V6(_) => {
                let mut extended = vec![packet.protocol, 0];
                extended.extend((at | u16::from(*has_more)).to_be_bytes());
                extended.extend([0, 0, 0x77, 1]);
                extended.extend(&body[*start..*end]);
                with_network(&Packet { protocol: 44, ..packet.clone() }, &extended, 0)
            }
        }
    };
    pieces.iter().map(cut).collect()
}

#[test]
fn fragments_open_nothing() {
    let Some(mut scene) = scene() else { return };
    let (spy, client, db) =
        (scene.party("dark/spy"), scene.party("front/client"), scene.party("shop/db"));
    for is_ipv4 in [true, false] {
        let to = db.address(is_ipv4);
        for (name, from, port) in [("dark/spy", &spy, 5432), ("front/client", &client, 22)] {
            let from = from.address(is_ipv4);
            let denied = packet::plain(from, to, TCP, Some((33_002, port)));
            let mut body = segment(&denied, SYN);
            body.extend([0; 44]);
            packet::seal(&denied, &mut body);
            let ways: [&[(usize, usize, bool)]; 6] = [
                // In order, backwards, tiny, without a beginning, alone, and over each other.
                &[(0, 32, true), (32, 64, false)],
                &[(32, 64, false), (0, 32, true)],
                &[(0, 8, true), (8, 16, true), (16, 64, false)],
                &[(8, 64, false)],
                &[(0, 64, false)],
                &[(0, 24, true), (8, 64, false)],
            ];
            for pieces in ways {
                let packets = fragments(&denied, &body, pieces);
                scene.gets_nowhere(&format!("{pieces:?}"), name, "shop/db", &packets);
            }
            // A first piece with the port that is allowed, overwritten by one with another.
            let open = packet::plain(from, to, TCP, Some((33_003, 5432)));
            let mut allowed = segment(&open, SYN);
            allowed.extend([0; 44]);
            let mut packets = fragments(&open, &allowed, &[(0, 32, true)]);
            packets.extend(fragments(&denied, &body, &[(0, 32, true), (32, 64, false)]));
            let heard = scene.heard(name, "shop/db", &packets);
            let is_denied = |packet: &Vec<u8>| {
                let start = if is_ipv4 { 20 } else { 40 };
                name == "dark/spy" || packet[start + 2..start + 4] == port.to_be_bytes()
            };
            assert!(!heard.iter().any(is_denied), "{heard:x?}");
        }
    }
}

#[test]
fn options_and_extension_headers_hide_no_port() {
    let Some(mut scene) = scene() else { return };
    let (client, db) = (scene.party("front/client"), scene.party("shop/db"));
    for (port, is_allowed) in [(22, false), (5432, true)] {
        let (from, to) = (client.address(true), db.address(true));
        let mut options = tcp(from, to, port, SYN);
        // Four bytes of nothing, so that the ports are not where they use to be.
        options[0] = 0x46;
        options[2..4].copy_from_slice(&44_u16.to_be_bytes());
        options.splice(20..20, [1, 1, 1, 0]);
        let (from, to) = (client.address(false), db.address(false));
        let packet = packet::plain(from, to, TCP, Some((33_004, port)));
        let body = segment(&packet, SYN);
        let mut extended = vec![options];
        for header in [0, 60] {
            // Hop by hop, and for the destination: eight bytes of padding.
            let mut behind = vec![TCP, 0, 1, 4, 0, 0, 0, 0];
            behind.extend(&body);
            extended.push(with_network(&Packet { protocol: header, ..packet.clone() }, &behind, 0));
        }
        for packet in extended {
            let heard = scene.heard("front/client", "shop/db", std::slice::from_ref(&packet));
            assert_eq!(!heard.is_empty(), is_allowed, "{packet:x?}");
            conntrack::forget(&scene.prober.world.node);
        }
    }
}

#[test]
fn packets_inside_packets_get_nowhere() {
    let Some(mut scene) = scene() else { return };
    let (spy, db, world) = (scene.party("dark/spy"), scene.party("shop/db"), scene.party("world"));
    let inner = tcp(spy.address(true), db.address(true), 5432, SYN);
    for to in [&db, &world] {
        let ipip = packet::plain(spy.address(true), to.address(true), 4, None);
        let packets = [with_network(&ipip, &inner, 0)];
        scene.gets_nowhere("IPIP", "dark/spy", &to.name, &packets);
        for is_ipv4 in [true, false] {
            let (from, to_address) = (spy.address(is_ipv4), to.address(is_ipv4));
            let vxlan = packet::plain(from, to_address, UDP, Some((4789, 4789)));
            let packets = [packet::build(&vxlan, 1, 0)];
            scene.gets_nowhere("VXLAN", "dark/spy", &to.name, &packets);
        }
    }
}

#[test]
fn errors_about_packets_that_never_were_get_nowhere() {
    let Some(mut scene) = scene() else { return };
    let (spy, client, db) =
        (scene.party("dark/spy"), scene.party("front/client"), scene.party("shop/db"));
    for is_ipv4 in [true, false] {
        let [spy, client, db] = [&spy, &client, &db].map(|it| it.address(is_ipv4));
        let inners = [
            // As if the database had spoken to the spy, or to the client.
            tcp(db, spy, 5432, SYN),
            tcp(db, client, 80, SYN),
            // As if others had spoken.
            tcp(client, spy, 80, SYN),
            packet::build(&packet::plain(db, spy, UDP, Some((53, 53))), 1, 0),
            packet::build(&packet::plain(db, spy, 253, None), 1, 0),
            // Cut off.
            tcp(db, spy, 5432, SYN)[..24].to_vec(),
            Vec::new(),
        ];
        for inner in inners {
            let kind = if is_ipv4 { (3, 1) } else { (1, 1) };
            let packets = [error_about(spy, db, kind, &inner)];
            scene.gets_nowhere(&format!("{inner:x?}"), "dark/spy", "shop/db", &packets);
        }
    }
}

#[test]
fn a_hundred_thousand_denied_connections_leave_nothing_behind() {
    let Some(mut scene) = scene() else { return };
    let (spy, db) = (scene.party("dark/spy"), scene.party("shop/db"));
    let Place::Pod(_) = spy.place else { panic!("{spy:?}") };
    let mut n_sent = 0;
    for is_ipv4 in [true, false] {
        let (from, to) = (spy.address(is_ipv4), db.address(is_ipv4));
        for source in (0..50_000_u16).map(|number| 10_000 + number) {
            let packet = packet::plain(from, to, UDP, Some((source, 53)));
            let end = scene.prober.end(spy.place);
            end.send(to, &packet::build(&packet, 1, 0));
            n_sent += 1;
        }
    }
    assert_eq!(n_sent, 100_000);
    let seen = scene.prober.settle();
    assert!(seen.is_empty(), "{seen:?}");
    let node = &scene.prober.world.node;
    let mut tracked = kernel::conntrack::Conntrack::in_netns(node).unwrap();
    let n_left = tracked.connections(None).unwrap().len();
    // The packets behind the last one are connections, too.
    assert!(n_left < 100, "{n_left} connections are remembered");
}
