//! The objects that a command line is about: those in documents, or those named.

use api::Kind;
use serde_json::{Value, json};
use store::resources::Name;

use super::arguments::Parsed;
use super::stop::Stop;
use crate::documents::{API_VERSION, Calico, Documents, Loaded, is_user_kind};

/// An object that the command is about; with names on the command line there is little more to
/// it than its metadata.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) object: Value,
}

impl Target {
    fn named(kind: Kind, name: &str) -> Self {
        let object = json!({
            "kind": kind.name(),
            "apiVersion": API_VERSION,
            "metadata": {"name": name},
        });
        Self { kind, object }
    }

    pub(crate) fn name(&self) -> Name {
        Name::of(self.kind, &self.object)
    }

    fn metadata(&self, field: &str) -> &str {
        let metadata = self.object.get("metadata").and_then(|metadata| metadata.get(field));
        metadata.and_then(Value::as_str).unwrap_or_default()
    }

    fn set_namespace(&mut self, namespace: &str) {
        if let Some(fields) = self.object.as_object_mut() {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            if !metadata.is_object() {
                *metadata = json!({});
            }
            metadata["namespace"] = namespace.into();
        }
    }

    /// Finds the namespace between the document and the command line.
    pub(crate) fn place(&mut self, parsed: &Parsed) -> Result<(), String> {
        let everywhere = parsed.is_set("all-namespaces") || parsed.is_set("all-namespaces-a");
        let wanted = parsed.text("namespace").unwrap_or_default();
        let own = self.metadata("namespace");
        let kind = self.kind;
        if !kind.is_namespaced() {
            return match (own, everywhere || !wanted.is_empty()) {
                ("", false) => Ok(()),
                ("", true) => Err(format!("{kind} is not namespaced")),
                _ => Err(format!(
                    "namespace should not be specified for a non-namespaced resource. \
                     {kind} is not a namespaced resource"
                )),
            };
        }
        match (own, wanted) {
            (_, wanted) if everywhere && !wanted.is_empty() => {
                let both =
                    "cannot use both --namespace and --all-namespaces flags at the same time";
                return Err(both.to_owned());
            }
            _ if everywhere => self.set_namespace(""),
            ("", "") => self.set_namespace("default"),
            ("", wanted) => self.set_namespace(wanted),
            (own, wanted) if !wanted.is_empty() && own != wanted => {
                return Err(format!(
                    "resource namespace does not match client namespace. {own} != {wanted}"
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Why a command could not begin.
#[derive(Debug)]
pub(crate) enum Early {
    /// A file is unusable.
    File(String),
    /// Something else.
    Plain(String),
    /// The command has ended.
    Stop(Stop),
}

impl From<Stop> for Early {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Error(text) => Self::Plain(text),
            stop => Self::Stop(stop),
        }
    }
}

/// The objects of the command line: those in documents, or those named.
pub(crate) fn targets(parsed: &Parsed) -> Result<Vec<Target>, Early> {
    match parsed.text("filename") {
        Some(file) => from_files(parsed, file),
        None => from_names(parsed),
    }
}

fn from_files(parsed: &Parsed, file: &str) -> Result<Vec<Target>, Early> {
    let documents = Documents::read(file, parsed.is_set("recursive"));
    let skip_empty = parsed.is_set("skip-empty");
    for fault in &documents.faults {
        match &fault.calico {
            Calico::Unreadable(words) => return Err(Early::File(words.clone())),
            Calico::Empty(words) if !skip_empty => return Err(Early::Plain(words.clone())),
            Calico::Empty(_) => {}
        }
    }
    if documents.objects.is_empty() && !skip_empty {
        return Err(Early::Plain(format!("no resources specified in directory {file}")));
    }
    let target = |loaded: Loaded| Target { kind: loaded.kind, object: loaded.object };
    Ok(documents.objects.into_iter().map(target).collect())
}

fn from_names(parsed: &Parsed) -> Result<Vec<Target>, Early> {
    let Some((alias, names)) = parsed.words.split_first() else {
        let usage = parsed.command().usage;
        let name = parsed.command().name;
        return Err(Early::Stop(Stop::Error(format!(
            "nothing to {name}; use: calicoctl {name} {usage}"
        ))));
    };
    targets_named(alias, names)
}

/// The objects of a kind with these names; without names, all of them.
pub(crate) fn targets_named(alias: &str, names: &[String]) -> Result<Vec<Target>, Early> {
    let kind = Kind::from_alias(alias).filter(|&kind| is_user_kind(kind));
    let Some(kind) = kind else {
        return Err(Early::Plain(format!("resource type '{alias}' is not supported")));
    };
    Ok(match names {
        [] => vec![Target::named(kind, "")],
        names => names.iter().map(|name| Target::named(kind, name)).collect(),
    })
}
