//! What to write so that the records of addresses fit together and fit what lives.
//!
//! A [`RepairPlan`] is a list of [`Unit`]s, each of which is one transaction or part of one: it
//! rests on the revisions that it was planned on. Units may be carried out up to anywhere: what
//! is left is found again by the next plan. Nothing that may live is let go: see
//! [`crate::check`].

mod mend;

use std::collections::BTreeMap;

use api::keys::ipam::{Affinity, AffinityState, Handle};
use net::Cidr;
use serde_json::Value;

use crate::check::{
    BlockVerdict, ClaimVerdict, Findings, HandleVerdict, Inventory, Judgement, Reach, SlotVerdict,
};
use crate::record::block_key;

const HANDLES: &str = "/calico/ipam/v2/handle/";

/// What is done with some units of a plan at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Keep what will be overwritten.
    Keep,
    /// Write them, in one transaction.
    Mend,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Keep, Self::Mend];

    /// Its name, as a place where a test stops the process.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Mend => "mend",
        }
    }
}

/// One record to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its key.
    pub key: String,
    /// The revision that it must still have; none if it must not be there.
    pub revision: Option<i64>,
    /// What it holds now.
    pub before: Option<Vec<u8>>,
    /// What it is to hold; none to remove it.
    pub after: Option<Vec<u8>>,
}

/// Changes that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// What is done, a line each.
    pub notes: Vec<String>,
    /// The records.
    pub changes: Vec<Change>,
    /// Other keys that it rests on: those that must be as they were read, or as an earlier unit
    /// of the plan left them.
    pub rests_on: Vec<String>,
    /// Whether it lets addresses go, because no endpoint has them.
    pub frees: bool,
}

/// What would mend the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairPlan {
    /// What to do, in this order.
    pub units: Vec<Unit>,
    /// What would be wrong afterwards.
    pub left: Findings,
    /// Whether something changed since it was read: plan again after this.
    pub is_stale: bool,
}

/// A record as it is now, and the revision that last wrote it.
pub type Now = Option<(Vec<u8>, i64)>;

impl Inventory {
    /// Plans what mends the records. `read` gives a record as it is now, with its revision.
    pub fn repair<E>(
        &mut self,
        reach: Reach,
        read: &mut dyn FnMut(&str) -> Result<Now, E>,
    ) -> Result<RepairPlan, E> {
        let judgement = Judgement::of(self, reach);
        let mut claims: BTreeMap<Cidr, Vec<String>> = BTreeMap::new();
        for key in judgement.claims.keys() {
            if let Some(claim) = crate::record::affinity_at(key) {
                claims.entry(claim.cidr).or_default().push(key.clone());
            }
        }
        let plan = RepairPlan::default();
        let mut planner = Planner { judgement: &judgement, read, claims, plan };
        planner.plan_blocks()?;
        planner.plan_claims()?;
        planner.plan_handles()?;
        let mut plan = planner.plan;
        drop(judgement);
        // As it would be, and back: a second inventory would take as much room as the first.
        self.turn(&plan, |change| change.after.as_deref().map(|bytes| (bytes, 0)));
        plan.left = self.check(reach);
        self.turn(&plan, |change| Some((change.before.as_deref()?, change.revision?)));
        Ok(plan)
    }

    fn turn(&mut self, plan: &RepairPlan, to: impl Fn(&Change) -> Option<(&[u8], i64)>) {
        for change in plan.units.iter().flat_map(|unit| &unit.changes) {
            match to(change) {
                Some((bytes, revision)) => self.absorb(&change.key, bytes, revision),
                None => self.forget(&change.key),
            }
        }
    }
}

struct Planner<'p, 'i, E> {
    judgement: &'p Judgement<'i>,
    read: &'p mut dyn FnMut(&str) -> Result<Now, E>,
    /// Keys of claims to change, by block; those that stand in a unit are taken out.
    claims: BTreeMap<Cidr, Vec<String>>,
    plan: RepairPlan,
}

impl<E> Planner<'_, '_, E> {
    /// The record as it is, unless it changed since it was taken in.
    fn current(&mut self, key: &str, seen: Option<i64>) -> Result<Option<Now>, E> {
        let now = (self.read)(key)?;
        let is_same = now.as_ref().map(|(_, revision)| *revision) == seen;
        self.plan.is_stale |= !is_same;
        Ok(is_same.then_some(now))
    }

    fn plan_blocks(&mut self) -> Result<(), E> {
        let judgement = self.judgement;
        for (cidr, verdict) in &judgement.blocks {
            let needs_work = verdict.is_faulty
                || verdict.is_removed
                || verdict.owner.is_some()
                || verdict.slots.values().any(|slot| *slot != SlotVerdict::Keep);
            if !needs_work || verdict.left.is_some() {
                continue;
            }
            if let Some(unit) = self.block_unit(*cidr, verdict)? {
                self.plan.units.push(unit);
            }
        }
        Ok(())
    }

