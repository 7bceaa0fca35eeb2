//! What a node itself says of the addresses that are in use on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A sandbox of the node's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The container.
    pub container: String,
    /// Its name for people.
    pub name: String,
    /// The handle that holds its addresses.
    pub handle: String,
    /// What its holder in a block is called: node, pod, namespace.
    pub attributes: BTreeMap<String, String>,
    /// Its addresses, with the sequence number under which each was given, if that is known.
    pub addresses: BTreeMap<IpAddr, Option<u64>>,
}

/// What one node says: its journal of sandboxes, and its kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// The node.
    pub node: String,
    /// Its sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// Addresses that its kernel leads to an interface of a workload, or has itself.
    pub in_kernel: BTreeSet<IpAddr>,
    /// Why it does not speak for everything on the node; none if it does.
    pub incomplete: Option<String>,
}
