//! Which pools serve a request, and which blocks of them the node has.

use std::collections::BTreeMap;

use api::Kind;
use api::keys::ipam::IpamConfig;
use net::Cidr;

use crate::plan::{Stop, family_of};
use crate::record;
use crate::request::LOAD_BALANCER;
use crate::{Error, HostReserved, Owner, Planner, Pool, Read, Refusal};

/// What a request for addresses or a block is about, for one family.
pub(crate) struct Wanted<'a> {
    pub(crate) node: &'a str,
    pub(crate) family: u8,
    pub(crate) purpose: &'a str,
    pub(crate) pools: &'a [Cidr],
    pub(crate) reserved: Option<&'a HostReserved>,
    pub(crate) namespace: Option<&'a BTreeMap<String, String>>,
}

/// The pools to use, in order, and the blocks in them that the node claims.
pub(crate) struct Selected {
    pub(crate) pools: Vec<Pool>,
    pub(crate) blocks: Vec<Cidr>,
}

/// The longest prefix of blocks that leaves an address beside what the host keeps.
fn max_prefix_len(wanted: &Wanted<'_>) -> Result<u8, Error> {
    let bits: u8 = if wanted.family == 4 { 32 } else { 128 };
    let Some(reserved) = wanted.reserved else { return Ok(bits) };
    let kept = reserved.start.saturating_add(reserved.end);
    let width = kept.checked_ilog2().ok_or(Error::BadHostReserved)? + 1;
    let longest = u8::try_from(width).ok().and_then(|width| bits.checked_sub(width));
    longest.filter(|it| *it > 0).ok_or(Error::BadHostReserved)
}

impl Planner<'_> {
    pub(crate) fn select(
        &mut self,
        wanted: &Wanted<'_>,
        settings: &IpamConfig,
    ) -> Result<Selected, Stop> {
        let owner = Owner::asking(wanted.node, wanted.purpose);
        let claims = record::affinities_prefix(&owner, Some(wanted.family));
        let pools = record::kind_prefix(Kind::IpPool);
        self.want([Read::Prefix(pools.clone()), Read::Prefix(claims)])?;
        let labels = match wanted.purpose == LOAD_BALANCER {
            true => BTreeMap::new(),
            false => self
                .node_labels(wanted.node)?
                .ok_or_else(|| Stop::Failed(Error::NoSuchNode { node: wanted.node.to_owned() }))?,
        };
        let longest = max_prefix_len(wanted)?;
        self.depend_on_prefix(&pools)?;
        let selecting = self.selecting(wanted, &labels, longest)?;
        let (pools, others): (Vec<Pool>, Vec<Pool>) =
            selecting.iter().cloned().partition(|pool| pool.allows(wanted.purpose));
        if pools.is_empty() {
            let refusals = others.into_iter().map(|it| (it.name, Refusal::Uses(it.allowed_uses)));
            let purpose = Some(wanted.purpose.to_owned());
            return Err(Error::NoQualifiedPool { purpose, refusals: refusals.collect() }.into());
        }
        let holds = |pools: &[Pool], block: &Cidr| {
            pools.iter().any(|pool| pool.cidr.contains(block.address()))
        };
        let claims = self.claims(&owner, wanted.family)?;
        let (blocks, others): (Vec<Cidr>, Vec<Cidr>) =
            claims.into_iter().partition(|block| holds(&pools, block));
        for block in others.into_iter().filter(|block| !holds(&selecting, block)) {
            self.leave_if_unselected(&owner, block, &labels, settings)?;
        }
        Ok(Selected { pools, blocks })
    }

    /// The pools that were asked for, or else those that serve the node and the namespace.
    fn selecting(
        &self,
        wanted: &Wanted<'_>,
        labels: &BTreeMap<String, String>,
        longest: u8,
    ) -> Result<Vec<Pool>, Stop> {
        let mut refusals = Vec::new();
        let mut enabled = Vec::new();
        for pool in self.all_pools()? {
            match pool {
                Err((name, why)) => refusals.push((name, Refusal::Unreadable(why))),
                Ok(pool) if family_of(pool.cidr.address()) != wanted.family => {}
                Ok(Pool { name, closed: Some(why), .. }) => {
                    refusals.push((name, Refusal::Closed(why)));
                }
                Ok(pool) if pool.block_size > longest => {
                    refusals.push((pool.name, Refusal::BlocksTooSmall));
                }
                Ok(pool) => enabled.push(pool),
            }
        }
        if enabled.is_empty() {
            return Err(Error::NoQualifiedPool { purpose: None, refusals }.into());
        }
        if !wanted.pools.is_empty() {
            let find = |cidr: &Cidr| {
                let cidr = cidr.masked();
                let pool = enabled.iter().find(|pool| pool.cidr == cidr).cloned();
                pool.ok_or(Stop::Failed(Error::NoSuchPool { cidr }))
            };
            return wanted.pools.iter().map(find).collect();
        }
        let nothing = BTreeMap::new();
        let mut selecting = Vec::new();
        for pool in enabled {
            match pool.refusal(labels, wanted.namespace.unwrap_or(&nothing)) {
                None => selecting.push(pool),
                Some(refusal) => refusals.push((pool.name, refusal)),
            }
        }
        if selecting.is_empty() {
            let node = wanted.node.to_owned();
            return Err(Error::NoPoolForNode { node, refusals }.into());
        }
        Ok(selecting)
    }

    /// Gives up an empty block whose pool does not select the node any more.
    pub(crate) fn leave_if_unselected(
        &mut self,
        owner: &Owner,
        block: Cidr,
        labels: &BTreeMap<String, String>,
        settings: &IpamConfig,
    ) -> Result<(), Stop> {
        let Some(pool) = self.pool_of(block.address())? else { return Ok(()) };
        if pool.selects_node(labels) {
            return Ok(());
        }
        match self.give_up(owner, block, true, settings) {
            Err(Stop::Pause(pause)) => Err(pause.into()),
            // The block is in use, somebody else's, or cannot be read: then it stays.
            _ => Ok(()),
        }
    }
}
