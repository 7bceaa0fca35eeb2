//! What every store holds before anything else: the cluster information and three tiers.

use api::Kind;
use api::schema::{Mode, decode, object_for};
use serde_json::{Value, json};

use super::read::Found;
use super::view::View;
use super::{Error, Name, Resources};
use crate::{Committed, Compare, Op, Txn};

/// The tiers that are always there, with their orders and default actions.
const TIERS: [(&str, f64, &str); 3] = [
    ("default", 1_000_000.0, "Deny"),
    ("kube-admin", 1_000.0, "Pass"),
    ("kube-baseline", 10_000_000.0, "Pass"),
];

impl Resources {
    /// Makes what is missing of the cluster information and the tiers that are always there. An
    /// existing `calicoVersion` is never changed. Does nothing on a store that has all of it.
    pub fn initialise(&self) -> Result<(), Error> {
        self.ensure_cluster_information()?;
        for (tier, order, action) in TIERS {
            let name = Name::cluster(Kind::Tier, tier);
            if self.store.get(&name.key())?.0.is_none() {
                let spec = json!({ "order": order, "defaultAction": action });
                self.put_new(&name, spec)?;
            }
        }
        Ok(())
    }

    /// Lets a request see the tiers that the first write will make.
    pub(super) fn expect_initialised(&self, view: &mut View<'_>) -> Result<(), Error> {
        for (tier, order, action) in TIERS {
            let name = Name::cluster(Kind::Tier, tier);
            if view.entry(&name)?.is_none() {
                let tier = fresh(&name, json!({ "order": order, "defaultAction": action }));
                view.pend(&name, text::json::to_string(&tier).into_bytes())?;
            }
        }
        Ok(())
    }

    fn ensure_cluster_information(&self) -> Result<(), Error> {
        let name = Name::cluster(Kind::ClusterInformation, "default");
        let entry = self.store.get(&name.key())?.0;
        if entry.is_none() {
            let mut spec = json!({ "clusterGUID": guid(), "datastoreReady": true });
            if !self.manner.calico_version.is_empty() {
                spec["calicoVersion"] = self.manner.calico_version.clone().into();
            }
            return self.put_new(&name, spec);
        }
        self.change_cluster_information(|spec| {
            let has_guid =
                spec.get("clusterGUID").and_then(Value::as_str).is_some_and(|it| !it.is_empty());
            if !has_guid {
                spec["clusterGUID"] = guid().into();
            }
            if spec.get("datastoreReady").is_none_or(Value::is_null) {
                spec["datastoreReady"] = true.into();
            }
        })
    }

    /// Opens or locks the store for everybody: while it is locked nodes keep what they have and
    /// make nothing new.
    pub fn set_datastore_ready(&self, is_ready: bool) -> Result<(), Error> {
        self.change_cluster_information(|spec| spec["datastoreReady"] = is_ready.into())
    }

    fn change_cluster_information(&self, change: impl Fn(&mut Value)) -> Result<(), Error> {
        let name = Name::cluster(Kind::ClusterInformation, "default");
        loop {
            let entry = self.store.get(&name.key())?.0;
            let entry = entry.ok_or_else(|| Error::NotFound(name.clone()))?;
            let found = Found::read(name.kind, &entry).map_err(Error::Unreadable)?;
            let mut value = found.value.clone();
            if !value.get("spec").is_some_and(Value::is_object) {
                value["spec"] = json!({});
            }
            change(&mut value["spec"]);
            let (value, _) = decode(object_for(name.kind), value, Mode::Stored);
            if value == found.value {
                return Ok(());
            }
            let compare = Compare::ModRevision(name.key(), entry.mod_revision);
            if self.put(compare, &name, &value)? {
                return Ok(());
            }
        }
    }

    /// Makes an object that no user asked for; somebody else having made it meanwhile is as good.
    fn put_new(&self, name: &Name, spec: Value) -> Result<(), Error> {
        let value = fresh(name, spec);
        self.put(Compare::Absent(name.key()), name, &value)?;
        Ok(())
    }

    fn put(&self, compare: Compare, name: &Name, value: &Value) -> Result<bool, Error> {
        let value = text::json::to_string(value).into_bytes();
        let ops = vec![Op::Put { key: name.key(), value }];
        let committed = self.store.commit(Txn { compares: vec![compare], ops })?;
        Ok(matches!(committed, Committed::Applied { .. }))
    }
}

fn fresh(name: &Name, spec: Value) -> Value {
    let value = json!({
        "kind": name.kind.name(),
        "apiVersion": "projectcalico.org/v3",
        "metadata": {
            "name": name.name,
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": super::now(),
        },
        "spec": spec,
    });
    decode(object_for(name.kind), value, Mode::Stored).0
}

fn guid() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
