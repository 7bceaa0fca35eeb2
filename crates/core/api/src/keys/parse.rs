//! Paths back to keys.

use std::net::IpAddr;

use net::Cidr;

use super::{
    AffinityType, BgpPeerAddress, BlockAffinityKey, HostEndpointKey, Key, PolicyKey, ResourceKey,
    ResourceKind, WorkloadEndpointKey, unescape,
};

/// Reads a prefix as it stands in a path; a v4 address mapped into v6 stays what it is.
pub(super) fn cidr(part: &str) -> Option<Cidr> {
    let (address, length) = part.split_once('-')?;
    let digits = length.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (length.len() > 1 && length.starts_with('0')) {
        return None;
    }
    Some(Cidr::new(address.parse().ok()?, length.parse().ok()?)?.masked())
}

/// Whether the part is the prefix and one more character, such as `ipv4`: the address that
/// follows decides the family, not this.
pub(super) fn names_family(part: &str, prefix: &str) -> bool {
    let mut rest = part.strip_prefix(prefix).unwrap_or_default().chars();
    matches!((rest.next(), rest.next()), (Some(letter), None) if letter != '\n')
}

/// Reads `ADDRESS` or `ADDRESS-PORT`. The port may be written as Go writes numbers.
pub(super) fn peer(part: &str) -> Option<BgpPeerAddress> {
    let read = |text: &str| {
        let address: IpAddr = text.parse().ok()?;
        Some(address.to_canonical())
    };
    let mut pieces = part.split('-');
    if let (Some(address), Some(port), None) = (pieces.next(), pieces.next(), pieces.next())
        && let Some(port) = go_number(port)
    {
        return Some(BgpPeerAddress { address: read(address)?, port });
    }
    Some(BgpPeerAddress { address: read(part)?, port: BgpPeerAddress::DEFAULT_PORT })
}

fn go_number(text: &str) -> Option<u16> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', b'o', ..] => (&lower[2..], 8),
        [b'0', _, ..] => (&lower[1..], 8),
        _ => (lower.as_str(), 10),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    u16::from_str_radix(digits, radix).ok()
}

/// Cuts a path into its parts below `/calico`; the leading slash may be missing.
pub(super) fn parts(path: &str) -> Option<Vec<&str>> {
    let path = path.strip_prefix('/').unwrap_or(path);
    Some(path.strip_prefix("calico/")?.split('/').collect())
}

/// What stands after the first `count` parts, which must be something and on one line.
pub(super) fn rest(parts: &[&str], count: usize) -> Option<String> {
    let rest = parts.get(count..)?.join("/");
    (!rest.is_empty() && !rest.contains('\n')).then_some(rest)
}

impl Key {
    /// Reads the path of any key. BGP peers are read as the BGP settings they lie among; use
    /// [`super::ListOptions`] to find peers.
    pub fn parse(path: &str) -> Option<Self> {
        let parts = parts(path)?;
        let absolute = path.starts_with('/');
        match parts.as_slice() {
            ["v1", "Ready"] => absolute.then_some(Self::ReadyFlag),
            ["v1", "config", name @ ..] => Some(Self::GlobalConfig { name: name.join("/") }),
            ["v1", "netset", name] => Some(Self::NetworkSet { name: unescape(name) }),
            ["v1", "ipam", family, "pool", prefix] if names_family(family, "v") => {
                Some(Self::IpPool { cidr: cidr(prefix)? })
            }
            ["v1", "host", host, rest @ ..] => host_key(host, rest),
            ["v1", "policy", rest @ ..] => policy_key(rest),
            ["bgp", "v1", "global", ..] => Some(Self::GlobalBgpConfig { name: rest(&parts, 3)? }),
            ["bgp", "v1", "host", host] if !host.is_empty() => {
                Some(Self::BgpNode { host: (*host).to_owned() })
            }
            ["bgp", "v1", "host", node, ..] if !node.is_empty() => {
                Some(Self::NodeBgpConfig { node: (*node).to_owned(), name: rest(&parts, 4)? })
            }
            ["ipam", "v2", rest @ ..] => ipam_key(rest),
            ["resources", "v3", "projectcalico.org", rest @ ..] if absolute => resource_key(rest),
            ["felix", "v1", "host", host, "endpoint", endpoint] => {
                Some(Self::HostEndpointStatus(HostEndpointKey {
                    host: (*host).to_owned(),
                    endpoint: unescape(endpoint),
                }))
            }
            ["felix", "v2", region, "host", host, rest @ ..]
                if !region.is_empty() && !host.is_empty() =>
            {
                status_key(region, host, rest)
            }
            _ => None,
        }
    }
}

