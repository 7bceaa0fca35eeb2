//! How long a change takes from one process to another.
//!
//! A writer puts the time into a key, immediately before it commits; a watcher in another process
//! looks at the clock when the event arrives. So the figure holds the commit itself too, which is
//! given by the side of it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use store::{Event, Op, Txn};

use crate::Options;
use crate::home::{self, Etcd};
use crate::process::monotonic_ns;
use crate::report::{Figure, median, percentile};

/// The word that makes this program the writer.
pub(crate) const WRITE: &str = "write";

const PREFIX: &str = "/bench/latency/";
const COUNT: usize = 1000;

/// So long that the watcher is idle again before the next change.
const PAUSE: Duration = Duration::from_millis(3);

pub(crate) fn measure(options: &Options) -> anyhow::Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    options.say("latency on SQLite");
    let sqlite = home::address(&folder.path().join("store.db"));
    let mut figures = one("SQLite", &sqlite, 1.0)?;
    options.say("latency on etcd");
    let etcd = Etcd::start()?;
    figures.extend(one("etcd", &etcd.address(), 2.0)?);
    Ok(figures)
}

fn one(label: &str, address: &str, aim_ms: f64) -> anyhow::Result<Vec<Figure>> {
    let store = home::open(address)?;
    let mut watch = store.watch(PREFIX);
    let patience = Duration::from_secs(10);
    while !matches!(watch.next(patience).context("no snapshot")?, Event::InSync(_)) {}
    let mut writer = Command::new(std::env::current_exe()?)
        .args([WRITE, address])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut latencies = Vec::new();
    while latencies.len() < COUNT {
        if let Event::Put(entry) = watch.next(patience).context("the writer stopped")? {
            let now = monotonic_ns();
            let began: i64 = std::str::from_utf8(&entry.value)?.parse()?;
            latencies.push((now - began) as f64 / 1e6);
        }
    }
    let output = writer.stdout.take().context("the writer prints")?;
    let commits = BufReader::new(output).lines().map(|line| Ok(line?.parse::<f64>()? / 1e6));
    let commits = commits.collect::<anyhow::Result<Vec<f64>>>()?;
    ensure!(writer.wait()?.success(), "the writer failed");
    let what = format!("write to event, {label}");
    Ok(vec![
        Figure::less(&what, "median ms", median(latencies.iter().copied())).aim(aim_ms),
        Figure::less(&what, "p99 ms", percentile(latencies, 99.0)),
        Figure::less(&what, "of it the commit: median ms", median(commits)),
    ])
}

/// The writer: prints how many nanoseconds each commit took.
pub(crate) fn write(address: &str) -> anyhow::Result<()> {
    let store = home::open(address)?;
    let mut out = std::io::stdout().lock();
    for number in 0..COUNT {
        std::thread::sleep(PAUSE);
        let key = format!("{PREFIX}{}", number % 10);
        let began = monotonic_ns();
        let put = Op::Put { key, value: began.to_string().into_bytes() };
        store.commit(Txn { compares: Vec::new(), ops: vec![put] })?;
        writeln!(out, "{}", monotonic_ns() - began)?;
    }
    Ok(())
}
