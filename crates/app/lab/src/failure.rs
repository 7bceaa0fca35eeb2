//! What went wrong, in the shape every error of ours has: `error:`, details, `why:`, `help:`.

use std::fmt;
use std::io;

/// An error to print before ending.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failure {
    what: String,
    details: Vec<String>,
    why: Option<String>,
    help: Option<String>,
}

impl Failure {
    /// What failed, and where.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    /// A line below the first.
    pub(crate) fn detail(mut self, line: impl Into<String>) -> Self {
        self.details.push(line.into());
        self
    }

    /// The cause.
    pub(crate) fn why(mut self, why: impl fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// What to do about it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The first line without what comes before it, for a list of findings.
    pub(crate) fn what(&self) -> String {
        match &self.why {
            Some(why) => format!("{}: {why}", self.what),
            None => self.what.clone(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "error: {}", self.what)?;
        for line in &self.details {
            let spelled = |c: char| c.is_control() && c != '\t';
            writeln!(formatter, "  {}", line.replace(spelled, "?"))?;
        }
        if let Some(why) = &self.why {
            writeln!(formatter, "why: {why}")?;
        }
        if let Some(help) = &self.help {
            writeln!(formatter, "help: {help}")?;
        }
        Ok(())
    }
}

impl From<kernel::Error> for Failure {
    fn from(error: kernel::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// An error of our output; errors of files name the file instead.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new("the output cannot be written").why(text::plain_reason(&error))
    }
}
