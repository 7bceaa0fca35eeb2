//! Recorded behaviour of real Calico, row by row, against our code.
//!
//! A topic is a folder of rows. Each row passes, fails, or belongs to a class of
//! deliberate differences: a named predicate whose reason is in `docs/differences.md`.

mod calc;
mod calc_units;
mod client;
pub(crate) mod cni;
mod ctl;
mod defaults;
mod etcd_dump;
mod etcd_dump_get;
mod felix;
mod felix_config;
mod felix_stream;
mod ipam;
mod ipam_bad;
mod keys;
mod live;
mod selectors;
mod validation;
mod verdicts;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

/// What became of one row.
pub(crate) enum Outcome {
    /// We answer as the real program did.
    Passed,
    /// We do not, and the text says how.
    Failed(String),
    /// We do not, on purpose: the name of a class in `docs/differences.md`.
    Differs(&'static str),
    /// We do not yet: what the row waits for.
    Waits(&'static str),
}

/// One row and its outcome.
pub(crate) struct Row {
    /// Names the row for a reader of the corpus: file, and id or line number.
    pub(crate) name: String,
    /// What became of it.
    pub(crate) outcome: Outcome,
}

/// Compares, and describes the difference when there is one.
pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Outcome {
    if ours == theirs {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("{what}: ours {ours:?}, recorded {theirs:?}"))
    }
}

/// The rows of a JSON-lines file; a missing file has none, so that any subset of a topic runs.
pub(crate) fn rows(path: &Path) -> anyhow::Result<Vec<Value>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("while reading {}", path.display()))?;
    text.lines()
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), index + 1))
        })
        .collect()
}

type Runner = fn(&Path) -> anyhow::Result<Vec<Row>>;

/// Every topic we run, in the order of the report, with what runs its rows.
const TOPICS: &[(&str, &[Runner])] = &[
    ("selectors", &[selectors::run]),
    ("validation", &[validation::run]),
    ("defaults", &[defaults::run, client::creates]),
    ("felix-config", &[felix_config::run]),
    ("keys", &[keys::run]),
    ("etcd-dump", &[etcd_dump::run, etcd_dump_get::run, client::dumps]),
    ("ctl", &[ctl::run]),
    ("ipam", &[ipam::run]),
    ("ipam-bad", &[ipam_bad::run]),
    ("cni", &[cni::run]),
    ("calc", &[calc::run]),
    ("calc-units", &[calc_units::run]),
    ("felix-stream", &[felix_stream::run]),
    ("verdicts", &[verdicts::run]),
];

/// `cargo xtask corpora [--dir DIR] [TOPIC...]`; true when no row failed.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<bool> {
    let beside = || crate::tidy::project_root().join("../shared/corpora");
    let mut dir = std::env::var_os("MARGAY_CORPORA").map_or_else(beside, PathBuf::from);
    let mut wanted: Vec<&str> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--dir" => dir = rest.next().context("--dir needs a folder")?.into(),
            topic if TOPICS.iter().any(|(name, _)| *name == topic) => wanted.push(topic),
            other => bail!(
                "no topic {other}; there are: {}",
                TOPICS.iter().map(|t| t.0).collect::<Vec<_>>().join(" ")
            ),
        }
    }
    if !dir.is_dir() {
        println!("corpora: skipped, no folder {} (set MARGAY_CORPORA or --dir)", dir.display());
        return Ok(true);
    }
    let mut all_passed = true;
    for (name, runners) in TOPICS {
        if wanted.is_empty() || wanted.contains(name) {
            let mut rows = Vec::new();
            for run in *runners {
                rows.extend(run(&dir.join(name))?);
            }
            all_passed &= report(name, &rows);
        }
    }
    Ok(all_passed)
}

/// Whether a class of differences has its paragraph with the reason.
fn is_explained(class: &str) -> bool {
    let page = crate::tidy::project_root().join("docs/differences.md");
    let text = std::fs::read_to_string(page).unwrap_or_default();
    text.lines().any(|line| line.strip_prefix("## ") == Some(class))
}

fn report(topic: &str, rows: &[Row]) -> bool {
    let passed = rows.iter().filter(|row| matches!(row.outcome, Outcome::Passed)).count();
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        match row.outcome {
            Outcome::Differs(class) => *classes.entry(class).or_default() += 1,
            Outcome::Waits(later) => *waiting.entry(later).or_default() += 1,
            Outcome::Passed | Outcome::Failed(_) => {}
        }
    }
    let differ: usize = classes.values().sum();
    let failed = rows.len() - passed - differ - waiting.values().sum::<usize>();
    let later: String =
        waiting.iter().map(|(later, n_rows)| format!(", {n_rows} wait for {later}")).collect();
    println!("{topic}: {passed} passed, {failed} failed, {differ} differ on purpose{later}");
    let mut all_explained = true;
    for (class, n_rows) in classes {
        let unexplained =
            if is_explained(class) { "" } else { ", which docs/differences.md lacks" };
        all_explained &= unexplained.is_empty();
        println!("  {topic}: {n_rows} differ as {class}{unexplained}");
    }
    for row in rows {
        if let Outcome::Failed(why) = &row.outcome {
            println!("  {topic}/{}: {why}", row.name);
        }
    }
    failed == 0 && all_explained
}
