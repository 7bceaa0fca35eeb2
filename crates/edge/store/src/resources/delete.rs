//! Deleting objects, and what has to happen before.

use std::thread::sleep;
use std::time::Duration;

use api::Kind;
use model::prepare::{check_delete, delete_needs_policies};
use net::Cidr;
use serde_json::{Value, json};

use super::batch::{ATTEMPTS, give_way};
use super::name::list_prefix;
use super::read::{self, Found};
use super::write::refused;
use super::{Change, Error, Name, Resources, Stored};
use crate::{Committed, Compare, KeyValue, Op, Txn};

/// How long a pool stays disabled before its blocks are taken from their nodes: assignments that
/// had begun can end meanwhile.
const POOL_PAUSE: Duration = Duration::from_millis(500);

const IN_TIERS: [Kind; 4] = [
    Kind::NetworkPolicy,
    Kind::GlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
];

impl Resources {
    /// Deletes an object, if it is still at the revision given, and returns what it was. An
    /// object that cannot be read can be deleted; what is returned is `null` then.
    ///
    /// With a pool its blocks lose their nodes; with a node its addresses, endpoints, peers and
    /// settings go.
    pub fn delete(&self, name: &Name, revision: Option<i64>) -> Result<Stored, Error> {
        if name.kind == Kind::ClusterInformation {
            return Err(Error::Refused {
                name: name.clone(),
                reason: "the cluster information is kept by the nodes and cannot be deleted"
                    .to_owned(),
                calico: "operation delete is not supported on ClusterInformation".to_owned(),
            });
        }
        if delete_needs_policies(name.kind, &name.name) {
            return self.delete_if_unused(name, revision);
        }
        check_delete(name.kind, &name.name, &[]).map_err(|refusal| refused(name, refusal))?;
        let mut done = Vec::new();
        let deleted = match name.kind {
            Kind::IpPool => self.delete_pool(name, revision, &mut done),
            Kind::Node => self.delete_node(name, revision, &mut done),
            _ => self.remove(name, revision),
        };
        deleted.map_err(|error| match done.is_empty() || error.is_not_found() {
            true => error,
            false => Error::Unfinished { name: name.clone(), done, cause: Box::new(error) },
        })
    }

    /// Deletes a tier; policies that appear in it meanwhile keep it alive.
    fn delete_if_unused(&self, name: &Name, revision: Option<i64>) -> Result<Stored, Error> {
        for attempts in 1..=ATTEMPTS {
            let (policies, conditions) = self.policies_in_tiers()?;
            let policies: Vec<Value> = policies.into_iter().map(|it| it.object).collect();
            check_delete(name.kind, &name.name, &policies)
                .map_err(|refusal| refused(name, refusal))?;
            if let Some(removed) = self.remove_if(name, revision, conditions)? {
                return Ok(removed);
            }
            give_way(attempts);
        }
        Err(Error::Conflict(name.clone()))
    }

    /// All policies, and the condition that no others have come.
    pub(super) fn policies_in_tiers(&self) -> Result<(Vec<Stored>, Vec<Compare>), Error> {
        let mut policies = Vec::new();
        let mut conditions = Vec::new();
        for kind in IN_TIERS {
            let revision = self.each(kind, None, |object| {
                policies.extend(object);
                std::ops::ControlFlow::Continue(())
            })?;
            conditions.push(Compare::NothingNewer { prefix: list_prefix(kind, None), revision });
        }
        Ok((policies, conditions))
    }

    /// Deletes an object and nothing else.
    pub(super) fn remove(&self, name: &Name, revision: Option<i64>) -> Result<Stored, Error> {
        loop {
            if let Some(removed) = self.remove_if(name, revision, Vec::new())? {
                return Ok(removed);
            }
        }
    }

