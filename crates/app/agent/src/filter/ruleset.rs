//! The filter as sets, chains and rules, and the difference between two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use intent::{Access, Filter, Port, Source as Sender};
use ipnet::IpNet;
use kernel::nft::expression::{Comparison, Ct, LookupResult, Meta, nat_flags};
use kernel::nft::{
    Base, Batch, Chain, ChainKind, DataType, Element, Expression, Hook, Key, Register, Rule, Set,
    Source, TableId, Verdict, merged,
};
use sandbox::identity::HOST_INTERFACE_PREFIX;
use sandbox::wiring::GATEWAY_V6;
use sha1::{Digest, Sha1};

use super::tables;

/// The beginning of the names of all sandboxes' interfaces.
const PREFIX: &[u8] = HOST_INTERFACE_PREFIX.as_bytes();
const IN: Source = Source::Meta(Meta::InputName);
const OUT: Source = Source::Meta(Meta::OutputName);
const FAMILY: Source = Source::Meta(Meta::Family);
const IPV4: &[u8] = &[2];
const IPV6: &[u8] = &[10];
const ICMPV6: &[u8] = &[58];
/// Of a connection that is established, or belongs to one that is.
const KNOWN: u32 = (1 << 1) | (1 << 2);

/// Everything in our tables.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ruleset {
    /// The sets and maps with their elements, by table and name.
    pub(super) sets: BTreeMap<(usize, String), Filled>,
    /// The chains of permissions, by name.
    pub(super) chains: BTreeMap<String, Vec<Rule>>,
}

/// A set with its elements, by key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filled {
    pub(super) set: Set,
    pub(super) elements: BTreeMap<Key, Element>,
}

/// Which of our tables.
pub(super) const INET: usize = 0;
const ARP: usize = 1;

/// The map from interfaces to the chains of what reaches them.
pub(super) const PORTS: &str = "to";

impl Ruleset {
    pub(super) fn of(filter: &Filter) -> Self {
        let mut ruleset = Self { sets: BTreeMap::new(), chains: BTreeMap::new() };
        ruleset.put_ports(&filter.ports);
        for (id, members) in &filter.members {
            let (name4, name6) = member_sets(id);
            let of = |is_ipv4: bool| {
                let family = members.iter().filter(move |address| address.is_ipv4() == is_ipv4);
                family.map(|address| Element::member(Key::address(*address))).collect()
            };
            ruleset.put(INET, Set::new(&name4, &[DataType::Ipv4]), of(true));
            ruleset.put(INET, Set::new(&name6, &[DataType::Ipv6]), of(false));
        }
        for (name, pools) in [("pools", &filter.pools), ("nat", &filter.nat_outgoing)] {
            for (family, data_type) in [(4, DataType::Ipv4), (6, DataType::Ipv6)] {
                let networks = pools.iter().filter(|cidr| cidr.is_ipv4() == (family == 4));
                let ranges = merged(networks.map(|cidr| IpNet::from(*cidr)));
                let set = Set::new(&format!("{name}{family}"), &[data_type]).with_ranges();
                ruleset.put(INET, set, ranges.into_iter().map(Element::member).collect());
            }
        }
        ruleset
    }

    fn put_ports(&mut self, ports: &BTreeMap<String, Port>) {
        let named = [DataType::LinkName];
        let v4 = [DataType::LinkName, DataType::Ipv4];
        let v6 = [DataType::LinkName, DataType::Ipv6];
        let mut source4 = Vec::new();
        let mut source6 = Vec::new();
        let mut senders = Vec::new();
        let mut to = Vec::new();
        let mut names = BTreeMap::new();
        for (interface, port) in ports {
            let name = Key::link_name(interface);
            for address in &port.addresses {
                let pair = Key::concatenation(&[name.clone(), Key::address(*address)]);
                let list = if address.is_ipv4() { &mut source4 } else { &mut source6 };
                list.push(Element::member(pair));
            }
            if port.may_send {
                senders.push(Element::member(name.clone()));
            }
            let chain = names.entry(&port.access).or_insert_with(|| access_chain(&port.access));
            to.push(Element::verdict(name, Verdict::Goto(chain.clone())));
        }
        self.put(ARP, Set::new("source4", &v4), source4.clone());
        self.put(INET, Set::new("source4", &v4), source4);
        self.put(INET, Set::new("source6", &v6), source6);
        self.put(INET, Set::new("senders", &named), senders);
        self.put(INET, Set::new(PORTS, &named).to_verdicts(), to);
        for (access, chain) in names {
            let rules = access_rules(&chain, access);
            self.chains.insert(chain, rules);
        }
    }

