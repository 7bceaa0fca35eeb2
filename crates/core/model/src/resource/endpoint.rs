//! Endpoints that policies protect, and sets of networks that rules match.

use std::net::IpAddr;

use net::{Cidr, Dscp, MacAddress, Protocol};
use serde::Deserialize;

/// An interface of a host.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct HostEndpoint {
    /// The node.
    pub node: String,
    /// The interface; `*` for all of the host; empty to find it by its addresses.
    pub interface_name: String,
    /// Addresses that the interface has.
    #[serde(rename = "expectedIPs")]
    pub expected_ips: Vec<IpAddr>,
    /// Profiles, in order.
    pub profiles: Vec<String>,
    /// Ports with names.
    pub ports: Vec<EndpointPort>,
}

/// A port that rules can name.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct EndpointPort {
    /// The name.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
}

/// An interface of a pod, container or virtual machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkloadEndpoint {
    /// Who runs the workload: `k8s`, `cni`, `openstack`…
    pub orchestrator: String,
    /// The workload, for orchestrators without pods.
    pub workload: String,
    /// The node.
    pub node: String,
    /// The container.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The pod.
    pub pod: String,
    /// The interface inside the workload.
    pub endpoint: String,
    /// The service account.
    pub service_account_name: String,
    /// Its addresses.
    pub ip_networks: Vec<Cidr>,
    /// Addresses translated to its own.
    #[serde(rename = "ipNATs")]
    pub ip_nats: Vec<IpNat>,
    /// Its gateway for IPv4.
    pub ipv4_gateway: Option<IpAddr>,
    /// Its gateway for IPv6.
    pub ipv6_gateway: Option<IpAddr>,
    /// Profiles, in order.
    pub profiles: Vec<String>,
    /// The interface on the host.
    pub interface_name: String,
    /// The MAC address inside the workload.
    pub mac: Option<MacAddress>,
    /// Ports with names.
    pub ports: Vec<WorkloadPort>,
    /// Sources it may use although they are not its own.
    pub allow_spoofed_source_prefixes: Vec<Cidr>,
    /// Limits of its traffic.
    pub qos_controls: Option<QosControls>,
}

/// A port of a workload that rules can name.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPort {
    /// The name.
    #[serde(default)]
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
    /// The port of the host that leads to it; 0 for none.
    #[serde(default)]
    pub host_port: u16,
    /// The address of the host that leads to it; empty for all.
    #[serde(default, rename = "hostIP")]
    pub host_ip: String,
}

/// An address that is translated to one of the workload's own.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct IpNat {
    /// The workload's own address.
    #[serde(rename = "internalIP")]
    pub internal_ip: IpAddr,
    /// The address others use.
    #[serde(rename = "externalIP")]
    pub external_ip: IpAddr,
}

/// Limits of a workload's traffic; 0 is no limit.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it; bits, packets or connections")]
pub struct QosControls {
    pub ingress_bandwidth: i64,
    pub ingress_burst: i64,
    pub ingress_peakrate: i64,
    pub ingress_minburst: i64,
    pub egress_bandwidth: i64,
    pub egress_burst: i64,
    pub egress_peakrate: i64,
    pub egress_minburst: i64,
    pub ingress_packet_rate: i64,
    pub ingress_packet_burst: i64,
    pub egress_packet_rate: i64,
    pub egress_packet_burst: i64,
    pub ingress_max_connections: i64,
    pub egress_max_connections: i64,
    pub dscp: Option<Dscp>,
}

/// Networks that rules match by the labels of the set.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct NetworkSet {
    /// The networks.
    pub nets: Vec<Cidr>,
}
