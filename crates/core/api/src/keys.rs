//! The datastore codec: where every object of a Calico store lies, and what its bytes mean.
//!
//! A [`Key`] names an object; [`Key::path`] is the place where Calico stores it and
//! [`Key::parse`] reads such a place back. [`ListOptions`] says which prefix to list for a family
//! of keys and which paths belong to it. [`value`] reads and writes the bytes under a key, and
//! [`ipam`] gives the address-management values proper types.
//!
//! Escaping is uneven because Calico's is: `/` and `%` are written as `%2f` and `%25` in some
//! parts of the old style paths only, never in the v3 ones, and read back in nearly all.

pub mod ipam;
mod list;
mod parse;
pub mod policy;
mod print;
mod resource;
mod scalars;
mod tables;
pub mod value;

use std::fmt;
use std::net::IpAddr;

use net::Cidr;

pub use list::{ListOptions, ResourceList};
pub use resource::{ResourceKey, ResourceKind, settle_policy_name};

/// A workload endpoint in the old style: what Felix and the syncers call it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadEndpointKey {
    /// The node it runs on.
    pub host: String,
    /// Who made it: `k8s`, `cni`, `openstack`…
    pub orchestrator: String,
    /// The workload, with its namespace (`default/pod-1`).
    pub workload: String,
    /// The interface inside the workload.
    pub endpoint: String,
}

/// A host endpoint in the old style.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostEndpointKey {
    /// The node it belongs to.
    pub host: String,
    /// Its name.
    pub endpoint: String,
}

/// A policy of any kind, as the policy engine knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyKey {
    /// The kind of resource it was made from; text, because newer programs may send new kinds.
    pub kind: String,
    /// Its namespace; empty for global policies.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// For whom a block of addresses is reserved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AffinityType {
    /// A node.
    Host,
    /// Something that is no node, such as the addresses of load balancers.
    Virtual,
    /// A type we do not know.
    Other(String),
}

impl AffinityType {
    /// The type with this name; no name at all means a node.
    pub fn from_name(name: &str) -> Self {
        match name {
            "" | "host" => Self::Host,
            "virtual" => Self::Virtual,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Its name in paths and in blocks.
    pub fn name(&self) -> &str {
        match self {
            Self::Host => "host",
            Self::Virtual => "virtual",
            Self::Other(name) => name,
        }
    }
}

/// The claim of an owner on a block of addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAffinityKey {
    /// The kind of owner.
    pub owner_type: AffinityType,
    /// The owner.
    pub owner: String,
    /// The block.
    pub cidr: Cidr,
}

/// Where a BGP peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BgpPeerAddress {
    /// Its address.
    pub address: IpAddr,
    /// Its port; 0 and 179 are the same place.
    pub port: u16,
}

/// The name of one object of a Calico store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the fields are the parts of the name")]
pub enum Key {
    /// An object of the v3 API.
    Resource(ResourceKey),
    /// A workload endpoint.
    WorkloadEndpoint(WorkloadEndpointKey),
    /// A host endpoint.
    HostEndpoint(HostEndpointKey),
    /// A policy.
    Policy(PolicyKey),
    /// A policy as older programs name it, with its tier in the path. It can only be read;
    /// see [`Key::upgraded`].
    LegacyPolicy { policy: PolicyKey, tier: String },
    /// A profile as a whole; only its parts hold values.
    Profile { name: String },
    /// The rules of a profile.
    ProfileRules { name: String },
    /// The labels that a profile gives to its endpoints.
    ProfileLabels { name: String },
    /// A tier of policies.
    Tier { name: String },
    /// A network set; the name of a namespaced one starts with `NAMESPACE/`.
    NetworkSet { name: String },
    /// A pool of addresses.
    IpPool { cidr: Cidr },
    /// A setting of Felix for all nodes.
    GlobalConfig { name: String },
    /// A setting of Felix for one node.
    HostConfig { host: String, name: String },
    /// Whether the store may be used.
    ReadyFlag,
    /// That a node exists.
    HostMetadata { host: String },
    /// The WireGuard keys of a node.
    Wireguard { host: String },
    /// What orchestrators call a node.
    OrchestratorRefs { host: String },
    /// A BGP setting for all nodes.
    GlobalBgpConfig { name: String },
    /// A BGP setting for one node.
    NodeBgpConfig { node: String, name: String },
    /// A BGP peer of all nodes.
    GlobalBgpPeer(BgpPeerAddress),
    /// A BGP peer of one node.
    NodeBgpPeer { node: String, peer: BgpPeerAddress },
    /// That a node speaks BGP.
    BgpNode { host: String },
    /// A block of addresses.
    Block { cidr: Cidr },
    /// The claim of an owner on a block.
    BlockAffinity(BlockAffinityKey),
    /// All addresses of one workload.
    IpamHandle { id: String },
    /// The settings of address management.
    IpamConfig,
    /// That a node takes part in address management.
    IpamHost { host: String },
    /// What Felix says of a host endpoint.
    HostEndpointStatus(HostEndpointKey),
    /// What Felix says of a workload endpoint.
    WorkloadEndpointStatus { region: String, endpoint: WorkloadEndpointKey },
    /// That Felix lives; gone some time after it dies.
    ActiveStatusReport { region: String, host: String },
    /// The last sign of life of Felix.
    LastStatusReport { region: String, host: String },
}

