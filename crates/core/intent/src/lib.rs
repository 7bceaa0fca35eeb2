//! What this node's kernel should hold, computed from what the datastore and the journal of
//! sandboxes say.
//!
//! [`Inputs`] absorbs keys and values one by one, in any order; [`Inputs::routes`] and
//! [`Inputs::policy`] are functions of what was absorbed and of nothing else. A value that cannot
//! be used is kept aside under its key with its problems, and everything else goes on.

mod access;
mod adopt;
mod census;
mod elsewhere;
mod felix;
pub mod hold;
mod inputs;
mod join;
mod live;
mod overlay;
mod read;
mod reserve;
mod routes;
mod settings;
mod sync;
#[cfg(test)]
mod tests;

pub use adopt::{Inside, Recognised, Stranger};
pub use census::Census;
pub use inputs::{Changed, Inputs};
pub use join::{Leftover, Witnesses};
pub use live::{Contradiction, Dispute, Impostor, Live, LocalEndpoint, Twin};
pub use overlay::{Gone, Overlay};
pub use read::Read;
pub use reserve::{Reserve, Restock};
pub use routes::{Hop, Obstacle, Routes, Unroutable, plan};
pub use settings::{filter_settings, resolve};
pub use sync::InSync;
