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
//! - [`distance`]: the nearest known name to a misspelled one

pub mod distance;
pub mod json;
pub mod number;
pub mod patch;
pub mod template;
pub mod yaml;
