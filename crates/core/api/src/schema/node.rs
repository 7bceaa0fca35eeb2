//! Nodes, their reported status, and the cluster.

use super::Keep::{Always, Given};
use super::Limit::{Each, Format, OneOf};
use super::Shape::{self, AsNumber, Bool, List, Text, Time};
use super::meta::{API_VERSION, KIND, METADATA, spec, status};
use super::{Field, Object};

/// The kind Node.
#[rustfmt::skip]
pub(super) static NODE: Object = Object {
    name: "Node",
    fields: &[KIND, API_VERSION, METADATA, spec(&NODE_SPEC), status(&NODE_STATUS, Always)],
};

#[rustfmt::skip]
static NODE_SPEC: Object = Object {
    name: "NodeSpec",
    fields: &[
        Field::new("bgp", "BGP", Shape::Object(&NODE_BGP_SPEC)).keep(Given).help("How the node takes part in BGP; not at all if not set"),
        Field::new("ipv4VXLANTunnelAddr", "IPv4VXLANTunnelAddr", Text).checks("omitempty,ipv4").help("The IPv4 address of the VXLAN device"),
        Field::new("vxlanTunnelMACAddr", "VXLANTunnelMACAddr", Text).checks("omitempty,mac").help("The MAC address of the IPv4 VXLAN device"),
        Field::new("ipv6VXLANTunnelAddr", "IPv6VXLANTunnelAddr", Text).checks("omitempty,ipv6").help("The IPv6 address of the VXLAN device"),
        Field::new("vxlanTunnelMACAddrV6", "VXLANTunnelMACAddrV6", Text).checks("omitempty,mac").help("The MAC address of the IPv6 VXLAN device"),
        Field::new("orchRefs", "OrchRefs", List(&Shape::Object(&ORCH_REF))).help("The node's names elsewhere"),
        Field::new("wireguard", "Wireguard", Shape::Object(&NODE_WIREGUARD_SPEC)).keep(Given).help("The addresses of the WireGuard devices"),
        Field::new("addresses", "Addresses", List(&Shape::Object(&NODE_ADDRESS))).help("The node's addresses"),
        Field::new("interfaces", "Interfaces", List(&Shape::Object(&NODE_INTERFACE))).help("The node's interfaces"),
    ],
};

#[rustfmt::skip]
static NODE_BGP_SPEC: Object = Object {
    name: "NodeBGPSpec",
    fields: &[
        Field::new("asNumber", "ASNumber", AsNumber).keep(Given).help("Its AS number; the one of the BGPConfiguration if not set"),
        Field::new("ipv4Address", "IPv4Address", Text).checks("omitempty,cidrv4").help("Its IPv4 address, with the length of its subnet"),
        Field::new("ipv6Address", "IPv6Address", Text).checks("omitempty,cidrv6").help("Its IPv6 address, with the length of its subnet"),
        Field::new("ipv4IPIPTunnelAddr", "IPv4IPIPTunnelAddr", Text).checks("omitempty,ipv4").help("The address of its IPIP device"),
        Field::new("routeReflectorClusterID", "RouteReflectorClusterID", Text).checks("omitempty,ipv4").help("Makes it a route reflector of this cluster ID"),
    ],
};

#[rustfmt::skip]
static ORCH_REF: Object = Object {
    name: "OrchRef",
    fields: &[
        Field::new("nodeName", "NodeName", Text).help("Its name there"),
        Field::new("orchestrator", "Orchestrator", Text).keep(Always).help("Where that is, such as k8s"),
    ],
};

#[rustfmt::skip]
static NODE_WIREGUARD_SPEC: Object = Object {
    name: "NodeWireguardSpec",
    fields: &[
        Field::new("interfaceIPv4Address", "InterfaceIPv4Address", Text).checks("omitempty,ipv4").help("The address of the IPv4 device"),
        Field::new("interfaceIPv6Address", "InterfaceIPv6Address", Text).checks("omitempty,ipv6").help("The address of the IPv6 device"),
    ],
};

#[rustfmt::skip]
static NODE_ADDRESS: Object = Object {
    name: "NodeAddress",
    fields: &[
        Field::new("address", "Address", Text).keep(Always).checks("net").help("The address, with or without a length"),
        Field::new("type", "Type", Text).checks("omitempty,ipType").help("InternalIP or ExternalIP"),
    ],
};

