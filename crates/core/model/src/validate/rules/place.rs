//! A place in an object, and the faults found there.

use std::collections::BTreeMap;

use api::{CalicoError, Problem};
use serde_json::Value;

use crate::validate::path;

/// A value inside an object, and how to get there.
pub(crate) struct Place<'a> {
    /// The JSON path; empty for the object itself, and where nobody is told.
    pub(crate) path: String,
    /// Whether paths are put together at all: only an object with a fault needs them.
    is_told: bool,
    /// The value.
    pub(crate) value: &'a Value,
    /// The name of the kind (or part) at the root.
    pub(crate) kind: &'a str,
}

impl<'a> Place<'a> {
    /// The object itself.
    pub(crate) fn root(kind: &'a str, value: &'a Value) -> Self {
        Self { path: String::new(), is_told: true, value, kind }
    }

    /// The object itself, when all that is asked is whether there is a fault.
    pub(crate) fn untold(kind: &'a str, value: &'a Value) -> Self {
        Self { path: String::new(), is_told: false, value, kind }
    }

    fn inner(&self, path: String, value: &'a Value) -> Place<'a> {
        Place { path, is_told: self.is_told, value, kind: self.kind }
    }

    /// The path of a field of this object, present or not.
    pub(crate) fn path_of(&self, field: &str) -> String {
        match self.path.as_str() {
            _ if !self.is_told => String::new(),
            "" => field.to_owned(),
            path => [path, ".", field].concat(),
        }
    }

    fn path_of_item(&self, index: usize) -> String {
        if self.is_told { format!("{}[{index}]", self.path) } else { String::new() }
    }

    fn get(&self, field: &str) -> Option<&'a Value> {
        self.value.as_object().and_then(|fields| path::field(fields, field))
    }

    /// The field, if it is there and not null.
    pub(crate) fn at(&self, field: &str) -> Option<Place<'a>> {
        let value = self.get(field).filter(|value| !value.is_null())?;
        Some(self.inner(self.path_of(field), value))
    }

    /// The items of this list.
    pub(crate) fn items(&self) -> impl Iterator<Item = Place<'a>> {
        let items = self.value.as_array().map_or(&[][..], Vec::as_slice);
        let place = |(index, value)| self.inner(self.path_of_item(index), value);
        items.iter().enumerate().map(place)
    }

    /// The values of this free-keyed object.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Place<'a>> {
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(|(key, value)| self.inner(self.path_of(key), value))
    }

    /// The items of a list field; none if it is not there.
    pub(crate) fn each(&self, field: &str) -> Vec<Place<'a>> {
        self.at(field).map_or_else(Vec::new, |list| list.items().collect())
    }

    /// Whether the field is there.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.get(field).is_some_and(|value| !value.is_null())
    }

    /// The text of a field; empty if there is none.
    pub(crate) fn text(&self, field: &str) -> &'a str {
        self.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether the field is there and true.
    pub(crate) fn flag(&self, field: &str) -> bool {
        self.get(field).and_then(Value::as_bool).unwrap_or_default()
    }

    /// The number of a field; 0 if there is none.
    pub(crate) fn number(&self, field: &str) -> i64 {
        self.get(field).and_then(whole_number).unwrap_or_default()
    }

    /// The values of a list field; none if it is not there.
    pub(crate) fn list(&self, field: &str) -> &'a [Value] {
        self.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice)
    }

    /// Whether the list field has items.
    pub(crate) fn has_items(&self, field: &str) -> bool {
        !self.list(field).is_empty()
    }

    /// Whether the list field holds this text.
    pub(crate) fn lists(&self, field: &str, wanted: &str) -> bool {
        self.list(field).iter().any(|item| item == wanted)
    }

    /// This value as Calico prints it in messages.
    pub(crate) fn printed(&self) -> String {
        go_text(self.value)
    }

    /// A field's value as Calico prints it in messages.
    pub(crate) fn printed_field(&self, field: &str) -> String {
        self.get(field).map_or_else(String::new, go_text)
    }

    /// A list field as Calico prints it in messages, be it there or not.
    pub(crate) fn printed_list(&self, field: &str) -> String {
        self.get(field).map_or_else(|| "[]".to_owned(), go_text)
    }

    /// This object as Calico prints a struct with these text or number fields.
    pub(crate) fn printed_struct(&self, fields: &[&str]) -> String {
        let fields: Vec<String> = fields.iter().map(|field| self.printed_field(field)).collect();
        format!("{{{}}}", fields.join(" "))
    }

    /// This free-keyed object as Calico prints it.
    pub(crate) fn printed_map(&self) -> String {
        let fields: BTreeMap<&str, String> = (self.value.as_object().into_iter().flatten())
            .map(|(key, value)| (key.as_str(), go_text(value)))
            .collect();
        let fields: Vec<String> =
            fields.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        format!("map[{}]", fields.join(" "))
    }
}

/// A whole number, also where it is written as `1.0`.
pub(crate) fn whole_number(value: &Value) -> Option<i64> {
    let fraction = || value.as_f64().filter(|float| float.fract() == 0.0);
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    value.as_i64().or_else(|| fraction().map(|float| float as i64))
}

/// Text for a value in the manner of Go's `%v`.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields.values().map(go_text).collect();
            format!("{{{}}}", fields.join(" "))
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Faults in the order in which they were found.
#[derive(Default)]
pub(crate) struct Faults {
    problems: Vec<Problem>,
}

impl Faults {
    /// Notes a fault that Calico's validator reports under `field` with `value`.
    pub(crate) fn note(
        &mut self,
        path: impl Into<String>,
        message: impl Into<String>,
        (field, value): (&str, String),
        reason: impl Into<String>,
    ) {
        let calico =
            CalicoError { field: field.to_owned(), value: Some(value), reason: reason.into() };
        self.problems.push(Problem::invalid(path, message, calico));
    }

    /// Notes that a CRD rule of the object at `place` does not hold. `field` is the field of
    /// the object that the user should look at, or empty.
    pub(crate) fn schema(
        &mut self,
        place: &Place<'_>,
        field: &str,
        message: impl Into<String>,
        reason: impl Into<String>,
    ) {
        let calico_field = match place.path.as_str() {
            "" => place.kind,
            path => path,
        };
        let calico =
            CalicoError { field: calico_field.to_owned(), value: None, reason: reason.into() };
        let path = match field {
            "" => place.path.clone(),
            field => place.path_of(field),
        };
        self.problems.push(Problem::invalid(path, message, calico));
    }

    /// Whether nothing was noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Everything noted.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}
