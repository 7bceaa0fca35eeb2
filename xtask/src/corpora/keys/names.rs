//! Names, and the small functions beside the keys.

use anyhow::{Context, bail};
use api::keys::ipam::{Block, affinity_labels, affinity_selector};
use api::keys::{AffinityType, Key, policy, value};
use api::names::{self, NameError, WorkloadEndpointParts};
use net::Cidr;
use serde_json::{Map, Value, json};

use super::convert::{Parts, parts_of};
use crate::corpora::{Outcome, expect};

/// What an operation gives, or how it refuses.
type Answer = (Value, Option<String>);

pub(super) fn check(row: &Value) -> anyhow::Result<Outcome> {
    let input = &row["input"];
    let (output, error) = match row["op"].as_str().context("row without op")? {
        "wep_name" => endpoint_name(input),
        "wep_match" => {
            let matches = parts(&input["ids"]).matches(text(input, "name"));
            let error = matches.as_ref().err().map(NameError::to_string);
            (json!({"matches": matches.unwrap_or_default()}), error)
        }
        "wep_parse" => {
            let read = WorkloadEndpointParts::parse(text(input, "name"));
            let error = read.as_ref().err().map(NameError::to_string);
            (json!({"ids": ids(&read.unwrap_or_default())}), error)
        }
        "dash_extract" => {
            let count = input["num"].as_u64().and_then(|num| num.try_into().ok());
            let parts = names::split_name(text(input, "name"), count.context("row without num")?);
            (json!({"parts": parts}), None)
        }
        "wep_v3_to_v1" => {
            let input = &input["input"];
            old_key(names::old_workload_endpoint(text(input, "Namespace"), text(input, "Name")))
        }
        "wep_obj_to_v1" => old_key(names::old_key_of(&input["input"])),
        "status_filename" => match Parts(&input["key"]).key("WorkloadEndpointKey") {
            Some(Key::WorkloadEndpoint(key)) => {
                (json!({"name": names::status_file_name(&key)}), None)
            }
            _ => bail!("row without a workload endpoint"),
        },
        "cidr_to_name" => cidr_name(text(input, "name")),
        "tier" => {
            let tier = text(input, "name");
            let protected = names::is_protected_tier(tier);
            (json!({"or_default": names::tier_or_default(tier), "protected": protected}), None)
        }
        "affinity_labels" => (labels(input), None),
        "affinity_selector" => (selector(&input["key"]), None),
        "block" => (block(input)?, None),
        "ordinal" => return ordinal(row),
        "rule_string" => rule(input)?,
        "policy_string" => return policy_string(row),
        other => bail!("unknown operation {other}"),
    };
    let ours = json!({"output": output, "error": error});
    Ok(expect("answer", &ours, &json!({"output": row["output"], "error": row["error"]})))
}

fn text<'r>(value: &'r Value, field: &str) -> &'r str {
    value[field].as_str().unwrap_or_default()
}

fn parts(ids: &Value) -> WorkloadEndpointParts {
    let part = |name: &str| text(ids, name).to_owned();
    WorkloadEndpointParts {
        node: part("Node"),
        orchestrator: part("Orchestrator"),
        endpoint: part("Endpoint"),
        workload: part("Workload"),
        pod: part("Pod"),
        container_id: part("ContainerID"),
    }
}

fn ids(parts: &WorkloadEndpointParts) -> Value {
    json!({
        "Node": parts.node,
        "Orchestrator": parts.orchestrator,
        "Endpoint": parts.endpoint,
        "Workload": parts.workload,
        "Pod": parts.pod,
        "ContainerID": parts.container_id,
    })
}

fn endpoint_name(input: &Value) -> Answer {
    let parts = parts(&input["ids"]);
    let name = match input["allow_prefix"] == true {
        true => parts.name_prefix(),
        false => parts.name(),
    };
    let error = name.as_ref().err().map(NameError::to_string);
    (json!({"name": name.unwrap_or_default()}), error)
}

