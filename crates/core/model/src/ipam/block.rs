//! One block of addresses: which of them are held, by whom, and letting them go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::keys::ipam::{Attribute, Block};

/// Addresses that Windows keeps for itself do not make a block used.
const WINDOWS_HANDLE: &str = "windows-reserved-ipam-handle";

/// When addresses that were let go may be given out again.
#[derive(Clone, Copy, Debug)]
pub enum Cooldown<'a> {
    /// At once.
    None,
    /// When they were let go before `cutoff`; both are RFC 3339 in UTC with whole seconds.
    Since {
        /// The present time.
        now: &'a str,
        /// The present time less the cool-down.
        cutoff: &'a str,
    },
}

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
    cooldown: Cooldown<'_>,
) -> BTreeMap<String, i64> {
    let mut lost: BTreeMap<usize, String> = BTreeMap::new();
    for address in addresses {
        let Some(holder) = holder_of(block, *address) else { continue };
        let handle = holder.handle.clone().unwrap_or_default();
        lost.extend(block.ordinal(*address).map(|ordinal| (ordinal, handle)));
    }
    if !lost.is_empty() {
        mark_released(block, lost.keys().copied(), cooldown);
        collect(block, cooldown);
        count_write(block);
    }
    lost.into_values().fold(BTreeMap::new(), |mut counts, handle| {
        *counts.entry(handle).or_default() += 1;
        counts
    })
}

fn mark_released(block: &mut Block, ordinals: impl Iterator<Item = usize>, cooldown: Cooldown<'_>) {
    let released_at = match cooldown {
        Cooldown::None => "",
        Cooldown::Since { now, .. } => now,
    };
    let index = i64::try_from(block.attributes.len()).ok();
    let mut attribute = Attribute::default();
    attribute.released_at = Some(released_at.to_owned());
    block.attributes.push(attribute);
    for ordinal in ordinals {
        block.allocations[ordinal] = index;
        let sequences = &mut block.sequence_number_for_allocation;
        sequences.insert(ordinal.to_string(), block.sequence_number);
    }
}

/// Frees what was let go long enough ago, and drops attributes that nobody uses any more.
fn collect(block: &mut Block, cooldown: Cooldown<'_>) {
    for ordinal in 0..block.allocations.len() {
        let holder = block.attribute(ordinal);
        let is_over = match (holder.and_then(|it| it.released_at.as_deref()), cooldown) {
            (None, _) => false,
            (Some(_), Cooldown::None) => true,
            (Some(at), Cooldown::Since { cutoff, .. }) => {
                at.len() == cutoff.len() && at.ends_with('Z') && at < cutoff
            }
        };
        if is_over {
            block.allocations[ordinal] = None;
            block.unallocated.extend(i64::try_from(ordinal));
            block.sequence_number_for_allocation.remove(&ordinal.to_string());
        }
    }
    drop_unused_attributes(block);
}

fn drop_unused_attributes(block: &mut Block) {
    let used: BTreeSet<i64> = block.allocations.iter().flatten().copied().collect();
    let mut places = BTreeMap::new();
    let mut index = 0..;
    block.attributes.retain(|_| {
        let kept = index.next().filter(|index| used.contains(index));
        kept.map(|index| places.insert(index, places.len() as i64)).is_some()
    });
    for index in block.allocations.iter_mut().flatten() {
        *index = places.get(index).copied().unwrap_or(*index);
    }
}

fn count_write(block: &mut Block) {
    block.sequence_number = block.sequence_number.wrapping_add(1);
}

#[cfg(test)]
mod tests;
