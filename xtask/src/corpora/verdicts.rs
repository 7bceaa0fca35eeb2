//! Verdicts: which packets policies let through, and which rules were met on the way.

mod endpoints;

use std::path::Path;

use anyhow::{Context, bail};
use model::resource::Action;
use net::Protocol;
use policy::{
    Decision, End, HostRules, Icmp, IpSet, IpSets, Judge, Named, Outcome as Fate, Packet, Peer,
    Ports, Rule, Rules, Tier, Verdict,
};
use serde_json::{Value, json};

use super::{Outcome, Row, expect, rows};

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let mut all = Vec::new();
    for case in rows(&dir.join("verdicts.jsonl"))? {
        let name = case["name"].as_str().context("no name")?.to_owned();
        let outcome = check(&case).with_context(|| name.clone())?;
        all.push(Row { name, outcome });
    }
    all.extend(endpoints::run(dir)?);
    Ok(all)
}

/// Every packet of a row is judged, so that one comparison shows them all.
fn check(case: &Value) -> anyhow::Result<Outcome> {
    let sets = ip_sets(&case["ip_sets"])?;
    let rules = &case["rules"];
    let (mut ours, mut recorded) = (Vec::new(), Vec::new());
    for packet in list(&case["packets"]) {
        let verdict = judged(case, &Judge { sets: &sets }, &read_packet(packet)?)?;
        let mut told = json!({ "expect": verdict.as_ref().map_or("no_match", fate) });
        let mut wanted = json!({ "expect": packet["expect"] });
        if let Some(ids) = packet.get("matched_rule_ids") {
            wanted["ids"] = ids.clone();
            let trail = verdict.iter().flat_map(|it| &it.trail);
            let met = trail.map(|decision| id_of(rules, *decision)).collect::<Vec<_>>();
            told["ids"] = met.into_iter().filter(|id| !id.is_null()).collect();
        }
        ours.push(told);
        recorded.push(wanted);
    }
    Ok(expect("packets", &Value::from(ours), &Value::from(recorded)))
}

pub(super) fn fate(verdict: &Verdict) -> &'static str {
    match verdict.outcome {
        Fate::Allow => "allow",
        Fate::Deny => "deny",
    }
}

fn judged(case: &Value, judge: &Judge<'_>, packet: &Packet) -> anyhow::Result<Option<Verdict>> {
    let rules = &case["rules"];
    let is = |name: &str| rules[name] == Value::Bool(true);
    let normal = Rules {
        tiers: tiers(&rules["host_normal_tiers"])?,
        profiles: list(&rules["host_profiles"]).map(named).collect::<anyhow::Result<_>>()?,
    };
    if is("for_xdp") {
        return Ok(judge.untracked(&normal.tiers, packet));
    }
    let host = HostRules {
        pre_dnat: tiers(&rules["host_pre_dnat_tiers"])?,
        forward: tiers(&rules["host_forward_tiers"])?,
        normal: (!is("suppress_normal_host_policy")).then_some(normal),
    };
    let allowed = Verdict { outcome: Fate::Allow, trail: Vec::new() };
    // The tables of a workload's own interface judge for the host as well, where it has any rules.
    let has_host = is("for_host_interface") || case["context"] == "host" || has_host_rules(&host);
    if has_host
        && let Some(verdict) = judge.host(&host, packet)
        && (verdict.outcome == Fate::Deny || is("for_host_interface"))
    {
        return Ok(Some(verdict));
    }
    if is("for_host_interface") {
        return Ok(Some(allowed));
    }
    let workload = Rules {
        tiers: tiers(&rules["tiers"])?,
        profiles: list(&rules["profiles"]).map(named).collect::<anyhow::Result<_>>()?,
    };
    Ok(Some(judge.endpoint(&workload, packet)))
}

fn has_host_rules(host: &HostRules) -> bool {
    let normal = host.normal.as_ref();
    !host.pre_dnat.is_empty()
        || !host.forward.is_empty()
        || normal.is_some_and(|it| !it.tiers.is_empty() || !it.profiles.is_empty())
}

/// The number that the recording has for a rule, or for the end of a tier.
fn id_of(rules: &Value, decision: Decision) -> Value {
    match decision {
        Decision::Policy { tier, policy, rule } => {
            rules["tiers"][tier]["policies"][policy]["rules"][rule]["match_id"].clone()
        }
        Decision::EndOfTier { tier } => rules["tiers"][tier]["end_rule_id"].clone(),
        Decision::Profile { profile, rule } => {
            rules["profiles"][profile]["rules"][rule]["match_id"].clone()
        }
        Decision::NoProfile => rules["no_profile_match_id"].clone(),
    }
}

pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn ip_sets(value: &Value) -> anyhow::Result<IpSets> {
    let mut sets = IpSets::new();
    for (id, members) in value.as_object().context("ip_sets")? {
        let mut set = IpSet::default();
        for member in list(members) {
            let text = member.as_str().context("a member")?;
            set.members.insert(text.parse().map_err(anyhow::Error::msg)?);
        }
        sets.insert(id.clone(), set);
    }
    Ok(sets)
}

