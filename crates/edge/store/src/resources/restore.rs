//! Putting keys back as they were, under the rules between objects that a create or a delete would
//! enforce.
//!
//! The rules are judged and the bytes put back in one transaction: its conditions are those under
//! which an ordinary write would have been allowed.

use std::collections::{BTreeMap, BTreeSet};

use api::Kind;
use model::prepare::{Neighbours, check_delete, delete_needs_policies, prepare_create};

use super::batch::{ATTEMPTS, chunks, entry, give_way};
use super::read::stored;
use super::view::View;
use super::write::{metadata_mut, refused};
use super::{Change, Error, Name, Resources};
use crate::{Committed, Compare, KeyValue, Op, Txn};

/// A key that is to be as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The key.
    pub key: String,
    /// Its stored bytes now and their revision, which must still be true; none if it is absent.
    pub now: Option<(Vec<u8>, i64)>,
    /// The bytes to store; none to remove it.
    pub value: Option<Vec<u8>>,
}

/// Why keys were not put back, or not all of them: a [`super::Journal`] knows which were.
#[derive(Debug)]
pub enum NotRestored {
    /// Other objects speak against it.
    Refused(Vec<Error>),
    /// These keys were written by somebody else at this moment.
    Moved(Vec<String>),
    /// The datastore did not answer or refused.
    Failed(Error),
}

/// What went with the objects that a restoration removed, as it does when they are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// What was done, in our words.
    pub done: Vec<String>,
    /// What is still there, and why.
    pub left: Vec<String>,
}

impl From<Error> for NotRestored {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<crate::Error> for NotRestored {
    fn from(error: crate::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// One key of a plan.
pub(super) struct Part<'a> {
    restored: &'a Restored,
    /// What the other objects must still be; the key itself is always held to what was seen.
    conditions: Vec<Compare>,
    /// The tier that the same request puts back before it.
    tier: Option<String>,
}

impl Resources {
    /// Puts keys back. Up to 100 are one transaction; more are put back in several, after all
    /// have been found good.
    ///
    /// Only what other objects have to say counts. What is odd about an object alone was stored
    /// before, and comes back as it was. With nodes and pools that go, goes what a delete takes:
    /// before them, so that whoever is stopped in between finds them, and can go on.
    pub fn restore(&self, restored: &[Restored]) -> Result<Cleared, NotRestored> {
        let mut cleared = Cleared::default();
        let mut rest = in_order(restored);
        let mut plan = self.plan_restore(&rest)?;
        self.clear_before(restored, &mut cleared.done)?;
        let mut attempts = 0;
        loop {
            let mut n_done = 0;
            for chunk in chunks(plan, Part::weight) {
                if !self.commit_restore(&chunk)? {
                    break;
                }
                n_done += chunk.len();
            }
            rest.drain(..n_done);
            if rest.is_empty() {
                break;
            }
            attempts = if n_done > 0 { 0 } else { attempts + 1 };
            if attempts == ATTEMPTS {
                let keys = rest.iter().map(|part| part.key.clone()).collect();
                return Err(NotRestored::Moved(keys));
            }
            give_way(attempts);
            plan = self.plan_restore(&rest)?;
        }
        self.clear_after(restored, &mut cleared);
        Ok(cleared)
    }

    fn clear_before(&self, restored: &[Restored], done: &mut Vec<String>) -> Result<(), Error> {
        let except = restored.iter().map(|one| one.key.as_str()).collect();
        for (n, (name, was)) in removed_owners(restored).enumerate() {
            if n == 0 {
                self.tell_ahead()?;
            }
            self.clear(&name, was, &except, done).map_err(|cause| match done.is_empty() {
                true => cause,
                false => Error::Unfinished { name, done: done.clone(), cause: Box::new(cause) },
            })?;
        }
        Ok(())
    }

