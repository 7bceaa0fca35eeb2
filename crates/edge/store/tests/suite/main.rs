//! The store, tested from outside: the same facts on both backends, then the faults of each.
//!
//! etcd tests start real members of their own. Where the `etcd` program is missing they say so and
//! pass; CI installs it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "all of this is test code, but the lints know only test functions"
)]

mod certificates;
mod conformance;
mod etcd_faults;
mod etcd_security;
mod free_port;
mod ipam;
mod member;
mod proxy;
mod side_by_side;
mod sqlite_faults;
mod view;
mod worker;