/// Why a key has no path. The first text is Calico's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// A part of the name is empty.
    Missing(&'static str),
    /// A region with a slash would reach into another one.
    SlashInRegion(String),
    /// Such keys pass between programs and have no place of this sort in a store.
    NotStored(&'static str),
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(part) => {
                write!(formatter, "insufficient identifiers, missing '{part}'")
            }
            Self::SlashInRegion(region) => {
                write!(formatter, "RegionString {region} is invalid because it includes a slash")
            }
            Self::NotStored(what) => write!(formatter, "{what} keys have no such path in a store"),
        }
    }
}

impl std::error::Error for KeyError {}

fn need<'a>(part: &'a str, name: &'static str) -> Result<&'a str, KeyError> {
    if part.is_empty() { Err(KeyError::Missing(name)) } else { Ok(part) }
}

fn escape(part: &str) -> String {
    part.replace('%', "%25").replace('/', "%2f")
}

fn unescape(part: &str) -> String {
    match part.contains('%') {
        true => part.replace("%2f", "/").replace("%25", "%"),
        false => part.to_owned(),
    }
}

fn family(cidr: Cidr) -> u8 {
    if cidr.is_ipv4() { 4 } else { 6 }
}

fn cidr_part(cidr: Cidr) -> String {
    cidr.masked().to_string().replacen('/', "-", 1)
}

fn region_part(region: &str) -> Result<&str, KeyError> {
    match need(region, "regionString")? {
        slashed if slashed.contains('/') => Err(KeyError::SlashInRegion(slashed.to_owned())),
        region => Ok(region),
    }
}

impl BgpPeerAddress {
    /// The port of BGP.
    pub const DEFAULT_PORT: u16 = 179;

    fn path_part(self) -> String {
        let family = if self.address.is_ipv4() { 4 } else { 6 };
        match self.port {
            0 | Self::DEFAULT_PORT => format!("peer_v{family}/{}", self.address),
            port => format!("peer_v{family}/{}-{port}", self.address),
        }
    }
}

impl HostEndpointKey {
    fn path_under(&self, root: &str) -> Result<String, KeyError> {
        let host = need(&self.host, "node")?;
        Ok(format!("{root}/{host}/endpoint/{}", escape(need(&self.endpoint, "name")?)))
    }
}

impl WorkloadEndpointKey {
    /// The folder of the workload's endpoints, whose last part is the workload.
    fn workload_path(&self, root: &str, host: &'static str) -> Result<String, KeyError> {
        let host = need(&self.host, host)?;
        let orchestrator = escape(need(&self.orchestrator, "orchestrator")?);
        let workload = escape(need(&self.workload, "workload")?);
        Ok(format!("{root}/{host}/workload/{orchestrator}/{workload}"))
    }

