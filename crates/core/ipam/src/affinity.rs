//! Claims of owners on blocks: making, finding and giving them up.

use api::keys::ipam::{Affinity, AffinityState, Block, IpamConfig};
use api::keys::{AffinityType, BlockAffinityKey};
use net::Cidr;

use crate::block::{claimed, clear_affinity, is_empty};
use crate::plan::Stop;
use crate::record::{self, affinity_key, block_key};
use crate::walk::blocks_within;
use crate::{Error, HostReserved, Owner, Planned, Planner, Pool, Read};

/// What a claim on a range of blocks came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// The blocks that the owner has now.
    pub claimed: Vec<Cidr>,
    /// The blocks that others have.
    pub failed: Vec<Cidr>,
}

/// Why a claim was not given up.
pub(crate) enum Kept {
    /// There is no such claim, or no such block.
    Missing,
    /// The block belongs to somebody else; the claim was removed.
    Foreign,
    /// Addresses are in use.
    NotEmpty(Cidr),
}

impl Planner<'_> {
    /// Claims every block of a prefix for an owner. May ask for a commit in between.
    pub fn claim_affinity(&mut self, cidr: Cidr, owner: &Owner) -> Planned<Result<Claimed, Error>> {
        let result = self.claim_all(cidr, owner);
        self.settle(result)
    }

    fn claim_all(&mut self, cidr: Cidr, owner: &Owner) -> Result<Claimed, Stop> {
        let pool = self.pool_for_blocks(cidr)?;
        let family = if cidr.is_ipv4() { 4 } else { 6 };
        let claims = record::affinities_prefix(owner, Some(family));
        self.want([Read::Prefix(record::blocks_prefix(family)), Read::Prefix(claims)])?;
        let mut answer = Claimed::default();
        for block in blocks_within(cidr, pool.block_size) {
            self.need_room()?;
            match self.claim_block(owner, block, None)? {
                Some(_) => answer.claimed.push(block),
                None => answer.failed.push(block),
            }
        }
        Ok(answer)
    }

    /// The pool of a prefix of at least a block.
    fn pool_for_blocks(&self, cidr: Cidr) -> Result<Pool, Stop> {
        let pool = self.pool_of(cidr.address())?.ok_or(Error::CidrNotInPool { cidr })?;
        if cidr.prefix_len() > pool.block_size {
            return Err(Error::CidrTooSmall { cidr }.into());
        }
        Ok(pool)
    }

    /// Claims a block that may exist; none if it is somebody else's.
    pub(crate) fn claim_block(
        &mut self,
        owner: &Owner,
        cidr: Cidr,
        reserved: Option<&HostReserved>,
    ) -> Result<Option<Block>, Stop> {
        match self.block(cidr)? {
            None => self.create_block(owner, cidr, reserved).map(Some),
            Some(block) if block.affinity.as_ref() == Some(&owner.to_string()) => {
                // What needs no change takes no room in the transaction.
                let state = self.claim(owner, cidr)?.map(|claim| claim.state);
                if state != Some(AffinityState::Confirmed) {
                    self.confirm(owner, cidr)?;
                }
                Ok(Some(block))
            }
            Some(_) => {
                if self.claim(owner, cidr)?.is_some() {
                    self.drop_claim(owner, cidr)?;
                }
                Ok(None)
            }
        }
    }

    /// Makes a block and its claim, together.
    pub(crate) fn create_block(
        &mut self,
        owner: &Owner,
        cidr: Cidr,
        reserved: Option<&HostReserved>,
    ) -> Result<Block, Stop> {
        let block =
            claimed(cidr, owner, reserved, self.now()).ok_or(Error::CidrTooSmall { cidr })?;
        self.put_json(&block_key(cidr), &block.encode())?;
        self.confirm(owner, cidr)?;
        Ok(block)
    }

    pub(crate) fn confirm(&mut self, owner: &Owner, cidr: Cidr) -> Result<(), Stop> {
        let key = affinity_key(owner, cidr).ok_or(Error::UnnamedOwner)?;
        let mut claim =
            self.claim(owner, cidr)?.unwrap_or_else(|| Affinity::new(Default::default()));
        claim.state = AffinityState::Confirmed;
        // A view that knows all claims of the owner goes on knowing them.
        let family = if cidr.is_ipv4() { 4 } else { 6 };
        self.depend_on_prefix(&record::affinities_prefix(owner, Some(family))).ok();
        Ok(self.put_json(&key, &claim.encode())?)
    }

    pub(crate) fn drop_claim(&mut self, owner: &Owner, cidr: Cidr) -> Result<(), Stop> {
        let key = affinity_key(owner, cidr).ok_or(Error::UnnamedOwner)?;
        Ok(self.delete(&key)?)
    }

    /// The block that a claim is on, made if it is missing. None if the claim was stale: then it
    /// is gone.
    pub(crate) fn block_of_claim(
        &mut self,
        owner: &Owner,
        cidr: Cidr,
        reserved: Option<&HostReserved>,
    ) -> Result<Option<Block>, Stop> {
        let Some(mut block) = self.block(cidr)? else {
            return self.create_block(owner, cidr, reserved).map(Some);
        };
        if block.affinity.as_ref() != Some(&owner.to_string()) {
            self.drop_claim(owner, cidr)?;
            return Ok(None);
        }
        let state = self.claim(owner, cidr)?.map(|claim| claim.state);
        if !matches!(state, Some(AffinityState::Confirmed | AffinityState::Unset)) {
            // Whoever works on the block in the belief that it is being given up must notice.
            self.write_block(cidr, &mut block)?;
            self.confirm(owner, cidr)?;
        }
        Ok(Some(block))
    }

    /// Gives up a claim. The block goes if it is empty, and stays without an owner if not.
    pub(crate) fn give_up(
        &mut self,
        owner: &Owner,
        cidr: Cidr,
        must_be_empty: bool,
        settings: &IpamConfig,
    ) -> Result<Result<(), Kept>, Stop> {
        let key = affinity_key(owner, cidr).ok_or(Error::UnnamedOwner)?;
        if self.claim(owner, cidr)?.is_none() {
            return Ok(Err(Kept::Missing));
        }
        let Some(mut block) = self.fresh_block(cidr, settings)? else {
            return Ok(Err(Kept::Missing));
        };
        if block.affinity.as_ref().is_some_and(|it| *it != owner.to_string()) {
            self.drop_claim(owner, cidr)?;
            return Ok(Err(Kept::Foreign));
        }
        if is_empty(&block) {
            self.delete(&block_key(cidr))?;
        } else if must_be_empty {
            return Ok(Err(Kept::NotEmpty(block.cidr)));
        } else {
            clear_affinity(&mut block);
            self.put_json(&block_key(cidr), &block.encode())?;
        }
        self.delete(&key)?;
        Ok(Ok(()))
    }

    /// Gives up the claims of a node on every block of a prefix. May ask for a commit in between.
    pub fn release_affinity(
        &mut self,
        cidr: Cidr,
        node: &str,
        must_be_empty: bool,
    ) -> Planned<Result<(), Error>> {
        let result = self.release_range(cidr, node, must_be_empty);
        self.settle(result)
    }

    fn release_range(&mut self, cidr: Cidr, node: &str, must_be_empty: bool) -> Result<(), Stop> {
        let pool = self.pool_for_blocks(cidr)?;
        let settings = self.settings()?;
        let owner = Owner::node(node);
        let claims = self.claims(&owner, if cidr.is_ipv4() { 4 } else { 6 })?;
        let is_meant =
            |block: &Cidr| cidr.contains(block.address()) && block.prefix_len() == pool.block_size;
        let mut meant: Vec<Cidr> = claims.into_iter().filter(is_meant).collect();
        meant.sort_by_key(|block| block.address());
        for block in meant {
            self.need_room()?;
            if let Err(Kept::NotEmpty(cidr)) =
                self.give_up(&owner, block, must_be_empty, &settings)?
            {
                return Err(Error::NotEmpty { cidr }.into());
            }
        }
        Ok(())
    }

    /// Gives up the claim on a block, whoever has it.
    pub fn release_block_affinity(
        &mut self,
        cidr: Cidr,
        must_be_empty: bool,
    ) -> Planned<Result<(), Error>> {
        let result = self.release_block(cidr, must_be_empty);
        self.settle(result)
    }

    fn release_block(&mut self, cidr: Cidr, must_be_empty: bool) -> Result<(), Stop> {
        let Some(block) = self.block(cidr)? else {
            return Err(Error::NoSuchBlock { cidr }.into());
        };
        let Some((kind, name)) = block.owner() else { return Ok(()) };
        let owner = Owner { kind, name: name.to_owned() };
        let settings = self.settings()?;
        match self.give_up(&owner, cidr, must_be_empty, &settings)? {
            Err(Kept::NotEmpty(cidr)) => Err(Error::NotEmpty { cidr }.into()),
            _ => Ok(()),
        }
    }

    /// Gives up all claims of an owner. Blocks in use are an error if all must be empty; the
    /// others go all the same. May ask for a commit in between.
    pub fn release_host_affinities(
        &mut self,
        owner: &Owner,
        must_be_empty: bool,
    ) -> Planned<Result<(), Error>> {
        let result = self.release_all_of(owner, must_be_empty);
        self.settle(result)
    }

    fn release_all_of(&mut self, owner: &Owner, must_be_empty: bool) -> Result<(), Stop> {
        let prefixes = [4, 6].map(|it| Read::Prefix(record::affinities_prefix(owner, Some(it))));
        self.want(prefixes)?;
        let settings = self.settings()?;
        let mut refusal = None;
        for family in [4, 6] {
            for cidr in self.claims(owner, family)? {
                self.need_room()?;
                match self.give_up(owner, cidr, must_be_empty, &settings) {
                    Ok(Err(Kept::NotEmpty(cidr))) => refusal = Some(Error::NotEmpty { cidr }),
                    Ok(_) => {}
                    // One block that cannot be read does not keep the others.
                    Err(Stop::Failed(error)) => refusal = Some(error),
                    Err(pause) => return Err(pause),
                }
            }
        }
        refusal.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Gives up all claims of nodes on blocks of a pool. May ask for a commit in between.
    pub fn release_pool_affinities(&mut self, pool: Cidr) -> Planned<Result<(), Error>> {
        let result = self.release_all_in(pool);
        self.settle(result)
    }

    fn release_all_in(&mut self, pool: Cidr) -> Result<(), Stop> {
        let settings = self.settings()?;
        let anyone = Owner { kind: AffinityType::Host, name: String::new() };
        for (key, _) in self.scan(&record::affinities_prefix(&anyone, None))? {
            let Some(claim) = record::affinity_at(&key) else { continue };
            if pool.contains(claim.cidr.address()) {
                self.need_room()?;
                let owner = Owner { kind: claim.owner_type, name: claim.owner };
                self.give_up(&owner, claim.cidr, false, &settings)?.ok();
            }
        }
        Ok(())
    }

    /// Takes claims from their owners, even those on blocks that are missing or cannot be read.
    /// May ask for a commit in between.
    pub fn forget_claims(
        &mut self,
        is_meant: impl FnMut(&BlockAffinityKey) -> bool,
    ) -> Planned<Result<(), Error>> {
        let result = self.drop_claims(is_meant);
        self.settle(result)
    }

    fn drop_claims(
        &mut self,
        mut is_meant: impl FnMut(&BlockAffinityKey) -> bool,
    ) -> Result<(), Stop> {
        let settings = match self.settings() {
            Err(Stop::Failed(_)) => IpamConfig::default(),
            settings => settings?,
        };
        let mut claims = Vec::new();
        for kind in [AffinityType::Host, AffinityType::Virtual] {
            let anyone = Owner { kind, name: String::new() };
            let keys = self.scan(&record::affinities_prefix(&anyone, None))?.into_iter();
            claims.extend(keys.filter_map(|(key, _)| Some((record::affinity_at(&key)?, key))));
        }
        claims.retain(|(claim, _)| is_meant(claim));
        self.want(claims.iter().map(|(claim, _)| Read::Key(block_key(claim.cidr))))?;
        for (claim, key) in claims {
            self.need_room()?;
            let owner = Owner { kind: claim.owner_type, name: claim.owner };
            match self.give_up(&owner, claim.cidr, false, &settings) {
                Ok(Ok(()) | Err(Kept::Foreign)) => {}
                Ok(Err(_)) | Err(Stop::Failed(_)) => {
                    self.depend(&block_key(claim.cidr))?;
                    self.delete(&key)?;
                }
                Err(pause) => return Err(pause),
            }
        }
        Ok(())
    }

    /// Gives up all claims of a host and removes what is left of it. May ask for a commit in
    /// between.
    pub fn remove_ipam_host(&mut self, owner: &Owner) -> Planned<Result<(), Error>> {
        let result = self.forget_host(owner);
        self.settle(result)
    }

    fn forget_host(&mut self, owner: &Owner) -> Result<(), Stop> {
        self.release_all_of(owner, false)?;
        let key = record::host_key(&owner.name).ok_or(Error::UnnamedOwner)?;
        if self.record(&key)?.is_some() {
            self.delete(&key)?;
        }
        Ok(())
    }

    /// Brings the claims of a node into the form of this version. There is nothing to do in a
    /// store of keys and values: only Kubernetes objects lack labels that older versions did not
    /// write.
    pub fn upgrade_host(&mut self, _node: &str) -> Planned<Result<(), Error>> {
        Ok(Ok(()))
    }
}
