//! The tiers and policies of one endpoint in their order.

use std::cmp::Ordering;

use super::policies::{Entry, Policies, PolicySlot, TierEntry};
use crate::input::{self, Policy, PolicyId, Stage};
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

    /// Shows a workload with these lists; whether that is a difference.
    pub(super) fn show_workload(&self, workload: &input::Workload, shown: &mut Workload) -> bool {
        // Not `||`: each has to be done.
        set(&mut shown.interface, &workload.interface)
            | set(&mut shown.addresses, &workload.addresses)
            | set(&mut shown.allowed_sources, &workload.allowed_sources)
            | set(&mut shown.profiles, &workload.profiles)
            | set_tiers(&mut shown.tiers, &self.normal)
    }

    /// Shows a host's interface with these lists; whether that is a difference.
    pub(super) fn show_host(&self, host: &input::Host, shown: &mut Host) -> bool {
        set(&mut shown.interface, &host.interface)
            | set(&mut shown.addresses, &host.addresses)
            | set(&mut shown.profiles, &host.profiles)
            | set(&mut shown.is_rest, &host.is_rest)
            | set_tiers(&mut shown.tiers, &self.normal)
            | set_tiers(&mut shown.forward, &self.forward)
            | set_tiers(&mut shown.pre_dnat, &self.pre_dnat)
            | set_tiers(&mut shown.untracked, &self.untracked)
    }
}

fn set<T: Clone + PartialEq>(shown: &mut T, now: &T) -> bool {
    let is_new = shown != now;
    if is_new {
        *shown = now.clone();
    }
    is_new
}

fn set_tiers(shown: &mut Vec<TierInForce>, now: &[TierInForce]) -> bool {
    let is_same = |(shown, now): (&TierInForce, &TierInForce)| shown.name == now.name;
    if shown.len() != now.len() || !shown.iter().zip(now).all(is_same) {
        *shown = now.to_vec();
        return true;
    }
    let mut is_new = false;
    for (shown, now) in shown.iter_mut().zip(now) {
        is_new |= set(&mut shown.end, &now.end);
        is_new |= set_policies(&mut shown.ingress, &now.ingress);
        is_new |= set_policies(&mut shown.egress, &now.egress);
    }
    is_new
}

/// Replaces only what differs: of a thousand policies one may be new.
fn set_policies(shown: &mut Vec<PolicyId>, now: &[PolicyId]) -> bool {
    let n_first = shown.iter().zip(now).take_while(|(shown, now)| shown == now).count();
    let (old, new) = (&shown[n_first..], &now[n_first..]);
    if old.is_empty() && new.is_empty() {
        return false;
    }
    let from_end = old.iter().rev().zip(new.iter().rev());
    let n_last = from_end.take_while(|(shown, now)| shown == now).count();
    let new = new[..new.len() - n_last].iter().cloned();
    shown.splice(n_first..shown.len() - n_last, new);
    true
}
