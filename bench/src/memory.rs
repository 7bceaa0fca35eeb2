//! What it costs to know every endpoint of a large cluster.
//!
//! Each kind of cache is filled from a watch in a process of its own; the figure is how much that
//! process grew, what the watch itself remembers included.

mod cache;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use store::Event;

use crate::Options;
use crate::home;
use crate::process::resident_mib;
use crate::report::Figure;
use crate::samples;
use cache::{Cache, Compact, Nothing, Raw};

/// The word that makes this program a holder of a cache.
pub(crate) const CACHE: &str = "cache";

const COUNT: usize = 100_000;
const AIM_MIB: f64 = 60.0;

pub(crate) fn measure(options: &Options) -> anyhow::Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let address = home::address(&folder.path().join("store.db"));
    options.say("storing 100,000 workload endpoints");
    let endpoints = || (0..COUNT).map(samples::workload_endpoint);
    home::fill(&home::open(&address)?, endpoints())?;
    let bytes: usize = endpoints().map(|(key, value)| key.len() + value.len()).sum();
    let what = "100,000 workload endpoints";
    let mib = bytes as f64 / f64::from(1 << 20);
    let mut figures = vec![Figure::less(what, "MiB of keys and values", mib)];
    let forms = [
        ("nothing", "watched, nothing kept: MiB", None),
        ("raw", "watched, bytes kept: MiB", None),
        ("compact", "watched, compact cache: MiB", Some(AIM_MIB)),
    ];
    for (form, unit, aim) in forms {
        options.say(unit);
        let output =
            Command::new(std::env::current_exe()?).args([CACHE, &address, form]).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}", error.trim());
        let grown: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
        figures.push(Figure::less(what, unit, grown).aim(aim));
    }
    Ok(figures)
}

/// The holder: fills a cache and prints by how many MiB the process grew.
pub(crate) fn hold(address: &str, form: &str) -> anyhow::Result<String> {
    let mut cache: Box<dyn Cache> = match form {
        "raw" => Box::new(Raw::default()),
        "compact" => Box::new(Compact::default()),
        _ => Box::new(Nothing),
    };
    let store = home::open(address)?;
    let before = resident_mib()?;
    let mut watch = store.watch(samples::WORKLOAD_ENDPOINTS);
    let mut n_seen = 0;
    loop {
        match watch.next(Duration::from_secs(60)).context("no event")? {
            Event::Put(entry) => {
                n_seen += 1;
                cache.put(entry)?;
            }
            Event::InSync(_) => break,
            other => anyhow::bail!("{other:?}"),
        }
    }
    let grown = resident_mib()? - before;
    ensure!(n_seen == COUNT, "{n_seen} endpoints were seen");
    cache.check(COUNT)?;
    Ok(format!("{grown}"))
}