    fn block_unit(&mut self, cidr: Cidr, verdict: &BlockVerdict) -> Result<Option<Unit>, E> {
        let key = block_key(cidr);
        let stock = self.judgement.inventory.blocks.get(&cidr);
        let Some(now) = self.current(&key, stock.map(|it| it.revision))? else { return Ok(None) };
        let before = now.as_ref().map(|(bytes, _)| bytes.as_slice());
        let moment = self.judgement.reach.now;
        let mended = match verdict.is_removed {
            true => mend::removed(cidr, verdict),
            false => mend::block(cidr, verdict, before, moment),
        };
        let Some(mend::Mended { after, notes, frees }) = mended else { return Ok(None) };
        if after.as_deref() == before {
            return Ok(None);
        }
        let mut unit = Unit { notes, frees, ..Unit::default() };
        unit.changes.push(change(key, now, after));
        // The claims on the block go with it.
        for key in self.claims.remove(&cidr).unwrap_or_default() {
            self.add_claim(&mut unit, &key)?;
        }
        Ok(Some(unit))
    }

    fn plan_claims(&mut self) -> Result<(), E> {
        for (cidr, keys) in std::mem::take(&mut self.claims) {
            let mut unit = Unit { rests_on: vec![block_key(cidr)], ..Unit::default() };
            for key in keys {
                self.add_claim(&mut unit, &key)?;
            }
            if !unit.changes.is_empty() {
                self.plan.units.push(unit);
            }
        }
        Ok(())
    }

    fn add_claim(&mut self, unit: &mut Unit, key: &str) -> Result<(), E> {
        let Some(verdict) = self.judgement.claims.get(key) else { return Ok(()) };
        let facts = self.judgement.inventory.claims.get(key);
        let Some(now) = self.current(key, facts.map(|it| it.revision))? else { return Ok(()) };
        let Some(claim) = crate::record::affinity_at(key) else { return Ok(()) };
        let (owner, cidr) = (&claim.owner, claim.cidr);
        let after = match verdict {
            ClaimVerdict::Remove => {
                unit.notes.push(format!("{owner} claims {cidr} no more"));
                None
            }
            ClaimVerdict::Confirm => {
                unit.notes.push(format!("{owner} claims {cidr}"));
                let stored = now.as_ref().and_then(|(bytes, _)| Affinity::read(bytes).ok());
                let mut affinity = stored.unwrap_or_default();
                (affinity.state, affinity.deleted) = (AffinityState::Confirmed, false);
                Some(bytes(&affinity.encode()))
            }
        };
        unit.changes.push(change(key.to_owned(), now, after));
        Ok(())
    }

    fn plan_handles(&mut self) -> Result<(), E> {
        let judgement = self.judgement;
        for (id, verdict) in &judgement.handles {
            let key = format!("{HANDLES}{id}");
            let facts = judgement.inventory.handles.get(id);
            let Some(now) = self.current(&key, facts.map(|it| it.revision))? else { continue };
            let mut unit = Unit::default();
            let after = match verdict {
                HandleVerdict::Remove => {
                    unit.notes.push(format!("handle {id} is removed: it holds nothing"));
                    // An assignment that is under way counts first and holds then.
                    let blocks = facts.into_iter().flat_map(|it| it.blocks());
                    unit.rests_on.extend(blocks.map(|(cidr, _)| block_key(*cidr)));
                    None
                }
                HandleVerdict::Count(blocks) => {
                    let count: i64 = blocks.values().sum();
                    unit.notes.push(format!("handle {id} counts {count}"));
                    Some(bytes(&counted(now.as_ref(), blocks).encode()))
                }
            };
            unit.changes.push(change(key, now, after));
            self.plan.units.push(unit);
        }
        Ok(())
    }
}

fn counted(now: Option<&(Vec<u8>, i64)>, blocks: &BTreeMap<String, i64>) -> Handle {
    let stored = now.and_then(|(bytes, _)| Handle::read(bytes).ok());
    let mut handle = stored.unwrap_or_else(|| Handle::new(BTreeMap::new()));
    (handle.blocks, handle.deleted) = (blocks.clone(), false);
    handle
}

fn bytes(json: &Value) -> Vec<u8> {
    text::json::to_string(json).into_bytes()
}

fn change(key: String, now: Now, after: Option<Vec<u8>>) -> Change {
    let (before, revision) = match now {
        Some((bytes, revision)) => (Some(bytes), Some(revision)),
        None => (None, None),
    };
    Change { key, revision, before, after }
}

#[cfg(test)]
mod tests;
