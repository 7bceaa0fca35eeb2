//! Services by IPVS, as kube-proxy has them in that mode: policy decides about who is behind one as
//! if the packet had gone straight there.
//!
//! IPVS takes packets where they come in, and sends them on as if they were the node's own. Not
//! every kernel has it: `cargo xtask vm` runs these tests on one that does.

use std::net::{IpAddr, SocketAddr};

use kernel::Netns;
use policy::Packet;
use policy::render::{EndpointToHost, Settings};
use serde_json::{Value, json};

use crate::conntrack;
use crate::dataplane::{self, Dataplane};
use crate::errors::error_about;
use crate::hosts::{Service, Stage, contradictions, departures, host_cases, interfaces};
use crate::packet::{self, TCP, UDP};
use crate::probes::{Fate, Probe, Prober};
use crate::semantics::{Case, cases_of, intent_with, report};
use crate::world::{NODE_ADDRESSES, World, run};

const TABLE: &str = include_str!("semantics/services.yaml");
/// Where kube-proxy keeps the addresses of services.
const LINK: &str = "kube-ipvs0";
/// A port of the node that leads to shop/web.
const NODE_PORT: u16 = 30_080;
/// What comes by it gets the address of the node, as kube-proxy has it, by a mark of its own.
const MASQUERADE: &str = "
table inet kube-proxy {
    chain arriving {
        type nat hook prerouting priority -100
        tcp dport 30080 meta mark set meta mark | 0x4000
    }
    chain leaving {
        type nat hook postrouting priority 100
        meta mark & 0x4000 == 0 return
        meta mark set meta mark ^ 0x4000
        masquerade fully-random
    }
}";

fn cases() -> Vec<Case> {
    cases_of("services", TABLE)
}

/// Whether the kernel has IPVS; if not, the reason is on standard error. Who has a kernel for these
/// tests says so in the environment, and wants to hear that they cannot run.
fn has_ipvs(node: &Netns) -> bool {
    let asked = node.enter(|| std::process::Command::new("ipvsadm").arg("-ln").output()).unwrap();
    let reason = match asked {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("ipvsadm: {error}"),
    };
    assert!(std::env::var_os("MARGAY_NEEDS_IPVS").is_none(), "{reason}");
    eprintln!("SKIPPED: services by IPVS: {reason}");
    false
}

/// The namespaces of a stage with services by IPVS.
fn prober(stage: &Stage) -> Option<Prober> {
    let world = stage.world()?;
    if !has_ipvs(&world.node) {
        return None;
    }
    let mut services = stage.services();
    let web = stage.party("shop/web").addresses;
    for (own, behind) in NODE_ADDRESSES.into_iter().zip(web) {
        services.push((TCP, (own, NODE_PORT), (behind, 8080)));
    }
    serve(&world, &services);
    Some(Prober::new(world))
}

/// Sets services up as kube-proxy does.
fn serve(world: &World, services: &[Service]) {
    let mut addresses: Vec<IpAddr> = services.iter().map(|(_, service, _)| service.0).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.retain(|address| !NODE_ADDRESSES.contains(address));
    let mut script = format!("link add {LINK} type dummy\nlink set {LINK} up\n");
    for address in addresses {
        let rest = if address.is_ipv4() { "/32" } else { "/128 nodad" };
        let (length, flags) = rest.split_once(' ').unwrap_or((rest, ""));
        script += &format!("address add {address}{length} dev {LINK} {flags}\n");
    }
    run(&world.node, "ip", &["-batch", "-"], &script);
    let settings = [("conntrack", "1"), ("conn_reuse_mode", "0"), ("expire_nodest_conn", "1")];
    world
        .node
        .enter(|| {
            for (name, value) in settings {
                std::fs::write(format!("/proc/sys/net/ipv4/vs/{name}"), value).unwrap();
            }
        })
        .unwrap();
    let mut lines = String::new();
    for (protocol, service, behind) in services {
        let kind = if *protocol == TCP { "-t" } else { "-u" };
        let (service, behind) = (SocketAddr::from(*service), SocketAddr::from(*behind));
        lines += &format!("-A {kind} {service} -s rr\n");
        lines += &format!("-a {kind} {service} -r {behind} -m -w 1\n");
    }
    run(&world.node, "ipvsadm", &["-R"], &lines);
    run(&world.node, "nft", &["-f", "-"], MASQUERADE);
}

#[test]
fn the_oracle_says_of_services_what_people_say() {
    report(&contradictions(&Stage::new(), &cases()));
}

#[test]
fn destination_nat_and_policy_are_what_the_table_says() {
    let stage = Stage::new();
    let Some(mut prober) = stage.prober() else { return };
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    report(&departures(&stage, &mut prober, &mut dataplane, &cases()));
}

