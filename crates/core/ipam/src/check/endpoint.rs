//! What a workload endpoint says about addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use api::Kind;
use api::keys::value::{self, Stored};
use api::keys::{Key, ResourceKey};
use api::names::WorkloadEndpointParts;
use api::schema::{object_for, tell_regular};
use net::Cidr;
use serde_json::Value;

/// A text that may be the end of another one, which is kept once.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    whole: Arc<str>,
    from: usize,
}

impl Tail {
    /// The text of this length at the end of another one.
    pub(crate) fn of(whole: &Arc<str>, length: usize) -> Self {
        Self { whole: whole.clone(), from: whole.len().saturating_sub(length) }
    }
}

impl From<&str> for Tail {
    fn from(text: &str) -> Self {
        Self { whole: text.into(), from: 0 }
    }
}

impl PartialEq for Tail {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Tail {}

impl Deref for Tail {
    type Target = str;

    fn deref(&self) -> &str {
        self.whole.get(self.from..).unwrap_or_default()
    }
}

/// Addresses, of which there is nearly always one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    One(IpAddr),
    Others(Box<[IpAddr]>),
}

impl Deref for Addresses {
    type Target = [IpAddr];

    fn deref(&self) -> &[IpAddr] {
        match self {
            Self::One(address) => std::slice::from_ref(address),
            Self::Others(addresses) => addresses,
        }
    }
}

impl FromIterator<IpAddr> for Addresses {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let mut addresses = addresses.into_iter();
        match (addresses.next(), addresses.next()) {
            (Some(only), None) => Self::One(only),
            (first, second) => {
                let all = first.into_iter().chain(second).chain(addresses);
                let distinct: BTreeSet<IpAddr> = all.collect();
                match distinct.first() {
                    Some(only) if distinct.len() == 1 => Self::One(*only),
                    _ => Self::Others(distinct.into_iter().collect()),
                }
            }
        }
    }
}

/// Where texts are kept once.
pub(crate) trait Texts {
    /// A text that comes again and again.
    fn word(&mut self, text: &str) -> Arc<str>;
    /// The name of a handle.
    fn handle(&mut self, id: &str) -> Arc<str>;
    /// The name of a container, which its handle has too.
    fn container(&mut self, text: &str) -> Tail;
}

/// A workload endpoint, as far as its addresses go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// `NAMESPACE/NAME`.
    pub(crate) name: Box<str>,
    /// Its node.
    pub(crate) node: Arc<str>,
    /// The container, in lower case; empty where it is not known.
    pub(crate) container: Tail,
    /// Its addresses.
    pub(crate) addresses: Addresses,
    /// The profile that names its network, of containers without a pod.
    pub(crate) network: Option<Arc<str>>,
    /// Whether its addresses are held under a handle that names its container.
    pub(crate) is_by_container: bool,
    is_pod: bool,
}

/// What the object of an endpoint says.
#[derive(Default)]
struct Said {
    kind: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    parts: WorkloadEndpointParts,
    networks: Vec<String>,
    profile: Option<String>,
}

impl Said {
    /// Takes in the text of a field.
    fn hear(&mut self, parent: &str, field: &str, text: &str) {
        let text = || text.to_owned();
        match (parent, field) {
            ("", "kind") => self.kind = Some(text()),
            ("metadata", "name") => self.name = Some(text()),
            ("metadata", "namespace") => self.namespace = Some(text()),
            ("spec", "node") => self.parts.node = text(),
            ("spec", "orchestrator") => self.parts.orchestrator = text(),
            ("spec", "endpoint") => self.parts.endpoint = text(),
            ("spec", "workload") => self.parts.workload = text(),
            ("spec", "pod") => self.parts.pod = text(),
            ("spec", "containerID") => self.parts.container_id = text(),
            ("spec", "ipNetworks") => self.networks.push(text()),
            ("spec", "profiles") if self.profile.is_none() => self.profile = Some(text()),
            _ => {}
        }
    }

