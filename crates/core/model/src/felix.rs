//! The agent's parameters: several sources of raw text → one value for each parameter.
//!
//! Names, kinds and defaults are in one table, [`PARAMETERS`]. A value that cannot be read
//! is a [`Problem`], never an error: the caller decides whether to start. Every source is
//! read, also where a stronger one wins, because a bad value there is bad all the same.
//!
//! No I/O: what depends on the host comes in through [`Host`].

mod datastore;
mod derived;
mod environment;
mod file;
mod lists;
mod number;
mod parameter;
mod parse;
mod resource;
mod table;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::fmt;

pub use datastore::{DatastoreSettings, DatastoreType};
pub use environment::from_environment;
pub use file::{UnreadableFile, from_file};
pub use parameter::{Field, Kind, Parameter};
pub use resource::{Scope, Undecodable, from_resource};
pub use table::PARAMETERS;
pub use value::{FailsafePort, Pattern, TableRange, Value};

/// Where a value comes from; the greater wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// No source: the built-in default.
    Default,
    /// The FelixConfiguration `default`.
    DatastoreGlobal,
    /// A FelixConfiguration that selects nodes.
    DatastorePerSelector,
    /// The FelixConfiguration of the one node.
    DatastorePerHost,
    /// The configuration file of the host.
    ConfigFile,
    /// The environment of the process.
    Environment,
    /// The agent itself, for features that it found not to work here.
    InternalOverride,
}

impl Source {
    fn is_datastore(self) -> bool {
        matches!(self, Self::DatastoreGlobal | Self::DatastorePerSelector | Self::DatastorePerHost)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Default => "default",
            Self::DatastoreGlobal => "datastore (global)",
            Self::DatastorePerSelector => "datastore (per node selector)",
            Self::DatastorePerHost => "datastore (per host)",
            Self::ConfigFile => "config file",
            Self::Environment => "environment variable",
            Self::InternalOverride => "internal override",
        })
    }
}

/// Raw texts by name, for each source. Names count in any case.
pub type Sources = BTreeMap<Source, BTreeMap<String, String>>;

/// What values depend on besides their text.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// The name of the host, which is the default of `FelixHostname`.
    pub name: &'a str,
    /// Whether there is something at the path.
    pub exists: &'a dyn Fn(&str) -> bool,
    /// The path of a program given by path or name, if there is one.
    pub find_executable: &'a dyn Fn(&str) -> Option<String>,
}

/// What follows from a value that could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// The agent must not start.
    Refused,
    /// The default is in force instead.
    Defaulted,
    /// The text counts as not given.
    Ignored,
}

/// A text that could not be taken as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the text comes from.
    pub source: Source,
    /// The parameter, by its proper name where there is one.
    pub name: String,
    /// The text.
    pub text: String,
    /// What is wrong, or what would be right.
    pub message: String,
    /// What follows.
    pub consequence: Consequence,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, name, text, message, .. } = self;
        write!(formatter, "{name} = {text:?} from {source}: {message}")
    }
}

/// The values in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// In the order of [`PARAMETERS`].
    values: Vec<(Source, Value)>,
    raw: BTreeMap<String, String>,
}

impl Config {
    /// Merges the sources. The values are complete whatever the problems are; with a
    /// [`Consequence::Refused`] among them they must not be used.
    pub fn resolve(sources: &Sources, host: &Host<'_>) -> (Self, Vec<Problem>) {
        let mut config = Self::built_in(host);
        let mut problems = Vec::new();
        let mut unknown: BTreeMap<String, Source> = BTreeMap::new();
        for (source, texts) in sources.iter().rev() {
            for (name, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
                let Some(index) = Parameter::index_of(name) else {
                    // Kept for a dataplane outside of this process, which may know it.
                    if *unknown.entry(name.to_lowercase()).or_insert(*source) == *source {
                        config.raw.insert(name.clone(), text.clone());
                    }
                    continue;
                };
                let (value, problem) = read(&PARAMETERS[index], text, *source, host);
                problems.extend(problem);
                if let Some(value) = value {
                    config.set(index, *source, value, text);
                }
            }
        }
        (config, problems)
    }

    fn built_in(host: &Host<'_>) -> Self {
        let value = |parameter: &Parameter| match parameter.name {
            "FelixHostname" => Value::Text(host.name.to_owned()),
            _ => parameter.default(),
        };
        let values = PARAMETERS.iter().map(|p| (Source::Default, value(p))).collect();
        Self { values, raw: BTreeMap::new() }
    }

    /// Sources come strongest first, so a value from another source is never replaced.
    fn set(&mut self, index: usize, source: Source, value: Value, text: &str) {
        let Some(place) = self.values.get_mut(index) else { return };
        if place.0 <= source {
            *place = (source, value);
            self.raw.insert(PARAMETERS[index].name.to_owned(), text.to_owned());
        }
    }

    /// The value in force; `None` if there is no parameter of that name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(Parameter::index_of(name)?).map(|(_, value)| value)
    }

    /// Where the value in force comes from; `None` if there is no parameter of that name.
    pub fn source_of(&self, name: &str) -> Option<Source> {
        self.values.get(Parameter::index_of(name)?).map(|(source, _)| *source)
    }

    /// Every parameter with its value and where that comes from.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Parameter, Source, &Value)> {
        PARAMETERS.iter().zip(&self.values).map(|(p, (source, value))| (p, *source, value))
    }

    /// The texts that won, for a dataplane outside of this process; unknown names included.
    pub fn raw_values(&self) -> &BTreeMap<String, String> {
        &self.raw
    }

    /// The names of the parameters whose values differ.
    pub fn changes_from(&self, before: &Self) -> Vec<&'static str> {
        let pairs = self.values.iter().zip(&before.values);
        let changed = PARAMETERS.iter().zip(pairs).filter(|(_, (new, old))| new.1 != old.1);
        changed.map(|(parameter, _)| parameter.name).collect()
    }
}

/// Reads one text of one source. Gives no value where the text counts as not given.
fn read(
    parameter: &Parameter,
    text: &str,
    source: Source,
    host: &Host<'_>,
) -> (Option<Value>, Option<Problem>) {
    let problem = |message: String, consequence| {
        let (name, text) = (parameter.name.to_owned(), text.to_owned());
        Some(Problem { source, name, text, message, consequence })
    };
    if parameter.is_local_only() && source.is_datastore() {
        let message = "can only be set on the host, by environment or file".to_owned();
        return (None, problem(message, Consequence::Ignored));
    }
    if text.to_lowercase() == "none" {
        if parameter.is_non_zero() {
            let message = format!("cannot be none, need {}", parameter.kind);
            return (Some(parameter.default()), problem(message, Consequence::Refused));
        }
        return (Some(parameter.zero()), None);
    }
    match parameter.parse(text, host) {
        Ok(value) => (Some(value), None),
        Err(message) => {
            let consequence = match parameter.is_fatal_when_bad() {
                true => Consequence::Refused,
                false => Consequence::Defaulted,
            };
            (Some(parameter.default()), problem(message, consequence))
        }
    }
}
