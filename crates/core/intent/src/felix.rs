//! The settings that the datastore has for this node.

use std::collections::BTreeMap;

use model::felix::{Scope, Source, Sources, from_resource};
use model::selector::Selector;
use serde_json::Value;

use crate::Inputs;

/// The settings of one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameters {
    texts: BTreeMap<String, String>,
    /// Which nodes they are for, if not all or one by name.
    selector: Option<Selector>,
    /// When it was made: of several that select this node the oldest counts.
    created: String,
}

impl Parameters {
    /// Reads a FelixConfiguration as it is stored.
    pub(crate) fn read(stored: &Value) -> Result<Self, String> {
        let empty = serde_json::Map::new();
        let spec = stored["spec"].as_object().unwrap_or(&empty);
        let annotations = stored["metadata"]["annotations"].as_object().unwrap_or(&empty);
        let text =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let annotations = annotations.iter().filter_map(text).collect();
        let texts = from_resource(spec, &annotations).map_err(|error| error.to_string())?;
        let selector = match spec.get("nodeSelector").and_then(Value::as_str) {
            None | Some("") => None,
            Some(text) => {
                let wrong = |error| format!("spec.nodeSelector: {error}");
                Some(text.parse().map_err(wrong)?)
            }
        };
        let created = stored["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        Ok(Self { texts, selector, created: created.to_owned() })
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
