//! What can be wrong with the records of addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Two that live claim one address, or two blocks hold it.
    Duplicate,
    /// An address is in use, and nobody holds it: somebody else may get it.
    NotAllocated,
    /// A record cannot be read, or not all of it.
    Unreadable,
    /// An address is allocated to an entry that the block does not have.
    BadIndex,
    /// An address is both allocated and free, or neither.
    AllocatedAndFree,
    /// The block, the handle and the endpoint name different holders of an address.
    Mismatch,
    /// A handle is missing, or counts other addresses than the blocks.
    WrongHandle,
    /// An address is allocated, and its owner is gone.
    Leak,
    /// A handle holds no address.
    GhostHandle,
    /// A node that does not exist owns something.
    NodeGone,
    /// A block that no node has claimed.
    OrphanBlock,
    /// A claim on a block that is not there, or is another's.
    OrphanAffinity,
    /// A claim that is not as the block says.
    WrongAffinity,
    /// A block or an address in no pool, or a block that its pool would not make.
    OutOfPool,
    /// A holder in the block that holds no address.
    UnreferencedAttribute,
    /// A field of a record contradicts its key or its other fields.
    WrongField,
}

impl Class {
    /// All of them, worst first.
    pub const ALL: [Self; 16] = [
        Self::Duplicate,
        Self::NotAllocated,
        Self::Unreadable,
        Self::BadIndex,
        Self::AllocatedAndFree,
        Self::Mismatch,
        Self::WrongHandle,
        Self::Leak,
        Self::GhostHandle,
        Self::NodeGone,
        Self::OrphanBlock,
        Self::OrphanAffinity,
        Self::WrongAffinity,
        Self::OutOfPool,
        Self::UnreferencedAttribute,
        Self::WrongField,
    ];

    /// Its name, as shown and in `-o json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::NotAllocated => "not-allocated",
            Self::Unreadable => "unreadable",
            Self::BadIndex => "bad-index",
            Self::AllocatedAndFree => "allocated-and-free",
            Self::Mismatch => "mismatch",
            Self::WrongHandle => "wrong-handle",
            Self::Leak => "leak",
            Self::GhostHandle => "ghost-handle",
            Self::NodeGone => "node-gone",
            Self::OrphanBlock => "orphan-block",
            Self::OrphanAffinity => "orphan-affinity",
            Self::WrongAffinity => "wrong-affinity",
            Self::OutOfPool => "out-of-pool",
            Self::UnreferencedAttribute => "unreferenced-attribute",
            Self::WrongField => "wrong-field",
        }
    }

    /// The code of the finding; it stays.
    pub fn code(self) -> &'static str {
        match self {
            Self::Duplicate => "MG-IPAM-101",
            Self::NotAllocated => "MG-IPAM-102",
            Self::Unreadable => "MG-IPAM-103",
            Self::BadIndex => "MG-IPAM-104",
            Self::AllocatedAndFree => "MG-IPAM-105",
            Self::Mismatch => "MG-IPAM-106",
            Self::WrongHandle => "MG-IPAM-107",
            Self::Leak => "MG-IPAM-108",
            Self::GhostHandle => "MG-IPAM-109",
            Self::NodeGone => "MG-IPAM-110",
            Self::OrphanBlock => "MG-IPAM-111",
            Self::OrphanAffinity => "MG-IPAM-112",
            Self::WrongAffinity => "MG-IPAM-113",
            Self::OutOfPool => "MG-IPAM-114",
            Self::UnreferencedAttribute => "MG-IPAM-115",
            Self::WrongField => "MG-IPAM-116",
        }
    }

    /// Whether something may break because of it: an address may get two users, or none can be
    /// given out. The others cost room and order.
    pub fn is_grave(self) -> bool {
        self <= Self::Mismatch
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// What sort.
    pub class: Class,
    /// The key of the record.
    pub key: String,
    /// The address, if it is about one.
    pub address: Option<IpAddr>,
    /// The node that it has to do with, if that is known.
    pub node: Option<String>,
    /// What is wrong, in one line.
    pub text: String,
    /// Why repairing leaves it, if so.
    pub kept: Option<String>,
}

/// Everything that is wrong, and how much was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The problems: worst class first, then by key and address.
    pub problems: Vec<Problem>,
    /// How many blocks there are.
    pub blocks: usize,
    /// How many addresses are held.
    pub addresses: usize,
    /// How many handles there are.
    pub handles: usize,
    /// How many workload endpoints there are.
    pub endpoints: usize,
}

impl Findings {
    /// The problems by class, worst first.
    pub fn by_class(&self) -> BTreeMap<Class, Vec<&Problem>> {
        let mut by_class: BTreeMap<Class, Vec<&Problem>> = BTreeMap::new();
        for problem in &self.problems {
            by_class.entry(problem.class).or_default().push(problem);
        }
        by_class
    }
}
