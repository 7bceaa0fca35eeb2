//! How full pools and blocks are, and who sits on addresses of other nodes' blocks.

use std::net::IpAddr;

use api::keys::ipam::Block;
use net::Cidr;

use crate::span::{Span, total, without};
use crate::{holders, node_of_reserve};

/// How full a block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockUsage {
    /// The prefix.
    pub cidr: Cidr,
    /// How many addresses it has.
    pub capacity: u64,
    /// How many are held.
    pub in_use: u64,
    /// How many of these nodes hold for times without the datastore.
    pub in_reserve: u64,
    /// How many a reservation covers, held or not.
    pub reserved: u64,
    /// How many are neither.
    pub free: u64,
}

/// How full a pool is. Numbers stop at the largest signed 64-bit number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// The pool's name; `None` for the blocks that lie in no pool.
    pub name: Option<String>,
    /// The prefix; `None` for the blocks that lie in no pool.
    pub cidr: Option<Cidr>,
    /// How many addresses it has.
    pub capacity: u64,
    /// How many are held.
    pub in_use: u64,
    /// How many of these nodes hold for times without the datastore.
    pub in_reserve: u64,
    /// How many a reservation covers, held or not.
    pub reserved: u64,
    /// How many are neither, in blocks or outside.
    pub free: u64,
    /// The same numbers where they do not stop.
    pub exact: Exact,
    /// Its blocks.
    pub blocks: Vec<BlockUsage>,
}

/// Numbers of addresses that may be larger than 64 bits hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exact {
    /// How many addresses there are.
    pub capacity: u128,
    /// How many a reservation covers.
    pub reserved: u128,
    /// How many can be given out.
    pub free: u128,
}

/// An address held by another node than the one the block belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Borrowed {
    /// The address.
    pub address: IpAddr,
    /// The node that uses it.
    pub node: String,
    /// The block it lies in.
    pub block: Cidr,
    /// The node that owns the block; empty for none.
    pub owner: String,
    /// What uses it (`pod`, `vmi`, `ipipTunnelAddress`…); empty when unknown.
    pub kind: String,
    /// The namespace and name of what uses it; empty when unknown.
    pub allocated_to: String,
}

/// Counts, pool by pool in the order given; the last entry holds the blocks that lie in no pool.
pub fn usage(pools: &[(String, Cidr)], blocks: &[Block], reserved: &[Cidr]) -> Vec<PoolUsage> {
    let mut all: Vec<PoolUsage> = pools
        .iter()
        .map(|(name, cidr)| empty_pool(Some(name.clone()), Some(cidr.masked())))
        .chain([empty_pool(None, None)])
        .collect();
    for block in blocks {
        let home = all.iter_mut().find(|pool| pool.cidr.is_none_or(|it| it.overlaps(block.cidr)));
        if let Some(pool) = home {
            pool.blocks.push(block_usage(block, reserved));
        }
    }
    for pool in &mut all {
        let Some(cidr) = pool.cidr else { continue };
        let size = Span::of(cidr).size();
        let assignable = without(vec![Span::of(cidr)], reserved.iter().copied());
        let outside = without(assignable.clone(), pool.blocks.iter().map(|block| block.cidr));
        let sum = |count: fn(&BlockUsage) -> u64| pool.blocks.iter().map(count).sum::<u64>();
        let exact = Exact {
            capacity: size,
            reserved: size.saturating_sub(total(&assignable)),
            free: u128::from(sum(|block| block.free)).saturating_add(total(&outside)),
        };
        pool.in_use = sum(|block| block.in_use);
        pool.in_reserve = sum(|block| block.in_reserve);
        pool.capacity = clamp(exact.capacity);
        pool.reserved = clamp(exact.reserved);
        pool.free = clamp(exact.free);
        pool.exact = exact;
    }
    all
}

fn empty_pool(name: Option<String>, cidr: Option<Cidr>) -> PoolUsage {
    let (exact, blocks) = (Exact::default(), Vec::new());
    PoolUsage {
        name,
        cidr,
        capacity: 0,
        in_use: 0,
        in_reserve: 0,
        reserved: 0,
        free: 0,
        exact,
        blocks,
    }
}

