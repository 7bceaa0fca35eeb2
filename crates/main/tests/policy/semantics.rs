//! The semantic table: policies as people write them, who may reach whom under them, and why.
//!
//! Each case is held to three witnesses: the lines that a person wrote beside it, the oracle, and
//! what the kernel does with packets of every pair, port and protocol.

use std::collections::BTreeSet;

use policy::Cluster as Input;
use policy::Packet;
use policy::intent::Intent;
use policy::reference;
use serde_json::{Value, json};

use crate::conntrack;
use crate::dataplane::{self, Dataplane, difference};
use crate::objects::{self, Cluster, NODE, Party, Shape};
use crate::oracle::{Wanted, wanted};
use crate::packet::{ICMP, ICMPV6, SCTP, TCP, UDP};
use crate::probes::{Fate, Place, Probe, Prober};
use crate::world::run;

const TABLES: [(&str, &str); 5] = [
    ("rules", include_str!("semantics/rules.yaml")),
    ("ports", include_str!("semantics/ports.yaml")),
    ("selectors", include_str!("semantics/selectors.yaml")),
    ("order", include_str!("semantics/order.yaml")),
    ("peers", include_str!("semantics/peers.yaml")),
];

/// A source port that no case speaks of.
const ANY_PORT: u16 = 33_000;

/// A case of the table.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) objects: Vec<Value>,
    pub(crate) lines: Vec<Line>,
    /// Whatever else it says.
    pub(crate) row: Value,
}

/// A line that a person wrote.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) is_allowed: bool,
    pub(crate) by: Option<String>,
}

pub(crate) fn cases() -> Vec<Case> {
    TABLES.into_iter().flat_map(|(table, text)| cases_of(table, text)).collect()
}

pub(crate) fn cases_of(table: &str, text: &str) -> Vec<Case> {
    let rows = text::yaml::parse(text.as_bytes()).unwrap_or_else(|it| panic!("{table}: {it:?}"));
    let case = |row: &Value| {
        let name = format!("{table}: {}", row["case"].as_str().unwrap());
        let mut objects = row["objects"].as_array().unwrap().clone();
        if let Some(n) = row["generate"]["policies"].as_u64() {
            objects.extend((0..n).map(numbered));
        }
        if let Some(n) = row["generate"]["tiers"].as_u64() {
            objects.extend((0..n).flat_map(numbered_tier));
        }
        let mut lines: Vec<String> = Vec::new();
        for line in row["expect"].as_array().unwrap() {
            let line = line.as_str().unwrap_or_else(|| panic!("{name}: {line}"));
            match lines.last_mut() {
                // A comma in a list between brackets.
                Some(last) if !line.contains('>') => *last += &format!(", {line}"),
                _ => lines.push(line.to_owned()),
            }
        }
        let lines = lines.iter().map(|line| Line::read(&name, line)).collect();
        Case { name, objects, lines, row: row.clone() }
    };
    rows.as_array().unwrap().iter().map(case).collect()
}

/// One of many policies: each allows a port, and number 150 denies that of number 200.
fn numbered(number: u64) -> Value {
    let port = |number: u64| json!({ "action": "Allow", "protocol": "TCP", "destination": { "ports": [20_000 + number] } });
    let mut rules = vec![port(number)];
    if number == 150 {
        rules.push(port(200));
        rules[1]["action"] = json!("Deny");
    }
    json!({
        "kind": "GlobalNetworkPolicy", "metadata": { "name": format!("p{number}") },
        "spec": { "order": number, "selector": "app == 'db'", "ingress": rules },
    })
}

/// One of many tiers: each denies a port, allows another, and passes everything else on.
fn numbered_tier(number: u64) -> [Value; 2] {
    let port = |action: &str, first: u64| json!({ "action": action, "protocol": "TCP", "destination": { "ports": [first + number] } });
    let rules = [port("Deny", 21_000), port("Allow", 22_000), json!({ "action": "Pass" })];
    let tier = json!({
        "kind": "Tier", "metadata": { "name": format!("t{number}") }, "spec": { "order": number },
    });
    let policy = json!({
        "kind": "GlobalNetworkPolicy", "metadata": { "name": format!("t{number}.p") },
        "spec": { "tier": format!("t{number}"), "selector": "app == 'db'", "ingress": rules },
    });
    [tier, policy]
}

