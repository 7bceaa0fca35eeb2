//! Giving out one address that the caller names.

use api::keys::ipam::{Attribute, Block};

use crate::block::take_one;
use crate::plan::{Stop, family_of};
use crate::reads::block_of;
use crate::record;
use crate::{AssignIp, Error, Owner, Planned, Planner};

impl Planner<'_> {
    /// Gives out one address. The node claims its block if nobody has it; reservations and the
    /// selectors of the pool do not count.
    pub fn assign_ip(&mut self, request: &AssignIp) -> Planned<Result<(), Error>> {
        let result = self.assign_one(request);
        self.settle(result)
    }

    fn assign_one(&mut self, request: &AssignIp) -> Result<(), Stop> {
        let address = request.address;
        let pool = self.pool_of(address)?.ok_or(Error::NotInPool { address })?;
        if !request.purpose.is_empty() && !pool.allows(&request.purpose) {
            let (purpose, allowed) = (request.purpose.clone(), pool.allowed_uses);
            return Err(Error::UseNotAllowed { address, pool: pool.name, purpose, allowed }.into());
        }
        if let Some(key) = record::pool_key(&pool.name) {
            self.depend(&key)?;
        }
        let settings = self.settings()?;
        let owner = Owner::asking(&request.node, &request.purpose);
        let cidr = block_of(address, &pool).ok_or(Error::NotInPool { address })?;
        let mut block = match self.fresh_block(cidr, &settings)? {
            Some(block) => block,
            None => self.create_block(&owner, cidr, request.reserved.as_ref())?,
        };
        if settings.strict_affinity {
            check_affinity(&block, &owner)?;
        }
        let ordinal =
            block.ordinal(address).ok_or(Error::NotInBlock { address, cidr: block.cidr })?;
        let holder = Attribute::new(request.handle.clone(), request.attributes.clone());
        if !take_one(&mut block, ordinal, &holder) {
            let held = block.attribute(ordinal).and_then(|it| it.handle.clone());
            let is_repeated = request.max_per_handle > 0
                && request.handle.is_some()
                && held.as_deref().map(crate::block::settled) == request.handle.as_deref();
            return match is_repeated {
                true => Ok(()),
                false => Err(Error::AlreadyAssigned { address, handle: held }.into()),
            };
        }
        if let Some(handle) = &request.handle {
            let limit = request.max_per_handle;
            if self.check_limit(handle, family_of(address), 1, limit)?.is_err() {
                let handle = handle.clone();
                return Err(Error::HandleHasOther { handle, address, limit }.into());
            }
            self.recount(handle, cidr, Some(&block))?;
        }
        Ok(self.write_block(cidr, &mut block)?)
    }
}

/// Under strict affinity only the owner of a block takes addresses from it.
fn check_affinity(block: &Block, owner: &Owner) -> Result<(), Error> {
    match &block.affinity {
        None => Err(Error::NoAffinity { cidr: block.cidr }),
        Some(other) if *other != owner.to_string() => {
            Err(Error::ForeignBlock { owner: other.clone() })
        }
        Some(_) => Ok(()),
    }
}
