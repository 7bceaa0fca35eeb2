//! `margay setup`: makes this host one whose containers Margay connects.
//!
//! What is to be there is computed first, as a list of [`Item`]s and of records in the datastore;
//! then each is held against what is there. The plan is that difference, and doing it is nothing
//! but the plan: a second run finds nothing to do.

pub(crate) mod change;
pub(crate) mod datastore;
pub(crate) mod item;
pub(crate) mod layout;
mod records;
mod texts;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use net::Cidr;
use serde_json::json;

use super::arguments::{Format, Place};
use super::failure::Failure;
use super::terminal::{Mark, Terminal};
use super::{remove, structured};
use change::Change;
use datastore::Chosen;
use item::{Item, Standing};
use layout::{Layout, Root};
use records::Records;

#[derive(Args, Debug)]
pub(crate) struct SetupArguments {
    /// Show what would be done, and change nothing; exit code 1 if there is something to do
    #[arg(long)]
    pub(crate) plan: bool,
    /// Without an agent: each call of the plugin does the work itself
    #[arg(long)]
    pub(crate) no_agent: bool,
    /// The node's name in the datastore [default: the host's name]
    #[arg(long, env = "NODENAME", hide_env_values = true)]
    pub(crate) node: Option<String>,
    /// An address by which other nodes reach this one, with its subnet; one for each family
    #[arg(long, value_name = "CIDR")]
    pub(crate) address: Vec<Cidr>,
    /// Addresses for containers, if the datastore has no such pool yet; one for each family
    /// [default: a private IPv4 network that this host has no route to]
    #[arg(long, value_name = "CIDR")]
    pub(crate) pool: Vec<Cidr>,
    /// Let containers be reached from everywhere, as published ports need; else only this host and
    /// containers of the same network reach them
    #[arg(long)]
    pub(crate) open: bool,
    /// Put files of others aside that stand in the way; `margay remove` puts them back
    #[arg(long)]
    pub(crate) replace: bool,
    /// The name of the network
    #[arg(long, default_value = "margay", value_name = "NAME")]
    pub(crate) network: String,
    /// Where runtimes look for plugins; may be given several times [default: those of
    /// /opt/cni/bin and /usr/lib/cni that hold plugins]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) bin_dir: Vec<PathBuf>,
    /// Where runtimes look for networks
    #[arg(long, default_value = "/etc/cni/net.d", value_name = "DIR")]
    #[arg(value_hint = clap::ValueHint::DirPath)]
    pub(crate) conf_dir: PathBuf,
    /// Where the unit of the agent goes
    #[arg(long, default_value = "/etc/systemd/system", value_name = "DIR")]
    #[arg(value_hint = clap::ValueHint::DirPath)]
    pub(crate) unit_dir: PathBuf,
    /// Where this program goes
    #[arg(long, default_value = "/usr/local/bin/margay", value_name = "FILE")]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(crate) program: PathBuf,
    #[command(flatten)]
    pub(crate) host: Host,
}

