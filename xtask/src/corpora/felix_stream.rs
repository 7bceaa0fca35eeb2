//! Whole clusters as stored, and everything that Felix tells its dataplane about them.
//!
//! A row is what concerns policy. Where Felix had more to tell, of routes, tunnels and pools, a
//! second row says that this waits. What it tells for others to read (nodes, the labels of
//! namespaces and service accounts) makes no row.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use policy::intent::Intent;
use serde_json::Value;

use super::felix::{Filled, Reading, Refused, difference, has_any, recorded};
use super::verdicts::list;
use super::{Outcome, Row, rows};

/// The parts of an answer that wait.
const OF_ROUTES: [&str; 6] =
    ["routes", "vteps", "encapsulation", "ipam_pools", "wireguard_endpoints", "global_bgp_config"];

/// What rows wait for.
const ROUTES: &str = "routes and tunnels";
const SETTINGS: &str = "nodes and settings";

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let mut all = Vec::new();
    for case in rows(&dir.join("cases.jsonl"))? {
        let name = case["name"].as_str().context("no name")?.to_owned();
        let outcome = check(&case).with_context(|| name.clone())?;
        let steps = list(&case["steps"]).map(|step| &step["expect"]);
        let mut answers = std::iter::once(&case["expect"]).chain(steps);
        let has_routes = answers.any(|answer| has_any(answer, &OF_ROUTES));
        let rest = Row { name: format!("{name} (routes)"), outcome: Outcome::Waits(ROUTES) };
        match outcome {
            // Nothing of policy in it: the one row that waits says it all.
            Outcome::Waits(_) if has_routes => all.push(rest),
            outcome => {
                all.push(Row { name, outcome });
                all.extend(has_routes.then_some(rest));
            }
        }
    }
    Ok(all)
}

fn check(case: &Value) -> anyhow::Result<Outcome> {
    if case["expect"].is_null() {
        return Ok(Outcome::Waits(SETTINGS));
    }
    let mut filled = filled(case)?;
    let host = case["host"].as_str().context("no host")?;
    let mut steps = vec![compare(&case["expect"], &mut filled, host)?];
    for step in list(&case["steps"]) {
        for entry in list(&step["set"]) {
            store(&mut filled, entry)?;
        }
        for path in list(&step["delete"]).filter_map(Value::as_str) {
            filled.store(path, None, Reading::Valid)?;
        }
        // Felix has left instead of answering.
        if !step["expect"].is_null() {
            steps.push(compare(&step["expect"], &mut filled, host)?);
        }
    }
    let failed = |(at, step): (usize, &Compared)| match step {
        Compared::Unequal(difference) => Some(format!("step {at}: {difference}")),
        _ => None,
    };
    let was_spoofed = case["config"].to_string().contains("\"WorkloadSourceSpoofing\":\"Any\"");
    let asks_to_spoof = filled.cluster.workloads.values().any(|it| !it.allowed_sources.is_empty());
    Ok(match steps.iter().enumerate().find_map(failed) {
        Some(_) if asks_to_spoof && !was_spoofed => Outcome::Differs("spoofing-not-enabled"),
        Some(difference) => Outcome::Failed(difference),
        None if steps.contains(&Compared::Quarantined) => Outcome::Differs("quarantined"),
        None if steps.iter().all(|step| *step == Compared::Empty) => Outcome::Waits(SETTINGS),
        None => Outcome::Passed,
    })
}

/// The cluster of a case before its steps.
pub(super) fn filled(case: &Value) -> anyhow::Result<Filled> {
    let mut filled = Filled::default();
    for entry in list(&case["etcd"]) {
        store(&mut filled, entry)?;
    }
    Ok(filled)
}

fn store(filled: &mut Filled, entry: &Value) -> anyhow::Result<()> {
    let path = entry["key"].as_str().context("no key")?;
    let raw = entry["value"].as_str().context("no value")?;
    filled.store(path, Some(raw.as_bytes()), Reading::Valid)
}

/// How one answer compares.
#[derive(PartialEq, Eq)]
enum Compared {
    /// There is nothing of policy in it, nor in what is stored.
    Empty,
    Equal,
    /// Equal but for what we refuse to take.
    Quarantined,
    Unequal(String),
}

fn compare(expect: &Value, filled: &mut Filled, host: &str) -> anyhow::Result<Compared> {
    let mut ours = filled.intent(host)?;
    let mut theirs = recorded(expect, filled)?;
    let Some(whole) = difference(&ours, &theirs) else {
        let is_empty = filled.cluster.policies.is_empty() && ours == Intent::default();
        return Ok(if is_empty { Compared::Empty } else { Compared::Equal });
    };
    if filled.refused.is_empty() {
        return Ok(Compared::Unequal(whole));
    }
    forget_refused(&mut ours, filled);
    forget_refused(&mut theirs, filled);
    forget_members(&mut theirs, &ours, filled);
    Ok(match difference(&ours, &theirs) {
        Some(difference) => Compared::Unequal(difference),
        None => Compared::Quarantined,
    })
}

/// Takes out what we refuse, and the sets that only that names.
fn forget_refused(intent: &mut Intent, filled: &Filled) {
    let is_refused = |it: Refused| filled.refused.values().any(|refused| *refused == it);
    intent.policies.retain(|id, _| !is_refused(Refused::Policy(id.clone())));
    intent.profiles.retain(|name, _| !is_refused(Refused::Profile(name.clone())));
    intent.workloads.retain(|name, _| !is_refused(Refused::Workload(name.clone())));
    intent.hosts.retain(|name, _| !is_refused(Refused::Host(name.clone())));
    let of_workloads = intent.workloads.values_mut().map(|it| &mut it.tiers);
    let of_hosts = intent.hosts.values_mut();
    let of_hosts = of_hosts
        .flat_map(|it| [&mut it.tiers, &mut it.forward, &mut it.pre_dnat, &mut it.untracked]);
    for tiers in of_workloads.chain(of_hosts) {
        for tier in tiers.iter_mut() {
            tier.ingress.retain(|id| !is_refused(Refused::Policy(id.clone())));
            tier.egress.retain(|id| !is_refused(Refused::Policy(id.clone())));
        }
        tiers.retain(|tier| !tier.ingress.is_empty() || !tier.egress.is_empty());
    }
    let policies = intent.policies.values().chain(intent.profiles.values());
    let rules = policies.flat_map(|it| it.ingress.iter().chain(&it.egress));
    let peers = rules.flat_map(|rule| [&rule.source, &rule.destination]);
    let named = peers.flat_map(|peer| {
        let ports = peer.ports.named.iter().chain(&peer.not_ports.named);
        ports.chain(&peer.sets).chain(&peer.not_sets).chain(&peer.port_sets)
    });
    let named = named.cloned().collect::<BTreeSet<_>>();
    intent.sets.retain(|id, _| named.contains(id));
}

/// Takes out members that may be those of refused endpoints.
fn forget_members(theirs: &mut Intent, ours: &Intent, filled: &Filled) {
    let is_endpoint = |it: &Refused| matches!(it, Refused::Workload(_) | Refused::Host(_));
    if filled.refused.values().any(is_endpoint) {
        for (id, set) in &mut theirs.sets {
            let ours = ours.sets.get(id);
            set.members.retain(|member| ours.is_some_and(|ours| ours.members.contains(member)));
        }
    }
}
