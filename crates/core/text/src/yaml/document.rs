//! One document of a file: its value, where it starts, and where its parts are.

use std::cell::OnceCell;

use serde_json::Value;

use super::locate::Places;

/// A place in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

/// One step from a value to a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'s> {
    /// The field of that name.
    Key(&'s str),
    /// The list item of that number.
    Index(usize),
}

/// In which way a document holds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emptiness {
    /// No bytes at all between two separators.
    NoBytes,
    /// Blanks and line ends only.
    Blank,
    /// Comments (and blanks) only.
    Comments,
    /// Only document markers (`---`, `...`), with or without comments.
    Markers,
    /// The value null, written out.
    Null,
}

/// A document that was read.
#[derive(Debug, Clone)]
pub struct Document<'t> {
    /// What it says.
    pub value: Value,
    /// The line of the file on which its text starts, from 1.
    pub first_line: usize,
    /// The byte of the file at which its text starts.
    pub offset: usize,
    /// Set when there is nothing in it; the value is then null.
    pub emptiness: Option<Emptiness>,
    text: &'t str,
    places: OnceCell<Places>,
}

impl<'t> Document<'t> {
    pub(super) fn new(value: Value, text: &'t str, offset: usize, first_line: usize) -> Self {
        let emptiness = value.is_null().then(|| emptiness(text));
        Self { value, first_line, offset, emptiness, text, places: OnceCell::new() }
    }

    /// The document's own text.
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// Where the part at `path` stands in the file, as [`Places::find`] says.
    ///
    /// Positions are worked out on the first call, so that reading alone does not pay for them.
    pub fn position(&self, path: &[Step<'_>]) -> Position {
        self.places.get_or_init(|| Places::of(self.text, self.first_line)).find(path)
    }
}

fn emptiness(text: &str) -> Emptiness {
    if text.is_empty() {
        return Emptiness::NoBytes;
    }
    let mut found = Emptiness::Blank;
    for line in text.lines() {
        let content = line.trim_start_matches('\u{feff}').trim();
        let marker = content.strip_prefix("---").or_else(|| content.strip_prefix("..."));
        match marker.map_or(content, str::trim_start) {
            "" if marker.is_some() => found = Emptiness::Markers,
            "" => {}
            rest if rest.starts_with(['#', '%']) => {
                if marker.is_some() {
                    found = Emptiness::Markers;
                } else if found == Emptiness::Blank {
                    found = Emptiness::Comments;
                }
            }
            _ => return Emptiness::Null,
        }
    }
    found
}