    /// Removes what came while the others went.
    fn clear_after(&self, restored: &[Restored], cleared: &mut Cleared) {
        for (name, was) in removed_owners(restored) {
            if let Err(error) = self.clear(&name, was, &BTreeSet::new(), &mut cleared.done) {
                let help = match name.kind {
                    Kind::Node => format!(
                        "margay delete node {} --skip-not-exists --yes goes on with it",
                        name.name
                    ),
                    _ => "margay ipam show --show-blocks lists what is in no pool".to_owned(),
                };
                let name = name.spoken();
                cleared.left.push(format!(
                    "{name} is gone, but perhaps not all that belonged to it: {error}; {help}"
                ));
            }
        }
    }

    fn clear(
        &self,
        name: &Name,
        was: KeyValue,
        except: &BTreeSet<&str>,
        done: &mut Vec<String>,
    ) -> Result<(), Error> {
        match name.kind {
            Kind::Node => self.clear_node(name, Some(was), except, done),
            _ => self.clear_pool(&was, done),
        }
    }

    /// Judges what is to be put back: all that speaks against it, or what must stay true.
    pub(super) fn plan_restore<'a>(
        &self,
        restored: &[&'a Restored],
    ) -> Result<Vec<Part<'a>>, NotRestored> {
        let mut view = View::new(&self.store);
        let mut refusals = Vec::new();
        let mut parts = Vec::new();
        let names: Vec<Option<Name>> = restored.iter().map(|one| Name::at_key(&one.key)).collect();
        for (one, name) in restored.iter().zip(&names) {
            if let (None, Some(name)) = (&one.value, name) {
                view.pend_removal(name)?;
            }
        }
        for (one, name) in restored.iter().zip(names) {
            let mut part = Part { restored: one, conditions: Vec::new(), tier: None };
            match (&one.value, name) {
                (None, Some(name)) => {
                    refusals.extend(self.check_removal(&name, restored, &mut part)?);
                }
                (Some(value), Some(name)) => {
                    refusals.extend(self.check_put(&mut view, &name, value, &mut part)?);
                    view.pend(&name, value.clone())?;
                }
                (_, None) => {}
            }
            parts.push(part);
        }
        if refusals.is_empty() { Ok(parts) } else { Err(NotRestored::Refused(refusals)) }
    }

    fn check_removal(
        &self,
        name: &Name,
        restored: &[&Restored],
        part: &mut Part<'_>,
    ) -> Result<Option<Error>, Error> {
        let mut policies = Vec::new();
        if delete_needs_policies(name.kind, &name.name) {
            let (stored_policies, conditions) = self.policies_in_tiers()?;
            part.conditions.extend(conditions);
            let removed = restored.iter().filter(|one| one.value.is_none());
            let removed: BTreeSet<&str> = removed.map(|one| one.key.as_str()).collect();
            for policy in stored_policies {
                if !removed.contains(policy.name.key().as_str()) {
                    policies.push(policy.object);
                }
            }
            for one in restored {
                let (Some(other), Some(value)) = (Name::at_key(&one.key), &one.value) else {
                    continue;
                };
                let put_back = stored(other.kind, &entry(&other, value.clone(), 0));
                policies.extend(put_back.map(|policy| policy.object));
            }
        }
        Ok(check_delete(name.kind, &name.name, &policies).err().map(|it| refused(name, it)))
    }

    fn check_put(
        &self,
        view: &mut View<'_>,
        name: &Name,
        value: &[u8],
        part: &mut Part<'_>,
    ) -> Result<Option<Error>, Error> {
        // The rules between objects are those for a new one.
        if view.entry(name)?.is_some() {
            return Ok(None);
        }
        let Ok(shown) = stored(name.kind, &entry(name, value.to_vec(), 0)) else {
            return Ok(None);
        };
        let mut object = shown.object;
        metadata_mut(&mut object).shift_remove("resourceVersion");
        let (neighbours, conditions) = view.neighbours(name.kind, &object, true)?;
        part.conditions.extend(conditions);
        part.tier = view.pending_tier(name.kind, &object)?.map(|tier| tier.key());
        let alone = Neighbours {
            tier_exists: true,
            bgp_filters: neighbours.bgp_filters.clone(),
            ..Neighbours::default()
        };
        let context = self.context();
        let judged = |neighbours| prepare_create(name.kind, object.clone(), &context, neighbours);
        let refusal = judged(&neighbours).err();
        let is_about_others = refusal != judged(&alone).err();
        Ok(refusal.filter(|_| is_about_others).map(|refusal| refused(name, refusal)))
    }

