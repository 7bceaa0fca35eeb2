//! How much there is, for those who watch over the node.

use crate::Inputs;

/// What was absorbed, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Endpoints of the cluster.
    pub endpoints: usize,
    /// Endpoints of this node.
    pub local_endpoints: usize,
    /// Profiles.
    pub profiles: usize,
    /// Pools of addresses.
    pub pools: usize,
    /// Blocks of this node.
    pub blocks: usize,
    /// Addresses in them.
    pub addresses: u64,
    /// How many of these are in use.
    pub addresses_used: u64,
}

impl Inputs {
    /// Counts what was absorbed.
    pub fn census(&self) -> Census {
        let mut census = Census {
            nodes: self.nodes.len(),
            endpoints: self.endpoints.len(),
            local_endpoints: self.local_endpoints().count(),
            profiles: self.profiles.len(),
            pools: self.pools.len(),
            ..Census::default()
        };
        let own = self.blocks.iter().filter(|(cidr, _)| {
            self.owners.get(cidr).is_some_and(|owners| owners.contains(&self.node))
        });
        for (_, block) in own {
            census.blocks += 1;
            census.addresses += block.size();
            census.addresses_used +=
                block.allocations.iter().map(|it| u64::from(it.is_some())).sum::<u64>();
        }
        census
    }
}
