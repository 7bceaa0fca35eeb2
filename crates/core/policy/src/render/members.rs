//! The members of an IP set as elements: all of them, or the difference to those that stand.
//!
//! The kernel refuses overlapping ranges, so of members that lie in others only the widest is an
//! element.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use net::Cidr;
use nft::{DataType, Element, Key, Set};

use crate::intent::{Dirty, SetChange};
use crate::set::{IpSet, IpSets, Member, SetId};

use super::clause::WITH_PORTS;
use super::name;
use super::state::{Kind, SetUse};

impl SetUse {
    /// The set of the kernel, whose sort follows from whether a member is more than one address.
    pub(super) fn set(&self, is_wide: bool) -> Set {
        let family = if self.is_ipv4 { DataType::Ipv4 } else { DataType::Ipv6 };
        let number = if self.is_ipv4 { 4 } else { 6 };
        let (letter, fields) = match (self.has_ports, is_wide) {
            (true, _) => ('p', vec![family, DataType::Protocol, DataType::Port]),
            (false, false) => ('h', vec![family]),
            (false, true) => ('r', vec![family]),
        };
        let mut set = Set::new(&format!("{letter}{number}-{}", name::of_set(&self.id)), &fields);
        set.has_ranges = is_wide && !self.has_ports;
        set
    }

    /// Whether a member is one that the set of the kernel has.
    fn concerns(&self, member: &Member) -> bool {
        match member {
            Member::Net(net) => !self.has_ports && net.is_ipv4() == self.is_ipv4,
            Member::Port { address, protocol, .. } => {
                let is_of_family = address.is_ipv4() == self.is_ipv4;
                self.has_ports && is_of_family && WITH_PORTS.contains(protocol)
            }
        }
    }

    /// Whether a member is more than one address.
    fn is_wide(&self, member: &Member) -> bool {
        match member {
            Member::Net(net) => self.concerns(member) && !is_single(net),
            Member::Port { .. } => false,
        }
    }

    /// Of what sort a set with these members is.
    pub(super) fn kind<'a>(&self, members: impl IntoIterator<Item = &'a Member>) -> Kind {
        let mut kind = Kind::default();
        for member in members.into_iter().filter(|member| self.concerns(member)) {
            kind.n_members += 1;
            kind.n_wide += usize::from(self.is_wide(member));
        }
        kind
    }

    /// The elements of a whole set.
    pub(super) fn elements<'a>(&'a self, set: &'a IpSet) -> impl Iterator<Item = Element> + 'a {
        let mut widest: Option<Cidr> = None;
        // A network comes before those that lie in it.
        let is_covered = move |member: &&Member| {
            let Member::Net(net) = member else { return true };
            if widest.is_some_and(|it| it.contains(net.network())) {
                return false;
            }
            widest = Some(*net);
            true
        };
        let concerned = set.members.iter().filter(|member| self.concerns(member));
        concerned.filter(is_covered).map(|member| Element::member(key(member)))
    }

    /// What to remove and what to add after a change that led to `now`.
    pub(super) fn difference(
        &self,
        now: &IpSet,
        change: &SetChange,
        is_wide: bool,
    ) -> (Vec<Element>, Vec<Element>) {
        let element = |member: &&Member| Element::member(key(member));
        if !is_wide {
            let of = |members: &[Member]| {
                members.iter().filter(|it| self.concerns(it)).map(|it| element(&it)).collect()
            };
            return (of(&change.removed), of(&change.added));
        }
        let versions = Versions {
            now,
            added: change.added.iter().collect(),
            removed: change.removed.iter().collect(),
        };
        let mut touched: BTreeSet<&Member> = BTreeSet::new();
        for member in change.added.iter().chain(&change.removed) {
            touched.insert(member);
            let Member::Net(net) = member else { continue };
            let inside = now
                .members
                .range(member..)
                .take_while(|it| matches!(it, Member::Net(other) if net.contains(other.network())));
            touched.extend(inside);
        }
        let touched = || touched.iter().copied().filter(|member| self.concerns(member));
        let gone = touched().filter(|it| versions.stood(it) && !versions.stands(it));
        let fresh = touched().filter(|it| versions.stands(it) && !versions.stood(it));
        (gone.map(|it| element(&it)).collect(), fresh.map(|it| element(&it)).collect())
    }
}

