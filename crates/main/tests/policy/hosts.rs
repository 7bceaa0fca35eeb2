//! The node's own endpoints: packets to it, from it and through it do what the oracle says, and the
//! rules that they meet are those that the oracle names.

use std::collections::BTreeSet;
use std::net::IpAddr;

use net::Cidr;
use policy::Packet;
use policy::guards::Guards;
use policy::intent::Intent;
use policy::interfaces::Interfaces;
use policy::render::{EndpointToHost, Failsafe, Settings, Surroundings};
use serde_json::{Value, json};

use crate::conntrack;
use crate::dataplane::{self, Dataplane, difference};
use crate::gates::{Gates, Passage};
use crate::objects::{Cluster, Party, Shape};
use crate::packet::{TCP, UDP};
use crate::probes::{Fate, Place, Probe, Prober};
use crate::semantics::{Case, Line, cases_of, intent_with, report, shape};
use crate::world::{ASIDE_ADDRESSES, NODE_ADDRESSES, SIDE_ADDRESSES, World, run};

const TABLE: &str = include_str!("semantics/hosts.yaml");

/// The packets that go from everybody to everybody.
const SHAPES: [&str; 10] = [
    "tcp/22",
    "tcp/80",
    "tcp/80@4444",
    "tcp/443",
    "tcp/8080",
    "udp/53",
    "udp/5000",
    "ping",
    "proto/253",
    "icmpv6/139/0",
];

/// A way that is always open, so that it is known when nothing is under way any more.
pub(crate) const LAST: Failsafe = Failsafe { protocol: UDP, port: 9, net: None };

/// Addresses of services, and who is behind each.
const SERVICES: [(&str, [&str; 2], &str); 3] = [
    ("vip", ["10.96.0.10", "fd96::10"], "shop/web"),
    ("vipnode", ["10.96.0.11", "fd96::11"], "node"),
    ("viplab", ["10.96.0.12", "fd96::12"], "lab"),
];
/// Their ports, and those behind them.
const SERVICE_PORTS: [(u8, u16, u16); 2] = [(TCP, 80, 8080), (UDP, 53, 5000)];

/// A port of a service: its protocol, its address and port, and those of who is behind it.
pub(crate) type Service = (u8, (IpAddr, u16), (IpAddr, u16));

