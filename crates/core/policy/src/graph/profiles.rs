//! Profiles, and how many local endpoints name each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::resource::Action;

use super::sets::SetSlot;
use crate::input::Profile;
use crate::intent::Directions;
use crate::rule::Rule;
use crate::scan::{Scanned, scan_profile};

/// All profiles that are written or named by an endpoint of this node.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    pub(super) profiles: BTreeMap<String, Entry>,
    /// Profiles whose rules may have to be shown in another way.
    pub(super) dirty: BTreeSet<String>,
}

/// A profile.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) profile: Option<Arc<Profile>>,
    /// How often local endpoints name it.
    pub(super) n_users: u32,
    /// The sets that its rules name, if it is in force.
    pub(super) sets: Vec<SetSlot>,
}

impl Entry {
    /// The rules, and the sets that they name. A profile that nobody has written denies everything.
    pub(super) fn scan(&self) -> Scanned {
        let deny = || vec![Rule::all(Action::Deny)];
        match &self.profile {
            Some(profile) => scan_profile(profile),
            None => Scanned {
                directions: Directions { ingress: deny(), egress: deny() },
                sets: BTreeMap::new(),
            },
        }
    }
}

impl Profiles {
    /// Puts or removes a profile.
    pub(super) fn put(&mut self, name: &str, profile: Option<Arc<Profile>>) {
        self.profiles.entry(name.to_owned()).or_default().profile = profile;
        self.dirty.insert(name.to_owned());
    }

    /// A local endpoint names profiles.
    pub(super) fn acquire(&mut self, names: &[String]) {
        for name in names {
            let entry = self.profiles.entry(name.clone()).or_default();
            entry.n_users += 1;
            if entry.n_users == 1 {
                self.dirty.insert(name.clone());
            }
        }
    }

    /// A local endpoint does not name profiles any more.
    pub(super) fn release(&mut self, names: &[String]) {
        for name in names {
            let entry = self.profiles.get_mut(name).expect("a profile in use is known");
            entry.n_users -= 1;
            if entry.n_users == 0 {
                self.dirty.insert(name.clone());
            }
        }
    }
}
