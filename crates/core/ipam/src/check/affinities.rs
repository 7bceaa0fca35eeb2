//! Whether claims and blocks agree on who owns a block.

use std::collections::BTreeMap;

use api::keys::ipam::AffinityState;
use api::keys::{AffinityType, BlockAffinityKey, Key};
use net::Cidr;

use super::inventory::{ClaimFacts, Inventory};
use super::problem::Class;
use super::stock::{Slot, Stock};
use super::verdict::{BlockVerdict, Holding, Judgement, SlotVerdict};
use crate::record::block_key;

/// What should become of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimVerdict {
    /// It should be there, and confirmed.
    Confirm,
    /// It should go.
    Remove,
}

/// The claims on blocks.
pub(crate) struct Claims<'i>(BTreeMap<Cidr, Vec<(&'i str, &'i ClaimFacts)>>);

impl<'i> Claims<'i> {
    pub(crate) fn of(inventory: &'i Inventory) -> Self {
        let mut claims: BTreeMap<Cidr, Vec<_>> = BTreeMap::new();
        for (key, claim) in &inventory.claims {
            claims.entry(claim.key.cidr).or_default().push((key.as_str(), claim));
        }
        Self(claims)
    }

    fn on(&self, cidr: Cidr) -> &[(&'i str, &'i ClaimFacts)] {
        self.0.get(&cidr).map_or(&[], Vec::as_slice)
    }
}

/// `host:NODE`, as blocks name their owner.
fn owner_of(claim: &BlockAffinityKey) -> String {
    format!("{}:{}", claim.owner_type.name(), claim.owner)
}

fn claim_key(owner: &str, cidr: Cidr) -> Option<String> {
    let (kind, name) = owner.split_once(':')?;
    let (owner_type, owner) = (AffinityType::from_name(kind), name.to_owned());
    Key::BlockAffinity(BlockAffinityKey { owner_type, owner, cidr }).path().ok()
}

