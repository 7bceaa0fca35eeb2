//! What went wrong, in the shape every error of ours has.
//!
//! `error: WHAT, WHERE`, the details one a line, `why:` where it is known, `help:` with what to do.

use std::fmt;
use std::io;

use super::terminal::printable_line;

/// The exit code of a difference found or of something degraded.
pub(crate) const DIFFERENT: u8 = 1;
/// The exit code of an error.
pub(crate) const BROKEN: u8 = 2;

/// An error to print before ending.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    what: String,
    details: Vec<String>,
    why: Option<String>,
    help: Option<String>,
    undo: Option<String>,
    is_closed_pipe: bool,
}

impl Failure {
    /// What failed, and where.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    /// One of several problems, on a line of its own.
    pub(crate) fn detail(mut self, line: impl Into<String>) -> Self {
        self.details.push(line.into());
        self
    }

    /// The cause.
    pub(crate) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// What to do about it, as something that can be pasted where possible.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// How to take back the part that was done: a line of its own.
    pub(crate) fn undo(mut self, undo: &str) -> Self {
        self.undo = Some(undo.trim_end().to_owned()).filter(|undo| !undo.is_empty());
        self
    }

    /// Whether the reader of our output went away, which is no error of ours.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        self.is_closed_pipe
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let is_closed_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self { is_closed_pipe, ..Self::new("the output cannot be written").why(error.to_string()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "error: {}", self.what)?;
        for line in &self.details {
            writeln!(formatter, "  {}", printable_line(line))?;
        }
        if let Some(why) = &self.why {
            writeln!(formatter, "why: {why}")?;
        }
        if let Some(undo) = &self.undo {
            writeln!(formatter, "{undo}")?;
        }
        if let Some(help) = &self.help {
            writeln!(formatter, "help: {help}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_spelled_out_and_cut() {
        let failure =
            Failure::new("refused").detail("Tier \u{1b}[31ma\nb").detail("x".repeat(1000));
        let shown = failure.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[..2], ["error: refused", "  Tier \\u{1b}[31ma\\nb"]);
        assert_eq!(lines[2].chars().count(), 2 + 400 + 1);
        assert_eq!(lines.len(), 3);
    }
}
