//! Single steps of the calculation: order, scan, conversion, and small clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};
use policy::Cluster;
use policy::order::{PolicyOrder, TierOrder};
use policy::scan::{Scanned, SetDefinition, scan_policy};
use policy::{End, Rule};
use serde_json::{Value, json};

use super::felix::{Filled, Reading, difference, has_any, read_policy, read_seen, recorded};
use super::verdicts::list;
use super::{Outcome, Row, expect, rows};

/// What rows wait for.
const KUBERNETES: &str = "policies of Kubernetes";
const ROUTES: &str = "routes and tunnels";

/// The parts of an answer that are about routes.
const PARTS_OF_ROUTES: [&str; 4] = ["routes", "vteps", "encapsulation", "ipam_pools"];

type Check = fn(&str, &Value) -> anyhow::Result<Outcome>;

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let files: [(&str, Check); 4] =
        [("order", order), ("scan", scan), ("convert", conversion), ("graph", graph)];
    let mut all = Vec::new();
    for (file, check) in files {
        for row in rows(&dir.join(format!("{file}.jsonl")))? {
            let name = row["name"].as_str().context("no name")?;
            let outcome = check(name, &row).with_context(|| format!("{file}/{name}"))?;
            all.push(Row { name: format!("{file}/{name}"), outcome });
        }
    }
    Ok(all)
}

fn text<'a>(value: &'a Value, field: &str) -> anyhow::Result<&'a str> {
    value[field].as_str().with_context(|| format!("no {field}"))
}

fn given(value: &Value) -> Option<&Value> {
    Some(value).filter(|value| !value.is_null())
}

/// The order after each step. Whether an update was worth telling is Felix's own business, and so
/// is what it remembers of a tier that is gone.
fn order(_: &str, row: &Value) -> anyhow::Result<Outcome> {
    if row.to_string().contains("\"KubernetesNetworkPolicy\"") {
        return Ok(Outcome::Waits(KUBERNETES));
    }
    let mut filled = Filled::default();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for step in list(&row["steps"]) {
        for entry in list(&step["set"]) {
            filled.store_v1(text(entry, "path")?, given(&entry["value"]))?;
        }
        ours.push(sorted(&filled.cluster));
        let mut recorded = step["sorted"].clone();
        for tier in recorded.as_array_mut().into_iter().flatten() {
            if tier["valid"] == Value::Bool(false) {
                tier["default_action"] = json!("");
            }
        }
        theirs.push(recorded);
    }
    Ok(expect("order", &Value::from(ours), &Value::from(theirs)))
}

fn sorted(cluster: &Cluster) -> Value {
    let of_policies = cluster.policies.values().map(|policy| &policy.tier);
    let names = cluster.tiers.keys().chain(of_policies).collect::<BTreeSet<_>>();
    let tiers = names.iter().map(|name| TierOrder::new(name, cluster.tiers.get(*name)));
    let tiers = tiers.collect::<BTreeSet<_>>();
    let tier = |order: &TierOrder| {
        let of_tier = cluster.policies.iter().filter(|(_, it)| it.tier == order.name());
        let places = of_tier.map(|(id, it)| PolicyOrder::new(it.order, id.clone()));
        let policies = places.collect::<BTreeSet<_>>();
        let tier = cluster.tiers.get(order.name());
        let end = tier.map(|tier| if tier.end == End::Pass { "Pass" } else { "Deny" });
        json!({
            "default_action": end.unwrap_or_default(),
            "policies": policies.iter().map(policy_id).collect::<Vec<_>>(),
            "tier": order.name(),
            "valid": tier.is_some(),
        })
    };
    tiers.iter().map(tier).collect()
}

fn policy_id(order: &PolicyOrder) -> Value {
    let id = order.id();
    let mut told = json!({ "kind": id.kind.name(), "name": id.name });
    if !id.namespace.is_empty() {
        told["namespace"] = json!(id.namespace);
    }
    told
}

