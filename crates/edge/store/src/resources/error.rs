//! Why a request was not done, in our words and in Calico's.

use std::fmt;

use api::Problem;

use super::Name;

/// A stored value that cannot be used: it is named and left out, the others are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The datastore key.
    pub key: String,
    /// The object, when the key says which.
    pub name: Option<Name>,
    /// What is wrong, field by field.
    pub problems: Vec<Problem>,
    /// The stored text, shortened when it is very long.
    pub text: String,
}

impl fmt::Display for Quarantined {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(formatter, "{}: ", name.spoken())?,
            None => write!(formatter, "{}: ", self.key)?,
        }
        write_joined(formatter, &self.problems)
    }
}

/// Why a request was not done.
#[derive(Debug)]
pub enum Error {
    /// The datastore did not answer or refused.
    Store(crate::Error),
    /// There is such an object already.
    AlreadyExists(Name),
    /// There is no such object.
    NotFound(Name),
    /// The object was changed by somebody else since it was read.
    Conflict(Name),
    /// The object breaks rules.
    Invalid {
        /// The object.
        name: Name,
        /// The rules it breaks.
        problems: Vec<Problem>,
    },
    /// What is stored cannot be read.
    Unreadable(Quarantined),
    /// The request makes no sense for this object.
    Refused {
        /// The object.
        name: Name,
        /// Why, in our words.
        reason: String,
        /// The whole sentence of Calico's tools.
        calico: String,
    },
    /// A built-in object that is always there.
    BuiltIn(Name),
    /// There is no such kind.
    UnknownKind(String),
    /// A request of several steps stopped half way.
    Unfinished {
        /// The object that is still there.
        name: Name,
        /// The steps that were done, in our words.
        done: Vec<String>,
        /// What stopped it.
        cause: Box<Error>,
    },
    /// Nothing was written because other objects of the same request were refused.
    NotAttempted(Name),
    /// Address management could not do its part; why.
    Addresses(String),
}

impl From<::ipam::Error> for Error {
    fn from(error: ::ipam::Error) -> Self {
        Self::Addresses(error.to_string())
    }
}

impl From<crate::ipam::Error> for Error {
    fn from(error: crate::ipam::Error) -> Self {
        match error {
            crate::ipam::Error::Store(error) => Self::Store(error),
            error => Self::Addresses(error.to_string()),
        }
    }
}

impl Error {
    /// Whether it says that the object is there already.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::AlreadyExists(_) | Self::BuiltIn(_))
    }

    /// Whether it says that the object is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    /// Whether Calico's tools go on with an update when a create gives this.
    pub fn means_update(&self) -> bool {
        match self {
            Self::Refused { calico, .. } => calico.starts_with("operation "),
            _ => self.is_already_exists(),
        }
    }

    /// The sentence of Calico's own tools for the same fault.
    pub fn calico(&self) -> String {
        match self {
            Self::Store(error) => error.to_string(),
            Self::AlreadyExists(name) => {
                format!("resource already exists: {name} with error: <nil>")
            }
            Self::NotFound(name) => format!("resource does not exist: {name} with error: <nil>"),
            Self::Conflict(name) => format!("update conflict: {name}"),
            Self::Invalid { problems, .. } => calico_fields(problems),
            Self::Unreadable(stored) if stored.text.is_empty() => "missing etcd KV".to_owned(),
            Self::Unreadable(stored) => format!(
                "failed to parse datastore entry key={}; value={}: {}",
                stored.key,
                stored.text,
                stored.problems.first().map_or("", |problem| &problem.calico.reason)
            ),
            Self::Refused { calico, .. } => calico.clone(),
            Self::BuiltIn(Name { name, .. }) => format!(
                "resource already exists: {name} with error: {name} already exists. \
                 The profile \"{name}\" is default provided by Calico"
            ),
            Self::UnknownKind(kind) => format!("resource type '{kind}' is not supported"),
            Self::Unfinished { name, done, cause } => {
                let done = done.join(", ");
                format!("{}; {name} was not deleted, but before that: {done}", cause.calico())
            }
            Self::NotAttempted(name) => format!("{name} was not written"),
            Self::Addresses(why) => why.clone(),
        }
    }
}

/// Calico's list of faults of one object.
pub fn calico_fields(problems: &[Problem]) -> String {
    let field = |problem: &Problem| {
        let told = &problem.calico;
        let mut text = told.field.clone();
        if let Some(value) = &told.value {
            text.push_str(&format!(" = '{value}'"));
        }
        if !told.reason.is_empty() {
            text.push_str(&format!(" ({})", told.reason));
        }
        text
    };
    match problems {
        [] => "unknown validation error".to_owned(),
        [only] => format!("error with field {}", field(only)),
        several => {
            several.iter().fold("error with the following fields:\n".to_owned(), |text, problem| {
                text + &format!("-  {}\n", field(problem))
            })
        }
    }
}

fn write_joined(formatter: &mut fmt::Formatter<'_>, problems: &[Problem]) -> fmt::Result {
    for (index, problem) in problems.iter().enumerate() {
        if index > 0 {
            formatter.write_str("; ")?;
        }
        write!(formatter, "{problem}")?;
    }
    Ok(())
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(formatter, "{error}"),
            Self::AlreadyExists(name) => write!(formatter, "{} exists already", name.spoken()),
            Self::NotFound(name) => write!(formatter, "{} does not exist", name.spoken()),
            Self::Conflict(name) => {
                let name = name.spoken();
                write!(formatter, "{name} was changed by somebody else; read it again and retry")
            }
            Self::Invalid { name, problems } => {
                write!(formatter, "{}: ", name.spoken())?;
                write_joined(formatter, problems)
            }
            Self::Unreadable(stored) => write!(formatter, "what is stored is not usable: {stored}"),
            Self::Refused { name, reason, .. } => write!(formatter, "{}: {reason}", name.spoken()),
            Self::BuiltIn(name) => {
                write!(formatter, "{} is built in and cannot be made", name.spoken())
            }
            Self::UnknownKind(kind) => write!(formatter, "there is no kind \"{kind}\""),
            Self::Unfinished { name, done, cause } => {
                let (name, done) = (name.spoken(), done.join(", "));
                write!(formatter, "{name} is still there: {cause}; done before that: {done}")
            }
            Self::NotAttempted(name) => {
                let name = name.spoken();
                write!(formatter, "{name} was not written, because other objects were refused")
            }
            Self::Addresses(why) => write!(formatter, "address management: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Self {
        Self::Store(error)
    }
}
