//! Rules held against each other: whether one matches all that another does, and whether one can
//! match anything.

use net::{Cidr, Protocol};

use crate::packet::protocol_number;
use crate::rule::{Icmp, Peer, Ports, Rule};

/// Why no packet meets all conditions of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// Nobody knows the protocol.
    UnknownProtocol(String),
    /// It asks for a protocol and rules it out.
    Protocol,
    /// It asks for ICMP messages of another protocol, or rules them out as well.
    Icmp,
    /// It asks for ports of a protocol that has none.
    PortsWithoutProtocol,
    /// It asks for ports and rules them out.
    Ports,
    /// It asks for networks and rules them out.
    Nets,
    /// It asks for networks of one version of IP and of the other.
    Versions,
    /// It asks for labels and rules them out.
    Sets,
}

/// Whether the first rule certainly matches every packet that the second one does.
pub fn covers(wide: &Rule, narrow: &Rule) -> bool {
    let version = wide.is_ipv4.is_none() || wide.is_ipv4 == narrow.is_ipv4;
    version
        && covers_protocol(wide, narrow)
        && covers_icmp(wide, narrow)
        && covers_peer(&wide.source, &narrow.source)
        && covers_peer(&wide.destination, &narrow.destination)
}

fn number(protocol: Option<&Protocol>) -> Option<u8> {
    protocol.and_then(protocol_number)
}

fn covers_protocol(wide: &Rule, narrow: &Rule) -> bool {
    let (ours, not_ours) = (number(wide.protocol.as_ref()), number(wide.not_protocol.as_ref()));
    let theirs = number(narrow.protocol.as_ref());
    let not_theirs = number(narrow.not_protocol.as_ref());
    let asked = wide.protocol.is_none() || (ours.is_some() && ours == theirs);
    let ruled_out = match not_ours {
        None => true,
        not => not == not_theirs || theirs.is_some_and(|theirs| Some(theirs) != not),
    };
    asked && ruled_out
}

fn covers_icmp(wide: &Rule, narrow: &Rule) -> bool {
    let asked = wide.icmp.is_none_or(|ours| narrow.icmp.is_some_and(|it| includes(ours, it)));
    let ruled_out = wide.not_icmp.is_none_or(|ours| {
        narrow.not_icmp.is_some_and(|it| includes(it, ours))
            || narrow.icmp.is_some_and(|it| are_apart(ours, it))
    });
    asked && ruled_out
}

fn includes(wide: Icmp, narrow: Icmp) -> bool {
    wide.kind == narrow.kind && (wide.code.is_none() || wide.code == narrow.code)
}

fn are_apart(one: Icmp, other: Icmp) -> bool {
    let codes = one.code.zip(other.code);
    one.kind != other.kind || codes.is_some_and(|(one, other)| one != other)
}

fn covers_peer(wide: &Peer, narrow: &Peer) -> bool {
    let nets = wide.nets.is_empty()
        || (!narrow.nets.is_empty() && narrow.nets.iter().all(|net| is_within(net, &wide.nets)));
    let is_ruled_out = |net: &Cidr| {
        let is_elsewhere = || narrow.nets.iter().all(|it| !it.overlaps(*net));
        is_within(net, &narrow.not_nets) || (!narrow.nets.is_empty() && is_elsewhere())
    };
    let not_nets = wide.not_nets.iter().all(is_ruled_out);
    let sets = wide.sets.iter().all(|id| narrow.sets.contains(id))
        && wide.not_sets.iter().all(|id| narrow.not_sets.contains(id))
        && wide.port_sets.iter().all(|id| narrow.port_sets.contains(id));
    let ports =
        wide.ports.is_empty() || (!narrow.ports.is_empty() && has_all(&wide.ports, &narrow.ports));
    let not_ports = wide.not_ports.is_empty()
        || has_all(&narrow.not_ports, &wide.not_ports)
        || (!narrow.ports.is_empty() && have_nothing_in_common(&narrow.ports, &wide.not_ports));
    nets && not_nets && sets && ports && not_ports
}

