//! The shape of every value outside the v3 API: address management, and what the policy engine
//! is fed with.
//!
//! Addresses, networks and MACs are text here; [`super::scalars`] knows which is which.

use crate::schema::Keep::{Always, AlwaysNull, Given};
use crate::schema::Shape::{
    Any, Bool, Dscp, Float, List, Map, Port, Protocol, StrictText, Text, Time,
};
use crate::schema::{Field, OBJECT_META, Object, Shape};

const fn field(name: &'static str, shape: Shape) -> Field {
    Field::new(name, name, shape)
}

const fn object(name: &'static str, fields: &'static [Field]) -> Object {
    Object { name, fields }
}

const TEXTS: Shape = List(&Text);
const LABELS: Shape = Map(&Text);

pub(super) static EMPTY: Object = object("Empty", &[]);

pub(super) static BLOCK: Object = object(
    "AllocationBlock",
    &[
        field("cidr", Text).keep(Always),
        field("affinity", Text).keep(AlwaysNull),
        field("affinity_claim_time", Time).keep(Given),
        field("allocations", List(&Any)).keep(AlwaysNull),
        field("unallocated", List(&Shape::INT)).keep(AlwaysNull),
        field("attributes", List(&Shape::Object(&ATTRIBUTE))).keep(AlwaysNull),
        field("sequenceNumber", Shape::UINT64).keep(Always),
        field("sequenceNumberForAllocation", Map(&Shape::UINT64)).keep(AlwaysNull),
        field("deleted", Bool).keep(Always),
        field("hostAffinity", Text).keep(Given),
    ],
);

static ATTRIBUTE: Object = object(
    "AllocationAttribute",
    &[
        field("handle_id", Text).keep(Given),
        field("secondary", LABELS),
        field("alternateOwnerAttrs", LABELS),
        field("releasedAt", Time).keep(Given),
    ],
);

pub(super) static HANDLE: Object = object(
    "IPAMHandle",
    &[field("block", Map(&Shape::INT)).keep(AlwaysNull), field("deleted", Bool).keep(Always)],
);

pub(super) static AFFINITY: Object = object(
    "BlockAffinity",
    &[field("state", Text).keep(Always), field("deleted", Bool).keep(Always)],
);

pub(super) static IPAM_CONFIG: Object = object(
    "IPAMConfig",
    &[
        field("strict_affinity", Bool),
        field("auto_allocate_blocks", Bool),
        field("maxBlocksPerHost", Shape::INT),
        field("kubeVirtVMAddressPersistence", Text).keep(Given),
        field("ipCooldownSeconds", Shape::INT),
    ],
);

pub(super) static WIREGUARD: Object = object(
    "Wireguard",
    &[
        field("interfaceIPv4Addr", Text).keep(Given),
        field("publicKey", Text),
        field("interfaceIPv6Addr", Text).keep(Given),
        field("publicKeyV6", Text),
    ],
);

pub(super) static BGP_PEER: Object =
    object("BGPPeer", &[field("ip", Text).keep(Always), field("as_num", Text).keep(Always)]);

pub(super) static IP_POOL: Object = object(
    "IPPool",
    &[
        field("cidr", Text).keep(Always),
        field("ipip", Text).keep(Always),
        field("ipip_mode", Text).keep(Always),
        field("vxlan_mode", Text).keep(Always),
        field("masquerade", Bool).keep(Always),
        field("ipam", Bool).keep(Always),
        field("disabled", Bool).keep(Always),
        field("disableBGPExport", Bool).keep(Always),
        field("assignment_mode", Text).keep(Always),
        field("allowed_uses", TEXTS),
    ],
);

pub(super) static NETWORK_SET: Object = object(
    "NetworkSet",
    &[field("nets", TEXTS), field("labels", LABELS).keep(AlwaysNull), field("profile_ids", TEXTS)],
);

pub(super) static TIER: Object =
    object("Tier", &[field("order", Float).keep(Given), field("defaultAction", Text)]);

const RULES: Shape = List(&Shape::Object(&RULE));

pub(super) static POLICY: Object = object(
    "Policy",
    &[
        field("namespace", Text),
        field("tier", Text),
        field("order", Float).keep(Given),
        field("inbound_rules", RULES),
        field("outbound_rules", RULES),
        field("selector", Text).keep(Always),
        field("untracked", Bool),
        field("annotations", LABELS),
        field("pre_dnat", Bool),
        field("apply_on_forward", Bool),
        field("types", TEXTS),
        field("performance_hints", TEXTS),
        field("staged_action", Text).keep(Given),
    ],
);

pub(super) static PROFILE_RULES: Object =
    object("ProfileRules", &[field("inbound_rules", RULES), field("outbound_rules", RULES)]);

pub(super) static PROFILE: Object = object(
    "Profile",
    &[
        field("Rules", Shape::Object(&PROFILE_RULES)).keep(Always),
        field("Tags", TEXTS).keep(AlwaysNull),
        field("Labels", LABELS).keep(AlwaysNull),
    ],
);

