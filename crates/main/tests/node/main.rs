//! A node through the shipped binary: real namespaces, real CNI calls, a real agent that is killed.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "all of this is test code, but the lints know only test functions"
)]

mod absence;
mod adoption;
mod bad_calls;
mod bad_objects;
mod beside;
mod churn;
mod commands;
mod crash_points;
mod cut_off;
mod disk;
mod etcd;
mod foreign;
mod grief;
mod hostile;
mod interfaces;
mod leftovers;
mod node;
mod outage;
mod reserve;
mod samples;
mod spoil;
mod strangers;
mod telling;
mod upgrade;
mod upkeep;
mod window;
