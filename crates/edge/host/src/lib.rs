//! What the programs of one host share: the agent's socket, the journal of sandboxes, the events
//! of the node, and what an agent says about itself.

pub mod bounded;
pub mod events;
pub mod journal;
pub mod protocol;
pub mod report;
