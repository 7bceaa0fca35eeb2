//! Writing objects, one or many: plans become transactions.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::read::stored;
use super::view::View;
use super::write::Planned;
use super::{Applied, Change, Error, Name, Resources, Together, Verb, Written};
use crate::{Committed, Compare, KeyValue, Op, Txn};

/// etcd takes 128 conditions, and as many changes, in a transaction.
const CONDITIONS_MAX: usize = 128;

/// Some room is left for tiers.
const CHUNK_MAX: usize = 100;

/// etcd takes 1.5 MiB in a request.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Up to so many objects that have nothing to do with each other get a transaction each, so that
/// each has a revision of its own as it would have from Calico's tools.
const SINGLY_MAX: usize = 50;

/// How often a write is planned anew because somebody else wrote at the same time.
pub(super) const ATTEMPTS: u32 = 20;

type Outcome = Result<Written, Error>;

/// What a write would do to an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// The object as it is; none if it is not there.
    pub before: Option<Value>,
    /// The object as it would be.
    pub after: Value,
}

impl Resources {
    /// Writes an object. `metadata.resourceVersion` in it, on update and apply, is the revision
    /// that must be stored. Namespaced objects without a namespace go to `default`.
    pub fn write(&self, verb: Verb, object: &Value) -> Outcome {
        let is_pinned = verb != Verb::Create
            && object.pointer("/metadata/resourceVersion").is_some_and(|version| version != "");
        let mut attempts = 0;
        loop {
            let planned = self.plan(&mut View::new(&self.store), verb, object)?;
            let name = planned.name.clone();
            // What others do to other objects says nothing about the revision that is wanted.
            let depends_on_others = planned
                .conditions
                .iter()
                .any(|condition| matches!(condition, Compare::NothingNewer { .. }));
            if let Ok(mut written) = self.commit(vec![planned])? {
                return written.remove(0);
            }
            attempts += 1;
            if is_pinned && !depends_on_others || attempts == ATTEMPTS {
                return Err(Error::Conflict(name));
            }
            give_way(attempts);
        }
    }

    /// Writes several objects in the order given; one answer each, in the same order.
    pub fn write_all(
        &self,
        verb: Verb,
        objects: &[impl Borrow<Value>],
        together: Together,
    ) -> Vec<Outcome> {
        match together {
            Together::EachForItself if objects.len() <= SINGLY_MAX => {
                objects.iter().map(|object| self.write(verb, object.borrow())).collect()
            }
            Together::EachForItself => self.write_each(verb, objects),
            Together::AllOrNothing => self.write_together(verb, objects),
        }
    }

    /// What applying the objects would do, without doing it: each as it is and as it would be.
    /// They are decoded one by one, so that whoever keeps none pays for one.
    pub fn preview<O: Borrow<Value>>(
        &self,
        objects: &[O],
    ) -> impl Iterator<Item = Result<Preview, Error>> + use<O> {
        let mut view = View::new(&self.store);
        let expected = self.expect_initialised(&mut view);
        let planned = expected.and_then(|()| self.plan_in(&mut view, Verb::Apply, objects));
        planned.unwrap_or_else(|error| vec![Err(error)]).into_iter().map(|plan| {
            let plan = plan?;
            let before = plan.before.clone().and_then(|value| {
                let entry = entry(&plan.name, value, plan.revision);
                stored(plan.name.kind, &entry).ok()
            });
            let revision = plan.revision;
            let after = written(plan, revision).stored()?.object;
            Ok(Preview { before: before.map(|stored| stored.object), after })
        })
    }

    fn write_each<O: Borrow<Value>>(&self, verb: Verb, objects: &[O]) -> Vec<Outcome> {
        let write = |object: &O| self.write(verb, object.borrow());
        let planned = match self.plan_all(verb, objects) {
            Ok(planned) => planned,
            // Each write then tells for itself why the store does not answer.
            Err(_) => return objects.iter().map(write).collect(),
        };
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        let mut plans = Vec::new();
        for (index, result) in planned.into_iter().enumerate() {
            match result {
                Ok(plan) => {
                    plans.push((index, plan));
                    outcomes.push(None);
                }
                Err(error) => outcomes.push(Some(Err(error))),
            }
        }
        for chunk in chunks(plans, weigh) {
            let (indexes, plans): (Vec<usize>, Vec<Planned>) = chunk.into_iter().unzip();
            let written = match self.commit(plans) {
                Ok(Ok(written)) => written,
                _ => indexes.iter().map(|index| write(&objects[*index])).collect(),
            };
            for (index, outcome) in indexes.into_iter().zip(written) {
                outcomes[index] = Some(outcome);
            }
        }
        outcomes.into_iter().flatten().collect()
    }

