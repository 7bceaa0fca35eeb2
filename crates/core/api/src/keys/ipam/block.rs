//! A block of addresses: who has which.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use net::Cidr;
use serde_json::Value;

use super::fields::{Fields, Unknown, wrong};
use super::regular;
use crate::Problem;
use crate::keys::value::ValueError;
use crate::keys::{AffinityType, tables};

/// What is known of the owner of some addresses of a block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attribute {
    /// The handle of the owner.
    pub handle: Option<String>,
    /// Who uses the addresses: `node`, `pod`, `namespace`, `timestamp`…
    pub active_owner: BTreeMap<String, String>,
    /// Who used them before or will next, while a machine moves.
    pub alternate_owner: BTreeMap<String, String>,
    /// When they were released, while they must not be used again yet (RFC 3339).
    pub released_at: Option<String>,
    pub(super) unknown: Unknown,
}

impl Attribute {
    /// The attribute of the node that uses the addresses.
    pub const NODE: &str = "node";

    /// The owner of some addresses.
    pub fn new(handle: Option<String>, active_owner: BTreeMap<String, String>) -> Self {
        Self { handle, active_owner, ..Self::default() }
    }

    fn decode(value: &Value) -> Result<Self, Vec<Problem>> {
        const KNOWN: &[&str] = &["handle_id", "secondary", "alternateOwnerAttrs", "releasedAt"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut fields = Fields::new(value, KNOWN);
        let attribute = Self {
            handle: fields.text("handle_id"),
            active_owner: fields.map("secondary", text),
            alternate_owner: fields.map("alternateOwnerAttrs", text),
            released_at: fields.text("releasedAt"),
            unknown: fields.unknown(),
        };
        fields.finish(attribute)
    }

    fn encode(&self) -> Value {
        let map = |map: &BTreeMap<String, String>| {
            let fields = map.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
            (!map.is_empty()).then(|| Value::Object(fields.collect()))
        };
        self.unknown.weave([
            ("handle_id", self.handle.clone().map(Value::from)),
            ("secondary", map(&self.active_owner)),
            ("alternateOwnerAttrs", map(&self.alternate_owner)),
            ("releasedAt", self.released_at.clone().map(Value::from)),
        ])
    }
}

/// An address in use, and the node that uses it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allocation {
    /// The address.
    pub address: IpAddr,
    /// The node; empty if it is not known.
    pub node: String,
}

/// A block of addresses and what they are used for.
///
/// The fields are what is stored, faults included; the methods look before they step.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its addresses.
    pub cidr: Cidr,
    /// Its owner (`host:NODE`, `virtual:NAME`), if it has one.
    pub affinity: Option<String>,
    /// Since when the owner has it (RFC 3339).
    pub affinity_claim_time: Option<String>,
    /// For every address, the index of its attribute; none if the address is free.
    pub allocations: Vec<Option<i64>>,
    /// The free addresses, counted from the first of the block, in the order of future use.
    pub unallocated: Vec<i64>,
    /// The owners of addresses.
    pub attributes: Vec<Attribute>,
    /// Counts the writes of the block.
    pub sequence_number: u64,
    /// For addresses in use, the count when they were taken.
    pub sequence_number_for_allocation: BTreeMap<String, u64>,
    /// Whether it is about to go.
    pub deleted: bool,
    /// The owner as very old versions wrote it: only a node.
    pub host_affinity: Option<String>,
    pub(super) unknown: Unknown,
}

impl Block {
    const KNOWN: &[&str] = &[
        "cidr",
        "affinity",
        "affinity_claim_time",
        "allocations",
        "unallocated",
        "attributes",
        "sequenceNumber",
        "sequenceNumberForAllocation",
        "deleted",
        "hostAffinity",
    ];