    fn put(&mut self, table: usize, set: Set, elements: Vec<Element>) {
        let elements = elements.into_iter().map(|element| (element.key.clone(), element)).collect();
        self.sets.insert((table, set.name.clone()), Filled { set, elements });
    }

    /// Everything anew, in the place of whatever stands under our names.
    pub(super) fn install(&self, batch: &mut Batch) {
        let tables = tables();
        for table in &tables {
            batch.reset_table(table);
        }
        let ids: Vec<TableId> = tables.into_iter().map(|table| table.id).collect();
        for ((table, _), filled) in &self.sets {
            batch.add_set(&ids[*table], &filled.set);
        }
        for chain in self.chains.keys() {
            batch.add_chain(&ids[INET], &Chain::plain(chain));
        }
        for rule in self.chains.values().flatten() {
            batch.add_rule(&ids[INET], rule);
        }
        for ((table, _), filled) in &self.sets {
            let elements: Vec<Element> = filled.elements.values().cloned().collect();
            if !elements.is_empty() {
                batch.add_elements(&ids[*table], &filled.set, &elements);
            }
        }
        for (table, chain, rules) in base_chains() {
            batch.add_chain(&ids[table], &chain);
            for rule in rules {
                batch.add_rule(&ids[table], &rule);
            }
        }
    }

    /// What to change where the filter `installed` stands, so that it becomes the wanted one. The
    /// work follows the difference: what both have is compared and no more.
    pub(super) fn change(wanted: &Filter, installed: &Filter, batch: &mut Batch) {
        let (mut to, mut from) =
            (Self::of(&apart(wanted, installed)), Self::of(&apart(installed, wanted)));
        to.chains = chains(wanted);
        from.chains = chains(installed);
        to.replace(&from, batch);
    }

    fn replace(&self, installed: &Self, batch: &mut Batch) {
        let ids: Vec<TableId> = tables().into_iter().map(|table| table.id).collect();
        let empty = BTreeMap::new();
        for (key, filled) in &self.sets {
            if !installed.sets.contains_key(key) {
                batch.add_set(&ids[key.0], &filled.set);
            }
        }
        for (chain, rules) in &self.chains {
            if !installed.chains.contains_key(chain) {
                batch.add_chain(&ids[INET], &Chain::plain(chain));
                rules.iter().for_each(|rule| batch.add_rule(&ids[INET], rule));
            }
        }
        for (key, filled) in &self.sets {
            let before = installed.sets.get(key).map_or(&empty, |filled| &filled.elements);
            let gone = missing(before, &filled.elements);
            let fresh = missing(&filled.elements, before);
            if !gone.is_empty() {
                batch.delete_elements(&ids[key.0], &filled.set, &gone);
            }
            if !fresh.is_empty() {
                batch.add_elements(&ids[key.0], &filled.set, &fresh);
            }
        }
        for chain in installed.chains.keys().filter(|chain| !self.chains.contains_key(*chain)) {
            batch.flush_chain(&ids[INET], chain);
            batch.delete_chain(&ids[INET], chain);
        }
        for key in installed.sets.keys().filter(|key| !self.sets.contains_key(*key)) {
            batch.delete_set(&ids[key.0], &key.1);
        }
    }
}

