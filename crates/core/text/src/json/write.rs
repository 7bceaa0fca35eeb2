//! Prints values as JSON, compact or indented by two blanks.

use serde_json::{Number, Value};

use crate::number;

/// The value on one line.
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

/// The value over several lines, two blanks per level, without a line end at the end.
pub fn to_string_indented(value: &Value) -> String {
    let mut out = String::new();
    write_indented(&mut out, value);
    out
}

/// Appends the value on one line.
pub fn write(out: &mut String, value: &Value) {
    put(out, value, None);
}

/// Appends the value over several lines.
pub fn write_indented(out: &mut String, value: &Value) {
    put(out, value, Some(0));
}

fn put(out: &mut String, value: &Value, indent: Option<usize>) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => put_number(out, number),
        Value::String(text) => put_text(out, text),
        Value::Array(items) if items.is_empty() => out.push_str("[]"),
        Value::Object(fields) if fields.is_empty() => out.push_str("{}"),
        Value::Array(items) => {
            let inner = indent.map(|level| level + 1);
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                next(out, at, inner);
                put(out, item, inner);
            }
            line(out, indent);
            out.push(']');
        }
        Value::Object(fields) => {
            let inner = indent.map(|level| level + 1);
            out.push('{');
            for (at, (name, field)) in fields.iter().enumerate() {
                next(out, at, inner);
                put_text(out, name);
                out.push_str(if inner.is_some() { ": " } else { ":" });
                put(out, field, inner);
            }
            line(out, indent);
            out.push('}');
        }
    }
}

fn next(out: &mut String, at: usize, indent: Option<usize>) {
    if at > 0 {
        out.push(',');
    }
    line(out, indent);
}

fn line(out: &mut String, indent: Option<usize>) {
    if let Some(level) = indent {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", level));
    }
}

fn put_number(out: &mut String, number: &Number) {
    use std::fmt::Write;
    match number::float_of(number) {
        Some(float) => out.push_str(&number::json_form(float)),
        None => {
            let _ = write!(out, "{number}");
        }
    }
}

fn put_text(out: &mut String, text: &str) {
    use std::fmt::Write;
    out.push('"');
    let mut clean = 0;
    for (at, c) in text.char_indices() {
        let short = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => "",
            _ => continue,
        };
        out.push_str(&text[clean..at]);
        if short.is_empty() {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push_str(short);
        }
        clean = at + c.len_utf8();
    }
    out.push_str(&text[clean..]);
    out.push('"');
}
