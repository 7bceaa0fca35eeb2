//! What a workload endpoint says about addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::Kind;
use api::keys::value::{self, Stored};
use api::keys::{Key, ResourceKey};
use api::names::WorkloadEndpointParts;
use api::schema::{decode_regular, object_for};
use net::Cidr;
use serde_json::Value;

/// The fields of the spec that have to do with addresses.
const FIELDS: [&str; 8] = [
    "node",
    "orchestrator",
    "endpoint",
    "workload",
    "pod",
    "containerID",
    "ipNetworks",
    "profiles",
];

/// A workload endpoint, as far as its addresses go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `NAMESPACE/NAME`.
    pub name: Box<str>,
    /// Its node.
    pub node: Arc<str>,
    /// The container, in lower case; empty where it is not known.
    pub container: Box<str>,
    /// The pod; empty where there is none.
    pub pod: Box<str>,
    /// Its addresses.
    pub addresses: Box<[IpAddr]>,
    /// The profile that names its network, of containers without a pod.
    pub(crate) network: Option<Arc<str>>,
    /// Whether its addresses are held under a handle that names its container.
    pub(crate) is_by_container: bool,
}

impl Endpoint {
    /// Reads a stored endpoint; why it cannot be used otherwise.
    pub(crate) fn read(
        key: &ResourceKey,
        bytes: &[u8],
        word: &mut dyn FnMut(&str) -> Arc<str>,
    ) -> Result<Self, String> {
        let table = object_for(Kind::WorkloadEndpoint);
        let object = match decode_regular(table, bytes, Some(&FIELDS)) {
            Some(object) => object,
            None => match value::parse(&Key::Resource(key.clone()), bytes) {
                Ok(Stored::Json(object)) => object,
                Ok(_) => return Err("not an object".to_owned()),
                Err(error) => return Err(error.to_string()),
            },
        };
        let spec = &object["spec"];
        let parts = WorkloadEndpointParts::of_spec(spec);
        for (field, value, expected) in [
            ("kind", object["kind"].as_str(), "WorkloadEndpoint"),
            ("metadata.name", object["metadata"]["name"].as_str(), key.name.as_str()),
            ("metadata.namespace", object["metadata"]["namespace"].as_str(), &key.namespace),
        ] {
            if value.is_some_and(|value| value != expected) {
                return Err(format!(
                    "{field}: {:?} under a key of {expected:?}",
                    value.unwrap_or_default()
                ));
            }
        }
        if parts.matches(&key.name) != Ok(true) || parts.name().is_err() {
            let fields = "spec.node, orchestrator, workload and endpoint";
            return Err(format!("{fields} do not give its name {}", key.name));
        }
        let addresses = spec["ipNetworks"].as_array().into_iter().flatten().enumerate();
        let addresses = addresses.map(|(index, text)| {
            let text = text.as_str().unwrap_or_default();
            let read = text.parse::<Cidr>().map(Cidr::address);
            read.map_err(|_| format!("spec.ipNetworks[{index}]: {text:?} is not an address"))
        });
        let network = match parts.orchestrator.as_str() {
            "cni" => spec["profiles"][0].as_str().map(&mut *word),
            _ => None,
        };
        Ok(Self {
            name: format!("{}/{}", key.namespace, key.name).into(),
            node: word(&parts.node),
            container: parts.container_id.to_ascii_lowercase().into(),
            addresses: addresses.collect::<Result<BTreeSet<_>, _>>()?.into_iter().collect(),
            network,
            is_by_container: matches!(parts.orchestrator.as_str(), "k8s" | "cni"),
            pod: match parts.orchestrator.as_str() {
                "k8s" => parts.pod.into(),
                _ => Box::default(),
            },
        })
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.name.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// What people call it: the pod, or the endpoint's own name.
    pub fn spoken(&self) -> String {
        match self.pod.is_empty() {
            true => self.name.to_string(),
            false => format!("{}/{}", self.namespace(), self.pod),
        }
    }

    /// Whether a handle is that of the endpoint's container, or, as very old versions have it, of
    /// its pod.
    pub(crate) fn owns(&self, handle: &str) -> bool {
        let tail = container_of(handle);
        let is_pods = !self.pod.is_empty() && tail == self.pod.to_ascii_lowercase();
        (!self.container.is_empty() && tail == *self.container) || is_pods
    }
}

/// The last part of a handle, where the container stands, in lower case. Old versions wrote more
/// behind it by mistake.
pub(crate) fn container_of(handle: &str) -> String {
    let handle = crate::block::settled(handle);
    handle.rsplit('.').next().unwrap_or(handle).to_ascii_lowercase()
}

/// The tunnel addresses that a node's object names.
pub(crate) fn tunnels(node: &Value) -> Vec<IpAddr> {
    let spec = &node["spec"];
    let named = [
        &spec["bgp"]["ipv4IPIPTunnelAddr"],
        &spec["ipv4VXLANTunnelAddr"],
        &spec["ipv6VXLANTunnelAddr"],
        &spec["wireguard"]["interfaceIPv4Address"],
        &spec["wireguard"]["interfaceIPv6Address"],
    ];
    let named = named.into_iter().filter_map(Value::as_str);
    named.filter_map(|text| text.parse::<Cidr>().ok()).map(Cidr::address).collect()
}