/// What the first has and the second does not have just so. Groups of senders that both have stay,
/// with the members that only the first has: their sets are there either way.
fn apart(of: &Filter, from: &Filter) -> Filter {
    let ports = of.ports.iter().filter(|(name, port)| from.ports.get(*name) != Some(port));
    let members = of.members.iter().map(|(id, members)| match from.members.get(id) {
        Some(known) => (id.clone(), members.difference(known).copied().collect()),
        None => (id.clone(), members.clone()),
    });
    Filter {
        ports: ports.map(|(name, port)| (name.clone(), port.clone())).collect(),
        members: members.collect(),
        pools: of.pools.clone(),
        nat_outgoing: of.nat_outgoing.clone(),
    }
}

/// The chains of permissions of all interfaces.
fn chains(filter: &Filter) -> BTreeMap<String, Vec<Rule>> {
    let distinct: BTreeSet<&Access> = filter.ports.values().map(|port| &port.access).collect();
    let named = distinct.into_iter().map(|access| {
        let chain = access_chain(access);
        let rules = access_rules(&chain, access);
        (chain, rules)
    });
    named.collect()
}

/// Where an interface with these addresses must be: table, set and key.
pub(super) fn membership(interface: &str, addresses: &[IpAddr]) -> Vec<(usize, &'static str, Key)> {
    let name = Key::link_name(interface);
    let mut places = vec![(INET, PORTS, name.clone())];
    for address in addresses {
        let pair = Key::concatenation(&[name.clone(), Key::address(*address)]);
        let set = if address.is_ipv4() { "source4" } else { "source6" };
        places.push((INET, set, pair));
    }
    places
}

/// The elements of the first that the second does not have just so.
fn missing(of: &BTreeMap<Key, Element>, from: &BTreeMap<Key, Element>) -> Vec<Element> {
    of.iter()
        .filter(|(key, element)| from.get(key) != Some(element))
        .map(|it| it.1.clone())
        .collect()
}

/// The chain for those who may be reached by these.
fn access_chain(access: &Access) -> String {
    let digest = Sha1::digest(format!("{access:?}").as_bytes());
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("to-{hex}")
}

fn member_sets(id: &str) -> (String, String) {
    let name: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    (format!("m4-{name}"), format!("m6-{name}"))
}

fn access_rules(chain: &str, access: &Access) -> Vec<Rule> {
    let mut rules = Vec::new();
    for sender in access {
        match sender {
            Sender::Anybody => rules.push(Rule::new(chain).verdict(Verdict::Accept)),
            Sender::Members(id) => {
                let (name4, name6) = member_sets(id);
                let v4 = Rule::new(chain).when(FAMILY, IPV4).when_in(Source::IPV4_SOURCE, &name4);
                rules.push(v4.verdict(Verdict::Accept));
                let v6 = Rule::new(chain).when(FAMILY, IPV6).when_in(Source::IPV6_SOURCE, &name6);
                rules.push(v6.verdict(Verdict::Accept));
            }
        }
    }
    rules.push(Rule::new(chain).counted().verdict(Verdict::Drop).comment("no profile allows it"));
    rules
}

/// The chains that stand still.
fn base_chains() -> Vec<(usize, Chain, Vec<Rule>)> {
    let filter = |hook, priority| Base::new(ChainKind::Filter, hook, priority);
    vec![
        (INET, Chain::plain("from-pod"), from_pod()),
        (
            INET,
            Chain::based("sources", filter(Hook::Prerouting, -300)),
            vec![Rule::new("sources").when(IN, PREFIX).verdict(Verdict::Jump("from-pod".into()))],
        ),
        (INET, Chain::based("forward", filter(Hook::Forward, 0)), forward()),
        (INET, Chain::based("input", filter(Hook::Input, 0)), input()),
        (
            INET,
            Chain::based("outgoing", Base::new(ChainKind::Nat, Hook::Postrouting, 100)),
            outgoing(),
        ),
        (ARP, Chain::based("neighbours", filter(Hook::Input, 0)), neighbours()),
    ]
}

