//! A rule of a policy for one family, as alternatives that are each a conjunction.
//!
//! What cannot match in the family is not there. The kernel reads "ports" of any protocol, so a
//! condition on ports always comes with one on the protocol.

use model::resource::Action;
use net::Cidr;

use crate::packet::protocol_number;
use crate::rule::{Icmp, Peer, Ports, Rule};
use crate::set::SetId;

/// The protocols whose packets have ports: TCP, UDP and SCTP.
pub(super) const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// One alternative: every condition must hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Clause {
    pub(super) protocol: Protocols,
    /// Any protocol but this.
    pub(super) not_protocol: Option<u8>,
    pub(super) icmp: Option<Icmp>,
    pub(super) not_icmp: Option<Icmp>,
    pub(super) source: Side,
    pub(super) destination: Side,
}

/// Which protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocols {
    Any,
    One(u8),
    WithPorts,
    WithoutPorts,
}

/// The conditions on one end.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Side {
    /// In one of these, unless there are none.
    pub(super) nets: Vec<Cidr>,
    pub(super) not_nets: Vec<Cidr>,
    pub(super) sets: Vec<SetId>,
    pub(super) not_sets: Vec<SetId>,
    /// On one of these, unless there are none.
    pub(super) ports: Vec<(u16, u16)>,
    pub(super) not_ports: Vec<(u16, u16)>,
    pub(super) port_sets: Vec<SetId>,
    pub(super) not_port_sets: Vec<SetId>,
}

/// The alternatives of a rule in a family; none if it cannot match there.
pub(super) fn alternatives(rule: &Rule, is_ipv4: bool) -> Vec<Clause> {
    let Some(clause) = without_ports(rule, is_ipv4) else { return Vec::new() };
    let is_log = rule.action == Action::Log;
    let sources = port_choices(&rule.source, &clause.source, is_log);
    let destinations = port_choices(&rule.destination, &clause.destination, is_log);
    let mut found = Vec::new();
    for source in &sources {
        for destination in &destinations {
            let (source, destination) = (source.clone(), destination.clone());
            found.extend(of_protocols(Clause { source, destination, ..clause.clone() }));
        }
    }
    found
}

/// Everything but ports.
fn without_ports(rule: &Rule, is_ipv4: bool) -> Option<Clause> {
    if rule.is_ipv4.is_some_and(|wanted| wanted != is_ipv4) {
        return None;
    }
    let mut protocol = match &rule.protocol {
        Some(protocol) => Protocols::One(protocol_number(protocol)?),
        None => Protocols::Any,
    };
    if rule.icmp.is_some() || rule.not_icmp.is_some() {
        let icmp = if is_ipv4 { 1 } else { 58 };
        if !matches!(protocol, Protocols::Any) && protocol != Protocols::One(icmp) {
            return None;
        }
        protocol = Protocols::One(icmp);
    }
    let mut not_protocol = rule.not_protocol.as_ref().and_then(protocol_number);
    if let (Protocols::One(one), Some(not)) = (protocol, not_protocol) {
        if one == not {
            return None;
        }
        not_protocol = None;
    }
    Some(Clause {
        protocol,
        not_protocol,
        icmp: rule.icmp,
        not_icmp: rule.not_icmp,
        source: addresses(&rule.source, is_ipv4)?,
        destination: addresses(&rule.destination, is_ipv4)?,
    })
}

/// The conditions on the address of one end.
fn addresses(peer: &Peer, is_ipv4: bool) -> Option<Side> {
    let of_family = |nets: &[Cidr]| -> Vec<Cidr> {
        nets.iter().filter(|net| net.is_ipv4() == is_ipv4).map(|net| net.masked()).collect()
    };
    let is_all = |net: &Cidr| net.prefix_len() == 0;
    let mut nets = of_family(&peer.nets);
    let not_nets = of_family(&peer.not_nets);
    if (nets.is_empty() && !peer.nets.is_empty()) || not_nets.iter().any(is_all) {
        return None;
    }
    if nets.iter().any(is_all) {
        nets.clear();
    }
    Some(Side {
        nets,
        not_nets,
        sets: peer.sets.clone(),
        not_sets: peer.not_sets.clone(),
        ..Side::default()
    })
}