fn is_within(net: &Cidr, nets: &[Cidr]) -> bool {
    nets.iter().any(|it| it.prefix_len() <= net.prefix_len() && it.contains(net.network()))
}

fn has_all(wide: &Ports, narrow: &Ports) -> bool {
    let merged = merged(&wide.ranges);
    let is_in = |(first, last): &(u16, u16)| {
        first > last || merged.iter().any(|(from, to)| from <= first && last <= to)
    };
    narrow.ranges.iter().all(is_in) && narrow.named.iter().all(|id| wide.named.contains(id))
}

/// Certainly so: what has a name can be any port.
fn have_nothing_in_common(one: &Ports, other: &Ports) -> bool {
    let is_apart =
        |(first, last): &(u16, u16)| one.ranges.iter().all(|(from, to)| last < from || to < first);
    one.named.is_empty() && other.named.is_empty() && other.ranges.iter().all(is_apart)
}

/// The ranges with those joined that touch or overlap.
fn merged(ranges: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let mut sorted: Vec<_> = ranges.iter().copied().filter(|(from, to)| from <= to).collect();
    sorted.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (from, to) in sorted {
        match merged.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// Why no packet can meet all conditions of a rule, if that is certain.
pub fn contradiction(rule: &Rule) -> Option<Contradiction> {
    let asked = number(rule.protocol.as_ref());
    if let (Some(protocol), None) = (&rule.protocol, asked) {
        return Some(Contradiction::UnknownProtocol(protocol.to_string()));
    }
    if asked.is_some() && asked == number(rule.not_protocol.as_ref()) {
        return Some(Contradiction::Protocol);
    }
    let asks_for_icmp = rule.icmp.is_some() || rule.not_icmp.is_some();
    let is_of_icmp = asked.is_none_or(|number| matches!(number, 1 | 58));
    let is_ruled_out = rule.icmp.zip(rule.not_icmp).is_some_and(|(it, not)| includes(not, it));
    if (asks_for_icmp && !is_of_icmp) || is_ruled_out {
        return Some(Contradiction::Icmp);
    }
    let has_ports = asked.is_none_or(|number| matches!(number, 6 | 17 | 132 | 136));
    let peers = [&rule.source, &rule.destination];
    let asks_for_ports = peers.iter().any(|it| !it.ports.is_empty() || !it.port_sets.is_empty());
    if asks_for_ports && (!has_ports || asks_for_icmp) {
        return Some(Contradiction::PortsWithoutProtocol);
    }
    if let Some(found) = peers.into_iter().find_map(contradiction_of) {
        return Some(found);
    }
    has_both_versions(rule).then_some(Contradiction::Versions)
}

fn contradiction_of(peer: &Peer) -> Option<Contradiction> {
    if !peer.nets.is_empty() && peer.nets.iter().all(|net| is_within(net, &peer.not_nets)) {
        return Some(Contradiction::Nets);
    }
    if peer.sets.iter().any(|id| peer.not_sets.contains(id)) {
        return Some(Contradiction::Sets);
    }
    let is_empty = !peer.ports.is_empty() && has_all(&peer.not_ports, &peer.ports);
    is_empty.then_some(Contradiction::Ports)
}

/// Whether all networks of one end, or the rule, are of another version than all of the other end.
fn has_both_versions(rule: &Rule) -> bool {
    let version = |nets: &[Cidr]| {
        let is_ipv4 = nets.first()?.is_ipv4();
        nets.iter().all(|net| net.is_ipv4() == is_ipv4).then_some(is_ipv4)
    };
    let versions = [rule.is_ipv4, version(&rule.source.nets), version(&rule.destination.nets)];
    let said = || versions.iter().flatten();
    said().any(|it| *it) && said().any(|it| !*it)
}
