//! `margay reconcile`: what the datastore, the kernel, the journal and the containers of this node
//! do not agree about, and its settling.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use clap::Args;
use host::protocol::{Inquiry, Reconcile};
use host::report::{Matter, MatterState, Reconciliation};

use super::agent::Agent;
use super::arguments::Format;
use super::failure::Failure;
use super::structured;
use super::terminal::{Mark, Terminal, printable_line};

/// How long after the first look the second one comes, by which things go.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// So many matters are settled before it is told how far it has come.
const AT_ONCE: usize = 50;
/// How long the agent may take for them.
const PATIENCE: Duration = Duration::from_secs(60);
/// So many lines are shown; `-o json` has all.
const LINES_MAX: usize = 200;

#[derive(Args, Debug)]
pub(crate) struct ReconcileArguments {
    /// Show what would be done, and change nothing; exit code 1 if there is something to do
    #[arg(long)]
    pub(crate) plan: bool,
    #[command(flatten)]
    pub(crate) agent: Agent,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The command; false if something is left.
pub(crate) fn run(terminal: Terminal, arguments: &ReconcileArguments) -> Result<bool, Failure> {
    if arguments.agent.does_without().is_some() {
        let what = "this host has no agent, and nobody else may settle what is found";
        return Err(Failure::new(what).help("margay setup      # with an agent"));
    }
    let looked = ask(&arguments.agent, Vec::new())?;
    if arguments.plan || looked.matters.is_empty() {
        return show(terminal, arguments, &looked);
    }
    let is_quiet = arguments.format.output.is_some();
    let open = looked.matters.iter().filter(|it| it.state == MatterState::Open);
    let names: Vec<String> = open.map(|matter| matter.name.clone()).collect();
    let mut settled: Vec<Matter> = Vec::new();
    if !names.is_empty() {
        std::thread::sleep(BETWEEN_LOOKS);
    }
    let mut findings = looked.findings;
    for some in names.chunks(AT_ONCE) {
        let done = ask(&arguments.agent, some.to_vec());
        let done = done.map_err(|failure| match settled.len() {
            0 => failure,
            n => failure.detail(format!("{n} of {} were settled before", names.len())),
        })?;
        findings = done.findings;
        // What is not found any more has settled itself.
        for name in some {
            let found = done.matters.iter().find(|it| it.name == *name).cloned();
            let gone = || looked.matters.iter().find(|it| it.name == *name).map(vanished);
            settled.extend(found.or_else(gone));
        }
        if !is_quiet {
            progress(settled.len(), names.len())?;
        }
    }
    let left = looked.matters.iter().filter(|it| it.state == MatterState::Left).cloned();
    settled.extend(left);
    show(terminal, arguments, &Reconciliation { node: looked.node, matters: settled, findings })
}

fn ask(agent: &Agent, settle: Vec<String>) -> Result<Reconciliation, Failure> {
    let is_look = settle.is_empty();
    let inquiry = Inquiry::Reconcile(Reconcile { settle });
    Ok(match is_look {
        true => agent.ask(&inquiry)?,
        false => agent.ask_for(&inquiry, PATIENCE)?,
    })
}

fn vanished(matter: &Matter) -> Matter {
    let action = "settled meanwhile".to_owned();
    Matter { state: MatterState::Gone, action, ..matter.clone() }
}

fn is_settled(state: MatterState) -> bool {
    matches!(state, MatterState::Done | MatterState::Gone)
}

fn progress(n_done: usize, n_all: usize) -> io::Result<()> {
    if n_all <= AT_ONCE {
        return Ok(());
    }
    let mut stream = io::stderr().lock();
    match stream.is_terminal() && n_done < n_all {
        true => write!(stream, "\r{n_done} of {n_all} settled")?,
        false => writeln!(stream, "{n_done} of {n_all} settled")?,
    }
    stream.flush()
}

fn show(
    terminal: Terminal,
    arguments: &ReconcileArguments,
    answer: &Reconciliation,
) -> Result<bool, Failure> {
    match arguments.format.output {
        Some(format) => terminal.page(&structured(format, &value(answer)?))?,
        None => terminal.page(&told(terminal, answer))?,
    }
    let is_settled = answer.matters.iter().all(|it| is_settled(it.state));
    Ok(is_settled && answer.findings == 0)
}

fn value(answer: &Reconciliation) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(answer).map_err(|error| Failure::new(error.to_string()))
}

/// Every matter in two lines: what is wrong, and why one can tell and what is done.
fn told(terminal: Terminal, answer: &Reconciliation) -> String {
    let matters = &answer.matters;
    let more = match answer.findings {
        0 => String::new(),
        n => format!("see also: margay status      # {}\n", text::words::count(n, "finding")),
    };
    if matters.is_empty() {
        let mark = terminal.mark(match answer.findings {
            0 => Mark::Fine,
            _ => Mark::Degraded,
        });
        return format!("{mark} datastore, kernel, journal and containers agree\n{more}");
    }
    let mut text = String::new();
    for matter in matters.iter().take(LINES_MAX) {
        let mark = terminal.mark(match matter.state {
            MatterState::Done | MatterState::Gone => Mark::Fine,
            MatterState::Open | MatterState::Left => Mark::Degraded,
            MatterState::Failed => Mark::Broken,
        });
        let Matter { problem, evidence, action, fix, .. } = matter;
        let _ = writeln!(text, "{mark} {}", printable_line(problem));
        let verb = match matter.state {
            MatterState::Open => "to do: ",
            _ => "",
        };
        let _ =
            writeln!(text, "    {verb}{} ({})", printable_line(action), printable_line(evidence));
        if !fix.is_empty() {
            let _ = writeln!(text, "    fix: {}", printable_line(fix));
        }
    }
    if matters.len() > LINES_MAX {
        let _ = writeln!(text, "… and {} more (all: -o json)", matters.len() - LINES_MAX);
    }
    text + &summary(matters) + &more
}

fn summary(matters: &[Matter]) -> String {
    let count = |is: fn(MatterState) -> bool| matters.iter().filter(|it| is(it.state)).count();
    let parts = [
        (count(|it| it == MatterState::Open), "to do"),
        (count(is_settled), "settled"),
        (count(|it| it == MatterState::Failed), "failed"),
        (count(|it| it == MatterState::Left), "left to a person"),
    ];
    let parts = parts.iter().filter(|(n, _)| *n > 0);
    let parts: Vec<String> = parts.map(|(n, what)| format!("{n} {what}")).collect();
    let mut text = format!("{}\n", parts.join(", "));
    if matters.iter().any(|it| it.state == MatterState::Open) {
        text += "fix: margay reconcile\n";
    }
    text
}
