//! A few addresses allocated beforehand, so that a node can start workloads while the datastore
//! is gone.
//!
//! They are held under a handle of the node and carry no attributes, so that Calico's collector
//! of leaked addresses leaves them alone. To use one is to hand it over to another handle.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::keys::ipam::Attribute;
use net::Cidr;

use crate::block::{collect, hand_over};
use crate::plan::{Stop, family_of};
use crate::{Assigned, AutoAssign, Error, Owner, Planned, Planner};

/// The handle that holds the reserve of a node.
pub fn reserve_handle(node: &str) -> String {
    format!("{RESERVE}{node}")
}

/// How such a handle begins.
const RESERVE: &str = "margay-reserve.";

/// The node whose reserve a handle holds, if it is one of these.
pub fn node_of_reserve(handle: &str) -> Option<&str> {
    handle.strip_prefix(RESERVE)
}

impl Planner<'_> {
    /// The addresses in the reserve of a node.
    pub fn reserve(&mut self, node: &str) -> Planned<Result<Vec<IpAddr>, Error>> {
        match self.ips_by_handle(&reserve_handle(node))? {
            Err(Error::NoSuchHandle { .. }) => Ok(Ok(Vec::new())),
            other => Ok(other),
        }
    }

    /// Fills the reserve of a node up to so many addresses of each family. The request says which
    /// pools and limits count; its handle, attributes and numbers do not. Nothing is borrowed: who
    /// uses an address of another node's block must say so beside it, and a reserve says nothing.
    pub fn fill_reserve(
        &mut self,
        count4: usize,
        count6: usize,
        request: &AutoAssign,
    ) -> Planned<Assigned> {
        let held = match self.reserve(&request.node)? {
            Ok(held) => held,
            Err(error) => return Ok(Assigned { error: Some(error), ..Assigned::default() }),
        };
        let missing = |family: u8, count: usize| {
            let held = held.iter().filter(|address| family_of(**address) == family).count();
            i64::try_from(count.saturating_sub(held)).unwrap_or(i64::MAX)
        };
        let request = AutoAssign {
            num4: missing(4, count4),
            num6: missing(6, count6),
            handle: Some(reserve_handle(&request.node)),
            attributes: BTreeMap::new(),
            max_per_handle: 0,
            ..request.clone()
        };
        let before = self.savepoint();
        let assigned = self.auto_assign(&request)?;
        for address in assigned.addresses() {
            if !self.is_in_own_block(&request.node, address)? {
                self.roll_back(before);
                return Ok(Assigned::default());
            }
        }
        Ok(assigned)
    }

    fn is_in_own_block(&self, node: &str, address: Cidr) -> Planned<bool> {
        let owner = Owner::node(node).to_string();
        match self.block(address.masked()) {
            Ok(block) => Ok(block.is_some_and(|block| block.affinity == Some(owner))),
            Err(Stop::Failed(_)) => Ok(false),
            Err(Stop::Pause(pause)) => Err(pause),
        }
    }

    /// An address with the mask of its block; none if it is in no enabled pool.
    pub fn within_block(&self, address: IpAddr) -> Planned<Option<Cidr>> {
        let pool = self.pool_of(address)?;
        Ok(pool.and_then(|pool| Cidr::new(address, pool.block_size)))
    }

    /// Hands an address of the reserve of a node over to a handle: the holder in the block and
    /// both handles change together. Returns it with the mask of its block.
    pub fn take_reserve(
        &mut self,
        node: &str,
        address: IpAddr,
        holder: &Attribute,
    ) -> Planned<Result<Cidr, Error>> {
        let result = self.own_reserve(node, address, holder);
        self.settle(result)
    }

    fn own_reserve(
        &mut self,
        node: &str,
        address: IpAddr,
        holder: &Attribute,
    ) -> Result<Cidr, Stop> {
        let reserve = reserve_handle(node);
        let missing = || Stop::Failed(Error::NotInReserve { node: node.to_owned() });
        // The block says who holds an address; a handle that somebody removed is made anew.
        let cidr = match self.handle(&reserve)? {
            Some(handle) => {
                let blocks = handle.blocks.keys().filter_map(|cidr| cidr.parse::<Cidr>().ok());
                blocks.into_iter().find(|cidr| cidr.contains(address))
            }
            None => None,
        };
        let cidr = match cidr {
            Some(cidr) => cidr,
            None => self.within_block(address)?.ok_or_else(missing)?.masked(),
        };
        let settings = self.settings()?;
        let mut block = self.fresh_block(cidr, &settings)?.ok_or_else(missing)?;
        let ordinal = block.ordinal(address).ok_or_else(missing)?;
        let held = block.attribute(ordinal).and_then(|held| held.handle.as_deref());
        if held != Some(reserve.as_str()) {
            return Err(missing());
        }
        hand_over(&mut block, ordinal, holder);
        collect(&mut block, self.cooldown(&settings));
        self.recount(&reserve, cidr, Some(&block))?;
        if let Some(handle) = &holder.handle {
            self.recount(handle, cidr, Some(&block))?;
        }
        self.write_block(cidr, &mut block)?;
        let mask = block.cidr.prefix_len();
        Ok(Cidr::new(address, mask).unwrap_or_else(|| Cidr::host(address)))
    }
}