#[test]
fn ipvs_and_policy_are_what_the_table_says() {
    let stage = Stage::new();
    let Some(mut prober) = prober(&stage) else { return };
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    dataplane.has_ipvs = true;
    report(&departures(&stage, &mut prober, &mut dataplane, &cases()));
    let n = (prober.n_arrived, prober.n_dropped);
    assert!(n.0 > 1_000 && n.1 > 100, "{n:?}");
}

#[test]
fn ipvs_and_policy_of_the_host_are_what_the_table_says() {
    let stage = Stage::new();
    let Some(mut prober) = prober(&stage) else { return };
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    dataplane.has_ipvs = true;
    report(&departures(&stage, &mut prober, &mut dataplane, &host_cases()));
}

/// A node with services by IPVS, and policies in force.
struct Node {
    stage: Stage,
    prober: Prober,
    dataplane: Dataplane,
}

fn node(settings: Settings, objects: &[Value]) -> Option<Node> {
    let stage = Stage::new();
    let prober = prober(&stage)?;
    let mut dataplane = Dataplane::new(&prober.world.node, settings);
    dataplane.surroundings.interfaces = interfaces();
    dataplane.install(intent_with(&stage.cluster, objects));
    Some(Node { stage, prober, dataplane })
}

impl Node {
    /// Sends a packet from somebody to somebody, who is asked by another address and port.
    fn send(
        &mut self,
        from: &str,
        to: (&str, u16),
        before: Option<(IpAddr, u16)>,
        v4: bool,
    ) -> Fate {
        let (from, party) = (self.stage.party(from), self.stage.party(to.0));
        let (source, destination) = (from.address(v4), party.address(v4));
        let plain = packet::plain(source, destination, TCP, Some((40_000, to.1)));
        let packet = Packet { before_nat: before, ..plain };
        conntrack::forget(&self.prober.world.node);
        let probe = Probe { from: from.place, to: party.place, packet, is_traced: true };
        self.prober.send(&[probe]).remove(0)
    }

    /// Whether such a packet arrives: the same by the port of the node and straight.
    fn passes_by_node_port(&mut self, from: &str, v4: bool) -> bool {
        let service = (NODE_ADDRESSES[usize::from(!v4)], NODE_PORT);
        let by_port = self.send(from, ("shop/web", 8080), Some(service), v4);
        let straight = self.send(from, ("shop/web", 8080), None, v4);
        let names = |node: &mut Self, fate: &Fate| node.dataplane.names(&fate.trace);
        let met = (names(self, &by_port), names(self, &straight));
        assert_eq!(met.0, met.1, "{from}");
        assert_eq!(by_port.arrived, straight.arrived, "{from}");
        assert!(!by_port.arrived || by_port.answered != Some(false), "{from} hears no answer");
        by_port.arrived
    }
}

/// The web server lets in what these rules say.
fn web(rules: &Value) -> Value {
    json!({
        "kind": "NetworkPolicy", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "selector": "app == 'web'", "ingress": rules },
    })
}

#[test]
fn who_comes_by_a_port_of_the_node_is_held_to_the_policy_of_the_pod() {
    let office = json!([
        { "action": "Allow", "source": { "nets": ["198.51.100.7/32"] } },
        { "action": "Allow", "source": { "nets": ["2001:db8:51::7/128"] } },
    ]);
    let Some(mut node) = node(Settings::default(), &[web(&office)]) else { return };
    for v4 in [true, false] {
        assert!(node.passes_by_node_port("office", v4));
        assert!(!node.passes_by_node_port("world", v4));
        assert!(!node.passes_by_node_port("front/client", v4));
    }
}

/// Nobody serves the port, so the packet is one to the host.
#[test]
fn a_port_that_no_service_has_is_one_of_the_host() {
    for (action, is_open) in [(EndpointToHost::Drop, false), (EndpointToHost::Accept, true)] {
        let settings = Settings { endpoint_to_host: action, ..Settings::default() };
        let Some(mut node) = node(settings, &[]) else { return };
        for v4 in [true, false] {
            let service = node.stage.party("vip").address(v4);
            let own = node.stage.party("front/client").address(v4);
            let question = packet::plain(own, service, TCP, Some((40_000, 81)));
            let client = node.stage.party("front/client").place;
            node.prober.end(client).listen();
            node.prober.end(client).send(service, &packet::build(&question, 1, 0));
            node.prober.settle();
            // Nothing listens there, which the host says if it is asked.
            assert_eq!(!node.prober.end(client).heard().is_empty(), is_open, "{action:?}");
            let served = node.send("front/client", ("shop/web", 8080), Some((service, 80)), v4);
            assert!(served.arrived && served.answered != Some(false), "{action:?}");
        }
    }
}

