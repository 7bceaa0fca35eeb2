//! The command line: one program under two names.
//!
//! As `calicoctl` it takes that program's commands and flags and gives its answers; as `margay`
//! it has a face of its own. Both read documents, print tables and talk to the datastore with
//! the same code.

pub mod calicoctl;
mod clock;
mod cluster;
pub mod columns;
pub mod documents;
pub mod margay;
pub mod output;
mod table;
mod templates;
