//! Asks the agent of this node, and says in words when it does not answer.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use host::protocol::{self, Inquiry};
use host::report::{Finding, Severity};
use serde::Deserialize;

use super::advice;
use super::failure::Failure;
use super::setup::layout::Layout;

/// How long an agent may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often one that hangs up is asked again, and after how long.
const TRIES_MAX: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// Where the agent listens.
#[derive(Args, Clone, Debug)]
pub(crate) struct Agent {
    /// The folder of the agent's socket
    #[arg(long, env = "MARGAY_RUN_DIR", default_value = DEFAULT_RUN_DIR, value_name = "DIR")]
    #[arg(hide_env_values = true, value_hint = clap::ValueHint::DirPath)]
    pub(crate) run_dir: PathBuf,
}

const DEFAULT_RUN_DIR: &str = "/run/margay";

/// No answer, and what to do about it.
#[derive(Debug)]
pub(crate) struct Silence {
    pub(crate) what: String,
    pub(crate) fix: String,
}

impl Agent {
    /// The agent that a command without flags is about.
    pub(crate) fn usual() -> Self {
        let named = std::env::var_os("MARGAY_RUN_DIR").filter(|folder| !folder.is_empty());
        Self { run_dir: named.map_or_else(|| DEFAULT_RUN_DIR.into(), PathBuf::from) }
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.run_dir.join("agent.sock")
    }

    /// Asks it.
    pub(crate) fn ask<T>(&self, inquiry: &Inquiry) -> Result<T, Silence>
    where
        T: for<'de> Deserialize<'de>,
    {
        self.ask_for(inquiry, PATIENCE)
    }

    /// Asks it for something that may take a while.
    pub(crate) fn ask_for<T>(&self, inquiry: &Inquiry, patience: Duration) -> Result<T, Silence>
    where
        T: for<'de> Deserialize<'de>,
    {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let socket = self.socket();
        let mut n_tries = 0;
        loop {
            match protocol::inquire(&socket, inquiry, patience) {
                // It ended at this very moment: either it is gone, or the next one serves.
                Err(error)
                    if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
                        && n_tries < TRIES_MAX =>
                {
                    n_tries += 1;
                    std::thread::sleep(PAUSE);
                }
                answer => return answer.map_err(|error| self.silence(&error, patience)),
            }
        }
    }

    /// How a host is that has no agent because it was set up so; none if it should have one.
    pub(crate) fn does_without(&self) -> Option<Layout> {
        let is_silent = || !self.socket().exists();
        advice::layout(&self.run_dir).filter(|layout| layout.unit.is_none() && is_silent())
    }

    /// The command that brings an agent up here.
    fn start(&self) -> String {
        match advice::layout(&self.run_dir) {
            Some(layout) => advice::start(&layout),
            None if self.run_dir.as_os_str() == DEFAULT_RUN_DIR => {
                "margay setup      # margay setup --plan says what it would do".to_owned()
            }
            None => format!(
                "margay agent --run-dir {} …      # see margay agent --help",
                self.run_dir.display()
            ),
        }
    }

    fn silence(&self, error: &io::Error, patience: Duration) -> Silence {
        use io::ErrorKind::{
            ConnectionRefused, InvalidInput, NotFound, PermissionDenied, TimedOut, WouldBlock,
        };
        let socket = self.socket().display().to_string();
        let help = self.start();
        let (what, fix) = match error.kind() {
            NotFound => (format!("no agent runs here, there is no socket {socket}"), help),
            ConnectionRefused => (format!("no agent runs here, nobody listens at {socket}"), help),
            PermissionDenied => {
                let what = format!("the agent answers only to root and to its own user, {socket}");
                (what, "sudo, or log in as root".to_owned())
            }
            TimedOut | WouldBlock => {
                let seconds = patience.as_secs();
                let what = format!("the agent does not answer within {seconds} s, {socket}");
                (what, "its log says why: it may be starting, or waiting for the datastore".into())
            }
            InvalidInput => (error.to_string(), "margay status      # what is wrong?".to_owned()),
            _ => (format!("the agent does not answer, {socket}: {error}"), help),
        };
        Silence { what, fix }
    }
}

impl Silence {
    /// As one of the findings.
    pub(crate) fn finding(self) -> Finding {
        Finding {
            code: "MG-AGENT-001".to_owned(),
            severity: Severity::Broken,
            cause: "AGENT".to_owned(),
            problem: self.what,
            fix: self.fix,
        }
    }
}

impl From<Silence> for Failure {
    fn from(silence: Silence) -> Self {
        Self::new(silence.what).help(silence.fix)
    }
}

/// The present time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// How long ago a time in RFC 3339 was, in the largest unit that it has two of.
pub(crate) fn ago(time: &str) -> String {
    let Ok(time) = time.parse::<jiff::Timestamp>() else { return "?".to_owned() };
    let time = u64::try_from(time.as_second()).unwrap_or_default();
    text::words::age(now().saturating_sub(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_none_has_no_age() {
        assert_eq!(ago("nonsense"), "?");
    }
}
