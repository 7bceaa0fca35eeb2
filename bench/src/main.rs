//! Measures what the project claims about speed and size, and prints it beside the aims; with
//! the real calicoctl at hand, beside that too, in the same run on the same machine.

mod addresses;
mod command_line;
mod contention;
mod graph;
mod home;
mod latency;
mod memory;
mod node;
mod objects;
mod policy;
mod process;
mod report;
mod samples;
mod selectors;
mod simulation;

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Parser, ValueEnum};
use report::Sheet;

/// Measures Margay.
#[derive(Debug, Parser)]
struct Options {
    /// What to measure; everything if nothing is named.
    what: Vec<What>,
    /// The real calicoctl, to measure beside ours (or the variable CALICOCTL).
    #[arg(long)]
    calicoctl: Option<PathBuf>,
    /// Count instructions of the reading commands with valgrind as well; takes minutes.
    #[arg(long)]
    instructions: bool,
    /// The margay to measure (`node`, `idle`, `addresses`, `policy`,
    /// `packets`), in the place of a fresh release build.
    #[arg(long)]
    margay: Option<PathBuf>,
    /// An earlier margay, to measure beside this one (`node`, `addresses`).
    #[arg(long)]
    before: Option<PathBuf>,
    /// Fewer runs (`node`, `idle`, `policy`, `packets`): a first impression within a minute.
    #[arg(long)]
    quick: bool,
    /// How to print.
    #[arg(short, long, default_value = "table")]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    CommandLine,
    Selectors,
    Latency,
    Memory,
    Objects,
    Graph,
    Addresses,
    Contention,
    Simulation,
    Idle,
    Node,
    Policy,
    Packets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
}

impl Options {
    /// Says on standard error how far we are.
    fn say(&self, what: &str) {
        let _ = writeln!(std::io::stderr().lock(), "measuring: {what}");
    }
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut out = std::io::stdout().lock();
    // The processes that the measurements start are this program again.
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [process::LAUNCH, ..] => return process::launch(&words[1..]),
        [latency::WRITE, address] => {
            drop(out);
            return latency::write(address);
        }
        [memory::CACHE, address, form] => {
            return Ok(out.write_all(memory::hold(address, form)?.as_bytes())?);
        }
        [graph::HOLD, n_policies] => {
            return Ok(out.write_all(graph::hold(n_policies)?.as_bytes())?);
        }
        _ => {}
    }
    let mut options = Options::parse();
    if cfg!(debug_assertions) && options.margay.is_none() {
        bail!("measure with --release");
    }
    options.calicoctl = options.calicoctl.or_else(|| std::env::var_os("CALICOCTL").map(Into::into));
    let (mut figures, mut nodes) = (Vec::new(), Vec::new());
    for what in What::value_variants() {
        if !options.what.is_empty() && !options.what.contains(what) {
            continue;
        }
        figures.extend(match what {
            What::CommandLine => command_line::measure(&options)?,
            What::Selectors => selectors::measure()?,
            What::Latency => latency::measure(&options)?,
            What::Memory => memory::measure(&options)?,
            What::Objects => objects::measure()?,
            What::Graph => graph::measure(&options)?,
            What::Addresses => addresses::measure(&options)?,
            What::Contention => contention::measure(&options)?,
            What::Simulation => simulation::measure()?,
            What::Idle => node::measure_idle(&options)?,
            What::Node => {
                nodes.extend(node::measure(&options)?);
                Vec::new()
            }
            What::Policy => {
                nodes.extend(policy::measure(&options)?);
                Vec::new()
            }
            What::Packets => {
                nodes.extend(policy::measure_packets(&options)?);
                Vec::new()
            }
        });
    }
    let text = match options.output {
        Form::Table => report::tables(&figures, &nodes),
        Form::Json => report::json(
            figures.iter().chain(nodes.iter().flat_map(|sheet: &Sheet| &sheet.figures)),
        ),
    };
    Ok(out.write_all(text.as_bytes())?)
}
