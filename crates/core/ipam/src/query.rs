//! Questions that change nothing.

use std::net::IpAddr;

use api::keys::ipam::Attribute;
use net::Cidr;

use crate::block::{holder_of, ordinals_of, settled};
use crate::plan::Stop;
use crate::reads::block_of;
use crate::record::{self, block_key};
use crate::{Error, Planned, Planner, PoolUsage, Read, usage};

impl Planner<'_> {
    /// The sequence number under which an address was given, as the plan would leave it: whoever
    /// releases the address names it, so that a late release frees nothing that was given to
    /// somebody else since.
    pub fn sequence_of(&self, address: IpAddr) -> Planned<Option<u64>> {
        let Some(pool) = self.pool_of(address)? else { return Ok(None) };
        let Some(cidr) = block_of(address, &pool) else { return Ok(None) };
        let block = match self.block(cidr) {
            Ok(Some(block)) => block,
            Ok(None) | Err(Stop::Failed(_)) => return Ok(None),
            Err(Stop::Pause(pause)) => return Err(pause),
        };
        Ok(block.ordinal(address).and_then(|ordinal| block.sequence_of(ordinal)))
    }

    /// The addresses that a handle holds.
    pub fn ips_by_handle(&mut self, handle: &str) -> Planned<Result<Vec<IpAddr>, Error>> {
        let result = self.addresses_of(handle);
        self.settle(result)
    }

    pub(crate) fn addresses_of(&self, handle: &str) -> Result<Vec<IpAddr>, Stop> {
        let missing = || Error::NoSuchHandle { handle: handle.to_owned() };
        let blocks = match self.handle(handle) {
            Err(Stop::Failed(Error::UnnamedHandle)) => return Err(missing().into()),
            other => other?.ok_or_else(missing)?.blocks,
        };
        let blocks: Vec<Cidr> = blocks.keys().filter_map(|cidr| cidr.parse().ok()).collect();
        self.want(blocks.iter().map(|cidr| Read::Key(block_key(*cidr))))?;
        let mut addresses = Vec::new();
        for cidr in blocks {
            match self.block(cidr) {
                Ok(Some(block)) => {
                    let held = ordinals_of(&block, handle).into_iter();
                    addresses.extend(held.filter_map(|ordinal| block.address(ordinal)));
                }
                // What a block that cannot be read holds is not known.
                Ok(None) | Err(Stop::Failed(_)) => {}
                Err(pause) => return Err(pause),
            }
        }
        addresses.sort_unstable();
        Ok(addresses)
    }

    /// Who holds an address of an enabled pool.
    pub fn get_attributes(&mut self, address: IpAddr) -> Planned<Result<Attribute, Error>> {
        let result = self.attributes_of(address);
        self.settle(result)
    }

    fn attributes_of(&mut self, address: IpAddr) -> Result<Attribute, Stop> {
        let pool = self.pool_of(address)?.ok_or(Error::NoPoolOfAddress { address })?;
        let settings = self.settings()?;
        let cidr = block_of(address, &pool).ok_or(Error::NoPoolOfAddress { address })?;
        let block = self.fresh_block(cidr, &settings)?.ok_or(Error::NoSuchBlock { cidr })?;
        let ordinal =
            block.ordinal(address).ok_or(Error::NotInBlock { address, cidr: block.cidr })?;
        match (holder_of(&block, address), block.attribute(ordinal)) {
            (Some(holder), _) => {
                let mut holder = holder.clone();
                holder.handle = holder.handle.map(|handle| settled(&handle).to_owned());
                Ok(holder)
            }
            (None, Some(_)) => Err(Error::InCooldown { address }.into()),
            (None, None) => Err(Error::Unassigned { address }.into()),
        }
    }

    /// How full pools are: those named, by name or CIDR, or all of them and the blocks in none.
    pub fn get_utilization(&mut self, wanted: &[String]) -> Planned<Vec<PoolUsage>> {
        let pools = record::kind_prefix(api::Kind::IpPool);
        let reservations = record::kind_prefix(api::Kind::IpReservation);
        let blocks = [4, 6].map(|family| Read::Prefix(record::blocks_prefix(family)));
        self.want([Read::Prefix(pools), Read::Prefix(reservations)].into_iter().chain(blocks))?;
        let is_wanted = |name: &str, cidr: &str| {
            wanted.is_empty() || wanted.iter().any(|it| it == name || it == cidr)
        };
        let pools: Vec<(String, Cidr)> = self
            .all_pools()?
            .into_iter()
            .flatten()
            .filter(|pool| is_wanted(&pool.name, &pool.cidr.to_string()))
            .map(|pool| (pool.name, pool.cidr))
            .collect();
        let reserved = self.reservations()?;
        let mut blocks = Vec::new();
        for family in [4, 6] {
            blocks.extend(self.blocks(family)?.into_iter().filter_map(|(_, block)| block));
        }
        let mut counted = usage(&pools, &blocks, &reserved.0);
        match counted.last_mut() {
            // Calico reports only IPv4 blocks outside every pool: it calls that pool 0.0.0.0/0.
            Some(orphans) if wanted.is_empty() => {
                orphans.blocks.retain(|block| block.cidr.is_ipv4());
            }
            _ => drop(counted.pop()),
        }
        Ok(counted)
    }
}
