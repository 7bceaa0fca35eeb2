//! Changes of a filter that stands, by a node that knows only its own part of it: after a start
//! without the datastore. Whatever others may talk to each other by stays as the kernel has it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kernel::Result;
use kernel::nft::{Batch, Chain, Element, Key, Nft, TableId};

use super::ruleset::{Filled, INET, PORTS, Ruleset};
use super::tables;

/// What is gone: interfaces and addresses that nobody has any more.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    pub(crate) interfaces: BTreeSet<String>,
    pub(crate) addresses: BTreeSet<IpAddr>,
}

/// Reads our tables as they stand; of chains only the names.
pub(super) fn read(nft: &mut Nft) -> Result<Ruleset> {
    let mut ruleset = Ruleset { sets: BTreeMap::new(), chains: BTreeMap::new() };
    for (number, table) in tables().into_iter().enumerate() {
        for set in nft.sets(&table.id)? {
            let elements = match set.has_ranges {
                true => Vec::new(),
                false => nft.elements(&table.id, &set)?,
            };
            let elements = elements.into_iter().map(|it| (it.key.clone(), it)).collect();
            ruleset.sets.insert((number, set.name.clone()), Filled { set, elements });
        }
        if number == INET {
            let chains = nft.chains(Some(&table.id))?.into_iter();
            ruleset.chains.extend(chains.map(|(_, chain)| (chain.name, Vec::new())));
        }
    }
    Ok(ruleset)
}

/// How many interfaces the kernel's tables know, as they stand.
pub(super) fn n_interfaces(nft: &mut Nft) -> Result<usize> {
    let table = &tables()[INET].id;
    let sets = nft.sets(table)?;
    match sets.iter().find(|set| set.name == PORTS) {
        Some(set) => Ok(nft.elements(table, set)?.len()),
        None => Ok(0),
    }
}

impl Ruleset {
    /// Adds what is missing of this where `present` stands, and removes what is gone.
    pub(super) fn complete(&self, present: &Self, absent: &Absent, batch: &mut Batch) {
        let ids: Vec<TableId> = tables().into_iter().map(|table| table.id).collect();
        let wanted = || self.sets.iter().filter(|(_, filled)| !filled.set.has_ranges);
        for (key, filled) in wanted().filter(|(key, _)| !present.sets.contains_key(*key)) {
            batch.add_set(&ids[key.0], &filled.set);
        }
        let chains = self.chains.iter().filter(|(name, _)| !present.chains.contains_key(*name));
        for (chain, rules) in chains {
            batch.add_chain(&ids[INET], &Chain::plain(chain));
            rules.iter().for_each(|rule| batch.add_rule(&ids[INET], rule));
        }
        let empty = BTreeMap::new();
        for (key, filled) in &present.sets {
            let ours = self.sets.get(key).map_or(&empty, |filled| &filled.elements);
            let gone = filled.elements.values().filter(|it| match ours.get(&it.key) {
                Some(other) => other != *it,
                None => absent.covers(&it.key),
            });
            let gone: Vec<Element> = gone.cloned().collect();
            if !gone.is_empty() {
                batch.delete_elements(&ids[key.0], &filled.set, &gone);
            }
        }
        for (key, filled) in wanted() {
            let before = present.sets.get(key).map_or(&empty, |filled| &filled.elements);
            let is_there = |element: &Element| before.get(&element.key) == Some(element);
            let fresh = filled.elements.values().filter(|element| !is_there(element));
            let fresh: Vec<Element> = fresh.cloned().collect();
            if !fresh.is_empty() {
                batch.add_elements(&ids[key.0], &filled.set, &fresh);
            }
        }
    }
}

impl Absent {
    /// Whether a key is an interface that is gone, one with an address, or an address that is gone.
    fn covers(&self, key: &Key) -> bool {
        let Key::One(bytes) = key else { return false };
        let begins = |name: &String| match Key::link_name(name) {
            Key::One(name) => bytes.starts_with(&name),
            _ => false,
        };
        self.interfaces.iter().any(begins)
            || self.addresses.iter().any(|address| Key::address(*address) == *key)
    }
}

#[cfg(test)]
mod tests {
    use intent::{Access, Filter, Port, Source};

    use super::*;

    fn filter(ports: &[(&str, [u8; 4])]) -> Ruleset {
        let members = ports.iter().map(|(_, address)| IpAddr::from(*address)).collect();
        let port = |address: &[u8; 4]| Port {
            addresses: BTreeSet::from([IpAddr::from(*address)]),
            access: Access::from([Source::Members("s".to_owned())]),
            may_send: true,
        };
        let ports = ports.iter().map(|(name, address)| ((*name).to_owned(), port(address)));
        let members = BTreeMap::from([("s".to_owned(), members)]);
        Ruleset::of(&Filter { ports: ports.collect(), members, ..Filter::default() })
    }

    #[test]
    fn what_stands_is_kept_and_what_is_gone_goes() {
        let (old, own, other) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 9, 9]);
        let present = filter(&[("caliold", old), ("caliown", own), ("caliother", other)]);
        let mut batch = Batch::new();
        filter(&[("caliown", own)]).complete(&present, &Absent::default(), &mut batch);
        assert!(batch.is_empty(), "nothing is known to be gone: {batch:?}");
        let absent = Absent {
            interfaces: BTreeSet::from(["caliold".to_owned()]),
            addresses: BTreeSet::from([IpAddr::from(old)]),
        };
        filter(&[("caliown", own)]).complete(&present, &absent, &mut batch);
        // From both tables' sources, the senders, the map of interfaces, and the members.
        assert_eq!(batch.len(), 5, "{batch:?}");
        let mut batch = Batch::new();
        filter(&[("calinew", old)]).complete(&present, &absent, &mut batch);
        assert!(batch.len() > 5, "the new one comes as the old one goes: {batch:?}");
    }
}
