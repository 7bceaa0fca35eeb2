//! Settings, tiers, profiles and peers: defaults and rules about names.

use std::collections::BTreeSet;

use api::Problem;
use serde_json::{Map, Value, json};

use super::{Neighbours, Refusal, metadata_text, said, section, set_if_empty, unsaid};

/// The profile that every datastore has.
const BUILT_IN_PROFILE: &str = "projectcalico-default-allow";
/// The longest prefix of a generated name.
const TEMPLATE_NAME_MAX: usize = 253;

/// Felix' settings for load balancing at connect time depend on each other.
pub(super) fn fill_felix(object: &mut Value) {
    let spec = section(object, "spec");
    let defaults = [
        ("floatingIPs", "Disabled"),
        ("bpfConnectTimeLoadBalancing", "TCP"),
        ("bpfHostNetworkedNATWithoutCTLB", "Enabled"),
    ];
    for (field, value) in defaults {
        if spec.get(field).is_none_or(Value::is_null) {
            spec.insert(field.to_owned(), value.into());
        }
    }
    // The deprecated switch, where given, overrules its two successors.
    if let Some(enabled) = spec.get("bpfConnectTimeLoadBalancingEnabled").and_then(Value::as_bool) {
        let balancing = if enabled { "Enabled" } else { "Disabled" };
        spec.insert("bpfConnectTimeLoadBalancing".to_owned(), balancing.into());
        spec.insert("bpfHostNetworkedNATWithoutCTLB".to_owned(), "Disabled".into());
    }
}

/// A tier without an order stands where the default tier stands.
pub(crate) fn fill_tier(object: &mut Value) {
    let spec = section(object, "spec");
    if spec.get("order").is_none_or(Value::is_null) {
        spec.insert("order".to_owned(), json!(1_000_000));
    }
    if spec.get("defaultAction").is_none_or(Value::is_null) {
        spec.insert("defaultAction".to_owned(), "Deny".into());
    }
}

/// Controllers that are switched on get their settings, and templates are told apart.
pub(super) fn fill_controllers(object: &mut Value) -> Result<(), Refusal> {
    let spec = section(object, "spec");
    if spec.get("prometheusMetricsPort").is_none_or(Value::is_null) {
        spec.insert("prometheusMetricsPort".to_owned(), json!(9094));
    }
    let controllers = spec.get_mut("controllers").and_then(Value::as_object_mut);
    let Some(controllers) = controllers else { return Ok(()) };
    if let Some(node) = controller(controllers, "node") {
        if node.get("leakGracePeriod").is_none_or(Value::is_null) {
            node.insert("leakGracePeriod".to_owned(), "15m0s".into());
        }
        let templates = node.get("hostEndpoint").and_then(|it| it.get("templates"));
        templates_differ(templates.and_then(Value::as_array).map_or(&[][..], Vec::as_slice))?;
    }
    if let Some(load_balancer) = controller(controllers, "loadBalancer") {
        set_if_empty(load_balancer, "assignIPs", "AllServices");
    }
    Ok(())
}

fn controller<'a>(
    controllers: &'a mut Map<String, Value>,
    name: &str,
) -> Option<&'a mut Map<String, Value>> {
    controllers.get_mut(name).and_then(Value::as_object_mut)
}

/// Templates of host endpoints have names of their own and say which interfaces they mean.
fn templates_differ(templates: &[Value]) -> Result<(), Refusal> {
    const FIELD: &str = "KubeControllersConfiguration.Node.HostEndpoint.Templates";
    let mut seen = BTreeSet::new();
    for (index, template) in templates.iter().enumerate() {
        let path = format!("spec.controllers.node.hostEndpoint.templates[{index}]");
        let text = |field: &str| template.get(field).and_then(Value::as_str).unwrap_or_default();
        let name = text("generateName");
        let fault = |field: String, message: &str, reason: &str| {
            Err(Refusal::invalid(&path, message, unsaid(&field, reason)))
        };
        if name.is_empty() {
            let reason = "Template name must be specified";
            return fault(FIELD.to_owned(), "a template needs generateName", reason);
        }
        if name.len() > TEMPLATE_NAME_MAX {
            let reason = "Template name must be shorter than 253 characters";
            return fault(FIELD.to_owned(), "generateName has more than 253 characters", reason);
        }
        if !seen.insert(name) {
            let reason = "Template name must be unique";
            return fault(format!("{FIELD}.{name}"), "generateName is used twice", reason);
        }
        let cidrs = template.get("interfaceCIDRs").and_then(Value::as_array);
        if cidrs.is_none_or(Vec::is_empty) && text("interfacePattern").is_empty() {
            let reason = "InterfaceCIDRs or InterfacePattern must be specified";
            let message = "a template needs interfaceCIDRs or interfacePattern";
            return fault(format!("{FIELD}.{name}"), message, reason);
        }
    }
    Ok(())
}

