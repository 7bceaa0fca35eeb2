//! Policies in the form in which programs store them, read at once.
//!
//! What most of them are made of: an order, selectors, protocols with ports, networks. Whatever has
//! rules of its own beside that (services, HTTP, ICMP, host endpoints) goes the way of all objects.

use std::borrow::Cow;

use net::{Cidr, Port, Protocol};
use serde::Deserialize;

use super::{Fields, Stored, is_name, metadata};
use crate::resource::{Action, Direction, Entity, Object, Policy, Rule, RuleMetadata};
use crate::selector::Selector;

/// Longer lists and selectors are looked at by those who know how long they may be.
const LIST_MAX: usize = 32;
const SELECTOR_MAX: usize = 512;
const LABEL_MAX: usize = 63;

/// A policy of the kind, of a namespace or of the whole cluster, if its bytes are as plain as can
/// be.
pub fn plain_policy(kind: &str, bytes: &[u8]) -> Option<Object<Policy>> {
    let (named, spec) = Stored::<StoredSpec<'_>>::of_kind(kind, bytes)?;
    let is_of_namespace = kind == "NetworkPolicy";
    let is_named = !named.name.contains('.')
        && named.name.len() <= LABEL_MAX
        && named.namespace.is_empty() != is_of_namespace;
    if !is_named {
        return None;
    }
    Some(Object { metadata: metadata(named)?, spec: spec.read()? })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StoredSpec<'a> {
    tier: &'a str,
    #[serde(default)]
    order: Option<f64>,
    #[serde(borrow, default)]
    ingress: Vec<Fields<StoredRule<'a>>>,
    #[serde(borrow, default)]
    egress: Vec<Fields<StoredRule<'a>>>,
    #[serde(borrow, default)]
    selector: Cow<'a, str>,
    #[serde(borrow)]
    types: Vec<&'a str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StoredRule<'a> {
    action: &'a str,
    #[serde(default)]
    protocol: Option<&'a str>,
    #[serde(borrow, default)]
    source: Fields<StoredEntity<'a>>,
    #[serde(borrow, default)]
    destination: Fields<StoredEntity<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct StoredEntity<'a> {
    #[serde(borrow)]
    nets: Vec<&'a str>,
    #[serde(borrow)]
    selector: Cow<'a, str>,
    #[serde(borrow)]
    not_selector: Cow<'a, str>,
    #[serde(borrow)]
    namespace_selector: Cow<'a, str>,
    ports: Vec<u16>,
}

impl StoredSpec<'_> {
    fn read(self) -> Option<Policy> {
        let types: Vec<Direction> = match self.types.as_slice() {
            ["Ingress"] => vec![Direction::Ingress],
            ["Egress"] => vec![Direction::Egress],
            ["Ingress", "Egress"] => vec![Direction::Ingress, Direction::Egress],
            _ => return None,
        };
        let is_plain = !self.tier.is_empty()
            && self.tier.len() <= LABEL_MAX
            && is_name(self.tier)
            && self.ingress.len().max(self.egress.len()) <= LIST_MAX;
        let rules = |stored: &[Fields<StoredRule<'_>>]| {
            stored.iter().map(|rule| rule.0.read()).collect::<Option<Vec<Rule>>>()
        };
        is_plain.then_some(Policy {
            tier: self.tier.to_owned(),
            order: self.order,
            selector: selector(&self.selector)?,
            types,
            ingress: rules(&self.ingress)?,
            egress: rules(&self.egress)?,
            ..Policy::default()
        })
    }
}

impl StoredRule<'_> {
    fn read(&self) -> Option<Rule> {
        let action = match self.action {
            "Allow" => Action::Allow,
            "Deny" => Action::Deny,
            "Pass" => Action::Pass,
            _ => return None,
        };
        let protocol: Option<Protocol> = match self.protocol {
            None => None,
            Some(text @ ("TCP" | "UDP" | "SCTP")) => Some(text.parse().ok()?),
            Some(_) => return None,
        };
        let (source, destination) = (self.source.0.read()?, self.destination.0.read()?);
        let mut nets = source.nets.iter().chain(&destination.nets);
        let are_of_one_family = match nets.next() {
            Some(first) => nets.all(|net| net.is_ipv4() == first.is_ipv4()),
            None => true,
        };
        let has_ports = !source.ports.is_empty() || !destination.ports.is_empty();
        let is_plain = are_of_one_family && (protocol.is_some() || !has_ports);
        is_plain.then_some(Rule {
            action,
            ip_version: None,
            protocol,
            not_protocol: None,
            icmp: None,
            not_icmp: None,
            source,
            destination,
            http: None,
            metadata: RuleMetadata::default(),
        })
    }
}

impl StoredEntity<'_> {
    fn read(&self) -> Option<Entity> {
        let net = |text: &&str| {
            let net: Cidr = text.parse().ok()?;
            (net.to_string() == **text && net == net.masked()).then_some(net)
        };
        let is_plain =
            self.nets.len().max(self.ports.len()) <= LIST_MAX && !self.ports.contains(&0);
        is_plain.then_some(Entity {
            nets: self.nets.iter().map(net).collect::<Option<_>>()?,
            selector: selector(&self.selector)?,
            not_selector: selector(&self.not_selector)?,
            namespace_selector: selector(&self.namespace_selector)?,
            ports: self.ports.iter().copied().map(Port::single).collect(),
            ..Entity::default()
        })
    }
}

/// A selector that is not empty, or none.
fn selector(text: &str) -> Option<Option<Selector>> {
    match text {
        "" => Some(None),
        // It has its own places.
        text if text.len() > SELECTOR_MAX || text.contains("global") => None,
        text => Some(Some(text.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests;
