//! What packets between two pods of a node cost: through our filter, through a list of as many
//! rules of iptables, and through nothing at all. They take turns, so that all of them meet the
//! same machine.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use kernel::Netns;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::json;

use crate::Options;
use crate::report::{self, Figure, Sheet, aligned, median, number_text};

use super::cluster::Cluster;
use super::trace::{Tracer, WISHES};
use super::traffic::{Ends, Traffic};

const POLICIES: &[usize] = &[0, 100, 1000, 10_000];
const POLICIES_QUICK: &[usize] = &[0, 100];
const WALKED: &[usize] = &[0, 1, 10, 100, 1000, 10_000];
const ROUNDS: usize = 15;
const ROUNDS_QUICK: usize = 3;
const EACH: Duration = Duration::from_millis(150);
/// The ports of the policies begin here; packets go to the last one.
const FIRST_PORT: usize = 20_000;
const AIM_WALKED: f64 = 8.0;

/// A node answers for its pods' next hop only if it has a way out itself.
const UPLINK: &str = "link add up0 type bridge
link set up0 up
address add 172.30.0.1/24 dev up0
route add default via 172.30.0.2 dev up0
";

/// A node with two pods.
struct Lane {
    name: String,
    cluster: Cluster,
    ends: Ends,
    found: Vec<Traffic>,
}

/// What stands between the pods.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Ours(usize),
    Iptables(usize),
}

pub(super) fn measure(
    options: &Options,
    margay: &Path,
    folder: &Path,
) -> anyhow::Result<Vec<Sheet>> {
    let sizes = if options.quick { POLICIES_QUICK } else { POLICIES };
    let mut betweens = vec![Between::Nothing];
    betweens.extend(sizes.iter().flat_map(|n| [Between::Ours(*n), Between::Iptables(*n)]));
    if std::process::Command::new("iptables").arg("--version").output().is_err() {
        options.say("nothing beside iptables, which is not in PATH");
        betweens.retain(|it| !matches!(it, Between::Iptables(_)));
    }
    let mut lanes = Vec::new();
    for between in betweens {
        options.say(&format!("two pods, between them {between:?}"));
        lanes.push(lane(between, margay, folder)?);
    }
    let here = sched_getaffinity(Pid::from_raw(0))?;
    stay_on_one_processor(&here)?;
    let rounds = if options.quick { ROUNDS_QUICK } else { ROUNDS };
    for round in 0..rounds {
        options.say(&format!("packets, round {} of {rounds}", round + 1));
        let n_lanes = lanes.len();
        for turn in 0..n_lanes {
            // Nobody always comes after the same neighbour.
            let lane = &mut lanes[(turn + round) % n_lanes];
            lane.found.push(lane.ends.measure(EACH).with_context(|| lane.name.clone())?);
        }
    }
    sched_setaffinity(Pid::from_raw(0), &here)?;
    let sheet = told(&lanes);
    drop(lanes);
    Ok(vec![sheet, walked(options, margay, folder)?])
}

fn stay_on_one_processor(all: &CpuSet) -> anyhow::Result<()> {
    let mut one = CpuSet::new();
    let first = (0..CpuSet::count()).find(|it| all.is_set(*it).unwrap_or(false));
    one.set(first.context("there is a processor")?)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &one)?)
}

fn lane(between: Between, margay: &Path, folder: &Path) -> anyhow::Result<Lane> {
    let mut cluster = Cluster::bare(margay, folder, 2)?;
    cluster.run("ip", &["-batch", "-"], UPLINK)?;
    let (from, to) = (cluster.address_of(0)?, cluster.address_of(1)?);
    let n = match between {
        Between::Nothing => 0,
        Between::Ours(n) | Between::Iptables(n) => n,
    };
    let (name, stays) = match between {
        Between::Nothing => ("nothing".to_owned(), false),
        Between::Ours(n) => (format!("margay, {n} policies"), true),
        Between::Iptables(n) => (format!("iptables, {n} policies"), false),
    };
    match stays {
        true => {
            cluster.mark_endpoint(1)?;
            cluster.apply(&documents(n))?;
            cluster.start(true)?;
        }
        false => cluster.stop()?,
    }
    if let Between::Iptables(n) = between {
        let mut rules = String::from(
            "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n\
             -A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n",
        );
        for port in (0..n).map(|number| FIRST_PORT + number) {
            for protocol in ["tcp", "udp"] {
                rules += &format!("-A FORWARD -d {to}/32 -p {protocol} --dport {port} -j ACCEPT\n");
            }
        }
        if n > 0 {
            rules += &format!("-A FORWARD -d {to}/32 -j DROP\n");
        }
        cluster.run("iptables-restore", &[], &(rules + "COMMIT\n"))?;
    }
    let port = u16::try_from(FIRST_PORT + n.max(1) - 1)?;
    let space = |number: usize| Netns::open(&cluster.pods[number].path);
    let ends = Ends::new((&space(0)?, from), (&space(1)?, to), port)?;
    Ok(Lane { name, cluster, ends, found: Vec::new() })
}

