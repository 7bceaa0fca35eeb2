//! Everything that policy is computed from.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::convert::default_allow;
use crate::input::{Change, Host, Key, NetworkSet, Policy, PolicyId, Profile, Tier, Workload};

/// All objects of a cluster that matter to policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Interfaces of workloads.
    pub workloads: BTreeMap<Key, Arc<Workload>>,
    /// Interfaces of hosts.
    pub hosts: BTreeMap<Key, Arc<Host>>,
    /// Networks with labels.
    pub network_sets: BTreeMap<Key, Arc<NetworkSet>>,
    /// Policies of all kinds.
    pub policies: BTreeMap<PolicyId, Arc<Policy>>,
    /// Tiers.
    pub tiers: BTreeMap<String, Tier>,
    /// Profiles.
    pub profiles: BTreeMap<String, Arc<Profile>>,
}

/// A cluster in which nothing is stored: it has the profile that is never stored.
impl Default for Cluster {
    fn default() -> Self {
        let mut cluster = Self {
            workloads: BTreeMap::new(),
            hosts: BTreeMap::new(),
            network_sets: BTreeMap::new(),
            policies: BTreeMap::new(),
            tiers: BTreeMap::new(),
            profiles: BTreeMap::new(),
        };
        cluster.absorb(default_allow());
        cluster
    }
}

impl Cluster {
    /// Takes a new value of an object, or its removal.
    pub fn absorb(&mut self, change: Change) {
        match change {
            Change::Workload(key, value) => put(&mut self.workloads, key, value),
            Change::Host(key, value) => put(&mut self.hosts, key, value),
            Change::NetworkSet(key, value) => put(&mut self.network_sets, key, value),
            Change::Policy(id, value) => put(&mut self.policies, id, value),
            Change::Tier(name, value) => put(&mut self.tiers, name, value),
            Change::Profile(name, value) => put(&mut self.profiles, name, value),
        }
    }
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}
