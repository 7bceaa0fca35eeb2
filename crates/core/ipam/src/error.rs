//! What can go wrong. The texts are Calico's where users have seen them; [`Error::explain`] says
//! in one line what a person would want to know instead.

use std::net::IpAddr;

use net::Cidr;

use crate::{Closed, Refusal};

/// Why an operation could not be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the text names")]
pub enum Error {
    /// A request for addresses did not say what they are for.
    #[error("must specify the intended use when assigning an IP")]
    UseRequired,
    /// A pool of the other family was asked for.
    #[error("provided IPv{family} IPPools list contains one or more IPv{} IPPools", 10 - family)]
    PoolOfOtherFamily { family: u8 },
    /// The node has no object.
    #[error("resource does not exist: Node({node}) with error: <nil>")]
    NoSuchNode { node: String },
    /// No pool can be used at all, or none for this purpose.
    #[error("cannot find a qualified ippool{}", purpose.as_ref().map(|it| format!(", no pools match the required use ({it})")).unwrap_or_default())]
    NoQualifiedPool { purpose: Option<String>, refusals: Vec<(String, Refusal)> },
    /// No pool serves this node and namespace.
    #[error("no configured Calico pools for node {node}")]
    NoPoolForNode { node: String, refusals: Vec<(String, Refusal)> },
    /// A pool that was asked for is not there.
    #[error("the given pool ({cidr}) does not exist, or is not enabled")]
    NoSuchPool { cidr: Cidr },
    /// What the host keeps of each block makes no sense.
    #[error("HostReservedAttr has wrong parameters")]
    BadHostReserved,
    /// The node has as many blocks as it may have.
    #[error("cannot allocate new block due to per host block limit")]
    BlockLimit { limit: i64 },
    /// There is no free block left.
    #[error("No Free Blocks")]
    NoFreeBlocks { pools: Vec<String> },
    /// The settings forbid new blocks, and those of the node are full.
    #[error("failed to find or claim a block")]
    NoNewBlocks,
    /// A new block has no room.
    #[error("Block '{cidr}' has {free} free ips which is less than {needed} ips required.")]
    NoRoom { cidr: Cidr, free: usize, needed: usize },
    /// The address lies in no enabled pool.
    #[error("The provided IP address is not in a configured pool\n")]
    NotInPool { address: IpAddr },
    /// As before, when its owner is to change.
    #[error("the provided IP address {address} is not in a configured pool")]
    OwnerNotInPool { address: IpAddr },
    /// As before, when its attributes are read.
    #[error("resource does not exist: {address} with error: No valid IPPool")]
    NoPoolOfAddress { address: IpAddr },
    /// The pool is for something else.
    #[error("IP address {address} is in IP pool {pool:?}, which is not allowed for use {purpose:?} (allowedUses: [{}])", allowed.join(" "))]
    UseNotAllowed { address: IpAddr, pool: String, purpose: String, allowed: Vec<String> },
    /// Somebody has the address.
    #[error("resource already exists: {address} with error: Address already assigned in block")]
    AlreadyAssigned { address: IpAddr, handle: Option<String> },
    /// The block belongs to another node, and nodes may not borrow.
    #[error("Block host affinity does not match")]
    ForeignBlock { owner: String },
    /// The block belongs to nobody, and nodes may not borrow.
    #[error("Attempt to assign from block {cidr} with no affinity")]
    NoAffinity { cidr: Cidr },
    /// The key of the block and its content disagree.
    #[error("IP {address} not in block {cidr}")]
    NotInBlock { address: IpAddr, cidr: Cidr },
    /// The handle has no name.
    #[error("failed to increment handle: insufficient identifiers, missing ''")]
    UnnamedHandle,
    /// The handle has as many addresses as it may have, and not the one asked for.
    #[error(
        "handle {handle} already has IP(s) allocated, cannot assign additional IP {address} (maxAllocPerIPVersion={limit})"
    )]
    HandleHasOther { handle: String, address: IpAddr, limit: i64 },
    /// The handle may not have that many addresses.
    #[error(
        "handle {handle} already has {held} allocation(s), cannot allocate more (maxAlloc={limit})"
    )]
    HandleFull { handle: String, held: i64, limit: i64 },
    /// There is no such handle.
    #[error("resource does not exist: IPAMHandleKey(id={handle}) with error: <nil>")]
    NoSuchHandle { handle: String },
    /// There is no such block.
    #[error("resource does not exist: BlockKey(cidr={cidr}) with error: <nil>")]
    NoSuchBlock { cidr: Cidr },
    /// The address is free.
    #[error("resource does not exist: {address} with error: IP is unassigned")]
    Unassigned { address: IpAddr },
    /// The address was let go and rests.
    #[error("address {address} is in cooldown")]
    InCooldown { address: IpAddr },
    /// A release names no address.
    #[error("No IP address specified in options: {{Address: Handle:{handle} SequenceNumber:{}}}", sequence.map_or("<nil>".to_owned(), |_| "<set>".to_owned()))]
    NoAddress { handle: String, sequence: Option<u64> },
    /// A release names something else than an address.
    #[error("failed to parse IP: {text}")]
    NotAnAddress { text: String },
    /// A release means an older allocation: it names another sequence number.
    #[error("update conflict: {address}")]
    OtherSequence { address: IpAddr, given: u64, stored: u64 },
    /// A release means somebody else's allocation.
    #[error("update conflict: {address}")]
    OtherHandle { address: IpAddr, given: String, stored: String },
    /// Another owner has the address than was expected.
    #[error("update conflict: {address}")]
    OtherOwner { address: IpAddr, field: &'static str },
    /// The address belongs to another handle.
    #[error("IP {address} is not assigned to handle {handle}")]
    NotOfHandle { address: IpAddr, handle: String },
    /// An owner is to be both set and cleared.
    #[error(
        "cannot set both Clear{which}Owner=true and {which}OwnerAttrs: these are mutually exclusive"
    )]
    SetAndCleared { which: &'static str },
    /// The prefix lies in no enabled pool.
    #[error("The requested CIDR ({cidr}) is not within any configured pools.")]
    CidrNotInPool { cidr: Cidr },
    /// The prefix is smaller than a block.
    #[error("The requested CIDR ({cidr}) is smaller than the minimum.")]
    CidrTooSmall { cidr: Cidr },
    /// Addresses of the block are in use.
    #[error("block '{cidr}' is not empty")]
    NotEmpty { cidr: Cidr },
    /// An owner of blocks has no name.
    #[error("Hostname must be specified to release block affinity")]
    UnnamedOwner,
    /// The settings contradict each other.
    #[error("Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time")]
    NeitherBorrowNorClaim,
    /// The settings contradict each other.
    #[error("MaxBlocksPerHost requires StrictAffinity to be enabled")]
    LimitNeedsStrictAffinity,
    /// A stored value cannot be used.
    #[error("failed to parse datastore entry key={key}; value={value}: {reason}")]
    Unreadable { key: String, value: String, reason: String },
    /// The reserve of the node holds no such address.
    #[error("the reserve of node {node} holds no such address")]
    NotInReserve { node: String },
}

