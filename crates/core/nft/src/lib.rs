//! nf_tables as typed values, and as the messages in which the kernel is told and tells them.
//!
//! The encoder is our own: one datagram a transaction, which the kernel applies in full or not at
//! all. A set element costs the kernel far less than a rule: prefer changing elements.
//! Only tables that the caller names are ever touched. Sending and receiving is `kernel`'s part.

pub mod batch;
pub mod expression;
pub mod set;
pub mod table;
mod user_data;
pub mod wire;

pub use batch::Batch;
pub use expression::{Expression, Register, Source, Verdict};
pub use set::{DataType, Element, ElementValue, Key, Set, SetKind, merged};
pub use table::{
    Base, Chain, ChainKind, Hook, ListedRule, NamedCounter, Rule, Table, TableFamily, TableId,
};
