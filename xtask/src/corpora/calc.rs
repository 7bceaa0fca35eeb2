//! Datastore states of the calculation graph's own tests, one by one and along paths.
//!
//! A row is what concerns policy; what the states say of routes, tunnels, migrations and Istio
//! waits, and the states that are about nothing else are one row that waits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use policy::Member;
use policy::input::{PolicyId, Stage};
use policy::intent::{Host, Intent, TierInForce, Workload};
use serde_json::{Value, json};

use super::felix::{Filled, difference, has_any, recorded};
use super::verdicts::list;
use super::{Outcome, Row, expect, rows};

/// The node that all states are computed for.
const HOST: &str = "localhostname";

/// The parts of what the tests say that wait.
const LATER: [&str; 7] = [
    "encapsulation",
    "host_metadata",
    "live_migration_roles",
    "routes",
    "vteps",
    "wireguard_endpoints",
    "wireguard_endpoints_v6",
];

type States = BTreeMap<String, Value>;

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let by_id = |state: Value| Some((state["id"].as_str()?.to_owned(), state));
    let states = rows(&dir.join("states.jsonl"))?.into_iter().filter_map(by_id);
    let states = states.collect::<States>();
    let mut all = Vec::new();
    for (id, state) in &states {
        let outcome = alone(state).with_context(|| id.clone())?;
        all.push(Row { name: format!("states/{id}"), outcome });
    }
    for sequence in rows(&dir.join("sequences.jsonl"))? {
        let name = format!("sequences/{}", sequence["name"].as_str().context("no name")?);
        let outcome = walk(&sequence, &states).with_context(|| name.clone())?;
        all.push(Row { name, outcome });
    }
    Ok(all)
}

fn entries(state: &Value) -> impl Iterator<Item = (&str, &Value)> {
    list(&state["datastore"]).filter_map(|entry| Some((entry["path"].as_str()?, &entry["value"])))
}

/// A state that is loaded into nothing.
fn alone(state: &Value) -> anyhow::Result<Outcome> {
    let mut filled = Filled::default();
    for (path, value) in entries(state) {
        filled.store_v1(path, Some(value))?;
    }
    compare(&mut filled, state)
}

/// States one after the other, by what changes between them.
fn walk(sequence: &Value, states: &States) -> anyhow::Result<Outcome> {
    let mut filled = Filled::default();
    let mut outcomes = Vec::new();
    let deltas = list(&sequence["deltas"]);
    for (id, deltas) in list(&sequence["states"]).zip(deltas) {
        let id = id.as_str().context("no state")?;
        let state = states.get(id).with_context(|| format!("no state {id}"))?;
        let values = entries(state).collect::<BTreeMap<_, _>>();
        for delta in list(deltas) {
            let path = delta["path"].as_str().context("no path")?;
            let value = match delta["op"] == "delete" {
                true => None,
                false => Some(*values.get(path).with_context(|| format!("no {path} in {id}"))?),
            };
            filled.store_v1(path, value)?;
        }
        match compare(&mut filled, state)? {
            Outcome::Failed(why) => return Ok(Outcome::Failed(format!("at {id}: {why}"))),
            outcome => outcomes.push(outcome),
        }
    }
    // As good as its best part: states that wait only lie on the way.
    let compared = outcomes.iter().position(|it| matches!(it, Outcome::Passed));
    Ok(match compared {
        Some(_) => Outcome::Passed,
        None => outcomes.pop().unwrap_or(Outcome::Waits("nodes and settings")),
    })
}

