//! Planning a write: from the object a user gives to the bytes and the conditions of a transaction.

use api::Kind;
use api::schema::{Mode, decode, object_for};
use model::prepare::{Context, Refusal, prepare_create, prepare_update};
use serde_json::{Map, Value};

use super::read::Found;
use super::view::View;
use super::{Applied, Error, Name, Resources, Verb};
use crate::Compare;

/// The annotation in which stored policies keep the name that users know.
const NAME_ANNOTATION: &str = "projectcalico.org/metadata";

/// A write that is good to go.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) name: Name,
    pub(super) applied: Applied,
    /// The bytes to store.
    pub(super) value: Vec<u8>,
    /// What must still be true when it is stored.
    pub(super) conditions: Vec<Compare>,
    /// The revision of what is stored already, for writes that change nothing.
    pub(super) revision: i64,
    /// The bytes that are stored already.
    pub(super) before: Option<Vec<u8>>,
}

impl Resources {
    /// Decides what a write of the object amounts to, given what the view shows.
    pub(super) fn plan(
        &self,
        view: &mut View<'_>,
        verb: Verb,
        object: &Value,
    ) -> Result<Planned, Error> {
        let (name, object) = named(object)?;
        let is_fixed = name.kind == Kind::ClusterInformation || is_built_in(&name);
        // Calico's tools refuse these whatever is said about them.
        if is_fixed && verb != Verb::Create && !self.manner.rewrite_unchanged {
            return self.plan_fixed(view, name, verb, &object);
        }
        if name.kind == Kind::ClusterInformation {
            return Err(read_only(name, verb));
        }
        match verb {
            Verb::Create => self.plan_create(view, name, object),
            Verb::Update => self.plan_update(view, name, object),
            Verb::Apply => {
                // A resourceVersion means a certain state; making the object anew is not it.
                let mut fresh = object.clone();
                metadata_mut(&mut fresh).shift_remove("resourceVersion");
                match self.plan_create(view, name.clone(), fresh) {
                    Err(error) if error.means_update() => self.plan_update(view, name, object),
                    planned => planned,
                }
            }
        }
    }

    fn plan_create(
        &self,
        view: &mut View<'_>,
        name: Name,
        object: Value,
    ) -> Result<Planned, Error> {
        let kind = name.kind;
        let (neighbours, mut conditions) = view.neighbours(kind, &object, true)?;
        let context = self.context();
        let prepared = prepare_create(kind, object, &context, &neighbours)
            .map_err(|refusal| refused(&name, refusal))?;
        // Workload endpoints get their name only now.
        let name = Name::of(kind, &prepared);
        if view.entry(&name)?.is_some() {
            return Err(Error::AlreadyExists(name));
        }
        conditions.push(view.condition(&name)?);
        let value = text::json::to_string(&prepared).into_bytes();
        Ok(Planned {
            name,
            applied: Applied::Created,
            value,
            conditions,
            revision: 0,
            before: None,
        })
    }

    fn plan_update(
        &self,
        view: &mut View<'_>,
        name: Name,
        object: Value,
    ) -> Result<Planned, Error> {
        let kind = name.kind;
        let entry = match view.entry(&name)? {
            Some(entry) => entry,
            None if is_built_in(&name) => return Err(self.refuse_built_in(name, object)),
            None => return Err(Error::NotFound(name)),
        };
        let wanted = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        if wanted.is_some_and(|it| !it.is_empty() && it != entry.mod_revision.to_string()) {
            return Err(Error::Conflict(name));
        }
        let found = Found::read(kind, &entry).map_err(Error::Unreadable)?;
        let shown = found.clone().show(&entry.value).map_err(Error::Unreadable)?;
        let (neighbours, mut conditions) = view.neighbours(kind, &object, false)?;
        let prepared = prepare_update(kind, &shown.object, object, &self.context(), &neighbours)
            .map_err(|refusal| refused(&name, refusal))?;
        let next = next_version(kind, &found.value, prepared);
        let is_same = next == found.value;
        conditions.push(view.condition(&name)?);
        let value = text::json::to_string(&next).into_bytes();
        let applied = match is_same && !self.manner.rewrite_unchanged {
            true => Applied::Unchanged,
            false => Applied::Changed,
        };
        let before = Some(entry.value);
        Ok(Planned { name, applied, value, conditions, revision: found.revision, before })
    }

