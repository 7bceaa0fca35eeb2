//! Policies and the tiers that they are in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::locals::Locals;
use super::sets::SetSlot;
use super::slots::Slots;
use crate::input::{Policy, PolicyId, Tier};
use crate::order::{PolicyOrder, TierOrder};

/// The number of a policy; also that of its selector in the index of local endpoints.
pub(super) type PolicySlot = u32;

/// The number of a tier.
pub(super) type TierSlot = u32;

/// All policies and tiers.
#[derive(Debug, Default)]
pub(super) struct Policies {
    slots: BTreeMap<PolicyId, PolicySlot>,
    policies: Slots<Entry>,
    tier_slots: BTreeMap<String, TierSlot>,
    tiers: Slots<TierEntry>,
    /// Policies whose rules may have to be shown in another way.
    pub(super) dirty: BTreeSet<PolicySlot>,
    /// Tiers that changed.
    pub(super) dirty_tiers: BTreeSet<TierSlot>,
}

/// A policy.
#[derive(Debug)]
pub(super) struct Entry {
    /// What it is; none once it is gone.
    pub(super) policy: Option<Arc<Policy>>,
    pub(super) order: PolicyOrder,
    pub(super) tier: TierSlot,
    /// How many local endpoints it selects.
    n_selected: u32,
    /// The sets that its rules name, if it is in force.
    pub(super) sets: Vec<SetSlot>,
}

/// A tier, or what only policies speak of.
#[derive(Debug)]
pub(super) struct TierEntry {
    pub(super) tier: Option<Tier>,
    pub(super) order: TierOrder,
    n_policies: u32,
}

impl Entry {
    /// The policy, if it is in effect on this node.
    pub(super) fn in_effect(&self) -> Option<&Arc<Policy>> {
        let policy = self.policy.as_ref()?;
        (self.n_selected > 0 || policy.is_needed_everywhere).then_some(policy)
    }
}

impl Policies {
    /// Puts or removes a policy.
    pub(super) fn put(&mut self, id: PolicyId, new: Option<Arc<Policy>>, locals: &mut Locals) {
        let slot = match (self.slots.get(&id), &new) {
            (Some(slot), _) => *slot,
            (None, Some(policy)) => self.insert(id.clone(), policy),
            (None, None) => return,
        };
        let entry = &mut self.policies[slot];
        let old = std::mem::replace(&mut entry.policy, new.clone());
        if old == new {
            return;
        }
        self.dirty.insert(slot);
        let is_selector_new =
            old.as_ref().map(|it| &it.selector) != new.as_ref().map(|it| &it.selector);
        if old.is_some() && is_selector_new {
            let groups = locals.index.remove_selector(slot);
            locals.touch(&groups);
        }
        let Some(new) = new else { return };
        entry.order = PolicyOrder::new(new.order, id);
        let tier = entry.tier;
        if self.tiers[tier].order.name() != new.tier {
            self.leave_tier(tier);
            self.policies[slot].tier = self.enter_tier(&new.tier);
        }
        if is_selector_new {
            let groups = locals.index.add_selector(slot, new.selector.clone());
            self.policies[slot].n_selected = locals.touch(&groups);
        } else if old.is_none_or(|old| has_other_place(&old, &new)) {
            let groups = locals.index.matching(slot);
            locals.touch(&groups);
        }
    }

    fn insert(&mut self, id: PolicyId, policy: &Policy) -> PolicySlot {
        let tier = self.enter_tier(&policy.tier);
        let order = PolicyOrder::new(policy.order, id.clone());
        let entry = Entry { policy: None, order, tier, n_selected: 0, sets: Vec::new() };
        let slot = self.policies.insert(entry);
        self.slots.insert(id, slot);
        slot
    }

    /// Forgets a policy that is gone.
    pub(super) fn forget(&mut self, slot: PolicySlot) {
        let entry = self.policies.remove(slot);
        self.slots.remove(entry.order.id());
        self.leave_tier(entry.tier);
    }

    /// Puts or removes a tier.
    pub(super) fn put_tier(&mut self, name: &str, tier: Option<Tier>) {
        let slot = self.enter_tier(name);
        let entry = &mut self.tiers[slot];
        if entry.tier != tier {
            entry.tier = tier;
            entry.order = TierOrder::new(name, tier.as_ref());
            self.dirty_tiers.insert(slot);
        }
        self.leave_tier(slot);
    }

    fn enter_tier(&mut self, name: &str) -> TierSlot {
        if let Some(&slot) = self.tier_slots.get(name) {
            self.tiers[slot].n_policies += 1;
            return slot;
        }
        let entry = TierEntry { tier: None, order: TierOrder::new(name, None), n_policies: 1 };
        let slot = self.tiers.insert(entry);
        self.tier_slots.insert(name.to_owned(), slot);
        slot
    }

    fn leave_tier(&mut self, slot: TierSlot) {
        let entry = &mut self.tiers[slot];
        entry.n_policies -= 1;
        if entry.n_policies == 0 && entry.tier.is_none() {
            self.dirty_tiers.remove(&slot);
            let entry = self.tiers.remove(slot);
            self.tier_slots.remove(entry.order.name());
        }
    }

    /// A policy selects one more local endpoint.
    pub(super) fn match_started(&mut self, slot: PolicySlot) {
        let entry = &mut self.policies[slot];
        entry.n_selected += 1;
        if entry.n_selected == 1 {
            self.dirty.insert(slot);
        }
    }

    /// A policy selects one local endpoint less.
    pub(super) fn match_stopped(&mut self, slot: PolicySlot) {
        let entry = &mut self.policies[slot];
        entry.n_selected -= 1;
        if entry.n_selected == 0 {
            self.dirty.insert(slot);
        }
    }

    /// A policy.
    pub(super) fn get(&self, slot: PolicySlot) -> &Entry {
        &self.policies[slot]
    }

    /// A policy, to be changed.
    pub(super) fn get_mut(&mut self, slot: PolicySlot) -> &mut Entry {
        &mut self.policies[slot]
    }

    /// A tier.
    pub(super) fn tier(&self, slot: TierSlot) -> &TierEntry {
        &self.tiers[slot]
    }

    /// Whether nothing of all that came is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.tiers.is_empty()
    }
}

/// Whether a policy with the same selector appears elsewhere in the lists of endpoints.
fn has_other_place(old: &Policy, new: &Policy) -> bool {
    let place = |policy: &Policy| {
        let directions = (policy.is_for_ingress, policy.is_for_egress);
        (policy.order, directions, policy.stage, policy.is_for_forward)
    };
    old.tier != new.tier || place(old) != place(new)
}