impl Line {
    /// `FROM > TO PACKET [v4|v6] allow|deny [by RULE]`
    fn read(case: &str, text: &str) -> Self {
        let bad = || -> ! { panic!("{case}: {text:?}") };
        let (line, by) = match text.split_once(" by ") {
            Some((line, by)) => (line, Some(by.to_owned())),
            None => (text, None),
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let (from, to, packet, family, verdict) = match words[..] {
            [from, ">", to, packet, verdict] => (from, to, packet, "", verdict),
            [from, ">", to, packet, family, verdict] => (from, to, packet, family, verdict),
            _ => bad(),
        };
        let mut shapes = Vec::new();
        for is_ipv4 in [true, false] {
            if family == if is_ipv4 { "v6" } else { "v4" } {
                continue;
            }
            shapes.extend(shape(packet, is_ipv4));
        }
        let is_allowed = match verdict {
            "allow" => true,
            "deny" => false,
            _ => bad(),
        };
        if shapes.is_empty() {
            bad();
        }
        let (text, from, to) = (text.to_owned(), from.to_owned(), to.to_owned());
        Self { text, from, to, shapes, is_allowed, by }
    }
}

/// `tcp/80`, `tcp/80@4444`, `ping`, `icmp/8/0`, `proto/253`.
pub(crate) fn shape(text: &str, is_ipv4: bool) -> Option<Shape> {
    let mut parts = text.split('/');
    let name = parts.next()?;
    let with = |protocol, ports, icmp| Some(Shape { is_ipv4, protocol, ports, icmp });
    let mut number = || parts.next()?.parse::<u8>().ok();
    match name {
        "ping" if is_ipv4 => return with(ICMP, None, Some((8, 0))),
        "ping" => return with(ICMPV6, None, Some((128, 0))),
        "icmp" | "icmpv6" => {
            let protocol = if name == "icmp" { ICMP } else { ICMPV6 };
            let icmp = Some((number()?, number()?));
            return with(protocol, None, icmp).filter(|_| is_ipv4 == (name == "icmp"));
        }
        "proto" => return with(number()?, None, None),
        _ => {}
    }
    let protocol = match name {
        "tcp" => TCP,
        "udp" => UDP,
        "sctp" => SCTP,
        _ => return None,
    };
    let (destination, source) = match text.split_once('/')?.1.split_once('@') {
        Some((destination, source)) => (destination, source.parse().ok()?),
        None => (text.split_once('/')?.1, ANY_PORT),
    };
    with(protocol, Some((source, destination.parse().ok()?)), None)
}

/// The packets that go from everybody to everybody.
const SHAPES: [&str; 15] = [
    "tcp/22",
    "tcp/80",
    "tcp/80@4444",
    "tcp/443",
    "tcp/5432",
    "tcp/8080",
    "udp/53",
    "udp/5000",
    "udp/53@8080",
    "ping",
    "icmp/13/0",
    "icmp/8/1",
    "icmpv6/139/0",
    "sctp/80",
    "proto/253",
];

pub(crate) fn all_shapes() -> Vec<Shape> {
    let families = [true, false];
    let of = |text| families.iter().filter_map(move |is_ipv4| shape(text, *is_ipv4));
    SHAPES.into_iter().flat_map(of).collect()
}

/// A probe and what should become of it.
pub(crate) struct Question<'a> {
    pub(crate) from: &'a Party,
    pub(crate) to: &'a Party,
    pub(crate) shape: Shape,
    pub(crate) is_traced: bool,
}

impl Question<'_> {
    /// Whether the kernel takes another packet for one of the same connection: without ports, both
    /// ways are one.
    pub(crate) fn is_one_connection(&self, other: &Self) -> bool {
        let ends = |it: &Self| (it.from.name.clone(), it.to.name.clone());
        let (from, to) = ends(other);
        let has_ways = self.shape.ports.is_some() || self.shape.icmp.is_some();
        self.shape == other.shape
            && (ends(self) == (from.clone(), to.clone()) || (!has_ways && ends(self) == (to, from)))
    }

    fn packet(&self) -> Packet {
        self.shape.packet(self.from, self.to)
    }
}

