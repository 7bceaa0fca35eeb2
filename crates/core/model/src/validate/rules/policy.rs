//! Policies as a whole: names, types, what each direction may hold, staged deletion.

use serde_json::Value;

use super::metadata::{is_dns_label, is_dns_name, not_a_label};
use super::policy_rule::printed_paths;
use super::{Faults, Place};

/// The rules of a namespaced policy, staged or not.
pub(super) fn network_policy(place: &Place<'_>, faults: &mut Faults) {
    if let Some(metadata) = place.at("metadata") {
        let name = metadata.text("name");
        if !is_short_name(name) && !is_imported_name(name) {
            let form = "a name of lower-case letters, digits and \"-\" with at most one dot";
            not_a_label(&metadata, name, form, faults);
        }
    }
    if staged_deletion_is_bare(place, faults) {
        return;
    }
    if let Some(spec) = place.at("spec") {
        types_once(&spec, "NetworkPolicySpec.Types", faults);
        directions(&spec, "not allowed in egress rule", faults);
    }
}

/// The rules of a cluster-wide policy, staged or not.
pub(super) fn global_network_policy(place: &Place<'_>, faults: &mut Faults) {
    if let Some(metadata) = place.at("metadata") {
        let name = metadata.text("name");
        if !is_short_name(name) {
            let form = "a name of lower-case letters, digits and \"-\" with at most one dot";
            not_a_label(&metadata, name, form, faults);
        }
    }
    if staged_deletion_is_bare(place, faults) {
        return;
    }
    if let Some(spec) = place.at("spec") {
        types_once(&spec, "GlobalNetworkPolicySpec.Types", faults);
        directions(&spec, "not allowed in egress rules", faults);
        services_name_namespace(&spec, faults);
    }
}

/// One DNS label, or two joined by a dot.
fn is_short_name(name: &str) -> bool {
    match name.split_once('.') {
        Some((tier, name)) => is_dns_label(tier) && is_dns_label(name),
        None => is_dns_label(name),
    }
}

/// The names under which policies of Kubernetes and OpenStack appear.
fn is_imported_name(name: &str) -> bool {
    ["knp.default.", "ossg.default."]
        .iter()
        .any(|prefix| name.strip_prefix(prefix).is_some_and(is_dns_name))
}

/// A staged deletion says nothing but its tier. True if `place` is a staged deletion.
fn staged_deletion_is_bare(place: &Place<'_>, faults: &mut Faults) -> bool {
    let Some(spec) = place.at("spec").filter(|spec| spec.text("stagedAction") == "Delete") else {
        return false;
    };
    let field = match place.kind {
        "StagedNetworkPolicy" => "StagedNetworkPolicySpec",
        "StagedGlobalNetworkPolicy" => "StagedGlobalNetworkPolicySpec",
        _ => return false,
    };
    if let Some(extra) = extra_field(&spec, &["stagedAction", "tier"]) {
        faults.note(
            spec.path_of(extra),
            "with stagedAction Delete nothing but the tier may be set",
            (field, spec.printed()),
            "Spec fields, except Tier, should all be zero-value if stagedAction is Delete",
        );
    }
    true
}

/// The first field of the object that is none of these and says something.
pub(super) fn extra_field<'a>(spec: &Place<'a>, allowed: &[&str]) -> Option<&'a str> {
    let fields = spec.value.as_object()?;
    let mut extra = fields
        .iter()
        .filter(|(name, value)| !allowed.contains(&name.as_str()) && !says_nothing(value));
    extra.next().map(|(name, _)| name.as_str())
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Bool(flag) => !flag,
        _ => false,
    }
}

/// `types` names each direction once.
fn types_once(spec: &Place<'_>, field: &str, faults: &mut Faults) {
    let types = spec.each("types");
    for (index, item) in types.iter().enumerate() {
        if types.iter().take(index).any(|earlier| earlier.value == item.value) {
            let name = item.printed();
            faults.note(
                &item.path,
                format!("{name} is there twice"),
                (field, spec.printed_field("types")),
                format!("'{name}' type specified more than once"),
            );
        }
    }
}

