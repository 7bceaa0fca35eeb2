//! What Felix told its dataplane, as an intent.

use std::sync::Arc;

use anyhow::{Context, bail};
use policy::input::PolicyId;
use policy::intent::{Directions, Host, Intent, TierInForce, Workload};
use policy::{End, IpSet, Rule};
use serde_json::Value;

use super::v1::policy_id;
use super::{Filled, Refused, fields};
use crate::corpora::verdicts::{list, read_rule};

/// What a rule has that is not compared, because packets do not see it.
const UNSEEN: [&str; 5] =
    ["rule_id", "http_match", "metadata", "src_service_account_match", "dst_service_account_match"];

/// The set that Istio's ambient mode needs.
const ISTIO: &str = "all-istio-weps";

/// Whether anything of these parts was recorded.
pub(in crate::corpora) fn has_any(expect: &Value, parts: &[&str]) -> bool {
    parts.iter().any(|part| match &expect[*part] {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    })
}

/// Reads what was recorded. What it says of policies beside their rules must hold for ours.
pub(in crate::corpora) fn recorded(expect: &Value, filled: &Filled) -> anyhow::Result<Intent> {
    let refused = filled.refused.values().collect::<Vec<_>>();
    let mut intent = Intent::default();
    for entry in list(&expect["policies"]) {
        let id = read_id(&entry["id"])?;
        // Of what we refuse the rules may be such that nobody can read them.
        let is_refused = refused.contains(&&Refused::Policy(id.clone()));
        let directions = match read_directions(&entry["policy"]) {
            Ok(directions) => directions,
            Err(_) if is_refused => Directions::default(),
            Err(error) => return Err(error),
        };
        if !is_refused {
            check_policy(&id, &entry["policy"], filled)?;
        }
        intent.policies.insert(id, Arc::new(directions));
    }
    for entry in list(&expect["profiles"]) {
        let name = entry["id"]["name"].as_str().context("a profile's name")?.to_owned();
        intent.profiles.insert(name, Arc::new(read_directions(&entry["profile"])?));
    }
    for entry in list(&expect["workload_endpoints"]) {
        let part = |part: &str| entry["id"][part].as_str().unwrap_or_default();
        let name = [part("orchestrator_id"), part("workload_id"), part("endpoint_id")].join("/");
        intent.workloads.insert(name, read_workload(&entry["endpoint"])?);
    }
    for entry in list(&expect["host_endpoints"]) {
        let name = entry["id"]["endpoint_id"].as_str().context("a host's name")?.to_owned();
        intent.hosts.insert(name, read_host(&entry["endpoint"])?);
    }
    for (id, set) in fields(&expect["ip_sets"]).filter(|(id, _)| *id != ISTIO) {
        intent.sets.insert(id.clone(), read_set(id, set)?);
    }
    Ok(intent)
}

fn read_id(value: &Value) -> anyhow::Result<PolicyId> {
    let part = |part: &str| value[part].as_str().unwrap_or_default();
    policy_id(part("kind"), part("namespace"), part("name"))
}

fn check_policy(id: &PolicyId, value: &Value, filled: &Filled) -> anyhow::Result<()> {
    use policy::input::Stage;
    let Some(ours) = filled.cluster.policies.get(id) else { return Ok(()) };
    let is = |field: &str| value[field] == Value::Bool(true);
    let recorded = value["original_selector"].as_str().unwrap_or_default();
    let is_same = value["tier"] == ours.tier.as_str()
        && recorded == ours.selector.canonical()
        && is("untracked") == (ours.stage == Stage::Untracked)
        && is("pre_dnat") == (ours.stage == Stage::PreDnat)
        && value.get("perf_hints").is_some() == ours.is_needed_everywhere;
    if !is_same {
        bail!("policy {id}: ours {ours:?}, recorded {value}");
    }
    Ok(())
}

fn read_directions(value: &Value) -> anyhow::Result<Directions> {
    let rules =
        |field: &str| -> anyhow::Result<Vec<Rule>> { list(&value[field]).map(read_seen).collect() };
    Ok(Directions { ingress: rules("inbound_rules")?, egress: rules("outbound_rules")? })
}