fn old_key(key: Result<api::keys::WorkloadEndpointKey, NameError>) -> Answer {
    let error = key.as_ref().err().map(NameError::to_string);
    let key = key.ok().map(|key| parts_of(&Key::WorkloadEndpoint(key)).1);
    (json!({"key": key}), error)
}

fn cidr_name(cidr: &str) -> Answer {
    match Cidr::parse_strict(cidr) {
        Some(cidr) => (json!({"name": names::cidr_to_name(cidr)}), None),
        None => (json!({"name": null}), Some(format!("invalid CIDR address: {cidr}"))),
    }
}

fn labels(input: &Value) -> Value {
    let spec = &input["spec"];
    let mut labels = input.pointer("/metadata/labels").and_then(Value::as_object).cloned();
    let labels = labels.get_or_insert_with(Map::new);
    for (name, value) in affinity_labels(text(spec, "type"), text(spec, "node"), text(spec, "cidr"))
    {
        labels.insert(name.to_owned(), value.into());
    }
    json!({"labels": labels})
}

fn selector(key: &Value) -> Value {
    let some = |name: &str| Some(text(key, name)).filter(|text| !text.is_empty());
    let owner_type = some("AffinityType").map(AffinityType::from_name);
    let family = key["IPVersion"].as_u64().and_then(|version| version.try_into().ok());
    json!({"selector": affinity_selector(owner_type.as_ref(), some("Host"), family)})
}

fn read_block(raw: &Value) -> anyhow::Result<Block> {
    let cidr: Cidr = text(raw, "cidr").parse()?;
    let key = Key::Block { cidr };
    let stored = value::parse(&key, raw.to_string().as_bytes())?;
    let value::Stored::Json(stored) = stored else { bail!("a block is JSON") };
    Block::decode(&stored).map_err(|problems| anyhow::anyhow!("{problems:?}"))
}

fn block(input: &Value) -> anyhow::Result<Value> {
    let block = read_block(input)?;
    let (owner_type, owner) = block.owner().unzip();
    let foreign: Vec<Value> = block
        .foreign_allocations()
        .iter()
        .map(|allocation| json!({"addr": allocation.address, "host": allocation.node}))
        .collect();
    Ok(json!({
        "affinity_type": owner_type.as_ref().map_or("", AffinityType::name),
        "host": owner.unwrap_or_default(),
        "non_affine": if foreign.is_empty() { Value::Null } else { foreign.into() },
        "num_addresses": block.size(),
    }))
}

fn ordinal(row: &Value) -> anyhow::Result<Outcome> {
    let block = read_block(&json!({"cidr": row["input"]["name"]}))?;
    let ordinal = row["input"]["num"].as_u64().context("row without num")?;
    let Some(address) = block.address(usize::try_from(ordinal)?) else {
        // Calico counts on past the end and refuses only on the way back.
        return Ok(expect("in block", &false, &row["error"].is_null()));
    };
    let ours = json!({"ip": address, "back": block.ordinal(address)});
    Ok(expect("answer", &ours, &row["output"]))
}

/// A policy as it comes from the store.
fn read_policy(policy: Value) -> anyhow::Result<Value> {
    let key = Parts(&json!({"Kind": "NetworkPolicy", "Namespace": "n", "Name": "x"}));
    let key = key.key("PolicyKey").context("no policy key")?;
    match value::parse(&key, policy.to_string().as_bytes())? {
        value::Stored::Json(policy) => Ok(policy),
        _ => bail!("a policy is JSON"),
    }
}

fn rule(input: &Value) -> anyhow::Result<Answer> {
    let policy = read_policy(json!({"inbound_rules": [input]}))?;
    Ok((json!({"string": policy::rule_text(&policy["inbound_rules"][0])}), None))
}

fn policy_string(row: &Value) -> anyhow::Result<Outcome> {
    let policy = read_policy(row["input"].clone())?;
    let ours = policy::policy_text(&policy);
    let theirs = text(&row["output"], "string");
    Ok(match expect("text", &ours.as_str(), &theirs) {
        Outcome::Failed(_) if theirs.ends_with("staged_action:0xPTR") => {
            Outcome::Differs("printed-pointer")
        }
        outcome => outcome,
    })
}
