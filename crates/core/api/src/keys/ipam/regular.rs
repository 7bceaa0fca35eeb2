//! The short way from stored bytes to blocks, handles and affinities.
//!
//! Nearly all are as Calico or we wrote them: known fields under their own names, each once and of
//! the right type. Such a value is read at once, without a JSON value in between. Anything out of
//! the ordinary ends the attempt, and the long way decides: both give the same where both give
//! something.

use std::borrow::Cow;
use std::collections::BTreeMap;

use net::Cidr;
use serde::Deserialize;

use super::fields::Unknown;
use super::{Affinity, AffinityState, Attribute, Block, Handle};
use crate::schema::in_utc;

/// Reads an object in which so many lists stand; how many there should be, is known afterwards.
fn read<'t, T: Deserialize<'t>>(bytes: &'t [u8], n_lists: fn(&T) -> usize) -> Option<T> {
    // Looking for broken characters once is cheaper than once for each text in it.
    let text = std::str::from_utf8(bytes).ok()?;
    let read = serde_json::from_str(text).ok()?;
    // A list of the values of all fields would be taken for an object, too.
    let n_brackets = bytes.iter().filter(|byte| **byte == b'[').count();
    (text.trim_start().starts_with('{') && n_brackets == n_lists(&read)).then_some(read)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegularHandle {
    block: Option<BTreeMap<String, i64>>,
    #[serde(default)]
    deleted: bool,
}

pub(super) fn handle(bytes: &[u8]) -> Option<Handle> {
    let RegularHandle { block, deleted } = read(bytes, |_| 0)?;
    let unknown = Unknown::of_nulls([("block", block.is_none())]);
    Some(Handle { blocks: block.unwrap_or_default(), deleted, unknown })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegularAffinity<'t> {
    #[serde(borrow, default)]
    state: Cow<'t, str>,
    #[serde(default)]
    deleted: bool,
}

pub(super) fn affinity(bytes: &[u8]) -> Option<Affinity> {
    let RegularAffinity { state, deleted } = read(bytes, |_| 0)?;
    let state = AffinityState::from_name(&state);
    Some(Affinity { state, deleted, unknown: Unknown::default() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RegularBlock<'t> {
    #[serde(borrow)]
    cidr: Cow<'t, str>,
    affinity: Option<String>,
    #[serde(rename = "affinity_claim_time")]
    affinity_claim_time: Option<String>,
    allocations: Option<Vec<Option<i64>>>,
    unallocated: Option<Vec<i64>>,
    attributes: Option<Vec<RegularAttribute>>,
    #[serde(default)]
    sequence_number: u64,
    sequence_number_for_allocation: Option<BTreeMap<String, u64>>,
    #[serde(default)]
    deleted: bool,
    host_affinity: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RegularAttribute {
    #[serde(rename = "handle_id")]
    handle: Option<String>,
    secondary: Option<BTreeMap<String, String>>,
    alternate_owner_attrs: Option<BTreeMap<String, String>>,
    released_at: Option<String>,
}

impl RegularBlock<'_> {
    fn n_lists(&self) -> usize {
        let lists =
            [self.allocations.is_some(), self.unallocated.is_some(), self.attributes.is_some()];
        lists.into_iter().filter(|is_there| *is_there).count()
    }
}

pub(super) fn block(bytes: &[u8]) -> Option<Block> {
    let read: RegularBlock<'_> = read(bytes, RegularBlock::n_lists)?;
    let cidr: Cidr = read.cidr.parse().ok()?;
    let unknown = Unknown::of_nulls([
        ("affinity", read.affinity.is_none()),
        ("allocations", read.allocations.is_none()),
        ("unallocated", read.unallocated.is_none()),
        ("attributes", read.attributes.is_none()),
        ("sequenceNumberForAllocation", read.sequence_number_for_allocation.is_none()),
    ]);
    let attributes = read.attributes.unwrap_or_default().into_iter().map(|it| {
        Some(Attribute {
            handle: it.handle,
            active_owner: it.secondary.unwrap_or_default(),
            alternate_owner: it.alternate_owner_attrs.unwrap_or_default(),
            released_at: time(it.released_at)?,
            unknown: Unknown::default(),
        })
    });
    Some(Block {
        cidr,
        affinity: read.affinity,
        affinity_claim_time: time(read.affinity_claim_time)?,
        allocations: read.allocations.unwrap_or_default(),
        unallocated: read.unallocated.unwrap_or_default(),
        attributes: attributes.collect::<Option<_>>()?,
        sequence_number: read.sequence_number,
        sequence_number_for_allocation: read.sequence_number_for_allocation.unwrap_or_default(),
        deleted: read.deleted,
        host_affinity: read.host_affinity,
        unknown,
    })
}

/// A time as it is kept: in UTC. The year 1 stands for none, which is not the same as none.
fn time(text: Option<String>) -> Option<Option<String>> {
    const NONE: &str = "0001-01-01T00:00:00Z";
    text.map(|text| in_utc(&text).filter(|it| it != NONE)).map_or(Some(None), |it| it.map(Some))
}
