//! Tiers: their names, and what the three that always exist look like.

use serde_json::Value;

use super::metadata::{LABEL_LENGTH_MAX, is_dns_label, not_a_label, too_long};
use super::{Faults, Place};

/// A tier's name is a label value and a part of other names, so it is one DNS label.
pub(super) fn name(place: &Place<'_>, faults: &mut Faults) {
    let Some(metadata) = place.at("metadata") else { return };
    let name = metadata.text("name");
    too_long(&metadata, name, LABEL_LENGTH_MAX, faults);
    if !is_dns_label(name) {
        let form = "a name of lower-case letters, digits and \"-\" without dots";
        not_a_label(&metadata, name, form, faults);
    }
}

/// A tier that Calico itself creates.
struct WellKnown {
    name: &'static str,
    order: f64,
    default_action: &'static str,
}

const WELL_KNOWN: &[WellKnown] = &[
    WellKnown { name: "default", order: 1_000_000.0, default_action: "Deny" },
    WellKnown { name: "kube-admin", order: 1_000.0, default_action: "Pass" },
    WellKnown { name: "kube-baseline", order: 10_000_000.0, default_action: "Pass" },
];

/// The tiers that Calico itself creates keep their order and default action.
pub(super) fn well_known(place: &Place<'_>, faults: &mut Faults) {
    let name = place.at("metadata").map_or("", |metadata| metadata.text("name"));
    if name.is_empty() {
        super::metadata::unnamed(place, faults);
    }
    let Some(tier) = WELL_KNOWN.iter().find(|tier| tier.name == name) else { return };
    let spec = place.value.get("spec");
    let action = spec.and_then(|spec| spec.get("defaultAction")).and_then(Value::as_str);
    if action != Some(tier.default_action) {
        faults.schema(
            place,
            "spec.defaultAction",
            format!("the tier {name} has the default action {}", tier.default_action),
            format!("The '{name}' tier must have default action '{}'", tier.default_action),
        );
    }
    let order = spec.and_then(|spec| spec.get("order")).and_then(Value::as_f64);
    if order != Some(tier.order) {
        faults.schema(
            place,
            "spec.order",
            format!("the tier {name} has the order {}", tier.order),
            format!("{name} tier order must be {}", tier.order),
        );
    }
}