    /// Deletes an object under further conditions; none if somebody else wrote at the same time.
    fn remove_if(
        &self,
        name: &Name,
        revision: Option<i64>,
        mut compares: Vec<Compare>,
    ) -> Result<Option<Stored>, Error> {
        let entry = self.store.get(&name.key())?.0;
        let entry = entry.ok_or_else(|| Error::NotFound(name.clone()))?;
        if revision.is_some_and(|revision| revision != entry.mod_revision) {
            return Err(Error::Conflict(name.clone()));
        }
        compares.push(Compare::ModRevision(entry.key.clone(), entry.mod_revision));
        let ops = vec![Op::Delete { key: entry.key.clone() }];
        let before = Some((entry.value.clone(), entry.mod_revision));
        let told = || vec![Change::new(name.key(), before, None)];
        let Committed::Applied { .. } = self.commit_told(Txn { compares, ops }, told)? else {
            return Ok(None);
        };
        let unreadable =
            |_| Stored { name: name.clone(), object: Value::Null, revision: entry.mod_revision };
        Ok(Some(read::stored(name.kind, &entry).unwrap_or_else(unreadable)))
    }

    /// Deletes an object that may be gone already.
    pub(super) fn remove_if_there(&self, name: &Name, done: &mut Vec<String>) -> Result<(), Error> {
        match self.remove(name, None) {
            Ok(_) => done.push(format!("{} was removed", name.spoken())),
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn delete_pool(
        &self,
        name: &Name,
        revision: Option<i64>,
        done: &mut Vec<String>,
    ) -> Result<Stored, Error> {
        let entry = self.store.get(&name.key())?.0;
        let entry = entry.ok_or_else(|| Error::NotFound(name.clone()))?;
        if revision.is_some_and(|revision| revision != entry.mod_revision) {
            return Err(Error::Conflict(name.clone()));
        }
        // A pool that cannot be read gives out no addresses and owns no blocks that we could name.
        let Ok(found) = Found::read(name.kind, &entry) else { return self.remove(name, revision) };
        let mut last = entry.mod_revision;
        if found.value.pointer("/spec/disabled") != Some(&json!(true)) {
            last = self.disable_pool(name, &found, &entry.value)?;
            done.push("the pool was disabled".to_owned());
            sleep(POOL_PAUSE);
        }
        self.release_blocks(&found.value, done)?;
        self.remove(name, revision.map(|_| last))
    }

    /// Takes the blocks of a pool that is gone from their nodes.
    pub(super) fn clear_pool(&self, was: &KeyValue, done: &mut Vec<String>) -> Result<(), Error> {
        match Found::read(Kind::IpPool, was) {
            Ok(found) => self.release_blocks(&found.value, done),
            Err(_) => Ok(()),
        }
    }

    fn release_blocks(&self, pool: &Value, done: &mut Vec<String>) -> Result<(), Error> {
        let cidr = pool.pointer("/spec/cidr").and_then(Value::as_str);
        let Some(cidr) = cidr.and_then(Cidr::parse_strict) else { return Ok(()) };
        self.release_affinities(|affinity| cidr.contains(affinity.cidr.network()), done)
    }

    fn disable_pool(&self, name: &Name, found: &Found, before: &[u8]) -> Result<i64, Error> {
        let mut value = found.value.clone();
        if !value.get("spec").is_some_and(Value::is_object) {
            value["spec"] = json!({});
        }
        value["spec"]["disabled"] = json!(true);
        let table = api::schema::object_for(name.kind);
        let (value, _) = api::schema::decode(table, value, api::schema::Mode::Stored);
        let value = text::json::to_string(&value).into_bytes();
        let txn = Txn {
            compares: vec![Compare::ModRevision(name.key(), found.revision)],
            ops: vec![Op::Put { key: name.key(), value: value.clone() }],
        };
        let before = Some((before.to_vec(), found.revision));
        let told = || vec![Change::new(name.key(), before, Some(&value))];
        match self.commit_told(txn, told)? {
            Committed::Applied { revision } => Ok(revision),
            Committed::Conflict { .. } => Err(Error::Conflict(name.clone())),
        }
    }
}