/// A pair of interface and address, in a set of pairs or not.
fn pair(rule: Rule, address: Source, set: &str, is_inverted: bool) -> Rule {
    let second = Register::slot(4).expect("there are 16 slots");
    rule.with(Expression::Load { source: IN, register: Register::FIRST })
        .with(Expression::Load { source: address, register: second })
        .with(Expression::Lookup {
            register: Register::FIRST,
            set: set.to_owned(),
            result: LookupResult::Member { is_inverted },
        })
}

/// What a sandbox may send at all: from its own addresses, and no message of a router.
fn from_pod() -> Vec<Rule> {
    let rule = || Rule::new("from-pod");
    let icmpv6 = |kind: u8| {
        rule().when(Source::Meta(Meta::TransportProtocol), ICMPV6).when(Source::ICMP_TYPE, &[kind])
    };
    let prefix = |rule: Rule, source: Source, operator: Comparison| {
        let register = Register::FIRST;
        rule.with(Expression::Load { source, register })
            .with(Expression::Bitwise { register, mask: vec![0xff, 0xc0], xor: vec![0, 0] })
            .with(Expression::Compare { register, operator, value: vec![0xfe, 0x80] })
    };
    let link_local = |rule: Rule| prefix(rule, Source::network(8, 2), Comparison::Equal);
    // The start and the whole of the address that a neighbour advertisement speaks for.
    let (start, target) = (Source::transport(8, 2), Source::transport(8, 16));
    let spoken_for = prefix(icmpv6(136), start, Comparison::NotEqual);
    let mut rules = vec![
        icmpv6(134).counted().verdict(Verdict::Drop).comment("router advertisement"),
        icmpv6(137).counted().verdict(Verdict::Drop).comment("redirect"),
        icmpv6(136)
            .when(target, &GATEWAY_V6.octets())
            .counted()
            .verdict(Verdict::Drop)
            .comment("neighbour advertisement for the gateway"),
        pair(spoken_for, target, "source6", true)
            .counted()
            .verdict(Verdict::Drop)
            .comment("neighbour advertisement for an address that is not the endpoint's"),
        pair(rule().when(FAMILY, IPV4), Source::IPV4_SOURCE, "source4", false)
            .verdict(Verdict::Return),
        pair(rule().when(FAMILY, IPV6), Source::IPV6_SOURCE, "source6", false)
            .verdict(Verdict::Return),
    ];
    // Neighbour discovery and group membership come from link-local addresses, or from none.
    for kind in [133, 135, 136, 131, 132, 143] {
        rules.push(link_local(icmpv6(kind)).verdict(Verdict::Return));
    }
    for kind in [135, 143] {
        rules.push(icmpv6(kind).when(Source::IPV6_SOURCE, &[0; 16]).verdict(Verdict::Return));
    }
    rules.push(rule().counted().verdict(Verdict::Drop).comment("source is not the endpoint's"));
    rules
}

fn forward() -> Vec<Rule> {
    let rule = || Rule::new("forward");
    let members = LookupResult::Member { is_inverted: true };
    vec![
        rule().when_any_bit(Source::Ct(Ct::State), KNOWN).verdict(Verdict::Accept),
        rule()
            .when(IN, PREFIX)
            .with(Expression::Load { source: IN, register: Register::FIRST })
            .with(Expression::Lookup {
                register: Register::FIRST,
                set: "senders".to_owned(),
                result: members,
            })
            .counted()
            .verdict(Verdict::Drop)
            .comment("the sandbox may not send"),
        rule().when(OUT, PREFIX).dispatch(OUT, PORTS),
        rule().when(OUT, PREFIX).counted().verdict(Verdict::Drop).comment("not yet committed"),
    ]
}