/// Those who take part, by name.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    parties: Vec<Party>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let cluster = Cluster::read();
        let named = ["node", "world", "office", "shop/web", "front/client"];
        let mut parties: Vec<Party> = named.map(|name| cluster.party(name).clone()).to_vec();
        let (name, place) = ("lab".to_owned(), Place::Aside);
        parties.push(Party { name, place, addresses: ASIDE_ADDRESSES });
        for (name, addresses, behind) in SERVICES {
            let behind = parties.iter().find(|it| it.name == behind).unwrap();
            let addresses = addresses.map(|it| it.parse().unwrap());
            parties.push(Party { name: name.to_owned(), place: behind.place, addresses });
        }
        Self { cluster, parties }
    }

    pub(crate) fn party(&self, name: &str) -> &Party {
        let found = self.parties.iter().find(|it| it.name == name);
        found.unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Each port of each service, by its protocol, address and who is behind it.
    pub(crate) fn services(&self) -> Vec<Service> {
        let mut found = Vec::new();
        for (name, _, behind) in SERVICES {
            let ends = self.party(name).addresses.into_iter().zip(self.party(behind).addresses);
            for (service, behind) in ends {
                found.extend(
                    SERVICE_PORTS
                        .map(|(protocol, from, to)| (protocol, (service, from), (behind, to))),
                );
            }
        }
        found
    }

    /// The namespaces.
    pub(crate) fn world(&self) -> Option<World> {
        Some(self.cluster.world()?.with_side())
    }

    /// The namespaces, with a table that leads to what is behind services.
    pub(crate) fn prober(&self) -> Option<Prober> {
        let prober = Prober::new(self.world()?);
        let mut rules = String::new();
        for (protocol, service, behind) in self.services() {
            let ip = if service.0.is_ipv4() { "ip" } else { "ip6" };
            let protocol = if protocol == TCP { "tcp" } else { "udp" };
            let to = std::net::SocketAddr::from(behind);
            let (address, port) = service;
            rules += &format!("{ip} daddr {address} {protocol} dport {port} dnat {ip} to {to}\n");
        }
        let chain = |name, hook| {
            format!("chain {name} {{ type nat hook {hook} priority -100\n{rules} }}\n")
        };
        let table = format!(
            "table inet services {{ {}{} }}",
            chain("arriving", "prerouting"),
            chain("leaving", "output")
        );
        run(&prober.world.node, "nft", &["-f", "-"], &table);
        Some(prober)
    }

    /// The packet of a shape between two parties; none if nobody is behind a service's port.
    fn packet(&self, from: &Party, to: &Party, shape: Shape) -> Option<Packet> {
        let service = SERVICES.iter().find(|(name, _, _)| *name == to.name);
        let Some((_, _, behind)) = service else { return Some(shape.packet(from, to)) };
        let (source, port) = shape.ports?;
        let (_, _, behind_port) = SERVICE_PORTS
            .into_iter()
            .find(|(protocol, from, _)| (*protocol, *from) == (shape.protocol, port))?;
        let shape = Shape { ports: Some((source, behind_port)), ..shape };
        let packet = shape.packet(from, self.party(behind));
        Some(Packet { before_nat: Some((to.address(shape.is_ipv4), port)), ..packet })
    }

    /// Who is behind a party.
    fn behind<'a>(&'a self, party: &'a Party) -> &'a Party {
        let service = SERVICES.iter().find(|(name, _, _)| *name == party.name);
        service.map_or(party, |(_, _, behind)| self.party(behind))
    }

    /// Everything that is asked: what people spoke of, and then everybody and everybody else.
    pub(crate) fn questions<'a>(&'a self, lines: &[Line], turn: usize) -> Vec<Question<'a>> {
        let mut questions: Vec<Question<'a>> = Vec::new();
        let mut asked = BTreeSet::new();
        let mut ask = |from: &'a Party, to: &'a Party, shape: Shape, is_said: bool| {
            let (sender, receiver) = (self.behind(from), self.behind(to));
            let is_service = sender.name != from.name;
            let is_outside = sender.place == receiver.place && sender.place == Place::Remote;
            if is_service || is_outside || sender.name == receiver.name {
                return;
            }
            let Some(packet) = self.packet(from, to, shape) else { return };
            // Both ways are one connection where there are no ports.
            let has_ways = shape.ports.is_some() || shape.icmp.is_some();
            if !has_ways && asked.contains(&(&to.name, &from.name, shape)) {
                return;
            }
            if asked.insert((&from.name, &to.name, shape)) {
                let is_traced = is_said || (questions.len() + turn).is_multiple_of(4);
                questions.push(Question { from, to, receiver, packet, is_traced });
            }
        };
        for line in lines {
            let (from, to) = (self.party(&line.from), self.party(&line.to));
            line.shapes.iter().for_each(|shape| ask(from, to, *shape, true));
        }
        let shapes = || SHAPES.iter().flat_map(|it| [true, false].map(|v4| shape(it, v4)));
        for (from, to) in
            self.parties.iter().flat_map(|from| self.parties.iter().map(move |to| (from, to)))
        {
            shapes().flatten().for_each(|shape| ask(from, to, shape, false));
        }
        questions
    }

    /// The intent of the node with the objects of a case.
    pub(crate) fn intent(&self, case: &Case) -> Intent {
        let hosts = case.row["hosts"].as_array().unwrap().iter();
        let mut objects: Vec<Value> =
            hosts.map(|name| host_endpoint(name.as_str().unwrap())).collect();
        objects.extend(case.objects.iter().cloned());
        intent_with(&self.cluster, &objects)
    }
}