impl Judgement<'_> {
    pub(super) fn judge_claims(&mut self, claims: &Claims<'_>) {
        let cidrs: Vec<Cidr> = self.blocks.keys().copied().collect();
        for cidr in cidrs {
            let on = claims.on(cidr);
            match self.inventory.blocks.get(&cidr) {
                Some(stock) => self.judge_owner(stock, on),
                None => self.judge_new(cidr, on),
            }
        }
        for (cidr, on) in &claims.0 {
            if self.blocks.contains_key(cidr) {
                continue;
            }
            for (key, claim) in on {
                self.name_claim(Class::OrphanAffinity, key, claim, "there is no such block");
                self.claims.insert((*key).to_owned(), ClaimVerdict::Remove);
            }
        }
    }

    fn name_claim(&mut self, class: Class, key: &str, claim: &ClaimFacts, what: &str) {
        let text = match &claim.unreadable {
            Some(why) => format!("{}; {why}", said(claim, what)),
            None => said(claim, what),
        };
        let class = if claim.unreadable.is_some() { Class::Unreadable } else { class };
        let node = (claim.key.owner_type == AffinityType::Host).then(|| claim.key.owner.clone());
        self.name(class, key, text).node = node;
    }

    /// Whether an owner is there: a node that exists, or something that is no node.
    fn is_there(&self, owner: &str) -> bool {
        match owner.split_once(':') {
            Some(("host", node)) => !node.is_empty() && !self.inventory.is_gone(node),
            Some(("virtual", name)) => !name.is_empty(),
            _ => false,
        }
    }

    /// The owner of a block that is to be made for an address in use.
    fn judge_new(&mut self, cidr: Cidr, on: &[(&str, &ClaimFacts)]) {
        let claimed = on.iter().map(|(_, claim)| owner_of(&claim.key));
        let owner = claimed.into_iter().find(|owner| self.is_there(owner));
        let verdict = self.blocks.entry(cidr).or_default();
        if let Some(owner) = owner {
            verdict.owner = Some(Some(owner));
        }
        let owner = verdict.owner.clone().flatten();
        self.settle_claims(cidr, owner.as_deref(), on);
    }

    fn judge_owner(&mut self, stock: &Stock, on: &[(&str, &ClaimFacts)]) {
        let cidr = stock.cidr;
        let verdict = self.blocks.entry(cidr).or_default();
        if verdict.left.is_some() {
            return;
        }
        let (is_removed, is_empty) = (verdict.is_removed, verdict.is_empty() && !stock.is_lost);
        if is_removed {
            return self.remove_block(cidr, on);
        }
        let own = stock.owner.as_deref();
        let owner = self.rightful(stock, on);
        let key = block_key(cidr);
        match (&owner, own) {
            (Some(owner), Some(own)) if owner == own => {}
            (Some(owner), own) if !stock.is_lost => {
                let own = own.unwrap_or("nobody");
                let is_claimed = on.iter().any(|(_, claim)| owner_of(&claim.key) == *owner);
                let (class, text) = match is_claimed {
                    true => (Class::WrongAffinity, format!("it is {own}'s, and {owner} claims it")),
                    false => (Class::OrphanBlock, format!("it is {own}'s; {owner} uses it most")),
                };
                self.name(class, &key, text);
            }
            (Some(_), _) => {}
            (None, own) => {
                self.name_ownerless(&key, own, is_empty);
                if is_empty {
                    return self.remove_block(cidr, on);
                }
            }
        }
        if owner.as_deref() != own && owner.is_some() {
            self.blocks.entry(cidr).or_default().owner = Some(owner.clone());
        }
        self.settle_claims(cidr, owner.as_deref().or(own), on);
    }

    fn name_ownerless(&mut self, key: &str, own: Option<&str>, is_empty: bool) {
        let node = own.and_then(|own| own.strip_prefix("host:")).filter(|node| !node.is_empty());
        let (class, text) = match node {
            Some(node) => (Class::NodeGone, format!("its owner {node} is no node")),
            None => (Class::OrphanBlock, "no node has claimed it".to_owned()),
        };
        let node = node.map(str::to_owned);
        let kept = (!is_empty).then(|| "addresses of it are held: it goes when they do".to_owned());
        let problem = self.name(class, key, text);
        (problem.node, problem.kept) = (node, kept);
    }

    /// Who should own a block: of those who are there and claim it, or are named by it, the one
    /// who uses it most; without any, the node that does.
    fn rightful(&self, stock: &Stock, on: &[(&str, &ClaimFacts)]) -> Option<String> {
        let mut used: BTreeMap<String, usize> = BTreeMap::new();
        for node in self.using(stock) {
            *used.entry(format!("host:{node}")).or_default() += 1;
        }
        let own = stock.owner.as_deref().filter(|own| self.is_there(own));
        let claim_of = |owner: &str| on.iter().find(|(_, it)| owner_of(&it.key) == owner);
        if let Some(own) = own
            && (claim_of(own).is_some() || own.starts_with("virtual:"))
        {
            return Some(own.to_owned());
        }
        let leaving = |claim: &ClaimFacts| claim.state == AffinityState::PendingDeletion;
        let claimants = on.iter().filter(|(_, claim)| !leaving(claim));
        let mut best = own.map(str::to_owned);
        for (_, claim) in claimants {
            let owner = owner_of(&claim.key);
            let uses = |owner: &str| used.get(owner).copied().unwrap_or(0);
            let is_better = best.as_deref().is_none_or(|best| uses(&owner) > uses(best));
            if self.is_there(&owner) && is_better {
                best = Some(owner);
            }
        }
        let most = used.into_iter().filter(|(owner, _)| self.is_there(owner));
        best.or_else(|| most.max_by_key(|(_, count)| *count).map(|(owner, _)| owner))
    }

    /// The nodes that use addresses of a block, one for each.
    fn using<'s>(&'s self, stock: &'s Stock) -> Vec<&'s str> {
        let Some(verdict) = self.blocks.get(&stock.cidr) else { return Vec::new() };
        let named = |holding: &'s Holding| holding.attributes.get("node").map(String::as_str);
        let held = stock.slots.iter().filter_map(|(ordinal, slot)| match slot {
            Slot::Held(holder) => match verdict.slots.get(ordinal) {
                Some(SlotVerdict::Free) => None,
                Some(SlotVerdict::Hold(holding)) => named(holding).or(holder.node.as_deref()),
                None | Some(SlotVerdict::Keep) => holder.node.as_deref(),
            },
            Slot::Uncertain => None,
        });
        let is_fresh = |ordinal: &usize| !matches!(stock.slot(*ordinal), Some(Slot::Held(_)));
        let fresh = verdict.slots.iter().filter(|(ordinal, _)| is_fresh(ordinal));
        let fresh = fresh.filter_map(|(_, verdict)| match verdict {
            SlotVerdict::Hold(holding) => named(holding),
            _ => None,
        });
        held.chain(fresh).collect()
    }

    fn remove_block(&mut self, cidr: Cidr, on: &[(&str, &ClaimFacts)]) {
        let verdict: &mut BlockVerdict = self.blocks.entry(cidr).or_default();
        verdict.is_removed = true;
        for (key, _) in on {
            self.claims.insert((*key).to_owned(), ClaimVerdict::Remove);
        }
    }

    /// The claim of the owner is there and confirmed, and nobody else has one.
    fn settle_claims(&mut self, cidr: Cidr, owner: Option<&str>, on: &[(&str, &ClaimFacts)]) {
        let block = block_key(cidr);
        let own_key = owner.and_then(|owner| claim_key(owner, cidr));
        if let (Some(owner), Some(own_key)) = (owner, &own_key)
            && !on.iter().any(|(key, _)| key == own_key)
            && self.is_there(owner)
        {
            if self.inventory.blocks.contains_key(&cidr) {
                let text = format!("{owner} has no claim on it");
                self.name(Class::OrphanBlock, &block, text);
            }
            self.claims.insert(own_key.clone(), ClaimVerdict::Confirm);
        }
        for (key, claim) in on {
            if Some(*key) != own_key.as_deref() {
                let what = format!("the block is {}'s", owner.unwrap_or("nobody"));
                self.name_claim(Class::OrphanAffinity, key, claim, &what);
                self.claims.insert((*key).to_owned(), ClaimVerdict::Remove);
                continue;
            }
            if claim.unreadable.is_some() || claim.is_deleted || !claim.is_settled() {
                let what = match claim.is_deleted {
                    true => "it is marked as about to go".to_owned(),
                    false => format!("its state is {:?}", claim.state.name()),
                };
                self.name_claim(Class::WrongAffinity, key, claim, &what);
                self.claims.insert((*key).to_owned(), ClaimVerdict::Confirm);
            }
        }
    }
}

fn said(claim: &ClaimFacts, what: &str) -> String {
    format!("{} claims {}: {what}", claim.key.owner, claim.key.cidr)
}