impl Error {
    /// What is wrong in one line, with what a person needs to put it right.
    pub fn explain(&self) -> String {
        match self {
            Self::NoPoolForNode { node, refusals } => {
                format!("no IP pool serves node {node}: {}", list(refusals))
            }
            Self::NoQualifiedPool { purpose, refusals } => {
                let purpose = purpose.as_deref().unwrap_or("anything");
                format!("no IP pool can be used for {purpose}: {}", list(refusals))
            }
            Self::NoSuchNode { node } => format!("there is no Node object named {node}"),
            Self::BlockLimit { limit } => {
                format!("the node's blocks are full and it has all {limit} that it may have")
            }
            Self::NoFreeBlocks { pools } => {
                format!("no free block is left in IP pools {}", pools.join(", "))
            }
            Self::NotInPool { address } => format!("{address} lies in no enabled IP pool"),
            Self::ForeignBlock { owner } => {
                format!("the block belongs to {owner}, and strict affinity forbids borrowing")
            }
            Self::AlreadyAssigned { address, handle } => {
                let handle = handle.as_deref().unwrap_or("no handle");
                format!("{address} is in use by {handle}")
            }
            other => other.to_string().trim_end().to_owned(),
        }
    }
}

fn list(refusals: &[(String, Refusal)]) -> String {
    if refusals.is_empty() {
        return "there is none of this family".to_owned();
    }
    let told = refusals.iter().map(|(pool, refusal)| format!("{pool} {}", reason(refusal)));
    told.collect::<Vec<_>>().join(", ")
}

fn reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Closed(Closed::Disabled) => "is disabled".to_owned(),
        Refusal::Closed(Closed::Terminating) => "is being deleted".to_owned(),
        Refusal::Closed(Closed::NotAllocatable) => "is not allocatable by its status".to_owned(),
        Refusal::Unreadable(why) => format!("cannot be used ({why})"),
        Refusal::BlocksTooSmall => "has too small blocks".to_owned(),
        Refusal::Manual => "must be asked for (assignmentMode Manual)".to_owned(),
        Refusal::NodeSelector(selector) => {
            format!("has the nodeSelector {selector}, which does not match")
        }
        Refusal::NamespaceSelector(selector) => {
            format!("has the namespaceSelector {selector}, which does not match")
        }
        Refusal::Uses(uses) => format!("is for {} only", uses.join(" and ")),
    }
}
