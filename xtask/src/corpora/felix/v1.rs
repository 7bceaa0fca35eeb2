//! The form of objects that Felix works on, before us: one key for each, rules with selectors.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, bail};
use api::keys::{Key, ResourceKind};
use model::resource::Action;
use model::selector::Selector;
use net::{Cidr, Port, Protocol};
use policy::input::{
    Change, Entity, Host, Labels, NamedPort, NetworkSet, Policy, PolicyId, PolicyKind, Profile,
    Rule, Service, Stage, Tier, Workload,
};
use policy::{End, Icmp, Rule as Carried};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Filled;
use crate::corpora::verdicts::list;

impl Filled {
    /// Takes a value in the older form, or its removal; what is not of policy means nothing.
    pub(in crate::corpora) fn store_v1(
        &mut self,
        path: &str,
        value: Option<&Value>,
    ) -> anyhow::Result<()> {
        let Some(key) = Key::parse(path) else { return Ok(()) };
        let change = match key {
            Key::WorkloadEndpoint(key) => {
                let name = format!("{}/{}/{}", key.orchestrator, key.workload, key.endpoint);
                let read = value.map(|value| read_workload(value, &key.host)).transpose()?;
                Change::Workload(name, read.map(Arc::new))
            }
            Key::HostEndpoint(key) => {
                let read = value.map(|value| read_host(value, &key.host)).transpose()?;
                Change::Host(key.endpoint, read.map(Arc::new))
            }
            Key::NetworkSet { name } => {
                let read = value.map(read_network_set).transpose()?;
                Change::NetworkSet(name, read.map(Arc::new))
            }
            Key::Tier { name } => Change::Tier(name, value.map(read_tier)),
            Key::Policy(key) => {
                let id = policy_id(&key.kind, &key.namespace, &key.name)?;
                let read = value.map(read_policy).transpose()?;
                Change::Policy(id, read.map(Arc::new))
            }
            Key::ProfileRules { name } => {
                match value {
                    Some(value) => self.profile_rules.insert(name.clone(), read_rules(value)?),
                    None => self.profile_rules.remove(&name),
                };
                self.profile(name)
            }
            Key::ProfileLabels { name } => {
                self.label_profile(&name, value.map(typed).transpose()?);
                self.profile(name)
            }
            // Felix takes the labels of profiles from the objects of the v3 API.
            Key::Resource(key) if key.kind == ResourceKind::Api(api::Kind::Profile) => {
                let labels =
                    value.map(|value| typed(&value["spec"]["labelsToApply"])).transpose()?;
                self.label_profile(&key.name, labels);
                self.profile(key.name)
            }
            _ => return Ok(()),
        };
        self.absorb(change);
        Ok(())
    }

    fn label_profile(&mut self, name: &str, labels: Option<Labels>) {
        match labels {
            Some(labels) => self.profile_labels.insert(name.to_owned(), labels),
            None => self.profile_labels.remove(name),
        };
    }

    /// A profile of labels without rules decides as a missing one; in the v3 API there is none.
    fn profile(&self, name: String) -> Change {
        let labels = self.profile_labels.get(&name).cloned();
        let rules = self.profile_rules.get(&name).cloned();
        if labels.is_none() && rules.is_none() {
            return Change::Profile(name, None);
        }
        let (ingress, egress) = rules.unwrap_or_else(|| (vec![deny()], vec![deny()]));
        let profile = Profile { labels: labels.unwrap_or_default(), ingress, egress };
        Change::Profile(name, Some(Arc::new(profile)))
    }
}

