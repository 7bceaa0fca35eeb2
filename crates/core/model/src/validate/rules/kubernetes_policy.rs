//! Staged Kubernetes policies: ports must be such that Calico's rules can express them.

use net::Port;
use serde_json::Value;

use super::policy::extra_field;
use super::{Faults, Place};

/// A staged deletion says nothing else; anything else can be turned into Calico's rules.
pub(super) fn staged(object: &Place<'_>, faults: &mut Faults) {
    let Some(spec) = object.at("spec") else { return };
    if spec.text("stagedAction") == "Delete" {
        deletion_is_bare(&spec, faults);
        return;
    }
    for direction in ["ingress", "egress"] {
        for rule in spec.each(direction) {
            for port in rule.each("ports") {
                ports_can_be_read(&spec, &port, faults);
            }
        }
    }
}

fn deletion_is_bare(spec: &Place<'_>, faults: &mut Faults) {
    let is_empty_selector =
        |selector: Place<'_>| selector.value.as_object().is_some_and(serde_json::Map::is_empty);
    let mut allowed = vec!["stagedAction"];
    if spec.at("podSelector").is_some_and(is_empty_selector) {
        allowed.push("podSelector");
    }
    if let Some(extra) = extra_field(spec, &allowed) {
        faults.note(
            spec.path_of(extra),
            "with stagedAction Delete nothing else may be set",
            ("StagedKubernetesNetworkPolicySpec", spec.printed()),
            "Spec fields should all be zero-value if stagedAction is Delete",
        );
    }
}

fn ports_can_be_read(spec: &Place<'_>, port: &Place<'_>, faults: &mut Faults) {
    let first = match port.value.get("port") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return,
    };
    let text = match port.value.get("endPort").and_then(Value::as_i64) {
        Some(last) => format!("{first}:{last}"),
        None => first,
    };
    if let Err(error) = text.parse::<Port>() {
        faults.note(
            port.path_of("port"),
            format!("\"{text}\" is not a port, a range of ports or the name of one"),
            ("PolicySpec", spec.printed()),
            format!("conversion to stagednetworkpolicy failed: invalid port {text}: {error}"),
        );
    }
}
