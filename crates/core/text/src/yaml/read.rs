//! Builds a value from the parser's events, without recursion and within the limits.
//!
//! A text that is plain JSON takes a shorter way through the JSON reader; whatever that
//! refuses, the YAML way decides.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::{Error, Problem};
use super::grammar::{self, Event, Text};
use super::limits;
use super::resolve::{self, Scalar};
use super::scan::Mark;
use crate::{json, number};

/// The text without its byte order mark, if it is UTF-8 and free of control characters.
pub(super) fn checked_text(bytes: &[u8], first_line: usize) -> Result<&str, Error> {
    let place = |at: usize| {
        let before = &bytes[..at];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |nl| nl + 1);
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
    };
    let fail = |at: usize, problem: Problem| {
        let (line, column) = place(at);
        let mut error = Error::new(first_line + line, column, problem);
        error.document_line = line + 1;
        Err(error)
    };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return fail(error.valid_up_to(), Problem::NotUtf8),
    };
    let suspect = |byte: &u8| !matches!(byte, b' '..=b'~' | b'\n' | b'\t' | b'\r');
    if bytes.iter().any(suspect) {
        let refused = |c: char| {
            matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}'
                | '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
        };
        if let Some((at, c)) = text.char_indices().find(|(_, c)| refused(*c)) {
            return fail(at, Problem::ControlCharacter(u32::from(c)));
        }
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Reads one document.
pub(super) fn value(text: &str, first_line: usize) -> Result<Value, Error> {
    if text.trim_start().starts_with(['{', '['])
        // One that may have too many values is left to the reader that counts them.
        && text.bytes().filter(|byte| *byte == b',').count() < limits::VALUES
        && let Ok(value) = json::parse_as_yaml(text)
    {
        return Ok(value);
    }
    let mut reader = Reader::new(first_line, text.contains('*'));
    for event in grammar::events(text) {
        let (event, at) = event.map_err(|complaint| complaint.in_file(first_line))?;
        reader.event(event, at)?;
    }
    Ok(reader.root.unwrap_or(Value::Null))
}

/// A value under construction.
struct Open<'t> {
    kind: OpenKind,
    anchor: Option<&'t str>,
    start: Mark,
    cost: Cost,
}

/// What it takes to copy a value.
#[derive(Clone, Copy)]
struct Cost {
    /// Units of the alias budget.
    weight: usize,
    /// Levels of lists and maps.
    depth: usize,
}

enum OpenKind {
    List(Vec<Value>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    fields: Map<String, Value>,
    /// The line of each key in `fields`.
    lines: Vec<usize>,
    key: Option<Key>,
    merged: Vec<Value>,
}

struct Key {
    /// `None` for `<<`, whose value is to be merged.
    text: Option<String>,
    start: Mark,
}

struct Anchored {
    value: Value,
    weight: usize,
    depth: usize,
}

struct Reader<'t> {
    first_line: usize,
    keep_anchors: bool,
    open: Vec<Open<'t>>,
    anchors: BTreeMap<&'t str, Anchored>,
    budget: usize,
    n_values: usize,
    root: Option<Value>,
    ended: bool,
}

impl<'t> Reader<'t> {
    fn new(first_line: usize, keep_anchors: bool) -> Self {
        Self {
            first_line,
            keep_anchors,
            open: Vec::new(),
            anchors: BTreeMap::new(),
            budget: limits::ALIASED_VALUES,
            n_values: 0,
            root: None,
            ended: false,
        }
    }

    fn error(&self, at: Mark, problem: Problem) -> Error {
        let mut error = Error::new(self.first_line + at.line, at.column + 1, problem);
        error.document_line = at.line + 1;
        error
    }

    fn event(&mut self, event: Event<'t>, at: Mark) -> Result<(), Error> {
        match event {
            Event::DocumentStart if self.ended => Err(self.error(at, Problem::TrailingText)),
            Event::DocumentStart => Ok(()),
            Event::DocumentEnd => {
                self.ended = true;
                Ok(())
            }
            Event::Scalar(text) => self.scalar(text, at),
            Event::ListStart { anchor } => self.push(OpenKind::List(Vec::new()), anchor, at),
            Event::MapStart { anchor } => self.push(OpenKind::Map(OpenMap::default()), anchor, at),
            Event::End => self.close(),
            Event::Alias(anchor) => self.alias(anchor, at),
        }
    }

    fn alias(&mut self, anchor: &'t str, at: Mark) -> Result<(), Error> {
        let Some(anchored) = self.anchors.get(anchor) else {
            return Err(self.error(at, Problem::UnknownAnchor(anchor.to_owned())));
        };
        let weight = anchored.weight;
        if weight > self.budget || self.open.len() + anchored.depth > limits::DEPTH {
            let problem =
                if weight > self.budget { Problem::TooManyAliases } else { Problem::TooDeep };
            return Err(self.error(at, problem));
        }
        self.budget -= weight;
        let (value, depth) = (anchored.value.clone(), anchored.depth);
        self.place(value, Cost { weight, depth }, at)
    }

