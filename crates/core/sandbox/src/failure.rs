//! An error as the CNI protocol reports it.

use serde_json::{Map, Value};

/// What kind of thing went wrong, as the protocol numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The configuration asks for a version that we do not speak.
    IncompatibleVersion,
    /// A field of the configuration cannot be served.
    UnsupportedField,
    /// The container is not known.
    UnknownContainer,
    /// A variable of the environment is missing or bad.
    InvalidEnvironment,
    /// Reading a file or a socket failed.
    Io,
    /// What was handed in cannot be decoded.
    Decoding,
    /// The configuration is not valid.
    InvalidConfiguration,
    /// Something passing: the runtime shall try again later.
    TryAgainLater,
    /// STATUS: the plugin cannot serve an ADD now.
    NotAvailable,
    /// STATUS: the same, and running containers may have no network either.
    LimitedConnectivity,
    /// The datastore cannot be used (`-t`).
    Datastore,
    /// Everything else, as Calico numbers it.
    Plugin,
}

impl Code {
    /// The number in the protocol.
    pub fn number(self) -> u32 {
        match self {
            Self::IncompatibleVersion => 1,
            Self::UnsupportedField => 2,
            Self::UnknownContainer => 3,
            Self::InvalidEnvironment => 4,
            Self::Io => 5,
            Self::Decoding => 6,
            Self::InvalidConfiguration => 7,
            Self::TryAgainLater => 11,
            Self::NotAvailable => 50,
            Self::LimitedConnectivity => 51,
            Self::Datastore => 100,
            Self::Plugin => 999,
        }
    }
}

/// An error as the runtime gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind it is.
    pub code: Code,
    /// What happened, in one line.
    pub message: String,
    /// More about it: the sandbox, the step, what to do.
    pub details: String,
}

impl Failure {
    /// A failure with a message only.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// A failure of the plugin itself.
    pub fn plugin(message: impl Into<String>) -> Self {
        Self::new(Code::Plugin, message)
    }

    /// The same failure with more about it.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// As it is printed. Calico prints no version with it.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("code".into(), self.code.number().into());
        object.insert("msg".into(), self.message.clone().into());
        if !self.details.is_empty() {
            object.insert("details".into(), self.details.clone().into());
        }
        Value::Object(object)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        if !self.details.is_empty() {
            write!(f, "; {}", self.details)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
