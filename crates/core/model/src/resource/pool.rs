//! Address pools, reservations and the settings of address management.

use net::Cidr;
use serde::Deserialize;

use crate::selector::Selector;

/// When traffic to addresses of a pool is tunnelled.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub enum TunnelMode {
    /// Not at all.
    #[default]
    Never,
    /// To every other node.
    Always,
    /// To nodes in other subnets.
    CrossSubnet,
}

/// What the addresses of a pool are for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum PoolUse {
    Workload,
    Tunnel,
    LoadBalancer,
}

/// Whether addresses are taken from a pool without being asked for by name.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum AssignmentMode {
    #[default]
    Automatic,
    Manual,
}

/// A range of addresses to give out.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct IpPool {
    /// The addresses.
    pub cidr: Cidr,
    /// The prefix length of the blocks that nodes take; none means 26 or 122.
    #[serde(default)]
    pub block_size: Option<u8>,
    /// Tunnelling by IPIP.
    #[serde(default)]
    pub ipip_mode: TunnelMode,
    /// Tunnelling by VXLAN.
    #[serde(default)]
    pub vxlan_mode: TunnelMode,
    /// Whether traffic that leaves the pools gets the address of the node.
    #[serde(default)]
    pub nat_outgoing: bool,
    /// No new addresses are taken from it.
    #[serde(default)]
    pub disabled: bool,
    /// Its routes are not exported by BGP.
    #[serde(default, rename = "disableBGPExport")]
    pub disable_bgp_export: bool,
    /// Which nodes may take blocks from it.
    #[serde(default)]
    pub node_selector: Selector,
    /// Which namespaces may take addresses from it; none means all.
    #[serde(default)]
    pub namespace_selector: Option<Selector>,
    /// What its addresses are for; empty means workloads and tunnels.
    #[serde(default)]
    pub allowed_uses: Vec<PoolUse>,
    /// Whether it is used without being asked for.
    #[serde(default)]
    pub assignment_mode: AssignmentMode,
}

/// The default exists only so that an object without a spec can be named; no valid pool is empty.
impl Default for IpPool {
    fn default() -> Self {
        Self {
            cidr: Cidr::host(std::net::Ipv4Addr::UNSPECIFIED.into()),
            block_size: None,
            ipip_mode: TunnelMode::Never,
            vxlan_mode: TunnelMode::Never,
            nat_outgoing: false,
            disabled: true,
            disable_bgp_export: false,
            node_selector: Selector::all(),
            namespace_selector: None,
            allowed_uses: Vec::new(),
            assignment_mode: AssignmentMode::Manual,
        }
    }
}

impl IpPool {
    /// The prefix length of its blocks.
    pub fn effective_block_size(&self) -> u8 {
        let default = if self.cidr.is_ipv4() { 26 } else { 122 };
        self.block_size.filter(|size| *size != 0).unwrap_or(default)
    }
}

/// Addresses that are never given out.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct IpReservation {
    /// The addresses.
    #[serde(rename = "reservedCIDRs")]
    pub reserved_cidrs: Vec<Cidr>,
}

/// Whether a virtual machine keeps its address when it moves.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Switch {
    #[default]
    Enabled,
    Disabled,
}

/// Settings of address management.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct IpamConfiguration {
    /// Nodes take addresses only from their own blocks.
    pub strict_affinity: bool,
    /// Nodes may take new blocks.
    pub auto_allocate_blocks: bool,
    /// How many blocks a node may have; 0 means the default of 20.
    pub max_blocks_per_host: u32,
    /// Whether virtual machines keep their addresses.
    #[serde(rename = "kubeVirtVMAddressPersistence")]
    pub kubevirt_address_persistence: Switch,
    /// How long a released address rests.
    pub ip_cooldown_seconds: u32,
}

/// How far the claim of a node to a block has come.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum AffinityState {
    #[default]
    Confirmed,
    Pending,
    PendingDeletion,
}

/// The claim of a node to a block, as a resource.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct BlockAffinity {
    /// How far it has come.
    pub state: AffinityState,
    /// The node, or the name of a virtual owner.
    pub node: String,
    /// `host` or `virtual`; empty means `host`.
    #[serde(rename = "type")]
    pub owner: String,
    /// The block.
    pub cidr: Option<Cidr>,
    /// Marked for deletion.
    pub deleted: bool,
}
