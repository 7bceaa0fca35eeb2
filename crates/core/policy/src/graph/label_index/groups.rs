//! Groups of items with the same labels and profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::mem;

use model::selector::Selector;

use super::super::slots::Slots;
use super::super::texts::{TextId, Texts};
use super::{GroupId, ItemId, SelectorId};
use crate::input::Labels;

/// A label: its name and its value.
pub(super) type Pair = (TextId, TextId);

/// No item.
const NONE: u32 = u32::MAX;

/// All groups, and the items in each.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Slots<Group>,
    /// Groups by a hash of what their items have in common.
    by_key: BTreeSet<(u64, GroupId)>,
    by_profile: BTreeSet<(TextId, GroupId)>,
    /// Labels that profiles give, by profile.
    inherited: BTreeMap<TextId, Box<[Pair]>>,
    /// Groups by value, for the labels that selectors demand.
    by_label: BTreeMap<TextId, Indexed>,
    places: Vec<Place>,
}

/// Groups by the value that a label has.
#[derive(Debug, Default)]
struct Indexed {
    n_selectors: u32,
    groups: BTreeSet<(TextId, GroupId)>,
}

#[derive(Debug)]
struct Group {
    key: Key,
    first: ItemId,
    matches: Box<[SelectorId]>,
}

/// What the items of a group have in common.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Labels in order of their names, then profiles in their order with a number that no text has:
    /// one allocation for both.
    pairs: Box<[Pair]>,
    n_labels: u32,
}

/// Where an item is: its group, and its neighbours in the ring of the group's items.
#[derive(Clone, Copy, Debug)]
struct Place {
    group: GroupId,
    next: ItemId,
    previous: ItemId,
}

const NOWHERE: Place = Place { group: NONE, next: NONE, previous: NONE };

impl Key {
    /// Texts of the key are in use until it is released. `last` has the numbers of the key before,
    /// which mostly has the same texts in the same places.
    pub(super) fn acquire(
        texts: &mut Texts,
        labels: &Labels,
        profiles: &[String],
        last: &mut Vec<Pair>,
    ) -> Self {
        let mut pairs = Vec::with_capacity(labels.len() + profiles.len());
        let mut likely = last.iter().copied().chain(iter::repeat((NONE, NONE)));
        for (name, value) in labels {
            let (like_name, like_value) = likely.next().unwrap_or((NONE, NONE));
            pairs
                .push((texts.acquire_like(name, like_name), texts.acquire_like(value, like_value)));
        }
        for (profile, (like, _)) in profiles.iter().zip(likely) {
            pairs.push((texts.acquire_like(profile, like), NONE));
        }
        last.clone_from(&pairs);
        let n_labels = u32::try_from(labels.len()).expect("memory ends before the numbers do");
        Self { pairs: pairs.into(), n_labels }
    }

    pub(super) fn release(self, texts: &mut Texts) {
        release_labels(texts, self.labels());
        for profile in self.profiles() {
            texts.release(profile);
        }
    }

    fn labels(&self) -> &[Pair] {
        &self.pairs[..self.n_labels as usize]
    }

    fn profiles(&self) -> impl Iterator<Item = TextId> {
        self.pairs[self.n_labels as usize..].iter().map(|(profile, _)| *profile)
    }

