//! The client for v3 resources: reads and writes whole objects over a [`Store`].
//!
//! It does what Calico's own client library does (defaults, validation, rules between objects,
//! conflict detection) with two laws of ours. What a datastore holds is never refused as a whole:
//! an unusable object is quarantined by name and field, the rest is served. And an update patches
//! what is stored: fields that our tables do not know survive it.

mod batch;
mod delete;
mod error;
mod init;
pub mod ipam;
mod journal;
mod name;
mod node;
mod read;
mod restore;
mod view;
mod watch;
mod write;

pub use batch::Preview;
pub use error::{Error, Quarantined, calico_fields};
pub use journal::{Change, Journal, digest};
pub use name::Name;
pub use restore::{Cleared, NotRestored, Restored};
pub use watch::{ResourceEvent, ResourceWatch};

use std::ops::ControlFlow;
use std::sync::Arc;

use api::Kind;
use api::schema::{Mode, decode, object_for};
use serde_json::{Value, json};

use crate::{KeyValue, Store};
use name::list_prefix;
use read::{Judge, stored, stored_part};
use write::is_built_in;

/// An object as users see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its kind, namespace and name.
    pub name: Name,
    /// The object, `metadata.resourceVersion` included.
    pub object: Value,
    /// The store revision of its last change.
    pub revision: i64,
}

/// The objects of a kind.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The usable ones, in key order.
    pub objects: Vec<Stored>,
    /// The others.
    pub quarantined: Vec<Quarantined>,
    /// The store revision at which all of this was true.
    pub revision: i64,
}

/// What to do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Make it; it must not exist.
    Create,
    /// Replace it; it must exist.
    Update,
    /// Make or replace it.
    Apply,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The object is new.
    Created,
    /// The object was there and is different now.
    Changed,
    /// The object was there and is the same.
    Unchanged,
}

/// A written object.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Its kind, namespace and name.
    pub name: Name,
    /// The store revision of its last change.
    pub revision: i64,
    /// What the write did.
    pub applied: Applied,
    /// Its stored bytes; most callers never look at them, so they are not decoded for all.
    value: Vec<u8>,
}

impl Written {
    /// The object as it is now.
    pub fn stored(&self) -> Result<Stored, Error> {
        let entry = batch::entry(&self.name, self.value.clone(), self.revision);
        stored(self.name.kind, &entry).map_err(Error::Unreadable)
    }
}

/// What the several objects of one request have to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// If one is refused nothing is written. Up to 100 objects are one transaction; more are
    /// written in several, in the order given, after all have been found good.
    AllOrNothing,
    /// Each is written or refused by itself.
    EachForItself,
}

/// How the client behaves where Calico and we differ.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// The `calicoVersion` that a fresh store gets; empty for none.
    pub calico_version: String,
    /// Whether a write that changes nothing moves the revision all the same, as Calico's does.
    pub rewrite_unchanged: bool,
}

/// The client.
#[derive(Clone, Debug)]
pub struct Resources {
    store: Store,
    manner: Manner,
    journal: Option<Arc<dyn Journal>>,
}

impl Resources {
    /// A client of the store.
    pub fn new(store: Store, manner: Manner) -> Self {
        Self { store, manner, journal: None }
    }

    /// The same, whose changes are told to a journal.
    pub fn with_journal(self, journal: Arc<dyn Journal>) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// The store underneath.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Reads an object.
    pub fn get(&self, name: &Name) -> Result<Stored, Error> {
        if is_built_in(name) {
            return Ok(default_allow_profile());
        }
        match self.store.get(&name.key())?.0 {
            Some(entry) => stored(name.kind, &entry).map_err(Error::Unreadable),
            None => Err(Error::NotFound(name.clone())),
        }
    }

    /// Reads the objects of a kind, in one namespace or in all. The unusable ones are named, the
    /// others served.
    pub fn list(&self, kind: Kind, namespace: Option<&str>) -> Result<Listing, Error> {
        let mut listing = Listing::default();
        // Listing anew after a compaction must not keep what was handed over before.
        for entry in self.entries(kind, namespace, &mut listing.revision)? {
            match stored(kind, &entry) {
                Ok(object) => listing.objects.push(object),
                Err(quarantined) => listing.quarantined.push(quarantined),
            }
        }
        if kind == Kind::Profile {
            listing.objects.push(default_allow_profile());
        }
        Ok(listing)
    }

    fn entries(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        revision: &mut i64,
    ) -> Result<Vec<KeyValue>, Error> {
        let snapshot = self.store.list(&list_prefix(kind, namespace))?;
        *revision = snapshot.revision;
        Ok(snapshot.entries)
    }

    /// Hands over the objects of a kind one by one, in key order, and returns the revision at
    /// which all of this was true. Memory does not grow with their number.
    pub fn each(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        each: impl FnMut(Result<Stored, Quarantined>) -> ControlFlow<()>,
    ) -> Result<i64, Error> {
        self.each_part(kind, namespace, None, each)
    }

    /// As [`Resources::each`], for a caller who looks only at these fields of the spec: the others
    /// are judged as well, but may be missing from the objects.
    pub fn each_part(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        spec_fields: Option<&[&str]>,
        mut each: impl FnMut(Result<Stored, Quarantined>) -> ControlFlow<()>,
    ) -> Result<i64, Error> {
        // A policy's tier is part of how it is shown.
        let spec_fields = spec_fields.map(|fields| [fields, &["tier"]].concat());
        let mut read = |entry: &KeyValue| stored_part(kind, entry, spec_fields.as_deref());
        self.each_read(kind, namespace, &mut read, &mut each)
    }

    /// As [`Resources::each_part`], with the objects held to the rules of writes as
    /// [`Stored::judged`] does it: one that breaks them is set aside.
    pub fn each_judged(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        spec_fields: Option<&[&str]>,
        mut each: impl FnMut(Result<Stored, Quarantined>) -> ControlFlow<()>,
    ) -> Result<i64, Error> {
        let mut judge = Judge::new(kind, spec_fields);
        self.each_read(kind, namespace, &mut |entry| judge.judged(entry), &mut each)
    }

    fn each_read(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        read: &mut dyn FnMut(&KeyValue) -> Result<Stored, Quarantined>,
        each: &mut dyn FnMut(Result<Stored, Quarantined>) -> ControlFlow<()>,
    ) -> Result<i64, Error> {
        let mut is_over = false;
        let revision = self.store.list_each(&list_prefix(kind, namespace), |entry| {
            let flow = each(read(&entry));
            is_over = flow.is_break();
            flow
        })?;
        if kind == Kind::Profile && !is_over {
            let _ = each(Ok(default_allow_profile()));
        }
        Ok(revision)
    }
}

/// The present time as Kubernetes writes it.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The profile that exists without being stored.
fn default_allow_profile() -> Stored {
    let name = Name::cluster(Kind::Profile, "projectcalico-default-allow");
    let object = json!({
        "kind": "Profile",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {
            "name": name.name, "resourceVersion": "1", "creationTimestamp": null,
        },
        "spec": { "ingress": [allow_all()], "egress": [allow_all()] },
    });
    let (object, _) = decode(object_for(Kind::Profile), object, Mode::Stored);
    Stored { name, object, revision: 1 }
}

fn allow_all() -> Value {
    json!({ "action": "Allow" })
}

#[cfg(test)]
mod tests;
