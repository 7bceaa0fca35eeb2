//! Listing: the prefix under which a family of keys lies, and which paths belong to it.

use std::net::IpAddr;

use net::Cidr;

use super::parse::{affinity, cidr, names_family, parts, peer, rest};
use super::{
    AffinityType, BgpPeerAddress, HostEndpointKey, Key, ResourceKey, ResourceKind,
    WorkloadEndpointKey, cidr_part, escape, family, unescape,
};

/// Which v3 resources of a kind to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceList {
    /// The kind.
    pub kind: ResourceKind,
    /// Only those of this namespace.
    pub namespace: Option<String>,
    /// Only the one with this name, or those whose names begin with it.
    pub name: Option<String>,
    /// Whether the name is only a beginning, as for all workload endpoints of a node.
    pub name_is_prefix: bool,
}

impl ResourceList {
    /// All objects of a kind.
    pub fn all(kind: impl Into<ResourceKind>) -> Self {
        Self { kind: kind.into(), namespace: None, name: None, name_is_prefix: false }
    }

    fn root(&self) -> String {
        let root = ResourceKey::root(self.kind);
        let steps = match self.kind.is_namespaced() {
            true => vec![&self.namespace, &self.name],
            false => vec![&self.name],
        };
        grow(&root, steps.into_iter().map(|step| step.as_deref().map(|part| format!("/{part}"))))
    }

    fn ends_in_prefix(&self) -> bool {
        let in_namespace = self.namespace.is_some() || !self.kind.is_namespaced();
        self.name_is_prefix && self.name.is_some() && in_namespace
    }

