//! What leaves the pools does so under the address of the node, and answers find their way back.

use std::net::IpAddr;

use policy::guards::Guards;
use policy::render::{Settings, Surroundings};

use crate::conntrack;
use crate::dataplane::{self, Dataplane};
use crate::hostile::Scene;
use crate::objects::Cluster;
use crate::packet::{self, ICMP, ICMPV6, TCP, UDP};
use crate::semantics::intent_with;
use crate::world::NODE_ADDRESSES;

/// The pools of the cluster, and that one of them whose packets get another source.
fn surroundings() -> Surroundings {
    Surroundings {
        pools: ["10.65.0.0/16", "fd65::/31"].map(|it| it.parse().unwrap()).into(),
        nat_outgoing: ["10.65.0.0/24", "fd65::/64"].map(|it| it.parse().unwrap()).into(),
        ..Surroundings::default()
    }
}

/// A scene, and what decides about sources in it.
struct Outside {
    scene: Scene,
    settings: Settings,
    around: Surroundings,
}

fn outside(settings: Settings, around: Surroundings) -> Option<Outside> {
    let cluster = Cluster::read();
    let prober = cluster.prober()?;
    let mut dataplane = Dataplane::new(&prober.world.node, settings.clone());
    dataplane.surroundings = around.clone();
    dataplane.install(intent_with(&cluster, &[]));
    Some(Outside { scene: Scene { cluster, prober }, settings, around })
}

/// What a packet says of its ends.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    source: IpAddr,
    ports: Option<(u16, u16)>,
}

fn header(bytes: &[u8]) -> Header {
    let source = packet::source(bytes).unwrap();
    let start = if source.is_ipv4() { 20 } else { 40 };
    let protocol = if source.is_ipv4() { bytes[9] } else { bytes[6] };
    let port = |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
    let has_ports = [TCP, UDP].contains(&protocol);
    Header { source, ports: has_ports.then(|| (port(start), port(start + 2))) }
}

impl Scene {
    /// A packet of each sort from a pod, as they come to somebody outside, answered by them.
    fn outside(&mut self, from: &str, to: &str, is_ipv4: bool) -> Vec<Header> {
        let (sender, receiver) = (self.party(from), self.party(to));
        let (source, destination) = (sender.address(is_ipv4), receiver.address(is_ipv4));
        let icmp = if is_ipv4 { ICMP } else { ICMPV6 };
        let mut headers = Vec::new();
        conntrack::forget(&self.prober.world.node);
        for (number, protocol) in (1_u16..).zip([TCP, UDP, icmp, 253]) {
            let ports = [TCP, UDP].contains(&protocol).then_some((40_000 + number, 80));
            let mut packet = packet::plain(source, destination, protocol, ports);
            packet.icmp = (protocol == icmp).then_some((if is_ipv4 { 8 } else { 128 }, 0));
            let bytes = packet::build(&packet, number.into(), 0);
            let heard = self.heard(from, to, &[bytes]);
            assert_eq!(heard.len(), 1, "{from} > {to} {protocol}: {heard:x?}");
            let seen = header(&heard[0]);
            if protocol == UDP {
                let (own, port) = seen.ports.unwrap();
                let question = packet::plain(seen.source, destination, UDP, Some((own, port)));
                let answer = packet::answer(&question, 7);
                let heard = self.heard(to, from, &[answer]);
                assert_eq!(heard.len(), 1, "the answer of {to} to {from} is lost");
                let expected = Header { source: destination, ports: Some((80, 40_000 + number)) };
                assert_eq!(header(&heard[0]), expected);
            }
            headers.push(seen);
        }
        headers
    }
}

impl Outside {
    fn addresses(&self, name: &str) -> [IpAddr; 2] {
        self.scene.party(name).addresses
    }

    /// All packets of a pod come to somebody under an address, which the oracle knows.
    fn seen_as(&mut self, from: &str, to: &str, addresses: [IpAddr; 2]) {
        let guards = Guards { settings: &self.settings, around: &self.around };
        for is_ipv4 in [true, false] {
            let wanted = addresses[usize::from(!is_ipv4)];
            let (sender, receiver) = (self.scene.party(from), self.scene.party(to));
            let packet =
                packet::plain(sender.address(is_ipv4), receiver.address(is_ipv4), TCP, None);
            let told = guards.source_outside(&packet, &NODE_ADDRESSES, Some("eth0"));
            assert_eq!(told, wanted, "{from} > {to}");
            for header in self.scene.outside(from, to, is_ipv4) {
                assert_eq!(header.source, wanted, "{from} > {to}");
            }
        }
    }
}

#[test]
fn what_leaves_the_pools_has_the_address_of_the_node() {
    let Some(mut scene) = outside(dataplane::settings(), surroundings()) else { return };
    let web = scene.addresses("shop/web");
    scene.seen_as("shop/web", "world", NODE_ADDRESSES);
    scene.seen_as("dark/spy", "office", NODE_ADDRESSES);
    scene.seen_as("shop/web", "front/client", web);
    // In another pool, which has no such wish.
    scene.seen_as("shop/web", "shop/far", web);
    let far = scene.addresses("shop/far");
    scene.seen_as("shop/far", "shop/web", far);
    let world = scene.addresses("world");
    scene.seen_as("world", "shop/web", world);
}

#[test]
fn without_the_wish_sources_stay_what_they_are() {
    let around = Surroundings { nat_outgoing: Default::default(), ..surroundings() };
    let Some(mut scene) = outside(dataplane::settings(), around) else { return };
    let web = scene.addresses("shop/web");
    scene.seen_as("shop/web", "world", web);
}

#[test]
fn what_leaves_the_pools_has_the_address_and_the_ports_that_are_set() {
    let settings = Settings {
        nat_address: Some([172, 29, 0, 77].into()),
        nat_ports: Some((20_000, 20_009)),
        nat_interface: Some("eth+".to_owned()),
        ..dataplane::settings()
    };
    let Some(mut scene) = outside(settings, surroundings()) else { return };
    let addresses = [IpAddr::from([172, 29, 0, 77]), NODE_ADDRESSES[1]];
    scene.seen_as("shop/web", "world", addresses);
    for is_ipv4 in [true, false] {
        for header in scene.scene.outside("front/client", "world", is_ipv4) {
            if let Some((port, _)) = header.ports {
                assert!((20_000..=20_009).contains(&port), "{header:?}");
            }
        }
    }
}

#[test]
fn other_interfaces_and_hosts_that_are_spared_see_the_pod() {
    let settings = Settings { nat_interface: Some("eth1".to_owned()), ..dataplane::settings() };
    let Some(mut scene) = outside(settings, surroundings()) else { return };
    let web = scene.addresses("shop/web");
    scene.seen_as("shop/web", "world", web);
    let office = scene.addresses("office");
    let around = Surroundings { host_addresses: office.into(), ..surroundings() };
    let settings = Settings { nat_spares_hosts: true, ..dataplane::settings() };
    let Some(mut scene) = outside(settings, around) else { return };
    scene.seen_as("shop/web", "office", web);
    scene.seen_as("shop/web", "world", NODE_ADDRESSES);
}