fn typed<T: DeserializeOwned + Default>(value: &Value) -> anyhow::Result<T> {
    match value {
        Value::Null => Ok(T::default()),
        value => Ok(serde_json::from_value(value.clone())?),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The id of a policy from its parts as Felix writes them.
pub(super) fn policy_id(kind: &str, namespace: &str, name: &str) -> anyhow::Result<PolicyId> {
    let kinds = [
        PolicyKind::GlobalNetworkPolicy,
        PolicyKind::NetworkPolicy,
        PolicyKind::StagedGlobalNetworkPolicy,
        PolicyKind::StagedKubernetesNetworkPolicy,
        PolicyKind::StagedNetworkPolicy,
    ];
    let known = kinds.into_iter().find(|known| known.name() == kind);
    let kind = known.with_context(|| format!("a policy of kind {kind:?}"))?;
    Ok(PolicyId { kind, namespace: namespace.to_owned(), name: name.to_owned() })
}

fn read_tier(value: &Value) -> Tier {
    let end = if value["defaultAction"] == "Pass" { End::Pass } else { End::Deny };
    Tier { order: value["order"].as_f64(), end }
}

fn read_ports(value: &Value) -> anyhow::Result<Vec<NamedPort>> {
    let port = |port: &Value| {
        Ok(NamedPort {
            name: text(port, "name").to_owned(),
            protocol: typed::<Option<Protocol>>(&port["protocol"])?.context("a protocol")?,
            port: typed(&port["port"])?,
        })
    };
    list(value).map(port).collect()
}

fn read_workload(value: &Value, node: &str) -> anyhow::Result<Workload> {
    let mut addresses: Vec<Cidr> = typed(&value["ipv4_nets"])?;
    addresses.extend(typed::<Vec<Cidr>>(&value["ipv6_nets"])?);
    Ok(Workload {
        node: node.to_owned(),
        interface: text(value, "name").to_owned(),
        addresses,
        labels: typed(&value["labels"])?,
        profiles: typed(&value["profile_ids"])?,
        ports: read_ports(&value["ports"])?,
        allowed_sources: typed(&value["allow_spoofed_source_ips"])?,
    })
}

fn read_host(value: &Value, node: &str) -> anyhow::Result<Host> {
    let mut addresses: Vec<IpAddr> = typed(&value["expected_ipv4_addrs"])?;
    addresses.extend(typed::<Vec<IpAddr>>(&value["expected_ipv6_addrs"])?);
    Ok(Host {
        node: node.to_owned(),
        interface: text(value, "name").to_owned(),
        addresses,
        labels: typed(&value["labels"])?,
        profiles: typed(&value["profile_ids"])?,
        ports: read_ports(&value["ports"])?,
        is_rest: false,
    })
}

fn read_network_set(value: &Value) -> anyhow::Result<NetworkSet> {
    Ok(NetworkSet {
        nets: typed(&value["nets"])?,
        labels: typed(&value["labels"])?,
        profiles: typed(&value["profile_ids"])?,
    })
}

/// A policy in the older form.
pub(in crate::corpora) fn read_policy(value: &Value) -> anyhow::Result<Policy> {
    let is = |field: &str| value[field] == Value::Bool(true);
    let types: Vec<String> = typed(&value["types"])?;
    let decides = |direction: &str| {
        types.is_empty() || types.iter().any(|it| it.eq_ignore_ascii_case(direction))
    };
    let (ingress, egress) = read_rules(value)?;
    let hints: Vec<String> = typed(&value["performance_hints"])?;
    Ok(Policy {
        tier: api::names::tier_or_default(text(value, "tier")).to_owned(),
        order: value["order"].as_f64(),
        selector: text(value, "selector").parse()?,
        is_for_ingress: decides("ingress"),
        is_for_egress: decides("egress"),
        ingress,
        egress,
        stage: match (is("untracked"), is("pre_dnat")) {
            (true, _) => Stage::Untracked,
            (false, true) => Stage::PreDnat,
            (false, false) => Stage::Normal,
        },
        is_for_forward: is("apply_on_forward"),
        is_needed_everywhere: hints.iter().any(|hint| hint == "AssumeNeededOnEveryNode"),
    })
}

fn read_rules(value: &Value) -> anyhow::Result<(Vec<Rule>, Vec<Rule>)> {
    let rules = |field: &str| list(&value[field]).map(read_rule).collect::<anyhow::Result<_>>();
    Ok((rules("inbound_rules")?, rules("outbound_rules")?))
}

fn deny() -> Rule {
    let Carried { action, is_ipv4, protocol, not_protocol, icmp, not_icmp, .. } =
        Carried::all(Action::Deny);
    let (source, destination) = (Entity::default(), Entity::default());
    Rule { action, is_ipv4, protocol, not_protocol, icmp, not_icmp, source, destination }
}

fn read_rule(value: &Value) -> anyhow::Result<Rule> {
    let action = match text(value, "action").to_lowercase().as_str() {
        "allow" => Action::Allow,
        // Unit tests leave the action out, which no client stores; for them it is filled in, here
        // and in what was recorded.
        "deny" | "" => Action::Deny,
        "pass" | "next-tier" => Action::Pass,
        "log" => Action::Log,
        other => bail!("action {other:?}"),
    };
    let version: Option<u8> = typed(&value["ip_version"])?;
    Ok(Rule {
        action,
        is_ipv4: version.map(|version| version == 4),
        protocol: typed(&value["protocol"])?,
        not_protocol: typed(&value["!protocol"])?,
        icmp: read_icmp(value, "")?,
        not_icmp: read_icmp(value, "!")?,
        source: read_entity(value, "src")?,
        destination: read_entity(value, "dst")?,
    })
}

fn read_icmp(value: &Value, not: &str) -> anyhow::Result<Option<Icmp>> {
    let kind: Option<u8> = typed(&value[format!("{not}icmp_type")])?;
    let code = typed(&value[format!("{not}icmp_code")])?;
    Ok(kind.map(|kind| Icmp { kind, code }))
}

fn read_entity(value: &Value, side: &str) -> anyhow::Result<Entity> {
    let nets = |not: &str| -> anyhow::Result<Vec<Cidr>> {
        let mut nets: Vec<Cidr> = typed(&value[format!("{not}{side}_nets")])?;
        nets.extend(typed::<Option<Cidr>>(&value[format!("{not}{side}_net")])?);
        Ok(nets)
    };
    let selector = |not: &str| -> anyhow::Result<Option<Selector>> {
        let text = value[format!("{not}{side}_selector")].as_str();
        Ok(text.filter(|text| !text.is_empty()).map(str::parse).transpose()?)
    };
    let ports = |not: &str| typed::<Vec<Port>>(&value[format!("{not}{side}_ports")]);
    let service = value[format!("{side}_service")].as_str();
    let namespace = value[format!("{side}_service_ns")].as_str().unwrap_or_default();
    Ok(Entity {
        nets: nets("")?,
        not_nets: nets("!")?,
        selector: selector("")?,
        not_selector: selector("!")?,
        service: service
            .map(|name| Service { namespace: namespace.to_owned(), name: name.to_owned() }),
        ports: ports("")?,
        not_ports: ports("!")?,
    })
}
