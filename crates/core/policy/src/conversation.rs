//! Conversations that stand already: which of them the policies of this node's workloads forbid.
//!
//! Packets of a conversation that was begun are let through without a look at policies, so one that
//! was begun while our rules were not in force would go on for as long as it likes.

use std::collections::BTreeMap;
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
    workloads: BTreeMap<IpAddr, (&'a Key, &'a Workload)>,
    /// The rules of those that were looked at.
    rules: BTreeMap<(&'a Key, Direction), Rules>,
}

impl<'a> Conversations<'a> {
    /// With the workloads of a node.
    pub fn new(intent: &'a Intent) -> Self {
        let of = |(key, workload): (&'a Key, &'a Workload)| {
            let addresses = workload.addresses.iter().map(|it| IpNet::from(*it).addr());
            addresses.map(move |address| (address, (key, workload)))
        };
        let workloads = intent.workloads.iter().flat_map(of).collect();
        Self { intent, workloads, rules: BTreeMap::new() }
    }

    /// Whether a workload of this node may not begin it, or may not be talked to like that; its
    /// first packet tells.
    pub fn is_forbidden(&mut self, first: &Packet) -> bool {
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