fn scan(_: &str, row: &Value) -> anyhow::Result<Outcome> {
    let policy = match read_policy(&row["policy"]) {
        Ok(policy) => policy,
        // An action that is none cannot be stored where we read.
        Err(error) if error.to_string().starts_with("action") => {
            return Ok(Outcome::Differs("quarantined"));
        }
        Err(error) => return Err(error),
    };
    let Scanned { directions, sets } = scan_policy(&policy);
    let told = sets.iter().map(|(id, set)| (id.clone(), definition(id, set)));
    let recorded = list(&row["ip_sets"]).map(|set| Ok((text(set, "id")?.to_owned(), set.clone())));
    let recorded = recorded.collect::<anyhow::Result<BTreeMap<_, _>>>()?;
    let sets = expect("sets", &told.collect::<BTreeMap<_, _>>(), &recorded);
    if matches!(sets, Outcome::Failed(_)) {
        return Ok(sets);
    }
    let message = &row["message"]["policy"];
    if message["original_selector"] != policy.selector.canonical() {
        bail!("selector {}", policy.selector);
    }
    let rules = |field: &str| -> anyhow::Result<Vec<Rule>> {
        list(&message[field]).map(read_seen).collect()
    };
    let theirs = (rules("inbound_rules")?, rules("outbound_rules")?);
    Ok(expect("rules", &(directions.ingress, directions.egress), &theirs))
}

fn definition(id: &str, set: &SetDefinition) -> Value {
    let kind = if set.is_of_ports() { "IP_AND_PORT" } else { "NET" };
    let mut told = json!({ "id": id, "type": kind });
    match set {
        SetDefinition::Selector(selector) => told["selector"] = json!(selector.canonical()),
        SetDefinition::NamedPort { selector, protocol, name } => {
            told["selector"] = json!(selector.canonical());
            told["named_port"] = json!(name);
            told["named_port_protocol"] = json!(protocol.name());
        }
        SetDefinition::Service { service, has_ports } => {
            told["service"] = json!(format!("{}/{}", service.namespace, service.name));
            told["service_include_ports"] = json!(has_ports);
        }
    }
    told
}

/// Stored objects, converted by us and by the recorded program. Its converter does not ask whether
/// a client would have stored them, so here nobody does.
fn conversion(name: &str, row: &Value) -> anyhow::Result<Outcome> {
    match name {
        "ip-pools" | "nodes" => return Ok(Outcome::Waits(ROUTES)),
        "felix-config" | "cluster-info" => return Ok(Outcome::Waits("nodes and settings")),
        "staged-kubernetes" => return Ok(Outcome::Waits(KUBERNETES)),
        _ => {}
    }
    let mut ours = Filled::default();
    for object in list(&row["objects"]) {
        let raw = object["value"].to_string();
        ours.store(text(object, "key")?, Some(raw.as_bytes()), Reading::Typed)?;
    }
    let mut theirs = Filled::default();
    let mut is_quarantined = false;
    for entry in list(&row["v1"]) {
        // One without an interface passes the converter there and is dropped right behind it.
        let is_nowhere = entry["value"]["name"] == "" && entry["value"]["state"] == "active";
        let value = given(&entry["value"]).filter(|_| !is_nowhere);
        match theirs.store_v1(text(entry, "path")?, value) {
            // What has no typed form there has none here.
            Err(_) if !ours.refused.is_empty() => is_quarantined = true,
            result => result?,
        }
    }
    is_quarantined |= ours.refused.values().any(|it| theirs.has(it));
    let refused = &ours.refused;
    let (told, recorded) = (ours.without(refused), theirs.without(refused));
    let (told, recorded) = (told.comparable(), recorded.comparable());
    Ok(match expect("cluster", &told, &recorded) {
        Outcome::Passed if is_quarantined => Outcome::Differs("quarantined"),
        other => other,
    })
}

fn graph(name: &str, row: &Value) -> anyhow::Result<Outcome> {
    let mut filled = Filled::default();
    let host = text(row, "host")?;
    for (index, step) in list(&row["steps"]).enumerate() {
        for entry in list(&step["set"]) {
            let raw = given(&entry["value"]).map(Value::to_string);
            let raw = raw.as_ref().map(String::as_bytes);
            filled.store(text(entry, "key")?, raw, Reading::Valid)?;
        }
        let mut theirs = recorded(&step["expect"], &filled)?;
        let mut ours = filled.intent(host)?;
        if name.starts_with("services/") {
            // Who serves a service is not known yet; that the sets are there is compared.
            for set in theirs.sets.values_mut().chain(ours.sets.values_mut()) {
                set.members.clear();
            }
        }
        if let Some(difference) = difference(&ours, &theirs) {
            return Ok(Outcome::Failed(format!("step {index}: {difference}")));
        }
    }
    let is_of_policy = name.starts_with("active/");
    let has_routes = list(&row["steps"]).any(|step| has_any(&step["expect"], &PARTS_OF_ROUTES));
    Ok(match name.starts_with("services/") {
        true => Outcome::Waits("services of Kubernetes"),
        false if !is_of_policy && has_routes => Outcome::Waits(ROUTES),
        false => Outcome::Passed,
    })
}
