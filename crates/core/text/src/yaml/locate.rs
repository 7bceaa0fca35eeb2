//! Where the parts of a document stand, worked out only when someone asks.

use std::collections::BTreeMap;

use serde_json::Value;

use super::document::{Position, Step};
use super::grammar::{self, Event, Text};
use super::resolve;
use super::scan::Mark as Place;
use crate::number;

/// Where every part of a document stands.
#[derive(Debug, Clone)]
pub struct Places {
    root: Mark,
}

impl Places {
    /// Of the document with this text, which starts on that line of its file.
    pub fn of(text: &str, first_line: usize) -> Self {
        Self { root: marks(text, first_line) }
    }

    /// Where the part at `path` stands: its key, or its list item. If there is no such part,
    /// the place of the nearest thing around it.
    pub fn find(&self, path: &[Step<'_>]) -> Position {
        let mut mark = &self.root;
        for step in path {
            match mark.child(*step) {
                Some(child) => mark = child,
                None => break,
            }
        }
        Position { line: mark.line, column: mark.column }
    }
}

/// The place of a value, and of its parts.
#[derive(Debug, Clone)]
struct Mark {
    line: usize,
    column: usize,
    parts: Parts,
}

#[derive(Debug, Clone)]
enum Parts {
    None,
    Items(Vec<Mark>),
    Fields(BTreeMap<String, Mark>),
}

impl Mark {
    fn child(&self, step: Step<'_>) -> Option<&Mark> {
        match (&self.parts, step) {
            (Parts::Items(items), Step::Index(index)) => items.get(index),
            (Parts::Fields(fields), Step::Key(key)) => fields.get(key),
            _ => None,
        }
    }
}

/// A list or map whose end has not come yet.
struct Open {
    mark: Mark,
    /// In a map, the key whose value comes next.
    key: Option<(String, Place)>,
}

/// Goes through the document once. What cannot be parsed is left out.
fn marks(text: &str, first_line: usize) -> Mark {
    let mut root = Mark { line: first_line, column: 1, parts: Parts::None };
    let mut open: Vec<Open> = Vec::new();
    for event in grammar::events(text) {
        let Ok((event, at)) = event else { break };
        let parts = match event {
            Event::ListStart { .. } => Some(Parts::Items(Vec::new())),
            Event::MapStart { .. } => Some(Parts::Fields(BTreeMap::new())),
            Event::Scalar(_) | Event::Alias(_) => None,
            Event::End => {
                if let Some(done) = open.pop() {
                    attach(&mut open, &mut root, done.mark);
                }
                continue;
            }
            Event::DocumentEnd => break,
            Event::DocumentStart => continue,
        };
        let mark = mark_at(first_line, at, open.last());
        match (parts, open.last_mut()) {
            (Some(parts), _) => open.push(Open { mark: Mark { parts, ..mark }, key: None }),
            (None, Some(Open { mark: Mark { parts: Parts::Fields(_), .. }, key }))
                if key.is_none() =>
            {
                *key = Some((key_text(&event), at));
            }
            (None, _) => attach(&mut open, &mut root, mark),
        }
    }
    while let Some(unfinished) = open.pop() {
        attach(&mut open, &mut root, unfinished.mark);
    }
    root
}

/// A field is found at its key, anything else at its own start.
fn mark_at(first_line: usize, at: Place, around: Option<&Open>) -> Mark {
    let start = match around.and_then(|open| open.key.as_ref()) {
        Some((_, key)) => *key,
        None => at,
    };
    Mark { line: first_line + start.line, column: start.column + 1, parts: Parts::None }
}

fn attach(open: &mut [Open], root: &mut Mark, mark: Mark) {
    match open.last_mut() {
        None => *root = mark,
        Some(Open { mark: around, key }) => match &mut around.parts {
            Parts::Items(items) => items.push(mark),
            Parts::Fields(fields) => {
                if let Some((key, _)) = key.take() {
                    fields.insert(key, mark);
                }
            }
            Parts::None => {}
        },
    }
}

fn key_text(event: &Event<'_>) -> String {
    match event {
        Event::Scalar(Text { text, plain: true, tag: None, .. }) => {
            match resolve::plain(text).into_value(text) {
                Ok(scalar @ (Value::Bool(_) | Value::Number(_))) => number::scalar_text(&scalar),
                _ => text.to_string(),
            }
        }
        Event::Scalar(Text { text, .. }) => text.to_string(),
        _ => String::new(),
    }
}
