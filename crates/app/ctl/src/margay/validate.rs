//! `margay validate -f`: every problem of every document, without a datastore.

use std::io::{self, Write};

use super::arguments::Files;
use super::failure::Failure;
use super::read_documents::{Input, field_help};
use super::terminal::{Mark, Terminal};

/// Checks documents; true when all are good.
pub(crate) fn run(terminal: Terminal, files: &Files) -> Result<bool, Failure> {
    let input = Input::read(files)?;
    let mut lines = Vec::new();
    let mut n_bad = 0;
    let mut help = None;
    for given in &input.objects {
        let problems = model::validate::validate(given.name.kind, &given.object);
        if !problems.is_empty() {
            n_bad += 1;
            help = help.or_else(|| field_help(given.name.kind, &problems));
            lines.extend(input.describe(given, &problems));
        }
    }
    let n = input.objects.len();
    if n_bad == 0 {
        let mark = terminal.mark(Mark::Fine);
        let what = if n == 1 { "document is" } else { "documents are" };
        writeln!(io::stdout().lock(), "{mark} {n} {what} valid")?;
        return Ok(true);
    }
    let what =
        format!("{n_bad} of {n} documents {} not valid", if n_bad == 1 { "is" } else { "are" });
    Err(lines.into_iter().fold(Failure::new(what), Failure::detail).help_if(help))
}
