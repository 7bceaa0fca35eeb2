//! Address management: who gets which address, as Calico keeps it in its datastore.
//!
//! Blocks of addresses, the claims of nodes on them, and the handles under which workloads hold
//! addresses. Every operation is planned ([`plan()`]) on what was read of the store ([`View`]) and
//! becomes one transaction that rests on what it read. No I/O, clock or randomness: the time is an
//! argument, and the same view and arguments give the same plan.

mod affinity;
mod assign;
mod block;
pub mod check;
mod error;
mod go_random;
mod handle;
mod moment;
mod owner;
mod plan;
mod pool;
mod pursuit;
mod query;
mod reads;
mod reclaim;
mod record;
mod release;
pub mod repair;
mod request;
mod reserve;
mod search;
mod select;
mod settings;
mod span;
mod specific;
mod usage;
mod view;
mod walk;

pub use affinity::Claimed;
pub use block::{clear_affinity, holder_of, holders, is_empty, release};
pub use error::Error;
pub use moment::{Cooldown, Moment};
pub use owner::{OwnerChange, OwnerCheck, OwnerUpdate};
pub use plan::{Change, Condition, Pause, Plan, Planned, Planner, Savepoint, Step, plan};
pub use pool::{Closed, Pool, Refusal};
pub use pursuit::{Done, Entry, Next, Outcome, Pursuit};
pub use reclaim::{Lost, Reclaim, Reclaimed};
pub use release::Released;
pub use request::{
    AssignIp, Assigned, Assignment, AutoAssign, EnsureBlock, Ensured, HostReserved, Owner, Release,
};
pub use reserve::{node_of_reserve, reserve_handle};
pub use settings::check_settings;
pub use usage::{BlockUsage, Borrowed, Exact, PoolUsage, borrowed, usage};
pub use view::{Read, View};
pub use walk::nth_block;

#[cfg(test)]
mod tests;
