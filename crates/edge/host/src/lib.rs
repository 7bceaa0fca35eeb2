//! What the programs of one host share: the agent's socket, the journal of sandboxes and the
//! tickets of those that left while no agent served, the events of the node, what it remembers of
//! its datastore, what an agent says about itself, the marks on what we make, and who else
//! programs this kernel.

pub mod bounded;
pub mod codes;
pub mod drops;
pub mod events;
pub mod fault;
pub mod file;
pub mod host_local;
pub mod journal;
pub mod known;
pub mod marks;
pub mod protocol;
pub mod report;
pub mod rivals;
pub mod room;
pub mod tickets;
