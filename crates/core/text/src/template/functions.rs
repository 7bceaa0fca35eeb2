//! The functions of templates.

use std::cmp::Ordering;

use serde_json::Value;

use super::format::{self, plain, type_name};
use super::limits;

const BUILT_IN: &[&str] = &[
    "and",
    "or",
    "not",
    "len",
    "index",
    "slice",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "print",
    "printf",
    "println",
    "html",
    "js",
    "urlquery",
    "join",
    "joinAndTruncate",
];

pub(super) fn is_built_in(name: &str) -> bool {
    BUILT_IN.contains(&name)
}

/// Why a call failed.
pub(super) enum Trouble {
    /// The call itself is wrong.
    Call(String),
    /// The function refused its arguments.
    Refused(String),
}

fn refuse<T>(message: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Refused(message.into()))
}

/// Calls a built-in function. `and` and `or` are the evaluator's business: they stop early.
pub(super) fn call(name: &str, arguments: &[&Value]) -> Result<Value, Trouble> {
    let (least, most) = match name {
        "not" | "len" => (1, 1),
        "lt" | "le" | "gt" | "ge" | "ne" | "join" => (2, 2),
        "joinAndTruncate" => (3, 3),
        "eq" | "index" | "printf" => (1, usize::MAX),
        "slice" => (1, 4),
        _ => (0, usize::MAX),
    };
    if !(least..=most).contains(&arguments.len()) {
        let wanted =
            if most == usize::MAX { format!("at least {least}") } else { least.to_string() };
        let given = arguments.len();
        return Err(Trouble::Call(format!(
            "wrong number of args for {name}: want {wanted} got {given}"
        )));
    }
    match (name, arguments) {
        ("not", [value]) => Ok(Value::Bool(!is_true(value))),
        ("len", [value]) => len(value),
        ("index", [value, keys @ ..]) => index(value, keys),
        ("slice", [value, bounds @ ..]) => slice(value, bounds),
        ("eq", [first, others @ ..]) => eq(first, others),
        ("ne", [left, right]) => Ok(Value::Bool(!equal(left, right)?)),
        ("lt", [left, right]) => Ok(Value::Bool(compare(left, right)? == Ordering::Less)),
        ("le", [left, right]) => Ok(Value::Bool(compare(left, right)? != Ordering::Greater)),
        ("gt", [left, right]) => Ok(Value::Bool(compare(left, right)? == Ordering::Greater)),
        ("ge", [left, right]) => Ok(Value::Bool(compare(left, right)? != Ordering::Less)),
        ("print", values) => Ok(Value::String(print(values))),
        ("println", values) => {
            let values: Vec<String> = values.iter().map(|value| plain(value)).collect();
            Ok(Value::String(values.join(" ") + "\n"))
        }
        ("printf", [Value::String(format), values @ ..]) => {
            let most = limits::OUTPUT;
            let text = format::sprintf(format, values);
            text.map(Value::String).or_else(|_| refuse(format!("more than {most} bytes")))
        }
        ("printf", [other, ..]) => Err(Trouble::Call(format!(
            "wrong type for value; expected string; got {}",
            type_name(other)
        ))),
        ("html", values) => Ok(Value::String(html(&print(values)))),
        ("js", values) => Ok(Value::String(js(&print(values)))),
        ("urlquery", values) => Ok(Value::String(url_query(&print(values)))),
        ("join", [items, separator]) => Ok(Value::String(join(items, separator, 0))),
        ("joinAndTruncate", [items, separator, longest]) => {
            let longest = longest.as_u64().and_then(|most| usize::try_from(most).ok());
            Ok(Value::String(join(items, separator, longest.unwrap_or(0))))
        }
        _ => Err(Trouble::Call(format!("function {name} cannot be called here"))),
    }
}

/// Whether a value counts as true: not empty, not zero.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn len(value: &Value) -> Result<Value, Trouble> {
    Ok(Value::from(match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        Value::Null => return refuse("len of nil pointer"),
        other => return refuse(format!("len of type {}", type_name(other))),
    }))
}

/// A list index; ends may equal the length.
fn position(key: &Value, limit: usize) -> Result<usize, Trouble> {
    let Some(at) = key.as_number().and_then(crate::number::as_integer) else {
        return match key {
            Value::Null => refuse("cannot index slice/array with nil"),
            key => refuse(format!("cannot index slice/array with type {}", type_name(key))),
        };
    };
    match usize::try_from(at) {
        Ok(position) if position < limit => Ok(position),
        _ => refuse(format!("index out of range: {at}")),
    }
}

