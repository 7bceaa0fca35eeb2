//! What the records of address management mean: who holds an address, letting addresses go, and
//! how full blocks and pools are. How they are stored is the business of [`api::keys::ipam`].

mod block;
mod usage;

pub use block::{Cooldown, clear_affinity, holder_of, holders, is_empty, release};
pub use usage::{BlockUsage, Borrowed, PoolUsage, borrowed, usage};
