//! BGP: the cluster as a whole and its peers.

use super::Keep::{Always, Given};
use super::Limit::{AllOf, Format, MaxItems, MaxLength, Maximum, Minimum, OneOf, Pattern};
use super::Shape::{self, AsNumber, Bool, Duration, List, StrictText, Text};
use super::meta::{API_VERSION, KIND, METADATA, spec};
use super::{Field, Object};

/// Levels of log messages, in any letter case.
const SEVERITY: &str = r"^(?i)(Trace|Debug|Info|Warning|Error|Fatal)?$";

/// The kind BGPConfiguration.
#[rustfmt::skip]
pub(super) static BGP_CONFIGURATION: Object = Object {
    name: "BGPConfiguration",
    fields: &[KIND, API_VERSION, METADATA, spec(&BGP_CONFIGURATION_SPEC)],
};

#[rustfmt::skip]
static BGP_CONFIGURATION_SPEC: Object = Object {
    name: "BGPConfigurationSpec",
    fields: &[
        Field::new("logSeverityScreen", "LogSeverityScreen", Text).default(r#""Info""#).limits(&[Pattern(SEVERITY)]).help("The least severe messages of the BGP daemon that are printed"),
        Field::new("nodeToNodeMeshEnabled", "NodeToNodeMeshEnabled", Bool).keep(Given).help("Whether every node peers with every other node"),
        Field::new("asNumber", "ASNumber", AsNumber).keep(Given).limits(&[Format("int32")]).help("The AS number of nodes that set none of their own"),
        Field::new("serviceLoadBalancerIPs", "ServiceLoadBalancerIPs", List(&Shape::Object(&SERVICE_LOAD_BALANCER_IP_BLOCK))).checks("omitempty,dive").help("Ranges of load balancer addresses to announce"),
        Field::new("serviceExternalIPs", "ServiceExternalIPs", List(&Shape::Object(&SERVICE_EXTERNAL_IP_BLOCK))).checks("omitempty,dive").help("Ranges of external service addresses to announce"),
        Field::new("serviceClusterIPs", "ServiceClusterIPs", List(&Shape::Object(&SERVICE_CLUSTER_IP_BLOCK))).checks("omitempty,dive").help("Ranges of cluster service addresses to announce"),
        Field::new("serviceLoadBalancerAggregation", "ServiceLoadBalancerAggregation", Text).keep(Given).default(r#""Enabled""#).limits(&[OneOf(&["Enabled", "Disabled"])]).help("Whether load balancer ranges are announced whole or address by address"),
        Field::new("communities", "Communities", List(&Shape::Object(&COMMUNITY))).limits(&[MaxItems(500)]).checks("omitempty,dive").help("Names for BGP communities, for use in prefixAdvertisements"),
        Field::new("prefixAdvertisements", "PrefixAdvertisements", List(&Shape::Object(&PREFIX_ADVERTISEMENT))).limits(&[MaxItems(500)]).checks("omitempty,dive").help("Communities to attach to announced prefixes"),
        Field::new("listenPort", "ListenPort", Shape::UINT16).limits(&[Minimum(1), Maximum(65535)]).checks("omitempty,gt=0").help("The port on which the BGP daemon listens"),
        Field::new("nodeMeshPassword", "NodeMeshPassword", Shape::Object(&BGP_PASSWORD)).keep(Given).help("The password of the sessions between nodes"),
        Field::new("nodeMeshMaxRestartTime", "NodeMeshMaxRestartTime", Duration).keep(Given).help("How long mesh peers keep routes while a node restarts"),
        Field::new("bindMode", "BindMode", Text).keep(Given).limits(&[OneOf(&["None", "NodeIP"])]).help("Whether the BGP daemon listens on all addresses or on the node's only"),
        Field::new("ignoredInterfaces", "IgnoredInterfaces", List(&Text)).checks("omitempty,dive,ignoredInterface").help("Interfaces whose routes are never announced; * stands for any text"),
        Field::new("localWorkloadPeeringIPV4", "LocalWorkloadPeeringIPV4", Text).checks("omitempty,ipv4").help("The IPv4 address with which local workloads peer"),
        Field::new("localWorkloadPeeringIPV6", "LocalWorkloadPeeringIPV6", Text).checks("omitempty,ipv6").help("The IPv6 address with which local workloads peer"),
        Field::new("programClusterRoutes", "ProgramClusterRoutes", Text).keep(Given).limits(&[OneOf(&["Enabled", "Disabled", "EnabledIPIPOnly", "EnabledNoEncapOnly"])]).help("Which cluster routes the BGP daemon writes instead of Felix"),
        Field::new("ipv4NormalRoutePriority", "IPv4NormalRoutePriority", Shape::INT).keep(Given).limits(&[Minimum(1), Maximum(2147483646)]).checks("omitempty,gte=1,lte=2147483646").help("The metric of IPv4 workload routes in normal operation"),
        Field::new("ipv6NormalRoutePriority", "IPv6NormalRoutePriority", Shape::INT).keep(Given).limits(&[Minimum(1), Maximum(2147483646)]).checks("omitempty,gte=1,lte=2147483646").help("The metric of IPv6 workload routes in normal operation"),
    ],
};

#[rustfmt::skip]
static SERVICE_LOAD_BALANCER_IP_BLOCK: Object = Object {
    name: "ServiceLoadBalancerIPBlock",
    fields: &[
        Field::new("cidr", "CIDR", Text).limits(&[Format("cidr")]).checks("omitempty,net").help("The range to announce"),
    ],
};

#[rustfmt::skip]
static SERVICE_EXTERNAL_IP_BLOCK: Object = Object {
    name: "ServiceExternalIPBlock",
    fields: &[
        Field::new("cidr", "CIDR", Text).limits(&[Format("cidr")]).checks("omitempty,net").help("The range to announce"),
    ],
};

#[rustfmt::skip]
static SERVICE_CLUSTER_IP_BLOCK: Object = Object {
    name: "ServiceClusterIPBlock",
    fields: &[
        Field::new("cidr", "CIDR", Text).limits(&[Format("cidr")]).checks("omitempty,net").help("The range to announce"),
    ],
};

#[rustfmt::skip]
static COMMUNITY: Object = Object {
    name: "Community",
    fields: &[
        Field::new("name", "Name", Text).limits(&[MaxLength(253)]).checks("required,name").help("The name by which advertisements refer to it"),
        Field::new("value", "Value", Text).limits(&[Pattern(r"^(\d+):(\d+)$|^(\d+):(\d+):(\d+)$"), MaxLength(40)]).checks("required").help("The community: aa:nn, or aa:nn:mm for a large one"),
    ],
};

#[rustfmt::skip]
static PREFIX_ADVERTISEMENT: Object = Object {
    name: "PrefixAdvertisement",
    fields: &[
        Field::new("cidr", "CIDR", Text).limits(&[Format("cidr")]).checks("required,net").help("The prefix whose announcements get the communities"),
        Field::new("communities", "Communities", List(&Text)).limits(&[MaxItems(50)]).checks("required").help("Names or values of communities"),
    ],
};

#[rustfmt::skip]
static BGP_PASSWORD: Object = Object {
    name: "BGPPassword",
    fields: &[
        Field::new("secretKeyRef", "SecretKeyRef", Shape::Object(&SECRET_KEY_SELECTOR)).keep(Given).help("The key of the secret that holds the password"),
    ],
};

#[rustfmt::skip]
static SECRET_KEY_SELECTOR: Object = Object {
    name: "SecretKeySelector",
    fields: &[
        Field::new("name", "Name", StrictText).default(r#""""#).help("The name of the secret"),
        Field::new("key", "Key", Text).keep(Always).required().help("The key in the secret"),
        Field::new("optional", "Optional", Bool).keep(Given).help("Whether the secret or key may be missing"),
    ],
};

/// The kind BGPPeer.
#[rustfmt::skip]
pub(super) static BGP_PEER: Object = Object {
    name: "BGPPeer",
    fields: &[KIND, API_VERSION, METADATA, spec(&BGP_PEER_SPEC)],
};

#[rustfmt::skip]
static BGP_PEER_SPEC: Object = Object {
    name: "BGPPeerSpec",
    fields: &[
        Field::new("node", "Node", Text).limits(&[MaxLength(253)]).checks("omitempty,name").help("The one node that peers; neither this nor nodeSelector means every node"),
        Field::new("nodeSelector", "NodeSelector", Text).limits(&[MaxLength(1024)]).checks("omitempty,selector").help("Selects the nodes that peer"),
        Field::new("peerIP", "PeerIP", Text).limits(&[MaxLength(64)]).checks("omitempty,IP:port").help("The peer's address, with a port if it is not 179"),
        Field::new("asNumber", "ASNumber", AsNumber).limits(&[Format("int32")]).help("The peer's AS number"),
        Field::new("localASNumber", "LocalASNumber", AsNumber).keep(Given).limits(&[Format("int32")]).help("The AS number to present to the peer instead of the node's own"),
        Field::new("peerSelector", "PeerSelector", Text).limits(&[MaxLength(1024)]).checks("omitempty,selector").help("Selects the nodes to peer with, instead of peerIP and asNumber"),
        Field::new("keepOriginalNextHop", "KeepOriginalNextHop", Bool).help("Leaves the next hop of forwarded routes alone; see nextHopMode"),
        Field::new("nextHopMode", "NextHopMode", Text).keep(Given).limits(&[OneOf(&["Auto", "Self", "Keep"])]).help("What next hop announced routes carry: Auto, Self or Keep"),
        Field::new("password", "Password", Shape::Object(&BGP_PASSWORD)).keep(Given).help("The password of the session"),
        Field::new("sourceAddress", "SourceAddress", Text).limits(&[OneOf(&["UseNodeIP", "None"])]).help("Whether the session starts from the node's own address or any"),
        Field::new("maxRestartTime", "MaxRestartTime", Duration).keep(Given).help("How long the peer is asked to keep routes while we restart"),
        Field::new("keepaliveTime", "KeepaliveTime", Duration).keep(Given).help("How often to send keepalives"),
        Field::new("numAllowedLocalASNumbers", "NumAllowedLocalASNumbers", Shape::INT32).keep(Given).help("How often our own AS number may occur in a received path"),
        Field::new("ttlSecurity", "TTLSecurity", Shape::UINT8).keep(Given).help("Refuse packets that came through more routers than this"),
        Field::new("reachableBy", "ReachableBy", Text).limits(&[MaxLength(64)]).checks("omitempty,reachableBy").help("The gateway through which the peer is reached"),
        Field::new("filters", "Filters", List(&Text)).checks("omitempty,dive,name").help("The names of the BGPFilters to apply, in order"),
        Field::new("localWorkloadSelector", "LocalWorkloadSelector", Text).limits(&[MaxLength(1024)]).checks("omitempty,selector").help("Selects the local workloads to peer with"),
        Field::new("reversePeering", "ReversePeering", Text).keep(Given).limits(&[AllOf(&[OneOf(&["Auto", "Manual"]), OneOf(&["Auto", "Manual"])])]).help("Whether selected peers get a session back to us by themselves"),
    ],
};
