//! Endpoints of hosts and workloads, and sets of networks.

use super::Keep::{Always, Given};
use super::Limit::{MaxLength, Maximum, Minimum};
use super::Shape::{self, Dscp, List, Protocol, Text};
use super::meta::{API_VERSION, KIND, METADATA, spec};
use super::{Field, Object};

/// The kind HostEndpoint.
#[rustfmt::skip]
pub(super) static HOST_ENDPOINT: Object = Object {
    name: "HostEndpoint",
    fields: &[KIND, API_VERSION, METADATA, spec(&HOST_ENDPOINT_SPEC)],
};

#[rustfmt::skip]
static HOST_ENDPOINT_SPEC: Object = Object {
    name: "HostEndpointSpec",
    fields: &[
        Field::new("node", "Node", Text).limits(&[MaxLength(253)]).checks("omitempty,name").help("The node it is on"),
        Field::new("interfaceName", "InterfaceName", Text).limits(&[MaxLength(15)]).checks("omitempty,interface").help("The interface, or * for all of them"),
        Field::new("expectedIPs", "ExpectedIPs", List(&Text)).checks("omitempty,dive,ip").help("The addresses of the host, where they identify the interface"),
        Field::new("profiles", "Profiles", List(&Text)).checks("omitempty,dive,name").help("Profiles that apply after policy"),
        Field::new("ports", "Ports", List(&Shape::Object(&ENDPOINT_PORT))).checks("dive").help("Names for ports, to use in rules"),
    ],
};

#[rustfmt::skip]
static ENDPOINT_PORT: Object = Object {
    name: "EndpointPort",
    fields: &[
        Field::new("name", "Name", Text).keep(Always).required().checks("portName").help("The name"),
        Field::new("protocol", "Protocol", Protocol).keep(Always).required().help("The protocol, by name or number"),
        Field::new("port", "Port", Shape::UINT16).keep(Always).required().limits(&[Minimum(1), Maximum(65535)]).checks("gt=0").help("The port number"),
    ],
};

/// The kind WorkloadEndpoint.
#[rustfmt::skip]
pub(super) static WORKLOAD_ENDPOINT: Object = Object {
    name: "WorkloadEndpoint",
    fields: &[KIND, API_VERSION, METADATA, spec(&WORKLOAD_ENDPOINT_SPEC)],
};

#[rustfmt::skip]
static WORKLOAD_ENDPOINT_SPEC: Object = Object {
    name: "WorkloadEndpointSpec",
    fields: &[
        Field::new("orchestrator", "Orchestrator", Text).checks("omitempty,name").help("What runs the workload, such as k8s"),
        Field::new("workload", "Workload", Text).checks("omitempty,name").help("The name of the workload there"),
        Field::new("node", "Node", Text).checks("omitempty,name").help("The node it is on"),
        Field::new("containerID", "ContainerID", Text).checks("omitempty,containerID").help("The container it belongs to"),
        Field::new("pod", "Pod", Text).checks("omitempty,name").help("The pod it belongs to"),
        Field::new("endpoint", "Endpoint", Text).checks("omitempty,name").help("Its name within the workload"),
        Field::new("serviceAccountName", "ServiceAccountName", Text).checks("omitempty,name").help("The service account the workload runs as"),
        Field::new("ipNetworks", "IPNetworks", List(&Text)).checks("omitempty,dive,net").help("Its addresses"),
        Field::new("ipNATs", "IPNATs", List(&Shape::Object(&IPNAT))).checks("omitempty,dive").help("Its floating addresses"),
        Field::new("ipv4Gateway", "IPv4Gateway", Text).checks("omitempty,ipv4").help("The IPv4 gateway of the workload"),
        Field::new("ipv6Gateway", "IPv6Gateway", Text).checks("omitempty,ipv6").help("The IPv6 gateway of the workload"),
        Field::new("profiles", "Profiles", List(&Text)).checks("omitempty,dive,name").help("Profiles that apply after policy"),
        Field::new("interfaceName", "InterfaceName", Text).checks("interface").help("The interface on the host's side"),
        Field::new("mac", "MAC", Text).checks("omitempty,mac").help("The MAC address of the workload"),
        Field::new("ports", "Ports", List(&Shape::Object(&WORKLOAD_ENDPOINT_PORT))).checks("dive,omitempty").help("Names for ports, to use in rules"),
        Field::new("allowSpoofedSourcePrefixes", "AllowSpoofedSourcePrefixes", List(&Text)).checks("omitempty,dive,cidr").help("Ranges from which it may send besides its own addresses"),
        Field::new("qosControls", "QoSControls", Shape::Object(&QO_S_CONTROLS)).keep(Given).help("Limits on what it may send and receive"),
    ],
};

#[rustfmt::skip]
static IPNAT: Object = Object {
    name: "IPNAT",
    fields: &[
        Field::new("internalIP", "InternalIP", Text).keep(Always).checks("omitempty,ip").help("The address of the workload"),
        Field::new("externalIP", "ExternalIP", Text).keep(Always).checks("omitempty,ip").help("The address outside"),
    ],
};

#[rustfmt::skip]
static WORKLOAD_ENDPOINT_PORT: Object = Object {
    name: "WorkloadEndpointPort",
    fields: &[
        Field::new("name", "Name", Text).keep(Always).checks("omitempty,portName").help("The name"),
        Field::new("protocol", "Protocol", Protocol).keep(Always).help("The protocol, by name or number"),
        Field::new("port", "Port", Shape::UINT16).keep(Always).checks("gt=0").help("The port number"),
        Field::new("hostPort", "HostPort", Shape::UINT16).keep(Always).help("The port of the host that leads to it"),
        Field::new("hostIP", "HostIP", Text).keep(Always).checks("omitempty,net").help("The address of the host that leads to it"),
    ],
};

