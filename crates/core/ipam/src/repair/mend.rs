//! A block as it should be.

use std::collections::BTreeSet;

use api::keys::ipam::{Attribute, Block};
use net::Cidr;

use crate::Moment;
use crate::block::{count_write, drop_unused_attributes, point};
use crate::check::{BlockVerdict, SlotVerdict, address_at, salvage};

/// What became of a block, and how to say it.
pub(super) struct Mended {
    pub(super) after: Option<Vec<u8>>,
    pub(super) notes: Vec<String>,
    pub(super) frees: bool,
}

/// A block that goes.
pub(super) fn removed(cidr: Cidr, verdict: &BlockVerdict) -> Option<Mended> {
    let mut notes = freed(cidr, verdict);
    let frees = !notes.is_empty();
    notes.push(format!("block {cidr} is removed: nobody holds an address of it"));
    Some(Mended { after: None, notes, frees })
}

/// A block that is mended, or made anew.
pub(super) fn block(
    cidr: Cidr,
    verdict: &BlockVerdict,
    before: Option<&[u8]>,
    now: Moment,
) -> Option<Mended> {
    let salvaged = before.and_then(|bytes| salvage(cidr, bytes).ok());
    let mut notes = match (&salvaged, before) {
        (Some(_), _) => Vec::new(),
        (None, Some(_)) => vec![format!("block {cidr} is made anew: it could not be read")],
        (None, None) => vec![format!("block {cidr} is made: addresses of it are in use")],
    };
    let mut block = match salvaged {
        Some((block, _)) => block,
        None => {
            let mut block = Block::new(cidr)?;
            block.sequence_number = now.nanoseconds();
            block
        }
    };
    if let Some(owner) = &verdict.owner {
        notes.push(format!("block {cidr} is {}'s", owner.as_deref().unwrap_or("nobody")));
        block.affinity.clone_from(owner);
        block.affinity_claim_time = Some(now.text());
    }
    let freed = freed(cidr, verdict);
    let frees = !freed.is_empty();
    notes.extend(freed);
    mend_fields(&mut block, now);
    place(&mut block, verdict, &mut notes);
    rebuild_free_list(&mut block);
    drop_unused_attributes(&mut block);
    mend_sequence(&mut block);
    count_write(&mut block);
    if notes.is_empty() {
        notes.push(format!("block {cidr}: its lists and fields are put right"));
    }
    let after = text::json::to_string(&block.encode()).into_bytes();
    Some(Mended { after: Some(after), notes, frees })
}

fn freed(cidr: Cidr, verdict: &BlockVerdict) -> Vec<String> {
    let slots = verdict.slots.iter().filter(|(_, slot)| **slot == SlotVerdict::Free);
    let addresses = slots.filter_map(|(ordinal, _)| address_at(cidr, *ordinal));
    addresses.map(|address| format!("{address} is let go")).collect()
}

fn mend_fields(block: &mut Block, now: Moment) {
    block.deleted = false;
    let is_bad = |text: &String| !crate::check::is_time(text);
    if block.affinity_claim_time.as_ref().is_some_and(is_bad) {
        block.affinity_claim_time = None;
    }
    for attribute in &mut block.attributes {
        // It rests from now on: since when it did is not known.
        if attribute.released_at.as_ref().is_some_and(is_bad) {
            attribute.released_at = Some(now.text());
        }
    }
}

fn place(block: &mut Block, verdict: &BlockVerdict, notes: &mut Vec<String>) {
    let size = usize::try_from(block.size()).unwrap_or(0);
    block.allocations.resize(size, None);
    for (ordinal, slot) in &verdict.slots {
        let holding = match slot {
            SlotVerdict::Keep => continue,
            SlotVerdict::Free => {
                point(block, *ordinal, None);
                continue;
            }
            SlotVerdict::Hold(holding) => holding,
        };
        let mut attribute = match block.attribute(*ordinal) {
            Some(attribute) if attribute.released_at.is_none() => attribute.clone(),
            _ => Attribute::default(),
        };
        if holding.handle.is_some() {
            attribute.handle.clone_from(&holding.handle);
        }
        attribute.active_owner.extend(holding.attributes.clone());
        let index = block.attributes.iter().position(|it| *it == attribute).unwrap_or_else(|| {
            block.attributes.push(attribute.clone());
            block.attributes.len() - 1
        });
        point(block, *ordinal, i64::try_from(index).ok());
        let number = holding.sequence.unwrap_or(block.sequence_number);
        let numbers = &mut block.sequence_number_for_allocation;
        match holding.sequence {
            Some(_) => drop(numbers.insert(ordinal.to_string(), number)),
            None => drop(numbers.entry(ordinal.to_string()).or_insert(number)),
        }
        if let Some(address) = address_at(block.cidr, *ordinal) {
            let handle = attribute.handle.as_deref().unwrap_or("nobody in particular");
            notes.push(format!("{address} is held by {handle}"));
        }
    }
}

/// Every address that is not allocated stands in the list once; those that stood there keep their
/// order.
fn rebuild_free_list(block: &mut Block) {
    let free: BTreeSet<i64> = block
        .allocations
        .iter()
        .enumerate()
        .filter(|(_, index)| index.is_none())
        .filter_map(|(ordinal, _)| i64::try_from(ordinal).ok())
        .collect();
    let mut seen = BTreeSet::new();
    block.unallocated.retain(|ordinal| free.contains(ordinal) && seen.insert(*ordinal));
    block.unallocated.extend(free.difference(&seen));
}

fn mend_sequence(block: &mut Block) {
    let held: BTreeSet<String> = block
        .allocations
        .iter()
        .enumerate()
        .filter(|(_, index)| index.is_some())
        .map(|(ordinal, _)| ordinal.to_string())
        .collect();
    let is_old = block.sequence_number == 0 && block.sequence_number_for_allocation.is_empty();
    let numbers = &mut block.sequence_number_for_allocation;
    numbers.retain(|ordinal, _| held.contains(ordinal));
    let highest = numbers.values().copied().max().unwrap_or(0);
    block.sequence_number = block.sequence_number.max(highest);
    if !is_old {
        for ordinal in held {
            numbers.entry(ordinal).or_insert(block.sequence_number);
        }
    }
}
