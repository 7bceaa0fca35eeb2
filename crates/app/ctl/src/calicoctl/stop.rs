//! Why a command ends before its end, and the form in which calicoctl says so.

use std::io;

/// Why a command ended.
#[derive(Debug)]
pub(crate) enum Stop {
    /// An error; printed after `Error: `.
    Error(String),
    /// A sentence that calicoctl prints to standard output.
    Said(String),
    /// The reader of our output is gone, or the output cannot be written.
    Output(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Self::Error(text)
    }
}

impl From<crate::output::Error> for Stop {
    fn from(error: crate::output::Error) -> Self {
        match error {
            crate::output::Error::Write(error) => Self::Output(error),
            crate::output::Error::Format(text) => Self::Error(text),
        }
    }
}

/// Shortens the words of Calico's reader the way its command line does.
pub(crate) fn shortened(text: &str) -> String {
    const UNKNOWN: &str = "unknown field \"";
    if let Some(at) = text.find(UNKNOWN) {
        let name = &text[at + UNKNOWN.len()..];
        if let Some(end) = name.find('"').filter(|&end| end > 0) {
            let name = &name[..end];
            return format!(
                "field in document is not recognized or is in the wrong location: {name}"
            );
        }
    }
    let prefix = "error unmarshaling JSON: while decoding JSON: json: ";
    text.strip_prefix(prefix).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_field_is_all_that_is_said() {
        let long = "hit error: creating resource: json: unknown field \"nope\"";
        let short = "field in document is not recognized or is in the wrong location: nope";
        assert_eq!(shortened(long), short);
        assert_eq!(shortened("hit error: other"), "hit error: other");
    }
}