static RULE: Object = object(
    "Rule",
    &[
        field("action", Text),
        field("ip_version", Shape::INT).keep(Given),
        field("protocol", Protocol).keep(Given),
        field("!protocol", Protocol).keep(Given),
        field("icmp_type", Shape::INT).keep(Given),
        field("icmp_code", Shape::INT).keep(Given),
        field("!icmp_type", Shape::INT).keep(Given),
        field("!icmp_code", Shape::INT).keep(Given),
        field("src_tag", Text),
        field("src_net", Text).keep(Given),
        field("src_nets", TEXTS),
        field("src_selector", Text),
        field("src_ports", List(&Port)),
        field("src_service", Text),
        field("src_service_ns", Text),
        field("dst_tag", Text),
        field("dst_selector", Text),
        field("dst_net", Text).keep(Given),
        field("dst_nets", TEXTS),
        field("dst_ports", List(&Port)),
        field("dst_service", Text),
        field("dst_service_ns", Text),
        field("!src_tag", Text),
        field("!src_net", Text).keep(Given),
        field("!src_nets", TEXTS),
        field("!src_selector", Text),
        field("!src_ports", List(&Port)),
        field("!dst_tag", Text),
        field("!dst_selector", Text),
        field("!dst_net", Text).keep(Given),
        field("!dst_nets", TEXTS),
        field("!dst_ports", List(&Port)),
        field("orig_src_selector", Text),
        field("orig_src_namespace_selector", Text),
        field("orig_dst_selector", Text),
        field("orig_dst_namespace_selector", Text),
        field("!orig_src_selector", Text),
        field("!orig_dst_selector", Text),
        field("orig_src_service_acct_names", TEXTS),
        field("orig_src_service_acct_selector", Text),
        field("orig_dst_service_acct_names", TEXTS),
        field("orig_dst_service_acct_selector", Text),
        field("http", Shape::Object(&HTTP)).keep(Given),
        field("metadata", Shape::Object(&RULE_METADATA)).keep(Given),
    ],
);

static HTTP: Object = object(
    "HTTPMatch",
    &[field("methods", TEXTS), field("paths", List(&Shape::Object(&HTTP_PATH)))],
);

static HTTP_PATH: Object = object("HTTPPath", &[field("exact", Text), field("prefix", Text)]);

static RULE_METADATA: Object = object("RuleMetadata", &[field("annotations", LABELS)]);

pub(super) static WORKLOAD_ENDPOINT: Object = object(
    "WorkloadEndpoint",
    &[
        field("state", Text).keep(Always),
        field("name", Text).keep(Always),
        field("active_instance_id", Text).keep(Always),
        field("mac", Text).keep(AlwaysNull),
        field("profile_ids", TEXTS).keep(AlwaysNull),
        field("ipv4_nets", TEXTS).keep(AlwaysNull),
        field("ipv6_nets", TEXTS).keep(AlwaysNull),
        field("ipv4_nat", List(&Shape::Object(&NAT))),
        field("ipv6_nat", List(&Shape::Object(&NAT))),
        field("labels", LABELS).keep(AlwaysNull),
        field("ipv4_gateway", Text).keep(Given),
        field("ipv6_gateway", Text).keep(Given),
        field("ports", List(&Shape::Object(&ENDPOINT_PORT))),
        field("generate_name", Text),
        field("allow_spoofed_source_ips", TEXTS),
        field("annotations", LABELS),
        field("qosControls", Shape::Object(&QOS_CONTROLS)).keep(Given),
    ],
);

static NAT: Object =
    object("IPNAT", &[field("int_ip", Text).keep(Always), field("ext_ip", Text).keep(Always)]);

static ENDPOINT_PORT: Object = object(
    "EndpointPort",
    &[
        field("name", Text).keep(Always),
        field("protocol", Protocol).keep(Always),
        field("port", Shape::UINT16).keep(Always),
    ],
);

static QOS_CONTROLS: Object = object(
    "QoSControls",
    &[
        field("ingressBandwidth", Shape::INT),
        field("ingressBurst", Shape::INT),
        field("ingressPeakrate", Shape::INT),
        field("ingressMinburst", Shape::INT),
        field("egressBandwidth", Shape::INT),
        field("egressBurst", Shape::INT),
        field("egressPeakrate", Shape::INT),
        field("egressMinburst", Shape::INT),
        field("ingressPacketRate", Shape::INT),
        field("ingressPacketBurst", Shape::INT),
        field("egressPacketRate", Shape::INT),
        field("egressPacketBurst", Shape::INT),
        field("ingressMaxConnections", Shape::INT),
        field("egressMaxConnections", Shape::INT),
        field("dscp", Dscp).keep(Given),
    ],
);

