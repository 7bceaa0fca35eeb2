//! What can go wrong, one variant for each decision a caller can make.

use std::fmt;
use std::io;
use std::time::Duration;

pub use rustix::io::Errno;

use crate::wire::Malformed;

/// A call that did not succeed. The text names what was attempted on which object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel said no; nothing was changed by this request.
    #[error("{attempt}: {refusal}")]
    Refused {
        /// What was attempted, on which object.
        attempt: String,
        /// The kernel's answer.
        refusal: Refusal,
    },
    /// The kernel refused a transaction; nothing of it was applied.
    #[error("{}", join(.0))]
    Rejected(Vec<Failure>),
    /// Somebody changed the ruleset since it was read; nothing was applied.
    #[error("the ruleset is no longer of generation {generation}, it has to be read again")]
    Outdated {
        /// The generation that was asked for.
        generation: u32,
    },
    /// The kernel dropped answers because they came faster than they were read. What was written
    /// may or may not have been applied: read again.
    #[error("{attempt}: the kernel dropped messages, the state has to be read again")]
    Lost {
        /// What was attempted.
        attempt: String,
    },
    /// A list changed each time while it was being read.
    #[error("{attempt}: changed {attempts} times while it was being read")]
    Interrupted {
        /// What was attempted.
        attempt: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// No answer came in time. What was written may or may not have been applied.
    #[error("{attempt}: no answer from the kernel within {waited:?}")]
    TimedOut {
        /// What was attempted.
        attempt: String,
        /// How long the answer was waited for.
        waited: Duration,
    },
    /// An answer cannot be read.
    #[error("{attempt}: {source}")]
    Malformed {
        /// What was attempted.
        attempt: String,
        /// What is wrong with the answer.
        source: Malformed,
    },
    /// A request does not fit into a message.
    #[error("{attempt}: does not fit into one netlink message")]
    TooLarge {
        /// What was attempted.
        attempt: String,
    },
    /// A value that the kernel would take for another one, or not at all.
    #[error("{0}")]
    Invalid(String),
    /// The file is not a network namespace.
    #[error("{0} is not a network namespace")]
    NotANetns(String),
    /// The namespace has no IPv6: it was compiled out or switched off at boot.
    #[error("{attempt}: there is no IPv6 in this kernel")]
    NoIpv6 {
        /// What was attempted.
        attempt: String,
    },
    /// A system call other than a netlink request.
    #[error("{attempt}: {source}")]
    System {
        /// What was attempted.
        attempt: String,
        /// The reason given by the system.
        source: io::Error,
    },
}

/// The kernel's answer to a request that it did not carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number.
    pub errno: Errno,
    /// The kernel's own words (extended acknowledgement), where it gives any.
    pub message: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "{message} ({})", self.errno),
            None => self.errno.fmt(f),
        }
    }
}

/// A part of a transaction that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was attempted, on which object.
    pub attempt: String,
    /// The kernel's answer.
    pub refusal: Refusal,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.attempt, self.refusal)
    }
}

fn join(failures: &[Failure]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Try the same again later.
    Retry,
    /// Our picture of the kernel is wrong: read before trying again.
    Resync,
    /// This kernel cannot do it, whatever the state.
    Unsupported,
    /// Trying the same again gives the same answer.
    Fatal,
}

impl Error {
    pub(crate) fn system(attempt: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { attempt: attempt.into(), source: source.into() }
    }

    /// The error number, where the system gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal.errno),
            Self::Rejected(failures) => failures.first().map(|failure| failure.refusal.errno),
            Self::System { source, .. } => source.raw_os_error().map(Errno::from_raw_os_error),
            _ => None,
        }
    }

    /// Whether the object is not there (link, route, address, neighbour, table, namespace, file).
    pub fn is_not_found(&self) -> bool {
        const ABSENT: [Errno; 5] =
            [Errno::NOENT, Errno::NODEV, Errno::SRCH, Errno::NXIO, Errno::ADDRNOTAVAIL];
        self.errno().is_some_and(|errno| ABSENT.contains(&errno))
    }

    /// Whether the object is there already.
    pub fn already_exists(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }

    /// What to do about it.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Lost { .. } | Self::Outdated { .. } => Remedy::Resync,
            Self::Rejected(failures) => {
                failures.first().map_or(Remedy::Fatal, |one| remedy_of(one.refusal.errno))
            }
            Self::Interrupted { .. } | Self::TimedOut { .. } => Remedy::Retry,
            Self::Refused { refusal, .. } => remedy_of(refusal.errno),
            Self::System { source, .. } => source
                .raw_os_error()
                .map_or(Remedy::Retry, |raw| remedy_of(Errno::from_raw_os_error(raw))),
            Self::NoIpv6 { .. } => Remedy::Unsupported,
            Self::Malformed { .. }
            | Self::TooLarge { .. }
            | Self::Invalid(_)
            | Self::NotANetns(_) => Remedy::Fatal,
        }
    }
}

fn remedy_of(errno: Errno) -> Remedy {
    match errno {
        Errno::NOENT
        | Errno::EXIST
        | Errno::NODEV
        | Errno::SRCH
        | Errno::NXIO
        | Errno::ADDRNOTAVAIL
        | Errno::NETUNREACH
        | Errno::NETDOWN
        | Errno::RESTART
        | Errno::NOBUFS => Remedy::Resync,
        Errno::OPNOTSUPP | Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT => Remedy::Unsupported,
        Errno::AGAIN | Errno::BUSY | Errno::INTR | Errno::NOMEM | Errno::TIMEDOUT => Remedy::Retry,
        _ => Remedy::Fatal,
    }
}

/// The result of a call into this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
