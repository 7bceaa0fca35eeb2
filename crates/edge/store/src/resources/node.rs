//! Deleting a node, with everything that exists only because of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ::ipam::holder_of;
use api::Kind;
use api::keys::ipam::{Attribute, Block};
use net::Cidr;
use serde_json::Value;

use super::{Error, Name, Resources, Stored};
use crate::KeyValue;

/// Where a node keeps the addresses of its tunnels.
const TUNNEL_ADDRESSES: [&str; 5] = [
    "/spec/bgp/ipv4IPIPTunnelAddr",
    "/spec/ipv4VXLANTunnelAddr",
    "/spec/ipv6VXLANTunnelAddr",
    "/spec/wireguard/interfaceIPv4Address",
    "/spec/wireguard/interfaceIPv6Address",
];

impl Resources {
    /// Frees the addresses of the node's workloads and tunnels and removes its endpoints, blocks'
    /// affinities, peers and settings, then the node. All of that happens for a node that does
    /// not exist any more too; a wrong revision stops it before anything is touched.
    pub(super) fn delete_node(
        &self,
        name: &Name,
        revision: Option<i64>,
        done: &mut Vec<String>,
    ) -> Result<Stored, Error> {
        let node = self.store.get(&name.key())?.0;
        if let (Some(wanted), Some(entry)) = (revision, &node)
            && wanted != entry.mod_revision
        {
            return Err(Error::Conflict(name.clone()));
        }
        self.clear_node(name, node, &BTreeSet::new(), done)?;
        self.remove(name, revision)
    }

    /// Removes what exists only because of a node, except for the objects at these keys.
    pub(super) fn clear_node(
        &self,
        name: &Name,
        node: Option<KeyValue>,
        except: &BTreeSet<&str>,
        done: &mut Vec<String>,
    ) -> Result<(), Error> {
        let mut endpoints = self.of_node(Kind::WorkloadEndpoint, &name.name)?;
        let node = node.and_then(|entry| super::stored(Kind::Node, &entry).ok());
        let addresses: Vec<IpAddr> = endpoints.iter().chain(&node).flat_map(addresses_of).collect();
        endpoints.retain(|it| !except.contains(it.name.key().as_str()));
        // A stale endpoint must not free an address that another node uses by now.
        let may_go = |holder: &Attribute| {
            holder.active_owner.get(Attribute::NODE).is_none_or(|node| *node == name.name)
        };
        self.release_addresses(&addresses, may_go, done)?;
        for endpoint in &endpoints {
            self.remove_if_there(&endpoint.name, done)?;
        }
        self.release_reserve(&name.name, done)?;
        self.forget_host(&name.name, done)?;
        let mut theirs = Vec::new();
        for kind in [Kind::BgpPeer, Kind::HostEndpoint] {
            let objects = self.of_node(kind, &name.name)?;
            theirs.extend(objects.into_iter().map(|object| object.name));
        }
        for kind in [Kind::FelixConfiguration, Kind::BgpConfiguration] {
            theirs.push(Name::cluster(kind, format!("node.{}", name.name)));
        }
        theirs.retain(|it| !except.contains(it.key().as_str()));
        theirs.iter().try_for_each(|it| self.remove_if_there(it, done))
    }

    /// The addresses in our pools that these nodes and endpoints have, and nobody holds: they were
    /// let go, and may be given to others.
    pub fn unheld_addresses(&self, names: &[Name]) -> Result<BTreeSet<IpAddr>, Error> {
        let (blocks, pools) = (self.blocks()?.blocks, self.list(Kind::IpPool, None)?.objects);
        let pools: Vec<Cidr> = pools.iter().filter_map(cidr_of).collect();
        let is_unheld = |address: &IpAddr| {
            let held = |block: &Block| {
                block.cidr.contains(*address) && holder_of(block, *address).is_some()
            };
            pools.iter().any(|pool| pool.contains(*address)) && !blocks.iter().any(held)
        };
        let shown = names.iter().filter_map(|name| self.get(name).ok());
        Ok(shown.flat_map(|it| addresses_of(&it)).filter(is_unheld).collect())
    }

    /// The blocks of a pool that belong to no node.
    pub fn blocks_without_node(&self, pool: &Name) -> Result<Vec<Cidr>, Error> {
        let Some(pool) = cidr_of(&self.get(pool)?) else { return Ok(Vec::new()) };
        let blocks = self.blocks()?.blocks.into_iter();
        let is_left = |it: &Block| it.affinity.is_none() && pool.contains(it.cidr.network());
        Ok(blocks.filter(is_left).map(|block| block.cidr).collect())
    }

    fn of_node(&self, kind: Kind, node: &str) -> Result<Vec<Stored>, Error> {
        let mut found = Vec::new();
        self.each(kind, None, |object| {
            if let Ok(object) = object
                && object.object.pointer("/spec/node").and_then(Value::as_str) == Some(node)
            {
                found.push(object);
            }
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// The addresses of a workload endpoint, or of the tunnels of a node.
fn addresses_of(stored: &Stored) -> Vec<IpAddr> {
    let object = &stored.object;
    let networks = object.pointer("/spec/ipNetworks").and_then(Value::as_array);
    let tunnels = TUNNEL_ADDRESSES.iter().filter_map(|path| object.pointer(path));
    networks.into_iter().flatten().chain(tunnels).filter_map(address).collect()
}

/// The prefix of a pool.
pub(super) fn cidr_of(pool: &Stored) -> Option<Cidr> {
    Cidr::parse_strict(pool.object.pointer("/spec/cidr")?.as_str()?)
}

fn address(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse::<Cidr>().ok().map(Cidr::address)
}
