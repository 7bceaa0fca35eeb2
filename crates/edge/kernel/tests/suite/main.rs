//! The crate against a real kernel, with `ip`, `nft` and `conntrack` as oracles.
//!
//! Every test works in namespaces of its own that have no name, so nothing is left behind.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "all of this is test code, but the lints know only test functions"
)]

mod addresses;
mod connections;
mod links;
mod namespaces;
mod packet_log;
mod policies;
mod rootless;
mod routes;
mod ruleset;
mod traffic;
mod world;