    /// An object that users cannot change may be given as it is, as a listing shows it.
    fn plan_fixed(
        &self,
        view: &mut View<'_>,
        name: Name,
        verb: Verb,
        object: &Value,
    ) -> Result<Planned, Error> {
        let shown = match is_built_in(&name) {
            true => super::default_allow_profile(),
            false => {
                let entry = view.entry(&name)?.ok_or_else(|| Error::NotFound(name.clone()))?;
                super::stored(name.kind, &entry).map_err(Error::Unreadable)?
            }
        };
        let (given, _) = decode(object_for(name.kind), object.clone(), Mode::Stored);
        let own = |object: &Value| {
            let metadata = object.get("metadata");
            let of = |field: &str| metadata.and_then(|metadata| metadata.get(field)).cloned();
            (object.get("spec").cloned(), of("labels"), of("annotations"))
        };
        if own(&given) != own(&shown.object) {
            let kept = match is_built_in(&name) {
                true => "it is built in and cannot be changed",
                false => "the cluster information is kept by the nodes and cannot be changed",
            };
            let reason = format!("{kept}; leave it out, or give it as margay get shows it");
            let calico = not_supported(name.kind, verb);
            return Err(Error::Refused { name, reason, calico });
        }
        Ok(Planned {
            value: text::json::to_string(&shown.object).into_bytes(),
            revision: shown.revision,
            applied: Applied::Unchanged,
            conditions: Vec::new(),
            before: None,
            name,
        })
    }

    fn refuse_built_in(&self, name: Name, object: Value) -> Error {
        let nothing = Value::Object(Map::new());
        let neighbours = model::prepare::Neighbours::default();
        match prepare_update(name.kind, &nothing, object, &self.context(), &neighbours) {
            Err(refusal) => refused(&name, refusal),
            Ok(_) => Error::NotFound(name),
        }
    }

    pub(super) fn context(&self) -> Context {
        Context {
            uid: uuid::Uuid::new_v4().to_string(),
            now: super::now(),
            default_namespace: "default".to_owned(),
        }
    }
}

/// The stored object with what the user changed: metadata other than labels and annotations is
/// not the user's, the note of a policy's name stays as it is, unknown fields survive, and so
/// does a status that the user does not give.
fn next_version(kind: Kind, stored: &Value, mut prepared: Value) -> Value {
    let given = std::mem::take(metadata_mut(&mut prepared));
    let mut metadata =
        stored.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    let note = stored
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(NAME_ANNOTATION))
        .cloned();
    for field in ["labels", "annotations"] {
        match given.get(field) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.shift_remove(field),
        };
    }
    if let Some(note) = note
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.insert(NAME_ANNOTATION.to_owned(), note);
    }
    *metadata_mut(&mut prepared) = metadata;
    let table = object_for(kind);
    // What nodes and controllers report is not the user's to wipe by leaving it out.
    let blank = decode(table, Value::Object(Map::new()), Mode::Stored).0;
    if prepared.get("status") == blank.get("status")
        && let Some(status) = stored.get("status")
    {
        prepared["status"] = status.clone();
    }
    api::carry_unknown(table, stored, &mut prepared);
    decode(table, prepared, Mode::Stored).0
}

/// The kind and name of a user's object; a namespaced object without one is in `default`.
fn named(object: &Value) -> Result<(Name, Value), Error> {
    let kind_name = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let Ok(kind) = kind_name.parse::<Kind>() else {
        return Err(Error::UnknownKind(kind_name.to_owned()));
    };
    let mut object = object.clone();
    let metadata = metadata_mut(&mut object);
    let is_placed =
        metadata.get("namespace").and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    if kind.is_namespaced() && !is_placed {
        metadata.insert("namespace".to_owned(), Value::String("default".to_owned()));
    }
    Ok((Name::of(kind, &object), object))
}

pub(super) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        if !object.is_object() {
            *object = Value::Object(Map::new());
        }
        object["metadata"] = Value::Object(Map::new());
    }
    object["metadata"].as_object_mut().expect("made an object above")
}

/// Whether it exists without being stored.
pub(super) fn is_built_in(name: &Name) -> bool {
    name.kind == Kind::Profile && name.name == "projectcalico-default-allow"
}

fn read_only(name: Name, verb: Verb) -> Error {
    let calico = not_supported(name.kind, verb);
    let reason = "the cluster information is kept by the nodes and cannot be written".to_owned();
    Error::Refused { name, reason, calico }
}

fn not_supported(kind: Kind, verb: Verb) -> String {
    match verb {
        Verb::Create => format!("operation create or apply is not supported on {kind}"),
        Verb::Update => format!("operation apply or replace is not supported on {kind}"),
        Verb::Apply => {
            format!("operation apply is not supported on {kind}: resource is readonly")
        }
    }
}

pub(super) fn refused(name: &Name, refusal: Refusal) -> Error {
    let name = name.clone();
    match refusal {
        Refusal::Invalid(problems) => Error::Invalid { name, problems },
        Refusal::Missing { kind, name: other } => Error::NotFound(Name::cluster(kind, other)),
        Refusal::BuiltIn => Error::BuiltIn(name),
        Refusal::Refused { reason, calico } => Error::Refused { name, reason, calico },
    }
}