/// From sandboxes to this host: neighbour discovery and answers only, as Calico has it.
fn input() -> Vec<Rule> {
    let rule = || Rule::new("input");
    let mut rules = vec![
        rule().unless(IN, PREFIX).verdict(Verdict::Accept),
        rule().when_any_bit(Source::Ct(Ct::State), KNOWN).verdict(Verdict::Accept),
    ];
    for kind in [131, 132, 133, 135, 136, 143] {
        rules.push(
            rule()
                .when(Source::Meta(Meta::TransportProtocol), ICMPV6)
                .when(Source::ICMP_TYPE, &[kind])
                .verdict(Verdict::Accept),
        );
    }
    rules.push(rule().counted().verdict(Verdict::Drop).comment("sandbox to host"));
    rules
}

/// Packets that leave the pools get the node's address.
fn outgoing() -> Vec<Rule> {
    let one = |family: &[u8], from: Source, to: Source, nat: &str, pools: &str| {
        Rule::new("outgoing")
            .when(FAMILY, family)
            .when_in(from, nat)
            .with(Expression::Load { source: to, register: Register::FIRST })
            .with(Expression::Lookup {
                register: Register::FIRST,
                set: pools.to_owned(),
                result: LookupResult::Member { is_inverted: true },
            })
            .with(Expression::Masquerade { flags: nat_flags::RANDOM_FULLY, ports: None })
    };
    vec![
        one(IPV4, Source::IPV4_SOURCE, Source::IPV4_DESTINATION, "nat4", "pools4"),
        one(IPV6, Source::IPV6_SOURCE, Source::IPV6_DESTINATION, "nat6", "pools6"),
    ]
}

/// A sandbox speaks for its own address only.
fn neighbours() -> Vec<Rule> {
    let rule = || Rule::new("neighbours").when(IN, PREFIX);
    vec![
        pair(rule(), Source::ARP_SENDER, "source4", true)
            .counted()
            .verdict(Verdict::Drop)
            .comment("ARP for an address that is not the endpoint's"),
    ]
}

#[cfg(test)]
mod tests {

    use super::*;

    fn port(last: u8, access: &[Sender]) -> Port {
        Port {
            addresses: BTreeSet::from([IpAddr::from([10, 0, 0, last])]),
            access: access.iter().cloned().collect(),
            may_send: last.is_multiple_of(2),
        }
    }

    /// Filters that differ in one thing or in several.
    fn filters() -> Vec<Filter> {
        let members = |id: &str| Sender::Members(id.to_owned());
        let of = |ports: &[(&str, Port)], groups: &[(&str, &[u8])]| Filter {
            ports: ports.iter().map(|(name, port)| ((*name).to_owned(), port.clone())).collect(),
            members: groups
                .iter()
                .map(|(id, last)| {
                    let addresses = last.iter().map(|last| IpAddr::from([10, 0, 0, *last]));
                    ((*id).to_owned(), addresses.collect())
                })
                .collect(),
            ..Filter::default()
        };
        let (a, b) = (port(1, &[Sender::Anybody]), port(2, &[members("m")]));
        vec![
            Filter::default(),
            of(&[("calia", a.clone())], &[]),
            of(&[("calia", b.clone())], &[("m", &[2])]),
            of(&[("calia", a.clone()), ("calib", b.clone())], &[("m", &[1, 2])]),
            of(&[("calia", a), ("calib", port(3, &[members("n")]))], &[("n", &[1, 3])]),
            of(&[("calic", b)], &[("m", &[2, 3])]),
        ]
    }

    #[test]
    fn the_difference_is_what_two_whole_rulesets_differ_in() {
        for wanted in &filters() {
            for installed in &filters() {
                let (mut quick, mut slow) = (Batch::new(), Batch::new());
                Ruleset::change(wanted, installed, &mut quick);
                Ruleset::of(wanted).replace(&Ruleset::of(installed), &mut slow);
                assert_eq!(format!("{quick:?}"), format!("{slow:?}"));
                assert_eq!(quick.is_empty(), wanted == installed);
            }
        }
    }
}
