//! What can go wrong, one variant for each decision a caller can make.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A call that the store could not carry out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No endpoint answered; nothing was changed. Worth trying again.
    #[error("etcd does not answer: {}", join(.0))]
    Unreachable(Vec<Outage>),
    /// The answer to a write was lost. It may or may not have been applied: read before repeating.
    #[error("the answer to a write was lost, it may have been applied: {0}")]
    Uncertain(Outage),
    /// The credentials are wrong or do not allow the call.
    #[error("{0}")]
    Denied(String),
    /// The store refuses the request; repeating it does not help.
    #[error("{0}")]
    Rejected(String),
    /// The revision asked for is no longer kept.
    #[error("revision {revision} is no longer kept")]
    Compacted {
        /// The revision that was asked for.
        revision: i64,
    },
    /// Nothing was changed, because what was about to change could not be kept before.
    #[error("stopped before a change that could not be taken back: {0}")]
    NotRecorded(String),
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// Nothing was changed, because the file system has no room.
    #[error("{}: disk full", .0.display())]
    DiskFull(PathBuf),
    /// Other processes kept the file locked for longer than the deadline; nothing was changed.
    #[error("{}: locked by another process", .0.display())]
    Busy(PathBuf),
    /// The file is not a sound store of ours.
    #[error("{}: {reason}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file was written by a newer version.
    #[error(
        "{}: store format {found} is newer than {supported}, the newest this version reads",
        file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format that can be read.
        supported: i64,
    },
    /// The file cannot be opened, read or written.
    #[error("{}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the operating system or SQLite says.
        reason: String,
    },
}

/// What one endpoint did instead of answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The endpoint, as configured or discovered.
    pub endpoint: String,
    /// What happened, for example `connection refused`.
    pub reason: String,
    /// For how long the endpoint has not given an answer.
    pub lasting: Duration,
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outage { endpoint, reason, lasting } = self;
        write!(f, "{endpoint}: {reason} (for {:.1} s)", lasting.as_secs_f64())
    }
}

fn join(outages: &[Outage]) -> String {
    outages.iter().map(Outage::to_string).collect::<Vec<_>>().join("; ")
}