    fn write_together(&self, verb: Verb, objects: &[impl Borrow<Value>]) -> Vec<Outcome> {
        let mut done: Vec<Outcome> = Vec::new();
        let mut attempts = 0;
        loop {
            let n_done = done.len();
            let rest = &objects[n_done..];
            let planned = match self.plan_all(verb, rest) {
                Ok(planned) => planned,
                Err(error) => {
                    done.push(Err(error));
                    return not_attempted(done, objects);
                }
            };
            if planned.iter().any(Result::is_err) {
                done.extend(
                    planned
                        .into_iter()
                        .map(|result| result.and_then(|plan| Err(Error::NotAttempted(plan.name)))),
                );
                return done;
            }
            let plans = planned.into_iter().flatten().enumerate().collect();
            let mut conflict = None;
            for chunk in chunks(plans, weigh) {
                match self.commit(chunk.into_iter().map(|(_, plan)| plan).collect()) {
                    Ok(Ok(written)) => done.extend(written),
                    Ok(Err(mut plans)) => {
                        conflict = Some(plans.remove(0).name);
                        break;
                    }
                    Err(error) => {
                        done.push(Err(error));
                        return not_attempted(done, objects);
                    }
                }
            }
            let Some(name) = conflict else { return done };
            // An earlier part of the request may be what a later one meets.
            attempts = if done.len() > n_done { 0 } else { attempts + 1 };
            if attempts == ATTEMPTS {
                done.push(Err(Error::Conflict(name)));
                return not_attempted(done, objects);
            }
            give_way(attempts);
        }
    }

    fn plan_all(
        &self,
        verb: Verb,
        objects: &[impl Borrow<Value>],
    ) -> Result<Vec<Result<Planned, Error>>, Error> {
        self.plan_in(&mut View::new(&self.store), verb, objects)
    }

    fn plan_in(
        &self,
        view: &mut View<'_>,
        verb: Verb,
        objects: &[impl Borrow<Value>],
    ) -> Result<Vec<Result<Planned, Error>>, Error> {
        let kind = |object: &Value| object.get("kind")?.as_str()?.parse().ok();
        let objects = || objects.iter().map(Borrow::borrow);
        let names: Vec<Name> =
            objects().filter_map(|object| Some(Name::of(kind(object)?, object))).collect();
        view.expect(&names)?;
        let mut planned = Vec::with_capacity(names.len());
        for object in objects() {
            let result = match self.plan(view, verb, object) {
                Err(Error::Store(error)) => return Err(Error::Store(error)),
                result => result,
            };
            if let Ok(plan) = &result
                && plan.applied != Applied::Unchanged
            {
                view.pend(&plan.name, plan.value.clone())?;
            }
            planned.push(result);
        }
        Ok(planned)
    }