#[rustfmt::skip]
static NODE_INTERFACE: Object = Object {
    name: "NodeInterface",
    fields: &[
        Field::new("name", "Name", Text).checks("omitempty,name").help("The name"),
        Field::new("addresses", "Addresses", List(&Text)).help("Its addresses"),
    ],
};

#[rustfmt::skip]
static NODE_STATUS: Object = Object {
    name: "NodeStatus",
    fields: &[
        Field::new("wireguardPublicKey", "WireguardPublicKey", Text).checks("omitempty,wireguardPublicKey").help("The public key of the IPv4 WireGuard device"),
        Field::new("wireguardPublicKeyV6", "WireguardPublicKeyV6", Text).checks("omitempty,wireguardPublicKey").help("The public key of the IPv6 WireGuard device"),
        Field::new("podCIDRs", "PodCIDRs", List(&Text)).help("The ranges that Kubernetes gave to the node's pods"),
    ],
};

/// The kind CalicoNodeStatus.
#[rustfmt::skip]
pub(super) static CALICO_NODE_STATUS: Object = Object {
    name: "CalicoNodeStatus",
    fields: &[KIND, API_VERSION, METADATA, spec(&CALICO_NODE_STATUS_SPEC), status(&CALICO_NODE_STATUS_STATUS, Always)],
};

#[rustfmt::skip]
static CALICO_NODE_STATUS_SPEC: Object = Object {
    name: "CalicoNodeStatusSpec",
    fields: &[
        Field::new("node", "Node", Text).checks("required,name").help("The node to report about"),
        Field::new("classes", "Classes", List(&Text)).limits(&[Each(&[OneOf(&["Agent", "BGP", "Routes"])])]).checks("required,unique").help("What to report: Agent, BGP, Routes"),
        Field::new("updatePeriodSeconds", "UpdatePeriodSeconds", Shape::UINT32).keep(Given).limits(&[Format("int32")]).checks("required,gte=0,lte=86400").help("How often to report, in seconds; 0 means once"),
    ],
};

#[rustfmt::skip]
static CALICO_NODE_STATUS_STATUS: Object = Object {
    name: "CalicoNodeStatusStatus",
    fields: &[
        Field::new("lastUpdated", "LastUpdated", Time).keep(Always).help("When the report was written"),
        Field::new("agent", "Agent", Shape::Object(&CALICO_NODE_AGENT_STATUS)).keep(Always).help("The state of the BGP daemons"),
        Field::new("bgp", "BGP", Shape::Object(&CALICO_NODE_BGP_STATUS)).keep(Always).help("The BGP sessions"),
        Field::new("routes", "Routes", Shape::Object(&CALICO_NODE_BGP_ROUTE_STATUS)).keep(Always).help("The routes"),
    ],
};

#[rustfmt::skip]
static CALICO_NODE_AGENT_STATUS: Object = Object {
    name: "CalicoNodeAgentStatus",
    fields: &[
        Field::new("birdV4", "BIRDV4", Shape::Object(&BGP_DAEMON_STATUS)).keep(Always).help("The daemon for IPv4"),
        Field::new("birdV6", "BIRDV6", Shape::Object(&BGP_DAEMON_STATUS)).keep(Always).help("The daemon for IPv6"),
    ],
};

#[rustfmt::skip]
static BGP_DAEMON_STATUS: Object = Object {
    name: "BGPDaemonStatus",
    fields: &[
        Field::new("state", "State", Text).limits(&[OneOf(&["Ready", "NotReady"])]).help("Ready or not"),
        Field::new("version", "Version", Text).help("Its version"),
        Field::new("routerID", "RouterID", Text).help("Its router ID"),
        Field::new("lastBootTime", "LastBootTime", Text).help("When it started"),
        Field::new("lastReconfigurationTime", "LastReconfigurationTime", Text).help("When it last read its configuration"),
    ],
};

