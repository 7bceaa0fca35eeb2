//! What the records say of who has an address: endpoints of workloads, and the node's own tunnels.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use api::Kind;
use api::keys::{Key, ListOptions, ResourceKey, ResourceList};
use net::Cidr;
use serde_json::Value;

use super::Claim;

/// What is told of the tunnels of a node: where its object says it, the handle's beginning, and
/// the type that stands beside the address.
const TUNNELS: [(&str, &str, &str); 5] = [
    ("/spec/bgp/ipv4IPIPTunnelAddr", "ipip-tunnel-addr", "ipipTunnelAddress"),
    ("/spec/ipv4VXLANTunnelAddr", "vxlan-tunnel-addr", "vxlanTunnelAddress"),
    ("/spec/ipv6VXLANTunnelAddr", "vxlan-v6-tunnel-addr", "vxlanV6TunnelAddress"),
    ("/spec/wireguard/interfaceIPv4Address", "wireguard-tunnel-addr", "wireguardTunnelAddress"),
    (
        "/spec/wireguard/interfaceIPv6Address",
        "wireguard-v6-tunnel-addr",
        "wireguardV6TunnelAddress",
    ),
];

/// An endpoint, as far as it tells who has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) node: String,
    pub(super) namespace: String,
    /// Empty for what is no pod.
    pub(super) pod: String,
    /// Empty where nobody said.
    pub(super) container: String,
    name: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.pod.is_empty() { &self.name } else { &self.pod };
        write!(to, "{}/{name} on node {}", self.namespace, self.node)?;
        match self.container.is_empty() {
            true => Ok(()),
            false => write!(to, " ({})", self.container.chars().take(12).collect::<String>()),
        }
    }
}

/// Who has which address by the endpoints of workloads.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    by_address: BTreeMap<IpAddr, Vec<Endpoint>>,
}

impl Endpoints {
    /// Takes a stored endpoint in. One that cannot be read tells nothing.
    pub fn add(&mut self, bytes: &[u8]) {
        let object = text::json::parse(bytes).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (spec, metadata) = (&object["spec"], &object["metadata"]);
        let endpoint = Endpoint {
            node: text(&spec["node"]),
            namespace: text(&metadata["namespace"]),
            pod: text(&spec["pod"]),
            container: text(&spec["containerID"]),
            name: text(&metadata["name"]),
        };
        for network in spec["ipNetworks"].as_array().into_iter().flatten() {
            if let Some(network) = network.as_str().and_then(|it| it.parse::<Cidr>().ok()) {
                self.by_address.entry(network.address()).or_default().push(endpoint.clone());
            }
        }
    }

    pub(super) fn of(&self, address: IpAddr) -> &[Endpoint] {
        self.by_address.get(&address).map_or(&[], Vec::as_slice)
    }
}

/// Where all endpoints of workloads lie.
pub fn endpoints_prefix() -> String {
    let root = ListOptions::Resource(ResourceList::all(Kind::WorkloadEndpoint)).root();
    if root.ends_with('/') { root } else { root + "/" }
}

/// Where the object of a node lies, if there can be one of that name.
pub fn node_key(node: &str) -> Option<String> {
    let (kind, namespace) = (Kind::Node.into(), String::new());
    Key::Resource(ResourceKey { kind, namespace, name: node.to_owned() }).path().ok()
}

/// The addresses of the node's own tunnels: with host-local they stand in no other record, and
/// must not be given to a pod.
pub(super) fn tunnels(node: &str, object: &Value) -> Vec<Claim> {
    let named = TUNNELS.into_iter().filter_map(|(path, handle, kind)| {
        let address = object.pointer(path)?.as_str()?.parse::<Cidr>().ok()?.address();
        let attributes = [("node", node), ("type", kind)];
        Some(Claim {
            address,
            handle: format!("{handle}-{node}"),
            attributes: attributes.map(|(name, value)| (name.into(), value.into())).into(),
            file: None,
            is_confirmed: true,
        })
    });
    named.collect()
}