    /// Stores plans in one transaction; gives them back if a condition does not hold any more.
    fn commit(&self, plans: Vec<Planned>) -> Result<Result<Vec<Outcome>, Vec<Planned>>, Error> {
        let net = self.net(&plans);
        let mut compares: Vec<Compare> = Vec::new();
        for plan in plans.iter().filter(|plan| net.contains_key(&plan.name.key())) {
            for condition in &plan.conditions {
                if !compares.iter().any(|known| known == condition) {
                    compares.push(condition.clone());
                }
            }
        }
        let mut revision = 0;
        if !net.is_empty() {
            let put = |(key, net): (&String, &Net<'_>)| Op::Put {
                key: key.clone(),
                value: net.value.to_vec(),
            };
            let ops = net.iter().map(put).collect();
            match self.commit_told(Txn { compares, ops }, || told(&net)) {
                Ok(Committed::Applied { revision: at }) => revision = at,
                Ok(Committed::Conflict { .. }) => return Ok(Err(plans)),
                Err(lost @ crate::Error::Uncertain(_)) => {
                    revision = self.applied_after_all(&net)?.ok_or(lost)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let keys: BTreeSet<String> = net.into_keys().collect();
        Ok(Ok(plans
            .into_iter()
            .map(|mut plan| {
                if !keys.contains(&plan.name.key()) {
                    plan.applied = Applied::Unchanged;
                }
                Ok(written(plan, revision))
            })
            .collect()))
    }

    /// What plans come to, by key: an object may be named twice, and then be what it was before.
    fn net<'p>(&self, plans: &'p [Planned]) -> BTreeMap<String, Net<'p>> {
        let mut net: BTreeMap<String, Net<'p>> = BTreeMap::new();
        for plan in plans.iter().filter(|plan| plan.applied != Applied::Unchanged) {
            let value = plan.value.as_slice();
            let before = plan.before.as_deref().map(|before| (before, plan.revision));
            net.entry(plan.name.key()).or_insert(Net { before, value }).value = value;
        }
        let is_same = |net: &Net<'_>| net.before.map(|(before, _)| before) == Some(net.value);
        net.retain(|_, it| self.manner.rewrite_unchanged || !is_same(it));
        net
    }
}

/// What becomes of a key.
struct Net<'p> {
    before: Option<(&'p [u8], i64)>,
    value: &'p [u8],
}

impl Resources {
    /// The revision of a transaction whose answer was lost, if what it wrote is stored: no other
    /// client writes these very bytes, which hold fresh identifiers or times of a new object, or
    /// for a change, the same content.
    fn applied_after_all(&self, net: &BTreeMap<String, Net<'_>>) -> Result<Option<i64>, Error> {
        let Some((key, net)) = net.last_key_value() else { return Ok(None) };
        let entry = self.store.get(key)?.0;
        Ok(entry.filter(|entry| entry.value == net.value).map(|entry| entry.mod_revision))
    }
}

/// Waits before the next attempt, the longer the more there were, and not as long as others do.
pub(super) fn give_way(attempts: u32) {
    let own_ms = std::process::id() % 3;
    std::thread::sleep(Duration::from_millis(u64::from(attempts.saturating_sub(1) + own_ms)));
}

fn told(net: &BTreeMap<String, Net<'_>>) -> Vec<Change> {
    let change = |(key, net): (&String, &Net<'_>)| {
        let before = net.before.map(|(before, revision)| (before.to_vec(), revision));
        Change::new(key.clone(), before, Some(net.value))
    };
    net.iter().map(change).collect()
}

fn weigh((_, plan): &(usize, Planned)) -> (Vec<Compare>, usize) {
    (plan.conditions.clone(), plan.value.len())
}

fn written(plan: Planned, revision: i64) -> Written {
    // What repeats an earlier object of the same request is as new as that one.
    let is_old = plan.applied == Applied::Unchanged && plan.revision > 0;
    let revision = if is_old { plan.revision } else { revision };
    let Planned { name, applied, value, .. } = plan;
    Written { name, revision, applied, value }
}

pub(super) fn entry(name: &Name, value: Vec<u8>, revision: i64) -> KeyValue {
    let key = name.key();
    KeyValue { key, value, create_revision: 0, mod_revision: revision, version: 0, lease: 0 }
}

/// The rest of the answers of a request that stopped.
fn not_attempted(mut done: Vec<Outcome>, objects: &[impl Borrow<Value>]) -> Vec<Outcome> {
    for object in objects.iter().map(Borrow::borrow).skip(done.len()) {
        let kind_name = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        done.push(Err(match kind_name.parse() {
            Ok(kind) => Error::NotAttempted(Name::of(kind, object)),
            Err(_) => Error::UnknownKind(kind_name.to_owned()),
        }));
    }
    done
}

/// Parts a request so that each part fits into a transaction. `weigh` tells what one of it asks of
/// others, and its bytes.
pub(super) fn chunks<T>(all: Vec<T>, weigh: impl Fn(&T) -> (Vec<Compare>, usize)) -> Vec<Vec<T>> {
    let mut chunks: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    let mut conditions: Vec<Compare> = Vec::new();
    for one in all {
        let (own_conditions, own_bytes) = weigh(&one);
        let n_new = own_conditions.iter().filter(|it| !conditions.contains(it)).count();
        let is_full = chunks.last().is_none_or(|chunk| chunk.len() >= CHUNK_MAX)
            || bytes + own_bytes > CHUNK_BYTES_MAX
            || conditions.len() + n_new > CONDITIONS_MAX;
        if is_full {
            chunks.push(Vec::new());
            bytes = 0;
            conditions.clear();
        }
        for condition in own_conditions {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        bytes += own_bytes;
        if let Some(chunk) = chunks.last_mut() {
            chunk.push(one);
        }
    }
    chunks
}