fn tiers(value: &Value) -> anyhow::Result<Vec<Tier>> {
    let tier = |tier: &Value| {
        Ok(Tier {
            name: tier["name"].as_str().unwrap_or_default().to_owned(),
            end: if tier["end_action"] == "pass" { End::Pass } else { End::Deny },
            policies: list(&tier["policies"]).map(named).collect::<anyhow::Result<_>>()?,
        })
    };
    list(value).map(tier).collect()
}

fn named(value: &Value) -> anyhow::Result<Named> {
    let name = value["name"].as_str().unwrap_or_default().to_owned();
    let rules = list(&value["rules"]).map(read_rule).collect::<anyhow::Result<_>>()?;
    Ok(Named { name, rules })
}

pub(super) fn read_rule(value: &Value) -> anyhow::Result<Rule> {
    let action = match value["action"].as_str().unwrap_or_default().to_lowercase().as_str() {
        "allow" => Action::Allow,
        "deny" => Action::Deny,
        "pass" | "next-tier" => Action::Pass,
        "log" => Action::Log,
        other => bail!("action {other:?}"),
    };
    let is_ipv4 = value["ip_version"].as_str().map(|version| version == "IPV4");
    Ok(Rule {
        is_ipv4,
        protocol: protocol(&value["protocol"]),
        not_protocol: protocol(&value["not_protocol"]),
        icmp: icmp(value, ""),
        not_icmp: icmp(value, "not_"),
        source: peer(value, "src")?,
        destination: peer(value, "dst")?,
        ..Rule::all(action)
    })
}

fn protocol(value: &Value) -> Option<Protocol> {
    match (value["name"].as_str(), value["number"].as_u64()) {
        (Some(name), _) => Some(Protocol::from(name)),
        (None, number) => Some(Protocol::Number(u8::try_from(number?).ok()?)),
    }
}

fn icmp(rule: &Value, prefix: &str) -> Option<Icmp> {
    let small = |value: &Value| u8::try_from(value.as_u64()?).ok();
    let both = &rule[format!("{prefix}icmp_type_code")];
    match small(&rule[format!("{prefix}icmp_type")]) {
        Some(kind) => Some(Icmp { kind, code: None }),
        None if both.is_object() => {
            let part = |name: &str| small(&both[name]).unwrap_or_default();
            Some(Icmp { kind: part("type"), code: Some(part("code")) })
        }
        None => None,
    }
}

fn peer(rule: &Value, side: &str) -> anyhow::Result<Peer> {
    let field = |name: &str| &rule[name];
    let texts = |name: String| -> Vec<String> {
        list(field(&name)).filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let nets = |name: String| {
        let parsed = texts(name).into_iter().map(|text| text.parse().map_err(anyhow::Error::msg));
        parsed.collect::<anyhow::Result<Vec<net::Cidr>>>()
    };
    let ports = |not: &str| Ports {
        ranges: list(field(&format!("{not}{side}_ports")))
            .map(|range| {
                let end = |name: &str| range[name].as_u64().and_then(|it| u16::try_from(it).ok());
                (end("first").unwrap_or_default(), end("last").unwrap_or_default())
            })
            .collect(),
        named: texts(format!("{not}{side}_named_port_ip_set_ids")),
    };
    Ok(Peer {
        nets: nets(format!("{side}_net"))?,
        not_nets: nets(format!("not_{side}_net"))?,
        sets: texts(format!("{side}_ip_set_ids")),
        not_sets: texts(format!("not_{side}_ip_set_ids")),
        ports: ports(""),
        not_ports: ports("not_"),
        port_sets: texts(format!("{side}_ip_port_set_ids")),
    })
}

pub(super) fn read_packet(value: &Value) -> anyhow::Result<Packet> {
    let address = |name: &str| value[name].as_str().unwrap_or_default().parse();
    let number = |name: &str| value[name].as_u64();
    let port = |name: &str| number(name).and_then(|it| u16::try_from(it).ok());
    let small = |name: &str| number(name).and_then(|it| u8::try_from(it).ok());
    let protocol = small("proto").context("proto")?;
    let has_ports = matches!(protocol, 6 | 17 | 132);
    let before = match value.get("pre_nat_dst") {
        Some(_) => Some((address("pre_nat_dst")?, port("pre_nat_dport").unwrap_or_default())),
        None => None,
    };
    let is = |name: &str| value[name] == Value::Bool(true);
    Ok(Packet {
        source: address("src")?,
        destination: address("dst")?,
        protocol,
        ports: port("sport").zip(port("dport")).filter(|_| has_ports),
        icmp: small("icmp_type").zip(small("icmp_code")),
        before_nat: before,
        is_of_host: is("from_host") || is("to_host"),
    })
}