/// Filters that a peer names exist.
pub(super) fn filters_exist(object: &Value, neighbours: &Neighbours) -> Result<(), Refusal> {
    let filters = object.get("spec").and_then(|spec| spec.get("filters"));
    let names = filters.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let missing: Vec<&str> = names.filter(|name| !neighbours.bgp_filters.contains(*name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let value = format!("[{}]", missing.join(" "));
    let calico = said("BGPPeer.Spec.Filters", value, "BGPFilter(s) not found");
    let message = format!("there is no BGPFilter {}", missing.join(", "));
    Err(Refusal::invalid("spec.filters", message, calico))
}

/// The built-in profile is neither made nor changed.
pub(super) fn profile_is_not_built_in(is_update: bool, object: &Value) -> Result<(), Refusal> {
    match (metadata_text(object, "name") == BUILT_IN_PROFILE, is_update) {
        (false, _) => Ok(()),
        (true, false) => Err(Refusal::BuiltIn),
        (true, true) => Err(built_in_profile("Update", "updated")),
    }
}

/// What Calico says when somebody touches the built-in profile.
pub(super) fn built_in_profile(operation: &str, done: &str) -> Refusal {
    let name = BUILT_IN_PROFILE;
    Refusal::refused(
        format!("the profile {name} is built in"),
        format!(
            "operation {operation} is not supported on {name}: The profile \"{name}\" is a \
             default provided by Calico and cannot be {done}"
        ),
    )
}

/// Whether the name is that of the built-in profile.
pub(super) fn is_built_in_profile(name: &str) -> bool {
    name == BUILT_IN_PROFILE
}

/// There is one object of the kind, and it is called `default`.
pub(super) fn only_default(object: &Value, what: &str) -> Result<(), Refusal> {
    if metadata_text(object, "name") == "default" {
        return Ok(());
    }
    Err(Refusal::refused(
        "there is only one object of this kind; its name is default",
        format!("Cannot create {what} resource with a name other than \"default\""),
    ))
}

/// Fields of a BGPConfiguration that hold for the whole cluster: as Calico names them in the
/// field and in the sentence of its complaint.
const CLUSTER_WIDE: [(&str, &str, &str); 7] = [
    ("nodeToNodeMeshEnabled", "NodeToNodeMeshEnabled", "nodeToNodeMeshEnabled"),
    ("asNumber", "ASNumber", "ASNumber"),
    ("serviceLoadBalancerIPs", "ServiceLoadBalancerIPs", "ServiceLoadBalancerIPs"),
    ("serviceExternalIPs", "ServiceExternalIPs", "ServiceExternalIPs"),
    ("serviceClusterIPs", "ServiceClusterIPs", "ServiceClusterIPs"),
    ("nodeMeshPassword", "NodeMeshPassword", "nodeMeshPassword"),
    ("nodeMeshMaxRestartTime", "NodeMeshMaxRestartTime", "nodeMeshMaxRestartTime"),
];

/// What holds for the whole cluster stands in the configuration `default` only.
pub(super) fn only_default_has(object: &Value) -> Result<(), Refusal> {
    if metadata_text(object, "name") == "default" {
        return Ok(());
    }
    let spec = object.get("spec");
    let is_set = |field: &str| match spec.and_then(|spec| spec.get(field)) {
        None | Some(Value::Null) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    };
    let problems: Vec<Problem> = CLUSTER_WIDE
        .iter()
        .filter(|(field, _, _)| is_set(field))
        .map(|(field, name, spoken)| {
            let reason = format!("Cannot set {spoken} on a non default BGP Configuration.");
            let calico = unsaid(&format!("BGPConfiguration.Spec.{name}"), reason);
            let message = "this holds for the whole cluster; set it in the object \"default\"";
            Problem::invalid(format!("spec.{field}"), message, calico)
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(Refusal::Invalid(problems)) }
}
