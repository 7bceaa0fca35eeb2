//! Keys as Calico prints them in its logs.

use std::fmt;

use super::{BgpPeerAddress, BlockAffinityKey, Key, PolicyKey, WorkloadEndpointKey};

impl fmt::Display for WorkloadEndpointKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "WorkloadEndpoint(node={}, orchestrator={}, workload={}, name={})",
            self.host, self.orchestrator, self.workload, self.endpoint
        )
    }
}

impl fmt::Display for BgpPeerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ip={}, port={}", self.address, self.port)
    }
}

/// The form in which Calico prints keys in its logs.
impl fmt::Display for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(key) => key.fmt(to),
            Self::WorkloadEndpoint(key) => key.fmt(to),
            Self::HostEndpoint(key) => {
                write!(to, "HostEndpoint(node={}, name={})", key.host, key.endpoint)
            }
            Self::Policy(PolicyKey { kind, namespace, name }) => {
                write!(to, "Policy(Name={name}, Namespace={namespace}, Kind={kind})")
            }
            Self::LegacyPolicy { policy: PolicyKey { kind, namespace, name }, tier } => write!(
                to,
                "LegacyPolicy(Name={name}, Namespace={namespace}, Kind={kind}, Tier={tier})"
            ),
            Self::Profile { name } => write!(to, "Profile(name={name})"),
            Self::ProfileRules { name } => write!(to, "ProfileRules(name={name})"),
            Self::ProfileLabels { name } => write!(to, "ProfileLabels(name={name})"),
            Self::Tier { name } => write!(to, "Tier(name={name})"),
            Self::NetworkSet { name } => write!(to, "NetworkSet(name={name})"),
            Self::IpPool { cidr } => write!(to, "IPPool(cidr={cidr})"),
            Self::GlobalConfig { name } => write!(to, "GlobalFelixConfig(name={name})"),
            Self::HostConfig { host, name } => write!(to, "HostConfig(node={host},name={name})"),
            Self::ReadyFlag => to.write_str("ReadyFlagKey()"),
            Self::HostMetadata { host } => write!(to, "Node(name={host})"),
            Self::Wireguard { host } => write!(to, "Node(nodename={host})"),
            Self::OrchestratorRefs { host } => write!(to, "OrchRefs(nodename={host})"),
            Self::GlobalBgpConfig { name } => write!(to, "GlobalBGPConfig(name={name})"),
            Self::NodeBgpConfig { node, name } => {
                write!(to, "HostBGPConfig(node={node}; name={name})")
            }
            Self::GlobalBgpPeer(peer) => write!(to, "BGPPeer(global, {peer})"),
            Self::NodeBgpPeer { node, peer } => write!(to, "BGPPeer(node={node}, {peer})"),
            Self::BgpNode { host } => write!(to, "BGPNodeKey(host={host})"),
            Self::Block { cidr } => write!(to, "BlockKey(cidr={cidr})"),
            Self::BlockAffinity(BlockAffinityKey { owner_type, owner, cidr }) => write!(
                to,
                "BlockAffinityKey(cidr={cidr}, host={owner}, affinityType={})",
                owner_type.name()
            ),
            Self::IpamHandle { id } => write!(to, "IPAMHandleKey(id={id})"),
            Self::IpamConfig => to.write_str("IPAMConfigKey()"),
            Self::IpamHost { host } => write!(to, "IPAMHostKey(host={host})"),
            Self::HostEndpointStatus(key) => {
                write!(to, "HostEndpointStatus(hostname={}, name={})", key.host, key.endpoint)
            }
            Self::WorkloadEndpointStatus { endpoint: key, .. } => write!(
                to,
                "WorkloadEndpointStatus(hostname={}, orchestrator={}, workload={}, name={})",
                key.host, key.orchestrator, key.workload, key.endpoint
            ),
            Self::ActiveStatusReport { host, .. } | Self::LastStatusReport { host, .. } => {
                write!(to, "StatusReport(hostname={host})")
            }
        }
    }
}
