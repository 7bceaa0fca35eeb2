//! `cargo xtask sim`: made-up clusters, one for each seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use sim::{Broken, Bug, Options, Summary};

/// How much of a failing run is printed.
const TRACE_LINES: usize = 400;

/// `--seed N` replays one run with its trace; `--seeds N` (or `--seeds FROM..TO`) runs many, on
/// all processors; `--bug NAME` puts an error in, to see how it is found.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<bool> {
    let number =
        |text: &str| text.parse::<u64>().with_context(|| format!("{text:?}: not a number"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments {
        [] => many(0, 2000),
        ["--seed", seed] => one(number(seed)?, &Options::default()),
        ["--seed", seed, "--bug", bug] => one(number(seed)?, &Options::default().with(named(bug)?)),
        ["--bug", bug] => first(named(bug)?),
        ["--seeds", seeds] => match seeds.split_once("..") {
            Some((from, to)) => many(number(from)?, number(to)?),
            None => many(0, number(seeds)?),
        },
        _ => bail!("cargo xtask sim [--seed N | --seeds N | --seeds FROM..TO] [--bug NAME]"),
    }
}

fn named(name: &str) -> anyhow::Result<Bug> {
    let names: Vec<String> = Bug::ALL.iter().map(|bug| format!("{bug:?}")).collect();
    let at = names.iter().position(|it| it == name);
    let at = at.with_context(|| format!("{name:?}: not one of {}", names.join(", ")))?;
    Ok(Bug::ALL[at])
}

/// The first run in which an error shows.
fn first(bug: Bug) -> anyhow::Result<bool> {
    let options = Options::default().with(bug);
    match (0..1000).find_map(|seed| sim::run(seed, &options).err()) {
        Some(broken) => {
            tell(&broken);
            println!("with --bug {bug:?}, as it should be");
            Ok(true)
        }
        None => {
            println!("sim: {bug:?} is not found in 1000 seeds");
            Ok(false)
        }
    }
}

fn one(seed: u64, options: &Options) -> anyhow::Result<bool> {
    match sim::run(seed, options) {
        Ok(summary) => {
            println!("seed {seed}: the laws hold; {}", spoken(&summary, 1));
            Ok(true)
        }
        Err(broken) => {
            tell(&broken);
            Ok(false)
        }
    }
}

fn many(from: u64, to: u64) -> anyhow::Result<bool> {
    let started = Instant::now();
    let next = AtomicU64::new(from);
    let found: Mutex<(Summary, Option<Box<Broken>>)> = Mutex::default();
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|threads| {
        for _ in 0..n_threads {
            threads.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to {
                        return;
                    }
                    let result = sim::run(seed, &Options::default());
                    let mut found = found.lock().expect("no run panics");
                    match result {
                        Ok(summary) => found.0 = found.0 + summary,
                        Err(broken) => {
                            found.1 = Some(broken);
                            next.store(to, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (summary, broken) = found.into_inner().expect("no run panics");
    if let Some(broken) = broken {
        tell(&broken);
        return Ok(false);
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "sim: the laws hold with seeds {from}..{to}; {}, {:.0} steps a second",
        spoken(&summary, to - from),
        summary.steps as f64 / seconds
    );
    Ok(true)
}

fn spoken(summary: &Summary, n_runs: u64) -> String {
    format!(
        "{n_runs} clusters, {} nodes, {} steps, {} crashes, {} sandboxes ({} of the reserve, {} \
         with IPv6, {} second interfaces), {} transactions",
        summary.nodes,
        summary.steps,
        summary.crashes,
        summary.sandboxes,
        summary.from_reserve,
        summary.with_ipv6,
        summary.second_interfaces,
        summary.transactions
    )
}

fn tell(broken: &Broken) {
    let from = broken.trace.len().saturating_sub(TRACE_LINES);
    for line in &broken.trace[from..] {
        println!("{line}");
    }
    println!("sim: BROKEN at step {}: {}", broken.step, broken.what);
    println!("what happened to them:");
    for line in &broken.history {
        println!("{line}");
    }
    println!("again: cargo xtask sim --seed {}", broken.seed);
}
