//! Nodes, the cluster as a whole, and the settings of agents and controllers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use net::{AsNumber, Cidr, Duration, MacAddress};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A host of the cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Node {
    /// Its part in BGP.
    pub bgp: Option<NodeBgp>,
    /// The address of its VXLAN device.
    #[serde(rename = "ipv4VXLANTunnelAddr")]
    pub ipv4_vxlan_tunnel_address: Option<IpAddr>,
    /// The MAC address of its VXLAN device.
    #[serde(rename = "vxlanTunnelMACAddr")]
    pub vxlan_tunnel_mac: Option<MacAddress>,
    /// The address of its VXLAN device, in IPv6.
    #[serde(rename = "ipv6VXLANTunnelAddr")]
    pub ipv6_vxlan_tunnel_address: Option<IpAddr>,
    /// The MAC address of its VXLAN device for IPv6.
    #[serde(rename = "vxlanTunnelMACAddrV6")]
    pub vxlan_tunnel_mac_v6: Option<MacAddress>,
    /// Its names at orchestrators.
    pub orch_refs: Vec<OrchestratorRef>,
    /// Its WireGuard addresses.
    pub wireguard: Option<NodeWireguard>,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
    /// Its interfaces.
    pub interfaces: Vec<NodeInterface>,
}

/// A node's part in BGP.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeBgp {
    /// Its AS number; none for that of the cluster.
    pub as_number: Option<AsNumber>,
    /// Its address and subnet.
    pub ipv4_address: Option<Cidr>,
    /// Its address and subnet, in IPv6.
    pub ipv6_address: Option<Cidr>,
    /// The address of its IPIP device.
    #[serde(rename = "ipv4IPIPTunnelAddr")]
    pub ipv4_ipip_tunnel_address: Option<IpAddr>,
    /// It reflects routes, under this cluster id.
    #[serde(rename = "routeReflectorClusterID")]
    pub route_reflector_cluster_id: Option<IpAddr>,
}

/// A node's name at an orchestrator.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub struct OrchestratorRef {
    pub node_name: String,
    pub orchestrator: String,
}

/// Addresses of a node's WireGuard device.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct NodeWireguard {
    #[serde(rename = "interfaceIPv4Address")]
    pub interface_ipv4_address: Option<IpAddr>,
    #[serde(rename = "interfaceIPv6Address")]
    pub interface_ipv6_address: Option<IpAddr>,
}

/// Who gave a node an address.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum NodeAddressType {
    CalicoNodeIP,
    InternalIP,
    ExternalIP,
}

/// An address of a node.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct NodeAddress {
    /// The address, with its subnet where that is known.
    pub address: Cidr,
    /// Who gave it.
    #[serde(rename = "type")]
    pub kind: Option<NodeAddressType>,
}

/// An interface of a node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct NodeInterface {
    pub name: String,
    pub addresses: Vec<String>,
}

/// A request to report on a node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct CalicoNodeStatus {
    /// The node.
    pub node: String,
    /// What to report.
    pub classes: Vec<StatusClass>,
    /// How often; 0 for not at all.
    pub update_period_seconds: Option<u32>,
}

/// A part of a report.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names say it")]
pub enum StatusClass {
    #[serde(rename = "Agent")]
    Agent,
    Bgp,
    #[serde(rename = "Routes")]
    Routes,
}

/// What is true of the whole cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterInformation {
    /// Tells clusters apart.
    #[serde(rename = "clusterGUID")]
    pub cluster_guid: String,
    /// What it runs on.
    pub cluster_type: String,
    /// The version that runs it.
    pub calico_version: String,
    /// Whether the datastore may be used; none means yes.
    pub datastore_ready: Option<bool>,
    /// The edition.
    pub variant: String,
}

/// Settings of agents. They become parameters by the table in `felix`, so they stay JSON here.
pub type FelixConfiguration = Map<String, Value>;

/// Settings of the controllers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeControllersConfiguration {
    /// How much they log.
    pub log_severity_screen: String,
    /// Whether they report their health.
    pub health_checks: Option<super::Switch>,
    /// How often etcd is compacted; 0 for never.
    pub etcd_v3_compaction_period: Option<Duration>,
    /// The port of metrics; 0 for none.
    pub prometheus_metrics_port: Option<i64>,
    /// The port of profiles.
    pub debug_profile_port: Option<i32>,
    /// Each controller; one that is absent does not run.
    pub controllers: Controllers,
}

/// The controllers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub struct Controllers {
    pub node: Option<NodeController>,
    pub policy: Option<PlainController>,
    pub workload_endpoint: Option<PlainController>,
    pub service_account: Option<PlainController>,
    pub namespace: Option<PlainController>,
    pub load_balancer: Option<LoadBalancerController>,
    pub migration: Option<MigrationController>,
}

/// A controller that only has a period.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct PlainController {
    /// How often it checks everything.
    pub reconciler_period: Option<Duration>,
}

/// The controller of nodes and of leaked addresses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeController {
    /// How often it checks everything.
    pub reconciler_period: Option<Duration>,
    /// Whether labels of Kubernetes nodes are copied.
    pub sync_labels: Option<super::Switch>,
    /// Host endpoints it makes.
    pub host_endpoint: Option<AutoHostEndpoint>,
    /// How long an address must look leaked before it is freed.
    pub leak_grace_period: Option<Duration>,
}

/// Host endpoints made by the controller.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct AutoHostEndpoint {
    /// Whether it makes any.
    pub auto_create: Option<super::Switch>,
    /// Whether it makes the one for all interfaces.
    pub create_default_host_endpoint: Option<super::Switch>,
    /// Further ones.
    pub templates: Vec<HostEndpointTemplate>,
}

/// A pattern for host endpoints.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub struct HostEndpointTemplate {
    pub generate_name: String,
    #[serde(rename = "interfaceCIDRs")]
    pub interface_cidrs: Vec<Cidr>,
    pub interface_pattern: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub node_selector: Option<crate::selector::Selector>,
}

/// Which services get addresses from us.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum AssignIps {
    #[default]
    AllServices,
    RequestedServicesOnly,
}

/// The controller of load balancer addresses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct LoadBalancerController {
    /// Which services get addresses.
    #[serde(rename = "assignIPs")]
    pub assign_ips: AssignIps,
}

/// The controller that moves old data to new forms.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct MigrationController {
    /// Whether old policy names are rewritten.
    pub policy_name_migrator: super::Switch,
}

/// The move of a virtual machine from one node to another.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct LiveMigration {
    /// The workload that moves.
    pub source: Option<Value>,
    /// Where it goes.
    pub target: Option<Value>,
}
