//! From stored bytes to the object that users see, or to the reason why there is none.

use api::schema::{FamiliarItems, Mode, decode, decode_familiar, decode_regular, object_for};
use api::{CalicoError, Kind, Problem, Stage};
use model::present::present;
use serde_json::Value;

use super::{Name, Quarantined, Stored};
use crate::KeyValue;

/// How much of an unusable value is kept for the report.
const TEXT_MAX: usize = 4096;

/// A stored object in canonical form, with the fields that our tables do not know.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) name: Name,
    /// Canonical field order; unknown fields included; names as stored.
    pub(super) value: Value,
    pub(super) revision: i64,
    /// Whether our tables know all its fields.
    is_known: bool,
}

impl Found {
    /// Reads what lies under a key of the kind.
    pub(super) fn read(kind: Kind, entry: &KeyValue) -> Result<Self, Quarantined> {
        Self::read_part(kind, entry, None)
    }

    /// Reads it all, but may leave out fields of the spec that are not named.
    fn read_part(
        kind: Kind,
        entry: &KeyValue,
        spec_fields: Option<&[&str]>,
    ) -> Result<Self, Quarantined> {
        let name = Name::from_key(kind, &entry.key);
        let fail = |name, problems| quarantined(entry, name, problems);
        let Some(name) = name else {
            return Err(fail(None, vec![whole(format!("not a key of a {kind}"))]));
        };
        if entry.value.is_empty() {
            return Err(fail(Some(name), vec![whole("the value is empty")]));
        }
        let table = object_for(kind);
        let regular = decode_regular(table, &entry.value, spec_fields);
        let is_known = regular.is_some();
        let (value, mut problems) = match regular {
            Some(value) => (value, Vec::new()),
            None => match text::json::parse(&entry.value) {
                Ok(value) if value.is_object() => decode(table, value, Mode::Stored),
                Ok(_) => return Err(fail(Some(name), vec![whole("not a JSON object")])),
                Err(error) => return Err(fail(Some(name), vec![whole(error.to_string())])),
            },
        };
        if let Some(other) = value.get("kind").and_then(Value::as_str)
            && other != kind.name()
        {
            problems.push(problem("kind", format!("\"{other}\" lies where a {kind} belongs")));
        }
        match problems.is_empty() {
            true => Ok(Self { name, value, revision: entry.mod_revision, is_known }),
            false => Err(fail(Some(name), problems)),
        }
    }

    /// The object as users see it: without what our tables do not know, which would be refused
    /// when it comes back. The stored bytes are for the report when that is impossible.
    pub(super) fn show(self, bytes: &[u8]) -> Result<Stored, Quarantined> {
        let Self { name, mut value, revision, is_known } = self;
        if !is_known {
            api::strip_unknown(object_for(name.kind), &mut value);
        }
        match present(name.kind, value) {
            Ok(shown) => {
                let object = with_resource_version(shown, revision);
                Ok(Stored { name, object, revision })
            }
            Err(error) => Err(Quarantined {
                key: name.key(),
                problems: vec![problem("metadata.annotations", error.to_string())],
                text: excerpt(bytes),
                name: Some(name),
            }),
        }
    }
}

/// Names an entry that cannot be used.
pub(super) fn quarantined(
    entry: &KeyValue,
    name: Option<Name>,
    problems: Vec<Problem>,
) -> Quarantined {
    Quarantined { key: entry.key.clone(), name, problems, text: excerpt(&entry.value) }
}

fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(TEXT_MAX).collect()
}

/// Reads a stored object as users see it.
pub(super) fn stored(kind: Kind, entry: &KeyValue) -> Result<Stored, Quarantined> {
    stored_part(kind, entry, None)
}

/// The same, perhaps without the fields of its spec that are not named, if any are named.
pub(super) fn stored_part(
    kind: Kind,
    entry: &KeyValue,
    spec_fields: Option<&[&str]>,
) -> Result<Stored, Quarantined> {
    // Absent fields of these are shown as what they stand for, which depends on the others.
    let is_filled = matches!(kind, Kind::IpPool | Kind::Tier);
    let spec_fields = spec_fields.filter(|_| !is_filled);
    Found::read_part(kind, entry, spec_fields)?.show(&entry.value)
}

/// Reads and judges stored objects of one kind, one after the other.
pub(super) struct Judge {
    kind: Kind,
    familiar: FamiliarItems,
    /// Whether the lists with familiar items are wanted.
    keeps_items: bool,
}

impl Judge {
    /// For a caller who looks only at these fields of the spec, if any are named.
    pub(super) fn new(kind: Kind, spec_fields: Option<&[&str]>) -> Self {
        let familiar = FamiliarItems::of(model::validate::lists_judged_singly(kind));
        let keeps_items =
            spec_fields.is_none_or(|fields| fields.iter().any(|it| familiar.has_list(it)));
        Self { kind, familiar, keeps_items }
    }

    /// The object, provided that it can be read and keeps the rules of writes.
    pub(super) fn judged(&mut self, entry: &KeyValue) -> Result<Stored, Quarantined> {
        match self.quickly(entry) {
            Some(stored) => Ok(stored),
            None => stored(self.kind, entry)?.judged(),
        }
    }

    /// The same for an object that is as we or Calico write it and that no rule speaks against.
    fn quickly(&mut self, entry: &KeyValue) -> Option<Stored> {
        let kind = self.kind;
        if self.familiar.is_empty() {
            return None;
        }
        let name = Name::from_key(kind, &entry.key)?;
        let (value, met) =
            decode_familiar(object_for(kind), &entry.value, &self.familiar, self.keeps_items)?;
        if value.get("kind").and_then(Value::as_str).is_some_and(|it| it != kind.name()) {
            return None;
        }
        let found = Found { name, value, revision: entry.mod_revision, is_known: true };
        let mut stored = found.show(&entry.value).ok()?;
        let problems = met
            .without_familiar(&mut stored.object, |object| model::validate::validate(kind, object));
        if !problems.is_empty() {
            return None;
        }
        self.familiar.learn(met);
        Some(stored)
    }
}

impl Stored {
    /// The object, provided that its values keep the rules that writes are held to. Calico's tools
    /// show an object that breaks them; whoever acts on one must ask first.
    pub fn judged(self) -> Result<Self, Quarantined> {
        let problems = model::validate::validate(self.name.kind, &self.object);
        match problems.is_empty() {
            true => Ok(self),
            false => Err(Quarantined {
                key: self.name.key(),
                problems,
                text: text::json::to_string(&self.object).chars().take(TEXT_MAX).collect(),
                name: Some(self.name),
            }),
        }
    }
}

/// Puts the revision where Calico writes it: after the identity, before the times.
pub(super) fn with_resource_version(mut object: Value, revision: i64) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("selfLink");
        metadata.shift_remove("resourceVersion");
        let before = ["name", "generateName", "namespace", "uid"];
        let at = metadata.keys().take_while(|name| before.contains(&name.as_str())).count();
        let version = Value::String(revision.to_string());
        metadata.shift_insert(at, "resourceVersion".to_owned(), version);
    }
    object
}

pub(super) fn whole(message: impl Into<String>) -> Problem {
    problem("", message)
}

/// A fault of a stored value.
pub(super) fn problem(path: &str, message: impl Into<String>) -> Problem {
    let message = message.into();
    let calico = CalicoError { field: path.to_owned(), value: None, reason: message.clone() };
    Problem { path: path.to_owned(), message, stage: Stage::Decode, calico }
}
