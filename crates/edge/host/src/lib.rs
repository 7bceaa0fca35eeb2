//! What the programs of one host share: the agent's socket, the journal of sandboxes, and the
//! events of the node.

pub mod events;
pub mod journal;
pub mod protocol;