#[rustfmt::skip]
static CALICO_NODE_BGP_STATUS: Object = Object {
    name: "CalicoNodeBGPStatus",
    fields: &[
        Field::new("numberEstablishedV4", "NumberEstablishedV4", Shape::INT).keep(Always).required().help("IPv4 sessions that are up"),
        Field::new("numberNotEstablishedV4", "NumberNotEstablishedV4", Shape::INT).keep(Always).required().help("IPv4 sessions that are down"),
        Field::new("numberEstablishedV6", "NumberEstablishedV6", Shape::INT).keep(Always).required().help("IPv6 sessions that are up"),
        Field::new("numberNotEstablishedV6", "NumberNotEstablishedV6", Shape::INT).keep(Always).required().help("IPv6 sessions that are down"),
        Field::new("peersV4", "PeersV4", List(&Shape::Object(&CALICO_NODE_PEER))).help("The IPv4 sessions"),
        Field::new("peersV6", "PeersV6", List(&Shape::Object(&CALICO_NODE_PEER))).help("The IPv6 sessions"),
    ],
};

#[rustfmt::skip]
static CALICO_NODE_PEER: Object = Object {
    name: "CalicoNodePeer",
    fields: &[
        Field::new("peerIP", "PeerIP", Text).checks("omitempty,ip").help("The address of the peer"),
        Field::new("type", "Type", Text).limits(&[OneOf(&["NodeMesh", "NodePeer", "GlobalPeer"])]).help("Where the peer was configured"),
        Field::new("state", "State", Text).limits(&[OneOf(&["Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established", "Close"])]).help("The state of the session"),
        Field::new("since", "Since", Text).help("Since when it is in that state"),
    ],
};

#[rustfmt::skip]
static CALICO_NODE_BGP_ROUTE_STATUS: Object = Object {
    name: "CalicoNodeBGPRouteStatus",
    fields: &[
        Field::new("routesV4", "RoutesV4", List(&Shape::Object(&CALICO_NODE_ROUTE))).help("The IPv4 routes"),
        Field::new("routesV6", "RoutesV6", List(&Shape::Object(&CALICO_NODE_ROUTE))).help("The IPv6 routes"),
    ],
};

#[rustfmt::skip]
static CALICO_NODE_ROUTE: Object = Object {
    name: "CalicoNodeRoute",
    fields: &[
        Field::new("type", "Type", Text).limits(&[OneOf(&["FIB", "RIB"])]).help("Whether the kernel uses the route"),
        Field::new("destination", "Destination", Text).help("The prefix"),
        Field::new("gateway", "Gateway", Text).help("The next hop"),
        Field::new("interface", "Interface", Text).help("The outgoing interface"),
        Field::new("learnedFrom", "LearnedFrom", Shape::Object(&CALICO_NODE_ROUTE_LEARNED_FROM)).keep(Always).help("Where it was learned"),
    ],
};

#[rustfmt::skip]
static CALICO_NODE_ROUTE_LEARNED_FROM: Object = Object {
    name: "CalicoNodeRouteLearnedFrom",
    fields: &[
        Field::new("sourceType", "SourceType", Text).limits(&[OneOf(&["Kernel", "Static", "Direct", "NodeMesh", "BGPPeer"])]).help("The sort of source"),
        Field::new("peerIP", "PeerIP", Text).checks("omitempty,ip").help("The peer, if it was one"),
    ],
};

/// The kind ClusterInformation.
#[rustfmt::skip]
pub(super) static CLUSTER_INFORMATION: Object = Object {
    name: "ClusterInformation",
    fields: &[KIND, API_VERSION, METADATA, spec(&CLUSTER_INFORMATION_SPEC)],
};

#[rustfmt::skip]
static CLUSTER_INFORMATION_SPEC: Object = Object {
    name: "ClusterInformationSpec",
    fields: &[
        Field::new("clusterGUID", "ClusterGUID", Text).help("An identifier made when the cluster was set up"),
        Field::new("clusterType", "ClusterType", Text).help("Words for what runs on the cluster, with commas between"),
        Field::new("calicoVersion", "CalicoVersion", Text).help("The newest version that has written to the datastore"),
        Field::new("datastoreReady", "DatastoreReady", Bool).keep(Given).help("Whether the datastore may be used; false stops every component"),
        Field::new("variant", "Variant", Text).help("Which edition is installed"),
    ],
};
