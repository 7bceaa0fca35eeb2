//! Handles: which addresses belong together.
//!
//! A handle says how many addresses it has in which block. Whenever we touch a block, the count is
//! set to what the block holds, so that a wrong count does not outlive the next change.

use api::keys::ipam::{Block, Handle};
use net::Cidr;

use crate::block::ordinals_of;
use crate::plan::Stop;
use crate::record::handle_key;
use crate::{Error, Planner};

impl Planner<'_> {
    /// Brings the count of a handle in line with a block; none for a block that is gone.
    pub(crate) fn recount(
        &mut self,
        handle: &str,
        cidr: Cidr,
        block: Option<&Block>,
    ) -> Result<(), Stop> {
        let key = handle_key(handle).ok_or(Error::UnnamedHandle)?;
        let held = block.map_or(0, |block| ordinals_of(block, handle).len());
        let held = i64::try_from(held).unwrap_or(i64::MAX);
        let before = self.handle(handle)?;
        let mut after = before.clone().unwrap_or_else(|| Handle::new(Default::default()));
        match held {
            0 => after.blocks.remove(&cidr.to_string()),
            _ => after.blocks.insert(cidr.to_string(), held),
        };
        match (after.blocks.is_empty(), before) {
            (true, None) => {}
            (true, Some(_)) => self.delete(&key)?,
            (false, before) if before.as_ref() == Some(&after) => self.depend(&key)?,
            (false, _) => self.put_json(&key, &after.encode())?,
        }
        Ok(())
    }

    /// As [`Planner::recount`], where a handle that cannot be read must not stop a release.
    pub(crate) fn recount_if_readable(
        &mut self,
        handle: &str,
        cidr: Cidr,
        block: Option<&Block>,
    ) -> Result<(), Stop> {
        match self.recount(handle, cidr, block) {
            Err(Stop::Failed(_)) => Ok(()),
            other => other,
        }
    }

    /// Refuses more addresses of a family than a handle may have; no limit if it is not positive.
    pub(crate) fn check_limit(
        &self,
        handle: &str,
        family: u8,
        more: i64,
        limit: i64,
    ) -> Result<Result<(), Error>, Stop> {
        if limit <= 0 {
            return Ok(Ok(()));
        }
        let blocks = self.handle(handle)?.map(|handle| handle.blocks).unwrap_or_default();
        let is_meant = |cidr: &str| cidr.contains(':') == (family == 6);
        let counts = blocks.iter().filter(|(cidr, _)| is_meant(cidr)).map(|(_, count)| *count);
        let held = counts.fold(0_i64, i64::saturating_add);
        if held.saturating_add(more) <= limit {
            return Ok(Ok(()));
        }
        Ok(Err(Error::HandleFull { handle: handle.to_owned(), held, limit }))
    }
}