    /// The namespace of the workload; empty where it has none.
    pub fn namespace(&self) -> &str {
        self.workload.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    fn status_path(&self, region: &str) -> Result<String, KeyError> {
        self.workload_path("", "hostname")?;
        let last = escape(need(&self.endpoint, "endpoint")?);
        Ok(format!("{}/endpoint/{last}", self.status_folder(region)?))
    }

    fn status_folder(&self, region: &str) -> Result<String, KeyError> {
        // The endpoint's own parts are looked at before the region.
        self.workload_path("", "hostname")?;
        let region = region_part(region)?;
        self.workload_path(&format!("/calico/felix/v2/{region}/host"), "hostname")
    }
}

impl PolicyKey {
    fn path(&self) -> Result<String, KeyError> {
        let name = need(&self.name, "name")?;
        let kind = need(&self.kind, "kind")?;
        if matches!(kind, "NetworkPolicy" | "StagedNetworkPolicy" | "StagedKubernetesNetworkPolicy")
        {
            need(&self.namespace, "namespace")?;
        }
        Ok(format!("/calico/v1/policy/{kind}/{}/{name}", self.namespace))
    }
}

fn report_path(region: &str, host: &str) -> Result<String, KeyError> {
    let host = need(host, "hostname")?;
    Ok(format!("/calico/felix/v2/{}/host/{host}", region_part(region)?))
}

fn profile_path(name: &str) -> Result<String, KeyError> {
    Ok(format!("/calico/v1/policy/profile/{}", escape(need(name, "name")?)))
}

impl Key {
    /// Where the object lies in a store.
    pub fn path(&self) -> Result<String, KeyError> {
        Ok(match self {
            Self::Resource(key) => key.path(),
            Self::WorkloadEndpoint(key) => {
                let folder = key.workload_path("/calico/v1/host", "node")?;
                format!("{folder}/endpoint/{}", escape(need(&key.endpoint, "name")?))
            }
            Self::HostEndpoint(key) => key.path_under("/calico/v1/host")?,
            Self::Policy(key) => key.path()?,
            Self::LegacyPolicy { .. } => return Err(KeyError::NotStored("old policy")),
            Self::Profile { name } => profile_path(name)?,
            Self::ProfileRules { name } => profile_path(name)? + "/rules",
            Self::ProfileLabels { name } => profile_path(name)? + "/labels",
            Self::Tier { name } => {
                format!("/calico/v1/policy/tier/{}/metadata", need(name, "name")?)
            }
            Self::NetworkSet { name } => {
                format!("/calico/v1/netset/{}", escape(need(name, "name")?))
            }
            Self::IpPool { cidr } => {
                format!("/calico/v1/ipam/v{}/pool/{}", family(*cidr), cidr_part(*cidr))
            }
            Self::GlobalConfig { name } => format!("/calico/v1/config/{}", need(name, "name")?),
            Self::HostConfig { host, name } => {
                let name = need(name, "name")?;
                format!("/calico/v1/host/{}/config/{name}", need(host, "node")?)
            }
            Self::ReadyFlag => "/calico/v1/Ready".to_owned(),
            Self::HostMetadata { host } => {
                format!("/calico/v1/host/{}/metadata", need(host, "name")?)
            }
            Self::Wireguard { host } => {
                format!("/calico/v1/host/{}/wireguard", need(host, "name")?)
            }
            Self::OrchestratorRefs { host } => format!("/calico/v1/host/{host}/orchestrator_refs"),
            Self::GlobalBgpConfig { name } => {
                format!("/calico/bgp/v1/global/{}", need(name, "name")?)
            }
            Self::NodeBgpConfig { node, name } => {
                let node = need(node, "node")?;
                format!("/calico/bgp/v1/host/{node}/{}", need(name, "name")?)
            }
            Self::GlobalBgpPeer(peer) => format!("/calico/bgp/v1/global/{}", peer.path_part()),
            Self::NodeBgpPeer { node, peer } => {
                format!("/calico/bgp/v1/host/{}/{}", need(node, "node")?, peer.path_part())
            }
            Self::BgpNode { host } => format!("/calico/bgp/v1/host/{}", need(host, "host")?),
            Self::Block { cidr } => {
                let (family, cidr) = (family(*cidr), cidr_part(*cidr));
                format!("/calico/ipam/v2/assignment/ipv{family}/block/{cidr}")
            }
            Self::BlockAffinity(key) => {
                let (family, cidr) = (family(key.cidr), cidr_part(key.cidr));
                let (folder, owner) = (key.owner_type.name(), need(&key.owner, "")?);
                format!("/calico/ipam/v2/{folder}/{owner}/ipv{family}/block/{cidr}")
            }
            Self::IpamHandle { id } => format!("/calico/ipam/v2/handle/{}", need(id, "")?),
            Self::IpamConfig => "/calico/ipam/v2/config".to_owned(),
            Self::IpamHost { host } => format!("/calico/ipam/v2/host/{}", need(host, "host")?),
            Self::HostEndpointStatus(key) => key.path_under("/calico/felix/v1/host")?,
            Self::WorkloadEndpointStatus { region, endpoint } => endpoint.status_path(region)?,
            Self::ActiveStatusReport { region, host } => report_path(region, host)? + "/status",
            Self::LastStatusReport { region, host } => {
                report_path(region, host)? + "/last_reported_status"
            }
        })
    }

    /// What to delete, with everything below it, to delete the object.
    pub fn delete_path(&self) -> Result<String, KeyError> {
        match self {
            Self::ProfileRules { name } | Self::ProfileLabels { name } => profile_path(name),
            Self::Tier { name } => Ok(format!("/calico/v1/policy/tier/{}", need(name, "name")?)),
            Self::HostMetadata { host } => Ok(format!("/calico/v1/host/{}", need(host, "name")?)),
            _ => self.path(),
        }
    }

    /// The folders to remove after the object, in this order, each if nothing is left in it.
    pub fn delete_parent_paths(&self) -> Result<Vec<String>, KeyError> {
        let workload = match self {
            Self::WorkloadEndpoint(key) => key.workload_path("/calico/v1/host", "node")?,
            Self::WorkloadEndpointStatus { region, endpoint } => endpoint.status_folder(region)?,
            Self::Policy(_) | Self::LegacyPolicy { .. } => {
                return Err(KeyError::NotStored("policy"));
            }
            _ => return Ok(Vec::new()),
        };
        Ok(vec![format!("{workload}/endpoint"), workload])
    }

    /// The modern key for one that only older programs use; any other key unchanged.
    pub fn upgraded(self) -> Self {
        match self {
            Self::LegacyPolicy { policy, .. } => Self::Policy(policy),
            modern => modern,
        }
    }
}

#[cfg(test)]
mod tests;