/// The ways in which the ports of one end can be right. If they all are acted upon, as by a log,
/// each excludes those before it.
fn port_choices(peer: &Peer, side: &Side, are_exclusive: bool) -> Vec<Side> {
    let mut common = side.clone();
    common.port_sets.clone_from(&peer.port_sets);
    common.not_ports = valid_ranges(&peer.not_ports);
    common.not_port_sets.clone_from(&peer.not_ports.named);
    if peer.ports.is_empty() {
        return vec![common];
    }
    let mut choices = Vec::new();
    let ranges = valid_ranges(&peer.ports);
    if !ranges.is_empty() {
        choices.push(Side { ports: ranges.clone(), ..common.clone() });
        if are_exclusive {
            common.not_ports.extend(ranges);
        }
    }
    for id in &peer.ports.named {
        let mut choice = common.clone();
        choice.port_sets.push(id.clone());
        choices.push(choice);
        if are_exclusive {
            common.not_port_sets.push(id.clone());
        }
    }
    choices
}

fn valid_ranges(ports: &Ports) -> Vec<(u16, u16)> {
    merged_ports(&ports.ranges)
}

/// The ranges that have a port in them, as few as can be.
pub(super) fn merged_ports(ranges: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let mut ranges: Vec<_> = ranges.iter().filter(|(a, b)| a <= b).copied().collect();
    ranges.sort_unstable();
    let mut kept: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match kept.last_mut() {
            Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => *end = last.max(*end),
            _ => kept.push((first, last)),
        }
    }
    kept
}

/// With the protocols that its conditions on ports ask for.
fn of_protocols(mut clause: Clause) -> Vec<Clause> {
    let sides = [&clause.source, &clause.destination];
    let wants_ports = sides.iter().any(|it| !it.ports.is_empty() || !it.port_sets.is_empty());
    let excludes_ports =
        sides.iter().any(|it| !it.not_ports.is_empty() || !it.not_port_sets.is_empty());
    let mut without = clause.clone();
    for side in [&mut without.source, &mut without.destination] {
        side.not_ports.clear();
        side.not_port_sets.clear();
    }
    let has_ports = match clause.protocol {
        Protocols::One(protocol) => Some(WITH_PORTS.contains(&protocol)),
        _ => None,
    };
    match (wants_ports, has_ports) {
        (true, Some(false)) => Vec::new(),
        (_, Some(true)) => vec![clause],
        (true, None) => {
            clause.protocol = Protocols::WithPorts;
            vec![clause]
        }
        (false, Some(false)) => vec![without],
        (false, None) if excludes_ports => {
            clause.protocol = Protocols::WithPorts;
            without.protocol = Protocols::WithoutPorts;
            vec![clause, without]
        }
        (false, None) => vec![clause],
    }
}

#[cfg(test)]
mod tests {
    use net::Protocol;

    use super::*;

    fn ports(ranges: &[(u16, u16)], named: &[&str]) -> Ports {
        let named = named.iter().map(|id| (*id).to_owned()).collect();
        Ports { ranges: ranges.to_vec(), named }
    }

    #[test]
    fn ports_by_number_and_by_name_are_alternatives_on_both_ends() {
        let mut rule = Rule::all(Action::Allow);
        rule.protocol = Some(Protocol::Number(6));
        rule.source.ports = ports(&[(1, 2)], &["a"]);
        rule.destination.ports = ports(&[(5, 9), (3, 4), (7, 20)], &["b"]);
        let found = alternatives(&rule, true);
        assert_eq!(found.len(), 4);
        assert_eq!(found[0].destination.ports, [(3, 20)]);
        assert_eq!(found[3].source.port_sets, ["a"]);
    }

    #[test]
    fn what_cannot_match_in_a_family_is_not_there() {
        let none = |change: fn(&mut Rule)| {
            let mut rule = Rule::all(Action::Allow);
            change(&mut rule);
            assert_eq!(alternatives(&rule, true), [], "{rule:?}");
        };
        none(|rule| rule.is_ipv4 = Some(false));
        none(|rule| rule.protocol = Some(Protocol::from("nobody's")));
        none(|rule| rule.source.nets.push("fd00::/8".parse().unwrap()));
        none(|rule| rule.source.not_nets.push("0.0.0.0/0".parse().unwrap()));
        none(|rule| rule.destination.ports.ranges.push((5, 3)));
        none(|rule| {
            rule.protocol = Some(Protocol::Number(6));
            rule.icmp = Some(Icmp { kind: 8, code: None });
        });
        none(|rule| {
            rule.protocol = Some(Protocol::Number(1));
            rule.destination.ports.ranges.push((80, 80));
        });
    }

    #[test]
    fn packets_without_ports_are_on_no_excluded_port() {
        let mut rule = Rule::all(Action::Deny);
        rule.destination.not_ports = ports(&[(80, 80)], &[]);
        let found = alternatives(&rule, false);
        let protocols: Vec<_> = found.iter().map(|clause| clause.protocol).collect();
        assert_eq!(protocols, [Protocols::WithPorts, Protocols::WithoutPorts]);
        assert!(found[1].destination.not_ports.is_empty());
    }
}
