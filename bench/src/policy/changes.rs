//! How long a change takes from the write into the datastore until the kernel has all of it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kernel::nft::{RulesetEvent, RulesetMonitor, Subject};

use crate::process::ms;
use crate::report::{Figure, percentile};

use super::cluster::Cluster;

/// After this long without a transaction the last one was the last. Were it shorter than what the
/// kernel may take between two of them, a change and its undoing would meet and come to nothing.
const QUIET: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells when the ruleset of a node changed.
pub(super) struct Commits(Receiver<Instant>);

impl Commits {
    pub(super) fn follow(cluster: &Cluster) -> anyhow::Result<Self> {
        let monitor = RulesetMonitor::open(Some(&cluster.place.netns))?;
        let (tell, told) = channel();
        // It ends with whoever listens.
        std::thread::Builder::new().spawn(move || listen(monitor, &tell))?;
        Ok(Self(told))
    }

    /// From a moment until the last transaction that follows from it, in milliseconds.
    fn settle(&self, began: Instant) -> anyhow::Result<f64> {
        let mut last = match self.0.recv_timeout(PATIENCE) {
            Ok(at) => at,
            Err(_) => bail!("the kernel hears nothing of a change"),
        };
        loop {
            match self.0.recv_timeout(QUIET) {
                Ok(at) => last = at,
                Err(RecvTimeoutError::Timeout) => return Ok(ms(last - began)),
                Err(RecvTimeoutError::Disconnected) => bail!("nobody listens to the kernel"),
            }
        }
    }

    /// Waits until nothing happens any more.
    pub(super) fn rest(&self) {
        while self.0.recv_timeout(QUIET * 2).is_ok() {}
    }
}

/// Tells of transactions by which other rules or members come into force. One that only removes
/// chains and sets concerns no packet: they had to be out of use.
fn listen(mut monitor: RulesetMonitor, tell: &Sender<Instant>) {
    let mut decides = false;
    loop {
        let is_news = match monitor.next(Duration::from_millis(500)) {
            Ok(Some(RulesetEvent::Committed { .. })) => std::mem::take(&mut decides),
            Ok(Some(RulesetEvent::Lost)) => true,
            Ok(Some(RulesetEvent::Changed { subject, is_deletion, .. })) => {
                decides |= !is_deletion || subject == Subject::Elements;
                false
            }
            Ok(None) => false,
            Err(_) => return,
        };
        if is_news && tell.send(Instant::now()).is_err() {
            return;
        }
    }
}

/// What changes of one sort took.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies {
    pub(super) ms: Vec<f64>,
    /// Processor time of the agent for one of them.
    pub(super) cpu_ms: f64,
}

impl Latencies {
    pub(super) fn at(&self, percent: f64) -> f64 {
        percentile(self.ms.iter().copied(), percent)
    }

    pub(super) fn figures(&self, what: &str, aim_p99: Option<f64>) -> Vec<Figure> {
        vec![
            Figure::less(what, "p50 ms", self.at(50.0)),
            Figure::less(what, "p95 ms", self.at(95.0)),
            Figure::less(what, "p99 ms", self.at(99.0)).aim(aim_p99),
            Figure::less(what, "longest ms", self.at(100.0)),
            Figure::less(what, "agent's CPU ms", self.cpu_ms),
        ]
    }
}

/// A key with its new value.
pub(super) type Write = (String, Option<Vec<u8>>);

/// Makes the changes one after the other, each after the last one is in the kernel.
pub(super) fn each(
    cluster: &Cluster,
    commits: &Commits,
    writes: impl IntoIterator<Item = Write>,
) -> anyhow::Result<Latencies> {
    let mut found = Latencies::default();
    commits.rest();
    let before = cluster.place.agent_cpu_ms()?;
    for (key, value) in writes {
        let began = cluster.put(&key, value)?;
        found.ms.push(commits.settle(began).with_context(|| key)?);
    }
    let used = cluster.place.agent_cpu_ms()? - before;
    found.cpu_ms = used / found.ms.len().max(1) as f64;
    Ok(found)
}
