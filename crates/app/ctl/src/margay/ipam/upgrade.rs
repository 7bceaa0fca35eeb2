//! `margay ipam upgrade` and `calico-ipam -upgrade`: a node's addresses move from the plugin
//! host-local to Calico's records.
//!
//! Nothing on disk means nothing to do, and nobody is asked. Otherwise see `sandbox::upgrade`.

mod course;
mod progress;
mod surroundings;

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::Parser;
use sandbox::upgrade::{Claim, Problem};
use serde_json::{Value, json};
use text::words::count;

use super::super::arguments::{Place, UpgradeArguments};
use super::super::failure::{DIFFERENT, Failure};
use super::super::get::complain;
use super::super::structured;
use super::super::terminal::{Mark, Terminal, printable_line};
use course::{Course, Outcome};

/// So many lines of a plan are shown; `-o json` has all.
const LINES_MAX: usize = 200;

/// The words behind `calico-ipam`.
#[derive(Debug, Parser)]
#[command(name = "calico-ipam", about = "Moves this node's addresses here from host-local")]
struct Named {
    /// What makes the address manager do this
    #[arg(long)]
    upgrade: bool,
    #[command(flatten)]
    arguments: UpgradeArguments,
}

/// Reads the words behind `calico-ipam`. Calico's programs take flags with one dash.
pub(crate) fn arguments(
    words: impl Iterator<Item = OsString>,
) -> Result<UpgradeArguments, clap::Error> {
    let own = OsString::from("calico-ipam");
    let words = words.map(|word| match word.to_str() {
        Some("-upgrade" | "-upgrade=true" | "--upgrade=true") => OsString::from("--upgrade"),
        _ => word,
    });
    Named::try_parse_from(std::iter::once(own).chain(words)).map(|named| named.arguments)
}

/// The command.
pub(crate) fn run(
    terminal: Terminal,
    place: &Place,
    arguments: &UpgradeArguments,
) -> Result<u8, Failure> {
    told(terminal, arguments, &Course::new(arguments, place, true)?.run()?)
}

/// The same by Calico's name.
pub(crate) fn run_named(
    terminal: Terminal,
    place: &Place,
    arguments: &UpgradeArguments,
) -> Result<u8, Failure> {
    told(terminal, arguments, &Course::new(arguments, place, false)?.run()?)
}

fn told(terminal: Terminal, arguments: &UpgradeArguments, it: &Outcome) -> Result<u8, Failure> {
    for problem in &it.problems {
        let Problem { file, what, fix } = problem;
        complain(&printable_line(&format!("{file}: {what}; fix: {fix}")))?;
    }
    let text = match arguments.format.output {
        Some(format) => structured(format, &answer(arguments, it)),
        None if arguments.plan => planned(arguments, it),
        None => summary(terminal, arguments, it),
    };
    terminal.page(&text)?;
    Ok(if it.is_done { 0 } else { DIFFERENT })
}

fn folder(arguments: &UpgradeArguments) -> String {
    arguments.networks_dir.join(&arguments.network).display().to_string()
}

fn summary(terminal: Terminal, arguments: &UpgradeArguments, it: &Outcome) -> String {
    let fine = terminal.mark(Mark::Fine);
    if !it.was_there {
        return format!("{fine} nothing to move: there is no {}\n", folder(arguments));
    }
    if it.node.is_empty() {
        return format!("{fine} nothing to move: {} was empty\n", folder(arguments));
    }
    let all = count(it.claimed.len() + it.held.len(), "address");
    let mut text = match it.is_done {
        true => format!("{fine} {all} moved to calico-ipam, node {}", it.node),
        false => {
            let mark = terminal.mark(Mark::Degraded);
            format!("{mark} {all} held by calico-ipam, node {}; the files stay", it.node)
        }
    };
    if !it.held.is_empty() {
        let _ = write!(text, "; {} held before", it.held.len());
    }
    if !it.let_go.is_empty() {
        let _ = write!(text, "; {} let go since", it.let_go.len());
    }
    text += "\n";
    text + &notes(it)
}

/// What is to be done by others.
fn notes(it: &Outcome) -> String {
    let mut text = String::new();
    if !it.forsaken.is_empty() {
        let n = count(it.forsaken.len(), "address");
        let _ = writeln!(text, "note: host-local let {n} go meanwhile: margay ipam check");
    }
    if !it.problems.is_empty() {
        let n = count(it.problems.len(), "file");
        let _ = writeln!(text, "next: put {n} right, as said above, and run it again");
    }
    if let Some(path) = &it.configuration {
        let path = path.display();
        let _ =
            writeln!(text, "next: {path} names host-local: make it calico-ipam, run this again");
    }
    text
}

fn planned(arguments: &UpgradeArguments, it: &Outcome) -> String {
    if !it.was_there {
        return format!("nothing to move: there is no {}\n", folder(arguments));
    }
    let n_files = it.claimed.len() + it.held.len() + it.let_go.len();
    let mut text = format!("to do on node {}, {}:\n", it.node, count(n_files, "address"));
    if it.node.is_empty() {
        text = "to do:\n".to_owned();
    }
    let verbs = [("claim", &it.claimed), ("held already", &it.held), ("let go since", &it.let_go)];
    let all = verbs.iter().flat_map(|(verb, claims)| claims.iter().map(move |it| (verb, it)));
    for (verb, claim) in all.take(LINES_MAX) {
        let line = format!("{verb}: {} for {}{}", claim.address, claim.handle, pod(claim));
        let _ = writeln!(text, "  {}", printable_line(&line));
    }
    if n_files > LINES_MAX {
        let _ = writeln!(text, "  … and {} more (all: -o json)", n_files - LINES_MAX);
    }
    if it.problems.is_empty() && it.configuration.is_none() {
        let _ = writeln!(text, "  remove {}", folder(arguments));
    }
    text + &notes(it) + "fix: margay ipam upgrade\n"
}

fn pod(claim: &Claim) -> String {
    match (claim.attributes.get("namespace"), claim.attributes.get("pod")) {
        (Some(namespace), Some(pod)) => format!(" ({namespace}/{pod})"),
        _ => String::new(),
    }
}

fn answer(arguments: &UpgradeArguments, it: &Outcome) -> Value {
    let claims = |claims: &[Claim]| -> Value {
        let one = |claim: &Claim| {
            json!({
                "address": claim.address, "handle": claim.handle,
                "attributes": claim.attributes, "file": claim.file,
            })
        };
        claims.iter().map(one).collect()
    };
    let problem = |it: &Problem| json!({"file": it.file, "problem": it.what, "fix": it.fix});
    json!({
        "folder": folder(arguments),
        "node": it.node,
        "done": it.is_done,
        "claimed": claims(&it.claimed),
        "heldBefore": claims(&it.held),
        "letGo": claims(&it.let_go),
        "problems": it.problems.iter().map(problem).collect::<Vec<_>>(),
        "heldByNobody": it.forsaken,
        "configuration": it.configuration,
    })
}