    fn of(key: &ResourceKey, bytes: &[u8]) -> Result<Self, String> {
        let mut said = Self::default();
        let table = object_for(Kind::WorkloadEndpoint);
        if tell_regular(table, bytes, &mut |parent, field, text| said.hear(parent, field, text)) {
            return Ok(said);
        }
        let object = match value::parse(&Key::Resource(key.clone()), bytes) {
            Ok(Stored::Json(object)) => object,
            Ok(_) => return Err("not an object".to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let networks = spec["ipNetworks"].as_array().into_iter().flatten();
        Ok(Self {
            kind: text(&object["kind"]),
            name: text(&metadata["name"]),
            namespace: text(&metadata["namespace"]),
            parts: WorkloadEndpointParts::of_spec(spec),
            networks: networks.map(|it| text(it).unwrap_or_default()).collect(),
            profile: text(&spec["profiles"][0]),
        })
    }
}

impl Endpoint {
    /// Reads a stored endpoint; why it cannot be used otherwise.
    pub(crate) fn read(
        key: &ResourceKey,
        bytes: &[u8],
        texts: &mut dyn Texts,
    ) -> Result<Self, String> {
        let said = Said::of(key, bytes)?;
        for (field, value, expected) in [
            ("kind", &said.kind, "WorkloadEndpoint"),
            ("metadata.name", &said.name, key.name.as_str()),
            ("metadata.namespace", &said.namespace, &key.namespace),
        ] {
            if let Some(value) = value.as_deref().filter(|value| *value != expected) {
                return Err(format!("{field}: {value:?} under a key of {expected:?}"));
            }
        }
        let parts = &said.parts;
        let is_its = |name: String| name == key.name || parts.matches(&key.name) == Ok(true);
        if !parts.name().is_ok_and(is_its) {
            let fields = "spec.node, orchestrator, workload and endpoint";
            return Err(format!("{fields} do not give its name {}", key.name));
        }
        let addresses = said.networks.iter().enumerate().map(|(index, text)| {
            let read = text.parse::<Cidr>().map(Cidr::address);
            read.map_err(|_| format!("spec.ipNetworks[{index}]: {text:?} is not an address"))
        });
        let orchestrator = parts.orchestrator.as_str();
        let profile = said.profile.as_deref().filter(|_| orchestrator == "cni");
        Ok(Self {
            name: format!("{}/{}", key.namespace, key.name).into(),
            node: texts.word(&parts.node),
            container: texts.container(&parts.container_id.to_ascii_lowercase()),
            addresses: addresses.collect::<Result<_, _>>()?,
            network: profile.map(|it| texts.word(it)),
            is_by_container: matches!(orchestrator, "k8s" | "cni"),
            is_pod: orchestrator == "k8s",
        })
    }

    /// The pod, if it is one's.
    pub(crate) fn pod(&self) -> Option<String> {
        let (_, name) = self.name.split_once('/').filter(|_| self.is_pod)?;
        WorkloadEndpointParts::parse(name).ok().map(|parts| parts.pod)
    }

    /// Its namespace.
    pub(crate) fn namespace(&self) -> &str {
        self.name.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// What people call it: the pod, or the endpoint's own name.
    pub(crate) fn spoken(&self) -> String {
        match self.pod() {
            None => self.name.to_string(),
            Some(pod) => format!("{}/{pod}", self.namespace()),
        }
    }

    /// Whether a handle is that of the endpoint's container, or, as very old versions have it, of
    /// its pod.
    pub(crate) fn owns(&self, handle: &str) -> bool {
        let tail = tail(handle);
        let is_containers =
            !self.container.is_empty() && tail.eq_ignore_ascii_case(&self.container);
        is_containers || self.pod().is_some_and(|pod| tail.eq_ignore_ascii_case(&pod))
    }
}

/// The last part of a handle, where the container stands. Old versions wrote more behind it by
/// mistake.
pub(crate) fn tail(handle: &str) -> &str {
    let handle = crate::block::settled(handle);
    handle.rsplit('.').next().unwrap_or(handle)
}

/// The same in lower case.
pub(crate) fn container_of(handle: &str) -> String {
    tail(handle).to_ascii_lowercase()
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
