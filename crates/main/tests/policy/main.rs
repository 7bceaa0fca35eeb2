//! Policy in the kernel: every packet does what the oracle says, and the rule that decides is the
//! one that the oracle names.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "all of this is test code, but the lints know only test functions"
)]

mod conntrack;
mod dataplane;
mod errors;
#[path = "../node/etcd.rs"]
#[expect(dead_code, reason = "another test uses the rest")]
mod etcd;
mod gates;
mod harness;
mod hostile;
mod hosts;
mod kills;
mod listing;
mod nat;
#[path = "../node/node.rs"]
#[expect(dead_code, reason = "another test uses the rest")]
mod node;
mod nodes;
mod objects;
mod oracle;
mod packet;
mod probes;
mod random;
mod random_hosts;
mod refusals;
mod semantics;
mod services;
mod stream;
mod trace;
mod world;
