//! The join of all witnesses of a node: datastore, journal, kernel, and who lives. What one of
//! them has and none of the others confirms is a leftover; nothing is decided before everything
//! was read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::reserve_handle;
use model::resource::{Object, WorkloadEndpoint};
use sandbox::identity::{Identity, Workload};
use sandbox::life::{Phase, Record};

use crate::{InSync, Inputs};

/// What is seen on this node, beside the datastore.
#[derive(Clone, Debug, Default)]
pub struct Witnesses {
    /// The journal.
    pub journal: Vec<Record>,
    /// The host's interfaces that may be sandboxes', by name, and whose they are if that is
    /// written on them.
    pub interfaces: BTreeMap<String, Option<Identity>>,
    /// Addresses that routes to such interfaces lead to.
    pub routed: BTreeSet<IpAddr>,
    /// The sandboxes of the journal that live: their namespace is there and the runtime has not
    /// let go of it.
    pub living: BTreeSet<Identity>,
}

/// What is left over, and why one can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// A sandbox in the journal whose container is gone: it is taken down.
    Sandbox(Box<Record>),
    /// An endpoint of this node without sandbox, and without an interface that may be its own.
    Endpoint {
        /// Its key.
        key: String,
        /// The interface that it names.
        interface: String,
        /// The container that it names.
        container: String,
        /// The interface that the next sandbox of that name asks for first: what adds one has the
        /// turn of this name.
        usual: String,
    },
    /// Addresses that this node holds for nobody.
    Addresses {
        /// The handle that holds them.
        handle: String,
        /// The addresses, with the numbers of their assignments.
        addresses: BTreeMap<IpAddr, Option<u64>>,
    },
}

/// Who makes endpoints by CNI; others have interfaces that are no pairs.
pub(crate) const PLUGINS: [&str; 2] = ["cni", "k8s"];

/// Handles of these are no sandbox's: they hold the addresses of tunnels and of the host.
const RESERVED: [&str; 6] = [
    "ipip-tunnel-addr-",
    "vxlan-tunnel-addr-",
    "vxlan-v6-tunnel-addr-",
    "wireguard-tunnel-addr-",
    "wireguard-v6-tunnel-addr-",
    "windows-reserved-",
];

impl Inputs {
    /// What is left over on this node.
    pub fn leftovers(&self, _: InSync, seen: &Witnesses) -> Vec<Leftover> {
        let dead = seen.journal.iter().filter(|record| {
            record.phase == Phase::Ready && !seen.living.contains(&record.identity)
        });
        let mut found: Vec<Leftover> =
            dead.map(|record| Leftover::Sandbox(Box::new(record.clone()))).collect();
        let ghosts = self.ghosts(seen);
        found.extend(self.unused_addresses(seen, &ghosts));
        found.extend(ghosts.into_iter().map(|(key, it)| {
            let (container, interface) = (it.spec.container_id.clone(), it.spec.endpoint.clone());
            let identity = Identity { container: container.clone(), interface };
            let usual = workload_of(key, &it.spec).host_interface(&identity);
            let (key, interface) = (key.clone(), it.spec.interface_name.clone());
            Leftover::Endpoint { key, interface, container, usual }
        }));
        found
    }

    /// Endpoints of this node without interface and sandbox.
    fn ghosts(&self, seen: &Witnesses) -> BTreeMap<&String, &Object<WorkloadEndpoint>> {
        let confirmed: BTreeSet<String> =
            seen.journal.iter().map(sandbox::claim::endpoint_key).collect();
        // Names of interfaces come again: one that bears another sandbox's name confirms nothing.
        let stands = |it: &WorkloadEndpoint| {
            seen.interfaces.get(&it.interface_name).is_some_and(|owner| {
                let is_its = |owner: &Identity| {
                    owner.container == it.container_id && owner.interface == it.endpoint
                };
                it.container_id.is_empty() || owner.as_ref().is_none_or(is_its)
            })
        };
        let local = self.endpoints.iter().filter(|(key, it)| {
            PLUGINS.contains(&it.spec.orchestrator.as_str())
                && !confirmed.contains(*key)
                && !stands(&it.spec)
        });
        local.collect()
    }

    /// Addresses under handles of this node that no sandbox, no route and no endpoint but a ghost
    /// knows.
    fn unused_addresses(
        &self,
        seen: &Witnesses,
        ghosts: &BTreeMap<&String, &Object<WorkloadEndpoint>>,
    ) -> Vec<Leftover> {
        let mut used = seen.routed.clone();
        used.extend(seen.journal.iter().flat_map(|it| &it.wiring.addresses));
        let real = self.endpoints.iter().filter(|(key, _)| !ghosts.contains_key(key));
        let networks = real.flat_map(|(_, it)| &it.spec.ip_networks);
        used.extend(networks.map(|network| network.address()));
        let elsewhere = self.elsewhere.values().flat_map(|it| it.addresses.iter());
        used.extend(elsewhere.map(|network| network.address()));
        // What is on its way up or down may hold more than its record says.
        let moving = seen.journal.iter().filter(|record| record.phase != Phase::Ready);
        let handles: BTreeSet<String> = moving.map(Record::handle).collect();
        let reserve = reserve_handle(&self.node);
        let mut unused: BTreeMap<String, BTreeMap<IpAddr, Option<u64>>> = BTreeMap::new();
        for block in self.blocks.values() {
            for ordinal in 0..block.allocations.len() {
                let Some(holder) = block.attribute(ordinal) else { continue };
                let (Some(handle), Some(address)) = (&holder.handle, block.address(ordinal)) else {
                    continue;
                };
                let is_ours = holder.active_owner.get("node") == Some(&self.node);
                let is_reserved = RESERVED.iter().any(|it| handle.starts_with(it));
                let is_kept = used.contains(&address) || handles.contains(handle);
                if is_ours && !is_reserved && !is_kept && *handle != reserve {
                    let sequence = block.sequence_of(ordinal);
                    unused.entry(handle.clone()).or_default().insert(address, sequence);
                }
            }
        }
        let unused = unused.into_iter();
        unused.map(|(handle, addresses)| Leftover::Addresses { handle, addresses }).collect()
    }
}

/// Who runs behind an endpoint, by its key and its fields.
pub(crate) fn workload_of(key: &str, endpoint: &WorkloadEndpoint) -> Workload {
    let namespace = key.rsplit('/').nth(1).unwrap_or_default();
    match endpoint.pod.is_empty() {
        true => Workload::Plain,
        false => Workload::Pod { namespace: namespace.to_owned(), name: endpoint.pod.clone() },
    }
}