/// Which host, and how to tell of it: its files, and the folders of its agent or of the plugin that
/// acts alone.
#[derive(Args, Clone, Debug)]
pub(crate) struct Host {
    /// The folder for what survives a reboot
    #[arg(long, env = "MARGAY_STATE_DIR", default_value = "/var/lib/margay", value_name = "DIR")]
    #[arg(hide_env_values = true, value_hint = clap::ValueHint::DirPath)]
    pub(crate) state_dir: PathBuf,
    /// The folder of the agent's socket
    #[arg(long, env = "MARGAY_RUN_DIR", default_value = "/run/margay", value_name = "DIR")]
    #[arg(hide_env_values = true, value_hint = clap::ValueHint::DirPath)]
    pub(crate) run_dir: PathBuf,
    /// The root of the host's files, for making or changing an image
    #[arg(long, default_value = "/", value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) root: PathBuf,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The command.
pub(crate) fn run(
    terminal: Terminal,
    place: &Place,
    arguments: &SetupArguments,
) -> Result<bool, Failure> {
    let root = Root::at(&arguments.host.root);
    refuse(arguments, &root)?;
    let chosen = Chosen::find(place, &root, !arguments.no_agent)?;
    let before = Layout::read(&root)?;
    let mut layout = Layout::wanted(arguments, &root, chosen.embedded())?;
    layout.made_folders = before.iter().flat_map(|it| it.made_folders.clone()).collect();
    let mut records = Records::open(&chosen, &root, arguments, &layout)?;
    let families = records.families();
    let items = texts::items(arguments, &mut layout, &root, &chosen, families)?;
    let mut changes = Vec::new();
    for item in stale(before.as_ref(), &items) {
        changes.extend(item.removal(&root)?);
    }
    if arguments.no_agent {
        refuse_agent(arguments, &root, before.as_ref().unwrap_or(&layout))?;
        changes.extend(leavings(&root, before.as_ref().unwrap_or(&layout)));
    }
    let held = item::compare(&items, &root)?;
    in_the_way(&held, arguments.replace)?;
    // The receipt goes first, so that whatever is interrupted can be removed; then what a runtime
    // needs to serve a container, and last what makes runtimes see it.
    let (early, late): (Vec<_>, Vec<_>) =
        held.into_iter().partition(|(item, _)| item.path() != layout.conflist);
    let to_change = |(item, standing): (Item, Standing)| Change::of_item(item, &standing);
    changes.extend(early.into_iter().filter_map(to_change));
    changes.extend(records.changes());
    changes.extend(late.into_iter().filter_map(to_change));
    if !arguments.plan {
        let performed = changes.iter().try_for_each(|it| it.perform(&root, &mut records));
        records.finish();
        performed?;
    }
    show(terminal, arguments, &layout, &changes)?;
    Ok(changes.is_empty() || !arguments.plan)
}

/// Where nothing may be changed at all.
fn refuse(arguments: &SetupArguments, root: &Root) -> Result<(), Failure> {
    if !root.is_host() {
        return Ok(());
    }
    let rivals = host::rivals::running();
    if let Some(rival) = rivals.first() {
        return Err(Failure::new(format!("Calico's {rival} runs here; nothing was changed"))
            .why("two agents on one host would undo each other's work")
            .help("stop Calico on this host first"));
    }
    if !arguments.plan && !rustix::process::geteuid().is_root() {
        return Err(Failure::new("setting up a host takes root; nothing was changed")
            .help("sudo margay setup, or margay setup --plan"));
    }
    Ok(())
}

/// An agent that runs would go on serving, and nothing would start it the next time.
fn refuse_agent(arguments: &SetupArguments, root: &Root, before: &Layout) -> Result<(), Failure> {
    if arguments.plan || !root.is_host() {
        return Ok(());
    }
    let Some(process) = remove::agent_process(before)? else { return Ok(()) };
    let what = format!("the agent runs (process {process}); nothing was changed");
    let stop = remove::stop(before, process);
    Err(Failure::new(what).help(format!("{stop}      # then margay setup --no-agent again")))
}

/// What an agent leaves on a host that does without one from now on: the socket, at which plugins
/// would wait for it, and the link by which the service manager would start it.
fn leavings(root: &Root, before: &Layout) -> Vec<Change> {
    let socket = before.run_dir.join("agent.sock");
    let link = before.unit.as_deref().and_then(layout::wanted_by);
    let all = [(Some(socket), "left by an agent"), (link, "the start of the unit")];
    let there = all.into_iter().filter_map(|(path, what)| Some((path?, what)));
    there
        .filter(|(path, _)| fs::symlink_metadata(root.join(path)).is_ok())
        .map(|(path, what)| Change::clearing(path, what))
        .collect()
}

/// What an earlier setup made at places where this one makes nothing.
fn stale(before: Option<&Layout>, wanted: &[Item]) -> Vec<Item> {
    let earlier = before.map(Layout::bare_items).unwrap_or_default();
    let is_stale = |item: &Item| !wanted.iter().any(|it| it.path() == item.path());
    earlier.into_iter().filter(is_stale).collect()
}

fn in_the_way(held: &[(Item, Standing)], replaces: bool) -> Result<(), Failure> {
    let foreign: Vec<String> = held
        .iter()
        .filter_map(|(item, standing)| match standing {
            Standing::Foreign(what) => Some(format!("{}: {what}", item.path().display())),
            _ => None,
        })
        .collect();
    if foreign.is_empty() || replaces {
        return Ok(());
    }
    let failure = Failure::new("files of others stand in the way; nothing was changed")
        .help("margay setup --replace puts them aside, and margay remove puts them back");
    Err(foreign.into_iter().fold(failure, Failure::detail))
}

fn show(
    terminal: Terminal,
    arguments: &SetupArguments,
    layout: &Layout,
    changes: &[Change],
) -> Result<(), Failure> {
    let is_done = !arguments.plan;
    if let Some(format) = arguments.host.format.output {
        let answer = json!({
            "node": layout.node,
            "network": layout.network,
            "agent": layout.unit.is_some(),
            "done": is_done,
            "changes": changes.iter().map(Change::to_json).collect::<Vec<_>>(),
        });
        return Ok(terminal.page(&structured(format, &answer))?);
    }
    let fine = terminal.mark(Mark::Fine);
    let how = if layout.unit.is_some() { "with an agent" } else { "without an agent" };
    let node = &layout.node;
    let mut text = match (changes.len(), is_done) {
        (0, _) => format!("{fine} nothing to do: this host is node {node}, {how}\n"),
        (_, false) => format!("to do, for this host to be node {node}, {how}:\n"),
        (_, true) => format!("{fine} this host is node {node}, {how}\n"),
    };
    text += &change::lines(changes, is_done);
    if is_done && !changes.is_empty() {
        text += &next(arguments, layout, changes);
    }
    Ok(terminal.page(&text)?)
}

/// What to type now.
fn next(arguments: &SetupArguments, layout: &Layout, changes: &[Change]) -> String {
    let mut text = String::new();
    let is_touched = |path: &Path| changes.iter().any(|change| Path::new(&change.name) == path);
    if let Some(unit) = &layout.unit {
        let name = unit.file_name().unwrap_or_default().to_string_lossy();
        if is_touched(unit) {
            text += &format!("next: systemctl daemon-reload && systemctl enable --now {name}\n");
        } else if is_touched(&layout.program) {
            text += &format!("next: systemctl restart {name}\n");
        }
    }
    let label = if text.is_empty() { "next:" } else { "     " };
    text += &format!("{label} podman run --network {} IMAGE", layout.network);
    text += "      # containerd finds the network by itself\n";
    if !arguments.open {
        text += "note: published ports answer to this host only; ";
        text += "margay setup --open lets others in\n";
    }
    text
}
