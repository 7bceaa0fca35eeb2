//! Everything that stands after an installation, as values.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nft::set::SetKind;
use nft::{Chain, Element, Key, Rule, Set, TableFamily};

use super::plan::{In, Sink};
use super::state::Body;
use super::{Intent, Renderer, Surroundings, still_sets, whole};

/// The maps from workloads' interfaces to their chains.
pub const DISPATCH: [&str; 4] = ["to4", "to6", "from4", "from6"];

/// The sets, maps and chains of our tables, by family and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruleset {
    /// Sets and maps with their elements.
    pub sets: BTreeMap<(TableFamily, String), Filled>,
    /// Chains with their rules.
    pub chains: BTreeMap<(TableFamily, String), (Chain, Vec<Rule>)>,
}

/// A set with its elements, by key.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// The set.
    pub set: Set,
    /// Its elements.
    pub elements: BTreeMap<Key, Element>,
    /// Whether its elements come from everywhere in the cluster.
    pub is_of_cluster: bool,
}

/// How many chains, rules, sets and maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Chains.
    pub chains: usize,
    /// Rules in them.
    pub rules: usize,
    /// Sets that are no maps.
    pub sets: usize,
    /// Maps.
    pub maps: usize,
}

/// Where an interface with these addresses must be: the name of a set or map, and the key.
pub fn places(interface: &str, addresses: &[IpAddr]) -> Vec<(String, Key)> {
    let name = Key::link_name(interface);
    let mut places = Vec::new();
    for address in addresses {
        let family = if address.is_ipv4() { 4 } else { 6 };
        let pair = Key::concatenation(&[name.clone(), Key::address(*address)]);
        places.push((format!("source{family}"), pair));
        for direction in ["to", "from"] {
            let place = (format!("{direction}{family}"), name.clone());
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}

impl Renderer {
    /// What stands once an intent is installed.
    pub fn whole(&self, intent: &Intent, surroundings: &Surroundings) -> Ruleset {
        let mut ruleset = Ruleset::default();
        let (_, plan) = self.drafted(intent, &whole(intent), surroundings, true);
        plan.carry_out(intent, &mut ruleset);
        for (name, object) in plan.ip_sets() {
            if let Some(filled) = ruleset.sets.get_mut(&(family(name), object.to_owned())) {
                filled.is_of_cluster = true;
            }
        }
        ruleset
    }

    /// Whether a workload is in the table.
    pub fn has_workload(&self, key: &str) -> bool {
        self.state.workloads.contains_key(key)
    }

    /// How much stands in the table for both families.
    pub fn sizes(&self) -> Sizes {
        let still = still_sets().filter(|(table, _)| *table == In::Inet);
        let (maps, sets): (Vec<Set>, Vec<Set>) =
            still.map(|(_, set)| set).partition(|set| set.kind == SetKind::Verdicts);
        let mut sizes = Sizes { chains: 0, rules: 0, sets: sets.len(), maps: maps.len() };
        for object in self.state.objects.values() {
            match &object.body {
                Body::Chain { n_rules, .. } => {
                    sizes.chains += 1;
                    sizes.rules += n_rules;
                }
                Body::Map(..) | Body::Addresses { .. } => sizes.maps += 1,
                Body::Fixed(_) | Body::Members(..) => sizes.sets += 1,
            }
        }
        sizes
    }

    /// How many interfaces of workloads are open.
    pub fn n_interfaces(&self) -> usize {
        self.state.workloads.len()
    }
}

pub(super) fn family(table: In) -> TableFamily {
    match table {
        In::Inet => TableFamily::Inet,
        In::Arp => TableFamily::Arp,
    }
}

impl Sink for Ruleset {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn add_set(&mut self, table: In, set: &Set) {
        let filled = Filled { set: set.clone(), elements: BTreeMap::new(), is_of_cluster: false };
        self.sets.insert((family(table), set.name.clone()), filled);
    }

    fn add_chain(&mut self, table: In, chain: &Chain) {
        self.chains.insert((family(table), chain.name.clone()), (chain.clone(), Vec::new()));
    }

    fn flush_set(&mut self, table: In, set: &Set) {
        if let Some(filled) = self.sets.get_mut(&(family(table), set.name.clone())) {
            filled.elements.clear();
        }
    }

    fn delete_elements(&mut self, table: In, set: &Set, elements: &[Element]) {
        if let Some(filled) = self.sets.get_mut(&(family(table), set.name.clone())) {
            elements.iter().for_each(|it| drop(filled.elements.remove(&it.key)));
        }
    }

    fn add_elements(&mut self, table: In, set: &Set, elements: &[Element]) {
        if let Some(filled) = self.sets.get_mut(&(family(table), set.name.clone())) {
            let elements = elements.iter();
            filled.elements.extend(elements.map(|it| (it.key.clone(), it.clone())));
        }
    }

    fn flush_chain(&mut self, table: In, chain: &str) {
        if let Some((_, rules)) = self.chains.get_mut(&(family(table), chain.to_owned())) {
            rules.clear();
        }
    }

    fn add_rule(&mut self, table: In, rule: &Rule) {
        if let Some((_, rules)) = self.chains.get_mut(&(family(table), rule.chain.clone())) {
            rules.push(rule.clone());
        }
    }

    fn delete_set(&mut self, table: In, set: &str) {
        self.sets.remove(&(family(table), set.to_owned()));
    }

    fn delete_chain(&mut self, table: In, chain: &str) {
        self.chains.remove(&(family(table), chain.to_owned()));
    }
}
