//! Verdicts about endpoints of whole clusters: from what is stored to the rule that decides.
//!
//! The cluster is the case of the same name of the topic felix-stream.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use model::resource::Direction;
use policy::input::PolicyId;
use policy::intent::{Intent, TierInForce, Workload};
use policy::{Decision, Judge, Packet, Verdict};
use serde_json::{Value, json};

use super::{fate, list, read_packet};
use crate::corpora::felix::Refused;
use crate::corpora::{Outcome, Row, expect, felix_stream, rows};

pub(super) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let rows_of_checks = rows(&dir.join("endpoint-verdicts.jsonl"))?;
    let cases = rows(&dir.join("../felix-stream/cases.jsonl"))?;
    let by_name = |case: Value| Some((case["name"].as_str()?.to_owned(), case));
    let cases = cases.into_iter().filter_map(by_name).collect::<BTreeMap<_, _>>();
    let mut all = Vec::new();
    for row in rows_of_checks {
        let name = row["name"].as_str().context("no name")?.to_owned();
        let outcome = match cases.get(&name) {
            Some(case) => check(&row, case).with_context(|| name.clone())?,
            None => Outcome::Waits("the cluster of the same name in felix-stream"),
        };
        all.push(Row { name: format!("endpoints/{name}"), outcome });
    }
    Ok(all)
}

fn check(row: &Value, case: &Value) -> anyhow::Result<Outcome> {
    let mut filled = felix_stream::filled(case)?;
    let intent = filled.intent(case["host"].as_str().context("no host")?)?;
    let (mut ours, mut recorded) = (Vec::new(), Vec::new());
    let mut is_quarantined = false;
    for check in list(&row["checks"]) {
        let endpoint = check["endpoint"].as_str().context("no endpoint")?;
        if filled.refused.values().any(|it| *it == Refused::Workload(endpoint.to_owned())) {
            is_quarantined = true;
            continue;
        }
        let workload = intent.workloads.get(endpoint).with_context(|| endpoint.to_owned())?;
        let direction = match check["direction"].as_str() {
            Some("ingress") => Direction::Ingress,
            _ => Direction::Egress,
        };
        let packet = read_packet(check)?;
        let verdict = judged(&intent, workload, direction, &packet);
        let decided = verdict.decided_by().context("nothing decided")?;
        let mut told = json!({
            "expect": fate(&verdict),
            "decided_by": told(decided, workload, direction),
        });
        let mut wanted = json!({ "expect": check["expect"], "decided_by": check["decided_by"] });
        if let Some(expect) = check.get("expect_if_staged_enforced") {
            wanted["if_enforced"] = expect.clone();
            let enforced = judged(&enforced(&intent), &promoted(workload), direction, &packet);
            told["if_enforced"] = json!(fate(&enforced));
        }
        ours.push(told);
        recorded.push(wanted);
    }
    // With what we refuse, or with what is left of it, we may deny where Felix allows.
    let is_closed = |(ours, recorded): (&Value, &Value)| {
        ours == recorded || ours["expect"] == "deny" || ours["expect"] == recorded["expect"]
    };
    let is_closed = ours.iter().zip(&recorded).all(is_closed) && !filled.refused.is_empty();
    Ok(match expect("checks", &Value::from(ours), &Value::from(recorded)) {
        Outcome::Passed if is_quarantined => Outcome::Differs("quarantined"),
        Outcome::Failed(_) if is_closed => Outcome::Differs("quarantined"),
        other => other,
    })
}

fn judged(intent: &Intent, workload: &Workload, direction: Direction, packet: &Packet) -> Verdict {
    let rules = intent.rules(&workload.tiers, &workload.profiles, direction);
    Judge { sets: &intent.sets }.endpoint(&rules, packet)
}

/// What decided, as the recording has it.
fn told(decision: Decision, workload: &Workload, direction: Direction) -> Value {
    let tier = |tier: usize| &workload.tiers[tier];
    match decision {
        Decision::Policy { tier: at, policy, rule } => {
            let id = tier(at).enforced(direction).nth(policy);
            let mut told = json!({ "tier": tier(at).name, "rule": rule });
            if let Some(id) = id {
                told["kind"] = json!(id.kind.name());
                told["name"] = json!(id.name);
                if !id.namespace.is_empty() {
                    told["namespace"] = json!(id.namespace);
                }
            }
            told
        }
        Decision::EndOfTier { tier: at } => {
            json!({ "rule": "end-of-tier", "tier": tier(at).name })
        }
        Decision::Profile { profile, rule } => {
            json!({ "profile": workload.profiles[profile], "rule": rule })
        }
        Decision::NoProfile => json!({ "rule": "no-profile-match" }),
    }
}

/// The staged policies as if they were enforced.
fn enforced(intent: &Intent) -> Intent {
    let policies = intent.policies.iter();
    let policies = policies.map(|(id, it)| (as_enforced(id), it.clone())).collect();
    Intent { policies, ..intent.clone() }
}

fn promoted(workload: &Workload) -> Workload {
    let ids = |ids: &[PolicyId]| ids.iter().map(as_enforced).collect();
    let tier = |tier: &TierInForce| TierInForce {
        ingress: ids(&tier.ingress),
        egress: ids(&tier.egress),
        ..tier.clone()
    };
    Workload { tiers: workload.tiers.iter().map(tier).collect(), ..workload.clone() }
}

/// A name that no policy has, so that it does not meet one that is enforced already.
fn as_enforced(id: &PolicyId) -> PolicyId {
    use policy::input::PolicyKind::{GlobalNetworkPolicy, NetworkPolicy};
    if !id.kind.is_staged() {
        return id.clone();
    }
    let kind = if id.namespace.is_empty() { GlobalNetworkPolicy } else { NetworkPolicy };
    PolicyId { kind, name: format!("{} (staged)", id.name), ..id.clone() }
}