/// The entries of a map from addresses to chains, before and after a change: those of the first set
/// that has them. Of sets that have changed, only the addresses that came or went.
pub(super) fn by_address(
    targets: &[(SetId, String)],
    is_ipv4: bool,
    sets: &IpSets,
    dirty: Option<&Dirty>,
) -> (BTreeMap<IpAddr, String>, BTreeMap<IpAddr, String>) {
    let single = |member: &Member| match member {
        Member::Net(net) if net.is_ipv4() == is_ipv4 => Some(net.address()),
        _ => None,
    };
    let empty = BTreeSet::new();
    let members = |id: &SetId| sets.get(id).map_or(&empty, |set| &set.members);
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    let Some(dirty) = dirty else {
        for (id, chain) in targets {
            for address in members(id).iter().filter_map(single) {
                after.entry(address).or_insert_with(|| chain.clone());
            }
        }
        return (before, after);
    };
    let changes = targets.iter().filter_map(|(id, _)| dirty.sets.get(id));
    let touched: BTreeSet<IpAddr> = changes
        .flat_map(|change| change.added.iter().chain(&change.removed))
        .filter_map(single)
        .collect();
    for (id, chain) in targets {
        let now = members(id);
        let is_in = |address: &IpAddr| now.contains(&Member::Net(Cidr::host(*address)));
        // Whichever is shorter is gone through.
        let there: BTreeSet<IpAddr> = if now.len() < touched.len() {
            now.iter().filter_map(single).filter(|it| touched.contains(it)).collect()
        } else {
            touched.iter().filter(|it| is_in(it)).copied().collect()
        };
        let mut was_there = there.clone();
        if let Some(change) = dirty.sets.get(id) {
            let came: BTreeSet<IpAddr> = change.added.iter().filter_map(single).collect();
            was_there.retain(|address| !came.contains(address));
            was_there.extend(change.removed.iter().filter_map(single));
        }
        for (into, addresses) in [(&mut after, there), (&mut before, was_there)] {
            for address in addresses {
                into.entry(address).or_insert_with(|| chain.clone());
            }
        }
    }
    (before, after)
}

/// A set before and after a change.
struct Versions<'a> {
    now: &'a IpSet,
    added: BTreeSet<&'a Member>,
    removed: BTreeSet<&'a Member>,
}

impl Versions<'_> {
    fn is_in(&self, member: &Member) -> bool {
        self.now.members.contains(member)
    }

    fn was_in(&self, member: &Member) -> bool {
        (self.is_in(member) && !self.added.contains(member)) || self.removed.contains(member)
    }

    /// Whether it is an element: a member that lies in no other.
    fn stands(&self, member: &Member) -> bool {
        self.is_in(member) && !wider(member).any(|wider| self.is_in(&wider))
    }

    fn stood(&self, member: &Member) -> bool {
        self.was_in(member) && !wider(member).any(|wider| self.was_in(&wider))
    }
}

/// The networks that a member lies in.
fn wider(member: &Member) -> impl Iterator<Item = Member> + use<> {
    let net = match member {
        Member::Net(net) => Some(*net),
        Member::Port { .. } => None,
    };
    net.into_iter().flat_map(|net| {
        let at = move |len| Cidr::new(net.address(), len).map(|it| Member::Net(it.masked()));
        (0..net.prefix_len()).filter_map(at)
    })
}

fn is_single(net: &Cidr) -> bool {
    net.prefix_len() == if net.is_ipv4() { 32 } else { 128 }
}

fn key(member: &Member) -> Key {
    match member {
        Member::Net(net) => Key::prefix(IpNet::from(*net)),
        Member::Port { address, protocol, port } => port_key(*address, *protocol, *port),
    }
}

fn port_key(address: IpAddr, protocol: u8, port: u16) -> Key {
    Key::concatenation(&[
        Key::address(address),
        Key::One(vec![protocol]),
        Key::One(port.to_be_bytes().to_vec()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nets: &[&str]) -> IpSet {
        IpSet { members: nets.iter().map(|net| net.parse().unwrap()).collect() }
    }

    #[test]
    fn a_difference_makes_the_elements_of_the_whole_set() {
        let sets = [
            set(&["10.0.0.0/8", "11.0.0.1", "fd00::1"]),
            set(&["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "255.255.255.255"]),
            set(&["10.1.0.0/16", "10.1.2.3", "10.2.0.0/16"]),
            set(&["0.0.0.0/0", "10.1.2.3", "10.2.0.0/16"]),
            set(&["10.1.2.3/32", "10.1.2.0/31"]),
        ];
        let using = SetUse { id: "s:x".to_owned(), is_ipv4: true, has_ports: false };
        for before in &sets {
            for after in &sets {
                let change = SetChange {
                    added: after.members.difference(&before.members).cloned().collect(),
                    removed: before.members.difference(&after.members).cloned().collect(),
                };
                let mut stands: BTreeSet<Key> = using.elements(before).map(|it| it.key).collect();
                let (gone, fresh) = using.difference(after, &change, true);
                for element in gone {
                    assert!(stands.remove(&element.key), "{element:?} of {before:?}");
                }
                for element in fresh {
                    assert!(stands.insert(element.key), "of {after:?}");
                }
                assert_eq!(stands, using.elements(after).map(|it| it.key).collect());
            }
        }
    }
}
