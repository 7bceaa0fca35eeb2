//! Reading and writing of documents, to the byte as the Go tools around Calico do it.
//!
//! Everything works on [`serde_json::Value`] with its key order kept. Nothing here knows a
//! kind or a field: types, defaults and names of fields belong to the layers above.
//!
//! - [`yaml`]: documents in (YAML 1.1 scalars, positions, limits), YAML out
//! - [`json`]: JSON in and out as `encoding/json`
//! - [`patch`]: strategic merge, JSON merge and JSON patches
//! - [`template`]: Go's `text/template` over values
//! - [`number`]: how numbers are spelled and read
//! - [`table`]: rows under headings, for people
//! - [`words`]: ages and counts, for people
//! - [`distance`]: the nearest known name to a misspelled one

pub mod distance;
pub mod json;
pub mod number;
pub mod patch;
pub mod table;
pub mod template;
pub mod usage;
pub mod words;
pub mod yaml;

/// The system's words for a fault, as they stand in a sentence: without a capital, and without
/// Rust's number behind them.
pub fn plain_reason(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => text.to_owned(),
    }
}
