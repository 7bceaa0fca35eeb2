//! Address pools and how addresses are given out.

use super::Keep::{Always, Given};
use super::Limit::{Each, Format, MaxItems, MaxLength, Maximum, Minimum, OneOf};
use super::Shape::{self, Bool, List, Text};
use super::meta::{API_VERSION, CONDITION, KIND, METADATA, spec, status};
use super::{Field, Object};

/// The kind IPPool.
#[rustfmt::skip]
pub(super) static IP_POOL: Object = Object {
    name: "IPPool",
    fields: &[KIND, API_VERSION, METADATA, spec(&IP_POOL_SPEC), status(&IP_POOL_STATUS, Given)],
};

#[rustfmt::skip]
static IP_POOL_SPEC: Object = Object {
    name: "IPPoolSpec",
    fields: &[
        Field::new("cidr", "CIDR", Text).keep(Always).required().limits(&[MaxLength(48), Format("cidr")]).checks("net").help("The range of addresses"),
        Field::new("vxlanMode", "VXLANMode", Text).limits(&[OneOf(&["Never", "Always", "CrossSubnet"])]).help("When packets between nodes go through VXLAN; stored as Never if not given"),
        Field::new("ipipMode", "IPIPMode", Text).limits(&[OneOf(&["Never", "Always", "CrossSubnet"])]).help("When packets between nodes go through IPIP; stored as Never if not given"),
        Field::new("natOutgoing", "NATOutgoing", Bool).help("Whether packets that leave the pools get the node's address"),
        Field::new("disabled", "Disabled", Bool).help("Whether no more addresses are given out"),
        Field::new("disableBGPExport", "DisableBGPExport", Bool).help("Whether its routes are kept from BGP peers"),
        Field::new("blockSize", "BlockSize", Shape::INT).limits(&[Minimum(0), Maximum(128)]).help("Prefix length of the nodes' blocks: 20-32, stored as 26; IPv6 116-128, stored as 122"),
        Field::new("nodeSelector", "NodeSelector", Text).default(r#""all()""#).limits(&[MaxLength(1024)]).checks("omitempty,selector").help("Selects the nodes that may use it"),
        Field::new("namespaceSelector", "NamespaceSelector", Text).limits(&[MaxLength(1024)]).checks("omitempty,selector").help("Selects the namespaces whose pods may use it"),
        Field::new("allowedUses", "AllowedUses", List(&Text)).limits(&[MaxItems(10), Each(&[OneOf(&["Workload", "Tunnel", "LoadBalancer"])])]).help("What its addresses may be used for"),
        Field::new("assignmentMode", "AssignmentMode", Text).keep(Given).default(r#""Automatic""#).limits(&[OneOf(&["Automatic", "Manual"])]).help("Whether addresses are given out unasked"),
    ],
};

#[rustfmt::skip]
static IP_POOL_STATUS: Object = Object {
    name: "IPPoolStatus",
    fields: &[
        Field::new("conditions", "Conditions", List(&Shape::Object(&CONDITION))).help("What is known about the pool"),
    ],
};

/// The kind IPReservation.
#[rustfmt::skip]
pub(super) static IP_RESERVATION: Object = Object {
    name: "IPReservation",
    fields: &[KIND, API_VERSION, METADATA, spec(&IP_RESERVATION_SPEC)],
};

#[rustfmt::skip]
static IP_RESERVATION_SPEC: Object = Object {
    name: "IPReservationSpec",
    fields: &[
        Field::new("reservedCIDRs", "ReservedCIDRs", List(&Text)).limits(&[Each(&[Format("cidr")])]).checks("cidrs,omitempty").help("Ranges from which no address is ever given out"),
    ],
};

/// The kind IPAMConfiguration.
#[rustfmt::skip]
pub(super) static IPAM_CONFIGURATION: Object = Object {
    name: "IPAMConfiguration",
    fields: &[KIND, API_VERSION, METADATA, spec(&IPAM_CONFIGURATION_SPEC)],
};

#[rustfmt::skip]
static IPAM_CONFIGURATION_SPEC: Object = Object {
    name: "IPAMConfigurationSpec",
    fields: &[
        Field::new("strictAffinity", "StrictAffinity", Bool).keep(Always).required().default("false").help("Whether nodes may only use blocks of their own"),
        Field::new("maxBlocksPerHost", "MaxBlocksPerHost", Shape::INT32).default("0").limits(&[Minimum(0), Maximum(1000000)]).help("The most blocks a node may have; 0 for no limit"),
        Field::new("autoAllocateBlocks", "AutoAllocateBlocks", Bool).keep(Always).required().default("true").help("Whether nodes claim blocks by themselves"),
        Field::new("kubeVirtVMAddressPersistence", "KubeVirtVMAddressPersistence", Text).keep(Given).limits(&[OneOf(&["Enabled", "Disabled"])]).help("Whether virtual machines keep their address when they move"),
        Field::new("ipCooldownSeconds", "IPCooldownSeconds", Shape::INT32).limits(&[Minimum(0), Maximum(1200)]).help("How long a released address rests before it is used again"),
    ],
};

/// The kind BlockAffinity.
#[rustfmt::skip]
pub(super) static BLOCK_AFFINITY: Object = Object {
    name: "BlockAffinity",
    fields: &[KIND, API_VERSION, METADATA, spec(&BLOCK_AFFINITY_SPEC)],
};

#[rustfmt::skip]
static BLOCK_AFFINITY_SPEC: Object = Object {
    name: "BlockAffinitySpec",
    fields: &[
        Field::new("state", "State", Text).keep(Always).required().limits(&[OneOf(&["", "confirmed", "pending", "pendingDeletion"])]).help("How far the claim of the block has come"),
        Field::new("node", "Node", Text).keep(Always).required().help("The node the block belongs to"),
        Field::new("type", "Type", Text).help("Whether the owner is a host or virtual"),
        Field::new("cidr", "CIDR", Text).keep(Always).required().limits(&[Format("cidr")]).help("The block"),
        Field::new("deleted", "Deleted", Bool).keep(Always).required().default("false").help("Whether the claim is being given up"),
    ],
};

/// A block affinity as older datastores hold it: there `deleted` is text.
#[rustfmt::skip]
pub static STORED_BLOCK_AFFINITY: Object = Object {
    name: "BlockAffinity",
    fields: &[KIND, API_VERSION, METADATA, spec(&STORED_BLOCK_AFFINITY_SPEC)],
};

#[rustfmt::skip]
static STORED_BLOCK_AFFINITY_SPEC: Object = Object {
    name: "BlockAffinitySpec",
    fields: &[
        Field::new("state", "State", Text).keep(Always).help("How far the claim of the block has come"),
        Field::new("node", "Node", Text).keep(Always).help("The node the block belongs to"),
        Field::new("type", "Type", Text).help("Whether the owner is a host or virtual"),
        Field::new("cidr", "CIDR", Text).keep(Always).help("The block"),
        Field::new("deleted", "Deleted", Text).keep(Always).help("Whether the claim is being given up"),
    ],
};
