//! BGP: sessions, the settings of a cluster, and filters.

use std::net::IpAddr;

use net::{AsNumber, Cidr, Duration};
use serde::Deserialize;

use crate::selector::Selector;

/// Where a password is kept.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Password {
    /// The key of a Secret.
    pub secret_key_ref: Option<SecretKey>,
}

/// The key of a Kubernetes Secret.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct SecretKey {
    /// The Secret.
    pub name: String,
    /// The key in it.
    pub key: String,
    /// Whether it may be missing.
    pub optional: bool,
}

/// Which next hop is announced.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum NextHopMode {
    #[default]
    Auto,
    #[serde(rename = "Self")]
    Own,
    Keep,
}

/// Which source address a session uses.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub enum SourceAddress {
    /// The address of the node.
    #[default]
    UseNodeIP,
    /// Whatever the kernel picks.
    None,
}

/// Whether selected peers get the session towards us without asking.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ReversePeering {
    #[default]
    Auto,
    Manual,
}

/// One or more sessions.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct BgpPeer {
    /// Only this node has the session.
    pub node: String,
    /// Only these nodes have it.
    pub node_selector: Option<Selector>,
    /// The peer's address, with a port if need be.
    #[serde(rename = "peerIP")]
    pub peer_ip: String,
    /// The peer's AS number.
    pub as_number: Option<AsNumber>,
    /// Our AS number in this session.
    #[serde(rename = "localASNumber")]
    pub local_as_number: Option<AsNumber>,
    /// Nodes of the cluster that are the peers.
    pub peer_selector: Option<Selector>,
    /// Workloads of the node that are the peers.
    pub local_workload_selector: Option<Selector>,
    /// The older form of `nextHopMode: Keep`.
    pub keep_original_next_hop: bool,
    /// Which next hop is announced.
    pub next_hop_mode: Option<NextHopMode>,
    /// The password of the session.
    pub password: Option<Password>,
    /// Which source address is used.
    pub source_address: Option<SourceAddress>,
    /// How long a restarting peer's routes are kept.
    pub max_restart_time: Option<Duration>,
    /// How often keepalives are sent.
    pub keepalive_time: Option<Duration>,
    /// How often our own AS may stand in a path.
    #[serde(rename = "numAllowedLocalASNumbers")]
    pub num_allowed_local_as_numbers: Option<u32>,
    /// How many hops the peer may be away (GTSM).
    pub ttl_security: Option<u8>,
    /// The gateway through which the peer is reached.
    pub reachable_by: String,
    /// Filters, in order.
    pub filters: Vec<String>,
    /// Whether selected peers get the session towards us.
    pub reverse_peering: ReversePeering,
}

/// Addresses of services to announce.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct ServiceBlock {
    /// The addresses.
    pub cidr: Option<Cidr>,
}

/// A community by name.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct NamedCommunity {
    /// The name.
    pub name: String,
    /// Its value: `aa:nn` or `aa:nn:mm`.
    pub value: String,
}

/// Communities for routes within a prefix.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct PrefixAdvertisement {
    /// The prefix.
    pub cidr: Option<Cidr>,
    /// Names or values of communities.
    pub communities: Vec<String>,
}

/// Which addresses the speaker listens on.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum BindMode {
    #[default]
    None,
    NodeIP,
}

