//! Reading a JSON value by its table: what Go's decode into the struct and encode of the
//! result would give, with every fault named instead of only the first.
//!
//! The result has the fields in Calico's order, written as Calico writes them. Total: nesting is
//! limited, and no input makes it panic.

mod regular;

use std::fmt::{Display, Write};

use serde_json::{Map, Value};

use super::familiar::{FamiliarItems, Met, Reading};
use super::go_words;
use super::scalar::{self, Fault};
use super::{Field, Keep, Object, Shape};
use crate::problem::{CalicoError, Problem, Stage};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// From a person's document: unknown fields are problems, YAML scalars turn into text.
    User,
    /// From a datastore: unknown fields are kept, after the known ones of their object.
    Stored,
}

/// Deeper than any table; keeps the recursion finite whatever the tables say.
const MAX_DEPTH: usize = 64;

/// Reads the value of an object. A field with a problem is left out of the result.
pub fn decode(object: &'static Object, value: Value, mode: Mode) -> (Value, Vec<Problem>) {
    let mut reader =
        Reader { mode, problems: Vec::new(), path: String::new(), go_path: String::new() };
    let shape = Shape::Object(object);
    let owner = Owner { object: object.name, depth: 0 };
    let decoded = reader.value(shape, value, owner).unwrap_or_else(|| Value::Object(Map::new()));
    (decoded, reader.problems)
}

/// The short way to what [`decode`] gives for a stored text: `None` if the text is not as Calico
/// or we would have written it, which says nothing about whether it is good.
///
/// With `spec_fields`, all of the text is judged, but only those fields of its `spec` are kept.
pub fn decode_regular(
    object: &'static Object,
    text: &[u8],
    spec_fields: Option<&[&str]>,
) -> Option<Value> {
    regular::read(object, text, spec_fields)
}

/// As [`decode_regular`], without a value: `tell` is handed the texts of the object's fields and of
/// those of the objects in it, each by the field of the object that it lies in (empty for one of
/// the outermost) and its own; of a list every item, of a map nothing. `false` if the text is not
/// regular; what was told before counts for nothing then.
pub fn tell_regular(
    object: &'static Object,
    text: &[u8],
    tell: &mut dyn FnMut(&'static str, &'static str, &str),
) -> bool {
    regular::tell(object, text, tell)
}

/// As [`decode_regular`] of the whole text, which is read less closely where it is familiar: with
/// `keeps_items` familiar items are decoded, but were judged before; else `null` stands for them.
pub fn decode_familiar(
    object: &'static Object,
    text: &[u8],
    items: &FamiliarItems,
    keeps_items: bool,
) -> Option<(Value, Met)> {
    let reading = Reading { items, keeps_items, met: Default::default() };
    let value = regular::read_familiar(object, text, &reading)?;
    Some((value, reading.met.into_inner()))
}

/// The struct a value sits in, as Go's messages name it.
#[derive(Clone, Copy)]
struct Owner {
    object: &'static str,
    depth: usize,
}

struct Reader {
    mode: Mode,
    problems: Vec<Problem>,
    path: String,
    /// The path as Go's decoder prints it: without list indexes and map keys.
    go_path: String,
}

impl Reader {
    fn value(&mut self, shape: Shape, value: Value, owner: Owner) -> Option<Value> {
        if owner.depth > MAX_DEPTH {
            let fault = Fault::new("nested too deep", "exceeded max depth");
            self.fault(&fault);
            return None;
        }
        match shape {
            Shape::Object(object) => self.object(object, value, owner),
            Shape::List(item) => self.list(item, value, owner),
            Shape::Map(item) => self.map(item, value, owner),
            Shape::Any => Some(value),
            _ if scalar::is_final(shape, &value) => Some(value),
            _ => match scalar::read(shape, &value, self.mode) {
                Ok(read) => Some(read),
                Err(fault) => {
                    let fault = fault.unwrap_or_else(|| self.wrong_type(shape, &value, owner));
                    self.fault(&fault);
                    None
                }
            },
        }
    }

