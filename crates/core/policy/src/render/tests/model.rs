//! A kernel of our own: it takes the steps of a plan, refuses what the real one refuses, and runs
//! packets through the rules.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nft::expression::{Comparison, Ct, Header, LookupResult, Meta, Target};
use nft::set::SetKind;
use nft::{Chain, Element, ElementValue, Expression, Key, Rule, Set, Source, Verdict};

use super::super::plan::{In, Sink};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Model {
    pub(super) sets: BTreeMap<(In, String), (Set, Elements)>,
    pub(super) chains: BTreeMap<(In, String), (Chain, Vec<Rule>)>,
}

type Elements = BTreeMap<Key, Option<Verdict>>;

/// The chains and sets that a rule names.
fn named(rule: &Rule) -> (Vec<&String>, Vec<&String>) {
    let (mut chains, mut sets) = (Vec::new(), Vec::new());
    for expression in &rule.expressions {
        match expression {
            Expression::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) => chains.push(chain),
            Expression::Lookup { set, .. } => sets.push(set),
            _ => {}
        }
    }
    (chains, sets)
}

impl Sink for Model {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn add_set(&mut self, table: In, set: &Set) {
        let known = self.sets.entry((table, set.name.clone()));
        let (known, _) = known.or_insert_with(|| (set.clone(), BTreeMap::new()));
        assert_eq!(known, set, "another set is there");
    }

    fn add_chain(&mut self, table: In, chain: &Chain) {
        let known = self.chains.entry((table, chain.name.clone()));
        let (known, _) = known.or_insert_with(|| (chain.clone(), Vec::new()));
        assert_eq!(known, chain, "another chain is there");
    }

    fn flush_set(&mut self, table: In, set: &Set) {
        self.sets.get_mut(&(table, set.name.clone())).expect("a set").1.clear();
    }

    fn delete_elements(&mut self, table: In, set: &Set, elements: &[Element]) {
        let (known, there) = self.sets.get_mut(&(table, set.name.clone())).expect("a set");
        assert_eq!(known, set);
        for element in elements {
            assert!(there.remove(&element.key).is_some(), "{element:?} is not in {}", set.name);
        }
    }

    fn add_elements(&mut self, table: In, set: &Set, elements: &[Element]) {
        let (known, there) = self.sets.get_mut(&(table, set.name.clone())).expect("a set");
        assert_eq!(known, set);
        for element in elements {
            let verdict = match &element.value {
                Some(ElementValue::Verdict(verdict)) => Some(verdict.clone()),
                _ => None,
            };
            if let Some(Verdict::Goto(chain) | Verdict::Jump(chain)) = &verdict {
                assert!(self.chains.contains_key(&(table, chain.clone())), "no chain {chain}");
            }
            if set.has_ranges && set.key.len() == 1 {
                let overlaps = |other: &Key| {
                    bounds(other).0 <= bounds(&element.key).1
                        && bounds(&element.key).0 <= bounds(other).1
                };
                assert!(!there.keys().any(overlaps), "{element:?} overlaps in {}", set.name);
            }
            assert_eq!(set.kind == SetKind::Verdicts, verdict.is_some());
            assert!(there.insert(element.key.clone(), verdict).is_none(), "{element:?} twice");
        }
    }

    fn flush_chain(&mut self, table: In, chain: &str) {
        self.chains.get_mut(&(table, chain.to_owned())).expect("a chain").1.clear();
    }

    fn add_rule(&mut self, table: In, rule: &Rule) {
        let (chains, sets) = named(rule);
        for chain in chains {
            assert!(self.chains.contains_key(&(table, chain.clone())), "no chain {chain}");
        }
        for set in sets {
            assert!(self.sets.contains_key(&(table, set.clone())), "no set {set}");
        }
        let text = rule.comment.clone().unwrap_or_default();
        assert!(text.len() < 128, "{text}");
        self.chains.get_mut(&(table, rule.chain.clone())).expect("a chain").1.push(rule.clone());
    }

    fn delete_set(&mut self, table: In, set: &str) {
        let rules = self.chains.values().flat_map(|(_, rules)| rules);
        assert!(!rules.clone().any(|rule| named(rule).1.iter().any(|it| *it == set)), "{set}");
        assert!(self.sets.remove(&(table, set.to_owned())).is_some(), "no set {set}");
    }

    fn delete_chain(&mut self, table: In, chain: &str) {
        let (_, rules) = self.chains.remove(&(table, chain.to_owned())).expect("a chain");
        assert!(rules.is_empty(), "chain {chain} has rules");
        let mut rules = self.chains.values().flat_map(|(_, rules)| rules);
        let is_named = rules.any(|rule| named(rule).0.iter().any(|it| *it == chain));
        assert!(!is_named, "{chain} is used");
        let leads = |it: &Option<Verdict>| match it {
            Some(Verdict::Goto(to) | Verdict::Jump(to)) => to == chain,
            _ => false,
        };
        assert!(!self.sets.values().any(|(_, all)| all.values().any(leads)), "{chain} is used");
    }
}