/// Sends them all, and names those whose fate is not what the oracle says.
pub(crate) fn mismatches(
    prober: &mut Prober,
    dataplane: &mut Dataplane,
    questions: &[Question<'_>],
) -> Vec<String> {
    conntrack::forget(&prober.world.node);
    let probes: Vec<Probe> = questions
        .iter()
        .map(|it| Probe {
            from: it.from.place,
            to: it.to.place,
            packet: it.packet(),
            is_traced: it.is_traced,
        })
        .collect();
    let fates = prober.send(&probes);
    let mut wrong = Vec::new();
    for (question, fate) in questions.iter().zip(fates) {
        let packet = question.packet();
        let wanted = wanted(&dataplane.intent, (question.from, question.to), &packet);
        if let Some(problem) = problem(dataplane, question, &fate, &wanted) {
            let (from, to) = (&question.from.name, &question.to.name);
            wrong.push(format!("{from} > {to} {:?}: {problem}", question.shape));
        }
    }
    wrong
}

fn problem(
    dataplane: &mut Dataplane,
    question: &Question<'_>,
    fate: &Fate,
    wanted: &Wanted,
) -> Option<String> {
    let by = |wanted: &Wanted| wanted.by().map(ToString::to_string);
    if fate.arrived != wanted.is_allowed {
        let names = dataplane.names(&fate.trace);
        return Some(format!("arrived: {}, should: {wanted:?}, met {names:?}", fate.arrived));
    }
    if fate.arrived && fate.answered == Some(false) {
        return Some(format!("its answer is lost; it was allowed by {:?}", by(wanted)));
    }
    if !question.is_traced || question.from.place == Place::Node {
        return None;
    }
    let names = dataplane.names(&fate.trace);
    let mut trail: Vec<String> = wanted.trail.iter().map(policy::RuleName::to_text).collect();
    trail.dedup();
    (names != trail).then(|| format!("it met {names:?}, not {trail:?}"))
}

/// The intent of the node with the objects of a case.
pub(crate) fn intent_with(cluster: &Cluster, objects: &[Value]) -> Intent {
    let mut input = Input::default();
    for object in cluster.objects.iter().chain(objects) {
        input.absorb(objects::changes(object));
    }
    reference::intent(&input, NODE)
}

/// What a person says of a case, and the oracle does not.
fn contradictions(cluster: &Cluster, case: &Case, intent: &Intent) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in &case.lines {
        let (from, to) = (cluster.party(&line.from), cluster.party(&line.to));
        for shape in &line.shapes {
            let wanted = wanted(intent, (from, to), &shape.packet(from, to));
            let by = wanted.by().map(ToString::to_string).unwrap_or_default();
            let is_same_reason = line.by.as_ref().is_none_or(|it| *it == by);
            if wanted.is_allowed != line.is_allowed || !is_same_reason {
                wrong.push(format!("{}: the oracle says {wanted:?}, {by:?}", line.text));
            }
        }
    }
    wrong
}

/// Everything that is asked in a case; one of so many is traced, and all that a person spoke of.
fn questions<'a>(cluster: &'a Cluster, case: &Case, nth: usize, turn: usize) -> Vec<Question<'a>> {
    let mut questions = Vec::new();
    let mut asked = BTreeSet::new();
    let mut ask = |from: &'a Party, to: &'a Party, shape: Shape, is_said: bool| {
        let is_traced = is_said || (questions.len() + turn).is_multiple_of(nth);
        let question = Question { from, to, shape, is_traced };
        // Both ways are one connection where there are no ports.
        let has_ways = shape.ports.is_some() || shape.icmp.is_some();
        let is_asked = !has_ways && asked.contains(&(&to.name, &from.name, shape));
        if !is_asked && asked.insert((&from.name, &to.name, shape)) {
            questions.push(question);
        }
    };
    for line in &case.lines {
        let (from, to) = (cluster.party(&line.from), cluster.party(&line.to));
        line.shapes.iter().for_each(|shape| ask(from, to, *shape, true));
    }
    let mut pairs = cluster.pairs();
    if !turn.is_multiple_of(2) {
        pairs.reverse();
    }
    let shapes = all_shapes();
    for (from, to) in pairs {
        shapes.iter().for_each(|shape| ask(from, to, *shape, false));
    }
    questions
}

pub(crate) fn report(wrong: &[String]) {
    let n_shown = wrong.len().min(40);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..n_shown].join("\n"));
}

#[test]
fn the_oracle_says_what_people_say() {
    let cluster = Cluster::read();
    let cases = cases();
    let n_lines: usize = cases.iter().map(|case| case.lines.len()).sum();
    assert!(cases.len() >= 140 && n_lines >= 300, "{} cases, {n_lines} lines", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let intent = intent_with(&cluster, &case.objects);
        let found = contradictions(&cluster, case, &intent);
        wrong.extend(found.into_iter().map(|it| format!("{}: {it}", case.name)));
    }
    report(&wrong);
}

