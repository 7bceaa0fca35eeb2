//! From changes of single objects to what this node has to carry out, at the cost of the change.
//!
//! [`Graph::absorb`] takes in a change: it brings up to date which selectors match what, and notes
//! what has to be looked at again. [`Graph::flush`] looks at it, once for however many changes
//! came, and says what is different from the flush before. The result never depends on the way
//! there: it is what [`crate::reference`] computes from scratch.

mod items;
mod label_index;
mod locals;
mod members;
mod policies;
mod profiles;
mod resolve;
mod sets;
mod slots;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use crate::convert::default_allow;
use crate::input::{Change, Key, Labels, Profile};
use crate::intent::{Directions, Dirty, Intent};
use crate::scan::{Scanned, scan_policy};
use items::{Item, Items, Kind};
use label_index::{ItemId, LabelIndex};
use locals::{Endpoint, Local, Locals};
use policies::{Policies, PolicySlot};
use profiles::Profiles;
use resolve::Resolved;
use sets::{SetSlot, Sets};

/// What a node has to carry out, kept up to date change by change.
#[derive(Debug)]
pub struct Graph {
    node: String,
    items: Items,
    /// Selectors of sets over the items of the whole cluster, by the slot of the set.
    index: LabelIndex,
    sets: Sets,
    locals: Locals,
    policies: Policies,
    profiles: Profiles,
    intent: Intent,
}

impl Graph {
    /// A graph for a node of that name in a cluster in which nothing is stored: it has the profile
    /// that is never stored.
    pub fn new(node: &str) -> Self {
        let mut graph = Self {
            node: node.to_owned(),
            items: Items::default(),
            index: LabelIndex::default(),
            sets: Sets::default(),
            locals: Locals::default(),
            policies: Policies::default(),
            profiles: Profiles::default(),
            intent: Intent::default(),
        };
        graph.absorb(default_allow());
        graph
    }

    /// What the node had to carry out at the last flush.
    pub fn intent(&self) -> &Intent {
        &self.intent
    }

    /// Takes in a change.
    pub fn absorb(&mut self, change: Change) {
        match change {
            Change::Workload(key, Some(workload)) => {
                let item = Item::of_workload(&workload);
                let id =
                    self.put(Kind::Workload, &key, item, (&workload.labels, &workload.profiles));
                let is_local = workload.node == self.node;
                self.put_local(id, &key, is_local.then_some(Endpoint::Workload(workload)));
            }
            Change::Host(key, Some(host)) => {
                let id = self.put(
                    Kind::Host,
                    &key,
                    Item::of_host(&host),
                    (&host.labels, &host.profiles),
                );
                let is_local = host.node == self.node;
                self.put_local(id, &key, is_local.then_some(Endpoint::Host(host)));
            }
            Change::NetworkSet(key, Some(set)) => {
                let item = Item::of_network_set(&set);
                self.put(Kind::NetworkSet, &key, item, (&set.labels, &set.profiles));
            }
            Change::Workload(key, None) => self.remove(Kind::Workload, &key),
            Change::Host(key, None) => self.remove(Kind::Host, &key),
            Change::NetworkSet(key, None) => self.remove(Kind::NetworkSet, &key),
            Change::Policy(id, policy) => self.policies.put(id, policy, &mut self.locals),
            Change::Tier(name, tier) => self.policies.put_tier(&name, tier),
            Change::Profile(name, profile) => self.put_profile(&name, profile),
        }
    }

    fn put(
        &mut self,
        kind: Kind,
        key: &str,
        item: Item,
        (labels, profiles): (&Labels, &[String]),
    ) -> ItemId {
        let (id, before) = match self.items.find(kind, key) {
            Some(id) => (id, self.items.replace(id, item)),
            None => (self.items.insert(kind, key, item), Item::default()),
        };
        let stopped = self.index.put(id, labels, profiles);
        let (item, now) = (self.items.get(id), self.index.matches(id));
        let then = stopped.as_deref().unwrap_or(now);
        let is_same = *item == before;
        for &slot in now {
            if !is_same || then.binary_search(&slot).is_err() {
                self.sets.contribute(slot, item, true);
            }
        }
        for &slot in then {
            if !is_same || now.binary_search(&slot).is_err() {
                self.sets.contribute(slot, &before, false);
            }
        }
        id
    }

    fn put_local(&mut self, id: ItemId, key: &str, endpoint: Option<Endpoint>) {
        let before = match endpoint {
            Some(endpoint) => {
                self.profiles.acquire(endpoint.profiles());
                self.locals.put(id, key, endpoint, &mut self.policies)
            }
            None => self.locals.remove(id, &mut self.policies),
        };
        if let Some(before) = before {
            self.profiles.release(before.profiles());
        }
    }

    fn remove(&mut self, kind: Kind, key: &str) {
        let Some((id, item)) = self.items.remove(kind, key) else { return };
        for slot in self.index.remove(id) {
            self.sets.contribute(slot, &item, false);
        }
        self.put_local(id, key, None);
    }

