//! YAML as goyaml v2 under `sigs.k8s.io/yaml` reads and writes it.
//!
//! [`documents`] splits a file as calicoctl does and yields one [`Document`] after another;
//! [`parse`] reads one document's text. Scalars follow YAML 1.1 (`yes`, `0100`, `1_000`), keys
//! become text, a key given twice is an error. [`to_string`] and [`write`](fn@write) print a
//! value with sorted keys, byte for byte as the Go library. Input is bounded: see [`limits`].

mod document;
mod error;
mod grammar;
mod key_order;
mod locate;
mod read;
pub(crate) mod resolve;
mod scalar;
mod scan;
mod split;
mod write;

pub use document::{Document, Emptiness, Position, Step};
pub use error::{Error, Problem};
pub use locate::Places;
pub use split::{Documents, documents};
pub use write::{to_string, write};

use serde_json::Value;

/// What a document may be at most.
pub mod limits {
    /// Bytes in one document, as in calicoctl.
    pub const DOCUMENT_BYTES: usize = 10 * 1024 * 1024;
    /// Levels of lists and maps within each other.
    pub const DEPTH: usize = 200;
    /// Values in one document. What can be stored is far smaller; each costs memory many times
    /// its text.
    pub const VALUES: usize = 500_000;
    /// Values that aliases may add to one document.
    pub const ALIASED_VALUES: usize = 400_000;
}

/// Reads the text of one document.
pub fn parse(text: &[u8]) -> Result<Value, Error> {
    let text = read::checked_text(text, 1)?;
    read::value(text, 1)
}

#[cfg(test)]
mod tests;
