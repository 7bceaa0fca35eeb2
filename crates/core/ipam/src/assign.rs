//! Giving out addresses that the pools and blocks choose.

use api::Kind;
use api::keys::ipam::Attribute;
use net::Cidr;

use crate::block::take;
use crate::plan::{Stop, family_of};
use crate::record;
use crate::search::{Found, Search};
use crate::select::Wanted;
use crate::{
    Assigned, Assignment, AutoAssign, EnsureBlock, Ensured, Error, Owner, Planned, Planner, Read,
};

/// A guard against nodes that would take every block.
const BLOCKS_DEFAULT: i64 = 20;

impl Planner<'_> {
    /// Gives out addresses: from the blocks of the node, from new blocks, and, unless the settings
    /// forbid it, from other nodes' blocks. If one family fails, no address of the other is kept.
    pub fn auto_assign(&mut self, request: &AutoAssign) -> Planned<Assigned> {
        let mut answer = Assigned::default();
        let before = self.savepoint();
        for family in [4, 6].into_iter().filter(|family| request.number(*family) != 0) {
            let assigned = match self.assign_family(request, family) {
                Ok((assignment, error)) => {
                    answer.error = error;
                    Some(assignment)
                }
                Err(Stop::Failed(error)) => {
                    answer.error = Some(error);
                    None
                }
                Err(Stop::Pause(pause)) => return Err(pause),
            };
            match family {
                4 => answer.v4 = assigned,
                _ => answer.v6 = assigned,
            }
            if answer.error.is_some() {
                break;
            }
        }
        let families = answer.v4.iter().chain(&answer.v6);
        if answer.error.is_some() || families.into_iter().any(|it| missing(it) > 0) {
            self.doubt();
        }
        let is_half_done = answer.error.is_some() && answer.v4.is_some() && request.num6 != 0;
        if is_half_done && answer.v4.as_ref().is_some_and(|v4| !v4.addresses.is_empty()) {
            self.roll_back(before);
            answer.v4 = None;
        }
        Ok(answer)
    }

    /// The addresses so far, and what went wrong then.
    fn assign_family(
        &mut self,
        request: &AutoAssign,
        family: u8,
    ) -> Result<(Assignment, Option<Error>), Stop> {
        if request.pools(family).iter().any(|pool| family_of(pool.address()) != family) {
            return Err(Error::PoolOfOtherFamily { family }.into());
        }
        if request.purpose.is_empty() {
            return Err(Error::UseRequired.into());
        }
        self.want_all(request, family)?;
        let wanted = Wanted {
            node: &request.node,
            family,
            purpose: &request.purpose,
            pools: request.pools(family),
            reserved: request.reserved(family),
            namespace: request.namespace.as_ref(),
        };
        let mut search = self.begin(&wanted, &request.avoid)?;
        let mut answer = Assignment {
            family,
            requested: request.number(family),
            reserved_handle: wanted.reserved.map(|reserved| reserved.handle.clone()),
            ..Assignment::default()
        };
        let error = match self.fill(request, &mut search, &mut answer) {
            Ok(()) => None,
            Err(Stop::Failed(error)) => Some(error),
            Err(pause) => return Err(pause),
        };
        Ok((answer, error))
    }

    fn want_all(&self, request: &AutoAssign, family: u8) -> Planned<()> {
        let owner = Owner::asking(&request.node, &request.purpose);
        let handle = request.handle.as_deref().and_then(record::handle_key);
        let prefixes = [
            record::kind_prefix(Kind::IpReservation),
            record::kind_prefix(Kind::IpPool),
            record::affinities_prefix(&owner, Some(family)),
        ];
        let keys = [Some(record::settings_key()), record::node_key(&request.node), handle];
        let keys = keys.into_iter().flatten().map(Read::Key);
        self.want(prefixes.into_iter().map(Read::Prefix).chain(keys))
    }

    fn begin<'a>(
        &mut self,
        wanted: &Wanted<'a>,
        avoid: &'a std::collections::BTreeSet<std::net::IpAddr>,
    ) -> Result<Search<'a>, Stop> {
        let settings = self.settings()?;
        let reserved = self.reservations()?;
        self.depend_on_prefix(&record::kind_prefix(Kind::IpReservation))?;
        let selected = self.select(wanted, &settings)?;
        Ok(Search {
            owner: Owner::asking(wanted.node, wanted.purpose),
            family: wanted.family,
            pools: selected.pools,
            remaining: selected.blocks,
            host_reserved: wanted.reserved,
            reserved,
            avoid,
            settings,
        })
    }

    fn fill(
        &mut self,
        request: &AutoAssign,
        search: &mut Search<'_>,
        answer: &mut Assignment,
    ) -> Result<(), Stop> {
        let limit = block_limit(request.max_blocks, search.settings.max_blocks_per_host);
        let mut owned = i64::try_from(search.remaining.len()).unwrap_or(i64::MAX);
        while missing(answer) > 0 {
            let reached = Some(limit).filter(|limit| *limit > 0 && owned >= *limit);
            let (cidr, is_new) = match self.find_or_claim(search, 1, reached) {
                Ok(Found::Block(cidr, is_new)) => (cidr, is_new),
                Ok(Found::NoFreeBlocks) => {
                    if search.settings.strict_affinity {
                        let told = "No more free affine blocks and strict affinity enabled";
                        answer.say(told.to_owned());
                    }
                    break;
                }
                Err(Stop::Failed(Error::BlockLimit { limit })) => {
                    let told = format!("limit of {limit} blocks reached for this node");
                    answer.say(format!("Need to allocate an IPAM block but could not - {told}"));
                    return Err(Error::BlockLimit { limit }.into());
                }
                Err(other) => return Err(other),
            };
            owned = owned.saturating_add(i64::from(is_new));
            if self.draw(request, search, cidr, answer)? {
                return Ok(());
            }
        }
        if search.settings.strict_affinity || missing(answer) == 0 {
            return Ok(());
        }
        self.borrow(request, search, answer)
    }

    fn borrow(
        &mut self,
        request: &AutoAssign,
        search: &Search<'_>,
        answer: &mut Assignment,
    ) -> Result<(), Stop> {
        let mut exhausted = Vec::new();
        for pool in &search.pools {
            if missing(answer) == 0 {
                break;
            }
            for cidr in self.existing_in_walk_order(search, pool)? {
                if missing(answer) == 0 {
                    break;
                }
                if self.draw(request, search, cidr, answer)? {
                    return Ok(());
                }
            }
            if missing(answer) > 0 {
                exhausted.push(pool.cidr.to_string());
            }
        }
        if !exhausted.is_empty() {
            answer.say(format!("No IPs available in pools: [{}]", exhausted.join(" ")));
        }
        Ok(())
    }

    /// Takes what is missing from a block. True if the handle had its addresses already: then
    /// those are the answer.
    fn draw(
        &mut self,
        request: &AutoAssign,
        search: &Search<'_>,
        cidr: Cidr,
        answer: &mut Assignment,
    ) -> Result<bool, Stop> {
        let Some(mut block) = self.fresh_block(cidr, &search.settings)? else { return Ok(false) };
        let more = missing(answer);
        let count = usize::try_from(more).unwrap_or(0);
        let holder = Attribute::new(request.handle.clone(), request.attributes.clone());
        let taken = take(&mut block, count, &holder, |address| search.may_use(address));
        if taken.is_empty() {
            return Ok(false);
        }
        if let Some(handle) = &request.handle {
            let limit = request.max_per_handle;
            if let Err(full) = self.check_limit(handle, search.family, more, limit)? {
                return self.give_again(handle, full, answer);
            }
            self.recount(handle, cidr, Some(&block))?;
        }
        self.write_block(cidr, &mut block)?;
        self.rest_on_pool(search, cidr)?;
        let mask = block.cidr.prefix_len();
        answer.addresses.extend(taken.into_iter().filter_map(|it| Cidr::new(it, mask)));
        Ok(false)
    }

    /// The pool of the block must still be there, as it was.
    fn rest_on_pool(&mut self, search: &Search<'_>, cidr: Cidr) -> Planned<()> {
        let pool = search.pools.iter().find(|pool| pool.cidr.contains(cidr.address()));
        match pool.and_then(|pool| record::pool_key(&pool.name)) {
            Some(key) => self.depend(&key),
            None => Ok(()),
        }
    }

    /// A handle that has all the addresses it may have gets the same ones again.
    fn give_again(&self, handle: &str, full: Error, answer: &mut Assignment) -> Result<bool, Stop> {
        let held = self.addresses_of(handle)?;
        let held = held.into_iter().filter(|address| family_of(*address) == answer.family);
        let count = usize::try_from(answer.requested).unwrap_or(0);
        let again: Vec<Cidr> = held.map(Cidr::host).take(count).collect();
        if again.len() < count {
            return Err(full.into());
        }
        answer.addresses.extend(again);
        Ok(true)
    }

    /// Makes sure that a node has a block, with what the host keeps of it; gives no address out.
    pub fn ensure_block(&mut self, request: &EnsureBlock) -> Planned<Result<Ensured, Error>> {
        let result = self.ensure_blocks(request);
        self.settle(result)
    }

    fn ensure_blocks(&mut self, request: &EnsureBlock) -> Result<Ensured, Stop> {
        let mut answer = [None, None];
        let families =
            [(4, &request.reserved4, &request.pools4), (6, &request.reserved6, &request.pools6)];
        for (place, (family, reserved, pools)) in answer.iter_mut().zip(families) {
            if reserved.is_none() {
                continue;
            }
            if pools.iter().any(|pool| family_of(pool.address()) != family) {
                return Err(Error::PoolOfOtherFamily { family }.into());
            }
            let wanted = Wanted {
                node: &request.node,
                family,
                purpose: "Workload",
                pools,
                reserved: reserved.as_ref(),
                namespace: None,
            };
            let avoid = Default::default();
            let mut search = self.begin(&wanted, &avoid)?;
            match self.find_or_claim(&mut search, 0, None)? {
                Found::Block(cidr, _) => *place = Some(cidr),
                Found::NoFreeBlocks => {
                    return Err(Error::NoFreeBlocks { pools: search.pool_names() }.into());
                }
            }
        }
        let [v4, v6] = answer;
        Ok(Ensured { v4, v6 })
    }
}

fn missing(answer: &Assignment) -> i64 {
    let got = i64::try_from(answer.addresses.len()).unwrap_or(i64::MAX);
    answer.requested.saturating_sub(got).max(0)
}

/// The smaller of the two limits, or the one there is, or the default.
fn block_limit(requested: i64, configured: i64) -> i64 {
    let limit = match requested {
        0 => configured,
        _ if configured > 0 && requested > configured => configured,
        _ => requested,
    };
    if limit == 0 { BLOCKS_DEFAULT } else { limit }
}
