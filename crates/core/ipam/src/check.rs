//! Whether the records of addresses fit together and fit what lives.
//!
//! An [`Inventory`] takes in every record that has to do with addresses, and what this node's own
//! journal and kernel say ([`Live`]). [`Inventory::check`] names everything that does not fit, by
//! [`Class`]; [`crate::repair`] writes what would. Both decide with the same verdicts, so that
//! what one names the other mends or says why not. Records that cannot be read are taken for what
//! they may hold: nothing of theirs is free.

mod affinities;
mod endpoint;
mod handle;
mod handles;
mod held;
mod inventory;
mod live;
mod problem;
mod stock;
mod users;
mod verdict;
mod witness;

pub use held::HeldAddress;
pub use inventory::{Inventory, endpoints_prefix, prefixes};
pub use live::{Live, Sandbox};
pub use problem::{Class, Findings, Problem};
pub use verdict::Reach;

pub(crate) use affinities::{ClaimVerdict, Claims};
pub(crate) use handles::HandleVerdict;
pub(crate) use stock::{is_time, salvage};
pub(crate) use verdict::{BlockVerdict, Judgement, SlotVerdict, address_at};

#[cfg(test)]
pub(crate) mod tests;
