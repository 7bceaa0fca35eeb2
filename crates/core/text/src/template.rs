//! Go's `text/template`, run over JSON values.
//!
//! Supported: text, comments, trim markers; fields and chains (`.Spec.CIDR`, `$x.Name`,
//! `(index .Items 0).Kind`); variables with `:=` and `=`; `if`/`else if`/`else`, `range` with
//! one or two variables over lists, maps (by sorted key) and numbers, with `else`, `break` and
//! `continue`; `with`/`else with`; `define`, `template`, `block`; pipelines; strings, raw
//! strings, characters, numbers, `true`, `false`, `nil`; the functions `and` `or` `not` `len`
//! `index` `slice` `eq` `ne` `lt` `le` `gt` `ge` `print` `printf` `println` `html` `js`
//! `urlquery`, and calicoctl's `join` and `joinAndTruncate`.
//!
//! Not supported: `call`, methods, complex numbers. Values that Go would print as an address
//! are printed themselves. Steps, output and nesting are bounded.

mod evaluate;
mod format;
mod functions;
mod lex;
mod parse;

use std::collections::BTreeMap;

use serde_json::Value;

pub use evaluate::Failure;
pub(crate) use format::quote as go_quote;
use parse::Node;

/// What a template may do at most.
pub mod limits {
    /// Nodes evaluated in one execution.
    pub const STEPS: usize = 5_000_000;
    /// Bytes written in one execution.
    pub const OUTPUT: usize = 256 * 1024 * 1024;
    /// Levels of control structures, parentheses and templates within each other.
    pub const DEPTH: usize = 100;
    /// Levels of control structures when templates call each other.
    pub const LEVELS: usize = 400;
}

/// A template that was parsed.
#[derive(Debug, Clone)]
pub struct Template {
    name: String,
    text: String,
    main: Vec<Node>,
    defined: BTreeMap<String, Vec<Node>>,
}

/// A template that could not be parsed, or a value it could not use; in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template: {0}")]
pub struct Error(pub String);

/// What a field name leads to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Field<'v> {
    /// To this value.
    Value(&'v Value),
    /// To nothing: the field exists and is not set.
    Unset,
    /// Nowhere: using it is an error.
    Unknown,
}

/// Finds a field of a value by its Go name.
pub type Resolve = dyn for<'v> Fn(&'v Value, &str) -> Field<'v>;

/// Calls a function by its name; the error is its complaint.
pub type Call = dyn Fn(&str, &[Value]) -> Result<Value, String>;

/// How a template sees the world: its field names, and functions beyond the built-in ones.
pub struct Context<'c> {
    /// Finds a field by its Go name.
    pub field: &'c Resolve,
    /// Names of further functions.
    pub functions: &'c [&'c str],
    /// Calls one of them.
    pub call: &'c Call,
    /// The Go type of the data, for messages.
    pub root_type: &'c str,
}

impl Default for Context<'_> {
    fn default() -> Self {
        Self {
            field: &go_field,
            functions: &[],
            call: &|name, _| Err(format!("function {name} cannot be called here")),
            root_type: "[]runtime.Object",
        }
    }
}

/// Finds a Go field in a Kubernetes object: `Spec` is `spec`, `CIDR` is `cidr`, `ObjectMeta`
/// and `ListMeta` are `metadata`, `TypeMeta` is the object itself. Case does not count.
pub fn go_field<'v>(value: &'v Value, name: &str) -> Field<'v> {
    let Value::Object(fields) = value else { return Field::Unknown };
    if name == "TypeMeta" {
        return Field::Value(value);
    }
    if let Some(exact) = fields.get(name) {
        return Field::Value(exact);
    }
    let wanted = if matches!(name, "ObjectMeta" | "ListMeta") { "metadata" } else { name };
    let found = fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(wanted));
    if let Some((_, field)) = found {
        return Field::Value(field);
    }
    // Go reaches the fields of embedded metadata without naming it.
    match fields.get("metadata") {
        Some(metadata @ Value::Object(_)) if name != "metadata" => go_field(metadata, name),
        _ => Field::Unset,
    }
}

impl Template {
    /// Parses `text`. The name appears in messages. Functions must be known beforehand.
    pub fn parse(name: &str, text: &str, functions: &[&str]) -> Result<Self, Error> {
        let (main, defined) = parse::parse(name, text, functions)?;
        Ok(Self { name: name.to_owned(), text: text.to_owned(), main, defined })
    }

    /// Runs the template over `data` and gives what it wrote.
    pub fn execute(&self, data: &Value, context: &Context<'_>) -> Result<String, Failure> {
        evaluate::execute(self, data, context)
    }
}

#[cfg(test)]
mod tests;