    fn read(&self, path: &str) -> Option<Key> {
        let below = path.strip_prefix(&ResourceKey::root(self.kind))?.strip_prefix('/')?;
        let (namespace, name) = match self.kind.is_namespaced() {
            true => below.split_once('/').filter(|(namespace, _)| !namespace.is_empty())?,
            false => ("", below),
        };
        let name_fits = match (&self.name, self.name_is_prefix) {
            (Some(prefix), true) => name.starts_with(prefix.as_str()),
            (wanted, _) => fits(wanted, name),
        };
        let namespace_fits = !self.kind.is_namespaced() || fits(&self.namespace, namespace);
        let belongs = name_fits && namespace_fits && !name.is_empty() && !name.contains('/');
        belongs.then(|| {
            Key::Resource(ResourceKey {
                kind: self.kind,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        })
    }
}

/// A family of keys; every part that is given narrows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the keys they list, with the same parts")]
pub enum ListOptions {
    Resource(ResourceList),
    WorkloadEndpoint {
        host: Option<String>,
        orchestrator: Option<String>,
        workload: Option<String>,
        endpoint: Option<String>,
    },
    HostEndpoint {
        host: Option<String>,
        endpoint: Option<String>,
    },
    HostEndpointStatus {
        host: Option<String>,
        endpoint: Option<String>,
    },
    WorkloadEndpointStatus {
        region: Option<String>,
        host: Option<String>,
        orchestrator: Option<String>,
        workload: Option<String>,
        endpoint: Option<String>,
    },
    ActiveStatusReport {
        region: Option<String>,
        host: Option<String>,
    },
    LastStatusReport {
        region: Option<String>,
        host: Option<String>,
    },
    /// The parts of profiles: rules and labels.
    Profile {
        name: Option<String>,
    },
    Tier {
        name: Option<String>,
    },
    NetworkSet {
        name: Option<String>,
    },
    IpPool {
        cidr: Option<Cidr>,
    },
    GlobalConfig {
        name: Option<String>,
    },
    HostConfig {
        host: Option<String>,
        name: Option<String>,
    },
    HostMetadata {
        host: Option<String>,
    },
    Wireguard {
        host: Option<String>,
    },
    OrchestratorRefs {
        host: String,
    },
    GlobalBgpConfig {
        name: Option<String>,
    },
    NodeBgpConfig {
        node: Option<String>,
        name: Option<String>,
    },
    GlobalBgpPeer {
        address: Option<IpAddr>,
        port: u16,
    },
    NodeBgpPeer {
        node: Option<String>,
        address: Option<IpAddr>,
        port: u16,
    },
    Block {
        /// 4 or 6.
        family: Option<u8>,
    },
    BlockAffinity {
        owner_type: AffinityType,
        owner: Option<String>,
        /// 4 or 6.
        family: Option<u8>,
    },
    IpamHandle,
}

/// Adds the steps to the root up to the first that is not given.
fn grow(root: &str, steps: impl IntoIterator<Item = Option<String>>) -> String {
    steps.into_iter().map_while(|step| step).fold(root.to_owned(), |path, step| path + &step)
}

fn fits(wanted: &Option<String>, part: &str) -> bool {
    wanted.as_ref().is_none_or(|wanted| wanted == part)
}

/// A step with its part written as it is.
fn plain(part: &Option<String>, after: &str) -> Option<String> {
    part.as_ref().map(|part| format!("/{part}{after}"))
}

/// A step with its part escaped.
fn escaped(part: &Option<String>, after: &str) -> Option<String> {
    part.as_ref().map(|part| format!("/{}{after}", escape(part)))
}

fn workload_steps(
    host: &Option<String>,
    orchestrator: &Option<String>,
    workload: &Option<String>,
    endpoint: &Option<String>,
) -> [Option<String>; 4] {
    [
        plain(host, "/workload"),
        escaped(orchestrator, ""),
        escaped(workload, "/endpoint"),
        escaped(endpoint, ""),
    ]
}

impl ListOptions {
    /// The prefix that holds all keys of the family, and perhaps others.
    pub fn root(&self) -> String {
        const HOSTS: &str = "/calico/v1/host";
        const REGIONS: &str = "/calico/felix/v2/";
        let in_region = |region: &Option<String>| region.as_ref().map(|r| format!("{r}/host"));
        match self {
            Self::Resource(list) => list.root(),
            Self::WorkloadEndpoint { host, orchestrator, workload, endpoint } => {
                grow(HOSTS, workload_steps(host, orchestrator, workload, endpoint))
            }
            Self::HostEndpoint { host, endpoint } => {
                grow(HOSTS, [plain(host, "/endpoint"), escaped(endpoint, "")])
            }
            Self::HostEndpointStatus { host, endpoint } => {
                grow("/calico/felix/v1/host", [plain(host, "/endpoint"), escaped(endpoint, "")])
            }
            Self::WorkloadEndpointStatus { region, host, orchestrator, workload, endpoint } => {
                let steps = workload_steps(host, orchestrator, workload, endpoint);
                grow(REGIONS, [in_region(region)].into_iter().chain(steps))
            }
            Self::ActiveStatusReport { region, host } => {
                grow(REGIONS, [in_region(region), plain(host, "/status")])
            }
            Self::LastStatusReport { region, host } => {
                grow(REGIONS, [in_region(region), plain(host, "/last_reported_status")])
            }
            Self::Profile { name } => grow("/calico/v1/policy/profile", [escaped(name, "")]),
            Self::Tier { name } => grow("/calico/v1/policy/tier", [plain(name, "/metadata")]),
            Self::NetworkSet { name } => grow("/calico/v1/netset", [escaped(name, "")]),
            Self::IpPool { cidr } => {
                let step = cidr.map(|cidr| format!("v{}/pool/{}", family(cidr), cidr_part(cidr)));
                grow("/calico/v1/ipam/", [step])
            }
            Self::GlobalConfig { name } => grow("/calico/v1/config", [plain(name, "")]),
            Self::HostConfig { host, name } => {
                grow(HOSTS, [plain(host, "/config"), plain(name, "")])
            }
            Self::HostMetadata { host } => grow(HOSTS, [plain(host, "/metadata")]),
            Self::Wireguard { host } => grow(HOSTS, [plain(host, "/wireguard")]),
            Self::OrchestratorRefs { host } => format!("{HOSTS}/{host}/orchestrator_refs"),
            Self::GlobalBgpConfig { name } => grow("/calico/bgp/v1/global", [plain(name, "")]),
            Self::NodeBgpConfig { node, name } => {
                grow("/calico/bgp/v1/host", [plain(node, ""), plain(name, "")])
            }
            Self::GlobalBgpPeer { address, port } => {
                grow("/calico/bgp/v1/global", [peer_step(*address, *port)])
            }
            Self::NodeBgpPeer { node, address, port } => {
                grow("/calico/bgp/v1/host", [plain(node, ""), peer_step(*address, *port)])
            }
            Self::Block { family } => {
                grow("/calico/ipam/v2/assignment/", [family.map(|family| format!("ipv{family}/"))])
            }
            Self::BlockAffinity { owner_type, owner, family } => {
                let block = family.map(|family| format!("/ipv{family}/block"));
                grow(&format!("/calico/ipam/v2/{}/", owner_type.name()), [owner.clone(), block])
            }
            Self::IpamHandle => "/calico/ipam/v2/handle/".to_owned(),
        }
    }

    /// Whether the root ends within a name, so that longer names belong to the list too.
    pub fn root_is_name_prefix(&self) -> bool {
        matches!(self, Self::Resource(list) if list.ends_in_prefix())
    }

    /// Whether the root is the path of a single object.
    pub fn names_one_object(&self) -> bool {
        !self.root_is_name_prefix() && self.read(&self.root()).is_some()
    }

    /// The key of the path if it belongs to the family. Hosts are taken as they are written.
    pub fn read(&self, path: &str) -> Option<Key> {
        if let Self::Resource(list) = self {
            return list.read(path);
        }
        let parts = parts(path)?;
        let named = parts.iter().all(|part| !part.is_empty());
        match (self, parts.as_slice()) {
            (
                Self::WorkloadEndpoint { host: of_host, orchestrator, workload, endpoint },
                ["v1", "host", host, "workload", o, w, "endpoint", e],
            ) if named => {
                let key = workload_endpoint(host, [o, w, e]);
                let fit = fits(of_host, &key.host)
                    && fits(orchestrator, &key.orchestrator)
                    && fits(workload, &key.workload)
                    && fits(endpoint, &key.endpoint);
                fit.then_some(Key::WorkloadEndpoint(key))
            }
            (
                Self::WorkloadEndpointStatus {
                    region: of_region,
                    host: of_host,
                    orchestrator,
                    workload,
                    endpoint,
                },
                ["felix", "v2", region, "host", host, "workload", o, w, "endpoint", e],
            ) if named => {
                let key = workload_endpoint(host, [o, w, e]);
                let fit = fits(of_region, region)
                    && fits(of_host, &key.host)
                    && fits(orchestrator, &key.orchestrator)
                    && fits(workload, &key.workload)
                    && fits(endpoint, &key.endpoint);
                let region = (*region).to_owned();
                fit.then_some(Key::WorkloadEndpointStatus { region, endpoint: key })
            }
            (Self::HostEndpoint { host, endpoint }, ["v1", "host", h, "endpoint", e]) if named => {
                host_endpoint(host, endpoint, [h, e]).map(Key::HostEndpoint)
            }
            (
                Self::HostEndpointStatus { host, endpoint },
                ["felix", "v1", "host", h, "endpoint", e],
            ) if named => host_endpoint(host, endpoint, [h, e]).map(Key::HostEndpointStatus),
            _ => self.read_simple(&parts, named),
        }
    }

    fn read_simple(&self, parts: &[&str], named: bool) -> Option<Key> {
        let own = |part: &&str| (*part).to_owned();
        match (self, parts) {
            (
                Self::ActiveStatusReport { region, host },
                ["felix", "v2", r, "host", h, "status"],
            ) if named && fits(region, r) && fits(host, h) => {
                Some(Key::ActiveStatusReport { region: own(r), host: own(h) })
            }
            (
                Self::LastStatusReport { region, host },
                ["felix", "v2", r, "host", h, "last_reported_status", ..],
            ) if !r.is_empty() && !h.is_empty() && fits(region, r) && fits(host, h) => {
                Some(Key::LastStatusReport { region: own(r), host: own(h) })
            }
            (
                Self::Profile { name },
                ["v1", "policy", "profile", part, kind @ ("rules" | "labels")],
            ) if named && fits(name, &unescape(part)) => {
                let name = unescape(part);
                Some(match *kind {
                    "rules" => Key::ProfileRules { name },
                    _ => Key::ProfileLabels { name },
                })
            }
            (Self::Tier { name }, ["v1", "policy", "tier", part, "metadata"])
                if named && fits(name, part) =>
            {
                Some(Key::Tier { name: own(part) })
            }
            (Self::NetworkSet { name }, ["v1", "netset", part])
                if named && fits(name, &unescape(part)) =>
            {
                Some(Key::NetworkSet { name: unescape(part) })
            }
            (Self::GlobalConfig { name }, ["v1", "config", ..]) => {
                let rest = rest(parts, 2).filter(|rest| fits(name, rest))?;
                Some(Key::GlobalConfig { name: rest })
            }
            (Self::HostConfig { host, name }, ["v1", "host", h, "config", ..])
                if !h.is_empty() && fits(host, h) =>
            {
                let rest = rest(parts, 4).filter(|rest| fits(name, rest))?;
                Some(Key::HostConfig { host: own(h), name: rest })
            }
            (Self::HostMetadata { host }, ["v1", "host", h, "metadata"])
                if named && fits(host, h) =>
            {
                Some(Key::HostMetadata { host: own(h) })
            }
            (Self::Wireguard { host }, ["v1", "host", h, "wireguard"])
                if named && fits(host, h) =>
            {
                Some(Key::Wireguard { host: own(h) })
            }
            (Self::OrchestratorRefs { host }, ["v1", "host", h, "orchestrator_refs"])
                if host == h =>
            {
                Some(Key::OrchestratorRefs { host: own(h) })
            }
            _ => self.read_addresses(parts, named),
        }
    }

    fn read_addresses(&self, parts: &[&str], named: bool) -> Option<Key> {
        let own = |part: &&str| (*part).to_owned();
        match (self, parts) {
            (Self::GlobalBgpConfig { name }, ["bgp", "v1", "global", ..]) => {
                let rest = rest(parts, 3).filter(|rest| fits(name, rest))?;
                Some(Key::GlobalBgpConfig { name: rest })
            }
            (Self::NodeBgpConfig { node, name }, ["bgp", "v1", "host", n, ..])
                if !n.is_empty() && fits(node, n) =>
            {
                let rest = rest(parts, 4).filter(|rest| fits(name, rest))?;
                Some(Key::NodeBgpConfig { node: own(n), name: rest })
            }
            (Self::GlobalBgpPeer { address, .. }, ["bgp", "v1", "global", family, part])
                if names_family(family, "peer_v") =>
            {
                let peer = peer(part).filter(|peer| address.is_none_or(|a| a == peer.address))?;
                Some(Key::GlobalBgpPeer(peer))
            }
            (Self::NodeBgpPeer { node, address, .. }, ["bgp", "v1", "host", n, family, part])
                if named && fits(node, n) && names_family(family, "peer_v") =>
            {
                let peer = peer(part).filter(|peer| address.is_none_or(|a| a == peer.address))?;
                Some(Key::NodeBgpPeer { node: own(n), peer })
            }
            (Self::IpPool { cidr: wanted }, ["v1", "ipam", v, "pool", part])
                if names_family(v, "v") =>
            {
                let cidr = cidr(part).filter(|cidr| wanted.is_none_or(|w| w.masked() == *cidr))?;
                Some(Key::IpPool { cidr })
            }
            (Self::Block { .. }, ["ipam", "v2", "assignment", v, "block", part])
                if names_family(v, "ipv") =>
            {
                Some(Key::Block { cidr: cidr(part)? })
            }
            (
                Self::BlockAffinity { owner, family: wanted, .. },
                ["ipam", "v2", owner_type @ ("@" | "host" | "virtual"), below @ ..],
            ) => affinity(owner_type, below).filter(|key| match key {
                Key::BlockAffinity(key) => {
                    fits(owner, &key.owner)
                        && wanted.is_none_or(|wanted| wanted == family(key.cidr))
                }
                _ => false,
            }),
            (Self::IpamHandle, ["ipam", "v2", "handle", id]) if named => {
                Some(Key::IpamHandle { id: own(id) })
            }
            _ => None,
        }
    }
}

fn peer_step(address: Option<IpAddr>, port: u16) -> Option<String> {
    address.map(|address| format!("/{}", BgpPeerAddress { address, port }.path_part()))
}

fn workload_endpoint(host: &str, rest: [&str; 3]) -> WorkloadEndpointKey {
    let [orchestrator, workload, endpoint] = rest.map(unescape);
    WorkloadEndpointKey { host: host.to_owned(), orchestrator, workload, endpoint }
}

fn host_endpoint(
    host: &Option<String>,
    endpoint: &Option<String>,
    [found_host, found_endpoint]: [&str; 2],
) -> Option<HostEndpointKey> {
    let found_endpoint = unescape(found_endpoint);
    (fits(host, found_host) && fits(endpoint, &found_endpoint))
        .then(|| HostEndpointKey { host: found_host.to_owned(), endpoint: found_endpoint })
}
