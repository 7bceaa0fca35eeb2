//! What should stand against what was read from the kernel.
//!
//! Chains are compared by the digests of their rules, without what was counted; sets by their
//! elements, very large ones by how many they are, and those that packets fill not at all. What the
//! kernel refused stands as before, and what is left over may stand or not.

use std::collections::{BTreeMap, BTreeSet};

use nft::{Base, Chain, Element, ElementValue, Expression, Key, Rule, Set, TableFamily};

use crate::intent::Intent;

use super::draft::{digest, leading};
use super::members::by_address;
use super::plan::In;
use super::ruleset::{Filled, Ruleset, family};
use super::state::Body;
use super::{Renderer, base, name, still_sets, surroundings, workload};

/// Sets with more members than this are compared by how many they are.
const EXACT_MAX: usize = 4096;

type Place = (TableFamily, String);

/// What is expected of a set.
struct Expected {
    set: Set,
    elements: BTreeMap<Key, Option<ElementValue>>,
}

impl Renderer {
    /// The first difference between what should stand for an intent that was carried out and what
    /// the kernel holds, in words.
    pub fn drift(&self, intent: &Intent, found: &Ruleset) -> Option<String> {
        let mut known: BTreeSet<Place> = BTreeSet::new();
        let litter = &self.state.litter;
        for name in litter.chains.iter().chain(&litter.sets) {
            known.insert((TableFamily::Inet, name.clone()));
        }
        let (chain, rules) = base::neighbours_chain(&self.settings);
        let place = (TableFamily::Arp, chain.name.clone());
        known.insert(place.clone());
        if let Some(words) = chain_drift(found, &place, chain.base.as_ref(), &digest(&rules)) {
            return Some(words);
        }
        for (name, object) in &self.state.objects {
            let place = (TableFamily::Inet, name.clone());
            let words = match &object.body {
                Body::Chain { base, digest, .. } => {
                    chain_drift(found, &place, base.as_ref(), digest)
                }
                body => self.body_drift(body, intent, &place, found),
            };
            if words.is_some() {
                return words;
            }
            known.insert(place);
        }
        for (place, expected) in self.still_sets() {
            let words = set_drift(found, &place, &expected.set, expected.elements);
            if words.is_some() {
                return words;
            }
            known.insert(place);
        }
        let foreign = |(_, name): &Place| format!("{name} was added");
        let mut there = found.chains.keys().chain(found.sets.keys());
        there.find(|place| !known.contains(*place)).map(foreign)
    }

    /// Compares a set of the kernel that is made for rules.
    fn body_drift(
        &self,
        body: &Body,
        intent: &Intent,
        place: &Place,
        found: &Ruleset,
    ) -> Option<String> {
        let is_owed = |id: &String| self.debts.sets.contains_key(id);
        match body {
            Body::Chain { .. } => None,
            Body::Fixed(set) => {
                let filled = match filled(found, place, set) {
                    Ok(filled) => filled,
                    Err(words) => return Some(words),
                };
                let prefix = set.name.rsplit_once('-').map_or("", |(prefix, _)| prefix);
                let is_same = name::of_keys(prefix, set, filled.elements.keys()) == set.name;
                (!is_same).then(|| format!("set {} has other elements", set.name))
            }
            Body::Map(set, entries) => {
                let entry = |(key, verdict): (&Key, &nft::Verdict)| {
                    (key.clone(), Some(ElementValue::Verdict(verdict.clone())))
                };
                set_drift(found, place, set, entries.iter().map(entry).collect())
            }
            Body::Addresses { targets, .. } if targets.iter().any(|(id, _)| is_owed(id)) => None,
            Body::Addresses { set, is_ipv4, targets } => {
                let (_, entries) = by_address(targets, *is_ipv4, &intent.sets, None);
                let elements = entries.into_iter().map(leading).map(entry).collect();
                set_drift(found, place, set, elements)
            }
            Body::Members(using, _) if is_owed(&using.id) => None,
            Body::Members(using, set) => {
                let Some(now) = intent.sets.get(&using.id) else {
                    return set_drift(found, place, set, BTreeMap::new());
                };
                if now.members.len() <= EXACT_MAX {
                    let elements = using.elements(now).map(entry).collect();
                    return set_drift(found, place, set, elements);
                }
                match filled(found, place, set) {
                    Err(words) => Some(words),
                    Ok(filled) => (filled.elements.len() != using.elements(now).count())
                        .then(|| format!("set {} has other elements", set.name)),
                }
            }
        }
    }

    /// The sets that stand still, with what is in them.
    fn still_sets(&self) -> BTreeMap<Place, Expected> {
        let mut sets: BTreeMap<Place, Expected> = BTreeMap::new();
        for (table, set) in still_sets() {
            let place = (family(table), set.name.clone());
            sets.insert(place, Expected { set, elements: BTreeMap::new() });
        }
        let placed = self.state.workloads.values().flat_map(workload::Placed::elements);
        let placed = placed.chain(workload::all_speaking(&self.state));
        let placed = placed.map(|(table, set, element)| ((family(table), set.name), element));
        let around = surroundings::elements(&self.state.surroundings, &self.settings);
        let around = around.map(|(name, element)| ((family(In::Inet), name), element));
        for (place, element) in placed.chain(around) {
            if let Some(expected) = sets.get_mut(&place) {
                expected.elements.extend([entry(element)]);
            }
        }
        sets
    }
}

fn entry(element: Element) -> (Key, Option<ElementValue>) {
    (element.key, element.value)
}

fn chain_drift(
    found: &Ruleset,
    place: &Place,
    base: Option<&Base>,
    expected: &str,
) -> Option<String> {
    let name = &place.1;
    let Some((Chain { base: there, .. }, rules)) = found.chains.get(place) else {
        return Some(format!("chain {name} is missing"));
    };
    if there.as_ref() != base {
        return Some(format!("chain {name} has another hook, priority or policy"));
    }
    let rules: Vec<Rule> = rules.iter().map(uncounted).collect();
    (digest(&rules) != expected).then(|| format!("chain {name} has other rules"))
}

/// A rule as it is written: without what was counted.
fn uncounted(rule: &Rule) -> Rule {
    let mut rule = rule.clone();
    for expression in &mut rule.expressions {
        if let Expression::Counter { packets, bytes } = expression {
            (*packets, *bytes) = (0, 0);
        }
    }
    rule
}

fn filled<'a>(found: &'a Ruleset, place: &Place, set: &Set) -> Result<&'a Filled, String> {
    match found.sets.get(place) {
        None => Err(format!("set {} is missing", set.name)),
        Some(filled) if filled.set != *set => Err(format!("set {} is another one", set.name)),
        Some(filled) => Ok(filled),
    }
}

fn set_drift(
    found: &Ruleset,
    place: &Place,
    set: &Set,
    expected: BTreeMap<Key, Option<ElementValue>>,
) -> Option<String> {
    let there = match filled(found, place, set) {
        Ok(filled) => &filled.elements,
        Err(words) => return Some(words),
    };
    if set.is_dynamic {
        return None;
    }
    let name = &set.name;
    for (key, value) in &expected {
        match there.get(key) {
            None => return Some(format!("set {name} lacks an element")),
            Some(element) if element.value != *value => {
                return Some(format!("set {name} has an element with another value"));
            }
            Some(_) => {}
        }
    }
    (there.len() != expected.len()).then(|| format!("set {name} has an element too many"))
}
