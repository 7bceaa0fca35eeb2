//! A clause as the expressions of a rule.

use ipnet::IpNet;
use net::Cidr;
use nft::expression::{Comparison, Header, LookupResult, Meta};
use nft::{DataType, Expression, Key, Register, Rule, Set, Source, merged};

use crate::rule::Icmp;
use crate::set::SetId;

use super::clause::{Clause, Protocols, Side, WITH_PORTS, merged_ports};
use super::draft::{Draft, Scope};
use super::state::SetUse;

pub(super) const FAMILY: Source = Source::Meta(Meta::Family);
pub(super) const IPV4: &[u8] = &[2];
pub(super) const IPV6: &[u8] = &[10];
pub(super) const PROTOCOL: Source = Source::Meta(Meta::TransportProtocol);
const ICMP_TYPE_AND_CODE: Source = Source::transport(0, 2);

/// Writes conditions into rules of one family.
pub(super) struct Emitter<'d, 'a> {
    pub(super) draft: &'d mut Draft<'a>,
    pub(super) scope: Scope,
    pub(super) is_ipv4: bool,
}

/// One end of the traffic.
#[derive(Clone, Copy)]
struct Place {
    address: Source,
    port: Source,
}

impl<'d, 'a> Emitter<'d, 'a> {
    pub(super) fn new(draft: &'d mut Draft<'a>, is_ipv4: bool) -> Self {
        Self { draft, scope: Scope::default(), is_ipv4 }
    }

    /// The conditions of a clause, the cheap ones first.
    pub(super) fn conditions(&mut self, clause: &Clause, mut rule: Rule) -> Rule {
        rule = self.protocol(clause, rule);
        rule = icmp(clause, rule);
        let (source, destination) = (self.place(true), self.place(false));
        rule = self.ports(&clause.destination, destination, rule);
        rule = self.ports(&clause.source, source, rule);
        if clause.source.has_addresses() || clause.destination.has_addresses() {
            rule = rule.when(FAMILY, if self.is_ipv4 { IPV4 } else { IPV6 });
        }
        rule = self.addresses(&clause.source, source, rule);
        self.addresses(&clause.destination, destination, rule)
    }

    fn place(&self, is_source: bool) -> Place {
        let address = match (self.is_ipv4, is_source) {
            (true, true) => Source::IPV4_SOURCE,
            (true, false) => Source::IPV4_DESTINATION,
            (false, true) => Source::IPV6_SOURCE,
            (false, false) => Source::IPV6_DESTINATION,
        };
        let port = if is_source { Source::SOURCE_PORT } else { Source::DESTINATION_PORT };
        Place { address, port }
    }

    fn protocol(&mut self, clause: &Clause, mut rule: Rule) -> Rule {
        let is_inverted = clause.protocol == Protocols::WithoutPorts;
        match clause.protocol {
            Protocols::Any => {}
            Protocols::One(protocol) => rule = rule.when(PROTOCOL, &[protocol]),
            Protocols::WithPorts | Protocols::WithoutPorts => {
                let keys = WITH_PORTS.iter().map(|it| Key::One(vec![*it])).collect();
                let set = self.fixed("protocols", Set::new("", &[DataType::Protocol]), keys);
                rule = lookup(rule, PROTOCOL, &set, is_inverted);
            }
        }
        match clause.not_protocol {
            Some(not) => rule.unless(PROTOCOL, &[not]),
            None => rule,
        }
    }

    fn ports(&mut self, side: &Side, place: Place, mut rule: Rule) -> Rule {
        if !side.ports.is_empty() {
            rule = self.port_ranges(&side.ports, false, place, rule);
        }
        if !side.not_ports.is_empty() {
            rule = self.port_ranges(&side.not_ports, true, place, rule);
        }
        rule
    }

    fn port_ranges(
        &mut self,
        ranges: &[(u16, u16)],
        is_inverted: bool,
        place: Place,
        rule: Rule,
    ) -> Rule {
        let register = Register::FIRST;
        let bytes = |port: u16| port.to_be_bytes().to_vec();
        match merged_ports(ranges).as_slice() {
            [(first, last)] if first == last => {
                let rule = rule.with(Expression::Load { source: place.port, register });
                rule.with(compare(is_inverted, bytes(*first)))
            }
            [(first, last)] => {
                let (first, last) = (bytes(*first), bytes(*last));
                rule.with(Expression::Load { source: place.port, register })
                    .with(Expression::Range { register, is_inverted, first, last })
            }
            ranges => {
                let key = |(first, last): &(u16, u16)| Key::range(bytes(*first), bytes(*last));
                let keys = ranges.iter().map(key).collect();
                let set = Set::new("", &[DataType::Port]).with_ranges();
                let set = self.fixed("ports", set, keys);
                lookup(rule, place.port, &set, is_inverted)
            }
        }
    }

