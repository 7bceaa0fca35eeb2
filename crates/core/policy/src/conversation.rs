//! Conversations that stand already: which of them the policies of this node's workloads forbid.
//!
//! Packets of a conversation that was begun are let through without a look at policies, so one that
//! was begun while our rules were not in force would go on for as long as it likes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use model::resource::Direction;

use crate::input::Key;
use crate::intent::{Intent, Workload};
use crate::packet::Packet;
use crate::verdict::{Judge, Outcome, Rules};

/// Looks at conversations.
#[derive(Debug)]
pub struct Conversations<'a> {
    intent: &'a Intent,
    /// The addresses of the host.
    own: &'a BTreeSet<IpAddr>,
    workloads: BTreeMap<IpAddr, (&'a Key, &'a Workload)>,
    /// The rules of those that were looked at.
    rules: BTreeMap<(&'a Key, Direction), Rules>,
}

impl<'a> Conversations<'a> {
    /// With the workloads of a node that has these addresses.
    pub fn new(intent: &'a Intent, own: &'a BTreeSet<IpAddr>) -> Self {
        let of = |(key, workload): (&'a Key, &'a Workload)| {
            let addresses = workload.addresses.iter().map(|it| IpNet::from(*it).addr());
            addresses.map(move |address| (address, (key, workload)))
        };
        let workloads = intent.workloads.iter().flat_map(of).collect();
        Self { intent, own, workloads, rules: BTreeMap::new() }
    }

    /// Whether a workload of this node may not begin it, or may not be talked to like that; its
    /// first packet tells. What the host begins with its own workloads nobody forbids.
    pub fn is_forbidden(&mut self, first: &Packet) -> bool {
        if self.own.contains(&first.source) {
            return false;
        }
        let ends = [(first.source, Direction::Egress), (first.destination, Direction::Ingress)];
        ends.into_iter().any(|(address, direction)| {
            let Some((key, workload)) = self.workloads.get(&address).copied() else { return false };
            let intent = self.intent;
            let rules = self
                .rules
                .entry((key, direction))
                .or_insert_with(|| intent.rules(&workload.tiers, &workload.profiles, direction));
            let judge = Judge { sets: &intent.sets };
            judge.endpoint(rules, first).outcome == Outcome::Deny
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without profiles a workload takes part in nothing.
    #[test]
    fn what_the_host_begins_with_its_own_is_not_forbidden() {
        let workload =
            Workload { addresses: vec!["10.0.0.2/32".parse().unwrap()], ..Workload::default() };
        let intent =
            Intent { workloads: [("shop/db".to_owned(), workload)].into(), ..Intent::default() };
        let own = BTreeSet::from([IpAddr::from([192, 0, 2, 1])]);
        let mut conversations = Conversations::new(&intent, &own);
        let mut is_forbidden = |source: [u8; 4], destination: [u8; 4]| {
            conversations.is_forbidden(&Packet {
                source: source.into(),
                destination: destination.into(),
                protocol: 6,
                ports: Some((40_000, 80)),
                icmp: None,
                before_nat: None,
                is_of_host: false,
            })
        };
        assert!(is_forbidden([10, 0, 0, 1], [10, 0, 0, 2]));
        assert!(is_forbidden([10, 0, 0, 2], [192, 0, 2, 1]));
        assert!(!is_forbidden([192, 0, 2, 1], [10, 0, 0, 2]));
        assert!(!is_forbidden([10, 0, 0, 1], [10, 0, 0, 3]));
    }
}
