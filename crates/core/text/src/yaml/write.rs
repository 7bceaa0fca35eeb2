//! Prints a value as block YAML: two blanks per level, lists not indented under their key.

use serde_json::{Map, Number, Value};

use super::key_order;
use super::scalar::{self, Line, Style};
use crate::number;

/// Keys longer than this are written with a question mark.
const SIMPLE_KEY_BYTES: usize = 128;

/// The value as a YAML document, ending with a line end.
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

/// Appends the value as a YAML document to `out`.
///
/// A long list need not be held in memory: its text is that of one-item lists, one after
/// another.
pub fn write(out: &mut String, value: &Value) {
    let mut line = Line::new(out);
    let mut writer = Writer { line: &mut line };
    match value {
        Value::Object(fields) if !fields.is_empty() => writer.map(fields, 0),
        Value::Array(items) if !items.is_empty() => writer.list(items, 0),
        scalar => writer.scalar(scalar, 2),
    }
    if !line.fresh {
        line.end();
    }
}

struct Writer<'w, 'o> {
    line: &'w mut Line<'o>,
}

impl Writer<'_, '_> {
    /// Starts a line at `indent`, unless the cursor is there already, after a dash.
    fn start(&mut self, indent: usize) {
        if !self.line.fresh {
            self.line.end();
        }
        self.line.pad(indent);
    }

    fn map(&mut self, fields: &Map<String, Value>, indent: usize) {
        let mut entries: Vec<(&str, &Value)> =
            fields.iter().map(|(key, value)| (key.as_str(), value)).collect();
        key_order::sort(&mut entries);
        for (key, value) in entries {
            self.start(indent);
            let shape = scalar::shape(key);
            if !shape.multiline && key.len() <= SIMPLE_KEY_BYTES {
                self.styled(key, scalar::style(key, &shape, true), indent, false);
                self.line.push(':');
                self.value(value, indent);
            } else {
                self.line.push_ascii("? ");
                self.styled(key, scalar::style(key, &shape, false), indent + 2, true);
                self.start(indent);
                self.line.push(':');
                self.nested(value, indent);
            }
        }
    }

    fn list(&mut self, items: &[Value], indent: usize) {
        for item in items {
            self.start(indent);
            self.line.push('-');
            self.nested(item, indent);
        }
    }

    /// What follows a key and its colon: maps and lists start on the next line.
    fn value(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                self.line.end();
                self.map(fields, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                self.line.end();
                self.list(items, indent);
            }
            scalar => {
                self.line.push(' ');
                self.scalar(scalar, indent + 2);
            }
        }
    }

    /// What follows a dash: maps and lists start on the same line.
    fn nested(&mut self, value: &Value, indent: usize) {
        self.line.push(' ');
        self.line.fresh = true;
        match value {
            Value::Object(fields) if !fields.is_empty() => self.map(fields, indent + 2),
            Value::Array(items) if !items.is_empty() => self.list(items, indent + 2),
            scalar => self.scalar(scalar, indent + 2),
        }
    }

    fn scalar(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null => self.line.push_ascii("null"),
            Value::Bool(flag) => self.line.push_ascii(if *flag { "true" } else { "false" }),
            Value::Number(number) => self.line.push_ascii(&number_text(number)),
            Value::String(text) => {
                let shape = scalar::shape(text);
                self.styled(text, scalar::style(text, &shape, false), indent, true);
            }
            Value::Array(_) => self.line.push_ascii("[]"),
            Value::Object(_) => self.line.push_ascii("{}"),
        }
    }

    fn styled(&mut self, text: &str, style: Style, indent: usize, may_fold: bool) {
        match style {
            Style::Plain => self.line.plain(text, indent, may_fold),
            Style::Single => self.line.single(text, indent, may_fold),
            Style::Double => self.line.double(text, indent, may_fold),
            Style::Literal => self.line.literal(text, indent),
        }
    }
}

/// A whole float reads as an integer on its way through JSON, so it is printed as one.
fn number_text(number: &Number) -> String {
    match number::float_of(number) {
        None => number.to_string(),
        Some(float) => match number::as_integer(number).and_then(Number::from_i128) {
            Some(integer) => integer.to_string(),
            None => number::general(float),
        },
    }
}
