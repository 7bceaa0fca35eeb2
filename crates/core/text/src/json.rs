//! JSON as Go's `encoding/json` reads and writes it.
//!
//! Output escapes `<`, `>`, `&` and the two line separators, and spells floats with plain
//! digits from 1e-6 up to 1e21. Of a name that occurs twice in an object the reader takes the
//! last value, as Go does; nesting is bounded.

mod read;
mod write;

pub(crate) use read::parse_as_yaml;
pub use read::{Error, parse};
pub use write::{to_string, to_string_indented, write, write_indented};
