//! Everything that policy depends on, read from the datastore.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::ControlFlow;

use api::Kind;
use api::keys::{ResourceKey, ResourceKind};
use model::felix::{self, Config, Source, Sources, from_resource};
use model::resource::{NodeAddress, Resource};
use net::Cidr;
use policy::convert::convert;
use policy::input::{Change, Key};
use policy::intent::Intent;
use policy::salvage::salvage;
use policy::scan::{SetDefinition, scan_policy, scan_profile};
use policy::{Cluster, SetId, reference};
use serde_json::Value;
use store::resources::{Name, Quarantined, Stored};

use super::super::failure::Failure;
use super::super::session::Session;

/// The kinds that policy is computed from, the nodes, and their settings.
const KINDS: [Kind; 13] = [
    Kind::WorkloadEndpoint,
    Kind::HostEndpoint,
    Kind::NetworkSet,
    Kind::GlobalNetworkSet,
    Kind::Tier,
    Kind::Profile,
    Kind::GlobalNetworkPolicy,
    Kind::NetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::Node,
    Kind::IpPool,
    Kind::FelixConfiguration,
];

/// What the datastore says about policy.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    /// What people call the workloads: namespace and pod.
    pub(crate) pods: BTreeMap<Key, (String, String)>,
    /// The nodes with their addresses.
    pub(crate) nodes: BTreeMap<String, Vec<IpAddr>>,
    /// The networks of pods, and whether what leaves them gets the address of its node.
    pub(crate) pools: Vec<(Cidr, bool)>,
    /// The texts of settings, by the object that has them.
    settings: BTreeMap<String, BTreeMap<String, String>>,
    /// Objects that are not in force because something is wrong with them.
    pub(crate) aside: Vec<String>,
    /// The revision of the last change to policy, as nodes count it.
    pub(crate) revision: i64,
    /// What the sets of all rules stand for.
    pub(crate) sets: BTreeMap<SetId, SetDefinition>,
}

impl World {
    /// Reads it.
    pub(crate) fn read(session: &Session) -> Result<Self, Failure> {
        let (mut world, mut aside) = (Self::default(), Vec::new());
        for kind in KINDS {
            session.resources.each_judged(kind, None, None, |one| {
                match one {
                    Ok(stored) => world.take(kind, &stored),
                    Err(it) => aside.push((kind, it)),
                }
                ControlFlow::Continue(())
            })?;
        }
        for (kind, it) in aside {
            world.aside.push(it.name.as_ref().map_or_else(|| it.key.clone(), Name::spoken));
            world.take_rest(session, kind, &it)?;
        }
        for policy in world.cluster.policies.values() {
            world.sets.extend(scan_policy(policy).sets);
        }
        for profile in world.cluster.profiles.values() {
            world.sets.extend(scan_profile(profile).sets);
        }
        Ok(world)
    }

    /// Takes what agents carry out of an object that cannot be read as a whole.
    fn take_rest(
        &mut self,
        session: &Session,
        kind: Kind,
        aside: &Quarantined,
    ) -> Result<(), Failure> {
        let (entry, _) = session.store.get(&aside.key)?;
        let stored = entry.and_then(|it| text::json::parse(&it.value).ok());
        if let (Some(stored), Some(name)) = (stored, &aside.name) {
            let (namespace, name) = (name.namespace.clone(), name.name.clone());
            let key = ResourceKey { kind: ResourceKind::Api(kind), namespace, name };
            self.absorb_rest(kind, &key, &stored);
        }
        Ok(())
    }

    fn absorb_rest(&mut self, kind: Kind, key: &ResourceKey, stored: &Value) {
        let rest = salvage(kind, stored);
        if let Some(Ok(Some(change))) = rest.map(|rest| convert(key, Some(&rest))) {
            self.cluster.absorb(change);
        }
    }

    fn take(&mut self, kind: Kind, stored: &Stored) {
        let Name { namespace, name, .. } = stored.name.clone();
        let spoken = stored.name.spoken();
        if kind == Kind::FelixConfiguration {
            let spec = stored.object["spec"].as_object().cloned().unwrap_or_default();
            self.settings.extend(from_resource(&spec, &BTreeMap::new()).ok().map(|it| (name, it)));
            return;
        }
        let Ok(resource) = Resource::typed(kind, &stored.object) else {
            self.aside.push(spoken);
            return;
        };
        if store::realised::counts(&stored.name.key()) {
            self.revision = self.revision.max(stored.revision);
        }
        if let Resource::Node(node) = &resource {
            let bgp = node.spec.bgp.iter();
            let of_bgp = bgp.flat_map(|it| [it.ipv4_address, it.ipv6_address]).flatten();
            let others = node.spec.addresses.iter().map(|it: &NodeAddress| it.address);
            let mut addresses: Vec<IpAddr> = of_bgp.chain(others).map(|it| it.address()).collect();
            addresses.dedup();
            self.nodes.insert(name, addresses);
            return;
        }
        if let Resource::IpPool(pool) = &resource {
            self.pools.push((pool.spec.cidr, pool.spec.nat_outgoing));
            return;
        }
        let key = ResourceKey { kind: ResourceKind::Api(kind), namespace, name };
        match convert(&key, Some(&resource)) {
            Ok(Some(change)) => {
                if let (Change::Workload(at, _), Resource::WorkloadEndpoint(it)) =
                    (&change, &resource)
                {
                    let spec = &it.spec;
                    let pod = [&spec.pod, &spec.workload, &spec.container_id, &key.name];
                    let pod = pod.into_iter().find(|it| !it.is_empty());
                    let pod = pod.cloned().unwrap_or_default();
                    self.pods.insert(at.clone(), (key.namespace.clone(), pod));
                }
                self.cluster.absorb(change);
            }
            Ok(None) => {}
            Err(_) => {
                self.aside.push(spoken);
                self.absorb_rest(kind, &key, &stored.object);
            }
        }
    }

    /// Whether an address belongs to pods.
    pub(crate) fn is_of_pods(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|(pool, _)| pool.contains(address))
    }

    /// Whether somebody wrote a profile.
    pub(crate) fn has_profile(&self, name: &str) -> bool {
        self.cluster.profiles.contains_key(name)
    }

    /// The settings of a node, as far as the datastore has them for all or for that one.
    pub(crate) fn config(&self, node: &str) -> Config {
        let of = |name: &str| self.settings.get(name).cloned().unwrap_or_default();
        let sources = Sources::from([
            (Source::DatastoreGlobal, of("default")),
            (Source::DatastorePerHost, of(&format!("node.{node}"))),
        ]);
        let host = felix::Host { name: node, exists: &|_| false, find_executable: &|_| None };
        Config::resolve(&sources, &host).0
    }

    /// What a node has to carry out.
    pub(crate) fn intent(&self, node: &str) -> Intent {
        reference::intent(&self.cluster, node)
    }
}