    /// Puts one transaction's worth back; false if what other objects say has to be asked again.
    pub(super) fn commit_restore(&self, parts: &[Part<'_>]) -> Result<bool, NotRestored> {
        let mut compares: Vec<Compare> = parts.iter().map(Part::own_condition).collect();
        let ops: Vec<Op> = parts.iter().map(Part::op).collect();
        let together: BTreeSet<&str> = ops.iter().map(Op::key).collect();
        for part in parts {
            let tier = part.tier.iter().filter(|tier| !together.contains(tier.as_str()));
            let tier = tier.map(|tier| Compare::Exists(tier.clone()));
            for condition in part.conditions.iter().cloned().chain(tier) {
                if !compares.contains(&condition) {
                    compares.push(condition);
                }
            }
        }
        let told = || parts.iter().map(Part::change).collect();
        match self.commit_told(Txn { compares, ops }, told) {
            Ok(Committed::Applied { .. }) => Ok(true),
            Ok(Committed::Conflict { current, .. }) => {
                let now = |entry: &Option<KeyValue>| entry.as_ref().map(|it| it.mod_revision);
                let moved = parts.iter().zip(&current).filter(|(part, entry)| {
                    now(entry) != part.restored.now.as_ref().map(|(_, revision)| *revision)
                });
                let moved: Vec<String> = moved.map(|(part, _)| part.restored.key.clone()).collect();
                if moved.is_empty() { Ok(false) } else { Err(NotRestored::Moved(moved)) }
            }
            Err(lost @ crate::Error::Uncertain(_)) => match self.is_restored(parts)? {
                true => Ok(true),
                false => Err(lost.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Whether all is as a transaction should have made it whose answer was lost.
    fn is_restored(&self, parts: &[Part<'_>]) -> Result<bool, Error> {
        for Part { restored, .. } in parts {
            if self.store.get(&restored.key)?.0.map(|entry| entry.value) != restored.value {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Part<'_> {
    fn change(&self) -> Change {
        let Restored { key, now, value } = self.restored;
        Change::new(key.clone(), now.clone(), value.as_deref())
    }

    fn own_condition(&self) -> Compare {
        let key = self.restored.key.clone();
        match &self.restored.now {
            Some((_, revision)) => Compare::ModRevision(key, *revision),
            None => Compare::Absent(key),
        }
    }

    fn op(&self) -> Op {
        let key = self.restored.key.clone();
        match &self.restored.value {
            Some(value) => Op::Put { key, value: value.clone() },
            None => Op::Delete { key },
        }
    }

    fn weight(&self) -> (Vec<Compare>, usize) {
        let mut conditions = vec![self.own_condition()];
        conditions.extend(self.conditions.iter().cloned());
        conditions.extend(self.tier.clone().map(Compare::Exists));
        (conditions, self.restored.value.as_ref().map_or(0, Vec::len))
    }
}

/// The nodes and pools that are to go, as they are.
fn removed_owners(restored: &[Restored]) -> impl Iterator<Item = (Name, KeyValue)> {
    restored.iter().filter(|one| one.value.is_none()).filter_map(|one| {
        let name = Name::at_key(&one.key)?;
        let (value, revision) = one.now.clone()?;
        let is_owner = matches!(name.kind, Kind::Node | Kind::IpPool);
        is_owner.then(|| (name.clone(), entry(&name, value, revision)))
    })
}

/// Policies go before their tier and come after it; what is in the way of others goes first.
fn in_order(restored: &[Restored]) -> Vec<&Restored> {
    let mut ranked: BTreeMap<u8, Vec<&Restored>> = BTreeMap::new();
    for one in restored {
        let is_tier = Name::at_key(&one.key).is_some_and(|name| name.kind == Kind::Tier);
        let rank = match (&one.value, is_tier) {
            (None, false) => 0,
            (None, true) => 1,
            (Some(_), true) => 2,
            (Some(_), false) => 3,
        };
        ranked.entry(rank).or_default().push(one);
    }
    ranked.into_values().flatten().collect()
}
