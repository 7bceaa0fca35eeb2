//! The way to a value, put into words only where there is something to say about the value.

use std::fmt;

use serde_json::{Map, Value};

/// Objects up to this size are searched rather than hashed into.
const SEARCHED_MAX: usize = 8;

/// A field of an object. Most objects are small and most fields that are asked for are not there:
/// comparing a few names is then several times faster than hashing one.
pub(super) fn field<'v>(fields: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    match fields.len() {
        0..=SEARCHED_MAX => fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value),
        _ => fields.get(name),
    }
}

/// A path like `spec.ingress[0].action`, as a chain of steps on the stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'p> {
    Field(&'p str),
    Index(usize),
}

impl<'p> Path<'p> {
    /// A path of one field; an empty name is that of the object itself.
    pub(super) fn of(field: &'p str) -> Self {
        Self { parent: None, step: Step::Field(field) }
    }

    /// The path of a field of what lies here.
    pub(super) fn field(&'p self, name: &'p str) -> Self {
        Self { parent: Some(self), step: Step::Field(name) }
    }

    /// The path of an item of what lies here.
    pub(super) fn index(&'p self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }

    fn is_root(&self) -> bool {
        self.parent.is_none() && matches!(self.step, Step::Field(""))
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(formatter)?;
        }
        match self.step {
            Step::Index(index) => write!(formatter, "[{index}]"),
            Step::Field(name) => {
                let is_first = self.parent.is_none_or(Path::is_root);
                formatter.write_str(if is_first { "" } else { "." })?;
                formatter.write_str(name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_joined_by_dots_and_items_stand_in_brackets() {
        let root = Path::of("");
        let (spec, name) = (root.field("spec"), Path::of("NotNets"));
        let (rules, first) = (spec.field("ingress"), name.index(0));
        let rule = rules.index(2);
        assert_eq!(rule.field("action").to_string(), "spec.ingress[2].action");
        assert_eq!((first.to_string(), root.to_string()), ("NotNets[0]".into(), String::new()));
    }
}
