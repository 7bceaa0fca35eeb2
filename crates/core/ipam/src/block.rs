//! One block of addresses: which of them are held, by whom, and letting them go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::keys::ipam::{Attribute, Block};

use crate::{Cooldown, HostReserved, Moment, Owner};

/// Addresses that Windows keeps for itself do not make a block used.
const WINDOWS_HANDLE: &str = "windows-reserved-ipam-handle";

/// The addresses that are held, or not to be given out yet.
pub fn holders(block: &Block) -> impl Iterator<Item = (IpAddr, &Attribute)> {
    (0..block.allocations.len())
        .filter_map(|ordinal| Some((block.address(ordinal)?, block.attribute(ordinal)?)))
}

/// Who holds the address; nobody any more once it was let go.
pub fn holder_of(block: &Block, address: IpAddr) -> Option<&Attribute> {
    let holder = block.attribute(block.ordinal(address)?)?;
    holder.released_at.is_none().then_some(holder)
}

/// Whether nobody holds an address (what Windows keeps for itself aside).
pub fn is_empty(block: &Block) -> bool {
    let mut held = block.allocations.iter().enumerate().filter(|(_, index)| index.is_some());
    held.all(|(ordinal, _)| {
        let handle = block.attribute(ordinal).and_then(|holder| holder.handle.as_deref());
        handle.is_some_and(|handle| handle.eq_ignore_ascii_case(WINDOWS_HANDLE))
    })
}

/// Takes the owner away; the addresses stay held.
pub fn clear_affinity(block: &mut Block) {
    block.affinity = None;
    block.affinity_claim_time = None;
    count_write(block);
}

/// Lets addresses go. Returns how many each handle lost; empty when nothing was held.
/// An address without a handle counts under the empty handle.
pub fn release(
    block: &mut Block,
    addresses: &[IpAddr],
    cooldown: Cooldown,
) -> BTreeMap<String, i64> {
    let mut lost: BTreeMap<usize, String> = BTreeMap::new();
    for address in addresses {
        let Some(holder) = holder_of(block, *address) else { continue };
        let handle = holder.handle.clone().unwrap_or_default();
        lost.extend(block.ordinal(*address).map(|ordinal| (ordinal, handle)));
    }
    if !lost.is_empty() {
        mark_released(block, lost.keys().copied(), cooldown.now);
        for ordinal in lost.keys() {
            stamp(block, *ordinal);
        }
        collect(block, cooldown);
        count_write(block);
    }
    lost.into_values().fold(BTreeMap::new(), |mut counts, handle| {
        *counts.entry(handle).or_default() += 1;
        counts
    })
}

/// Lets go what a handle holds; the write is not counted yet. Returns how many addresses.
pub(crate) fn release_handle(block: &mut Block, handle: &str, cooldown: Cooldown) -> usize {
    let held = ordinals_of(block, handle);
    if !held.is_empty() {
        mark_released(block, held.iter().copied(), cooldown.now);
    }
    collect(block, cooldown);
    held.len()
}

fn mark_released(block: &mut Block, ordinals: impl Iterator<Item = usize>, now: Moment) {
    let index = i64::try_from(block.attributes.len()).ok();
    let mut attribute = Attribute::default();
    attribute.released_at = Some(now.text());
    block.attributes.push(attribute);
    for ordinal in ordinals {
        point(block, ordinal, index);
    }
}

pub(crate) fn point(block: &mut Block, ordinal: usize, index: Option<i64>) {
    if let Some(place) = block.allocations.get_mut(ordinal) {
        *place = index;
    }
}

/// Notes at which count of writes the address changed hands.
fn stamp(block: &mut Block, ordinal: usize) {
    let sequences = &mut block.sequence_number_for_allocation;
    sequences.insert(ordinal.to_string(), block.sequence_number);
}

/// Frees what was let go long enough ago, and drops attributes that nobody uses any more.
/// Says whether that changed anything.
pub(crate) fn collect(block: &mut Block, cooldown: Cooldown) -> bool {
    let mut is_changed = false;
    for ordinal in 0..block.allocations.len() {
        let released_at = block.attribute(ordinal).and_then(|it| it.released_at.as_deref());
        if released_at.is_some_and(|at| cooldown.is_over(at)) {
            point(block, ordinal, None);
            block.unallocated.extend(i64::try_from(ordinal));
            block.sequence_number_for_allocation.remove(&ordinal.to_string());
            is_changed = true;
        }
    }
    drop_unused_attributes(block) || is_changed
}

