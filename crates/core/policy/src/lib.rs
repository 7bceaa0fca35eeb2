//! What policies mean: which packets an endpoint lets through, and which rule decides.
//!
//! A [`Rule`] is in the form in which dataplanes carry it out: selectors have become [`IpSets`].
//! [`Judge`] is the one meaning of it, slow and obvious: every dataplane is held to what it says,
//! and `margay explain` repeats it.

// Tests that others include name the crate as they do.
#[cfg(test)]
extern crate self as policy;

mod cluster;
mod conversation;
pub mod convert;
mod endpoint;
pub mod explain;
pub mod graph;
pub mod guards;
pub mod input;
pub mod intent;
pub mod interfaces;
pub mod labels;
pub mod order;
mod packet;
pub mod reference;
pub mod render;
pub mod review;
mod rule;
mod rule_name;
pub mod salvage;
pub mod scan;
mod set;
pub mod suggest;
mod verdict;

pub use cluster::Cluster;
pub use conversation::Conversations;
pub use endpoint::Endpoint;
pub use packet::{Packet, protocol_number};
pub use rule::{Icmp, Peer, Ports, Rule};
pub use rule_name::{Place, RuleName, TEXT_LEN_MAX};
pub use set::{IpSet, IpSets, Member, SetId};
pub use verdict::{Decision, End, HostRules, Judge, Named, Outcome, Rules, Tier, Verdict};
