//! How much there is, for those who watch over the node.

use std::collections::BTreeSet;

use api::Kind;
use model::resource::IpPool;

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
    /// Tiers.
    pub tiers: usize,
    /// Policies in force, staged ones not among them.
    pub policies: usize,
    /// Policies that are staged.
    pub staged: usize,
    /// Endpoints of hosts.
    pub host_endpoints: usize,
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
            endpoints: self.endpoints.len() + self.elsewhere.len(),
            local_endpoints: self.local_endpoints().count(),
            profiles: self.n_of(Kind::Profile),
            tiers: self.n_of(Kind::Tier),
            policies: self.n_of(Kind::NetworkPolicy) + self.n_of(Kind::GlobalNetworkPolicy),
            staged: self.n_of(Kind::StagedNetworkPolicy)
                + self.n_of(Kind::StagedGlobalNetworkPolicy)
                + self.n_of(Kind::StagedKubernetesNetworkPolicy),
            host_endpoints: self.n_of(Kind::HostEndpoint),
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

    fn n_of(&self, kind: Kind) -> usize {
        self.counted.get(&kind).map_or(0, BTreeSet::len)
    }

    /// Whether there is a profile of this name.
    pub(crate) fn has_profile(&self, name: &str) -> bool {
        self.counted.get(&Kind::Profile).is_some_and(|known| known.contains(name))
    }

    /// The pools of a family, if every address of every open one of them is taken. Cool-down and
    /// reservations are not looked at: there may be less room than this says, never more.
    pub fn full_pools(&self, is_ipv4: bool) -> Option<Vec<String>> {
        let is_meant = |pool: &&IpPool| pool.cidr.is_ipv4() == is_ipv4 && !pool.disabled;
        let open = self.pools.iter().filter(|(_, pool)| is_meant(pool));
        let open: Vec<(&String, &IpPool)> = open.collect();
        let is_full = |pool: &IpPool| {
            let blocks = self.blocks.iter().filter(|(cidr, _)| pool.cidr.contains(cidr.address()));
            let taken = blocks.map(|(_, block)| block.allocations.iter().flatten().count());
            let width = if is_ipv4 { 32 } else { 128 } - u32::from(pool.cidr.prefix_len());
            let size = 1_usize.checked_shl(width).unwrap_or(usize::MAX);
            taken.sum::<usize>() >= size
        };
        let all_full = !open.is_empty() && open.iter().all(|(_, pool)| is_full(pool));
        all_full.then(|| open.into_iter().map(|(name, _)| name.clone()).collect())
    }
}