pub(crate) fn drop_unused_attributes(block: &mut Block) -> bool {
    let used: BTreeSet<i64> = block.allocations.iter().flatten().copied().collect();
    let before = block.attributes.len();
    let mut places = BTreeMap::new();
    let mut index = 0..;
    block.attributes.retain(|_| {
        let kept = index.next().filter(|index| used.contains(index));
        kept.map(|index| places.insert(index, places.len() as i64)).is_some()
    });
    for index in block.allocations.iter_mut().flatten() {
        *index = places.get(index).copied().unwrap_or(*index);
    }
    block.attributes.len() != before
}

/// Every write of a block is counted.
pub(crate) fn count_write(block: &mut Block) {
    block.sequence_number = block.sequence_number.wrapping_add(1);
}

/// A block that an owner has just claimed. `None` when it would be larger than Calico makes them,
/// or too small for what the host keeps for itself.
pub(crate) fn claimed(
    cidr: net::Cidr,
    owner: &Owner,
    reserved: Option<&HostReserved>,
    now: Moment,
) -> Option<Block> {
    let mut block = Block::new(cidr)?;
    block.affinity = Some(owner.to_string());
    block.affinity_claim_time = Some(now.text());
    // Counts of writes must not repeat when a block goes and comes back.
    block.sequence_number = now.nanoseconds();
    if let Some(reserved) = reserved {
        let size = block.unallocated.len();
        let end = size.checked_sub(reserved.end)?;
        block.unallocated = block.unallocated.get(reserved.start..end)?.to_vec();
        for ordinal in (0..reserved.start).chain(end..size) {
            point(&mut block, ordinal, Some(0));
        }
        let note = BTreeMap::from([("note".to_owned(), reserved.note.clone())]);
        block.attributes.push(Attribute::new(Some(reserved.handle.clone()), note));
    }
    Some(block)
}

/// The handle without what old versions appended to it by mistake.
pub(crate) fn settled(handle: &str) -> &str {
    handle.split('\r').next().unwrap_or(handle)
}

/// The places of the addresses that a handle holds.
pub(crate) fn ordinals_of(block: &Block, handle: &str) -> Vec<usize> {
    let is_theirs = |ordinal: &usize| {
        let holder = block.attribute(*ordinal).and_then(|holder| holder.handle.as_deref());
        holder.is_some_and(|holder| settled(holder) == handle)
    };
    (0..block.allocations.len()).filter(is_theirs).collect()
}

/// The places of the free list that can be given out: a damaged list may name an address twice,
/// one in use, or one that the block does not have.
pub(crate) fn free(block: &Block) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let places = block.unallocated.iter().filter_map(|ordinal| usize::try_from(*ordinal).ok());
    places
        .filter(|ordinal| block.allocations.get(*ordinal) == Some(&None))
        .filter(|ordinal| block.address(*ordinal).is_some() && seen.insert(*ordinal))
        .collect()
}

/// Gives out up to so many addresses that may be used; the write is not counted yet.
pub(crate) fn take(
    block: &mut Block,
    count: usize,
    holder: &Attribute,
    may_use: impl Fn(IpAddr) -> bool,
) -> Vec<IpAddr> {
    let mut taken = Vec::new();
    let mut left = Vec::new();
    for ordinal in free(block) {
        let usable = block.address(ordinal).filter(|address| may_use(*address));
        match usable.filter(|_| taken.len() < count) {
            None => left.extend(i64::try_from(ordinal)),
            Some(address) => {
                hand_over(block, ordinal, holder);
                taken.push(address);
            }
        }
    }
    if !taken.is_empty() {
        block.unallocated = left;
    }
    taken
}

/// Gives out one address; the write is not counted yet. False if it is in use.
pub(crate) fn take_one(block: &mut Block, ordinal: usize, holder: &Attribute) -> bool {
    if block.allocations.get(ordinal) != Some(&None) {
        return false;
    }
    hand_over(block, ordinal, holder);
    block.unallocated.retain(|free| usize::try_from(*free) != Ok(ordinal));
    true
}

/// Makes somebody the holder of an address.
pub(crate) fn hand_over(block: &mut Block, ordinal: usize, holder: &Attribute) {
    let index = block.attributes.iter().position(|it| it == holder).unwrap_or_else(|| {
        block.attributes.push(holder.clone());
        block.attributes.len() - 1
    });
    point(block, ordinal, i64::try_from(index).ok());
    stamp(block, ordinal);
}

#[cfg(test)]
mod tests;