fn index(value: &Value, keys: &[&Value]) -> Result<Value, Trouble> {
    let mut found = value;
    for key in keys {
        found = match found {
            Value::Array(items) => &items[position(key, items.len())?],
            Value::Object(fields) => match key {
                Value::String(name) => fields.get(name).unwrap_or(&Value::Null),
                key => {
                    let given = type_name(key);
                    return refuse(format!("value has type {given}; should be string"));
                }
            },
            Value::String(text) => {
                let at = position(key, text.len())?;
                return Ok(Value::from(text.as_bytes()[at]));
            }
            Value::Null => return refuse("index of untyped nil"),
            other => return refuse(format!("can't index item of type {}", type_name(other))),
        };
    }
    Ok(found.clone())
}

fn slice(value: &Value, bounds: &[&Value]) -> Result<Value, Trouble> {
    let length = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.len(),
        Value::Null => return refuse("slice of untyped nil"),
        other => return refuse(format!("can't slice item of type {}", type_name(other))),
    };
    let bound = |at: usize, otherwise: usize| {
        bounds.get(at).map_or(Ok(otherwise), |bound| position(bound, length + 1))
    };
    let (start, end) = (bound(0, 0)?, bound(1, length)?);
    if start > end {
        return refuse(format!("invalid slice index: {start} > {end}"));
    }
    Ok(match value {
        Value::String(text) => {
            let bytes = &text.as_bytes()[start..end];
            Value::String(String::from_utf8_lossy(bytes).into_owned())
        }
        Value::Array(items) => Value::Array(items[start..end].to_vec()),
        _ => Value::Null,
    })
}

fn eq(first: &Value, others: &[&Value]) -> Result<Value, Trouble> {
    if others.is_empty() {
        return refuse("missing argument for comparison");
    }
    for other in others {
        if equal(first, other)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn equal(left: &Value, right: &Value) -> Result<bool, Trouble> {
    match (left, right) {
        (Value::Null, right) => Ok(right.is_null()),
        (_, Value::Null) => Ok(false),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::String(a), Value::String(b)) => Ok(a == b),
        (Value::Number(_), Value::Number(_)) => Ok(compare(left, right)? == Ordering::Equal),
        (Value::Array(_) | Value::Object(_), other)
        | (other, Value::Array(_) | Value::Object(_))
            if std::mem::discriminant(left) == std::mem::discriminant(right) =>
        {
            refuse(format!("non-comparable type {}: {}", plain(other), type_name(other)))
        }
        _ => incompatible(left, right),
    }
}

fn incompatible<T>(left: &Value, right: &Value) -> Result<T, Trouble> {
    let (left, right) = (type_name(left), type_name(right));
    refuse(format!("incompatible types for comparison: {left} and {right}"))
}

fn compare(left: &Value, right: &Value) -> Result<Ordering, Trouble> {
    match (left, right) {
        (Value::String(a), Value::String(b)) => Ok(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => {
            let exact = (crate::number::as_integer(a), crate::number::as_integer(b));
            if let (Some(a), Some(b)) = exact {
                return Ok(a.cmp(&b));
            }
            let order = a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b));
            order.map_or_else(|| refuse("invalid type for comparison"), Ok)
        }
        (Value::String(_) | Value::Number(_), Value::String(_) | Value::Number(_)) => {
            incompatible(left, right)
        }
        _ => refuse("invalid type for comparison"),
    }
}

/// `Sprint`: a blank between neighbours of which neither is a string.
fn print(values: &[&Value]) -> String {
    let mut out = String::new();
    for (at, value) in values.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| values.get(before));
        if before.is_some_and(|before| !before.is_string() && !value.is_string()) {
            out.push(' ');
        }
        out.push_str(&plain(value));
    }
    out
}

fn join(items: &Value, separator: &Value, longest: usize) -> String {
    let parts: Vec<String> = match items {
        Value::Null => return String::new(),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => {
            let mut parts: Vec<String> =
                fields.iter().map(|(name, field)| format!("{name}={}", plain(field))).collect();
            parts.sort();
            parts
        }
        other => vec![plain(other)],
    };
    let mut joined = parts.join(&plain(separator));
    if longest > 0 && joined.len() > longest {
        let mut end = longest.saturating_sub(3);
        while !joined.is_char_boundary(end) {
            end -= 1;
        }
        joined.truncate(end);
        joined.push_str("...");
    }
    joined
}

fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

fn js(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            '<'
            | '>'
            | '&'
            | '='
            | '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

fn url_query(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
