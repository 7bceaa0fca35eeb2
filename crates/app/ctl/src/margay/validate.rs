//! `margay validate -f`: every problem of every document, without a datastore.

use std::io::{self, Write};

use api::{Kind, Problem};
use model::prepare::{Context, Neighbours, Refusal, prepare_create};

use super::arguments::Files;
use super::failure::Failure;
use super::read_documents::{Given, Input, field_help, is_between};
use super::terminal::{Mark, Terminal};

/// Checks documents; true when all are good.
pub(crate) fn run(terminal: Terminal, files: &Files) -> Result<bool, Failure> {
    let input = Input::read(files)?;
    let mut lines = Vec::new();
    let mut n_bad = 0;
    let mut help = None;
    for (index, given) in input.objects.iter().enumerate() {
        let mut problems = model::validate::validate(given.name.kind, &given.object);
        problems.extend(contradictions(given, &input.objects[..index]));
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

/// What the documents before this one have against it. The last of several documents about one
/// object counts, so an earlier one of the same name says nothing.
fn contradictions(given: &Given, earlier: &[Given]) -> Vec<Problem> {
    if given.name.kind != Kind::IpPool {
        return Vec::new();
    }
    let others = earlier.iter().filter(|other| other.name.kind == Kind::IpPool);
    let others = others.filter(|other| other.name != given.name);
    let neighbours = Neighbours {
        ip_pools: others.map(|other| other.object.clone()).collect(),
        ..Neighbours::default()
    };
    let mut object = given.object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.shift_remove("resourceVersion");
    }
    let context =
        Context { uid: String::new(), now: String::new(), default_namespace: String::new() };
    match prepare_create(Kind::IpPool, object, &context, &neighbours) {
        Err(Refusal::Invalid(problems)) => problems.into_iter().filter(is_between).collect(),
        _ => Vec::new(),
    }
}
