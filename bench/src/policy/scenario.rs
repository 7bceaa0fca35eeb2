//! A node with 100 pods, 1,000 policies and 10,000 pods elsewhere, for which Calico's own agent was
//! measured as well.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::Options;
use crate::report::{self, Figure, Sheet, median};

use super::changes::{self, Commits, Write};
use super::cluster::{Cluster, Start};
use super::scene::{self, Reach};

pub(super) const N_LOCAL: usize = 100;
pub(super) const N_REMOTE: usize = 10_000;
pub(super) const N_POLICIES: usize = 1000;

const N_CHANGES: usize = 300;
const N_CHANGES_QUICK: usize = 30;
const N_STARTS: usize = 5;
const N_STARTS_QUICK: usize = 1;
const N_WIDE: usize = 10;
const IDLE: Duration = Duration::from_secs(10);
/// After the last change the agent has things to write down.
const SETTLE: Duration = Duration::from_secs(5);

const AIM_COLD_MS: f64 = 300.0;
const AIM_PEAK_MIB: f64 = 40.0;
const AIM_CHANGE_MS: f64 = 5.0;
const AIM_MEMBER_MS: f64 = 1.0;
/// A tenth of what Calico's agent takes.
const AIM_CPU_MS: f64 = 480.0;
const AIM_LINES: f64 = 2680.0;
const AIM_IDLE_PERCENT: f64 = 0.36;

pub(super) fn measure(
    options: &Options,
    margay: &Path,
    folder: &Path,
) -> anyhow::Result<Vec<Sheet>> {
    options.say("a node with 100 pods, in a cluster of 10,000");
    let mut cluster = Cluster::new(margay, folder, (N_LOCAL, N_REMOTE))?;
    let reaches = [
        (Reach::Spread { n_local: N_LOCAL }, "Policy, 10 of 1,000 policies for each of 100 pods"),
        (Reach::All, "Policy, all 1,000 policies for each of 100 pods"),
    ];
    let mut sheets = Vec::new();
    for (reach, title) in reaches {
        options.say(title);
        cluster.set_policies(N_POLICIES, reach)?;
        let mut figures = Vec::new();
        // What an agent does not manage is a result, too: the others go on.
        if let Err(error) = one(options, &mut cluster, &mut figures) {
            options.say(&format!("{title}: NOT MEASURED TO ITS END: {error:#}"));
        }
        let table = report::table(&figures);
        // All of it takes half an hour: whoever waits sees what there is.
        options.say(&format!("{title}:\n{table}"));
        sheets.push(Sheet { title, table, figures });
    }
    Ok(sheets)
}

fn one(options: &Options, cluster: &mut Cluster, figures: &mut Vec<Figure>) -> anyhow::Result<()> {
    starts(options, cluster, figures)?;
    figures.extend(idle(cluster)?);
    changes(options, cluster, figures)?;
    let peak = cluster.peak_mib()?;
    figures.push(Figure::less("after all changes", "peak MiB", peak).aim(AIM_PEAK_MIB));
    Ok(())
}

fn starts(
    options: &Options,
    cluster: &mut Cluster,
    figures: &mut Vec<Figure>,
) -> anyhow::Result<()> {
    let n = if options.quick { N_STARTS_QUICK } else { N_STARTS };
    for (is_cold, what) in [(true, "cold start"), (false, "start on the tables that stand")] {
        options.say(what);
        let starts = (0..n).map(|_| cluster.start(is_cold));
        let starts = starts.collect::<anyhow::Result<Vec<Start>>>()?;
        let of = |part: fn(&Start) -> f64| median(starts.iter().map(part));
        if is_cold {
            let figure = Figure::less(what, "enforced ms", of(|it| it.enforced_ms));
            figures.push(figure.aim(AIM_COLD_MS));
        }
        figures.push(Figure::less(what, "told ms", of(|it| it.told_ms)));
        figures.push(Figure::less(what, "CPU ms", of(|it| it.cpu_ms)).aim(AIM_CPU_MS));
        figures.push(Figure::less(what, "peak MiB", of(|it| it.peak_mib)).aim(AIM_PEAK_MIB));
    }
    let [rules, all] = cluster.n_lines()?.map(|lines| lines as f64);
    figures.push(Figure::less("nft list table", "lines without members", rules).aim(AIM_LINES));
    figures.push(Figure::less("nft list table", "lines", all));
    Ok(())
}