/// A packet from somebody to somebody.
#[derive(Clone)]
pub(crate) struct Question<'a> {
    from: &'a Party,
    to: &'a Party,
    /// Who is behind it.
    receiver: &'a Party,
    packet: Packet,
    is_traced: bool,
}

/// An endpoint of the node by the name that cases give it.
pub(crate) fn host_endpoint(name: &str) -> Value {
    let (by, spec) = match name {
        "eth0" | "eth1" => ("name", json!({ "node": "n1", "interfaceName": name })),
        "side" => ("address", json!({ "node": "n1", "expectedIPs": [SIDE_ADDRESSES[0]] })),
        "side6" => ("address", json!({ "node": "n1", "expectedIPs": [SIDE_ADDRESSES[1]] })),
        "all" => ("star", json!({ "node": "n1", "interfaceName": "*" })),
        name => panic!("there is no endpoint {name}"),
    };
    let labels = json!({ "host": "n1", "by": by });
    json!({
        "kind": "HostEndpoint", "metadata": { "name": name, "labels": labels }, "spec": spec,
    })
}

/// The interfaces of the node.
pub(crate) fn interfaces() -> Interfaces {
    let lo = [IpAddr::from([127, 0, 0, 1]), "::1".parse().unwrap()];
    [("eth0", NODE_ADDRESSES), ("eth1", SIDE_ADDRESSES), ("lo", lo)]
        .map(|(name, addresses)| (name.to_owned(), addresses.into()))
        .into()
}

/// The settings of a case.
fn settings(case: &Case) -> Settings {
    let mut settings = dataplane::settings();
    let listed = |name: &str| -> Vec<Failsafe> {
        let texts = case.row["failsafes"][name].as_array().into_iter().flatten();
        texts.map(|text| failsafe(text.as_str().unwrap())).collect()
    };
    if case.row["failsafes"] != "default" {
        settings.failsafe_inbound = listed("inbound");
        settings.failsafe_outbound = listed("outbound");
    }
    settings.failsafe_outbound.push(LAST);
    settings.endpoint_to_host = match case.row["toHost"].as_str() {
        Some("Drop") => EndpointToHost::Drop,
        Some("Return") => EndpointToHost::Return,
        _ => EndpointToHost::Accept,
    };
    settings
}

/// `tcp/22` or `udp/53@10.0.0.0/8`
fn failsafe(text: &str) -> Failsafe {
    let (port, net) = match text.split_once('@') {
        Some((port, net)) => (port, Some(net.parse::<Cidr>().unwrap())),
        None => (text, None),
    };
    let shape = shape(port, true).unwrap();
    Failsafe { protocol: shape.protocol, port: shape.ports.unwrap().1, net }
}

/// What should become of a packet, and whether its answer comes back.
fn wanted(dataplane: &Dataplane, question: &Question<'_>) -> (Passage, Option<bool>) {
    let gates = dataplane.gates();
    let (from, to, packet) = (question.from, question.receiver, &question.packet);
    let passage = gates.judge(from, to, packet);
    // Whose question is not tracked, the answer to that is news.
    let is_answered = if passage.is_untracked { None } else { gates.is_answered(from, to, packet) };
    (passage, is_answered)
}

/// Sends everything of a case, and names what does not do what the oracle says.
pub(crate) fn mismatches(
    prober: &mut Prober,
    dataplane: &mut Dataplane,
    questions: &[Question<'_>],
) -> Vec<String> {
    conntrack::forget(&prober.world.node);
    let probe = |it: &Question<'_>| Probe {
        from: it.from.place,
        to: it.receiver.place,
        packet: it.packet.clone(),
        is_traced: it.is_traced,
    };
    let probes: Vec<Probe> = questions.iter().map(probe).collect();
    let fates = prober.send(&probes);
    let mut wrong = Vec::new();
    for (question, fate) in questions.iter().zip(fates) {
        let wanted = wanted(dataplane, question);
        // What is not tracked is not translated, so it never gets to who is behind a service.
        if wanted.0.is_untracked && question.packet.before_nat.is_some() {
            continue;
        }
        if let Some(problem) = problem(dataplane, question, &fate, &wanted) {
            let (from, to, packet) = (&question.from.name, &question.to.name, &question.packet);
            wrong.push(format!("{from} > {to} {packet:?}: {problem}"));
        }
    }
    wrong
}