#[rustfmt::skip]
static QO_S_CONTROLS: Object = Object {
    name: "QoSControls",
    fields: &[
        Field::new("ingressBandwidth", "IngressBandwidth", Shape::INT).help("Bits per second to the workload"),
        Field::new("ingressBurst", "IngressBurst", Shape::INT).help("Bits to the workload that may come at once"),
        Field::new("ingressPeakrate", "IngressPeakrate", Shape::INT).help("Bits per second to the workload during a burst"),
        Field::new("ingressMinburst", "IngressMinburst", Shape::INT).help("The smallest burst at the peak rate, in bytes"),
        Field::new("egressBandwidth", "EgressBandwidth", Shape::INT).help("Bits per second from the workload"),
        Field::new("egressBurst", "EgressBurst", Shape::INT).help("Bits from the workload that may come at once"),
        Field::new("egressPeakrate", "EgressPeakrate", Shape::INT).help("Bits per second from the workload during a burst"),
        Field::new("egressMinburst", "EgressMinburst", Shape::INT).help("The smallest burst at the peak rate, in bytes"),
        Field::new("ingressPacketRate", "IngressPacketRate", Shape::INT).help("Packets per second to the workload"),
        Field::new("ingressPacketBurst", "IngressPacketBurst", Shape::INT).help("Packets to the workload that may come at once"),
        Field::new("egressPacketRate", "EgressPacketRate", Shape::INT).help("Packets per second from the workload"),
        Field::new("egressPacketBurst", "EgressPacketBurst", Shape::INT).help("Packets from the workload that may come at once"),
        Field::new("ingressMaxConnections", "IngressMaxConnections", Shape::INT).help("The most open connections to the workload"),
        Field::new("egressMaxConnections", "EgressMaxConnections", Shape::INT).help("The most open connections from the workload"),
        Field::new("dscp", "DSCP", Dscp).keep(Given).help("The DSCP value on packets of the workload"),
    ],
};

/// The kind LiveMigration.
#[rustfmt::skip]
pub(super) static LIVE_MIGRATION: Object = Object {
    name: "LiveMigration",
    fields: &[KIND, API_VERSION, METADATA, spec(&LIVE_MIGRATION_SPEC)],
};

#[rustfmt::skip]
static LIVE_MIGRATION_SPEC: Object = Object {
    name: "LiveMigrationSpec",
    fields: &[
        Field::new("source", "Source", Shape::Object(&LIVE_MIGRATION_SOURCE)).keep(Given).help("Where the workload comes from"),
        Field::new("target", "Target", Shape::Object(&LIVE_MIGRATION_TARGET)).keep(Given).help("Where it goes to"),
    ],
};

#[rustfmt::skip]
static LIVE_MIGRATION_SOURCE: Object = Object {
    name: "LiveMigrationSource",
    fields: &[
        Field::new("workload", "Workload", Shape::Object(&WORKLOAD_IDENTIFIER)).keep(Given).help("The workload"),
        Field::new("workloadEndpoint", "WorkloadEndpoint", Shape::Object(&WORKLOAD_ENDPOINT_IDENTIFIER)).keep(Given).help("The endpoint"),
    ],
};

#[rustfmt::skip]
static WORKLOAD_IDENTIFIER: Object = Object {
    name: "WorkloadIdentifier",
    fields: &[
        Field::new("hostname", "Hostname", Text).help("Its node"),
        Field::new("orchestratorID", "OrchestratorID", Text).help("What runs it"),
        Field::new("workloadID", "WorkloadID", Text).help("Its name there"),
    ],
};

#[rustfmt::skip]
static WORKLOAD_ENDPOINT_IDENTIFIER: Object = Object {
    name: "WorkloadEndpointIdentifier",
    fields: &[
        Field::new("hostname", "Hostname", Text).help("Its node"),
        Field::new("orchestratorID", "OrchestratorID", Text).help("What runs it"),
        Field::new("workloadID", "WorkloadID", Text).help("The name of its workload there"),
        Field::new("endpointID", "EndpointID", Text).help("Its name"),
    ],
};

#[rustfmt::skip]
static LIVE_MIGRATION_TARGET: Object = Object {
    name: "LiveMigrationTarget",
    fields: &[
        Field::new("selector", "Selector", Text).keep(Given).help("Selects the endpoint"),
        Field::new("workloadEndpoint", "WorkloadEndpoint", Shape::Object(&WORKLOAD_ENDPOINT_IDENTIFIER)).keep(Given).help("The endpoint"),
    ],
};

/// The kind GlobalNetworkSet.
#[rustfmt::skip]
pub(super) static GLOBAL_NETWORK_SET: Object = Object {
    name: "GlobalNetworkSet",
    fields: &[KIND, API_VERSION, METADATA, spec(&GLOBAL_NETWORK_SET_SPEC)],
};

#[rustfmt::skip]
static GLOBAL_NETWORK_SET_SPEC: Object = Object {
    name: "GlobalNetworkSetSpec",
    fields: &[
        Field::new("nets", "Nets", List(&Text)).checks("omitempty,dive,cidr").help("The ranges of the set"),
    ],
};

/// The kind NetworkSet.
#[rustfmt::skip]
pub(super) static NETWORK_SET: Object = Object {
    name: "NetworkSet",
    fields: &[KIND, API_VERSION, METADATA, spec(&NETWORK_SET_SPEC)],
};

#[rustfmt::skip]
static NETWORK_SET_SPEC: Object = Object {
    name: "NetworkSetSpec",
    fields: &[
        Field::new("nets", "Nets", List(&Text)).checks("omitempty,dive,cidr").help("The ranges of the set"),
    ],
};