/// Policies for the second pod, each of which allows one port for TCP and UDP.
fn documents(n: usize) -> String {
    let policy = |number: usize| {
        let allow = |protocol: &str| {
            let ports = [FIRST_PORT + number];
            json!({ "action": "Allow", "protocol": protocol, "destination": { "ports": ports } })
        };
        let policy = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
            "metadata": { "name": format!("policy-{number:05}") },
            "spec": {
                "order": number, "selector": "role == 'server'", "types": ["Ingress"],
                "ingress": [allow("TCP"), allow("UDP")],
            },
        });
        policy.to_string()
    };
    (0..n).map(policy).collect::<Vec<_>>().join("\n---\n")
}

fn told(lanes: &[Lane]) -> Sheet {
    type Part = fn(&Traffic) -> f64;
    let parts: [(&str, Part, bool); 6] = [
        ("CPU us a packet", |it| it.packet_us, true),
        ("CPU us a connection", |it| it.connection_us, true),
        ("CPU us an answer", |it| it.answer_us, true),
        ("packets/s", |it| it.packets_per_second, false),
        ("connections/s", |it| it.connections_per_second, false),
        ("answer p50 us", |it| it.answer_p50_us, false),
    ];
    let mut heading = vec!["between the pods".to_owned()];
    for (unit, _, is_compared) in parts {
        heading.push(unit.to_owned());
        heading.extend(is_compared.then(|| "x".to_owned()));
    }
    heading.push("answer p99 us".to_owned());
    let (mut rows, mut figures) = (vec![heading], Vec::new());
    for lane in lanes {
        let mut row = vec![lane.name.clone()];
        for (unit, part, is_compared) in parts {
            let value = median(lane.found.iter().map(part));
            row.push(number_text(value));
            figures.push(Figure::less(format!("between two pods: {}", lane.name), unit, value));
            if is_compared {
                // Round by round: what slows one of them down slows all of them.
                let rounds = lane.found.iter().zip(&lanes[0].found);
                let ratio = median(rounds.map(|(this, nothing)| part(this) / part(nothing)));
                row.push(format!("{ratio:.2}"));
            }
        }
        row.push(number_text(median(lane.found.iter().map(|it| it.answer_p99_us))));
        rows.push(row);
    }
    Sheet { title: "Packets between two pods of a node", table: aligned(rows, &[0]), figures }
}

/// How many rules the first packet of a connection walks through, and a later one.
fn walked(options: &Options, margay: &Path, folder: &Path) -> anyhow::Result<Sheet> {
    let mut figures = Vec::new();
    let sizes = if options.quick { POLICIES_QUICK } else { WALKED };
    for n in sizes {
        options.say(&format!("rules that a packet walks through, {n} policies"));
        let lane = lane(Between::Ours(*n), margay, folder)?;
        lane.cluster.run("nft", &["-f", "-"], WISHES)?;
        let mut tracer = Tracer::new(&lane.cluster.place.netns)?;
        lane.ends.exchange()?;
        let counts = tracer.walked()?;
        let [first, later @ ..] = counts.as_slice() else { anyhow::bail!("no traces") };
        let most = later.iter().max().context("no traces of later packets")?;
        let what = format!("rules walked through, {n} policies");
        figures.push(Figure::less(&what, "first packet", *first as f64));
        figures.push(Figure::less(&what, "established", *most as f64).aim(AIM_WALKED));
    }
    Ok(Sheet { title: "Rules", table: report::table(&figures), figures })
}
