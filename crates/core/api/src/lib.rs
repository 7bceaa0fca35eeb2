//! Wire forms: what Calico's resources look like as JSON, and where they lie in a datastore.
//!
//! Everything here works on `serde_json::Value`: a schema table per kind says which fields there
//! are, in which order Calico writes them, when it leaves them out, and what may stand in them.
//! Strict reading of users' input, lenient reading of stored values, defaults and `help field`
//! all derive from those tables. What a value *means* is the business of `model`.
//!
//! **Invariant:** this is the only crate whose field names are Calico's.

mod carry;
pub mod keys;
mod kind;
pub mod names;
mod problem;
pub mod schema;

pub use carry::{carry_unknown, strip_unknown};
pub use kind::{Kind, UnknownKind};
pub use problem::{CalicoError, Problem, Stage};

/// The Calico release whose tools and formats ours stand in for.
pub const EMULATED_CALICO_VERSION: &str = "v3.32.0";
