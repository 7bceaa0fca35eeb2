//! Changes of a filter that stands, by a node that knows only its own part of it: after a start
//! without the datastore. Whatever others may talk to each other by stays as the kernel has it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kernel::Result;
use kernel::nft::{
    Batch, DataType, Element, ElementValue, Expression, Key, Rule, Set, TableFamily, TableId,
    Verdict,
};
use policy::render::{DISPATCH, Filled, Ruleset, is_of_hosts};

use super::audit;
use super::netfilter::Netfilter;
use super::{TABLE, tables};

/// What is gone: interfaces and addresses that nobody has any more.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    pub(crate) interfaces: BTreeSet<String>,
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// Whether what endpoints of the host do now may be what an earlier run wanted to take back.
    pub(crate) are_hosts_in_doubt: bool,
}

/// Reads our tables as they stand; of chains only the names.
pub(super) fn read(nft: &mut impl Netfilter) -> Result<Ruleset> {
    let mut ruleset = Ruleset::default();
    for table in tables() {
        let family = table.id.family;
        let matters = |set: &Set| !set.has_ranges && !set.is_dynamic;
        audit::read_sets(nft, &table.id, matters, &mut ruleset)?;
        for chain in nft.chains(&table.id)? {
            ruleset.chains.insert((family, chain.name.clone()), (chain, Vec::new()));
        }
    }
    Ok(ruleset)
}

/// How many interfaces the kernel's tables know, as they stand.
pub(super) fn n_interfaces(nft: &mut impl Netfilter) -> Result<usize> {
    let [inet, _] = tables();
    let sets = nft.sets(&inet.id)?;
    let mut interfaces = BTreeSet::new();
    for set in sets.iter().filter(|set| DISPATCH.contains(&set.name.as_str())) {
        interfaces.extend(nft.elements(&inet.id, set)?.into_iter().map(|it| it.key));
    }
    Ok(interfaces.len())
}

/// Adds what is missing of the wanted where `present` stands, and removes what is gone: first what
/// nothing leads to yet, so that no packet comes to a chain whose rules are not yet in force.
///
/// A set that is not there yet has members which this node does not know: whatever would look at
/// it is left out, and interfaces that lead there stay closed.
pub(super) fn complete(wanted: &Ruleset, present: &Ruleset, absent: &Absent) -> [Batch; 2] {
    let (mut first, mut batch) = (Batch::new(), Batch::new());
    let unknown = unknown_chains(wanted, present);
    let is_known = |element: &Element| match &element.value {
        Some(ElementValue::Verdict(Verdict::Goto(chain) | Verdict::Jump(chain))) => {
            !unknown.contains(chain)
        }
        _ => true,
    };
    let id = |family: TableFamily| TableId::new(family, TABLE);
    // The elements of sets of ranges were not read: what stands of them stays.
    let is_ours = |(key, filled): &(&(TableFamily, String), &Filled)| {
        !filled.set.has_ranges || !present.sets.contains_key(*key)
    };
    let sets = || wanted.sets.iter().filter(is_ours);
    for ((family, name), filled) in sets() {
        if !present.sets.contains_key(&(*family, name.clone())) && !filled.is_of_cluster {
            first.add_set(&id(*family), &filled.set);
        }
    }
    let fresh = wanted.chains.iter().filter(|(key, _)| !present.chains.contains_key(*key));
    let fresh: Vec<_> = fresh.filter(|((_, name), _)| !unknown.contains(name)).collect();
    for ((family, _), (chain, _)) in &fresh {
        first.add_chain(&id(*family), chain);
    }
    for ((family, _), (_, rules)) in &fresh {
        rules.iter().for_each(|rule| first.add_rule(&id(*family), rule));
    }
    let empty = BTreeMap::new();
    for (key, filled) in &present.sets {
        let ours = wanted.sets.get(key).map_or(&empty, |filled| &filled.elements);
        let gone = filled.elements.values().filter(|it| match ours.get(&it.key) {
            Some(other) => other != *it && is_known(other),
            None => absent.covers(&filled.set, &it.key),
        });
        let gone: Vec<Element> = gone.cloned().collect();
        if !gone.is_empty() {
            batch.delete_elements(&id(key.0), &filled.set, &gone);
        }
    }
    for (key, filled) in sets() {
        let before = present.sets.get(key);
        if before.is_none() && filled.is_of_cluster {
            continue;
        }
        let before = before.map_or(&empty, |filled| &filled.elements);
        let is_there = |element: &Element| before.get(&element.key) == Some(element);
        let fresh = filled.elements.values().filter(|it| !is_there(it) && is_known(it));
        let fresh: Vec<Element> = fresh.cloned().collect();
        if !fresh.is_empty() {
            batch.add_elements(&id(key.0), &filled.set, &fresh);
        }
    }
    [first, batch]
}

