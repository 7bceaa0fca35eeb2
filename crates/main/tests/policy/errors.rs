//! Error messages belong to the connection that they are about, and end it: a pod may send them
//! about packets that it got, and about no others.

use std::net::IpAddr;

use policy::render::Settings;
use serde_json::{Value, json};

use crate::dataplane::{self, Dataplane};
use crate::hostile::Scene;
use crate::objects::Cluster;
use crate::packet::{self, ICMP, ICMPV6, UDP, with_network};
use crate::semantics::intent_with;
use crate::world::run;

/// Unreachable in three ways, too big, slow down, elsewhere, too far, and bad.
const ERRORS_V4: [(u8, u8); 7] = [(3, 1), (3, 3), (3, 4), (4, 0), (5, 1), (11, 0), (12, 0)];
const ERRORS_V6: [(u8, u8); 5] = [(1, 0), (1, 4), (2, 0), (3, 0), (4, 0)];

const REASON: &str = "error about a packet of somebody else";

/// A message of some kind about a packet.
pub(crate) fn error_about(
    from: IpAddr,
    to: IpAddr,
    (kind, code): (u8, u8),
    inner: &[u8],
) -> Vec<u8> {
    let protocol = if from.is_ipv4() { ICMP } else { ICMPV6 };
    let packet = packet::plain(from, to, protocol, None);
    // The size that would fit, in the place of either family.
    let mut body = vec![kind, code, 0, 0, 0, 0, 5, 220];
    body.extend(inner);
    packet::seal(&packet, &mut body);
    with_network(&packet, &body, 0)
}

/// Only the client reaches the database, and only by one way.
fn policies() -> Vec<Value> {
    let rule = json!({
        "action": "Allow", "protocol": "UDP",
        "source": { "selector": "app == 'client'" }, "destination": { "ports": [53] },
    });
    vec![json!({
        "kind": "GlobalNetworkPolicy", "metadata": { "name": "db" },
        "spec": { "selector": "app == 'db'", "ingress": [rule] },
    })]
}

/// A question and its answer, as they were sent.
struct Talk {
    question: Vec<u8>,
    answer: Vec<u8>,
}

impl Scene {
    /// Lets one party ask another and get its answer.
    fn talk(&mut self, asks: &str, answers: &str, is_ipv4: bool) -> Talk {
        let (from, to) = (self.party(asks), self.party(answers));
        let ends = (from.address(is_ipv4), to.address(is_ipv4));
        let packet = packet::plain(ends.0, ends.1, UDP, Some((5353, 53)));
        let question = packet::build(&packet, 1, 0);
        let answer = packet::answer(&packet, 1);
        let heard = self.heard(asks, answers, std::slice::from_ref(&question));
        assert_eq!(heard.len(), 1, "{asks} is not heard by {answers}");
        let heard = self.heard(answers, asks, std::slice::from_ref(&answer));
        assert_eq!(heard.len(), 1, "{answers} is not heard by {asks}");
        Talk { question, answer }
    }

    /// How many packets the rules counted that drop errors about others' packets.
    fn n_named(&self) -> usize {
        let node = &self.prober.world.node;
        let rules = run(node, "nft", &["list", "table", "inet", "margay"], "");
        let named = rules.lines().filter(|it| it.contains(&format!("guard:{REASON}")));
        let count = |line: &str| {
            let (_, count) = line.split_once("counter packets ")?;
            count.split_whitespace().next()?.parse::<usize>().ok()
        };
        named.filter_map(count).sum()
    }
}

fn scene(settings: Settings) -> Option<(Scene, Dataplane)> {
    let cluster = Cluster::read();
    let prober = cluster.prober()?;
    let mut dataplane = Dataplane::new(&prober.world.node, settings);
    dataplane.install(intent_with(&cluster, &policies()));
    Some((Scene { cluster, prober }, dataplane))
}

fn kinds(is_ipv4: bool) -> &'static [(u8, u8)] {
    if is_ipv4 { &ERRORS_V4 } else { &ERRORS_V6 }
}

