//! The program as its users meet it: the real binary, on the embedded store and on a real etcd.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "all of this is test code, but the lints know only test functions"
)]

mod addresses;
mod confirm;
mod crash;
mod explain;
mod first_steps;
mod habits;
mod harness;
mod history;
mod lab;
mod life;
mod outage;
mod printing;
mod quarantine;
mod reading;
mod realised;
mod same_bytes;
mod settings;
mod status;
mod terminal;
mod upgrade;
mod watch;

// The members, the silent proxy and the certificates are those of the store's own suite.
#[path = "../../../edge/store/tests/suite/certificates.rs"]
mod certificates;
#[path = "../../../edge/store/tests/suite/free_port.rs"]
mod free_port;
#[allow(dead_code, reason = "the store's suite needs more of it")]
#[path = "../../../edge/store/tests/suite/member.rs"]
mod member;
#[allow(dead_code, reason = "the store's suite needs more of it")]
#[path = "../../../edge/store/tests/suite/proxy.rs"]
mod proxy;
