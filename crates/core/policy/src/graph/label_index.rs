//! Which items match which selectors, kept up to date as either changes.
//!
//! An item is an endpoint or a network set: only its labels and its profiles matter here. Items
//! that agree in both form a group, and selectors are matched with groups. Two indexes keep the
//! number of comparisons down: a group meets only selectors that demand no label it lacks, and a
//! selector meets only groups that have a label it demands.

mod demands;
mod groups;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use model::selector::Selector;

use super::texts::Texts;
use crate::input::Labels;
use demands::Demands;
use groups::{Groups, Pair};

/// The number of an item, given by the user of the index; numbers are best small.
pub(super) type ItemId = u32;

/// The number of a selector, given by the user of the index.
pub(super) type SelectorId = u32;

/// The number of a group of items.
pub(super) type GroupId = u32;

/// The index.
#[derive(Debug, Default)]
pub(super) struct LabelIndex {
    texts: Texts,
    groups: Groups,
    selectors: BTreeMap<SelectorId, Selector>,
    demands: Demands,
    /// The texts of the item that came last.
    last: Vec<Pair>,
}

/// A group whose matches changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shift {
    /// The group.
    pub(super) group: GroupId,
    /// Selectors that match it now and did not before.
    pub(super) started: Vec<SelectorId>,
    /// Selectors that matched it before and do not now.
    pub(super) stopped: Vec<SelectorId>,
}

impl LabelIndex {
    /// Gives an item labels and profiles. Returns the selectors that matched it before, unless
    /// they are the same as now.
    pub(super) fn put(
        &mut self,
        item: ItemId,
        labels: &Labels,
        profiles: &[String],
    ) -> Option<Box<[SelectorId]>> {
        let key = groups::Key::acquire(&mut self.texts, labels, profiles, &mut self.last);
        let before = self.groups.of(item);
        let group = match self.groups.find(&key) {
            Some(group) => {
                key.release(&mut self.texts);
                group
            }
            None => self.found(key),
        };
        if before == Some(group) {
            return None;
        }
        let matches = self.detach(item);
        self.groups.attach(item, group);
        Some(matches)
    }

    /// Forgets an item. Returns the selectors that matched it.
    pub(super) fn remove(&mut self, item: ItemId) -> Box<[SelectorId]> {
        self.detach(item)
    }

    /// The selectors that match an item, in order.
    pub(super) fn matches(&self, item: ItemId) -> &[SelectorId] {
        self.groups.of(item).map_or(&[], |group| self.groups.matches(group))
    }

    /// The selectors that match the items of a group, in order.
    pub(super) fn matches_of_group(&self, group: GroupId) -> &[SelectorId] {
        self.groups.matches(group)
    }

    /// The items of a group.
    pub(super) fn items(&self, group: GroupId) -> impl Iterator<Item = ItemId> {
        self.groups.items(group)
    }

    /// All groups.
    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.groups.ids()
    }

    /// Adds a selector under a number that is not in use. Returns the groups that match it.
    pub(super) fn add_selector(&mut self, id: SelectorId, selector: Selector) -> Vec<GroupId> {
        self.demands.add(id, &selector, &mut self.texts);
        self.groups.index_for(&selector, &mut self.texts);
        let mut matching = self.groups.candidates(&selector, &self.texts);
        matching.retain(|&group| self.is_match(&selector, group));
        for &group in &matching {
            self.groups.start(group, id);
        }
        self.selectors.insert(id, selector);
        matching
    }

    /// Removes a selector. Returns the groups that matched it.
    pub(super) fn remove_selector(&mut self, id: SelectorId) -> Vec<GroupId> {
        let selector = self.selectors.remove(&id).expect("a selector is removed once");
        let mut matching = self.groups.candidates(&selector, &self.texts);
        matching.retain(|&group| self.groups.stop(group, id));
        self.groups.unindex_for(&selector, &mut self.texts);
        self.demands.remove(id, &mut self.texts);
        matching
    }

    /// The groups that match a selector.
    pub(super) fn matching(&self, id: SelectorId) -> Vec<GroupId> {
        let Some(selector) = self.selectors.get(&id) else { return Vec::new() };
        let mut matching = self.groups.candidates(selector, &self.texts);
        matching.retain(|&group| self.groups.matches(group).binary_search(&id).is_ok());
        matching
    }

    /// Gives a profile labels, or takes them away. Returns the groups that are not matched as
    /// before.
    pub(super) fn set_profile(&mut self, profile: &str, labels: &Labels) -> Vec<Shift> {
        let id = self.texts.acquire(profile);
        let now = groups::acquire_labels(&mut self.texts, labels);
        let mut shifts = Vec::new();
        let unused = match *self.groups.inherited(id) == *now {
            true => now,
            false => {
                // One use for as long as the profile gives labels.
                if self.groups.inherited(id).is_empty() {
                    self.texts.acquire(profile);
                }
                if now.is_empty() {
                    self.texts.release(id);
                }
                let before = self.groups.inherit(id, now);
                let concerned = self.groups.with_profile(id);
                shifts.extend(concerned.into_iter().filter_map(|group| self.match_again(group)));
                before
            }
        };
        groups::release_labels(&mut self.texts, &unused);
        self.texts.release(id);
        shifts
    }

    /// Whether nothing of all that came is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let has_texts = !self.texts.is_empty();
        !has_texts && self.selectors.is_empty() && self.groups.ids().next().is_none()
    }

    fn match_again(&mut self, group: GroupId) -> Option<Shift> {
        let now = self.selectors_for(group);
        let before = self.groups.replace_matches(group, now.clone());
        let without = |list: &[SelectorId], other: &[SelectorId]| -> Vec<SelectorId> {
            list.iter().filter(|id| other.binary_search(id).is_err()).copied().collect()
        };
        let (started, stopped) = (without(&now, &before), without(&before, &now));
        let is_same = started.is_empty() && stopped.is_empty();
        (!is_same).then_some(Shift { group, started, stopped })
    }

    fn found(&mut self, key: groups::Key) -> GroupId {
        let group = self.groups.add(key);
        let matches = self.selectors_for(group);
        self.groups.replace_matches(group, matches);
        group
    }

    fn detach(&mut self, item: ItemId) -> Box<[SelectorId]> {
        let Some(group) = self.groups.of(item) else { return Box::default() };
        self.groups.detach(item);
        let matches: Box<[SelectorId]> = self.groups.matches(group).into();
        if self.groups.items(group).next().is_none() {
            self.groups.remove(group, &mut self.texts);
        }
        matches
    }

    fn selectors_for(&self, group: GroupId) -> Box<[SelectorId]> {
        let candidates = self.groups.labels(group).flat_map(|it| self.demands.candidates(it));
        let mut ids: BTreeSet<SelectorId> = candidates.chain(self.demands.free()).collect();
        ids.retain(|id| self.is_match(&self.selectors[id], group));
        ids.into_iter().collect()
    }

    fn is_match(&self, selector: &Selector, group: GroupId) -> bool {
        selector.matches(|name| {
            let mut labels = self.groups.labels(group);
            let label = labels.find(|label| self.texts.text(label.0) == name)?;
            Some(self.texts.text(label.1))
        })
    }
}
