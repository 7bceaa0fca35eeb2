//! The tiers and policies of one endpoint in their order.

use std::cmp::Ordering;

use super::policies::{Entry, Policies, PolicySlot, TierEntry};
use crate::input::{Policy, Stage};
use crate::intent::{Host, TierInForce, Workload};
use crate::verdict::End;

/// A policy that selects the endpoint.
type Selecting<'a> = (&'a Entry, &'a Policy);

/// The lists of tiers that endpoints with the same labels share.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    normal: Vec<TierInForce>,
    forward: Vec<TierInForce>,
    pre_dnat: Vec<TierInForce>,
    untracked: Vec<TierInForce>,
}

impl Resolved {
    /// The lists from the policies that select an endpoint.
    pub(super) fn new(selecting: &[PolicySlot], policies: &Policies) -> Self {
        let mut entries: Vec<Selecting<'_>> = selecting
            .iter()
            .map(|slot| policies.get(*slot))
            .filter_map(|entry| Some((entry, entry.policy.as_deref()?)))
            .collect();
        entries.sort_by(|(a, _), (b, _)| {
            let by_tier = match a.tier == b.tier {
                true => Ordering::Equal,
                false => policies.tier(a.tier).order.cmp(&policies.tier(b.tier).order),
            };
            by_tier.then_with(|| a.order.cmp(&b.order))
        });
        let mut resolved = Self::default();
        for entries in entries.chunk_by(|(a, _), (b, _)| a.tier == b.tier) {
            if let Some((first, _)) = entries.first() {
                resolved.tier(policies.tier(first.tier), entries);
            }
        }
        resolved
    }

    fn tier(&mut self, tier: &TierEntry, entries: &[Selecting<'_>]) {
        let end = tier.tier.map_or(End::Deny, |tier| tier.end);
        let list = |end, is_listed: fn(&Policy) -> bool| {
            let mut list = TierInForce {
                name: tier.order.name().to_owned(),
                end,
                ingress: Vec::new(),
                egress: Vec::new(),
            };
            for (entry, policy) in entries.iter().filter(|(_, policy)| is_listed(policy)) {
                if policy.is_for_ingress {
                    list.ingress.push(entry.order.id().clone());
                }
                // What leaves has no destination NAT before it.
                if policy.is_for_egress && policy.stage != Stage::PreDnat {
                    list.egress.push(entry.order.id().clone());
                }
            }
            (!list.ingress.is_empty() || !list.egress.is_empty()).then_some(list)
        };
        self.normal.extend(list(end, |it| it.stage == Stage::Normal));
        self.forward.extend(list(end, |it| it.stage == Stage::Normal && it.is_for_forward));
        // What these stages leave open, the next stage decides.
        self.pre_dnat.extend(list(End::Pass, |it| it.stage == Stage::PreDnat));
        self.untracked.extend(list(End::Pass, |it| it.stage == Stage::Untracked));
    }

    /// What a workload with these lists is shown as.
    pub(super) fn workload(&self, workload: &crate::input::Workload) -> Workload {
        Workload {
            interface: workload.interface.clone(),
            addresses: workload.addresses.clone(),
            allowed_sources: workload.allowed_sources.clone(),
            tiers: self.normal.clone(),
            profiles: workload.profiles.clone(),
        }
    }

    /// What a host's interface with these lists is shown as.
    pub(super) fn host(&self, host: &crate::input::Host) -> Host {
        Host {
            interface: host.interface.clone(),
            addresses: host.addresses.clone(),
            tiers: self.normal.clone(),
            forward: self.forward.clone(),
            pre_dnat: self.pre_dnat.clone(),
            untracked: self.untracked.clone(),
            profiles: host.profiles.clone(),
        }
    }
}