fn bounds(key: &Key) -> (&[u8], &[u8]) {
    match key {
        Key::One(key) => (key, key),
        Key::Range(first, last) => (first, last),
        Key::Rest => (&[], &[]),
    }
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(super) struct OnTheWay {
    pub(super) packet: crate::Packet,
    pub(super) came_by: String,
    pub(super) leaves_by: String,
    pub(super) mark: u32,
    /// Whether IPVS has sent it on, so that nothing tells any more by which interface it came.
    pub(super) is_sent_on: bool,
}

impl OnTheWay {
    pub(super) fn new(packet: crate::Packet, came_by: &str, leaves_by: &str) -> Self {
        let (came_by, leaves_by) = (came_by.to_owned(), leaves_by.to_owned());
        Self { packet, came_by, leaves_by, mark: 0, is_sent_on: false }
    }
}

/// What becomes of it, and the comments of the rules that it met.
#[derive(Debug, PartialEq)]
pub(super) struct Fate {
    pub(super) is_accepted: bool,
    pub(super) met: Vec<String>,
    pub(super) is_tracked: bool,
    pub(super) n_walked: usize,
}

enum Step {
    Next,
    Done(bool),
}

impl Model {
    /// Lets packets pass all rules of hosts' endpoints.
    pub(super) fn forget_hosts(&mut self) {
        for ((_, name), (_, rules)) in &mut self.chains {
            if name.starts_with("host-") {
                rules.clear();
            }
        }
    }

    /// Whether there is such a chain.
    pub(super) fn has(&self, chain: &str) -> bool {
        self.chains.contains_key(&(In::Inet, chain.to_owned()))
    }

    /// Whether packets of IPVS from an address lead to the rules of a workload.
    pub(super) fn knows_sender(&self, address: IpAddr) -> bool {
        let name = if address.is_ipv4() { "sender4" } else { "sender6" };
        self.sets[&(In::Inet, name.to_owned())].1.contains_key(&Key::address(address))
    }

    /// Sends a packet through base chains one after the other, as far as it comes.
    pub(super) fn send_along(&self, way: &[&str], packet: &mut OnTheWay) -> (bool, Vec<String>) {
        let mut met = Vec::new();
        for chain in way.iter().filter(|chain| self.has(chain)) {
            packet.is_sent_on = *chain == "passed-on";
            let fate = self.send(chain, packet);
            met.extend(fate.met);
            if !fate.is_accepted {
                return (false, met);
            }
        }
        (true, met)
    }

    /// Sends a packet through a base chain.
    pub(super) fn send(&self, chain: &str, packet: &mut OnTheWay) -> Fate {
        let mut fate = Fate { is_accepted: true, met: Vec::new(), is_tracked: true, n_walked: 0 };
        if let Step::Done(is_accepted) = self.walk(chain, packet, &mut fate, 0) {
            fate.is_accepted = is_accepted;
        }
        fate
    }

    fn walk(&self, chain: &str, packet: &mut OnTheWay, fate: &mut Fate, level: usize) -> Step {
        assert!(level < 16, "too many links");
        let Some((_, rules)) = self.chains.get(&(In::Inet, chain.to_owned())) else {
            panic!("no chain {chain}");
        };
        for rule in rules {
            fate.n_walked += 1;
            let Some(verdict) = self.evaluate(rule, packet, fate) else { continue };
            match verdict {
                Verdict::Continue => {}
                Verdict::Accept => return Step::Done(true),
                Verdict::Drop => return Step::Done(false),
                Verdict::Return => return Step::Next,
                Verdict::Goto(chain) => return self.walk(&chain, packet, fate, level + 1),
                Verdict::Jump(chain) => {
                    if let done @ Step::Done(_) = self.walk(&chain, packet, fate, level + 1) {
                        return done;
                    }
                }
            }
        }
        Step::Next
    }

    fn evaluate(&self, rule: &Rule, packet: &mut OnTheWay, fate: &mut Fate) -> Option<Verdict> {
        let mut registers = [0_u8; 64];
        let mut verdict = Verdict::Continue;
        for expression in &rule.expressions {
            let goes_on = match expression {
                Expression::Lookup { register, set, result } => {
                    let found = self.find(set, &registers[slot(register)..]);
                    match result {
                        LookupResult::Member { is_inverted } => found.is_some() != *is_inverted,
                        LookupResult::Verdict => {
                            verdict = found??;
                            true
                        }
                        LookupResult::Value(_) => unreachable!(),
                    }
                }
                Expression::Verdict(it) => {
                    verdict = it.clone();
                    true
                }
                Expression::Reject(_) => {
                    verdict = Verdict::Drop;
                    true
                }
                Expression::NoTrack => {
                    fate.is_tracked = false;
                    true
                }
                other => compute(other, &mut registers, packet)?,
            };
            if !goes_on {
                return None;
            }
        }
        if let Some(comment) = &rule.comment
            && fate.met.last() != Some(comment)
        {
            fate.met.push(comment.clone());
        }
        Some(verdict)
    }

    fn find(&self, set: &str, key: &[u8]) -> Option<Option<Verdict>> {
        let (set, elements) = self.sets.get(&(In::Inet, set.to_owned())).expect("a set");
        let fields: Vec<usize> = set.key.iter().map(|it| it.n_bytes() as usize).collect();
        let inside = |one: &Key| {
            let (first, last) = bounds(one);
            let mut at = 0;
            fields.iter().all(|len| {
                let (from, to) = (at, at + len);
                at = to.next_multiple_of(4);
                first[from..to] <= key[from..to] && key[from..to] <= last[from..to]
            })
        };
        elements.iter().find(|(one, _)| inside(one)).map(|(_, verdict)| verdict.clone())
    }
}

fn slot(register: &nft::Register) -> usize {
    let text = format!("{register:?}");
    text.trim_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().unwrap() * 4
}

/// Steps that look at registers and packets only: whether the rule goes on.
fn compute(step: &Expression, registers: &mut [u8; 64], packet: &mut OnTheWay) -> Option<bool> {
    Some(match step {
        Expression::Load { source, register } => {
            let value = load(*source, packet)?;
            let at = slot(register);
            registers[at..at + value.len().next_multiple_of(4)].fill(0);
            registers[at..at + value.len()].copy_from_slice(&value);
            true
        }
        Expression::Compare { register, operator, value } => {
            let at = slot(register);
            let is_equal = registers[at..at + value.len()] == value[..];
            match operator {
                Comparison::Equal => is_equal,
                Comparison::NotEqual => !is_equal,
                _ => unreachable!(),
            }
        }
        Expression::Range { register, is_inverted, first, last } => {
            let at = slot(register);
            let found = &registers[at..at + first.len()];
            (first.as_slice() <= found && found <= last.as_slice()) != *is_inverted
        }
        Expression::Bitwise { register, mask, xor } => {
            let at = slot(register);
            for (number, (mask, xor)) in mask.iter().zip(xor).enumerate() {
                registers[at + number] = (registers[at + number] & mask) ^ xor;
            }
            true
        }
        Expression::Store { target: Target::Meta(Meta::Mark), register } => {
            let at = slot(register);
            packet.mark = u32::from_ne_bytes(registers[at..at + 4].try_into().unwrap());
            true
        }
        Expression::Constant { register, value } => {
            let at = slot(register);
            registers[at..at + value.len()].copy_from_slice(value);
            true
        }
        // One packet exceeds no rate.
        Expression::Update { .. } => false,
        Expression::Counter { .. } | Expression::Limit { .. } | Expression::Log { .. } => true,
        other => panic!("{other:?}"),
    })
}

fn load(source: Source, on_the_way: &OnTheWay) -> Option<Vec<u8>> {
    let packet = &on_the_way.packet;
    let name = |name: &str| {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(16, 0);
        bytes
    };
    Some(match source {
        Source::Meta(Meta::InputName) if on_the_way.is_sent_on => name(""),
        Source::Meta(Meta::InputName) => name(&on_the_way.came_by),
        Source::Meta(Meta::OutputName) => name(&on_the_way.leaves_by),
        Source::Meta(Meta::Family) => vec![if packet.source.is_ipv4() { 2 } else { 10 }],
        Source::Meta(Meta::TransportProtocol) => vec![packet.protocol],
        Source::Meta(Meta::Mark) => on_the_way.mark.to_ne_bytes().to_vec(),
        Source::Ct(Ct::Status) => {
            u32::from(packet.before_nat.is_some()).wrapping_shl(5).to_ne_bytes().to_vec()
        }
        Source::Ct(Ct::State) => 8_u32.to_ne_bytes().to_vec(),
        Source::Payload { header, offset, len } => {
            let (from, len) = (offset as usize, len as usize);
            let bytes = match header {
                Header::Network => network(packet.source, packet.destination),
                _ => transport(packet),
            };
            bytes.get(from..from + len)?.to_vec()
        }
        // All other addresses that somebody asks for are this host's.
        Source::Fib { .. } if on_the_way.is_sent_on => 1_u32.to_ne_bytes().to_vec(),
        Source::Fib { .. } => 2_u32.to_ne_bytes().to_vec(),
        other => panic!("{other:?}"),
    })
}

fn network(source: IpAddr, destination: IpAddr) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [&[0; 12][..], &from.octets(), &to.octets()].concat(),
        (IpAddr::V6(from), IpAddr::V6(to)) => [&[0; 8][..], &from.octets(), &to.octets()].concat(),
        _ => panic!("two families"),
    }
}

fn transport(packet: &crate::Packet) -> Vec<u8> {
    match (packet.ports, packet.icmp) {
        (Some((from, to)), _) => [from.to_be_bytes(), to.to_be_bytes(), [0; 2], [0; 2]].concat(),
        // Something that would match if it were taken for a port.
        (None, Some((kind, code))) => vec![kind, code, 0, 80, 0, 0, 0, 0],
        (None, None) => vec![0, 80, 0, 80, 0, 0, 0, 0],
    }
}