/// A rule, as far as packets see it. A field that nobody reads would be compared by nobody.
pub(in crate::corpora) fn read_seen(value: &Value) -> anyhow::Result<Rule> {
    let mut rule = value.as_object().context("a rule")?.clone();
    rule.retain(|field, _| !UNSEEN.contains(&field.as_str()) && !field.starts_with("original_"));
    if let Some(unknown) = rule.keys().find(|field| !is_read(field)) {
        bail!("a rule has {unknown}");
    }
    rule.entry("action").or_insert_with(|| "deny".into());
    read_rule(&Value::Object(rule))
}

fn is_read(field: &str) -> bool {
    let plain = field.strip_prefix("not_").unwrap_or(field);
    let of_peer = ["src_", "dst_"].iter().find_map(|side| plain.strip_prefix(side));
    let (plain, of_peer) = (plain, of_peer.unwrap_or_default());
    let peers = ["net", "ports", "ip_set_ids", "named_port_ip_set_ids", "ip_port_set_ids"];
    matches!(plain, "action" | "ip_version" | "protocol" | "icmp_type" | "icmp_type_code")
        || peers.contains(&of_peer)
}

fn read_tiers(value: &Value) -> anyhow::Result<Vec<TierInForce>> {
    let policies = |value: &Value| list(value).map(read_id).collect::<anyhow::Result<Vec<_>>>();
    let tier = |tier: &Value| {
        Ok(TierInForce {
            name: tier["name"].as_str().unwrap_or_default().to_owned(),
            end: if tier["default_action"] == "Pass" { End::Pass } else { End::Deny },
            ingress: policies(&tier["ingress_policies"])?,
            egress: policies(&tier["egress_policies"])?,
        })
    };
    list(value).map(tier).collect()
}

fn parsed<T: std::str::FromStr>(values: [&Value; 2]) -> anyhow::Result<Vec<T>>
where
    T::Err: std::fmt::Display,
{
    let texts = values.into_iter().flat_map(list).filter_map(Value::as_str);
    texts.map(|text| text.parse().map_err(|error| anyhow::anyhow!("{text}: {error}"))).collect()
}

fn texts(value: &Value) -> Vec<String> {
    list(value).filter_map(Value::as_str).map(str::to_owned).collect()
}

fn read_workload(value: &Value) -> anyhow::Result<Workload> {
    Ok(Workload {
        interface: value["name"].as_str().unwrap_or_default().to_owned(),
        addresses: parsed([&value["ipv4_nets"], &value["ipv6_nets"]])?,
        allowed_sources: parsed([&value["allow_spoofed_source_prefixes"], &Value::Null])?,
        tiers: read_tiers(&value["tiers"])?,
        profiles: texts(&value["profile_ids"]),
    })
}

fn read_host(value: &Value) -> anyhow::Result<Host> {
    Ok(Host {
        interface: value["name"].as_str().unwrap_or_default().to_owned(),
        addresses: parsed([&value["expected_ipv4_addrs"], &value["expected_ipv6_addrs"]])?,
        tiers: read_tiers(&value["tiers"])?,
        forward: read_tiers(&value["forward_tiers"])?,
        pre_dnat: read_tiers(&value["pre_dnat_tiers"])?,
        untracked: read_tiers(&value["untracked_tiers"])?,
        profiles: texts(&value["profile_ids"]),
        is_rest: false,
    })
}

fn read_set(id: &str, value: &Value) -> anyhow::Result<IpSet> {
    let is_of_ports = id.starts_with("n:") || id.starts_with("svc:");
    if (value["type"] == "IP_AND_PORT") != is_of_ports {
        bail!("set {id} is of type {}", value["type"]);
    }
    let mut set = IpSet::default();
    for member in texts(&value["members"]) {
        set.members.insert(member.parse().map_err(anyhow::Error::msg)?);
    }
    Ok(set)
}