#[test]
fn nobody_breaks_the_connections_of_others_by_error_messages() {
    let Some((mut scene, _)) = scene(dataplane::settings()) else { return };
    let mut n_sent = 0;
    for is_ipv4 in [true, false] {
        let [spy, client, db, world] = ["dark/spy", "front/client", "shop/db", "world"]
            .map(|name| scene.party(name).address(is_ipv4));
        let inside = scene.talk("front/client", "shop/db", is_ipv4);
        let outside = scene.talk("front/client", "world", is_ipv4);
        for kind in kinds(is_ipv4) {
            for (victim, name, inner) in [
                (client, "front/client", &inside.question),
                (db, "shop/db", &inside.answer),
                (client, "front/client", &outside.question),
                (world, "world", &outside.answer),
            ] {
                let forged = [error_about(spy, victim, *kind, inner)];
                scene.gets_nowhere(&format!("{kind:?} to {name}"), "dark/spy", name, &forged);
                n_sent += 1;
            }
        }
        assert_eq!(scene.n_named(), n_sent, "each of them is dropped by name");
        // Without the rule they would arrive, even where no policy lets the spy through.
        let chain = format!("error-of-workload{}", if is_ipv4 { 4 } else { 6 });
        let open = format!("insert rule inet margay {chain} accept");
        run(&scene.prober.world.node, "nft", &["-f", "-"], &open);
        let forged = [error_about(spy, db, kinds(is_ipv4)[1], &inside.answer)];
        assert_eq!(scene.heard("dark/spy", "shop/db", &forged).len(), 1);
    }
}

#[test]
fn errors_about_packets_that_a_pod_got_arrive() {
    let Some((mut scene, _)) = scene(dataplane::settings()) else { return };
    for is_ipv4 in [true, false] {
        let [client, db, world] =
            ["front/client", "shop/db", "world"].map(|name| scene.party(name).address(is_ipv4));
        let inside = scene.talk("front/client", "shop/db", is_ipv4);
        let outside = scene.talk("front/client", "world", is_ipv4);
        for kind in kinds(is_ipv4).iter().filter(|it| it.0 != 5) {
            for (from, to, names, inner) in [
                (db, client, ("shop/db", "front/client"), &inside.question),
                (client, db, ("front/client", "shop/db"), &inside.answer),
                (client, world, ("front/client", "world"), &outside.answer),
                // Nobody knows which router of the world it may have come by.
                (world, client, ("world", "front/client"), &outside.question),
            ] {
                let honest = [error_about(from, to, *kind, inner)];
                let heard = scene.heard(names.0, names.1, &honest);
                assert_eq!(heard.len(), 1, "{kind:?} {names:?}");
            }
        }
    }
    assert_eq!(scene.n_named(), 0);
}

/// A pod that is a router speaks of packets to those behind it.
#[test]
fn errors_about_packets_to_networks_behind_a_pod_arrive() {
    let settings = Settings { may_spoof: true, ..dataplane::settings() };
    let Some((mut scene, mut dataplane)) = scene(settings) else { return };
    let mut intent = dataplane.intent.clone();
    for workload in intent.workloads.values_mut().filter(|it| it.interface == "calidarkspy") {
        workload.allowed_sources =
            ["10.77.0.0/24", "fd77::/64"].map(|net| net.parse().unwrap()).to_vec();
    }
    dataplane.install(intent);
    for (net, via) in [("10.77.0.0/24", "10.65.0.5"), ("fd77::/64", "fd65::5")] {
        let words = ["route", "add", net, "via", via, "dev", "calidarkspy", "onlink"];
        run(&scene.prober.world.node, "ip", &words, "");
    }
    for (is_ipv4, behind, beside) in
        [(true, "10.77.0.9", "10.78.0.9"), (false, "fd77::9", "fd78::9")]
    {
        let [spy, world] = ["dark/spy", "world"].map(|name| scene.party(name).address(is_ipv4));
        let [behind, beside]: [IpAddr; 2] = [behind, beside].map(|it| it.parse().unwrap());
        let to = |destination| packet::plain(world, destination, UDP, Some((5353, 53)));
        let question = packet::build(&to(behind), 1, 0);
        scene.heard("world", "dark/spy", std::slice::from_ref(&question));
        let honest = [error_about(spy, world, kinds(is_ipv4)[1], &question)];
        assert_eq!(scene.heard("dark/spy", "world", &honest).len(), 1);
        let forged =
            [error_about(spy, world, kinds(is_ipv4)[1], &packet::build(&to(beside), 1, 0))];
        scene.gets_nowhere("about somebody beside", "dark/spy", "world", &forged);
    }
}