/// Has the endpoints of the host do what is wanted, where `present` stands: they are what may have
/// cut the node off from its datastore. What would lead to a chain that is not there is left out.
pub(super) fn renew_hosts(wanted: &Ruleset, present: &Ruleset) -> Batch {
    let mut batch = Batch::new();
    let unknown = unknown_chains(wanted, present);
    let is_known = |rule: &&Rule| {
        !rule.expressions.iter().any(|it| match it {
            Expression::Verdict(Verdict::Goto(chain) | Verdict::Jump(chain)) => {
                unknown.contains(chain)
            }
            _ => false,
        })
    };
    let id = TableId::new(TableFamily::Inet, TABLE);
    for key in present.chains.keys().filter(|(_, name)| is_of_hosts(name)) {
        batch.flush_chain(&id, &key.1);
        let rules = wanted.chains.get(key).map(|(_, rules)| rules.as_slice()).unwrap_or_default();
        rules.iter().filter(is_known).for_each(|rule| batch.add_rule(&id, rule));
    }
    batch
}

/// The chains that are not there and would look at a set whose members are not known, or lead to
/// such a chain.
fn unknown_chains(wanted: &Ruleset, present: &Ruleset) -> BTreeSet<String> {
    let lacks = |name: &str| {
        let key = (TableFamily::Inet, name.to_owned());
        wanted.sets.get(&key).is_some_and(|filled| filled.is_of_cluster)
            && !present.sets.contains_key(&key)
    };
    let mut unknown = BTreeSet::new();
    loop {
        let before = unknown.len();
        for ((family, name), (_, rules)) in &wanted.chains {
            let is_there = present.chains.contains_key(&(*family, name.clone()));
            let is_bad = |it: &Expression| match it {
                Expression::Lookup { set, .. } => {
                    lacks(set) || leads(wanted, set).any(|chain| unknown.contains(chain))
                }
                Expression::Verdict(Verdict::Goto(chain) | Verdict::Jump(chain)) => {
                    unknown.contains(chain)
                }
                _ => false,
            };
            if !is_there && rules.iter().any(|rule| rule.expressions.iter().any(is_bad)) {
                unknown.insert(name.clone());
            }
        }
        if unknown.len() == before {
            return unknown;
        }
    }
}

/// The chains that a map leads to.
fn leads<'a>(wanted: &'a Ruleset, map: &str) -> impl Iterator<Item = &'a String> {
    let found = wanted.sets.get(&(TableFamily::Inet, map.to_owned()));
    let elements = found.into_iter().flat_map(|filled| filled.elements.values());
    elements.filter_map(|element| match &element.value {
        Some(ElementValue::Verdict(Verdict::Goto(chain) | Verdict::Jump(chain))) => Some(chain),
        _ => None,
    })
}

impl Absent {
    /// Whether a key of a set begins with an interface or an address that is gone.
    fn covers(&self, set: &Set, key: &Key) -> bool {
        let Key::One(bytes) = key else { return false };
        let begins = |start: Key| matches!(start, Key::One(start) if bytes.starts_with(&start));
        let mut addresses = self.addresses.iter();
        match set.key.first() {
            Some(DataType::LinkName) => {
                self.interfaces.iter().any(|name| begins(Key::link_name(name)))
            }
            Some(DataType::Ipv4) => addresses.any(|it| it.is_ipv4() && begins(Key::address(*it))),
            Some(DataType::Ipv6) => addresses.any(|it| it.is_ipv6() && begins(Key::address(*it))),
            _ => false,
        }
    }
}