    fn addresses(&mut self, side: &Side, place: Place, mut rule: Rule) -> Rule {
        if !side.nets.is_empty() {
            rule = self.nets(&side.nets, false, place, rule);
        }
        for id in &side.sets {
            rule = self.member(id, false, place, rule);
        }
        for id in &side.port_sets {
            rule = self.port_member(id, false, place, rule);
        }
        if !side.not_nets.is_empty() {
            rule = self.nets(&side.not_nets, true, place, rule);
        }
        for id in &side.not_sets {
            rule = self.member(id, true, place, rule);
        }
        for id in &side.not_port_sets {
            rule = self.port_member(id, true, place, rule);
        }
        rule
    }

    fn nets(&mut self, nets: &[Cidr], is_inverted: bool, place: Place, rule: Rule) -> Rule {
        if let [net] = nets {
            return in_net(rule, place.address, *net, is_inverted);
        }
        let keys = merged(nets.iter().map(|net| IpNet::from(*net)));
        let data_type = if self.is_ipv4 { DataType::Ipv4 } else { DataType::Ipv6 };
        let set = self.fixed("nets", Set::new("", &[data_type]).with_ranges(), keys);
        lookup(rule, place.address, &set, is_inverted)
    }

    fn member(&mut self, id: &SetId, is_inverted: bool, place: Place, rule: Rule) -> Rule {
        let set = self.ip_set(id, false);
        lookup(rule, place.address, &set, is_inverted)
    }

    /// Looks up address, protocol and port together.
    fn port_member(&mut self, id: &SetId, is_inverted: bool, place: Place, rule: Rule) -> Rule {
        let set = self.ip_set(id, true);
        let after_address = if self.is_ipv4 { 1 } else { 4 };
        let at = |slot| Register::slot(slot).expect("there are 16 slots");
        let register = Register::FIRST;
        rule.with(Expression::Load { source: place.address, register })
            .with(Expression::Load { source: PROTOCOL, register: at(after_address) })
            .with(Expression::Load { source: place.port, register: at(after_address + 1) })
            .with(member(&set, is_inverted))
    }

    /// The set of the kernel for an IP set.
    pub(super) fn ip_set(&mut self, id: &SetId, has_ports: bool) -> String {
        let using = SetUse { id: id.clone(), is_ipv4: self.is_ipv4, has_ports };
        let name = self.draft.ip_set(&using);
        self.scope.uses.insert(name.clone());
        self.scope.sets.insert(using);
        name
    }

    fn fixed(&mut self, prefix: &str, set: Set, keys: Vec<Key>) -> String {
        let name = self.draft.fixed_set(prefix, set, keys);
        self.scope.uses.insert(name.clone());
        name
    }
}

impl Side {
    /// Whether it looks at the address.
    fn has_addresses(&self) -> bool {
        let nets = [&self.nets, &self.not_nets];
        let sets = [&self.sets, &self.not_sets, &self.port_sets, &self.not_port_sets];
        nets.iter().any(|it| !it.is_empty()) || sets.iter().any(|it| !it.is_empty())
    }
}

fn icmp(clause: &Clause, mut rule: Rule) -> Rule {
    let register = Register::FIRST;
    for (icmp, is_inverted) in [(clause.icmp, false), (clause.not_icmp, true)] {
        let Some(Icmp { kind, code }) = icmp else { continue };
        let (source, value) = match code {
            Some(code) => (ICMP_TYPE_AND_CODE, vec![kind, code]),
            None => (Source::ICMP_TYPE, vec![kind]),
        };
        rule = rule.with(Expression::Load { source, register }).with(compare(is_inverted, value));
    }
    rule
}

/// Goes on if an address is in a network, or is not.
pub(super) fn in_net(rule: Rule, source: Source, net: Cidr, is_inverted: bool) -> Rule {
    let net = IpNet::from(net).trunc();
    if net.prefix_len() == 0 && !is_inverted {
        return rule;
    }
    let n_bytes = net.prefix_len().div_ceil(8).max(1);
    let octets = |address| match address {
        std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let (mut value, mask) = (octets(net.addr()), octets(net.netmask()));
    let register = Register::FIRST;
    let is_whole = net.prefix_len().is_multiple_of(8);
    match (source, is_whole) {
        // The start of the address is enough, and compared as it is.
        (Source::Payload { header: Header::Network, offset, .. }, true) => {
            value.truncate(usize::from(n_bytes));
            let source = Source::network(offset, u32::from(n_bytes));
            rule.with(Expression::Load { source, register }).with(compare(is_inverted, value))
        }
        _ => {
            let n_bytes = value.len();
            rule.with(Expression::Load { source, register })
                .with(Expression::Bitwise { register, mask, xor: vec![0; n_bytes] })
                .with(compare(is_inverted, value))
        }
    }
}

fn compare(is_inverted: bool, value: Vec<u8>) -> Expression {
    let operator = if is_inverted { Comparison::NotEqual } else { Comparison::Equal };
    Expression::Compare { register: Register::FIRST, operator, value }
}

fn member(set: &str, is_inverted: bool) -> Expression {
    Expression::Lookup {
        register: Register::FIRST,
        set: set.to_owned(),
        result: LookupResult::Member { is_inverted },
    }
}

/// Goes on if a value is in a set, or is not.
pub(super) fn lookup(rule: Rule, source: Source, set: &str, is_inverted: bool) -> Rule {
    rule.with(Expression::Load { source, register: Register::FIRST }).with(member(set, is_inverted))
}
