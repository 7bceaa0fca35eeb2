//! How many made-up clusters can be run, on one processor.

use anyhow::anyhow;
use sim::Summary;

use crate::process::cpu_seconds;
use crate::report::Figure;

/// So many at a time, the same ones each time.
const SEEDS: u64 = 100;
const RUNS: usize = 3;

pub(crate) fn measure() -> anyhow::Result<Vec<Figure>> {
    let options = sim::Options::default();
    let mut outcome = Ok(Summary::default());
    let seconds = cpu_seconds(RUNS, || {
        outcome = (0..SEEDS).try_fold(Summary::default(), |sum, seed| {
            let summary = sim::run(seed, &options);
            summary.map(|it| sum + it).map_err(|it| anyhow!("seed {seed}: {}", it.what))
        });
    });
    let summary = outcome?;
    let what = format!("simulation, seeds 0..{SEEDS}");
    let rate = |count: f64| count / seconds;
    let transactions = summary.transactions as f64;
    Ok(vec![
        Figure::more(&what, "seeds a CPU second", rate(SEEDS as f64)),
        Figure::more(&what, "events a CPU second", rate(summary.steps as f64)),
        Figure::more(&what, "sandboxes a CPU second", rate(summary.sandboxes as f64)),
        Figure::more(&what, "transactions a CPU second", rate(transactions)),
    ])
}
