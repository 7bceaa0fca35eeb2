//! Rules: what they say of peers becomes one selector each.

use model::resource;
use model::selector::Selector;
use net::Protocol;

use super::{
    NAMESPACE, OF_NAMESPACE, OF_SERVICE_ACCOUNT, Result, SERVICE_ACCOUNT, Unusable, both, masked,
};
use crate::input::{Entity, Rule, Service};
use crate::packet::protocol_number;
use crate::rule::Icmp;

/// What `all()` means of namespaces in a rule, and `global()`, as texts in the text of a selector.
const HAS: &str = "has(projectcalico.org/namespace)";
const HAS_NOT: &str = "!has(projectcalico.org/namespace)";

/// Rules of a policy in this namespace; of one for the whole cluster if it is empty. They stand in
/// the list of this name.
pub(super) fn rules(
    (list, rules): (&'static str, &[resource::Rule]),
    namespace: &str,
) -> Result<Vec<Rule>> {
    let located = |at| move |unusable| Unusable { rule: Some((list, at)), ..unusable };
    // They are large, and as many stay in memory as there is room for.
    let mut converted = Vec::with_capacity(rules.len());
    for (at, it) in rules.iter().enumerate() {
        converted.push(rule(it, namespace).map_err(located(at))?);
    }
    Ok(converted)
}

fn rule(rule: &resource::Rule, namespace: &str) -> Result<Rule> {
    let is_ipv4 = match rule.ip_version {
        None => None,
        Some(4) => Some(true),
        Some(6) => Some(false),
        Some(other) => {
            return Err(Unusable::new("ipVersion", format!("{other} is neither 4 nor 6")));
        }
    };
    check_ports(rule)?;
    // Nobody here looks into requests: a rule that is for some of them is not one for all traffic.
    if rule.http.as_ref().is_some_and(|it| !(it.methods.is_empty() && it.paths.is_empty())) {
        return Err(Unusable::new("http", "requests are not told apart; it matches nothing"));
    }
    Ok(Rule {
        action: rule.action,
        is_ipv4,
        protocol: protocol(rule.protocol.as_ref(), "protocol")?,
        not_protocol: protocol(rule.not_protocol.as_ref(), "notProtocol")?,
        icmp: icmp(rule.icmp, "icmp")?,
        not_icmp: icmp(rule.not_icmp, "notICMP")?,
        source: entity(&rule.source, namespace)?,
        destination: entity(&rule.destination, namespace)?,
    })
}

/// Ports are those of a protocol that has some.
fn check_ports(rule: &resource::Rule) -> Result<()> {
    if rule.protocol.as_ref().is_some_and(|it| it.to_backend().has_ports()) {
        return Ok(());
    }
    let ports = [
        ("source.ports", &rule.source.ports),
        ("source.notPorts", &rule.source.not_ports),
        ("destination.ports", &rule.destination.ports),
        ("destination.notPorts", &rule.destination.not_ports),
    ];
    match ports.into_iter().find(|(_, ports)| !ports.is_empty()) {
        Some((field, _)) => Err(Unusable::new(field, "the rule's protocol has no ports")),
        None => Ok(()),
    }
}

/// A name that nobody knows is no protocol: not to have it would be true of every packet.
fn protocol(protocol: Option<&Protocol>, field: &'static str) -> Result<Option<Protocol>> {
    match protocol {
        Some(unknown) if protocol_number(unknown).is_none() => {
            Err(Unusable::new(field, format!("there is no protocol {unknown}")))
        }
        protocol => Ok(protocol.map(Protocol::to_backend)),
    }
}

fn icmp(icmp: Option<resource::Icmp>, field: &'static str) -> Result<Option<Icmp>> {
    match icmp.map(|icmp| (icmp.kind, icmp.code)) {
        None | Some((None, None)) => Ok(None),
        Some((Some(kind), code)) => Ok(Some(Icmp { kind, code })),
        Some((None, Some(_))) => Err(Unusable::new(field, "a code needs its type")),
    }
}

fn entity(entity: &resource::Entity, namespace: &str) -> Result<Entity> {
    let service = entity.services.as_ref().filter(|service| !service.name.is_empty());
    Ok(Entity {
        nets: masked(&entity.nets),
        not_nets: masked(&entity.not_nets),
        selector: peers(entity, namespace)?,
        not_selector: entity.not_selector.clone(),
        service: service
            .map(|it| Service { namespace: it.namespace.clone(), name: it.name.clone() }),
        ports: entity.ports.clone(),
        not_ports: entity.not_ports.clone(),
    })
}

/// One selector for all that a rule says of a peer's labels, namespace and service account.
fn peers(entity: &resource::Entity, namespace: &str) -> Result<Option<Selector>> {
    let accounts = entity.service_accounts.as_ref().and_then(|accounts| {
        let labelled = accounts.selector.as_ref();
        let labelled = labelled.map(|selector| selector.prefixed(OF_SERVICE_ACCOUNT));
        let names = accounts.names.iter().map(String::as_str);
        let named = (!accounts.names.is_empty()).then(|| Selector::is_in(SERVICE_ACCOUNT, names));
        both(labelled, named)
    });
    let selector = both(accounts, entity.selector.clone());
    let scope = match &entity.namespace_selector {
        Some(namespaces) => {
            let text = namespaces.prefixed(OF_NAMESPACE).canonical().replace("all()", HAS);
            Some(text.replace("global()", HAS_NOT).parse()?)
        }
        None if selector.is_none() && entity.not_selector.is_none() => None,
        None => (!namespace.is_empty()).then(|| Selector::equals(NAMESPACE, namespace)),
    };
    Ok(both(scope, selector))
}