    fn hash(&self) -> u64 {
        let mix = |hash: u64, word: u32| {
            (hash.rotate_left(5) ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        self.pairs.iter().fold(0, |hash, (name, value)| mix(mix(hash, *name), *value))
    }
}

/// Labels as numbers; their texts are in use until they are released.
pub(super) fn acquire_labels(texts: &mut Texts, labels: &Labels) -> Box<[Pair]> {
    labels.iter().map(|(name, value)| (texts.acquire(name), texts.acquire(value))).collect()
}

/// The labels are not used any more.
pub(super) fn release_labels(texts: &mut Texts, labels: &[Pair]) {
    for (name, value) in labels {
        texts.release(*name);
        texts.release(*value);
    }
}

impl Groups {
    pub(super) fn find(&self, key: &Key) -> Option<GroupId> {
        let hash = key.hash();
        let mut same = self.by_key.range((hash, 0)..=(hash, NONE)).map(|(_, group)| *group);
        same.find(|group| self.groups[*group].key == *key)
    }

    /// A new group; its matches are left open.
    pub(super) fn add(&mut self, key: Key) -> GroupId {
        let hash = key.hash();
        let id = self.groups.insert(Group { key, first: NONE, matches: Box::default() });
        self.by_key.insert((hash, id));
        let profiles = self.groups[id].key.profiles();
        self.by_profile.extend(profiles.map(|profile| (profile, id)));
        self.index(id, true);
        id
    }

    /// Removes a group without items.
    pub(super) fn remove(&mut self, id: GroupId, texts: &mut Texts) {
        self.index(id, false);
        let group = self.groups.remove(id);
        self.by_key.remove(&(group.key.hash(), id));
        for profile in group.key.profiles() {
            self.by_profile.remove(&(profile, id));
        }
        group.key.release(texts);
    }

    /// Adds a group to the index by labels, or takes it out.
    fn index(&mut self, id: GroupId, is_new: bool) {
        for (name, value) in self.groups[id].labels(&self.inherited) {
            if let Some(indexed) = self.by_label.get_mut(&name) {
                match is_new {
                    true => indexed.groups.insert((value, id)),
                    false => indexed.groups.remove(&(value, id)),
                };
            }
        }
    }

    /// The labels that a profile gives.
    pub(super) fn inherited(&self, profile: TextId) -> &[Pair] {
        self.inherited.get(&profile).map_or(&[], |labels| labels)
    }

    /// Lets a profile give other labels. Returns those that it gave before.
    pub(super) fn inherit(&mut self, profile: TextId, labels: Box<[Pair]>) -> Box<[Pair]> {
        let concerned = self.with_profile(profile);
        concerned.iter().for_each(|group| self.index(*group, false));
        let before = match labels.is_empty() {
            true => self.inherited.remove(&profile),
            false => self.inherited.insert(profile, labels),
        };
        concerned.iter().for_each(|group| self.index(*group, true));
        before.unwrap_or_default()
    }

    pub(super) fn with_profile(&self, profile: TextId) -> Vec<GroupId> {
        self.by_profile.range((profile, 0)..=(profile, NONE)).map(|(_, group)| *group).collect()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = GroupId> {
        self.groups.iter().map(|(id, _)| id)
    }

    /// Its labels, and then those that it inherits. Of several with one name the first counts.
    pub(super) fn labels(&self, id: GroupId) -> impl Iterator<Item = Pair> {
        self.groups[id].labels(&self.inherited)
    }

    pub(super) fn matches(&self, id: GroupId) -> &[SelectorId] {
        &self.groups[id].matches
    }

    pub(super) fn replace_matches(
        &mut self,
        id: GroupId,
        matches: Box<[SelectorId]>,
    ) -> Box<[SelectorId]> {
        mem::replace(&mut self.groups[id].matches, matches)
    }

    /// A selector matches a group from now on.
    pub(super) fn start(&mut self, id: GroupId, selector: SelectorId) {
        let matches = &mut self.groups[id].matches;
        if let Err(place) = matches.binary_search(&selector) {
            let mut list = mem::take(matches).into_vec();
            list.insert(place, selector);
            *matches = list.into();
        }
    }

    /// A selector does not match a group any more; whether it did.
    pub(super) fn stop(&mut self, id: GroupId, selector: SelectorId) -> bool {
        let matches = &mut self.groups[id].matches;
        let Ok(place) = matches.binary_search(&selector) else { return false };
        let mut list = mem::take(matches).into_vec();
        list.remove(place);
        *matches = list.into();
        true
    }

    pub(super) fn of(&self, item: ItemId) -> Option<GroupId> {
        self.places.get(item as usize).map(|place| place.group).filter(|group| *group != NONE)
    }

    pub(super) fn items(&self, id: GroupId) -> impl Iterator<Item = ItemId> {
        let first = Some(self.groups[id].first).filter(|first| *first != NONE);
        iter::successors(first, move |item| {
            Some(self.places[*item as usize].next).filter(|next| Some(*next) != first)
        })
    }

    /// Puts an item that is in no group into one.
    pub(super) fn attach(&mut self, item: ItemId, group: GroupId) {
        if self.places.len() <= item as usize {
            self.places.resize(item as usize + 1, NOWHERE);
        }
        let first = mem::replace(&mut self.groups[group].first, item);
        let (next, previous) = match first {
            NONE => (item, item),
            first => (first, self.places[first as usize].previous),
        };
        self.places[item as usize] = Place { group, next, previous };
        self.places[previous as usize].next = item;
        self.places[next as usize].previous = item;
    }

    /// Takes an item out of its group.
    pub(super) fn detach(&mut self, item: ItemId) {
        let Place { group, next, previous } = self.places[item as usize];
        self.places[previous as usize].next = next;
        self.places[next as usize].previous = previous;
        self.places[item as usize] = NOWHERE;
        let first = &mut self.groups[group].first;
        if *first == item {
            *first = if next == item { NONE } else { next };
        }
    }

    /// Keeps groups by the labels that a selector demands.
    pub(super) fn index_for(&mut self, selector: &Selector, texts: &mut Texts) {
        for label in demanded(selector) {
            let name = texts.acquire(label);
            let indexed = self.by_label.entry(name).or_default();
            indexed.n_selectors += 1;
            if indexed.n_selectors > 1 {
                continue;
            }
            indexed.groups = self
                .groups
                .iter()
                .flat_map(|(id, group)| {
                    let same = group.labels(&self.inherited).filter(|label| label.0 == name);
                    same.map(move |(_, value)| (value, id))
                })
                .collect();
        }
    }

    /// The end of [`Self::index_for`].
    pub(super) fn unindex_for(&mut self, selector: &Selector, texts: &mut Texts) {
        for label in demanded(selector) {
            let name = texts.find(label).expect("the label of a selector is in use");
            let indexed = self.by_label.get_mut(&name).expect("the label is indexed");
            indexed.n_selectors -= 1;
            if indexed.n_selectors == 0 {
                self.by_label.remove(&name);
            }
            texts.release(name);
        }
    }

    /// Groups that a selector with indexed labels could match.
    pub(super) fn candidates(&self, selector: &Selector, texts: &Texts) -> Vec<GroupId> {
        let mut fewest: Option<Vec<GroupId>> = None;
        for (label, restriction) in selector.restrictions() {
            let index = texts.find(label).and_then(|name| self.by_label.get(&name));
            let Some(index) = index.filter(|_| restriction.must_be_present) else { continue };
            let limit = fewest.as_ref().map_or(usize::MAX, Vec::len);
            let mut found: Vec<GroupId> = match &restriction.one_of {
                Some(values) => {
                    let values = values.iter().filter_map(|value| texts.find(value));
                    let ranges = values.map(|it| index.groups.range((it, 0)..=(it, NONE)));
                    ranges.flatten().take(limit).map(|(_, group)| *group).collect()
                }
                None => index.groups.iter().take(limit).map(|(_, group)| *group).collect(),
            };
            if found.len() < limit {
                // A group that inherits another value than its own is found by both.
                found.sort_unstable();
                found.dedup();
                fewest = Some(found);
            }
        }
        fewest.unwrap_or_else(|| self.ids().collect())
    }
}

impl Group {
    fn labels<'a>(
        &'a self,
        inherited: &'a BTreeMap<TextId, Box<[Pair]>>,
    ) -> impl Iterator<Item = Pair> + 'a {
        let of_profiles = self.key.profiles().filter_map(|profile| inherited.get(&profile));
        self.key.labels().iter().chain(of_profiles.flatten()).copied()
    }
}

fn demanded(selector: &Selector) -> impl Iterator<Item = &str> {
    let restrictions = selector.restrictions().into_iter();
    restrictions.filter(|(_, it)| it.must_be_present).map(|(label, _)| label)
}