/// Services stand for the other side of a rule only, and HTTP is matched on arrival only.
fn directions(spec: &Place<'_>, http_reason: &str, faults: &mut Faults) {
    for rule in spec.each("egress") {
        if let Some(services) = rule.at("source").and_then(|source| source.at("services")) {
            faults.note(
                &services.path,
                "services can only be the destination of an egress rule",
                ("Services", printed_services(&services)),
                "not allowed in egress rule source",
            );
        }
        if let Some(http) = rule.at("http") {
            faults.note(
                &http.path,
                "HTTP can only be matched in ingress rules",
                ("HTTP", format!("&{{{} {}}}", http.printed_list("methods"), printed_paths(&http))),
                http_reason,
            );
        }
    }
    for rule in spec.each("ingress") {
        let destination = rule.at("destination");
        if let Some(services) = destination.and_then(|entity| entity.at("services")) {
            faults.note(
                &services.path,
                "services can only be the source of an ingress rule",
                ("Services", printed_services(&services)),
                "not allowed in ingress rule destination",
            );
        }
    }
}

fn printed_services(services: &Place<'_>) -> String {
    format!("&{}", services.printed_struct(&["name", "namespace"]))
}

/// A cluster-wide policy has no namespace of its own in which to look for a service.
fn services_name_namespace(spec: &Place<'_>, faults: &mut Faults) {
    for (direction, side) in [("egress", "destination"), ("ingress", "source")] {
        for rule in spec.each(direction) {
            let services = rule.at(side).and_then(|entity| entity.at("services"));
            let Some(services) = services.filter(|it| it.text("namespace").is_empty()) else {
                continue;
            };
            faults.note(
                services.path_of("namespace"),
                "a service in a cluster-wide policy needs its namespace",
                ("Namespace", String::new()),
                "must specify a namespace",
            );
        }
    }
}

/// `global()` means "no namespace", which only a namespace selector of a rule can ask for.
pub(super) const GLOBAL_MISPLACED: &str =
    "global() can only be used in an EntityRule namespaceSelector";

/// The policy's own selectors do not ask for `global()`.
pub(super) fn selectors_without_global(spec: &Place<'_>, faults: &mut Faults) {
    for field in ["selector", "serviceAccountSelector", "namespaceSelector"] {
        if spec.text(field).contains("global(") {
            let message = "global() works only as the namespaceSelector of a rule";
            faults.schema(spec, field, message, GLOBAL_MISPLACED);
        }
    }
}

/// Policy before NAT and untracked policy exclude each other and have limits of their own.
pub(super) fn untracked_and_pre_dnat(spec: &Place<'_>, faults: &mut Faults) {
    let (pre_dnat, untracked) = (spec.flag("preDNAT"), spec.flag("doNotTrack"));
    if pre_dnat && untracked {
        let reason = "preDNAT and doNotTrack cannot both be true";
        faults.schema(spec, "preDNAT", "preDNAT and doNotTrack exclude each other", reason);
    }
    if pre_dnat && spec.has_items("egress") {
        let reason = "preDNAT policy cannot have any egress rules";
        faults.schema(spec, "egress", "a preDNAT policy has no egress rules", reason);
    }
    if pre_dnat && spec.lists("types", "Egress") {
        let reason = "preDNAT policy cannot have 'Egress' type";
        faults.schema(spec, "types", "a preDNAT policy applies to ingress only", reason);
    }
    if (pre_dnat || untracked) && !spec.flag("applyOnForward") {
        let reason = "applyOnForward must be true if either preDNAT or doNotTrack is true";
        let message = "preDNAT and doNotTrack need applyOnForward: true";
        faults.schema(spec, "applyOnForward", message, reason);
    }
}