/// What was begun goes on, as it does without a service, and walks few rules.
#[test]
fn a_connection_by_a_service_outlives_a_policy_that_would_deny_it() {
    let Some(mut node) = node(Settings::default(), &[]) else { return };
    for v4 in [true, false] {
        let service = (node.stage.party("vip").address(v4), 53);
        let (from, to) = (node.stage.party("front/client").clone(), node.stage.party("shop/web"));
        let (source, destination, place) = (from.address(v4), to.address(v4), to.place);
        let plain = packet::plain(source, destination, UDP, Some((40_001, 5000)));
        let packet = Packet { before_nat: Some(service), ..plain };
        let probe =
            || Probe { from: from.place, to: place, packet: packet.clone(), is_traced: true };
        node.dataplane.install(intent_with(&node.stage.cluster, &[]));
        conntrack::forget(&node.prober.world.node);
        let first = node.prober.send(&[probe()]).remove(0);
        assert_eq!((first.arrived, first.answered), (true, Some(true)));
        let closed = web(&json!([{ "action": "Deny" }]));
        node.dataplane.install(intent_with(&node.stage.cluster, &[closed]));
        let later = node.prober.send(&[probe()]).remove(0);
        assert_eq!((later.arrived, later.answered), (true, Some(true)));
        let met = later.trace.iter().filter(|it| it.table == "margay" && it.rule.is_some());
        let met: Vec<&str> = met.map(|step| step.chain.as_str()).collect();
        assert_eq!(met, ["sources", "from-pod", "input", "passed-on"]);
        conntrack::forget(&node.prober.world.node);
        assert!(!node.prober.send(&[probe()]).remove(0).arrived, "it is new");
    }
}

/// What a pod may say of connections by services: that it did not want a packet that it got.
#[test]
fn nobody_breaks_the_connections_of_others_by_errors_to_a_service() {
    let Some(mut node) = node(Settings::default(), &[]) else { return };
    for v4 in [true, false] {
        conntrack::forget(&node.prober.world.node);
        let party = |name: &str| node.stage.cluster.party(name).clone();
        let (client, web, spy) = (party("front/client"), party("shop/web"), party("dark/spy"));
        let service = node.stage.party("vip").address(v4);
        let plain = packet::plain(client.address(v4), web.address(v4), UDP, Some((40_001, 5000)));
        let packet = Packet { before_nat: Some((service, 53)), ..plain };
        let probe = Probe { from: client.place, to: web.place, packet, is_traced: false };
        assert_eq!(node.prober.send(&[probe]).remove(0).answered, Some(true));
        // The answer as the client got it.
        let asked = packet::plain(client.address(v4), service, UDP, Some((40_001, 53)));
        let answer = packet::answer(&asked, 1);
        let kind = if v4 { (3, 3) } else { (1, 4) };
        for (sender, is_heard) in [(&spy, false), (&client, true)] {
            let error = error_about(sender.address(v4), service, kind, &answer);
            node.prober.end(web.place).listen();
            node.prober.end(sender.place).send(service, &error);
            node.prober.settle();
            let heard = node.prober.end(web.place).heard();
            assert_eq!(heard.len(), usize::from(is_heard), "{} {heard:x?}", sender.name);
        }
    }
}

/// An address that a pod may use beside its own leads to no rules if it is one of many: who uses it
/// gets to no service, and straight to where it may.
#[test]
fn who_uses_an_address_of_a_network_gets_to_no_service() {
    let settings = Settings { may_spoof: true, ..Settings::default() };
    let Some(mut node) = node(settings, &[]) else { return };
    let mut intent = intent_with(&node.stage.cluster, &[]);
    let client = node.stage.party("front/client").clone();
    let own: net::Cidr = format!("{}/32", client.address(true)).parse().unwrap();
    let workloads = intent.workloads.values_mut();
    for workload in workloads.filter(|it| it.addresses.contains(&own)) {
        workload.allowed_sources.push("10.77.0.0/16".parse().unwrap());
    }
    node.dataplane.install(intent);
    let (web, service) =
        (node.stage.party("shop/web").clone(), node.stage.party("vip").address(true));
    for (source, is_served) in [(client.address(true), true), ([10, 77, 0, 1].into(), false)] {
        for (before, passes) in [(None, true), (Some((service, 80)), is_served)] {
            conntrack::forget(&node.prober.world.node);
            let plain = packet::plain(source, web.address(true), TCP, Some((40_000, 8080)));
            let packet = Packet { before_nat: before, ..plain };
            let probe = Probe { from: client.place, to: web.place, packet, is_traced: true };
            let fate = node.prober.send(&[probe]).remove(0);
            assert_eq!(fate.arrived, passes, "{source} {before:?} {fate:?}");
        }
    }
}
