//! Deleting a node, with everything that exists only because of it.

use std::net::IpAddr;

use api::Kind;
use api::keys::ipam::Attribute;
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
        self.clear_node(name, node, done)?;
        self.remove(name, revision)
    }

    /// Removes what exists only because of a node.
    pub(super) fn clear_node(
        &self,
        name: &Name,
        node: Option<KeyValue>,
        done: &mut Vec<String>,
    ) -> Result<(), Error> {
        let endpoints = self.of_node(Kind::WorkloadEndpoint, &name.name)?;
        let mut addresses: Vec<IpAddr> = Vec::new();
        for endpoint in &endpoints {
            let networks = endpoint.object.pointer("/spec/ipNetworks").and_then(Value::as_array);
            addresses.extend(networks.into_iter().flatten().filter_map(address));
        }
        if let Some(node) = node.and_then(|entry| super::stored(Kind::Node, &entry).ok()) {
            let tunnels = TUNNEL_ADDRESSES.iter().filter_map(|path| node.object.pointer(path));
            addresses.extend(tunnels.filter_map(address));
        }
        // A stale endpoint must not free an address that another node uses by now.
        let may_go = |holder: &Attribute| {
            holder.active_owner.get(Attribute::NODE).is_none_or(|node| *node == name.name)
        };
        self.release_addresses_telling(&addresses, may_go, done)?;
        for endpoint in &endpoints {
            self.remove_if_there(&endpoint.name, done)?;
        }
        self.forget_host(&name.name, done)?;
        for kind in [Kind::BgpPeer, Kind::HostEndpoint] {
            for object in self.of_node(kind, &name.name)? {
                self.remove_if_there(&object.name, done)?;
            }
        }
        for kind in [Kind::FelixConfiguration, Kind::BgpConfiguration] {
            self.remove_if_there(&Name::cluster(kind, format!("node.{}", name.name)), done)?;
        }
        Ok(())
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

fn address(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse::<Cidr>().ok().map(Cidr::address)
}
