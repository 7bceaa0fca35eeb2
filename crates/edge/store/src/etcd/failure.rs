//! What a call that did not succeed means.

use std::error::Error as _;

use tonic::{Code, ConnectError, Status};

use crate::Error;

/// A call that did not succeed on one endpoint.
#[derive(Debug)]
pub(super) enum Failure {
    /// The endpoint surely did not carry out the request; another one may.
    NotServed(String),
    /// The endpoint is there, but cannot serve just now; the request was not carried out.
    NotNow(String),
    /// The request may have been carried out.
    Lost(String),
    /// The token is not, or no longer, valid.
    Token(String),
    /// The answer is larger than a message may be.
    TooLarge,
    /// The cluster answered, with an error.
    Answered(Error),
}

impl Failure {
    pub(super) fn no_answer(after: std::time::Duration) -> Failure {
        Failure::Lost(format!("no answer within {:.1} s", after.as_secs_f64()))
    }

    /// What to tell people.
    pub(super) fn reason(&self) -> String {
        match self {
            Failure::NotServed(reason)
            | Failure::NotNow(reason)
            | Failure::Lost(reason)
            | Failure::Token(reason) => reason.clone(),
            Failure::TooLarge => "an entry is too large for one message".into(),
            Failure::Answered(error) => error.to_string(),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        if status.source().is_some() {
            return from_transport(&status);
        }
        let message = status.message().trim_start_matches("etcdserver: ").to_string();
        let says = |text: &str| message.contains(text);
        match status.code() {
            Code::OutOfRange if says("decoded message length") => Failure::TooLarge,
            Code::OutOfRange if says("has been compacted") => {
                Failure::Answered(Error::Compacted { revision: 0 })
            }
            _ if says("invalid auth token") || says("revision of auth store is old") => {
                Failure::Token(message)
            }
            Code::PermissionDenied | Code::Unauthenticated => {
                Failure::Answered(Error::Denied(format!("etcd: {message}")))
            }
            Code::InvalidArgument
                if says("authentication failed") || says("user name is empty") =>
            {
                Failure::Answered(Error::Denied(format!("etcd: {message}")))
            }
            Code::Unavailable if says("no leader") => Failure::NotNow(message),
            Code::ResourceExhausted if says("too many requests") => Failure::NotNow(message),
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Internal
            | Code::Unknown
            | Code::Aborted => Failure::Lost(message),
            _ => Failure::Answered(Error::Rejected(format!("etcd: {message}"))),
        }
    }
}

impl From<tonic::transport::Error> for Failure {
    fn from(error: tonic::transport::Error) -> Failure {
        Failure::NotServed(root_cause(&error))
    }
}

/// A failure on this side of the wire or on it.
fn from_transport(status: &Status) -> Failure {
    let mut cause = status.source();
    let mut is_connecting = false;
    while let Some(error) = cause {
        is_connecting |= error.is::<ConnectError>();
        cause = error.source();
    }
    let reason = root_cause(status);
    // In TLS 1.3 a server judges the client's certificate after the client believes to be
    // connected.
    if is_connecting || reason.starts_with(REFUSED) {
        Failure::NotServed(reason)
    } else {
        Failure::Lost(reason)
    }
}

/// How it is told that a server ended the handshake.
const REFUSED: &str = "it refuses our TLS connection";

/// The innermost message that says something: the outer ones are "transport error" and its kind.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut texts = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    let all = texts.join(": ");
    let innermost = texts.pop().unwrap_or_default();
    if let Some((_, why)) = all.rsplit_once("invalid peer certificate: ") {
        return format!("its certificate is not trusted: {why}");
    }
    if let Some((_, alert)) = all.rsplit_once("received fatal alert: ") {
        // Which of its alerts a server sends differs between versions of Go.
        let is_about_ours = ["Certificate", "certificate", "UnknownCA", "AccessDenied"];
        return match is_about_ours.iter().any(|word| alert.contains(word)) {
            true => format!("{REFUSED}: it does not accept our certificate ({alert})"),
            false => format!("{REFUSED}: {alert}"),
        };
    }
    if all.contains("Connection refused") {
        return "connection refused".into();
    }
    if all.contains("deadline has elapsed") || all.contains("timed out") {
        return format!("no answer ({innermost})");
    }
    innermost
}
