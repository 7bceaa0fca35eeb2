//! Keys and list options in the notation of the corpus, and back.

use std::net::IpAddr;

use api::keys::{
    AffinityType, BgpPeerAddress, BlockAffinityKey, HostEndpointKey, Key, ListOptions, PolicyKey,
    ResourceKey, ResourceKind, ResourceList, WorkloadEndpointKey,
};
use net::Cidr;
use serde_json::{Map, Value, json};

/// The parts of a key in a row; what is missing is empty.
pub(super) struct Parts<'r>(pub(super) &'r Value);

impl Parts<'_> {
    pub(super) fn text(&self, name: &str) -> String {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn some(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    fn number(&self, name: &str) -> u16 {
        self.0.get(name).and_then(Value::as_u64).and_then(|n| n.try_into().ok()).unwrap_or(0)
    }

    fn cidr(&self) -> Option<Cidr> {
        let text = self.text("CIDR");
        let (address, length) = text.split_once('/')?;
        Cidr::new(address.parse().ok()?, length.parse().ok()?)
    }

    fn address(&self) -> Option<IpAddr> {
        self.text("PeerIP").parse().ok()
    }

    fn peer(&self) -> Option<BgpPeerAddress> {
        Some(BgpPeerAddress { address: self.address()?, port: self.number("Port") })
    }

    fn family(&self) -> Option<u8> {
        u8::try_from(self.number("IPVersion")).ok().filter(|version| *version != 0)
    }

    fn workload_endpoint(&self) -> WorkloadEndpointKey {
        WorkloadEndpointKey {
            host: self.text("Hostname"),
            orchestrator: self.text("OrchestratorID"),
            workload: self.text("WorkloadID"),
            endpoint: self.text("EndpointID"),
        }
    }

    fn host_endpoint(&self) -> HostEndpointKey {
        HostEndpointKey { host: self.text("Hostname"), endpoint: self.text("EndpointID") }
    }

    fn policy(&self) -> PolicyKey {
        PolicyKey {
            kind: self.text("Kind"),
            namespace: self.text("Namespace"),
            name: self.text("Name"),
        }
    }

    /// The key; none if our types have no room for such a thing.
    pub(super) fn key(&self, kind: &str) -> Option<Key> {
        let (name, host, region) =
            (self.text("Name"), self.text("Hostname"), self.text("RegionString"));
        Some(match kind {
            "ResourceKey" => Key::Resource(ResourceKey {
                kind: ResourceKind::from_name(&self.text("Kind"))?,
                namespace: self.text("Namespace"),
                name,
            }),
            "WorkloadEndpointKey" => Key::WorkloadEndpoint(self.workload_endpoint()),
            "HostEndpointKey" => Key::HostEndpoint(self.host_endpoint()),
            "PolicyKey" => Key::Policy(self.policy()),
            "LegacyPolicyKey" => {
                Key::LegacyPolicy { policy: self.policy(), tier: self.text("Tier") }
            }
            "ProfileKey" => Key::Profile { name },
            "ProfileRulesKey" => Key::ProfileRules { name },
            "ProfileLabelsKey" => Key::ProfileLabels { name },
            "TierKey" => Key::Tier { name },
            "NetworkSetKey" => Key::NetworkSet { name },
            "IPPoolKey" => Key::IpPool { cidr: self.cidr()? },
            "GlobalConfigKey" => Key::GlobalConfig { name },
            "HostConfigKey" => Key::HostConfig { host, name },
            "ReadyFlagKey" => Key::ReadyFlag,
            "HostMetadataKey" => Key::HostMetadata { host },
            "WireguardKey" => Key::Wireguard { host: self.text("NodeName") },
            "OrchRefKey" => Key::OrchestratorRefs { host },
            "GlobalBGPConfigKey" => Key::GlobalBgpConfig { name },
            "NodeBGPConfigKey" => Key::NodeBgpConfig { node: self.text("Nodename"), name },
            "GlobalBGPPeerKey" => Key::GlobalBgpPeer(self.peer()?),
            "NodeBGPPeerKey" => {
                Key::NodeBgpPeer { node: self.text("Nodename"), peer: self.peer()? }
            }
            "BGPNodeKey" => Key::BgpNode { host: self.text("Host") },
            "BlockKey" => Key::Block { cidr: self.cidr()? },
            "BlockAffinityKey" => Key::BlockAffinity(BlockAffinityKey {
                owner_type: AffinityType::from_name(&self.text("AffinityType")),
                owner: self.text("Host"),
                cidr: self.cidr()?,
            }),
            "IPAMHandleKey" => Key::IpamHandle { id: self.text("HandleID") },
            "IPAMConfigKey" => Key::IpamConfig,
            "IPAMHostKey" => Key::IpamHost { host: self.text("Host") },
            "HostEndpointStatusKey" => Key::HostEndpointStatus(self.host_endpoint()),
            "WorkloadEndpointStatusKey" => {
                Key::WorkloadEndpointStatus { region, endpoint: self.workload_endpoint() }
            }
            "ActiveStatusReportKey" => Key::ActiveStatusReport { region, host },
            "LastStatusReportKey" => Key::LastStatusReport { region, host },
            _ => return None,
        })
    }

    /// The list options; none if our types have no room for such a thing.
    pub(super) fn options(&self, kind: &str) -> Option<ListOptions> {
        let (name, host) = (self.some("Name"), self.some("Hostname"));
        let (region, endpoint) = (self.some("RegionString"), self.some("EndpointID"));
        let (orchestrator, workload) = (self.some("OrchestratorID"), self.some("WorkloadID"));
        let (address, port) = (self.address(), self.number("Port"));
        Some(match kind.strip_suffix("ListOptions")? {
            "Resource" => ListOptions::Resource(ResourceList {
                kind: ResourceKind::from_name(&self.text("Kind"))?,
                namespace: self.some("Namespace"),
                name,
                name_is_prefix: self.0["Prefix"] == true,
            }),
            "WorkloadEndpoint" => {
                ListOptions::WorkloadEndpoint { host, orchestrator, workload, endpoint }
            }
            "WorkloadEndpointStatus" => ListOptions::WorkloadEndpointStatus {
                region,
                host,
                orchestrator,
                workload,
                endpoint,
            },
            "HostEndpoint" => ListOptions::HostEndpoint { host, endpoint },
            "HostEndpointStatus" => ListOptions::HostEndpointStatus { host, endpoint },
            "ActiveStatusReport" => ListOptions::ActiveStatusReport { region, host },
            "LastStatusReport" => ListOptions::LastStatusReport { region, host },
            "Profile" => ListOptions::Profile { name },
            "Tier" => ListOptions::Tier { name },
            "NetworkSet" => ListOptions::NetworkSet { name },
            "IPPool" => ListOptions::IpPool { cidr: self.cidr() },
            "GlobalConfig" => ListOptions::GlobalConfig { name },
            "HostConfig" => ListOptions::HostConfig { host, name },
            "HostMetadata" => ListOptions::HostMetadata { host },
            "Wireguard" => ListOptions::Wireguard { host: self.some("NodeName") },
            "OrchRef" => ListOptions::OrchestratorRefs { host: self.text("Hostname") },
            "GlobalBGPConfig" => ListOptions::GlobalBgpConfig { name },
            "NodeBGPConfig" => ListOptions::NodeBgpConfig { node: self.some("Nodename"), name },
            "GlobalBGPPeer" => ListOptions::GlobalBgpPeer { address, port },
            "NodeBGPPeer" => {
                ListOptions::NodeBgpPeer { node: self.some("Nodename"), address, port }
            }
            "Block" => ListOptions::Block { family: self.family() },
            "BlockAffinity" => ListOptions::BlockAffinity {
                owner_type: AffinityType::from_name(&self.text("AffinityType")),
                owner: self.some("Host"),
                family: self.family(),
            },
            "IPAMHandle" => ListOptions::IpamHandle,
            _ => return None,
        })
    }
}

fn endpoint_parts(key: &WorkloadEndpointKey) -> Value {
    json!({
        "Hostname": key.host,
        "OrchestratorID": key.orchestrator,
        "WorkloadID": key.workload,
        "EndpointID": key.endpoint,
    })
}

fn policy_parts(key: &PolicyKey) -> Value {
    json!({"Kind": key.kind, "Namespace": key.namespace, "Name": key.name})
}

/// The kind and the parts of a key, without the empty ones.
pub(super) fn describe(key: &Key) -> (&'static str, Value) {
    let (kind, parts) = parts_of(key);
    (kind, without_empty(&parts))
}

/// Parts without those that say nothing.
pub(super) fn without_empty(parts: &Value) -> Value {
    let parts = parts.as_object().into_iter().flatten();
    let said = parts.filter(|(_, value)| **value != "" && **value != 0);
    Value::Object(said.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}

/// The kind and all parts of a key.
pub(super) fn parts_of(key: &Key) -> (&'static str, Value) {
    match key {
        Key::Resource(key) => (
            "ResourceKey",
            json!({"Kind": key.kind.name(), "Namespace": key.namespace, "Name": key.name}),
        ),
        Key::WorkloadEndpoint(key) => ("WorkloadEndpointKey", endpoint_parts(key)),
        Key::HostEndpoint(key) => {
            ("HostEndpointKey", json!({"Hostname": key.host, "EndpointID": key.endpoint}))
        }
        Key::Policy(key) => ("PolicyKey", policy_parts(key)),
        Key::LegacyPolicy { policy, tier } => {
            let mut parts = policy_parts(policy);
            parts["Tier"] = tier.as_str().into();
            ("LegacyPolicyKey", parts)
        }
        Key::Profile { name } => ("ProfileKey", json!({"Name": name})),
        Key::ProfileRules { name } => ("ProfileRulesKey", json!({"Name": name})),
        Key::ProfileLabels { name } => ("ProfileLabelsKey", json!({"Name": name})),
        Key::Tier { name } => ("TierKey", json!({"Name": name})),
        Key::NetworkSet { name } => ("NetworkSetKey", json!({"Name": name})),
        Key::IpPool { cidr } => ("IPPoolKey", json!({"CIDR": cidr.to_string()})),
        Key::GlobalConfig { name } => ("GlobalConfigKey", json!({"Name": name})),
        Key::HostConfig { host, name } => {
            ("HostConfigKey", json!({"Hostname": host, "Name": name}))
        }
        Key::ReadyFlag => ("ReadyFlagKey", json!({})),
        Key::HostMetadata { host } => ("HostMetadataKey", json!({"Hostname": host})),
        Key::Wireguard { host } => ("WireguardKey", json!({"NodeName": host})),
        Key::OrchestratorRefs { host } => ("OrchRefKey", json!({"Hostname": host})),
        Key::GlobalBgpConfig { name } => ("GlobalBGPConfigKey", json!({"Name": name})),
        Key::NodeBgpConfig { node, name } => {
            ("NodeBGPConfigKey", json!({"Nodename": node, "Name": name}))
        }
        Key::GlobalBgpPeer(peer) => {
            ("GlobalBGPPeerKey", json!({"PeerIP": peer.address.to_string(), "Port": peer.port}))
        }
        Key::NodeBgpPeer { node, peer } => (
            "NodeBGPPeerKey",
            json!({"Nodename": node, "PeerIP": peer.address.to_string(), "Port": peer.port}),
        ),
        Key::BgpNode { host } => ("BGPNodeKey", json!({"Host": host})),
        Key::Block { cidr } => ("BlockKey", json!({"CIDR": cidr.to_string()})),
        Key::BlockAffinity(key) => (
            "BlockAffinityKey",
            json!({
                "AffinityType": key.owner_type.name(),
                "Host": key.owner,
                "CIDR": key.cidr.to_string(),
            }),
        ),
        Key::IpamHandle { id } => ("IPAMHandleKey", json!({"HandleID": id})),
        Key::IpamConfig => ("IPAMConfigKey", json!({})),
        Key::IpamHost { host } => ("IPAMHostKey", json!({"Host": host})),
        Key::HostEndpointStatus(key) => {
            ("HostEndpointStatusKey", json!({"Hostname": key.host, "EndpointID": key.endpoint}))
        }
        Key::WorkloadEndpointStatus { region, endpoint } => {
            let mut parts = endpoint_parts(endpoint);
            parts["RegionString"] = region.as_str().into();
            ("WorkloadEndpointStatusKey", parts)
        }
        Key::ActiveStatusReport { region, host } => {
            ("ActiveStatusReportKey", json!({"Hostname": host, "RegionString": region}))
        }
        Key::LastStatusReport { region, host } => {
            ("LastStatusReportKey", json!({"Hostname": host, "RegionString": region}))
        }
    }
}
