//! The values of address management: blocks, handles, affinities and settings.
//!
//! Reading takes a value in canonical form (as [`super::value::parse`] gives it) and refuses
//! wrong types only: a block whose indexes point nowhere is still a [`Block`], so that it can be
//! looked at and repaired, and [`Block::check`] says what is wrong with it. Writing gives
//! Calico's field order back, with the fields we do not know where they stood.

mod block;
mod fields;
mod labels;
mod regular;

use std::collections::BTreeMap;

use serde_json::Value;

use super::tables;
use super::value::{ValueError, parse_by};
use crate::Problem;
use crate::schema::Object;
pub(super) use fields::wrong;
use fields::{Fields, Unknown};

pub use block::{Allocation, Attribute, Block};
pub use labels::{affinity_labels, affinity_selector, hostname_hash};

/// The addresses of one workload: how many it has in which block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handle {
    /// Blocks by CIDR, with the number of addresses.
    pub blocks: BTreeMap<String, i64>,
    /// Whether it is about to go.
    pub deleted: bool,
    unknown: Unknown,
}

impl Handle {
    /// The addresses of a workload in these blocks.
    pub fn new(blocks: BTreeMap<String, i64>) -> Self {
        Self { blocks, ..Self::default() }
    }

    /// Reads stored bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, ValueError> {
        regular::handle(bytes).map_or_else(|| read(&tables::HANDLE, bytes, Self::decode), Ok)
    }

    /// Reads a canonical value.
    pub fn decode(value: &Value) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::new(value, &["block", "deleted"]);
        let handle = Self {
            blocks: fields.map("block", Value::as_i64),
            deleted: fields.flag("deleted"),
            unknown: fields.unknown(),
        };
        fields.finish(handle)
    }

    /// The value as Calico writes it.
    pub fn encode(&self) -> Value {
        let blocks = self.blocks.iter().map(|(cidr, count)| (cidr.clone(), Value::from(*count)));
        let blocks = self.unknown.or_null("block", Value::Object(blocks.collect()));
        self.unknown.weave([("block", Some(blocks)), ("deleted", Some(self.deleted.into()))])
    }
}

/// How far the claim of an owner on a block has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AffinityState {
    /// Not said, as by very old versions; means confirmed.
    #[default]
    Unset,
    /// The owner has the block.
    Confirmed,
    /// The owner asks for the block.
    Pending,
    /// The owner gives the block back.
    PendingDeletion,
    /// A state we do not know.
    Other(String),
}

impl AffinityState {
    /// The state with this name.
    pub fn from_name(name: &str) -> Self {
        match name {
            "" => Self::Unset,
            "confirmed" => Self::Confirmed,
            "pending" => Self::Pending,
            "pendingDeletion" => Self::PendingDeletion,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Unset => "",
            Self::Confirmed => "confirmed",
            Self::Pending => "pending",
            Self::PendingDeletion => "pendingDeletion",
            Self::Other(name) => name,
        }
    }
}

/// The claim of an owner on a block; its key says which.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Affinity {
    /// How far it has come.
    pub state: AffinityState,
    /// Whether it is about to go.
    pub deleted: bool,
    unknown: Unknown,
}

impl Affinity {
    /// A claim in this state.
    pub fn new(state: AffinityState) -> Self {
        Self { state, ..Self::default() }
    }

    /// Reads stored bytes. Very old versions stored nothing.
    pub fn read(bytes: &[u8]) -> Result<Self, ValueError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        regular::affinity(bytes).map_or_else(|| read(&tables::AFFINITY, bytes, Self::decode), Ok)
    }

    /// Reads a canonical value.
    pub fn decode(value: &Value) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::new(value, &["state", "deleted"]);
        let affinity = Self {
            state: AffinityState::from_name(&fields.text("state").unwrap_or_default()),
            deleted: fields.flag("deleted"),
            unknown: fields.unknown(),
        };
        fields.finish(affinity)
    }

    /// The value as Calico writes it.
    pub fn encode(&self) -> Value {
        self.unknown.weave([
            ("state", Some(self.state.name().into())),
            ("deleted", Some(self.deleted.into())),
        ])
    }
}

/// The settings of address management, as `ipam configure` keeps them; not the
/// `IPAMConfiguration` resource. The default is what holds while none are stored.
#[derive(Clone, Debug, PartialEq)]
pub struct IpamConfig {
    /// Whether nodes may only use addresses of their own blocks.
    pub strict_affinity: bool,
    /// Whether nodes may claim new blocks.
    pub auto_allocate_blocks: bool,
    /// How many blocks a node may have; 0 for the default of 20.
    pub max_blocks_per_host: i64,
    /// Whether KubeVirt machines keep their addresses: `Enabled`, `Disabled`, or not said.
    pub kubevirt_address_persistence: Option<String>,
    /// How long a released address is not given out again.
    pub cooldown_seconds: i64,
    unknown: Unknown,
}

impl Default for IpamConfig {
    fn default() -> Self {
        Self {
            strict_affinity: false,
            auto_allocate_blocks: true,
            max_blocks_per_host: 0,
            kubevirt_address_persistence: Some("Enabled".to_owned()),
            cooldown_seconds: 0,
            unknown: Unknown::default(),
        }
    }
}

impl IpamConfig {
    /// Reads a canonical value.
    pub fn decode(value: &Value) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::new(
            value,
            &[
                "strict_affinity",
                "auto_allocate_blocks",
                "maxBlocksPerHost",
                "kubeVirtVMAddressPersistence",
                "ipCooldownSeconds",
            ],
        );
        let config = Self {
            strict_affinity: fields.flag("strict_affinity"),
            auto_allocate_blocks: fields.flag("auto_allocate_blocks"),
            max_blocks_per_host: fields.number("maxBlocksPerHost", Value::as_i64),
            kubevirt_address_persistence: fields.text("kubeVirtVMAddressPersistence"),
            cooldown_seconds: fields.number("ipCooldownSeconds", Value::as_i64),
            unknown: fields.unknown(),
        };
        fields.finish(config)
    }

    /// The value as Calico writes it: what is off or zero is left out.
    pub fn encode(&self) -> Value {
        let flag = |set: bool| set.then(|| Value::from(true));
        let number = |number: i64| (number != 0).then(|| Value::from(number));
        let persistence = self.kubevirt_address_persistence.clone().map(Value::from);
        self.unknown.weave([
            ("strict_affinity", flag(self.strict_affinity)),
            ("auto_allocate_blocks", flag(self.auto_allocate_blocks)),
            ("maxBlocksPerHost", number(self.max_blocks_per_host)),
            ("kubeVirtVMAddressPersistence", persistence),
            ("ipCooldownSeconds", number(self.cooldown_seconds)),
        ])
    }
}

/// The long way from stored bytes to what they say.
fn read<T>(
    table: &'static Object,
    bytes: &[u8],
    decode: fn(&Value) -> Result<T, Vec<Problem>>,
) -> Result<T, ValueError> {
    decode(&parse_by(table, bytes)?).map_err(ValueError::Fields)
}

#[cfg(test)]
mod tests;
