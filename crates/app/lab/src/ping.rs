//! `ping` for pods on hosts that have none: the lab's folder of programs has this binary under
//! that name, behind everything that the host has.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::time::Duration;

use clap::Parser;

use crate::Outcome;
use crate::failure::Failure;
use crate::probe::{self, Protocol, Question};

/// The name of the program.
pub(crate) const NAME: &str = "ping";

/// Asks a host of the lab for an echo.
#[derive(Debug, Parser)]
#[command(name = NAME)]
struct Arguments {
    /// How often
    #[arg(short, default_value_t = 4)]
    count: u32,
    /// Seconds to wait for an answer
    #[arg(short = 'W', default_value_t = 1)]
    wait: u64,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    v6: bool,
    /// A name or an address
    host: String,
}

/// Runs it; words as typed, the program's own name first.
pub(crate) fn run(words: &[OsString]) -> Result<Outcome, Failure> {
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return Ok(if error.use_stderr() { Outcome::Broken } else { Outcome::Fine });
        }
    };
    let host = &arguments.host;
    let found = (host.as_str(), 0).to_socket_addrs();
    let found = found.map_err(|_| Failure::new(format!("{host} is not known here")))?;
    let is_meant = |address: &IpAddr| match address {
        IpAddr::V4(_) => !arguments.v6,
        IpAddr::V6(_) => !arguments.v4,
    };
    let address = found.map(|socket| socket.ip()).find(is_meant);
    let address = address.ok_or_else(|| Failure::new(format!("{host} has no such address")))?;
    let mut out = io::stdout().lock();
    writeln!(out, "PING {host} ({address})")?;
    let question = Question { pod: host.clone(), address, protocol: Protocol::Icmp };
    let mut n_answered = 0;
    for number in 1..=arguments.count {
        let asked =
            probe::ask(std::slice::from_ref(&question), Duration::from_secs(arguments.wait));
        match asked.first() {
            Some(Ok(time)) => {
                n_answered += 1;
                let ms = time.as_secs_f64() * 1000.0;
                writeln!(out, "answer from {address}: seq={number} time={ms:.3} ms")?;
            }
            Some(Err(why)) => writeln!(out, "{address}: seq={number} {why}")?,
            None => {}
        }
        if number < arguments.count {
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    writeln!(out, "{} sent, {n_answered} answered", arguments.count)?;
    Ok(if n_answered > 0 { Outcome::Fine } else { Outcome::Degraded })
}