    fn push(&mut self, kind: OpenKind, anchor: Option<&'t str>, start: Mark) -> Result<(), Error> {
        if self.open.len() >= limits::DEPTH {
            return Err(self.error(start, Problem::TooDeep));
        }
        if let Some(Open { kind: OpenKind::Map(map), .. }) = self.open.last()
            && map.key.is_none()
        {
            let found = if matches!(kind, OpenKind::List(_)) { "a list" } else { "a map" };
            return Err(self.error(start, Problem::KeyKind(found)));
        }
        self.open.push(Open { kind, anchor, start, cost: Cost { weight: 1, depth: 1 } });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        let Some(Open { kind, anchor, start, cost }) = self.open.pop() else {
            return Ok(());
        };
        let value = match kind {
            OpenKind::List(items) => Value::Array(items),
            OpenKind::Map(map) => {
                let mut fields = map.fields;
                for (name, value) in map.merged.into_iter().flat_map(merged_fields) {
                    fields.entry(name).or_insert(value);
                }
                Value::Object(fields)
            }
        };
        self.remember(anchor, &value, cost, start)?;
        self.place(value, cost, start)
    }

    fn remember(
        &mut self,
        anchor: Option<&'t str>,
        value: &Value,
        cost: Cost,
        at: Mark,
    ) -> Result<(), Error> {
        let Some(anchor) = anchor.filter(|_| self.keep_anchors) else {
            return Ok(());
        };
        let Cost { weight, depth } = cost;
        // Keeping the copy costs as much as using it: anchors within anchors add up too.
        if weight > self.budget {
            return Err(self.error(at, Problem::TooManyAliases));
        }
        self.budget -= weight;
        self.anchors.insert(anchor, Anchored { value: value.clone(), weight, depth });
        Ok(())
    }

    fn scalar(&mut self, scalar: Text<'t>, at: Mark) -> Result<(), Error> {
        let Text { text, plain, anchor, tag } = scalar;
        let expects_key = self.expects_key();
        if expects_key && text == "<<" && plain && tag.is_none() {
            self.set_key(Key { text: None, start: at });
            return Ok(());
        }
        let value = match (tag, plain) {
            (None, false) => Value::String(text.to_string()),
            (None, true) => self.plain(&text, expects_key, at)?,
            (Some(tag), _) => resolve::tagged(&tag, &text)
                .map_err(|message| self.error(at, Problem::Tag(message)))?,
        };
        let cost = Cost { weight: 1 + text.len() / 64, depth: 0 };
        self.remember(anchor, &value, cost, at)?;
        self.place(value, cost, at)
    }

    fn plain(&self, text: &str, is_key: bool, at: Mark) -> Result<Value, Error> {
        match resolve::plain(text) {
            Scalar::NotFinite(spelling) if is_key => {
                let spelling = match spelling {
                    "NaN" => ".nan",
                    "+Inf" => ".inf",
                    _ => "-.inf",
                };
                Ok(Value::String(spelling.to_owned()))
            }
            scalar => scalar
                .into_value(text)
                .map_err(|spelling| self.error(at, Problem::NotFinite(spelling))),
        }
    }

    fn set_key(&mut self, key: Key) {
        if let Some(Open { kind: OpenKind::Map(map), .. }) = self.open.last_mut() {
            map.key = Some(key);
        }
    }

    fn expects_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some(Open { kind: OpenKind::Map(map), .. }) if map.key.is_none()
        )
    }

    /// Puts a complete value where it belongs: into the list or map around it.
    fn place(&mut self, value: Value, cost: Cost, at: Mark) -> Result<(), Error> {
        self.n_values += usize::from(!self.expects_key());
        if self.n_values > limits::VALUES {
            return Err(self.error(at, Problem::TooManyValues));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(value);
            return Ok(());
        };
        open.cost.weight = open.cost.weight.saturating_add(cost.weight);
        open.cost.depth = open.cost.depth.max(cost.depth + 1);
        let map = match &mut open.kind {
            OpenKind::List(items) => {
                items.push(value);
                return Ok(());
            }
            OpenKind::Map(map) => map,
        };
        match map.key.take() {
            None => {
                let text = match value {
                    Value::String(text) => text,
                    Value::Null => return Err(self.error(at, Problem::KeyKind("null"))),
                    Value::Array(_) => return Err(self.error(at, Problem::KeyKind("a list"))),
                    Value::Object(_) => return Err(self.error(at, Problem::KeyKind("a map"))),
                    other => number::scalar_text(&other),
                };
                map.key = Some(Key { text: Some(text), start: at });
            }
            Some(Key { text: None, .. }) => {
                if !is_mergeable(&value) {
                    return Err(self.error(at, Problem::MergeKind));
                }
                map.merged.push(value);
            }
            Some(Key { text: Some(text), start }) => {
                if map.fields.contains_key(&text) {
                    let first = map.fields.keys().position(|key| *key == text).unwrap_or(0);
                    let line = map.lines.get(first).copied().unwrap_or(0);
                    let first_line = self.first_line + line;
                    let problem = Problem::DuplicateKey { key: text, first_line };
                    let mut error = self.error(start, problem);
                    error.document_line = at.line + 1;
                    return Err(error);
                }
                map.lines.push(start.line);
                map.fields.insert(text, value);
            }
        }
        Ok(())
    }
}

fn is_mergeable(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(items) => items.iter().all(Value::is_object),
        _ => false,
    }
}

/// The fields a `<<` brings in; of maps in a list, the earlier ones come first and so win.
fn merged_fields(value: Value) -> Vec<(String, Value)> {
    match value {
        Value::Object(fields) => fields.into_iter().collect(),
        Value::Array(items) => items.into_iter().flat_map(merged_fields).collect(),
        _ => Vec::new(),
    }
}
