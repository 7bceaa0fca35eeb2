//! In which order a node looks through the blocks of a pool.
//!
//! It begins at a place that its name decides, goes upwards and wraps at the end, so that nodes
//! spread over a pool and one node keeps to one part of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use net::Cidr;

use crate::go_random::GoRandom;
use crate::span::Reserved;
use crate::{Moment, Pool};

/// The blocks of one pool, seen from one node.
pub(crate) struct Walk {
    base: Cidr,
    block_size: u8,
    count: u128,
    start: u128,
}

impl Walk {
    /// Blocks of a single address begin anywhere: by the clock, as Calico has it.
    pub(crate) fn new(pool: &Pool, node: &str, now: Moment) -> Self {
        let bits = if pool.cidr.is_ipv4() { 32 } else { 128 };
        let free = u32::from(pool.block_size.saturating_sub(pool.cidr.prefix_len()));
        let count = 1_u128.checked_shl(free).unwrap_or(u128::MAX);
        let seed = match pool.block_size == bits {
            true => now.nanoseconds().cast_signed(),
            false => i64::from(fnv(node)),
        };
        let start = if count == 1 { 0 } else { GoRandom::new(seed).below(count) };
        Self { base: pool.cidr, block_size: pool.block_size, count, start }
    }

    /// The block at this distance from where the node begins.
    fn block(&self, distance: u128) -> Option<Cidr> {
        let index = match self.count - self.start {
            before_wrap if distance < before_wrap => self.start + distance,
            before_wrap => distance - before_wrap,
        };
        nth_block(self.base, self.block_size, index)
    }

    /// The distance of a block of the pool from where the node begins.
    pub(crate) fn distance(&self, block: Cidr) -> Option<u128> {
        let is_here = self.base.contains(block.address()) && block.prefix_len() == self.block_size;
        let index = (number(block.address())
            - number(self.base.address()).min(number(block.address())))
            >> width(block);
        is_here.then(|| match index.checked_sub(self.start) {
            Some(distance) => distance,
            None => self.count - self.start + index,
        })
    }

    /// The blocks that are not reserved as a whole, in order. Wide reservations are stepped over
    /// at once, for a pool may have more blocks than anybody can count.
    pub(crate) fn unreserved<'a>(&'a self, reserved: &'a Reserved) -> impl Iterator<Item = Cidr> {
        let mut distance = 0;
        std::iter::from_fn(move || {
            while distance < self.count {
                let block = self.block(distance)?;
                let here = distance;
                distance += 1;
                if !reserved.cover(block) {
                    return Some(block);
                }
                if let Some(last) = reserved.end_of_cover(block) {
                    let further = (last - number(block.address())) >> width(block);
                    let to_wrap = self.count - self.start;
                    let stop = if here < to_wrap { to_wrap } else { self.count };
                    distance = here.saturating_add(further).min(stop - 1) + 1;
                }
            }
            None
        })
    }
}

/// The blocks of a prefix, from its first address upwards.
pub(crate) fn blocks_within(cidr: Cidr, block_size: u8) -> impl Iterator<Item = Cidr> {
    let free = u32::from(block_size.saturating_sub(cidr.prefix_len()));
    let count = 1_u128.checked_shl(free).unwrap_or(u128::MAX);
    (0..count).map_while(move |index| nth_block(cidr, block_size, index))
}

fn width(block: Cidr) -> u32 {
    let bits = if block.is_ipv4() { 32 } else { 128 };
    u32::from(bits - block.prefix_len()).min(127)
}

/// The block at this place of a network, counted from 0.
pub fn nth_block(base: Cidr, block_size: u8, index: u128) -> Option<Cidr> {
    let first = Cidr::new(base.network(), block_size)?;
    let offset = index.checked_mul(1_u128.checked_shl(width(first))?)?;
    let address = match base.network() {
        IpAddr::V4(it) => {
            Ipv4Addr::from(u32::from(it).checked_add(u32::try_from(offset).ok()?)?).into()
        }
        IpAddr::V6(it) => Ipv6Addr::from(u128::from(it).checked_add(offset)?).into(),
    };
    Cidr::new(address, block_size)
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(it) => u128::from(u32::from(it)),
        IpAddr::V6(it) => u128::from(it),
    }
}

/// The 32-bit FNV-1 hash.
fn fnv(text: &str) -> u32 {
    text.bytes()
        .fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte))
}
