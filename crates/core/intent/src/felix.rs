//! The settings that the datastore has for this node.
//!
//! Each field counts for itself: one that cannot be read costs the others nothing.

use std::collections::{BTreeMap, BTreeSet};

use model::felix::{Config, Consequence, Host, PARAMETERS, Scope, Source, Sources, from_resource};
use model::selector::Selector;
use serde_json::{Map, Value};

use crate::Inputs;

const SELECTOR: &str = "nodeSelector";

/// The settings of one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameters {
    texts: BTreeMap<String, String>,
    /// Which nodes they are for, if not all or one by name.
    selector: Option<Selector>,
    /// When it was made: of several that select this node the oldest counts.
    created: String,
    /// The parameters whose value cannot be read: they count as not given.
    unreadable: BTreeSet<String>,
    /// Whether it cannot be read which nodes they are for: none, then.
    is_for_unknown: bool,
}

impl Parameters {
    /// Reads a FelixConfiguration as it is stored, and what is wrong with it, by its fields.
    pub(crate) fn read(stored: &Value) -> (Self, BTreeMap<String, String>) {
        let empty = Map::new();
        let spec = stored["spec"].as_object().unwrap_or(&empty);
        let annotations = stored["metadata"]["annotations"].as_object().unwrap_or(&empty);
        let text =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let annotations = annotations.iter().filter_map(text).collect();
        let (mut texts, undecodable) = from_resource(spec, &annotations);
        let (mut unreadable, mut problems) = (BTreeSet::new(), BTreeMap::new());
        for (name, message) in misunderstood(&texts) {
            problems.insert(field(&name), message);
            texts.remove(&name);
            unreadable.insert(name);
        }
        for wrong in undecodable {
            problems.insert(format!("spec.{}", wrong.field), wrong.message);
            // An annotation may say it instead.
            if !texts.contains_key(wrong.parameter) {
                unreadable.insert(wrong.parameter.to_owned());
            }
        }
        let selector = selector(spec).unwrap_or_else(|message| {
            problems.insert(format!("spec.{SELECTOR}"), message);
            None
        });
        let is_for_unknown = problems.contains_key(&format!("spec.{SELECTOR}"));
        let created = stored["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        let created = created.to_owned();
        (Self { texts, selector, created, unreadable, is_for_unknown }, problems)
    }

    /// Whether all of it can be read.
    pub(crate) fn is_whole(&self) -> bool {
        self.unreadable.is_empty() && !self.is_for_unknown
    }

    /// These, and an earlier version where they cannot be read.
    pub(crate) fn over(mut self, earlier: &Self) -> Self {
        for name in &self.unreadable {
            if let Some(text) = earlier.texts.get(name) {
                self.texts.insert(name.clone(), text.clone());
            }
        }
        if self.is_for_unknown {
            self.selector.clone_from(&earlier.selector);
        }
        self
    }
}

fn selector(spec: &Map<String, Value>) -> Result<Option<Selector>, String> {
    match spec.get(SELECTOR) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => text.parse().map(Some).map_err(|error| format!("{error}")),
        Some(other) => Err(format!("{other} is not a selector")),
    }
}

/// The texts that their parameter cannot take, and what would be right. What depends on the host is
/// found out there.
fn misunderstood(texts: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let exists = |_: &str| true;
    let find_executable = |name: &str| Some(name.to_owned());
    let host = Host { name: "", exists: &exists, find_executable: &find_executable };
    let sources = BTreeMap::from([(Source::DatastoreGlobal, texts.clone())]);
    let (_, problems) = Config::resolve(&sources, &host);
    let problems = problems.into_iter().filter(|it| it.consequence != Consequence::Ignored);
    let told = problems.filter_map(|it| {
        // Names count in any case.
        let name = texts.keys().find(|name| name.eq_ignore_ascii_case(&it.name))?;
        Some((name.clone(), format!("{:?} cannot be used: {}", it.text, it.message)))
    });
    told.collect()
}

/// Where a parameter stands in an object.
fn field(parameter: &str) -> String {
    let known = PARAMETERS.iter().find(|it| it.name.eq_ignore_ascii_case(parameter));
    match known.and_then(|it| it.field) {
        Some(field) => format!("spec.{}", field.name),
        None => format!("metadata.annotations[config.projectcalico.org/{parameter}]"),
    }
}

impl Inputs {
    /// The texts of settings that the datastore has for this node, by source.
    pub fn settings(&self) -> Sources {
        let mut sources = Sources::new();
        let mut selected: Option<(&str, &String, &Parameters)> = None;
        for (name, parameters) in &self.parameters {
            match Scope::of(name) {
                Scope::Global => {
                    sources.insert(Source::DatastoreGlobal, parameters.texts.clone());
                }
                Scope::Host(host) if host == self.node => {
                    sources.insert(Source::DatastorePerHost, parameters.texts.clone());
                }
                Scope::Host(_) => {}
                Scope::Selected => {
                    let selector = parameters.selector.as_ref();
                    let is_meant = selector.is_some_and(|it| it.matches_labels(&self.labels));
                    let rank = (parameters.created.as_str(), name, parameters);
                    let is_first =
                        selected.is_none_or(|first| (rank.0, rank.1) < (first.0, first.1));
                    if is_meant && is_first {
                        selected = Some(rank);
                    }
                }
            }
        }
        if let Some((_, _, parameters)) = selected {
            sources.insert(Source::DatastorePerSelector, parameters.texts.clone());
        }
        sources
    }
}
