//! A block as it should be.

use std::collections::BTreeSet;
use std::net::IpAddr;

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
    let mut notes: Vec<String> =
        freed(verdict).filter_map(|it| address_at(cidr, it)).map(let_go).collect();
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
    let freed: BTreeSet<usize> = freed(verdict).collect();
    let frees = !freed.is_empty();
    // Of what nobody holds, only the list of free ones is wrong.
    let held: BTreeSet<usize> =
        freed.iter().copied().filter(|it| block.attribute(*it).is_some()).collect();
    notes.extend(held.iter().filter_map(|it| address_at(cidr, *it)).map(let_go));
    mend_fields(&mut block, now);
    let listed = block.unallocated.clone();
    place(&mut block, verdict, &mut notes);
    rebuild_free_list(&mut block);
    notes.extend(relisted(&block, &listed, verdict, &held));
    drop_unused_attributes(&mut block);
    mend_sequence(&mut block);
    count_write(&mut block);
    if notes.is_empty() {
        notes.push(format!("block {cidr}: its lists and fields are put right"));
    }
    let after = text::json::to_string(&block.encode()).into_bytes();
    Some(Mended { after: Some(after), notes, frees })
}

/// The places of the addresses that are to be free.
fn freed(verdict: &BlockVerdict) -> impl Iterator<Item = usize> {
    let slots = verdict.slots.iter().filter(|(_, slot)| **slot == SlotVerdict::Free);
    slots.map(|(ordinal, _)| *ordinal)
}

fn let_go(address: IpAddr) -> String {
    format!("{address} is let go")
}

/// What changes in the list of free addresses, beside those that are let go or taken.
fn relisted(
    block: &Block,
    before: &[i64],
    verdict: &BlockVerdict,
    let_go: &BTreeSet<usize>,
) -> Vec<String> {
    const SHOWN_MAX: usize = 8;
    let place = |ordinal: i64| usize::try_from(ordinal).ok();
    let is_taken = |ordinal: i64| {
        let slot = place(ordinal).and_then(|it| verdict.slots.get(&it));
        matches!(slot, Some(SlotVerdict::Hold(_)))
    };
    let mut notes = Vec::new();
    let mut note = |ordinal: i64, what: &str| {
        let address = place(ordinal).and_then(|it| address_at(block.cidr, it));
        let name = address.map_or_else(|| format!("place {ordinal}"), |it| it.to_string());
        notes.push(format!("{name} {what}"));
    };
    let after: BTreeSet<i64> = block.unallocated.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for ordinal in before {
        match (after.contains(ordinal), seen.insert(*ordinal)) {
            (true, false) => note(*ordinal, "stands once in the list of free ones"),
            (false, true) if !is_taken(*ordinal) => note(*ordinal, "leaves the list of free ones"),
            _ => {}
        }
    }
    for ordinal in after.difference(&seen) {
        if !place(*ordinal).is_some_and(|it| let_go.contains(&it)) {
            note(*ordinal, "enters the list of free ones");
        }
    }
    if notes.len() > SHOWN_MAX {
        let more = notes.split_off(SHOWN_MAX).len();
        notes.push(format!("… and {more} more places of its list of free ones"));
    }
    notes
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
