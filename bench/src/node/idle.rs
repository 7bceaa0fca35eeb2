//! What an agent costs while nothing changes: the join of its witnesses is all that is left to do.

use std::path::Path;
use std::time::Duration;

use crate::Options;
use crate::report::Figure;

use super::place::{Place, Pod, Way, container_id};
use super::weight::fill;

const PODS: usize = 250;
const PODS_QUICK: usize = 20;
const SECONDS: u64 = 120;
const SECONDS_QUICK: u64 = 10;
/// After the last change the agent has things to write down.
const SETTLE: Duration = Duration::from_secs(10);

/// How often each agent joins; none for as often as it does by itself.
const EVERY: &[(Option<u64>, &str)] =
    &[(Some(0), "never"), (None, "as by default"), (Some(1), "every second")];

pub(super) fn measure(
    options: &Options,
    margay: &Path,
    folder: &Path,
) -> anyhow::Result<Vec<Figure>> {
    let (n_pods, seconds) = match options.quick {
        true => (PODS_QUICK, SECONDS_QUICK),
        false => (PODS, SECONDS),
    };
    let mut lanes: Vec<(Place, Vec<Pod>, String)> = Vec::new();
    for (join_every, name) in EVERY {
        options.say(&format!("an agent with {n_pods} pods that joins {name}"));
        let way = Way::Ours {
            margay: margay.to_owned(),
            is_on_etcd: false,
            has_agent: true,
            join_every: *join_every,
        };
        let place = Place::new(&way, folder)?;
        let mut pods = Vec::new();
        fill(&place, &mut pods, n_pods, &container_id(name))?;
        lanes.push((place, pods, format!("idle agent with {n_pods} pods, join {name}")));
    }
    std::thread::sleep(SETTLE);
    options.say(&format!("{seconds} s of nothing"));
    let before: Vec<f64> =
        lanes.iter().map(|(place, ..)| place.cpu_ms()).collect::<anyhow::Result<_>>()?;
    std::thread::sleep(Duration::from_secs(seconds));
    let mut figures = Vec::new();
    for ((place, _, what), before) in lanes.iter().zip(before) {
        let used = place.cpu_ms()? - before;
        figures.push(Figure::less(what, "CPU ms a minute", used * 60.0 / seconds as f64));
    }
    Ok(figures)
}
