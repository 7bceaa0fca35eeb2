//! Taking typed fields out of a JSON object, and putting them back among unknown ones.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::problem::{CalicoError, Problem, Stage};

/// What a value holds beside the known fields: unknown fields, each with the known one it stood
/// behind, and which known fields were `null` (an empty list is written as it was read).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Unknown {
    fields: Vec<(Option<&'static str>, String, Value)>,
    nulls: Vec<&'static str>,
}

impl Unknown {
    /// Nothing unknown; the field is written as `null` while it is empty.
    pub(super) fn with_null(name: &'static str) -> Self {
        Self { fields: Vec::new(), nulls: vec![name] }
    }

    /// Nothing unknown; those fields were `null` or not there of which that is said.
    pub(super) fn of_nulls<const N: usize>(fields: [(&'static str, bool); N]) -> Self {
        let nulls = fields.into_iter().filter(|(_, is_null)| *is_null).map(|(name, _)| name);
        Self { fields: Vec::new(), nulls: nulls.collect() }
    }

    /// The list or map, or `null` if it is empty and was `null` when it was read.
    pub(super) fn or_null(&self, name: &str, value: Value) -> Value {
        let empty = match &value {
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if empty && self.nulls.contains(&name) { Value::Null } else { value }
    }

    /// The object of the given known fields, in this order, with the unknown ones between them.
    pub(super) fn weave<const N: usize>(&self, known: [(&'static str, Option<Value>); N]) -> Value {
        let mut written = Map::new();
        let follow = |written: &mut Map<String, Value>, place: Option<&'static str>| {
            for (_, name, value) in self.fields.iter().filter(|field| field.0 == place) {
                written.insert(name.clone(), value.clone());
            }
        };
        follow(&mut written, None);
        for (name, value) in known {
            if let Some(value) = value {
                written.insert(name.to_owned(), value);
            }
            follow(&mut written, Some(name));
        }
        Value::Object(written)
    }
}

/// Takes typed fields out of an object and collects what is wrong with them.
pub(super) struct Fields<'v> {
    value: &'v Value,
    known: &'static [&'static str],
    problems: Vec<Problem>,
}

impl<'v> Fields<'v> {
    pub(super) fn new(value: &'v Value, known: &'static [&'static str]) -> Self {
        let mut fields = Self { value, known, problems: Vec::new() };
        if !value.is_object() && !value.is_null() {
            fields.refuse("", "expected an object");
        }
        fields
    }

    pub(super) fn refuse(&mut self, path: &str, message: &str) {
        self.problems.push(wrong(path, message));
    }

    pub(super) fn append(&mut self, problems: Vec<Problem>) {
        self.problems.extend(problems);
    }

    /// The field, if it is there and not `null`.
    pub(super) fn get(&self, name: &str) -> Option<&'v Value> {
        self.value.get(name).filter(|value| !value.is_null())
    }

    fn read<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(name)?;
        let result = read(value);
        if result.is_none() {
            self.refuse(name, &format!("expected {expected}"));
        }
        result
    }

    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        self.read(name, "text", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn flag(&mut self, name: &'static str) -> bool {
        self.read(name, "true or false", Value::as_bool).unwrap_or_default()
    }

    pub(super) fn number<T: Default>(
        &mut self,
        name: &'static str,
        read: fn(&Value) -> Option<T>,
    ) -> T {
        self.read(name, "a whole number", read).unwrap_or_default()
    }

    pub(super) fn list<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Vec<T> {
        let items = self.read(name, "a list", Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match read(item) {
                Some(item) => list.push(item),
                None => self.refuse(&format!("{name}[{index}]"), "has the wrong type"),
            }
        }
        list
    }

    pub(super) fn map<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let mut map = BTreeMap::new();
        for (key, item) in self.read(name, "an object", Value::as_object).into_iter().flatten() {
            match read(item) {
                Some(item) => drop(map.insert(key.clone(), item)),
                None => self.refuse(&format!("{name}[{key}]"), "has the wrong type"),
            }
        }
        map
    }

    pub(super) fn unknown(&self) -> Unknown {
        let mut unknown = Unknown::default();
        let mut behind = None;
        for (name, value) in self.value.as_object().into_iter().flatten() {
            match self.known.iter().copied().find(|known| known == name) {
                Some(known) => {
                    behind = Some(known);
                    if value.is_null() {
                        unknown.nulls.push(known);
                    }
                }
                None => unknown.fields.push((behind, name.clone(), value.clone())),
            }
        }
        unknown
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(super) fn finish<T>(self, value: T) -> Result<T, Vec<Problem>> {
        if self.problems.is_empty() { Ok(value) } else { Err(self.problems) }
    }
}

pub(in crate::keys) fn wrong(path: &str, message: &str) -> Problem {
    let calico = CalicoError { field: path.to_owned(), value: None, reason: message.to_owned() };
    Problem { path: path.to_owned(), message: message.to_owned(), stage: Stage::Decode, calico }
}
