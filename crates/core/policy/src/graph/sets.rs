//! The sets that rules in force name, each kept for as long as one does.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use model::selector::Selector;

use super::items::{Item, Items};
use super::label_index::{LabelIndex, Shift};
use super::members::{Difference, Members};
use super::slots::Slots;
use crate::intent::{Dirty, SetChange};
use crate::scan::SetDefinition;
use crate::set::{IpSet, IpSets, Member, SetId};

/// The number of a set; also that of its selector in the label index.
pub(super) type SetSlot = u32;

/// All sets in use.
#[derive(Debug, Default)]
pub(super) struct Sets {
    slots: BTreeMap<SetId, SetSlot>,
    sets: Slots<Set>,
    /// Sets that are new, or that nothing may use any more.
    unsettled: BTreeSet<SetSlot>,
    /// Sets with contributions to come.
    touched: BTreeSet<SetSlot>,
}

#[derive(Debug)]
struct Set {
    id: SetId,
    definition: SetDefinition,
    n_users: u32,
    is_built: bool,
    members: Members,
    /// Contributions that began (true) and ended since the last flush.
    queue: Vec<(Member, bool)>,
}

impl Sets {
    /// One more user of a set.
    pub(super) fn acquire(&mut self, id: &SetId, definition: &SetDefinition) -> SetSlot {
        if let Some(&slot) = self.slots.get(id) {
            self.sets[slot].n_users += 1;
            return slot;
        }
        let slot = self.sets.insert(Set {
            id: id.clone(),
            definition: definition.clone(),
            n_users: 1,
            is_built: false,
            members: Members::default(),
            queue: Vec::new(),
        });
        self.slots.insert(id.clone(), slot);
        self.unsettled.insert(slot);
        slot
    }

    /// One user less.
    pub(super) fn release(&mut self, slot: SetSlot) {
        let set = &mut self.sets[slot];
        set.n_users -= 1;
        if set.n_users == 0 {
            self.unsettled.insert(slot);
        }
    }

    /// An item begins (true) or ends to contribute to a set.
    pub(super) fn contribute(&mut self, slot: SetSlot, item: &Item, begins: bool) {
        let set = &mut self.sets[slot];
        item.members(&set.definition, |member| set.queue.push((member, begins)));
        if !set.queue.is_empty() {
            self.touched.insert(slot);
        }
    }

    /// A group is in other sets than before.
    pub(super) fn shift(&mut self, shift: &Shift, index: &LabelIndex, items: &Items) {
        for item in index.items(shift.group) {
            let item = items.get(item);
            for &slot in &shift.started {
                self.contribute(slot, item, true);
            }
            for &slot in &shift.stopped {
                self.contribute(slot, item, false);
            }
        }
    }

    /// Brings all sets up to date.
    pub(super) fn flush(
        &mut self,
        index: &mut LabelIndex,
        items: &Items,
        shown: &mut IpSets,
        dirty: &mut Dirty,
    ) {
        for slot in mem::take(&mut self.unsettled) {
            if self.sets[slot].n_users == 0 {
                self.discard(slot, index, shown, dirty);
            } else if !self.sets[slot].is_built {
                self.build(slot, index, items, shown, dirty);
            }
        }
        for slot in mem::take(&mut self.touched) {
            self.update(slot, shown, dirty);
        }
    }

    fn discard(
        &mut self,
        slot: SetSlot,
        index: &mut LabelIndex,
        shown: &mut IpSets,
        dirty: &mut Dirty,
    ) {
        let set = self.sets.remove(slot);
        self.slots.remove(&set.id);
        self.touched.remove(&slot);
        if set.is_built && selector(&set.definition).is_some() {
            index.remove_selector(slot);
        }
        if let Some(gone) = shown.remove(&set.id) {
            let removed = gone.members.into_iter().collect();
            dirty.sets.insert(set.id, SetChange { added: Vec::new(), removed });
        }
    }

    fn build(
        &mut self,
        slot: SetSlot,
        index: &mut LabelIndex,
        items: &Items,
        shown: &mut IpSets,
        dirty: &mut Dirty,
    ) {
        let set = &mut self.sets[slot];
        let selector = selector(&set.definition).cloned();
        let groups = selector.map_or_else(Vec::new, |it| index.add_selector(slot, it));
        let mut all = Vec::new();
        for item in groups.iter().flat_map(|group| index.items(*group)) {
            items.get(item).members(&set.definition, |member| all.push(member));
        }
        let (members, visible) = Members::new(all);
        (set.members, set.is_built) = (members, true);
        let added = visible.iter().cloned().collect();
        dirty.sets.insert(set.id.clone(), SetChange { added, removed: Vec::new() });
        shown.insert(set.id.clone(), IpSet { members: visible });
    }

    fn update(&mut self, slot: SetSlot, shown: &mut IpSets, dirty: &mut Dirty) {
        let set = &mut self.sets[slot];
        let visible = &mut shown.get_mut(&set.id).expect("what is built is shown").members;
        let mut difference = Difference::default();
        for (member, begins) in mem::take(&mut set.queue) {
            match begins {
                true => set.members.add(member, visible, &mut difference),
                false => set.members.remove(member, visible, &mut difference),
            }
        }
        let change = difference.into_change();
        if change != SetChange::default() {
            dirty.sets.insert(set.id.clone(), change);
        }
    }

    /// Whether nothing of all that came is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.slots.is_empty() && self.touched.is_empty()
    }
}

/// Whose members depend on labels.
fn selector(definition: &SetDefinition) -> Option<&Selector> {
    match definition {
        SetDefinition::Selector(selector) | SetDefinition::NamedPort { selector, .. } => {
            Some(selector)
        }
        SetDefinition::Service { .. } => None,
    }
}
