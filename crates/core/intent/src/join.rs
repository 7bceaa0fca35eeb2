//! The join of all witnesses of a node: datastore, journal, kernel, and who lives. What one of
//! them has and none of the others confirms is a leftover; nothing is decided before everything
//! was read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::reserve_handle;
use model::resource::WorkloadEndpoint;
use sandbox::identity::Identity;
use sandbox::life::{Phase, Record};

use crate::{InSync, Inputs};

/// What is seen on this node, beside the datastore.
#[derive(Clone, Debug, Default)]
pub struct Witnesses {
    /// The journal.
    pub journal: Vec<Record>,
    /// The names of the host's interfaces.
    pub interfaces: BTreeSet<String>,
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
    /// An endpoint of this node without interface and sandbox.
    Endpoint {
        /// Its key.
        key: String,
        /// The interface that it names.
        interface: String,
        /// The container that it names.
        container: String,
    },
    /// Addresses that this node holds for nobody.
    Addresses {
        /// The handle that holds them.
        handle: String,
        /// The addresses, with the numbers of their assignments.
        addresses: BTreeMap<IpAddr, Option<u64>>,
    },
}

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
        let ghosts = ghosts.into_iter();
        found.extend(ghosts.map(|(key, (interface, container))| Leftover::Endpoint {
            key,
            interface,
            container,
        }));
        found
    }

    /// Endpoints of this node without interface and sandbox, with the interfaces and the
    /// containers that they name.
    fn ghosts(&self, seen: &Witnesses) -> BTreeMap<String, (String, String)> {
        let confirmed: BTreeSet<String> =
            seen.journal.iter().map(sandbox::claim::endpoint_key).collect();
        let local = self.endpoints.iter().filter(|(key, it)| {
            let interface = &it.spec.interface_name;
            it.spec.node == self.node
                && !confirmed.contains(*key)
                && !seen.interfaces.contains(interface)
        });
        let named = |it: &WorkloadEndpoint| (it.interface_name.clone(), it.container_id.clone());
        local.map(|(key, it)| (key.clone(), named(&it.spec))).collect()
    }

    /// Addresses under handles of this node that no sandbox, no route and no endpoint but a ghost
    /// knows.
    fn unused_addresses(
        &self,
        seen: &Witnesses,
        ghosts: &BTreeMap<String, (String, String)>,
    ) -> Vec<Leftover> {
        let mut used = seen.routed.clone();
        used.extend(seen.journal.iter().flat_map(|it| &it.wiring.addresses));
        let real = self.endpoints.iter().filter(|(key, _)| !ghosts.contains_key(*key));
        let networks = real.flat_map(|(_, it)| &it.spec.ip_networks);
        used.extend(networks.map(|network| network.address()));
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
