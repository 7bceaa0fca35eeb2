//! `cargo xtask sim`: made-up clusters, one for each seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use sim::{Broken, Options, Summary};

/// How much of a failing run is printed.
const TRACE_LINES: usize = 400;

/// `--seed N` replays one run with its trace; `--seeds N` (or `--seeds FROM..TO`) runs many, on
/// all processors.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<bool> {
    let number =
        |text: &str| text.parse::<u64>().with_context(|| format!("{text:?}: not a number"));
    match arguments {
        [] => many(0, 2000),
        [flag, seed] if flag == "--seed" => one(number(seed)?),
        [flag, seeds] if flag == "--seeds" => match seeds.split_once("..") {
            Some((from, to)) => many(number(from)?, number(to)?),
            None => many(0, number(seeds)?),
        },
        _ => bail!("cargo xtask sim [--seed N | --seeds N | --seeds FROM..TO]"),
    }
}

fn one(seed: u64) -> anyhow::Result<bool> {
    match sim::run(seed, &Options::default()) {
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
        "{n_runs} clusters, {} steps, {} sandboxes ({} of the reserve), {} transactions",
        summary.steps, summary.sandboxes, summary.from_reserve, summary.transactions
    )
}

fn tell(broken: &Broken) {
    let from = broken.trace.len().saturating_sub(TRACE_LINES);
    for line in &broken.trace[from..] {
        println!("{line}");
    }
    println!("sim: BROKEN at step {}: {}", broken.step, broken.what);
    println!("again: cargo xtask sim --seed {}", broken.seed);
}
