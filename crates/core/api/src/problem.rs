//! What is wrong with a value, where, and how Calico's own tools name the same fault.

use std::fmt;

/// At which step of reading an object a fault was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The value has the wrong type or form for its field.
    Decode,
    /// There is no such field.
    UnknownField,
    /// The value has the right type but breaks a rule.
    Validate,
}

/// The words in which Calico's validator reports a fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CalicoError {
    /// The field, in Calico's naming (`Metadata.Name`, `NotNets[0]`, `spec.ingress[0].action`).
    pub field: String,
    /// The offending value, where Calico prints one.
    pub value: Option<String>,
    /// Calico's sentence.
    pub reason: String,
}

/// One fault of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The JSON path of the field (`spec.expectedIPs[0]`); empty for the object as a whole.
    pub path: String,
    /// What is wrong and what would be right, in our words (`"" is not an IP address`).
    pub message: String,
    /// At which step it was found.
    pub stage: Stage,
    /// How Calico's tools put it.
    pub calico: CalicoError,
}

impl Problem {
    /// A fault found by a validation rule.
    pub fn invalid(
        path: impl Into<String>,
        message: impl Into<String>,
        calico: CalicoError,
    ) -> Self {
        Self { path: path.into(), message: message.into(), stage: Stage::Validate, calico }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => formatter.write_str(&self.message),
            path => write!(formatter, "{path}: {}", self.message),
        }
    }
}
