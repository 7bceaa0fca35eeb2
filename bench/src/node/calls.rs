//! ADD and DEL, so many at once, each way in turn.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Options;
use crate::report::{self, Figure, Sheet, median, number_text, percentile};

use super::place::{Place, Pod, Way, container_id};

/// So many at once, and how often.
const FULL: &[(usize, usize)] = &[(1, 150), (4, 50), (16, 16), (64, 6)];
const QUICK: &[(usize, usize)] = &[(1, 20), (4, 8), (16, 3), (64, 1)];
const VERBS: [&str; 2] = ["ADD", "DEL"];

/// The aims for requests to etcd: of a call alone, and of each of many.
const REQUESTS_ALONE: f64 = 3.0;
const REQUESTS_SHARED: f64 = 1.0;

/// A way of calling with a node for it, and what was measured.
struct Lane {
    name: &'static str,
    place: Place,
    is_counted: bool,
    /// By how many at once and verb.
    found: BTreeMap<(usize, &'static str), Found>,
}

#[derive(Default)]
struct Found {
    times: Vec<f64>,
    cpu_ms: f64,
    requests: f64,
}

pub(super) fn measure(
    options: &Options,
    margay: &Path,
    folder: &Path,
) -> anyhow::Result<Vec<Sheet>> {
    let mut lanes = lanes(options, margay, folder)?;
    let plan = if options.quick { QUICK } else { FULL };
    let n_pods = plan.iter().map(|(at_once, _)| *at_once).max().unwrap_or(1);
    let pods = (0..n_pods).map(|_| Pod::new()).collect::<anyhow::Result<Vec<_>>>()?;
    for lane in &mut lanes {
        // The first call makes what the later ones find: a block, a profile, folders.
        lane.round(0, 1, "warm", &pods)?;
        lane.found.clear();
    }
    for (at_once, rounds) in plan {
        for round in 0..*rounds {
            if round % (rounds / 5).max(1) == 0 {
                options.say(&format!("calls, {at_once} at once, round {round} of {rounds}"));
            }
            let n_lanes = lanes.len();
            for turn in 0..n_lanes {
                // Nobody always comes after the same neighbour.
                let lane = &mut lanes[(turn + round) % n_lanes];
                lane.round(round, *at_once, "bench", &pods)?;
            }
        }
    }
    Ok(vec![
        Sheet { title: "Calls", table: table(&lanes, plan), figures: figures(&lanes, plan) },
        requests(&lanes, plan),
    ])
}

fn lanes(options: &Options, margay: &Path, folder: &Path) -> anyhow::Result<Vec<Lane>> {
    let ours = |margay: &Path, is_on_etcd, has_agent| Way::Ours {
        margay: margay.to_owned(),
        is_on_etcd,
        has_agent,
        join_every: None,
    };
    let mut ways = vec![
        ("ptp + host-local", Way::Reference),
        ("SQLite", ours(margay, false, true)),
        ("etcd", ours(margay, true, true)),
        ("direct, SQLite", ours(margay, false, false)),
        ("direct, etcd", ours(margay, true, false)),
    ];
    if let Some(before) = &options.before {
        ways.push(("before: SQLite", ours(before, false, true)));
        ways.push(("before: etcd", ours(before, true, true)));
        ways.push(("before: direct, SQLite", ours(before, false, false)));
    }
    let mut lanes = Vec::new();
    for (name, way) in ways {
        let is_counted = matches!(way, Way::Ours { is_on_etcd: true, .. });
        let place = Place::new(&way, folder)?;
        lanes.push(Lane { name, place, is_counted, found: BTreeMap::new() });
    }
    Ok(lanes)
}

impl Lane {
    /// ADDs for so many containers at once, then their DELs.
    fn round(
        &mut self,
        round: usize,
        at_once: usize,
        prefix: &str,
        pods: &[Pod],
    ) -> anyhow::Result<()> {
        let calls: Vec<(String, &Pod)> = pods
            .iter()
            .take(at_once)
            .enumerate()
            .map(|(pod, netns)| (container_id(&format!("{prefix}-{at_once}-{round}-{pod}")), netns))
            .collect();
        for verb in VERBS {
            let count = |place: &Place| match self.is_counted {
                true => place.requests(),
                false => Ok(0.0),
            };
            let requests = count(&self.place)?;
            let cpu_ms = self.place.cpu_ms()?;
            let times = self.place.call(verb, &calls)?;
            let cpu_ms = self.place.cpu_ms()? - cpu_ms;
            let requests = count(&self.place)? - requests;
            let found = self.found.entry((at_once, verb)).or_default();
            found.times.extend(times);
            found.cpu_ms += cpu_ms;
            found.requests += requests;
        }
        Ok(())
    }