    fn object(&mut self, object: &'static Object, value: Value, owner: Owner) -> Option<Value> {
        let given = match value {
            Value::Object(given) => given,
            Value::Null => Map::new(),
            other => {
                let fault = self.wrong_type(Shape::Object(object), &other, owner);
                self.fault(&fault);
                return None;
            }
        };
        let owner = Owner { object: object.name, depth: owner.depth + 1 };
        let mut slots: Vec<Slot> = object.fields.iter().map(|_| Slot::Absent).collect();
        let mut unknown = Map::new();
        for (name, value) in given {
            match field_index(object, &name) {
                Some(index) => {
                    let field = &object.fields[index];
                    slots[index] = self.field(field, value, owner);
                }
                None if self.mode == Mode::Stored => {
                    unknown.insert(name, value);
                }
                None => self.unknown_field(object, &name),
            }
        }
        let mut written = Map::new();
        for (field, slot) in object.fields.iter().zip(slots) {
            if let Some(value) = kept(field, slot) {
                written.insert(field.name.to_owned(), value);
            }
        }
        for (name, value) in unknown {
            written.entry(name).or_insert(value);
        }
        Some(Value::Object(written))
    }

    fn field(&mut self, field: &Field, value: Value, owner: Owner) -> Slot {
        if value.is_null() && !scalar::refuses_null(field) {
            return Slot::Absent;
        }
        let (path, go_path) = (self.path.len(), self.go_path.len());
        for text in [&mut self.path, &mut self.go_path] {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(field.name);
        }
        let is_zero = matches!(field.shape, Shape::Object(_)) && is_go_zero(field.shape, &value);
        let slot = match self.value(field.shape, value, owner) {
            None => Slot::Bad,
            Some(read) if is_zero && field.keep == Keep::NonZero && is_zero_json(&read) => {
                Slot::Absent
            }
            Some(read) => Slot::Given(read),
        };
        self.path.truncate(path);
        self.go_path.truncate(go_path);
        slot
    }

    fn list(&mut self, item: &'static Shape, value: Value, owner: Owner) -> Option<Value> {
        let items = match value {
            Value::Array(items) => items,
            Value::Null => return Some(Value::Null),
            other => {
                let fault = self.wrong_type(Shape::List(item), &other, owner);
                self.fault(&fault);
                return None;
            }
        };
        let owner = Owner { depth: owner.depth + 1, ..owner };
        let read = items.into_iter().enumerate().filter_map(|(index, value)| {
            let value = if value.is_null() { zero(*item) } else { value };
            let read = self.within(index, |reader| reader.value(*item, value, owner));
            // What somebody is told of the items behind it goes by the places that he sees.
            read.or_else(|| (self.mode == Mode::User).then(|| zero(*item)))
        });
        Some(Value::Array(read.collect()))
    }

    /// Go writes maps in the order of their keys.
    fn map(&mut self, item: &'static Shape, value: Value, owner: Owner) -> Option<Value> {
        let given = match value {
            Value::Object(given) => given,
            Value::Null => return Some(Value::Null),
            other => {
                let fault = self.wrong_type(Shape::Map(item), &other, owner);
                self.fault(&fault);
                return None;
            }
        };
        let owner = Owner { depth: owner.depth + 1, ..owner };
        let mut written = Map::new();
        for (name, value) in given {
            let value = if value.is_null() { zero(*item) } else { value };
            let read = self.within(&name, |reader| reader.value(*item, value, owner));
            if let Some(read) = read {
                written.insert(name, read);
            }
        }
        written.sort_keys();
        Some(Value::Object(written))
    }

    fn within<T>(&mut self, step: impl Display, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        let _ = write!(self.path, "[{step}]");
        let result = read(self);
        self.path.truncate(length);
        result
    }

    fn wrong_type(&self, shape: Shape, value: &Value, owner: Owner) -> Fault {
        let target = match self.go_path.as_str() {
            "" => "value".to_owned(),
            path => format!("struct field {}.{path}", owner.object),
        };
        Fault {
            message: format!("expected {}, found {}", scalar::noun(shape), scalar::found(value)),
            reason: format!(
                "json: cannot unmarshal {} into Go {target} of type {}",
                go_words::token(shape, value),
                go_words::type_name(shape)
            ),
        }
    }

