//! The endpoints of this node, and which policies are for them.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use super::items::Kind;
use super::label_index::{GroupId, ItemId, LabelIndex};
use super::policies::{Policies, PolicySlot};
use super::slots::Slots;
use crate::input::{Host, Key, Labels, Workload};

/// The number of an endpoint of this node.
pub(super) type LocalId = u32;

/// All endpoints of this node.
#[derive(Debug, Default)]
pub(super) struct Locals {
    ids: BTreeMap<ItemId, LocalId>,
    locals: Slots<Local>,
    /// Selectors of policies over local endpoints, by the slot of the policy.
    pub(super) index: LabelIndex,
    /// Endpoints that may have to be shown in another way.
    pub(super) dirty: BTreeSet<LocalId>,
    /// Endpoints that went.
    pub(super) gone: Vec<(Kind, Key)>,
}

/// An endpoint of this node.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) key: Key,
    pub(super) endpoint: Endpoint,
}

/// What the endpoint is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Endpoint {
    Workload(Arc<Workload>),
    Host(Arc<Host>),
}

impl Endpoint {
    pub(super) fn profiles(&self) -> &[String] {
        match self {
            Self::Workload(workload) => &workload.profiles,
            Self::Host(host) => &host.profiles,
        }
    }

    fn labels(&self) -> &Labels {
        match self {
            Self::Workload(workload) => &workload.labels,
            Self::Host(host) => &host.labels,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Workload(_) => Kind::Workload,
            Self::Host(_) => Kind::Host,
        }
    }
}

impl Locals {
    /// Puts an endpoint. Returns the one in whose place it is.
    pub(super) fn put(
        &mut self,
        item: ItemId,
        key: &str,
        endpoint: Endpoint,
        policies: &mut Policies,
    ) -> Option<Endpoint> {
        let (id, before) = match self.ids.get(&item) {
            Some(&id) => {
                let before = mem::replace(&mut self.locals[id].endpoint, endpoint.clone());
                (id, Some(before))
            }
            None => {
                let local = Local { key: key.to_owned(), endpoint: endpoint.clone() };
                let id = self.locals.insert(local);
                self.ids.insert(item, id);
                (id, None)
            }
        };
        if before.as_ref() == Some(&endpoint) {
            return before;
        }
        self.dirty.insert(id);
        if let Some(stopped) = self.index.put(id, endpoint.labels(), endpoint.profiles()) {
            self.index.matches(id).iter().for_each(|policy| policies.match_started(*policy));
            stopped.iter().for_each(|policy| policies.match_stopped(*policy));
        }
        before
    }

    /// Removes an endpoint, if it is one of this node. Returns it.
    pub(super) fn remove(&mut self, item: ItemId, policies: &mut Policies) -> Option<Endpoint> {
        let id = self.ids.remove(&item)?;
        let stopped = self.index.remove(id);
        stopped.iter().for_each(|policy| policies.match_stopped(*policy));
        self.dirty.remove(&id);
        let Local { key, endpoint } = self.locals.remove(id);
        self.gone.push((endpoint.kind(), key));
        Some(endpoint)
    }

    /// Gives a profile labels.
    pub(super) fn set_profile(&mut self, name: &str, labels: &Labels, policies: &mut Policies) {
        for shift in self.index.set_profile(name, labels) {
            for id in self.index.items(shift.group) {
                self.dirty.insert(id);
                shift.started.iter().for_each(|policy| policies.match_started(*policy));
                shift.stopped.iter().for_each(|policy| policies.match_stopped(*policy));
            }
        }
    }

    /// The endpoints of groups may have to be shown in another way. Returns how many.
    pub(super) fn touch(&mut self, groups: &[GroupId]) -> u32 {
        let mut n_touched = 0;
        for id in groups.iter().flat_map(|group| self.index.items(*group)) {
            self.dirty.insert(id);
            n_touched += 1;
        }
        n_touched
    }

    /// The endpoints that one of some policies is for may have to be shown in another way.
    pub(super) fn touch_if(&mut self, is_concerned: impl Fn(PolicySlot) -> bool) {
        let concerned = |group: &GroupId| {
            self.index.matches_of_group(*group).iter().any(|policy| is_concerned(*policy))
        };
        let groups: Vec<GroupId> = self.index.groups().filter(concerned).collect();
        self.touch(&groups);
    }

    /// Whether an item is an endpoint of this node.
    pub(super) fn has(&self, item: ItemId) -> bool {
        self.ids.contains_key(&item)
    }

    /// An endpoint.
    pub(super) fn get(&self, id: LocalId) -> &Local {
        &self.locals[id]
    }

    /// Whether nothing of all that came is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.locals.is_empty() && self.ids.is_empty() && self.index.is_empty()
    }
}