    /// A block without owner, with every address free. `None` for more than 2^16 addresses.
    pub fn new(cidr: Cidr) -> Option<Self> {
        let size = u16::try_from(Self::size_of(cidr).checked_sub(1)?).ok()?;
        let ordinals = 0..=i64::from(size);
        Some(Self {
            cidr: cidr.masked(),
            affinity: None,
            affinity_claim_time: None,
            allocations: ordinals.clone().map(|_| None).collect(),
            unallocated: ordinals.collect(),
            attributes: Vec::new(),
            sequence_number: 0,
            sequence_number_for_allocation: BTreeMap::new(),
            deleted: false,
            host_affinity: None,
            unknown: Unknown::with_null("attributes"),
        })
    }

    /// Reads stored bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, ValueError> {
        regular::block(bytes).map_or_else(|| super::read(&tables::BLOCK, bytes, Self::decode), Ok)
    }

    /// Reads a canonical value.
    pub fn decode(value: &Value) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::new(value, Self::KNOWN);
        let Some(cidr) = fields.text("cidr").and_then(|text| text.parse().ok()) else {
            fields.refuse("cidr", "expected the network of the block");
            return Err(fields.into_problems());
        };
        let attributes = fields.list("attributes", |value| Some(value.clone()));
        let mut owners = Vec::with_capacity(attributes.len());
        for (index, attribute) in attributes.iter().enumerate() {
            match Attribute::decode(attribute) {
                Ok(attribute) => owners.push(attribute),
                Err(problems) => fields.append(
                    problems
                        .into_iter()
                        .map(|p| wrong(&format!("attributes[{index}].{}", p.path), &p.message))
                        .collect(),
                ),
            }
        }
        let index = |value: &Value| match value {
            Value::Null => Some(None),
            number => number.as_i64().map(Some),
        };
        let block = Self {
            cidr,
            affinity: fields.text("affinity"),
            affinity_claim_time: fields.text("affinity_claim_time"),
            allocations: fields.list("allocations", index),
            unallocated: fields.list("unallocated", Value::as_i64),
            attributes: owners,
            sequence_number: fields.number("sequenceNumber", Value::as_u64),
            sequence_number_for_allocation: fields
                .map("sequenceNumberForAllocation", Value::as_u64),
            deleted: fields.flag("deleted"),
            host_affinity: fields.text("hostAffinity"),
            unknown: fields.unknown(),
        };
        fields.finish(block)
    }

    /// The value as Calico writes it.
    pub fn encode(&self) -> Value {
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let list =
            |name: &str, items: Vec<Value>| Some(self.unknown.or_null(name, Value::Array(items)));
        let sequence = self.sequence_number_for_allocation.iter();
        let sequence = sequence.map(|(ordinal, number)| (ordinal.clone(), Value::from(*number)));
        let sequence = Value::Object(sequence.collect());
        let numbers = |numbers: &[i64]| numbers.iter().map(|number| Value::from(*number)).collect();
        self.unknown.weave([
            ("cidr", Some(self.cidr.to_string().into())),
            ("affinity", Some(text(&self.affinity).unwrap_or_default())),
            ("affinity_claim_time", text(&self.affinity_claim_time)),
            (
                "allocations",
                list("allocations", self.allocations.iter().map(|i| Value::from(*i)).collect()),
            ),
            ("unallocated", list("unallocated", numbers(&self.unallocated))),
            (
                "attributes",
                list("attributes", self.attributes.iter().map(Attribute::encode).collect()),
            ),
            ("sequenceNumber", Some(self.sequence_number.into())),
            (
                "sequenceNumberForAllocation",
                Some(self.unknown.or_null("sequenceNumberForAllocation", sequence)),
            ),
            ("deleted", Some(self.deleted.into())),
            ("hostAffinity", text(&self.host_affinity)),
        ])
    }

    fn size_of(cidr: Cidr) -> u64 {
        let bits = if cidr.is_ipv4() { 32 } else { 128 };
        let free = u32::from(bits - cidr.prefix_len());
        1u64.checked_shl(free).unwrap_or(u64::MAX)
    }

    /// The number of its addresses; the largest number there is, if it is larger still.
    pub fn size(&self) -> u64 {
        Self::size_of(self.cidr)
    }

    /// The owner, if the block has one of a type we know.
    pub fn owner(&self) -> Option<(AffinityType, &str)> {
        let (owner_type, owner) = self.affinity.as_deref()?.split_once(':')?;
        match AffinityType::from_name(owner_type) {
            AffinityType::Other(_) => None,
            _ if owner_type.is_empty() => None,
            owner_type => Some((owner_type, owner)),
        }
    }

    /// The address at this place of the block, counted from 0.
    pub fn address(&self, ordinal: usize) -> Option<IpAddr> {
        let ordinal = u64::try_from(ordinal).ok().filter(|ordinal| *ordinal < self.size())?;
        // The stored address counts, host bits included.
        match self.cidr.address() {
            IpAddr::V4(first) => {
                let sum = u32::from(first).checked_add(u32::try_from(ordinal).ok()?)?;
                Some(Ipv4Addr::from(sum).into())
            }
            IpAddr::V6(first) => {
                Some(Ipv6Addr::from(u128::from(first).checked_add(ordinal.into())?).into())
            }
        }
    }

    /// The place of an address in the block, counted from 0.
    pub fn ordinal(&self, address: IpAddr) -> Option<usize> {
        let difference = match (address, self.cidr.address()) {
            (IpAddr::V4(address), IpAddr::V4(first)) => {
                u128::from(u32::from(address).checked_sub(u32::from(first))?)
            }
            (IpAddr::V6(address), IpAddr::V6(first)) => {
                u128::from(address).checked_sub(u128::from(first))?
            }
            _ => return None,
        };
        usize::try_from(difference).ok().filter(|_| difference < u128::from(self.size()))
    }

    /// What is known of the owner of the address at this place; none if it is free.
    pub fn attribute(&self, ordinal: usize) -> Option<&Attribute> {
        let index = (*self.allocations.get(ordinal)?)?;
        self.attributes.get(usize::try_from(index).ok()?)
    }

    /// The count of writes when the address at this place was taken; none if that is not known.
    pub fn sequence_of(&self, ordinal: usize) -> Option<u64> {
        self.sequence_number_for_allocation.get(&ordinal.to_string()).copied()
    }

    /// The addresses that others than the owner of the block use.
    pub fn foreign_allocations(&self) -> Vec<Allocation> {
        let owner = self.owner().map_or("", |(_, owner)| owner);
        let used = (0..self.allocations.len()).filter_map(|ordinal| {
            let node = self.attribute(ordinal)?.active_owner.get(Attribute::NODE);
            let node = node.cloned().unwrap_or_default();
            Some(Allocation { address: self.address(ordinal)?, node })
        });
        used.filter(|allocation| owner.is_empty() || allocation.node != owner).collect()
    }

    /// Everything that does not fit together: lists of the wrong length, indexes that point
    /// nowhere, addresses both free and in use or neither.
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let count = self.allocations.len();
        if u64::try_from(count) != Ok(self.size()) {
            let message = format!("{count} entries for {} addresses", self.size());
            problems.push(wrong("allocations", &message));
        }
        for (ordinal, index) in self.allocations.iter().enumerate() {
            if index.is_some() && self.attribute(ordinal).is_none() {
                let message = format!("there are only {} attributes", self.attributes.len());
                problems.push(wrong(&format!("allocations[{ordinal}]"), &message));
            }
        }
        let mut free = vec![false; count];
        for (place, ordinal) in self.unallocated.iter().enumerate() {
            let slot = usize::try_from(*ordinal).ok().and_then(|ordinal| free.get_mut(ordinal));
            let message = match slot {
                None => "the block has no such address",
                Some(true) => "the address is listed twice",
                Some(listed) => {
                    *listed = true;
                    continue;
                }
            };
            problems.push(wrong(&format!("unallocated[{place}]"), message));
        }
        for (ordinal, (index, free)) in self.allocations.iter().zip(&free).enumerate() {
            let message = match (index, free) {
                (Some(_), true) => "the address is in use and listed as free",
                (None, false) => "the address is free but not listed as such",
                _ => continue,
            };
            problems.push(wrong(&format!("allocations[{ordinal}]"), message));
        }
        problems
    }
}