pub(super) static HOST_ENDPOINT: Object = object(
    "HostEndpoint",
    &[
        field("name", Text),
        field("expected_ipv4_addrs", TEXTS),
        field("expected_ipv6_addrs", TEXTS),
        field("labels", LABELS).keep(AlwaysNull),
        field("profile_ids", TEXTS),
        field("ports", List(&Shape::Object(&ENDPOINT_PORT))),
        field("qosControls", Shape::Object(&QOS_CONTROLS)).keep(Given),
    ],
);

pub(super) static ENDPOINT_STATUS: Object =
    object("EndpointStatus", &[field("status", Text).keep(Always)]);

pub(super) static STATUS_REPORT: Object = object(
    "StatusReport",
    &[
        field("time", Text).keep(Always),
        field("uptime", Float).keep(Always),
        field("first_update", Bool).keep(Always),
    ],
);

/// A value that is no object is read as the only field of one.
pub(super) static LABELS_ONLY: Object =
    object("Labels", &[field(super::value::ONLY, LABELS).keep(AlwaysNull)]);

/// A list of what orchestrators call a node.
pub(super) static ORCHESTRATOR_REFS: Object = object(
    "OrchRefs",
    &[field(super::value::ONLY, List(&Shape::Object(&ORCHESTRATOR_REF))).keep(AlwaysNull)],
);

static ORCHESTRATOR_REF: Object =
    object("OrchRef", &[field("orchestrator", Text), field("nodeName", Text)]);

const KIND: Field = field("kind", StrictText);
const API_VERSION: Field = field("apiVersion", StrictText);
const METADATA: Field = field("metadata", Shape::Object(&OBJECT_META)).keep(Always);

pub(super) static IPAM_CONFIG_RESOURCE: Object = object(
    "IPAMConfig",
    &[KIND, API_VERSION, METADATA, field("spec", Shape::Object(&IPAM_CONFIG_SPEC)).keep(Always)],
);

static IPAM_CONFIG_SPEC: Object = object(
    "IPAMConfigSpec",
    &[
        field("strictAffinity", Bool).keep(Always),
        field("autoAllocateBlocks", Bool).keep(Always),
        field("maxBlocksPerHost", Shape::INT),
        field("kubeVirtVMAddressPersistence", Text).keep(Given),
    ],
);

/// The block affinity of the Kubernetes store, whose `deleted` is text.
pub(super) static BLOCK_AFFINITY_RESOURCE: Object = object(
    "BlockAffinity",
    &[KIND, API_VERSION, METADATA, field("spec", Shape::Object(&BLOCK_AFFINITY_SPEC)).keep(Always)],
);

static BLOCK_AFFINITY_SPEC: Object = object(
    "BlockAffinitySpec",
    &[
        field("state", Text).keep(Always),
        field("node", Text).keep(Always),
        field("type", Text),
        field("cidr", Text).keep(Always),
        field("deleted", Text).keep(Always),
    ],
);

/// A Kubernetes service, of which only the ends that Calico looks at have a shape.
pub(super) static SERVICE: Object = object(
    "Service",
    &[
        KIND,
        API_VERSION,
        METADATA,
        field("spec", Shape::Object(&SERVICE_SPEC)).keep(Always),
        field("status", Shape::Object(&SERVICE_STATUS)).keep(Always),
    ],
);

static SERVICE_SPEC: Object = object(
    "ServiceSpec",
    &[
        field("ports", List(&Any)),
        field("selector", LABELS),
        field("clusterIP", Text),
        field("clusterIPs", TEXTS),
        field("type", Text),
        field("externalIPs", TEXTS),
        field("sessionAffinity", Text),
        field("loadBalancerIP", Text),
        field("loadBalancerSourceRanges", TEXTS),
        field("externalName", Text),
        field("externalTrafficPolicy", Text),
        field("healthCheckNodePort", Shape::INT32),
        field("publishNotReadyAddresses", Bool),
        field("sessionAffinityConfig", Any).keep(Given),
        field("ipFamilies", TEXTS),
        field("ipFamilyPolicy", Text).keep(Given),
        field("allocateLoadBalancerNodePorts", Bool).keep(Given),
        field("loadBalancerClass", Text).keep(Given),
        field("internalTrafficPolicy", Text).keep(Given),
        field("trafficDistribution", Text).keep(Given),
    ],
);

static SERVICE_STATUS: Object = object(
    "ServiceStatus",
    &[
        field("loadBalancer", Shape::Object(&LOAD_BALANCER_STATUS)).keep(Always),
        field("conditions", List(&Any)),
    ],
);

static LOAD_BALANCER_STATUS: Object = object("LoadBalancerStatus", &[field("ingress", List(&Any))]);

pub(super) static ENDPOINT_SLICE: Object = object(
    "EndpointSlice",
    &[
        KIND,
        API_VERSION,
        METADATA,
        field("addressType", Text).keep(Always),
        field("endpoints", List(&Any)).keep(AlwaysNull),
        field("ports", List(&Any)).keep(AlwaysNull),
    ],
);
