//! What is asked for, and what is given.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use api::keys::AffinityType;
use net::Cidr;

use crate::Error;

/// What the addresses of load balancers are asked for as.
pub(crate) const LOAD_BALANCER: &str = "LoadBalancer";

/// Who blocks belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// A node, or something that is none.
    pub kind: AffinityType,
    /// Its name.
    pub name: String,
}

impl Owner {
    /// A node.
    pub fn node(name: impl Into<String>) -> Self {
        Self { kind: AffinityType::Host, name: name.into() }
    }

    /// Something that is no node, such as the addresses of load balancers.
    pub fn virtual_(name: impl Into<String>) -> Self {
        Self { kind: AffinityType::Virtual, name: name.into() }
    }

    /// Who asks for addresses on a node, for a purpose.
    pub(crate) fn asking(node: &str, purpose: &str) -> Self {
        if purpose == LOAD_BALANCER { Self::virtual_(node) } else { Self::node(node) }
    }
}

/// As blocks name it.
impl fmt::Display for Owner {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.kind.name(), self.name)
    }
}

/// What a host keeps for itself of each of its blocks (as Windows does).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostReserved {
    /// How many addresses at the start.
    pub start: usize,
    /// How many addresses at the end.
    pub end: usize,
    /// The handle that holds them.
    pub handle: String,
    /// A remark for people.
    pub note: String,
}

/// A request for any addresses.
#[derive(Clone, Debug, Default)]
pub struct AutoAssign {
    /// The node that will use them.
    pub node: String,
    /// How many IPv4 addresses. Calico takes negative numbers for none.
    pub num4: i64,
    /// How many IPv6 addresses.
    pub num6: i64,
    /// The handle to hold them under.
    pub handle: Option<String>,
    /// What to note beside the handle: pod, namespace, node…
    pub attributes: BTreeMap<String, String>,
    /// What they are for: `Workload`, `Tunnel` or `LoadBalancer`.
    pub purpose: String,
    /// The IPv4 pools to take them from, in this order; empty for any that serve the node.
    pub pools4: Vec<Cidr>,
    /// The same for IPv6.
    pub pools6: Vec<Cidr>,
    /// How many blocks the node may have; 0 for what the settings say.
    pub max_blocks: i64,
    /// What the host keeps of new IPv4 blocks.
    pub reserved4: Option<HostReserved>,
    /// What the host keeps of new IPv6 blocks.
    pub reserved6: Option<HostReserved>,
    /// How many addresses of each family the handle may have; 0 for any number. A handle that has
    /// them already gets the same again.
    pub max_per_handle: i64,
    /// The labels of the namespace; none when there is no namespace.
    pub namespace: Option<BTreeMap<String, String>>,
    /// Addresses seen in use whatever the records say; they are passed over.
    pub avoid: BTreeSet<IpAddr>,
}

impl AutoAssign {
    pub(crate) fn number(&self, family: u8) -> i64 {
        if family == 4 { self.num4 } else { self.num6 }
    }

    pub(crate) fn pools(&self, family: u8) -> &[Cidr] {
        if family == 4 { &self.pools4 } else { &self.pools6 }
    }

    pub(crate) fn reserved(&self, family: u8) -> Option<&HostReserved> {
        if family == 4 { self.reserved4.as_ref() } else { self.reserved6.as_ref() }
    }
}

/// The addresses of one family that a request got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// 4 or 6.
    pub family: u8,
    /// The addresses, each with the mask of its block, or of a single address if the handle had
    /// it already.
    pub addresses: Vec<Cidr>,
    /// How many were asked for.
    pub requested: i64,
    /// Why there are not more.
    pub messages: Vec<String>,
    /// The handle of what the host keeps for itself.
    pub reserved_handle: Option<String>,
}

impl Assignment {
    /// What a caller is told when fewer addresses came than asked for, in Calico's words.
    pub fn shortfall(&self) -> Option<String> {
        let got = self.addresses.len();
        if i64::try_from(got).unwrap_or(i64::MAX) >= self.requested {
            return None;
        }
        let (wanted, family) = (self.requested, self.family);
        let mut told = format!("Assigned {got} out of {wanted} requested IPv{family} addresses");
        let handle = self.reserved_handle.iter().map(|it| format!("HostReservedAttr: {it}"));
        for message in self.messages.iter().cloned().chain(handle) {
            told += "; ";
            told += &message;
        }
        Some(told)
    }

    pub(crate) fn say(&mut self, message: String) {
        if !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }
}

/// The answer to [`AutoAssign`]. There may be both addresses and an error.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assigned {
    /// IPv4, if any were asked for and it came so far.
    pub v4: Option<Assignment>,
    /// IPv6, if any were asked for and it came so far.
    pub v6: Option<Assignment>,
    /// What went wrong.
    pub error: Option<Error>,
}

impl Assigned {
    /// All addresses.
    pub fn addresses(&self) -> impl Iterator<Item = Cidr> {
        self.v4.iter().chain(&self.v6).flat_map(|it| it.addresses.iter().copied())
    }
}

/// A request for one address.
#[derive(Clone, Debug)]
pub struct AssignIp {
    /// The node that will use it.
    pub node: String,
    /// The address.
    pub address: IpAddr,
    /// The handle to hold it under.
    pub handle: Option<String>,
    /// What to note beside the handle.
    pub attributes: BTreeMap<String, String>,
    /// What it is for; empty not to check that.
    pub purpose: String,
    /// How many addresses of the family the handle may have; 0 for any number.
    pub max_per_handle: i64,
    /// What the host keeps of a new block.
    pub reserved: Option<HostReserved>,
}

/// One address to let go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The address as text: what is no address is refused with Calico's words.
    pub address: String,
    /// The handle that must hold it; empty not to check that.
    pub handle: String,
    /// The sequence number of the allocation that is meant; none not to check that.
    pub sequence: Option<u64>,
}

impl Release {
    /// Whoever holds it.
    pub fn address(address: IpAddr) -> Self {
        Self { address: address.to_string(), ..Self::default() }
    }
}

/// A request for a block.
#[derive(Clone, Debug, Default)]
pub struct EnsureBlock {
    /// The node.
    pub node: String,
    /// What the host keeps of an IPv4 block; none for no IPv4 block.
    pub reserved4: Option<HostReserved>,
    /// What the host keeps of an IPv6 block; none for no IPv6 block.
    pub reserved6: Option<HostReserved>,
    /// The IPv4 pools to take it from; empty for any that serve the node.
    pub pools4: Vec<Cidr>,
    /// The same for IPv6.
    pub pools6: Vec<Cidr>,
}

/// The blocks that a node has for [`EnsureBlock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ensured {
    /// The IPv4 block, if one was asked for.
    pub v4: Option<Cidr>,
    /// The IPv6 block, if one was asked for.
    pub v6: Option<Cidr>,
}
