//! Ports for servers of tests.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The ports that are given out: below those that the kernel gives to connections. One of those
/// would be taken by some other test before a server listens on it, or while it is killed.
const FIRST: u32 = 12_000;
const N_PORTS: u32 = 20_000;

/// One that nobody listens on, and another each time.
pub(crate) fn free_port() -> u16 {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let next = |_| {
        let asked = std::process::id().wrapping_add(ASKED.fetch_add(1, Relaxed));
        u16::try_from(FIRST + asked % N_PORTS).expect("a port below 32000")
    };
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..N_PORTS).map(next).find(is_free).expect("a port that is free")
}