    fn put_profile(&mut self, name: &str, profile: Option<Arc<Profile>>) {
        let none = Labels::new();
        let labels = profile.as_ref().map_or(&none, |profile| &profile.labels);
        for shift in self.index.set_profile(name, labels) {
            self.sets.shift(&shift, &self.index, &self.items);
        }
        self.locals.set_profile(name, labels, &mut self.policies);
        self.profiles.put(name, profile);
    }

    /// Works off the changes, and says what became different by them.
    pub fn flush(&mut self) -> Dirty {
        let mut dirty = Dirty::default();
        self.flush_policies(&mut dirty);
        self.flush_profiles(&mut dirty);
        self.sets.flush(&mut self.index, &self.items, &mut self.intent.sets, &mut dirty);
        self.flush_endpoints(&mut dirty);
        dirty
    }

    fn flush_policies(&mut self, dirty: &mut Dirty) {
        for slot in mem::take(&mut self.policies.dirty) {
            let entry = self.policies.get_mut(slot);
            let scanned = entry.in_effect().map(|policy| scan_policy(policy));
            use_sets(&mut self.sets, &mut entry.sets, scanned.as_ref());
            let id = entry.order.id();
            let directions = scanned.map(|scanned| scanned.directions);
            if show(&mut self.intent.policies, id, directions) {
                dirty.policies.insert(id.clone());
            }
            if entry.policy.is_none() {
                self.policies.forget(slot);
            }
        }
    }

    fn flush_profiles(&mut self, dirty: &mut Dirty) {
        for name in mem::take(&mut self.profiles.dirty) {
            let Some(entry) = self.profiles.profiles.get_mut(&name) else { continue };
            let scanned = (entry.n_users > 0).then(|| entry.scan());
            use_sets(&mut self.sets, &mut entry.sets, scanned.as_ref());
            if entry.profile.is_none() && entry.n_users == 0 {
                self.profiles.profiles.remove(&name);
            }
            let directions = scanned.map(|scanned| scanned.directions);
            if show(&mut self.intent.profiles, &name, directions) {
                dirty.profiles.insert(name);
            }
        }
    }

    fn flush_endpoints(&mut self, dirty: &mut Dirty) {
        let tiers = mem::take(&mut self.policies.dirty_tiers);
        if !tiers.is_empty() {
            let policies = &self.policies;
            self.locals.touch_if(|policy| tiers.contains(&policies.get(policy).tier));
        }
        let ids = mem::take(&mut self.locals.dirty);
        // Endpoints with other labels often have the same policies.
        let mut resolved: BTreeMap<&[PolicySlot], Resolved> = BTreeMap::new();
        for id in ids {
            let selecting = self.locals.index.matches(id);
            let resolved = resolved
                .entry(selecting)
                .or_insert_with(|| Resolved::new(selecting, &self.policies));
            let Local { key, endpoint } = self.locals.get(id);
            match endpoint {
                Endpoint::Workload(workload) => {
                    let shown = entry(&mut self.intent.workloads, key);
                    if resolved.show_workload(workload, shown.0) | shown.1 {
                        dirty.workloads.insert(key.clone());
                    }
                }
                Endpoint::Host(host) => {
                    let shown = entry(&mut self.intent.hosts, key);
                    if resolved.show_host(host, shown.0) | shown.1 {
                        dirty.hosts.insert(key.clone());
                    }
                }
            }
        }
        for (kind, key) in mem::take(&mut self.locals.gone) {
            self.flush_gone(kind, key, dirty);
        }
    }

    fn flush_gone(&mut self, kind: Kind, key: Key, dirty: &mut Dirty) {
        let came_back = self.items.find(kind, &key).is_some_and(|id| self.locals.has(id));
        if came_back {
            return;
        }
        match kind {
            Kind::Workload => {
                if self.intent.workloads.remove(&key).is_some() {
                    dirty.workloads.insert(key);
                }
            }
            Kind::Host => {
                if self.intent.hosts.remove(&key).is_some() {
                    dirty.hosts.insert(key);
                }
            }
            Kind::NetworkSet => {}
        }
    }
}

/// Puts the sets of rules in the place of those that they named before.
fn use_sets(sets: &mut Sets, used: &mut Vec<SetSlot>, scanned: Option<&Scanned>) {
    let named = scanned.into_iter().flat_map(|scanned| &scanned.sets);
    let now = named.map(|(id, definition)| sets.acquire(id, definition)).collect();
    for slot in mem::replace(used, now) {
        sets.release(slot);
    }
}

/// Shows rules, or none; whether that is a difference.
fn show<K: Clone + Ord>(
    shown: &mut BTreeMap<K, Arc<Directions>>,
    key: &K,
    directions: Option<Directions>,
) -> bool {
    if shown.get(key).map(|shown| &**shown) == directions.as_ref() {
        return false;
    }
    match directions {
        Some(directions) => shown.insert(key.clone(), Arc::new(directions)),
        None => shown.remove(key),
    };
    true
}

/// What is shown under a key, and whether that is new.
fn entry<'a, V: Default>(shown: &'a mut BTreeMap<Key, V>, key: &Key) -> (&'a mut V, bool) {
    let is_new = !shown.contains_key(key);
    (shown.entry(key.clone()).or_default(), is_new)
}