fn idle(cluster: &Cluster) -> anyhow::Result<Vec<Figure>> {
    std::thread::sleep(SETTLE);
    let before = cluster.place.agent_cpu_ms()?;
    std::thread::sleep(IDLE);
    let used = cluster.place.agent_cpu_ms()? - before;
    let percent = used / IDLE.as_secs_f64() / 10.0;
    Ok(vec![Figure::less("idle", "per cent of a core", percent).aim(AIM_IDLE_PERCENT)])
}

fn changes(options: &Options, cluster: &Cluster, figures: &mut Vec<Figure>) -> anyhow::Result<()> {
    let n = if options.quick { N_CHANGES_QUICK } else { N_CHANGES };
    let commits = Commits::follow(cluster)?;
    let sorts: [(&str, f64, Vec<Write>); 5] = [
        ("policy with another port, and back", AIM_CHANGE_MS, ports(cluster, n)?),
        ("policy gone, and back", AIM_CHANGE_MS, policies(cluster, n)),
        ("pod elsewhere with another label, and back", AIM_MEMBER_MS, members(n)?),
        ("pod here with another label, and back", AIM_CHANGE_MS, relabelled(cluster, n)?),
        ("pod here, new, and gone", AIM_CHANGE_MS, endpoints(cluster, n)?),
    ];
    for (what, aim, writes) in sorts {
        options.say(what);
        let found = changes::each(cluster, &commits, writes)?;
        figures.extend(found.figures(what, Some(aim)));
    }
    let what = "one label of 10,100 pods";
    options.say(what);
    let wide = (0..N_WIDE).map(|at| {
        let (key, value) = scene::everyone(if at % 2 == 0 { "b" } else { "a" });
        (key, Some(value))
    });
    figures.extend(changes::each(cluster, &commits, wide)?.figures(what, None));
    Ok(())
}

/// Policies, one after the other, with another port and back.
pub(super) fn ports(cluster: &Cluster, n: usize) -> anyhow::Result<Vec<Write>> {
    let mut writes = Vec::new();
    for (key, value) in cluster.policies.iter().cycle().take(n / 2) {
        writes.push((key.clone(), Some(scene::with_other_port(value)?)));
        writes.push((key.clone(), Some(value.clone())));
    }
    Ok(writes)
}

fn policies(cluster: &Cluster, n: usize) -> Vec<Write> {
    let all = cluster.policies.iter().cycle().take(n / 2);
    all.flat_map(|(key, value)| [(key.clone(), None), (key.clone(), Some(value.clone()))]).collect()
}

/// Pods elsewhere that leave a set, and come back.
fn members(n: usize) -> anyhow::Result<Vec<Write>> {
    let mut writes = Vec::new();
    for number in 0..n / 2 {
        for variant in ["x", ""] {
            let (key, value) = scene::remote(number, variant)?;
            writes.push((key, Some(value)));
        }
    }
    Ok(writes)
}

/// Pods of the node that become one of another team, with other policies.
fn relabelled(cluster: &Cluster, n: usize) -> anyhow::Result<Vec<Write>> {
    let mut writes = Vec::new();
    let keys = cluster.local_keys()?;
    for (at, key) in keys.iter().enumerate().cycle().take(n / 2) {
        let stored = cluster.store.get(key)?.0.context("an endpoint is gone")?.value;
        let other = (at + 1) % keys.len();
        writes.push((key.clone(), Some(scene::labelled(&stored, other, at, "")?)));
        writes.push((key.clone(), Some(stored)));
    }
    Ok(writes)
}

/// Endpoints of the node that come and go; their interfaces are there.
fn endpoints(cluster: &Cluster, n: usize) -> anyhow::Result<Vec<Write>> {
    let mut writes = Vec::new();
    let n_interfaces = 10;
    for number in 0..n / 2 {
        let number = number % n_interfaces;
        let (key, value) = scene::local(number, number)?;
        writes.extend([(key.clone(), Some(value)), (key, None)]);
    }
    for number in 0..n_interfaces {
        // A second scenario finds them there.
        let name = scene::local_interface(number);
        if cluster.run("ip", &["link", "show", &name], "").is_err() {
            cluster.add_interface(&name)?;
        }
    }
    Ok(writes)
}