    fn found(&self, at_once: usize, verb: &'static str) -> &Found {
        static NOTHING: Found = Found { times: Vec::new(), cpu_ms: 0.0, requests: 0.0 };
        self.found.get(&(at_once, verb)).unwrap_or(&NOTHING)
    }
}

impl Found {
    fn percentile(&self, percent: f64) -> f64 {
        percentile(self.times.iter().copied(), percent)
    }

    fn each(&self, sum: f64) -> f64 {
        sum / self.times.len() as f64
    }
}

const HEADINGS: [&str; 8] =
    ["call", "way", "p50 ms", "p95 ms", "p99 ms", "CPU ms", "p50 ratio", "CPU ratio"];

fn table(lanes: &[Lane], plan: &[(usize, usize)]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    for verb in VERBS {
        for (at_once, _) in plan {
            let reference = lanes[0].found(*at_once, verb);
            for lane in lanes {
                let found = lane.found(*at_once, verb);
                let cpu = found.each(found.cpu_ms);
                let ratio = found.percentile(50.0) / reference.percentile(50.0);
                let cpu_ratio = cpu / reference.each(reference.cpu_ms);
                rows.push(vec![
                    format!("{verb}, {at_once} at once"),
                    lane.name.to_owned(),
                    number_text(found.percentile(50.0)),
                    number_text(found.percentile(95.0)),
                    number_text(found.percentile(99.0)),
                    number_text(cpu),
                    format!("{ratio:.2}"),
                    format!("{cpu_ratio:.2}"),
                ]);
            }
        }
    }
    report::aligned(rows, &[0, 1])
}

fn figures(lanes: &[Lane], plan: &[(usize, usize)]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for verb in VERBS {
        for (at_once, _) in plan {
            for lane in lanes {
                let found = lane.found(*at_once, verb);
                let what = format!("{verb}, {at_once} at once, {}", lane.name);
                for (unit, percent) in [("p50 ms", 50.0), ("p95 ms", 95.0), ("p99 ms", 99.0)] {
                    figures.push(Figure::less(&what, unit, found.percentile(percent)));
                }
                figures.push(Figure::less(&what, "CPU ms", found.each(found.cpu_ms)));
            }
        }
    }
    figures
}

fn requests(lanes: &[Lane], plan: &[(usize, usize)]) -> Sheet {
    let mut figures = Vec::new();
    for lane in lanes.iter().filter(|lane| lane.is_counted) {
        for verb in VERBS {
            for (at_once, _) in plan {
                let found = lane.found(*at_once, verb);
                let what = format!("requests to etcd, {}", lane.name);
                let unit = match (verb, at_once) {
                    ("ADD", 1) => "each ADD alone",
                    ("ADD", 4) => "each of 4 ADDs",
                    ("ADD", 16) => "each of 16 ADDs",
                    ("ADD", _) => "each of 64 ADDs",
                    (_, 1) => "each DEL alone",
                    (_, 4) => "each of 4 DELs",
                    (_, 16) => "each of 16 DELs",
                    (_, _) => "each of 64 DELs",
                };
                let aim = if *at_once == 1 { REQUESTS_ALONE } else { REQUESTS_SHARED };
                let aim = (lane.name == "etcd").then_some(aim);
                figures.push(Figure::less(what, unit, found.each(found.requests)).aim(aim));
            }
        }
    }
    Sheet { title: "What is asked of etcd", table: report::table(&figures), figures }
}

/// The middle of what calls took.
pub(super) fn middle(times: Vec<f64>) -> f64 {
    median(times)
}