fn block_usage(block: &Block, reserved: &[Cidr]) -> BlockUsage {
    let capacity = block.size();
    let is_reserved = |address: IpAddr| reserved.iter().any(|cidr| cidr.contains(address));
    let free = block.unallocated.iter().filter_map(|at| block.address(usize::try_from(*at).ok()?));
    let assignable = total(&without(vec![Span::of(block.cidr)], reserved.iter().copied()));
    let is_in_reserve =
        |handle: &Option<String>| handle.as_deref().and_then(node_of_reserve).is_some();
    BlockUsage {
        cidr: block.cidr.masked(),
        capacity,
        in_use: capacity.saturating_sub(block.unallocated.len() as u64),
        in_reserve: holders(block).filter(|(_, it)| is_in_reserve(&it.handle)).count() as u64,
        reserved: capacity.saturating_sub(clamp(assignable)),
        free: free.filter(|address| !is_reserved(*address)).count() as u64,
    }
}

/// The borrowed addresses, and how many addresses do not say which node uses them.
pub fn borrowed(blocks: &[Block]) -> (Vec<Borrowed>, usize) {
    let mut found = Vec::new();
    let mut unclassified = 0;
    for block in blocks {
        let affinity = block.affinity.as_deref().unwrap_or_default();
        let owner = match affinity.split(':').collect::<Vec<_>>()[..] {
            [_, host] => host,
            [first, ..] => first,
            [] => "",
        };
        for (address, holder) in holders(block) {
            let text = |name: &str| holder.active_owner.get(name).cloned();
            let Some(node) = text("node") else {
                unclassified += 1;
                continue;
            };
            if node == owner {
                continue;
            }
            let namespace = text("namespace").unwrap_or_default();
            let (kind, allocated_to) = match (text("vmi-name"), text("pod"), text("type")) {
                (Some(machine), ..) => ("vmi".to_owned(), format!("{namespace}/{machine}")),
                (_, Some(pod), _) => ("pod".to_owned(), format!("{namespace}/{pod}")),
                (.., kind) => (kind.unwrap_or_default(), String::new()),
            };
            let (block, owner) = (block.cidr.masked(), owner.to_owned());
            found.push(Borrowed { address, node, block, owner, kind, allocated_to });
        }
    }
    (found, unclassified)
}

fn clamp(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX).min(i64::MAX.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cidr(text: &str) -> Cidr {
        Cidr::parse_strict(text).unwrap()
    }

    fn block(text: &str, held: &[u64]) -> Block {
        let allocations: Vec<_> = (0..8).map(|at| held.contains(&at).then_some(0)).collect();
        let free: Vec<_> = (0..8).filter(|at| !held.contains(at)).collect();
        Block::decode(&json!({
            "cidr": text, "affinity": "host:n1", "allocations": allocations, "unallocated": free,
            "attributes": [{"secondary": {"node": "n2", "pod": "p", "namespace": "x"}}],
        }))
        .unwrap()
    }

    #[test]
    fn reserved_addresses_count_once_and_also_outside_blocks() {
        let pools = [("a".to_owned(), cidr("10.0.0.0/27"))];
        let blocks = [block("10.0.0.0/29", &[0, 1]), block("10.9.0.0/29", &[])];
        let reserved =
            [cidr("10.0.0.1/32"), cidr("10.0.0.2/31"), cidr("10.0.0.3/32"), cidr("10.0.0.30/31")];
        let counted = usage(&pools, &blocks, &reserved);
        let pool = &counted[0];
        assert_eq!((pool.capacity, pool.in_use, pool.reserved, pool.free), (32, 2, 5, 26));
        let only = &pool.blocks[0];
        assert_eq!((only.capacity, only.in_use, only.reserved, only.free), (8, 2, 3, 4));
        assert_eq!(counted[1].name, None);
        assert_eq!(counted[1].blocks.len(), 1);
    }

    #[test]
    fn huge_pools_stop_at_the_largest_number() {
        let pools = [("a".to_owned(), cidr("fd00::/16")), ("b".to_owned(), cidr("::/0"))];
        let counted = usage(&pools, &[], &[]);
        assert_eq!(counted[0].free, i64::MAX.cast_unsigned());
        assert_eq!(counted[1].capacity, i64::MAX.cast_unsigned());
        assert_eq!(counted[0].exact, Exact { capacity: 1 << 112, reserved: 0, free: 1 << 112 });
    }

    #[test]
    fn addresses_of_other_nodes_are_borrowed() {
        let (found, unclassified) = borrowed(&[block("10.0.0.0/29", &[3])]);
        assert_eq!(unclassified, 0);
        assert_eq!(found[0].address, "10.0.0.3".parse::<IpAddr>().unwrap());
        assert_eq!((found[0].owner.as_str(), found[0].node.as_str()), ("n1", "n2"));
        assert_eq!((found[0].kind.as_str(), found[0].allocated_to.as_str()), ("pod", "x/p"));
    }
}
