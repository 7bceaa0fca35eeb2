//! One rule of a policy or profile: ports, nets, services, ICMP and HTTP.

use std::collections::BTreeSet;

use net::{Cidr, Port};
use serde_json::Value;

use super::policy::GLOBAL_MISPLACED;
use super::scalar::{is_protocol, read_port, read_protocol};
use super::{Faults, Place};

/// The sides of a rule and their fields, with what Calico calls them.
type Sides = [(&'static str, [(&'static str, &'static str); 2]); 2];

const PORTS: Sides = [
    ("source", [("ports", "Source.Ports"), ("notPorts", "Source.NotPorts")]),
    ("destination", [("ports", "Destination.Ports"), ("notPorts", "Destination.NotPorts")]),
];

const NETS: Sides = [
    ("source", [("nets", "Source.Nets"), ("notNets", "Source.NotNets")]),
    ("destination", [("nets", "Destination.Nets"), ("notNets", "Destination.NotNets")]),
];

/// Numeric ports need a protocol, and it must be one that has ports.
pub(super) fn ports_need_protocol(rule: &Place<'_>, faults: &mut Faults) {
    let protocol = rule.value.get("protocol").and_then(read_protocol);
    for (side, fields) in PORTS {
        let Some(entity) = rule.at(side) else { continue };
        for (field, calico_field) in fields {
            let ports = entity.list(field);
            let is_name = |port: &Value| matches!(read_port(port), Some(Port::Name(_)));
            let reason = match &protocol {
                None if !ports.iter().all(is_name) => {
                    "rules with numeric port or port range must set protocol to TCP or UDP or SCTP"
                }
                Some(protocol) if !ports.is_empty() && !protocol.has_ports() => {
                    "rules that specify ports must set protocol to TCP or UDP or SCTP"
                }
                _ => continue,
            };
            faults.note(
                entity.path_of(field),
                "a rule with ports needs the protocol TCP, UDP or SCTP",
                (calico_field, entity.printed_field(field)),
                reason,
            );
        }
    }
}

/// The prefixes of a rule are of one IP version, that of the rule if it names one, and no
/// negated prefix covers everything.
pub(super) fn nets_agree(rule: &Place<'_>, faults: &mut Faults) {
    let wanted = rule.value.get("ipVersion").and_then(Value::as_i64);
    let mut seen = Versions::default();
    for (side, fields) in NETS {
        let Some(entity) = rule.at(side) else { continue };
        for (field, calico_field) in fields {
            let here = read_nets(&entity, field, calico_field, faults);
            if wanted.is_some_and(|wanted| here.v4 && wanted != 4 || here.v6 && wanted != 6) {
                // Calico prints these whichever field it blames.
                let source = rule.at("source");
                let nets = source.map_or("[]".to_owned(), |source| source.printed_list("nets"));
                faults.note(
                    entity.path_of(field),
                    "the rule's ipVersion is another than that of these prefixes",
                    (calico_field, nets),
                    "rule IP version doesn't match CIDR version",
                );
            }
            let mixes = here.v4 && (here.v6 || seen.v6) || here.v6 && seen.v4;
            if mixes {
                faults.note(
                    entity.path_of(field),
                    "a rule matches IPv4 or IPv6 prefixes, not both",
                    (calico_field, entity.printed_field(field)),
                    "rule contains both IPv4 and IPv6 CIDRs",
                );
            }
            seen = Versions { v4: seen.v4 || here.v4, v6: seen.v6 || here.v6 };
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Versions {
    v4: bool,
    v6: bool,
}

fn read_nets(entity: &Place<'_>, field: &str, calico_field: &str, faults: &mut Faults) -> Versions {
    let mut versions = Versions::default();
    for item in entity.each(field) {
        let text = item.value.as_str().unwrap_or_default();
        let Some(cidr) = Cidr::parse_strict(text) else {
            let message = format!("\"{text}\" is not a prefix such as 10.0.0.0/8");
            faults.note(&item.path, message, (calico_field, text.to_owned()), "invalid CIDR");
            continue;
        };
        versions.v4 |= cidr.is_ipv4();
        versions.v6 |= !cidr.is_ipv4();
        // Calico recognises the IPv4 one by its text.
        let is_everything = match cidr.is_ipv4() {
            true => text == "0.0.0.0/0",
            false => cidr.prefix_len() == 0,
        };
        if field == "notNets" && is_everything {
            faults.note(
                &item.path,
                format!("nothing is outside of {text}, so the rule could never match"),
                (calico_field, text.to_owned()),
                "catch-all CIDR in negation creates logical contradiction (matches no traffic)",
            );
        }
    }
    versions
}

/// `global()` is the whole namespace selector or no part of it.
pub(super) fn global_stands_alone(entity: &Place<'_>, faults: &mut Faults) {
    let selector = entity.text("namespaceSelector");
    if selector.contains("global(") && !is_only_global(selector) {
        faults.note(
            entity.path_of("namespaceSelector"),
            "global() cannot be combined with other terms",
            ("NamespaceSelector field", selector.to_owned()),
            "global() cannot be combined with other selectors",
        );
    }
}

fn is_only_global(selector: &str) -> bool {
    let trimmed = selector.trim_matches([' ', '\t']);
    let Some(rest) = trimmed.strip_prefix("global(") else { return false };
    rest.trim_start_matches([' ', '\t']) == ")"
}

/// No HTTP method is named twice.
pub(super) fn http_methods(http: &Place<'_>, faults: &mut Faults) {
    let methods = http.each("methods");
    let distinct: BTreeSet<&str> = methods.iter().filter_map(|item| item.value.as_str()).collect();
    if distinct.len() != methods.len() {
        let printed = http.printed_field("methods");
        let reason = format!("Invalid methods (duplicates): {printed}");
        let message = "a method is there twice";
        faults.note(http.path_of("methods"), message, ("Methods", printed), reason);
    }
}

/// A path match is an exact path or a prefix, and looks like a path.
pub(super) fn http_paths(http: &Place<'_>, faults: &mut Faults) {
    // Calico stops at the first bad path.
    for path in http.each("paths") {
        let (exact, prefix) = (path.text("exact"), path.text("prefix"));
        let text = if exact.is_empty() { prefix } else { exact };
        let (message, reason) = if !exact.is_empty() && !prefix.is_empty() {
            let reason = "Invalid path match. Both 'exact' and 'prefix' are set";
            ("exact and prefix exclude each other", reason.to_owned())
        } else if text.is_empty() {
            let reason = "Invalid path match. Either 'exact' or 'prefix' must be set";
            ("a path needs exact or prefix", reason.to_owned())
        } else if !text.starts_with('/') || text.contains(['?', ' ', '#']) {
            let reason =
                format!("Invalid path {text}. (must start with `/` and not contain `?` or `#`");
            ("a path starts with \"/\" and has no \"?\", \"#\" or space", reason)
        } else {
            continue;
        };
        faults.note(&path.path, message, ("Paths", printed_paths(http)), reason);
        return;
    }
}

/// The paths of an HTTP match as Calico prints them.
pub(super) fn printed_paths(http: &Place<'_>) -> String {
    let paths = http.each("paths");
    let paths: Vec<String> =
        paths.iter().map(|path| path.printed_struct(&["exact", "prefix"])).collect();
    format!("[{}]", paths.join(" "))
}

/// HTTP is matched on allowed TCP only.
pub(super) fn http_needs(rule: &Place<'_>, faults: &mut Faults) {
    if !rule.has("http") {
        return;
    }
    if rule.at("protocol").is_some_and(|protocol| !is_protocol(protocol.value, "TCP", 6)) {
        let reason = "rules with HTTP match must have protocol TCP or unset";
        faults.schema(rule, "protocol", "an HTTP match needs the protocol TCP", reason);
    }
    if rule.text("action") != "Allow" {
        let reason = "HTTP match is only valid on Allow rules";
        faults.schema(rule, "http", "an HTTP match needs the action Allow", reason);
    }
}

/// A service brings its own ports.
pub(super) fn services_without_ports(rule: &Place<'_>, faults: &mut Faults) {
    let destination = rule.at("destination").filter(|entity| entity.has("services"));
    if destination.is_some_and(|entity| entity.has_items("ports") || entity.has_items("notPorts")) {
        let reason = "ports and notPorts cannot be specified with services";
        let message = "a service brings its own ports; remove ports and notPorts";
        faults.schema(rule, "destination", message, reason);
    }
}

fn is_icmp(protocol: &Value) -> bool {
    is_protocol(protocol, "ICMP", 1)
}

fn is_icmpv6(protocol: &Value) -> bool {
    is_protocol(protocol, "ICMPv6", 58)
}

/// ICMP types and codes are those of an ICMP protocol.
pub(super) fn icmp_protocol(rule: &Place<'_>, faults: &mut Faults) {
    let is_either = |place: Place<'_>| is_icmp(place.value) || is_icmpv6(place.value);
    if rule.has("icmp") && !rule.at("protocol").is_some_and(is_either) {
        let reason = "ICMP fields require protocol to be ICMP or ICMPv6";
        faults.schema(rule, "icmp", "icmp needs the protocol ICMP or ICMPv6", reason);
    }
}

/// ICMP is IPv4, ICMPv6 is IPv6.
pub(super) fn icmp_version(rule: &Place<'_>, faults: &mut Faults) {
    let Some(version) = rule.value.get("ipVersion").and_then(Value::as_i64) else { return };
    for field in ["protocol", "notProtocol"] {
        let Some(protocol) = rule.at(field) else { continue };
        if is_icmp(protocol.value) && version != 4 {
            let reason = "protocol ICMP requires ipVersion 4";
            faults.schema(rule, "ipVersion", "the protocol ICMP needs ipVersion 4", reason);
        }
        if is_icmpv6(protocol.value) && version != 6 {
            let reason = "protocol ICMPv6 requires ipVersion 6";
            faults.schema(rule, "ipVersion", "the protocol ICMPv6 needs ipVersion 6", reason);
        }
    }
}

/// A code means something only within a type.
pub(super) fn icmp_code_needs_type(icmp: &Place<'_>, faults: &mut Faults) {
    if icmp.has("code") && !icmp.has("type") {
        let reason = "ICMP code specified without an ICMP type";
        faults.schema(icmp, "code", "an ICMP code needs a type", reason);
    }
}

/// `global()` is for namespace selectors.
pub(super) fn selector_without_global(entity: &Place<'_>, faults: &mut Faults) {
    if entity.text("selector").contains("global(") {
        let message = "global() works only as the namespaceSelector of a rule";
        faults.schema(entity, "selector", message, GLOBAL_MISPLACED);
    }
}

/// Services stand alone: they cannot be narrowed by anything else about the peer.
pub(super) fn services_alone(entity: &Place<'_>, faults: &mut Faults) {
    let Some(services) = entity.at("services") else { return };
    match services.value.get("name").and_then(Value::as_str) {
        Some("") => {
            let reason = "services must specify a service name";
            faults.schema(entity, "services.name", "services needs the name of one", reason);
        }
        Some(_) => {}
        None => {
            let reason = "no such key: name evaluating rule: services must specify a service name";
            faults.schema(entity, "services.name", "services needs the name of one", reason);
        }
    }
    let has_text = |field: &str| !entity.text(field).is_empty();
    let clashes = [
        ("NamespaceSelector", "namespaceSelector", has_text("namespaceSelector")),
        ("ServiceAccounts", "serviceAccounts", entity.has("serviceAccounts")),
        ("Selector/NotSelector", "selector", has_text("selector") || has_text("notSelector")),
        ("Nets/NotNets", "nets", entity.has_items("nets") || entity.has_items("notNets")),
    ];
    for (name, field, clashing) in clashes {
        if clashing {
            let reason = format!("cannot specify {name} and Services on the same rule");
            let message = format!("services cannot be combined with {name}");
            faults.schema(entity, field, message, reason);
        }
    }
}