fn problem(
    dataplane: &mut Dataplane,
    question: &Question<'_>,
    fate: &Fate,
    (wanted, is_answered): &(Passage, Option<bool>),
) -> Option<String> {
    let names = dataplane.names(&fate.trace);
    if fate.arrived == wanted.is_denied {
        return Some(format!("arrived: {}, should: {wanted:?}, met {names:?}", fate.arrived));
    }
    if let (true, Some(found), Some(wanted)) = (fate.arrived, fate.answered, is_answered)
        && found != *wanted
    {
        return Some(format!("answered: {found}, should: {wanted}"));
    }
    let mut trail: Vec<String> = wanted.trail.iter().map(policy::RuleName::to_text).collect();
    trail.dedup();
    (question.is_traced && names != trail).then(|| format!("it met {names:?}, not {trail:?}"))
}

/// What the oracle says of cases, and people do not.
pub(crate) fn contradictions(stage: &Stage, cases: &[Case]) -> Vec<String> {
    let around = Surroundings { interfaces: interfaces(), ..Surroundings::default() };
    let mut wrong = Vec::new();
    for case in cases {
        let (intent, settings) = (stage.intent(case), settings(case));
        let guards = Guards { settings: &settings, around: &around };
        let gates = Gates { intent: &intent, guards, has_ipvs: false };
        for line in &case.lines {
            let (from, to) = (stage.party(&line.from), stage.party(&line.to));
            for shape in &line.shapes {
                let packet = stage.packet(from, to, *shape).unwrap();
                let found = gates.judge(from, stage.behind(to), &packet);
                let is_same_reason = line.by.as_ref().is_none_or(|it| *it == found.by());
                if found.is_denied == line.is_allowed || !is_same_reason {
                    wrong.push(format!("{}: {}: the oracle says {found:?}", case.name, line.text));
                }
            }
        }
    }
    wrong
}

/// What the kernel does in cases, and the oracle does not say.
pub(crate) fn departures(
    stage: &Stage,
    prober: &mut Prober,
    dataplane: &mut Dataplane,
    cases: &[Case],
) -> Vec<String> {
    dataplane.surroundings.interfaces = interfaces();
    let mut wrong = Vec::new();
    for (turn, case) in cases.iter().enumerate() {
        let (settings, intent) = (settings(case), stage.intent(case));
        // Sometimes by an update of what stands, where that can be.
        if *dataplane.settings() == settings && turn % 2 == 1 {
            let dirty = difference(&dataplane.intent, &intent);
            dataplane.update(intent, &dirty);
        } else {
            dataplane.set(settings, intent);
        }
        let questions = stage.questions(&case.lines, turn);
        let found = mismatches(prober, dataplane, &questions);
        wrong.extend(found.into_iter().map(|it| format!("{}: {it}", case.name)));
    }
    wrong
}

/// The cases of the node's own endpoints.
pub(crate) fn host_cases() -> Vec<Case> {
    cases_of("hosts", TABLE)
}

#[test]
fn the_oracle_says_of_hosts_what_people_say() {
    let cases = host_cases();
    let n_lines: usize = cases.iter().map(|case| case.lines.len()).sum();
    assert!(cases.len() >= 33 && n_lines >= 160, "{} cases, {n_lines} lines", cases.len());
    report(&contradictions(&Stage::new(), &cases));
}

#[test]
fn the_kernel_does_with_the_host_what_the_table_says() {
    let stage = Stage::new();
    let Some(mut prober) = stage.prober() else { return };
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    report(&departures(&stage, &mut prober, &mut dataplane, &host_cases()));
    let n = (prober.n_arrived, prober.n_dropped);
    assert!(n.0 > 10_000 && n.1 > 4_000, "{n:?}");
}
