//! Taking back what somebody else removed of an address that is in use.
//!
//! A workload that lives keeps its address: the place in the block, the count of its handle and
//! the claim of its node on the block are written again where they are missing. Only another
//! holder is respected.

use std::collections::BTreeMap;

use api::keys::ipam::{AffinityState, Attribute, Block};
use net::Cidr;

use crate::block::{hand_over, settled};
use crate::plan::{Stop, family_of};
use crate::reads::block_of;
use crate::record::block_key;
use crate::{Error, Owner, Planned, Planner, reserve_handle};

/// An address that is in use on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaim {
    /// The node where it is in use.
    pub node: String,
    /// The address, with the mask of its block if that is known.
    pub network: Cidr,
    /// The handle that holds it.
    pub handle: String,
    /// What its holder is called.
    pub attributes: BTreeMap<String, String>,
}

/// What was missing and is there again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lost {
    /// The block itself.
    Block(Cidr),
    /// The place of the address in its block.
    Address(Cidr),
    /// The handle, or its count.
    Handle(String),
    /// The node's claim on the block.
    Affinity(Cidr),
}

/// What became of an address that is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// What was missing; nothing if all was well.
    pub lost: Vec<Lost>,
    /// The sequence number under which the address is held.
    pub sequence: Option<u64>,
}

impl Planner<'_> {
    /// Makes sure that an address in use is held by its holder. [`Error::AlreadyAssigned`] if it
    /// is somebody else's by now.
    pub fn reclaim(&mut self, request: &Reclaim) -> Planned<Result<Reclaimed, Error>> {
        let result = self.reclaim_one(request);
        self.settle(result)
    }

    fn reclaim_one(&mut self, request: &Reclaim) -> Result<Reclaimed, Stop> {
        let network = request.network;
        let Some(cidr) = self.block_around(network)? else { return Ok(Reclaimed::default()) };
        let settings = self.settings()?;
        let owner = Owner::node(&request.node);
        let mut lost = Vec::new();
        let mut block = match self.fresh_block(cidr, &settings)? {
            Some(block) => block,
            None => {
                lost.push(Lost::Block(cidr));
                self.create_block(&owner, cidr, None)?
            }
        };
        let address = network.address();
        let ordinal =
            block.ordinal(address).ok_or(Error::NotInBlock { address, cidr: block.cidr })?;
        let mut is_changed = false;
        if !is_held(&block, ordinal, request) {
            if let Some(handle) = other_holder(&block, ordinal, request) {
                return Err(Error::AlreadyAssigned { address, handle }.into());
            }
            let holder = Attribute::new(Some(request.handle.clone()), request.attributes.clone());
            hand_over(&mut block, ordinal, &holder);
            block.unallocated.retain(|free| usize::try_from(*free) != Ok(ordinal));
            self.recount_if_readable(&reserve_handle(&request.node), cidr, Some(&block))?;
            lost.push(Lost::Address(network));
            is_changed = true;
        }
        let before = self.handle(&request.handle)?;
        self.recount(&request.handle, cidr, Some(&block))?;
        if self.handle(&request.handle)? != before {
            lost.push(Lost::Handle(request.handle.clone()));
        }
        if self.reclaim_affinity(&owner, cidr, &mut block)? {
            lost.push(Lost::Affinity(cidr));
            is_changed = true;
        }
        match is_changed {
            true => self.write_block(cidr, &mut block)?,
            // The handle counts what the block holds: that must still be so.
            false => self.depend(&block_key(cidr))?,
        }
        Ok(Reclaimed { lost, sequence: block.sequence_of(ordinal) })
    }

    /// Whether the claim on a block had to be written. A block of another node stays its own.
    fn reclaim_affinity(
        &mut self,
        owner: &Owner,
        cidr: Cidr,
        block: &mut Block,
    ) -> Result<bool, Stop> {
        match &block.affinity {
            Some(other) if *other != owner.to_string() => return Ok(false),
            Some(_) => {
                let state = self.claim(owner, cidr)?.map(|claim| claim.state);
                if matches!(state, Some(AffinityState::Confirmed | AffinityState::Unset)) {
                    return Ok(false);
                }
            }
            None => {
                block.affinity = Some(owner.to_string());
                block.affinity_claim_time = Some(self.now().text());
            }
        }
        self.confirm(owner, cidr)?;
        Ok(true)
    }

    /// The block of an address: by its mask, by the blocks there are, or by its pool.
    fn block_around(&self, network: Cidr) -> Result<Option<Cidr>, Stop> {
        let address = network.address();
        if Cidr::host(address).prefix_len() != network.prefix_len() {
            return Ok(Some(network.masked()));
        }
        let blocks = self.blocks(family_of(address))?;
        if let Some((cidr, _)) = blocks.iter().find(|(cidr, _)| cidr.contains(address)) {
            return Ok(Some(*cidr));
        }
        Ok(self.pool_of(address)?.and_then(|pool| block_of(address, &pool)))
    }
}

fn is_held(block: &Block, ordinal: usize, request: &Reclaim) -> bool {
    let handle = block.attribute(ordinal).and_then(|holder| holder.handle.as_deref());
    handle.map(settled) == Some(request.handle.as_str())
}

/// Somebody else who holds the address. One that rests after its release has no holder, the
/// node's own reserve makes room, and a place that lost only its handle still names our node.
fn other_holder(block: &Block, ordinal: usize, request: &Reclaim) -> Option<Option<String>> {
    let holder = block.attribute(ordinal).filter(|holder| holder.released_at.is_none())?;
    match holder.handle.as_deref().map(settled) {
        Some(handle) if handle == reserve_handle(&request.node) => None,
        None if holder.active_owner.get(Attribute::NODE) == Some(&request.node) => None,
        handle => Some(handle.map(str::to_owned)),
    }
}
