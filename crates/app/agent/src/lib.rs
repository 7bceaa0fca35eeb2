//! The node's agent and the CNI plugin: wiring and life cycle.
//!
//! What a sandbox is and which steps it takes is [`sandbox`]'s; what the kernel should hold is
//! [`intent`]'s; who gets which address is [`ipam`]'s. Here they meet a datastore, a kernel and a
//! runtime that calls.

mod addresses;
mod adopt;
mod arguments;
mod dataplane;
mod delegate;
mod disk;
mod drops;
mod endpoint_status;
mod features;
mod filter;
mod finding;
mod foreign;
mod gates;
mod health;
mod http;
mod interfaces;
mod join;
mod keeper;
mod memory;
mod metrics;
mod motion;
mod node;
mod notes;
mod orders;
mod parameters;
pub mod plugin;
mod poison;
mod reads;
mod realised;
mod recall;
mod reconcile;
mod register;
mod repairs;
mod report;
mod reserve;
mod routes;
mod sandboxes;
mod serve;
mod server;
mod settings;
mod supervisor;
mod trial;
mod upkeep;
mod window;
mod wire;

pub use supervisor::{command_line, run};
