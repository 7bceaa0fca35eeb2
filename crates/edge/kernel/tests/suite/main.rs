//! The crate against a real kernel, with `ip` and `nft` as oracles.
//!
//! Every test works in namespaces of its own that have no name, so nothing is left behind.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "all of this is test code, but the lints know only test functions"
)]

mod addresses;
mod links;
mod namespaces;
mod routes;
mod ruleset;
mod world;