    fn fault(&mut self, fault: &Fault) {
        self.problems.push(Problem {
            path: self.path.clone(),
            message: fault.message.clone(),
            stage: Stage::Decode,
            calico: CalicoError {
                field: self.go_path.clone(),
                value: None,
                reason: fault.reason.clone(),
            },
        });
    }

    fn unknown_field(&mut self, object: &Object, name: &str) {
        let names = object.fields.iter().map(|field| field.name);
        let message = match text::distance::nearest(name, names) {
            Some(known) => format!("unknown field; did you mean {known}?"),
            None => "unknown field".to_owned(),
        };
        let path = match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        self.problems.push(Problem {
            path,
            message,
            stage: Stage::UnknownField,
            calico: CalicoError {
                field: name.to_owned(),
                value: None,
                reason: format!(
                    "field in document is not recognized or is in the wrong location: {name}"
                ),
            },
        });
    }
}

/// What a document says about a field.
enum Slot {
    Absent,
    Bad,
    Given(Value),
}

fn field_index(object: &Object, name: &str) -> Option<usize> {
    let fields = object.fields;
    fields
        .iter()
        .position(|field| field.name == name)
        .or_else(|| fields.iter().position(|field| field.name.eq_ignore_ascii_case(name)))
}

fn kept(field: &Field, slot: Slot) -> Option<Value> {
    let given = match slot {
        Slot::Bad => return None,
        Slot::Given(value) => Some(value),
        Slot::Absent => None,
    };
    match field.keep {
        Keep::Given => given.filter(|value| !value.is_null()),
        Keep::NonZero => {
            given.filter(|value| matches!(field.shape, Shape::Object(_)) || !is_zero_json(value))
        }
        Keep::Always => Some(given.unwrap_or_else(|| zero(field.shape))),
        Keep::AlwaysNull => Some(given.unwrap_or(Value::Null)),
    }
}

/// Whether a Go struct read from the value is the zero struct. It is not when an empty list or
/// map was given: Go tells that from none.
fn is_go_zero(shape: Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::Object(object), Value::Object(given)) => given.iter().all(|(name, value)| {
            let field = field_index(object, name).map(|index| &object.fields[index]);
            field.is_none_or(|field| match field.keep {
                Keep::Given | Keep::AlwaysNull => value.is_null(),
                Keep::NonZero | Keep::Always => is_go_zero(field.shape, value),
            })
        }),
        (Shape::List(_) | Shape::Map(_), value) => value.is_null(),
        (_, value) => is_zero_json(value),
    }
}

/// Whether Go's `omitempty` leaves the value out.
fn is_zero_json(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// How Go writes the zero value of a type.
pub(crate) fn zero(shape: Shape) -> Value {
    match shape {
        Shape::Text | Shape::StrictText => Value::from(""),
        Shape::Bool => Value::from(false),
        Shape::Int { .. }
        | Shape::Float
        | Shape::Port
        | Shape::Protocol
        | Shape::AsNumber
        | Shape::Dscp
        | Shape::IntOrText => Value::from(0),
        Shape::Duration => Value::from("0s"),
        Shape::Time | Shape::List(_) | Shape::Map(_) | Shape::Any => Value::Null,
        Shape::Object(object) => zero_object(object, MAX_DEPTH),
    }
}

fn zero_object(object: &Object, depth: usize) -> Value {
    let mut written = Map::new();
    for field in object.fields.iter().filter(|_| depth > 0) {
        let value = match (field.keep, field.shape) {
            (Keep::Always, Shape::Object(inner)) => zero_object(inner, depth - 1),
            (Keep::Always, shape) => zero(shape),
            (Keep::AlwaysNull, _) => Value::Null,
            _ => continue,
        };
        written.insert(field.name.to_owned(), value);
    }
    Value::Object(written)
}

#[cfg(test)]
mod tests;
