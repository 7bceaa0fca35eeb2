//! What a node has to carry out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::resource::Direction;
use net::Cidr;

use crate::input::{Key, PolicyId};
use crate::rule::Rule;
use crate::set::{IpSets, Member, SetId};
use crate::verdict::{End, Named, Rules, Tier};

/// Everything that concerns the endpoints of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Intent {
    /// The workloads on this node, by where they are stored.
    pub workloads: BTreeMap<Key, Workload>,
    /// The interfaces of this node that have an endpoint, by where that is stored.
    pub hosts: BTreeMap<Key, Host>,
    /// The policies in effect here.
    pub policies: BTreeMap<PolicyId, Arc<Directions>>,
    /// The profiles in effect here. One that an endpoint names and nobody has written is here, too,
    /// and allows nothing.
    pub profiles: BTreeMap<String, Arc<Directions>>,
    /// The sets that their rules name.
    pub sets: IpSets,
}

impl Intent {
    /// The rules of an endpoint for one direction, as they are judged: tiers and profiles stand
    /// where they stand in the lists, policies among those of [`TierInForce::enforced`].
    pub fn rules(&self, tiers: &[TierInForce], profiles: &[String], direction: Direction) -> Rules {
        let named = |name: String, directions: Option<&Arc<Directions>>| Named {
            name,
            rules: directions.map(|it| it.of(direction).to_vec()).unwrap_or_default(),
        };
        let policy = |id: &PolicyId| named(id.to_string(), self.policies.get(id));
        let tier = |tier: &TierInForce| Tier {
            name: tier.name.clone(),
            end: tier.end,
            policies: tier.enforced(direction).map(policy).collect(),
        };
        let profile = |name: &String| named(name.clone(), self.profiles.get(name));
        Rules {
            tiers: tiers.iter().map(tier).collect(),
            profiles: profiles.iter().map(profile).collect(),
        }
    }
}

/// The rules of a policy or a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directions {
    /// For traffic to the endpoint.
    pub ingress: Vec<Rule>,
    /// For traffic from the endpoint.
    pub egress: Vec<Rule>,
}

impl Directions {
    /// The rules for one direction.
    pub fn of(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

/// A workload on this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Its interface on the host.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<Cidr>,
    /// Sources it may use although they are not its own.
    pub allowed_sources: Vec<Cidr>,
    /// The tiers that have policies for it, in order.
    pub tiers: Vec<TierInForce>,
    /// Its profiles in their order.
    pub profiles: Vec<String>,
}

/// An interface of this node that has an endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// The interface; `*` for all; empty to find it by its addresses.
    pub interface: String,
    /// Addresses that the interface has.
    pub addresses: Vec<IpAddr>,
    /// Tiers for what comes to or from the host itself.
    pub tiers: Vec<TierInForce>,
    /// Tiers for what is passed on.
    pub forward: Vec<TierInForce>,
    /// Tiers before destination NAT.
    pub pre_dnat: Vec<TierInForce>,
    /// Tiers before connection tracking.
    pub untracked: Vec<TierInForce>,
    /// Its profiles in their order.
    pub profiles: Vec<String>,
    /// Whether it is what is left of one that cannot be read as a whole: another one that is for
    /// the same interface goes before it.
    pub is_rest: bool,
}

/// The interface of host endpoints that are for all interfaces without one of their own.
pub const ALL_INTERFACES: &str = "*";

impl Host {
    /// The tiers of all stages.
    pub fn all_tiers(&self) -> impl Iterator<Item = &TierInForce> {
        [&self.tiers, &self.forward, &self.pre_dnat, &self.untracked].into_iter().flatten()
    }
}

/// A tier, with its policies for one endpoint in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierInForce {
    /// Its name.
    pub name: String,
    /// What becomes of packets that none of its policies decides.
    pub end: End,
    /// Policies for traffic to the endpoint; staged ones among them.
    pub ingress: Vec<PolicyId>,
    /// Policies for traffic from the endpoint; staged ones among them.
    pub egress: Vec<PolicyId>,
}

impl TierInForce {
    /// The policies that decide about a direction: not the staged ones.
    pub fn enforced(&self, direction: Direction) -> impl Iterator<Item = &PolicyId> {
        let policies = match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        };
        policies.iter().filter(|id| !id.kind.is_staged())
    }
}

/// What differs between two intents: keys whose values have to be looked up again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Workloads that are new, different or gone.
    pub workloads: BTreeSet<Key>,
    /// Host endpoints that are new, different or gone.
    pub hosts: BTreeSet<Key>,
    /// Policies whose rules are new, different or gone.
    pub policies: BTreeSet<PolicyId>,
    /// Profiles whose rules are new, different or gone.
    pub profiles: BTreeSet<String>,
    /// Sets with the members that came and went; for a set that is new all of them came, for one
    /// that is gone all of them went.
    pub sets: BTreeMap<SetId, SetChange>,
}

/// How a set changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetChange {
    /// Members that came.
    pub added: Vec<Member>,
    /// Members that went.
    pub removed: Vec<Member>,
}

impl Intent {
    /// All of it, as what differs from nothing.
    pub fn everything(&self) -> Dirty {
        let came = |set: &crate::IpSet| SetChange {
            added: set.members.iter().cloned().collect(),
            removed: Vec::new(),
        };
        Dirty {
            workloads: self.workloads.keys().cloned().collect(),
            hosts: self.hosts.keys().cloned().collect(),
            policies: self.policies.keys().cloned().collect(),
            profiles: self.profiles.keys().cloned().collect(),
            sets: self.sets.iter().map(|(id, set)| (id.clone(), came(set))).collect(),
        }
    }
}

impl Dirty {
    /// Adds what is dirty besides; sets that both name keep their own change.
    pub fn join(&mut self, other: &Self) {
        self.workloads.extend(other.workloads.iter().cloned());
        self.hosts.extend(other.hosts.iter().cloned());
        self.policies.extend(other.policies.iter().cloned());
        self.profiles.extend(other.profiles.iter().cloned());
        for (id, change) in &other.sets {
            self.sets.entry(id.clone()).or_insert_with(|| change.clone());
        }
    }
}
