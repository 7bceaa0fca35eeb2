//! Letting addresses go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::keys::ipam::{Block, IpamConfig};
use net::Cidr;

use crate::block::{holder_of, is_empty, release, release_handle, settled};
use crate::plan::{Stop, family_of};
use crate::reads::block_of;
use crate::record::{self, block_key};
use crate::{Error, Owner, Planned, Planner, Read, Release};

/// What became of addresses to let go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Released {
    /// Those that nobody held.
    pub unallocated: Vec<IpAddr>,
    /// Those that are free now or were before.
    pub done: Vec<IpAddr>,
    /// The first thing that went wrong: the addresses of that block were not let go.
    pub error: Option<Error>,
}

impl Planner<'_> {
    /// Lets addresses go. If one of a block is not what was meant, none of that block goes.
    pub fn release_ips(&mut self, releases: &[Release]) -> Planned<Released> {
        let result = self.release_each(releases);
        match self.settle(result)? {
            Ok(released) => Ok(released),
            Err(error) => Ok(Released { error: Some(error), ..Released::default() }),
        }
    }

    fn release_each(&mut self, releases: &[Release]) -> Result<Released, Stop> {
        if let Some(release) = releases.iter().find(|it| it.address.is_empty()) {
            let (handle, sequence) = (release.handle.clone(), release.sequence);
            return Err(Error::NoAddress { handle, sequence }.into());
        }
        let mut answer = Released::default();
        let by_block = self.by_block(releases, &mut answer)?;
        self.want(by_block.keys().map(|cidr| Read::Key(block_key(*cidr))))?;
        let settings = self.settings()?;
        for (cidr, wanted) in by_block {
            match self.release_in_block(cidr, &wanted, &settings) {
                Ok(free) => {
                    answer.unallocated.extend(free);
                    // Named twice, reported twice: callers count.
                    let named = releases.iter().filter_map(|it| net::parse_ip(&it.address));
                    answer.done.extend(named.filter(|it| wanted.contains_key(it)));
                }
                Err(Stop::Failed(error)) => {
                    answer.error.get_or_insert(error);
                }
                Err(pause) => return Err(pause),
            }
        }
        if !answer.unallocated.is_empty() || answer.error.is_some() {
            self.doubt();
        }
        answer.unallocated.sort_unstable();
        answer.done.sort_unstable();
        Ok(answer)
    }

    /// The addresses by the block that they lie in: that of the pool, enabled or not, or any that
    /// holds them. Those without one are free.
    fn by_block<'r>(
        &self,
        releases: &'r [Release],
        answer: &mut Released,
    ) -> Result<BTreeMap<Cidr, BTreeMap<IpAddr, &'r Release>>, Stop> {
        let pools: Vec<_> = self.all_pools()?.into_iter().flatten().collect();
        let mut by_block: BTreeMap<Cidr, BTreeMap<IpAddr, &Release>> = BTreeMap::new();
        for release in releases {
            let text = &release.address;
            let address =
                net::parse_ip(text).ok_or_else(|| Error::NotAnAddress { text: text.clone() })?;
            let pool = pools.iter().find(|pool| pool.cidr.contains(address));
            let cidr = match pool {
                Some(pool) => block_of(address, pool),
                None => {
                    let blocks = self.blocks(family_of(address))?;
                    blocks.into_iter().map(|it| it.0).find(|cidr| cidr.contains(address))
                }
            };
            match cidr {
                Some(cidr) => drop(by_block.entry(cidr).or_default().insert(address, release)),
                None => answer.unallocated.push(address),
            }
        }
        Ok(by_block)
    }

    /// Returns the addresses that nobody held.
    fn release_in_block(
        &mut self,
        cidr: Cidr,
        wanted: &BTreeMap<IpAddr, &Release>,
        settings: &IpamConfig,
    ) -> Result<Vec<IpAddr>, Stop> {
        let Some(mut block) = self.fresh_block(cidr, settings)? else {
            return Ok(wanted.keys().copied().collect());
        };
        let mut free = Vec::new();
        let mut going = Vec::new();
        let mut handles = BTreeSet::new();
        for (address, release) in wanted {
            match check(&block, *address, release)? {
                None => free.push(*address),
                Some(handle) => {
                    going.push(*address);
                    handles.insert(handle);
                }
            }
        }
        if !going.is_empty() {
            release(&mut block, &going, self.cooldown(settings));
            self.finish_release(cidr, block, handles, settings)?;
        }
        Ok(free)
    }

    /// Writes a block from which addresses went, with everything that follows from it.
    fn finish_release(
        &mut self,
        cidr: Cidr,
        block: Block,
        handles: BTreeSet<String>,
        settings: &IpamConfig,
    ) -> Result<(), Stop> {
        match is_empty(&block) && block.affinity.is_none() {
            true => self.delete(&block_key(cidr))?,
            false => self.put_json(&block_key(cidr), &block.encode())?,
        }
        for handle in handles.iter().filter(|handle| !handle.is_empty()) {
            self.recount_if_readable(handle, cidr, Some(&block))?;
        }
        let Some((kind, name)) = block.owner().filter(|(_, name)| !name.is_empty()) else {
            return Ok(());
        };
        let owner = Owner { kind, name: name.to_owned() };
        // A node that cannot be read is no reason to keep an address.
        let labels = match self.node_labels(&owner.name) {
            Err(Stop::Failed(_)) => return Ok(()),
            other => other?,
        };
        match labels {
            Some(labels) => self.leave_if_unselected(&owner, cidr, &labels, settings),
            None => Ok(()),
        }
    }

    /// Lets go everything that a handle holds.
    pub fn release_by_handle(&mut self, handle: &str) -> Planned<Result<(), Error>> {
        let result = self.release_of(settled(handle));
        self.settle(result)
    }

    fn release_of(&mut self, handle: &str) -> Result<(), Stop> {
        let missing = || Error::NoSuchHandle { handle: handle.to_owned() };
        let blocks = match self.handle(handle) {
            Err(Stop::Failed(Error::UnnamedHandle)) => return Err(missing().into()),
            other => other?.ok_or_else(missing)?.blocks,
        };
        let blocks: Vec<Cidr> = blocks.keys().filter_map(|cidr| cidr.parse().ok()).collect();
        self.want(blocks.iter().map(|cidr| Read::Key(block_key(*cidr))))?;
        let settings = self.settings()?;
        for cidr in blocks {
            let cidr: Cidr = cidr;
            let Some(mut block) = self.fresh_block(cidr, &settings)? else {
                // Nothing is left there; the plan rests on that.
                self.depend(&block_key(cidr))?;
                self.recount(handle, cidr, None)?;
                continue;
            };
            match release_handle(&mut block, handle, self.cooldown(&settings)) {
                0 => {
                    self.depend(&block_key(cidr))?;
                    self.recount(handle, cidr, Some(&block))?;
                }
                _ => {
                    crate::block::count_write(&mut block);
                    let handles = BTreeSet::from([handle.to_owned()]);
                    self.finish_release(cidr, block, handles, &settings)?;
                }
            }
        }
        Ok(())
    }

    /// Frees the addresses of a block that rested long enough.
    pub fn gc_cold_ips(&mut self, cidr: Cidr) -> Planned<Result<(), Error>> {
        let result = self.collect_block(cidr);
        self.settle(result)
    }

    fn collect_block(&mut self, cidr: Cidr) -> Result<(), Stop> {
        self.want([Read::Key(record::settings_key()), Read::Key(block_key(cidr))])?;
        let settings = self.settings()?;
        let mut block = self.block(cidr)?.ok_or(Error::NoSuchBlock { cidr })?;
        if crate::block::collect(&mut block, self.cooldown(&settings)) {
            self.write_block(cidr, &mut block)?;
        }
        Ok(())
    }
}

/// The handle to let go of, or none if nobody holds the address; an error if somebody else does.
fn check(block: &Block, address: IpAddr, wanted: &Release) -> Result<Option<String>, Error> {
    let ordinal = block.ordinal(address).ok_or(Error::NotInBlock { address, cidr: block.cidr })?;
    let stored = block.sequence_of(ordinal).unwrap_or(0);
    if let Some(given) = wanted.sequence.filter(|given| *given != stored) {
        return Err(Error::OtherSequence { address, given, stored });
    }
    let Some(holder) = holder_of(block, address) else { return Ok(None) };
    let held = settled(holder.handle.as_deref().unwrap_or_default()).to_owned();
    let given = settled(&wanted.handle);
    if !given.is_empty() && given != held {
        let given = given.to_owned();
        return Err(Error::OtherHandle { address, given, stored: held });
    }
    Ok(Some(held))
}