#[test]
fn the_kernel_does_what_the_table_says() {
    let cluster = Cluster::read();
    let Some(mut prober) = cluster.prober() else { return };
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    let mut wrong = Vec::new();
    for (turn, case) in cases().iter().enumerate() {
        dataplane.install(intent_with(&cluster, &case.objects));
        let questions = questions(&cluster, case, 8, turn);
        let found = mismatches(&mut prober, &mut dataplane, &questions);
        wrong.extend(found.into_iter().map(|it| format!("{}: {it}", case.name)));
    }
    report(&wrong);
    // Of both there is plenty.
    assert!(prober.n_arrived > 20_000 && prober.n_dropped > 20_000);
}

/// What the other tests find, these find, too: a hole, and a rule too many.
#[test]
fn a_kernel_that_does_something_else_is_found_out() {
    let cluster = Cluster::read();
    let Some(mut prober) = cluster.prober() else { return };
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    let closed = cases().into_iter().find(|it| it.name.contains("a deny without conditions"));
    let closed = closed.expect("there is such a case");
    let questions = questions(&cluster, &closed, 8, 0);
    for sabotage in [
        "flush chain inet margay to-workload",
        "flush chain inet margay from-workload",
        "add table inet other
         add chain inet other forward { type filter hook forward priority 10; }
         add rule inet other forward udp dport 5000 drop",
    ] {
        dataplane.install(intent_with(&cluster, &closed.objects));
        assert_eq!(mismatches(&mut prober, &mut dataplane, &questions), Vec::<String>::new());
        run(&prober.world.node, "nft", &["-f", "-"], sabotage);
        let found = mismatches(&mut prober, &mut dataplane, &questions);
        assert!(found.len() > 10, "{sabotage}: {found:?}");
    }
}

/// From each case to the next by an update of what stands, there and back again.
#[test]
fn the_kernel_goes_from_case_to_case() {
    let cluster = Cluster::read();
    let Some(mut prober) = cluster.prober() else { return };
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    dataplane.install(intent_with(&cluster, &[]));
    let mut cases = cases();
    fastrand::Rng::with_seed(7).shuffle(&mut cases);
    let mut wrong = Vec::new();
    for (turn, case) in cases.iter().enumerate() {
        let intent = intent_with(&cluster, &case.objects);
        let dirty = difference(&dataplane.intent, &intent);
        dataplane.update(intent, &dirty);
        let some = questions(&cluster, case, 64, turn).into_iter().enumerate();
        let some = some.filter(|(number, it)| it.is_traced || (number + turn).is_multiple_of(8));
        let some: Vec<Question<'_>> = some.map(|it| it.1).collect();
        let found = mismatches(&mut prober, &mut dataplane, &some);
        wrong.extend(found.into_iter().map(|it| format!("{}: {it}", case.name)));
    }
    report(&wrong);
}

/// What packets of connections that stand cost does not grow with policies.
#[test]
fn a_packet_of_a_known_connection_meets_three_rules() {
    let cluster = Cluster::read();
    let Some(mut prober) = cluster.prober() else { return };
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    let mut many: Vec<Value> = (0..300).map(numbered).collect();
    many.push(json!({
        "kind": "GlobalNetworkPolicy", "metadata": { "name": "last" },
        "spec": {
            "order": 400, "selector": "app == 'db'",
            "ingress": [{ "action": "Allow", "protocol": "UDP" }],
        },
    }));
    dataplane.install(intent_with(&cluster, &many));
    let (client, db) = (cluster.party("front/client"), cluster.party("shop/db"));
    for is_ipv4 in [true, false] {
        let packet = shape("udp/53", is_ipv4).unwrap().packet(client, db);
        let probe = Probe { from: client.place, to: db.place, packet, is_traced: true };
        let n_met = |fate: Fate| {
            assert!(fate.arrived, "{fate:?}");
            fate.trace.iter().filter(|step| step.table == "margay" && step.rule.is_some()).count()
        };
        let first = n_met(prober.send(std::slice::from_ref(&probe)).remove(0));
        let second = n_met(prober.send(&[probe]).remove(0));
        assert!(first > 6, "{first}");
        assert_eq!(second, 3);
    }
}
