//! The agent's memory, and what a call costs, as the node fills up.

use std::path::Path;

use anyhow::Context;

use crate::Options;
use crate::report::Figure;

use super::calls::middle;
use super::place::{Place, Pod, Way, container_id};

const STEPS: &[usize] = &[0, 100, 1000];
const STEPS_QUICK: &[usize] = &[0, 100];
/// Calls that come together while the node fills up.
const AT_ONCE: usize = 4;
/// Calls one after the other, to see what they cost on a full node.
const PROBES: usize = 30;

pub(super) fn measure(
    options: &Options,
    margay: &Path,
    folder: &Path,
) -> anyhow::Result<Vec<Figure>> {
    let way = Way::Ours {
        margay: margay.to_owned(),
        is_on_etcd: false,
        has_agent: true,
        join_every: None,
    };
    let mut lanes =
        [(Place::new(&way, folder)?, "SQLite"), (Place::new(&Way::Reference, folder)?, "ptp")];
    let steps = if options.quick { STEPS_QUICK } else { STEPS };
    let mut pods: Vec<Vec<Pod>> = vec![Vec::new(), Vec::new()];
    let mut figures = Vec::new();
    for wanted in steps {
        options.say(&format!("a node with {wanted} pods"));
        for ((place, _), pods) in lanes.iter_mut().zip(&mut pods) {
            fill(place, pods, *wanted, "fill")?;
        }
        figures.extend(memory(&lanes[0].0, *wanted)?);
        figures.extend(probe(&lanes, *wanted)?);
    }
    Ok(figures)
}

/// Adds pods to a node until it has so many.
pub(crate) fn fill(
    place: &Place,
    pods: &mut Vec<Pod>,
    wanted: usize,
    name: &str,
) -> anyhow::Result<()> {
    while pods.len() < wanted {
        let first = pods.len();
        for _ in 0..AT_ONCE {
            pods.push(Pod::new()?);
        }
        let new = pods[first..].iter().enumerate();
        let calls: Vec<(String, &Pod)> =
            new.map(|(n, pod)| (container_id(&format!("{name}-{}", first + n)), pod)).collect();
        place.call("ADD", &calls)?;
    }
    Ok(())
}

/// ADD and DEL of one more container, in turn with the reference.
fn probe(lanes: &[(Place, &str); 2], wanted: usize) -> anyhow::Result<Vec<Figure>> {
    let pod = Pod::new()?;
    let mut times = [const { (Vec::new(), Vec::new()) }; 2];
    for run in 0..PROBES {
        for ((place, _), (adds, dels)) in lanes.iter().zip(&mut times) {
            let call = [(container_id(&format!("probe-{wanted}-{run}")), &pod)];
            adds.extend(place.call("ADD", &call)?);
            dels.extend(place.call("DEL", &call)?);
        }
    }
    let mut figures = Vec::new();
    for ((_, name), (adds, dels)) in lanes.iter().zip(times) {
        let what = format!("one more pod beside {wanted}, {name}");
        figures.push(Figure::less(&what, "ADD p50 ms", middle(adds)));
        figures.push(Figure::less(&what, "DEL p50 ms", middle(dels)));
    }
    Ok(figures)
}

fn memory(place: &Place, pods: usize) -> anyhow::Result<Vec<Figure>> {
    let (mut resident, mut share) = (0.0, 0.0);
    for process in place.agent_processes() {
        let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
        let read = |name: &str| -> anyhow::Result<f64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name)).context("rollup")?;
            Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
        };
        resident += read("Rss:")?;
        share += read("Pss:")?;
    }
    let what = format!("agent with {pods} pods, both processes");
    Ok(vec![
        Figure::less(&what, "resident MiB", resident),
        Figure::less(&what, "proportional MiB", share),
    ])
}