/// The output for a state, in full as it was observed, and as the tests of it put it.
fn compare(filled: &mut Filled, state: &Value) -> anyhow::Result<Outcome> {
    let mut ours = filled.intent(HOST)?;
    let mut theirs = recorded(&state["observed"], filled)?;
    // Who serves a service is not known yet; that the sets are there is compared.
    let is_of_service = |id: &String| id.starts_with("svc");
    let has_services = theirs.sets.keys().any(is_of_service);
    for (id, set) in theirs.sets.iter_mut().chain(ours.sets.iter_mut()) {
        if is_of_service(id) {
            set.members.clear();
        }
    }
    if let Some(difference) = difference(&ours, &theirs) {
        return Ok(Outcome::Failed(difference));
    }
    let is_empty = filled.cluster.policies.is_empty() && ours == Intent::default();
    let has_routes = has_any(&state["expected"], &["routes", "vteps", "encapsulation"]);
    Ok(match expect("expected", &told(&ours, filled), &wanted(&state["expected"])) {
        Outcome::Passed if has_services => Outcome::Waits("services of Kubernetes"),
        Outcome::Passed if is_empty && has_routes => Outcome::Waits("routes and tunnels"),
        Outcome::Passed if is_empty => Outcome::Waits("nodes and settings"),
        other => other,
    })
}

/// What the tests say about policy.
fn wanted(expected: &Value) -> Value {
    let mut wanted = expected.clone();
    if let Some(parts) = wanted.as_object_mut() {
        parts.retain(|part, _| !LATER.contains(&part.as_str()));
    }
    wanted["counts"] =
        json!([wanted["counts"]["tiers"].clone(), wanted["counts"]["policies"].clone()]);
    if let Some(sets) = wanted["ip_sets"].as_object_mut() {
        sets.remove("all-istio-weps");
        for (_, members) in sets.iter_mut().filter(|(id, _)| id.starts_with("svc")) {
            *members = json!([]);
        }
    }
    wanted
}

/// The same of what we computed.
fn told(intent: &Intent, filled: &Filled) -> Value {
    let cluster = &filled.cluster;
    let at = |stage: Stage| {
        let ids = intent.policies.keys();
        ids.filter(|id| cluster.policies[*id].stage == stage).map(told_id).collect::<Vec<_>>()
    };
    let workloads = |tiers: fn(&Workload) -> &[TierInForce]| {
        intent.workloads.iter().map(move |(key, it)| (key.clone(), told_tiers(tiers(it))))
    };
    let hosts = |tiers: fn(&Host) -> &[TierInForce]| {
        intent.hosts.iter().map(move |(key, it)| (key.clone(), told_tiers(tiers(it))))
    };
    let order = |of_workload, of_host| {
        workloads(of_workload).chain(hosts(of_host)).collect::<BTreeMap<_, _>>()
    };
    let sets = intent.sets.iter().map(|(id, set)| {
        let members = set.members.iter().map(told_member).collect::<BTreeSet<_>>();
        (id.clone(), json!(members))
    });
    json!({
        "active_policies": intent.policies.keys().map(told_id).collect::<Vec<_>>(),
        "active_profiles": intent.profiles.keys().collect::<Vec<_>>(),
        "counts": [cluster.tiers.len(), cluster.policies.len()],
        "endpoint_policy_order": order(|it| &it.tiers, |it| &it.tiers),
        "endpoint_pre_dnat_policy_order": order(|_| &[], |it| &it.pre_dnat),
        "endpoint_untracked_policy_order": order(|_| &[], |it| &it.untracked),
        "ip_sets": sets.collect::<BTreeMap<_, _>>(),
        "pre_dnat_policies": at(Stage::PreDnat),
        "untracked_policies": at(Stage::Untracked),
    })
}

fn told_id(id: &PolicyId) -> Value {
    let mut told = json!({ "kind": id.kind.name(), "name": id.name });
    if !id.namespace.is_empty() {
        told["namespace"] = json!(id.namespace);
    }
    told
}

fn told_tiers(tiers: &[TierInForce]) -> Value {
    let ids = |ids: &[PolicyId]| ids.iter().map(told_id).collect::<Vec<_>>();
    let tier = |tier: &TierInForce| {
        let (ingress, egress) = (ids(&tier.ingress), ids(&tier.egress));
        json!({ "egress": egress, "ingress": ingress, "tier": tier.name })
    };
    tiers.iter().map(tier).collect()
}

fn told_member(member: &Member) -> String {
    match member {
        Member::Net(net) => net.to_string(),
        Member::Port { address, protocol, port } => {
            let name = match protocol {
                17 => "udp",
                132 => "sctp",
                _ => "tcp",
            };
            format!("{address},{name}:{port}")
        }
    }
}