/// Settings of the cluster, or of one node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct BgpConfiguration {
    /// How much the speaker logs.
    pub log_severity_screen: String,
    /// Whether every node peers with every other.
    pub node_to_node_mesh_enabled: Option<bool>,
    /// The AS number of nodes that name none.
    pub as_number: Option<AsNumber>,
    /// Load balancer addresses to announce.
    #[serde(rename = "serviceLoadBalancerIPs")]
    pub service_load_balancer_ips: Vec<ServiceBlock>,
    /// External addresses to announce.
    #[serde(rename = "serviceExternalIPs")]
    pub service_external_ips: Vec<ServiceBlock>,
    /// Cluster addresses to announce.
    #[serde(rename = "serviceClusterIPs")]
    pub service_cluster_ips: Vec<ServiceBlock>,
    /// Whether load balancer ranges are announced whole.
    pub service_load_balancer_aggregation: Option<super::Switch>,
    /// Communities by name.
    pub communities: Vec<NamedCommunity>,
    /// Communities by prefix.
    pub prefix_advertisements: Vec<PrefixAdvertisement>,
    /// The port of the speaker.
    pub listen_port: Option<u16>,
    /// The password of the mesh.
    pub node_mesh_password: Option<Password>,
    /// How long a restarting node's routes are kept.
    pub node_mesh_max_restart_time: Option<Duration>,
    /// Which addresses the speaker listens on.
    pub bind_mode: Option<BindMode>,
    /// Interfaces whose routes are not announced.
    pub ignored_interfaces: Vec<String>,
    /// The address that workloads peer with.
    #[serde(rename = "localWorkloadPeeringIPV4")]
    pub local_workload_peering_ipv4: Option<IpAddr>,
    /// The address that workloads peer with, in IPv6.
    #[serde(rename = "localWorkloadPeeringIPV6")]
    pub local_workload_peering_ipv6: Option<IpAddr>,
    /// Which cluster routes the speaker programs.
    pub program_cluster_routes: Option<ProgramClusterRoutes>,
    /// The metric of ordinary routes.
    pub ipv4_normal_route_priority: Option<u32>,
    /// The metric of ordinary routes, in IPv6.
    pub ipv6_normal_route_priority: Option<u32>,
}

/// Which cluster routes the speaker programs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ProgramClusterRoutes {
    Enabled,
    Disabled,
    EnabledIPIPOnly,
    EnabledNoEncapOnly,
}

/// What happens to a route.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FilterAction {
    Accept,
    Reject,
}

/// How a route's prefix relates to a rule's.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum MatchOperator {
    Equal,
    NotEqual,
    In,
    NotIn,
}

/// Whether the peer is in our AS.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum PeerType {
    #[serde(rename = "eBGP")]
    Ebgp,
    #[serde(rename = "iBGP")]
    Ibgp,
}

/// Where a route was learned.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name says it")]
pub enum MatchSource {
    RemotePeers,
}

/// Rules about routes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct BgpFilter {
    /// For routes we announce.
    pub export_v4: Vec<FilterRule>,
    /// For routes we learn.
    pub import_v4: Vec<FilterRule>,
    /// For routes we announce, in IPv6.
    pub export_v6: Vec<FilterRule>,
    /// For routes we learn, in IPv6.
    pub import_v6: Vec<FilterRule>,
}

/// One rule about routes. Every condition that is given must hold.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FilterRule {
    /// A prefix to compare with.
    pub cidr: Option<Cidr>,
    /// How to compare.
    pub match_operator: Option<MatchOperator>,
    /// Bounds of the prefix length.
    pub prefix_length: Option<PrefixLength>,
    /// Where the route was learned.
    pub source: Option<MatchSource>,
    /// The interface it leaves by; `*` stands for any characters.
    pub interface: Option<String>,
    /// Whether the peer is in our AS.
    pub peer_type: Option<PeerType>,
    /// Communities it has.
    pub communities: Option<CommunityMatch>,
    /// How its path begins.
    #[serde(default, rename = "asPathPrefix")]
    pub as_path_prefix: Vec<AsNumber>,
    /// Its metric.
    pub priority: Option<u32>,
    /// What happens to it.
    pub action: FilterAction,
    /// What is changed of it.
    #[serde(default)]
    pub operations: Vec<FilterOperation>,
}

/// Bounds of a prefix length.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub struct PrefixLength {
    /// At least.
    pub min: Option<u8>,
    /// At most.
    pub max: Option<u8>,
}

/// Communities that a route has.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct CommunityMatch {
    /// The values.
    pub values: Vec<String>,
}

/// A change of a route.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub enum FilterOperation {
    /// Gives it a community.
    #[serde(rename = "addCommunity")]
    AddCommunity {
        /// The community.
        value: String,
    },
    /// Puts AS numbers before its path.
    #[serde(rename = "prependASPath")]
    PrependAsPath {
        /// The numbers.
        prefix: Vec<AsNumber>,
    },
    /// Sets its metric.
    #[serde(rename = "setPriority")]
    SetPriority {
        /// The metric.
        value: u32,
    },
}
