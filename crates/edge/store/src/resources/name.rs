//! Which object is meant: kind, namespace and name.

use std::fmt;

use api::Kind;
use serde_json::Value;

/// Below this lie all resources, by the plurals of their kinds.
const ROOT: &str = "/calico/resources/v3/projectcalico.org/";

/// An object's kind, namespace and name; shown as Calico shows it (`NetworkPolicy(prod/web)`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for kinds that live in none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Name {
    /// The name of an object of a kind without namespaces.
    pub fn cluster(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, namespace: String::new(), name: name.into() }
    }

    /// The name of an object in a namespace.
    pub fn namespaced(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    /// The name that an object's metadata gives it; namespaces of cluster-wide kinds are ignored.
    pub fn of(kind: Kind, object: &Value) -> Self {
        let metadata = |field: &str| {
            object
                .pointer("/metadata")
                .and_then(|metadata| metadata.get(field))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let namespace = if kind.is_namespaced() { metadata("namespace") } else { String::new() };
        Self { kind, namespace, name: metadata("name") }
    }

    /// Where the object lies in the datastore.
    pub fn key(&self) -> String {
        let prefix = list_prefix(self.kind, Some(&self.namespace));
        format!("{prefix}{}", self.name)
    }

    /// Reads a datastore key of the kind; `None` when it is not one.
    pub fn from_key(kind: Kind, key: &str) -> Option<Self> {
        let rest = key.strip_prefix(ROOT)?.strip_prefix(kind.plural())?.strip_prefix('/')?;
        let (namespace, name) = match kind.is_namespaced() {
            true => rest.split_once('/')?,
            false => ("", rest),
        };
        let complete = !name.is_empty() && !name.contains('/');
        let placed = !kind.is_namespaced() || !namespace.is_empty();
        (complete && placed).then(|| Self::namespaced(kind, namespace, name))
    }
}

impl Name {
    /// The object that lies under a key, of whatever kind.
    pub fn at_key(key: &str) -> Option<Self> {
        Kind::all().find_map(|kind| Self::from_key(kind, key))
    }
}

/// The prefix of all keys of a kind, or of one namespace of it.
pub(crate) fn list_prefix(kind: Kind, namespace: Option<&str>) -> String {
    let plural = kind.plural();
    match namespace {
        Some(namespace) if kind.is_namespaced() => {
            format!("{ROOT}{plural}/{namespace}/")
        }
        _ => format!("{ROOT}{plural}/"),
    }
}

impl Name {
    /// The object in the words of people: `NetworkPolicy shop/web`.
    pub fn spoken(&self) -> String {
        match self.kind.is_namespaced() {
            true => format!("{} {}/{}", self.kind, self.namespace, self.name),
            false => format!("{} {}", self.kind, self.name),
        }
    }
}

/// The object in Calico's words: `NetworkPolicy(shop/web)`.
impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.is_namespaced() {
            true => write!(formatter, "{}({}/{})", self.kind, self.namespace, self.name),
            false => write!(formatter, "{}({})", self.kind, self.name),
        }
    }
}
