//! `margay remove`: takes away everything on this host that carries our mark.
//!
//! What is found is the plan; after it was done, the same look must find nothing. The receipt of
//! the setup goes last, so that a removal that was interrupted can be repeated.

mod kernel_state;
mod leftovers;
mod sandboxes;
mod step;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::arguments::Place;
use super::failure::Failure;
use super::setup::Host;
use super::setup::change::columns;
use super::setup::layout::{Layout, Root};
use super::structured;
use super::terminal::{Mark, Terminal};
use super::write::ask;
use sandboxes::Sandboxes;
use step::Step;

#[derive(Args, Debug)]
pub(crate) struct RemoveArguments {
    /// Show what would be removed, and change nothing; exit code 1 if there is anything
    #[arg(long)]
    pub(crate) plan: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Remove the embedded store and its history, too
    #[arg(long)]
    pub(crate) purge: bool,
    /// Although containers run; they lose their network
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) host: Host,
}

/// What is there of ours.
struct Found {
    sandboxes: Sandboxes,
    steps: Vec<Step>,
    /// What stays, and why.
    kept: Vec<(String, String)>,
}

/// The command.
pub(crate) fn run(
    terminal: Terminal,
    place: &Place,
    arguments: &RemoveArguments,
) -> Result<bool, Failure> {
    let root = Root::at(&arguments.host.root);
    if root.is_host() && !rustix::process::geteuid().is_root() {
        return Err(Failure::new("what is ours in the kernel only root may see, or remove")
            .help("sudo margay remove --plan"));
    }
    let usual = || Layout::usual(&arguments.host.state_dir, &arguments.host.run_dir);
    let layout = Layout::read(&root)?.unwrap_or_else(usual);
    let found = look(&root, &layout, place, arguments.purge)?;
    if arguments.plan || found.steps.is_empty() {
        show(terminal, arguments, &found, &[])?;
        return Ok(found.steps.is_empty());
    }
    refuse(arguments, &root, &layout, &found)?;
    if !arguments.yes {
        ask(&found.steps.iter().map(Step::spoken).collect::<Vec<_>>())?;
    }
    let mut failures = perform(&found.steps);
    // Disconnecting containers wrote into folders that were looked at before.
    failures.extend(perform(&look(&root, &layout, place, arguments.purge)?.steps));
    let left = look(&root, &layout, place, arguments.purge)?;
    // What failed at first may have gone later; what nobody can look for stays failed.
    failures.retain(|name, _| {
        let is_it = |step: &&Step| step.spoken() == *name;
        left.steps.iter().any(|step| is_it(&step))
            || !found.steps.iter().any(|it| it.is_seen() && is_it(&it))
    });
    for step in &left.steps {
        failures.entry(step.spoken()).or_insert_with(|| "it is still there".to_owned());
    }
    let problems: Vec<String> =
        failures.into_iter().map(|(name, why)| format!("{name}: {why}")).collect();
    show(terminal, arguments, &found, &problems)?;
    Ok(problems.is_empty())
}

/// Does the steps; what cannot be removed, and why, must not keep the rest here.
fn perform(steps: &[Step]) -> BTreeMap<String, String> {
    let failure = |step: &Step| Some((step.spoken(), step.perform().err()?));
    steps.iter().filter_map(failure).collect()
}

/// Everything of ours, in the order in which it goes: first what lets others make more of it, then
/// what runs, then what is in the kernel, then files, and the receipt last.
fn look(root: &Root, layout: &Layout, place: &Place, purges: bool) -> Result<Found, Failure> {
    let sandboxes = Sandboxes::look(root, layout)?;
    let leftovers = leftovers::look(root, layout, purges)?;
    let mut steps = leftovers.first;
    steps.extend(sandboxes.steps(root, layout, place));
    if root.is_host() {
        steps.extend(kernel_state::look()?);
    }
    steps.extend(leftovers.last);
    Ok(Found { sandboxes, steps, kept: leftovers.kept })
}

fn refuse(
    arguments: &RemoveArguments,
    root: &Root,
    layout: &Layout,
    found: &Found,
) -> Result<(), Failure> {
    if !root.is_host() {
        return Ok(());
    }
    if let Some(process) = agent_process(layout)? {
        let what = format!("the agent runs (process {process}); nothing was removed");
        let stop = stop(layout, process);
        return Err(Failure::new(what).help(format!("{stop}      # then margay remove again")));
    }
    let live = found.sandboxes.live();
    if live.is_empty() || arguments.force {
        return Ok(());
    }
    let failure = Failure::new("containers run; nothing was removed")
        .help("stop them, or --force: they lose their network");
    Err(live.into_iter().fold(failure, Failure::detail))
}

/// The command that ends the agent of a host.
pub(crate) fn stop(layout: &Layout, process: i32) -> String {
    let has_manager = Path::new("/run/systemd/system").exists();
    match layout.unit.as_ref().filter(|unit| has_manager && unit.exists()) {
        Some(_) => "systemctl disable --now margay".to_owned(),
        None => format!("kill {process}"),
    }
}

/// The process that listens at the agent's socket.
pub(crate) fn agent_process(layout: &Layout) -> Result<Option<i32>, Failure> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let socket = layout.run_dir.join("agent.sock");
    let failed = |error: io::Error| {
        Failure::new(format!("{}: {}", socket.display(), text::plain_reason(&error)))
    };
    match UnixStream::connect(&socket) {
        Ok(stream) => {
            let peer = rustix::net::sockopt::socket_peercred(&stream);
            let peer = peer.map_err(|error| failed(error.into()))?;
            Ok(Some(peer.pid.as_raw_nonzero().get()))
        }
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn show(
    terminal: Terminal,
    arguments: &RemoveArguments,
    found: &Found,
    problems: &[String],
) -> Result<(), Failure> {
    let is_done = !arguments.plan;
    let kept = found.kept.iter().filter(|_| !found.steps.is_empty() || arguments.plan);
    if let Some(format) = arguments.host.format.output {
        let answer = json!({
            "done": is_done && problems.is_empty(),
            "changes": found.steps.iter().map(Step::to_json).collect::<Vec<_>>(),
            "kept": kept.map(|(name, _)| name).collect::<Vec<_>>(),
            "running": found.sandboxes.live(),
            "problems": problems,
        });
        return Ok(terminal.page(&structured(format, &answer))?);
    }
    let mut text = match (found.steps.len(), is_done, problems.len()) {
        (0, ..) => format!("{} nothing of margay is on this host\n", terminal.mark(Mark::Fine)),
        (_, false, _) => "to be removed:\n".to_owned(),
        (_, true, 0) => format!("{} margay is removed from this host\n", terminal.mark(Mark::Fine)),
        (_, true, n) => {
            let mark = terminal.mark(Mark::Degraded);
            // What was made meanwhile may be among them.
            let all = found.steps.len().max(n);
            format!("{mark} {n} of {all} could not be removed\n")
        }
    };
    for problem in problems {
        text += &format!("  {problem}\n");
    }
    let mut rows: Vec<(&str, &str, &str)> =
        found.steps.iter().map(|step| step.row(is_done)).collect();
    rows.extend(kept.map(|(name, why)| ("kept", name.as_str(), why.as_str())));
    text += &columns(&rows);
    if arguments.plan && !found.sandboxes.live().is_empty() {
        text += "note: containers run; margay remove refuses until they are stopped, or --force\n";
    }
    Ok(terminal.page(&text)?)
}