fn host_key(host: &str, rest: &[&str]) -> Option<Key> {
    match rest {
        ["workload", orchestrator, workload, "endpoint", endpoint] => {
            Some(Key::WorkloadEndpoint(WorkloadEndpointKey {
                host: unescape(host),
                orchestrator: unescape(orchestrator),
                workload: unescape(workload),
                endpoint: unescape(endpoint),
            }))
        }
        ["endpoint", endpoint] => Some(Key::HostEndpoint(HostEndpointKey {
            host: unescape(host),
            endpoint: unescape(endpoint),
        })),
        ["config", name @ ..] => {
            Some(Key::HostConfig { host: unescape(host), name: name.join("/") })
        }
        ["metadata"] => Some(Key::HostMetadata { host: host.to_owned() }),
        ["wireguard"] => Some(Key::Wireguard { host: unescape(host) }),
        ["orchestrator_refs"] => Some(Key::OrchestratorRefs { host: host.to_owned() }),
        _ => None,
    }
}

fn policy_key(rest: &[&str]) -> Option<Key> {
    match rest {
        ["tier", tier, "metadata"] => Some(Key::Tier { name: unescape(tier) }),
        ["tier", tier, "policy", name] => {
            Some(Key::LegacyPolicy { policy: legacy_policy(&unescape(name)), tier: unescape(tier) })
        }
        // Calico ignores whatever follows here.
        ["profile", name, "rules", ..] => Some(Key::ProfileRules { name: unescape(name) }),
        ["profile", name, "labels", ..] => Some(Key::ProfileLabels { name: unescape(name) }),
        ["tier" | "profile", ..] => None,
        [kind, namespace, name] => Some(Key::Policy(PolicyKey {
            kind: unescape(kind),
            namespace: unescape(namespace),
            name: unescape(name),
        })),
        _ => None,
    }
}

/// Older programs put the kind of a policy in front of its name.
fn legacy_policy(full_name: &str) -> PolicyKey {
    const NAMESPACED: &[(&str, &str)] = &[
        ("knp.default.", "KubernetesNetworkPolicy"),
        ("staged:knp.default.", "StagedKubernetesNetworkPolicy"),
        ("staged:", "StagedNetworkPolicy"),
        ("", "NetworkPolicy"),
    ];
    const GLOBAL: &[(&str, &str)] = &[
        ("staged:", "StagedGlobalNetworkPolicy"),
        ("kcnp.", "KubernetesClusterNetworkPolicy"),
        ("", "GlobalNetworkPolicy"),
    ];
    let (prefixes, namespace, name) = match full_name.split_once('/') {
        Some((namespace, name)) => (NAMESPACED, namespace, name),
        None => (GLOBAL, "", full_name),
    };
    let (kind, name) = prefixes
        .iter()
        .find_map(|(prefix, kind)| Some((*kind, name.strip_prefix(prefix)?)))
        .expect("the last prefix is empty and fits every name");
    PolicyKey { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
}

fn ipam_key(rest: &[&str]) -> Option<Key> {
    match rest {
        ["config"] => Some(Key::IpamConfig),
        ["handle", id] => Some(Key::IpamHandle { id: (*id).to_owned() }),
        ["assignment", family, "block", prefix] if names_family(family, "ipv") => {
            Some(Key::Block { cidr: cidr(prefix)? })
        }
        ["host", host] if !host.is_empty() => Some(Key::IpamHost { host: (*host).to_owned() }),
        [owner_type @ ("host" | "virtual"), rest @ ..] => affinity(owner_type, rest),
        _ => None,
    }
}

/// Reads what follows the type of owner in the path of a block affinity.
pub(super) fn affinity(owner_type: &str, rest: &[&str]) -> Option<Key> {
    match rest {
        [owner, family, "block", prefix] if !owner.is_empty() && names_family(family, "ipv") => {
            Some(Key::BlockAffinity(BlockAffinityKey {
                owner_type: AffinityType::from_name(owner_type),
                owner: (*owner).to_owned(),
                cidr: cidr(prefix)?,
            }))
        }
        _ => None,
    }
}

fn resource_key(rest: &[&str]) -> Option<Key> {
    let kind = ResourceKind::from_plural(&unescape(rest.first()?))?;
    let (namespace, name) = match rest {
        [_, name] if !kind.is_namespaced() => (String::new(), unescape(name)),
        [_, namespace, name] if kind.is_namespaced() => (unescape(namespace), unescape(name)),
        _ => return None,
    };
    Some(Key::Resource(ResourceKey { kind, namespace, name }))
}

fn status_key(region: &str, host: &str, rest: &[&str]) -> Option<Key> {
    let (region, host) = (region.to_owned(), host.to_owned());
    match rest {
        ["status"] => Some(Key::ActiveStatusReport { region, host }),
        // Calico ignores whatever follows here.
        ["last_reported_status", ..] => Some(Key::LastStatusReport { region, host }),
        ["workload", orchestrator, workload, "endpoint", endpoint]
            if [orchestrator, workload, endpoint].iter().all(|part| !part.is_empty()) =>
        {
            Some(Key::WorkloadEndpointStatus {
                region,
                endpoint: WorkloadEndpointKey {
                    host,
                    orchestrator: unescape(orchestrator),
                    workload: unescape(workload),
                    endpoint: unescape(endpoint),
                },
            })
        }
        _ => None,
    }
}
