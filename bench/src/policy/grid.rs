//! Clusters of different sizes.

use std::path::Path;

use crate::Options;
use crate::report::{Figure, Sheet, aligned, median, number_text};

use super::changes::{self, Commits};
use super::cluster::{Cluster, Start};
use super::scenario::ports;
use super::scene::Reach;

/// Pods of the node, all pods, and the numbers of policies.
const FULL: &[(usize, usize, &[usize])] = &[
    (10, 100, &[10, 100, 1000]),
    (100, 1000, &[10, 100, 1000]),
    (10, 10_000, &[1000]),
    (100, 10_000, &[10, 100, 1000]),
    (250, 10_000, &[1000]),
    (250, 100_000, &[10, 100, 1000]),
];
const QUICK: &[(usize, usize, &[usize])] = &[(10, 100, &[10, 100])];
const N_STARTS: usize = 3;
const N_CHANGES: usize = 100;

const HEADINGS: [&str; 9] = [
    "pods",
    "here",
    "policies",
    "enforced ms",
    "CPU ms",
    "peak MiB",
    "change p50 ms",
    "change p99 ms",
    "CPU ms a change",
];

pub(super) fn measure(options: &Options, margay: &Path, folder: &Path) -> anyhow::Result<Sheet> {
    let sizes = if options.quick { QUICK } else { FULL };
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    let mut figures = Vec::new();
    for (n_local, n_pods, policies) in sizes {
        options.say(&format!("{n_pods} pods, {n_local} of them here"));
        let mut cluster = Cluster::new(margay, folder, (*n_local, n_pods - n_local))?;
        for n_policies in *policies {
            options.say(&format!("{n_pods} pods, {n_policies} policies"));
            cluster.set_policies(*n_policies, Reach::Spread { n_local: *n_local })?;
            let starts = (0..N_STARTS).map(|_| cluster.start(true));
            let starts = starts.collect::<anyhow::Result<Vec<Start>>>()?;
            let of = |part: fn(&Start) -> f64| median(starts.iter().map(part));
            let commits = Commits::follow(&cluster)?;
            let found = changes::each(&cluster, &commits, ports(&cluster, N_CHANGES)?)?;
            let numbers = [
                of(|it| it.enforced_ms),
                of(|it| it.cpu_ms),
                of(|it| it.peak_mib),
                found.at(50.0),
                found.at(99.0),
                found.cpu_ms,
            ];
            let what = format!("{n_pods} pods, {n_local} here, {n_policies} policies");
            let named = HEADINGS[3..].iter().zip(numbers);
            figures.extend(named.map(|(unit, value)| Figure::less(&what, unit, value)));
            let sizes = [*n_pods, *n_local, *n_policies].map(whole);
            let row: Vec<String> = sizes.into_iter().chain(numbers.map(number_text)).collect();
            options.say(&row.join(" | "));
            rows.push(row);
        }
    }
    Ok(Sheet { title: "Policy, by size", table: aligned(rows, &[]), figures })
}

fn whole(number: usize) -> String {
    if number < 100 { number.to_string() } else { number_text(number as f64) }
}
