//! A plain host through the shipped binary: set up, used by real container runtimes, removed.
//!
//! Every test has a host of its own, made of namespaces: what is mounted, connected or started in
//! it is gone with it. These tests need root on Linux; what is missing is said aloud.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "all of this is test code, but the lints know only test functions"
)]

mod containerd;
mod cri;
mod host;
mod image;
mod podman;
mod reference;
mod world;
