//! Stored objects → what policy is computed from: scope becomes selectors.
//!
//! A policy of a namespace is for endpoints of that namespace, and a rule of it with any selector
//! for peers of that namespace, unless it selects namespaces itself. The labels of namespaces and
//! service accounts reach endpoints through their profiles, under prefixes of their own. The texts
//! of selectors come out as in Calico, because they name sets that other programs see.

mod rules;

use std::sync::Arc;

use api::Kind;
use api::keys::{ResourceKey, ResourceKind};
use api::names::{node_of_workload_endpoint, tier_or_default};
use model::resource::{self, Action, Direction, Object, PerformanceHint, Resource, StagedAction};
use model::selector::{Selector, SyntaxError};
use net::Cidr;

use crate::input::{
    Change, Entity, Host, Key, Labels, NamedPort, NetworkSet, Policy, PolicyId, PolicyKind,
    Profile, Rule, Stage, Tier, Workload,
};
use crate::verdict::End;
use rules::rules;

/// The label with the name of the namespace.
const NAMESPACE: &str = "projectcalico.org/namespace";
/// The label with the name of the service account.
const SERVICE_ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// Before the labels of a namespace.
const OF_NAMESPACE: &str = "pcns.";
/// Before the labels of a service account.
const OF_SERVICE_ACCOUNT: &str = "pcsa.";
/// Before the name of a namespace, in the name of its profile.
const NAMESPACE_PROFILE: &str = "kns.";

/// The profile that allows everything. It exists without being stored.
pub const DEFAULT_ALLOW: &str = "projectcalico-default-allow";

/// What cannot be used although each of its fields can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The field, in the object or in the rule.
    pub field: &'static str,
    /// The list of the rule, and its place there, if it is about one.
    pub rule: Option<(&'static str, usize)>,
    /// What is wrong with it, in plain words.
    pub message: String,
}

impl Unusable {
    fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self { field, rule: None, message: message.into() }
    }
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((list, at)) = self.rule {
            write!(formatter, "spec.{list}[{at}].")?;
        }
        write!(formatter, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for Unusable {}

impl From<SyntaxError> for Unusable {
    fn from(error: SyntaxError) -> Self {
        Self::new("selector", format!("with its scope it cannot be read: {error}"))
    }
}

type Result<T> = std::result::Result<T, Unusable>;

/// What a new value of a stored object, or its removal, means to policy; none if nothing.
///
/// Removals always work: of an object that is unusable, `convert(key, None)` tells what to forget.
pub fn convert(key: &ResourceKey, resource: Option<&Resource>) -> Result<Option<Change>> {
    let ResourceKind::Api(kind) = key.kind else { return Ok(None) };
    let Some(resource) = resource else { return Ok(removal(kind, key)) };
    Ok(Some(match resource {
        Resource::WorkloadEndpoint(object) => {
            Change::Workload(place(key), workload(key, object)?.map(Arc::new))
        }
        Resource::HostEndpoint(object) => Change::Host(place(key), Some(Arc::new(host(object)?))),
        Resource::NetworkSet(object) => {
            Change::NetworkSet(place(key), Some(Arc::new(network_set(object, &key.namespace))))
        }
        Resource::GlobalNetworkSet(object) => {
            Change::NetworkSet(place(key), Some(Arc::new(network_set(object, ""))))
        }
        Resource::Tier(object) => Change::Tier(key.name.clone(), Some(tier(&object.spec))),
        Resource::Profile(object) => {
            Change::Profile(key.name.clone(), Some(Arc::new(profile(&object.spec)?)))
        }
        Resource::GlobalNetworkPolicy(object)
        | Resource::NetworkPolicy(object)
        | Resource::StagedGlobalNetworkPolicy(object)
        | Resource::StagedNetworkPolicy(object) => {
            let Some(id) = policy_id(kind, key) else { return Ok(None) };
            let policy = match object.spec.staged_action {
                StagedAction::Delete if id.kind.is_staged() => None,
                _ => Some(Arc::new(policy(&object.spec, &id.namespace)?)),
            };
            Change::Policy(id, policy)
        }
        _ => return Ok(None),
    }))
}

/// Whether all rules of a policy or profile mean something; if not, the field that does not.
pub(crate) fn has_meaning(resource: &Resource) -> Result<()> {
    let (ingress, egress) = match resource {
        Resource::GlobalNetworkPolicy(object)
        | Resource::NetworkPolicy(object)
        | Resource::StagedGlobalNetworkPolicy(object)
        | Resource::StagedNetworkPolicy(object) => (&object.spec.ingress, &object.spec.egress),
        Resource::Profile(object) => (&object.spec.ingress, &object.spec.egress),
        _ => return Ok(()),
    };
    rules(("ingress", ingress), "").and(rules(("egress", egress), "")).map(drop)
}

/// The profile that allows everything, which exists without being stored.
pub fn default_allow() -> Change {
    let rule = Rule {
        action: Action::Allow,
        is_ipv4: None,
        protocol: None,
        not_protocol: None,
        icmp: None,
        not_icmp: None,
        source: Entity::default(),
        destination: Entity::default(),
    };
    let profile =
        Profile { labels: Labels::new(), ingress: vec![rule.clone()], egress: vec![rule] };
    Change::Profile(DEFAULT_ALLOW.to_owned(), Some(Arc::new(profile)))
}

fn removal(kind: Kind, key: &ResourceKey) -> Option<Change> {
    Some(match kind {
        Kind::WorkloadEndpoint => Change::Workload(place(key), None),
        Kind::HostEndpoint => Change::Host(place(key), None),
        Kind::NetworkSet | Kind::GlobalNetworkSet => Change::NetworkSet(place(key), None),
        Kind::Tier => Change::Tier(key.name.clone(), None),
        Kind::Profile if key.name == DEFAULT_ALLOW => default_allow(),
        Kind::Profile => Change::Profile(key.name.clone(), None),
        _ => Change::Policy(policy_id(kind, key)?, None),
    })
}

/// By which an object is known here: `namespace/name`, or the name alone; no name has a slash.
pub fn place(key: &ResourceKey) -> Key {
    match key.namespace.is_empty() {
        true => key.name.clone(),
        false => format!("{}/{}", key.namespace, key.name),
    }
}

fn policy_id(kind: Kind, key: &ResourceKey) -> Option<PolicyId> {
    let kind = match kind {
        Kind::GlobalNetworkPolicy => PolicyKind::GlobalNetworkPolicy,
        Kind::NetworkPolicy => PolicyKind::NetworkPolicy,
        Kind::StagedGlobalNetworkPolicy => PolicyKind::StagedGlobalNetworkPolicy,
        Kind::StagedNetworkPolicy => PolicyKind::StagedNetworkPolicy,
        _ => return None,
    };
    let (namespace, name) = (key.namespace.clone(), key.name.clone());
    Some(PolicyId { kind, namespace, name })
}

/// None for one without addresses: there is nothing to match and nothing to protect yet.
fn workload(
    key: &ResourceKey,
    object: &Object<resource::WorkloadEndpoint>,
) -> Result<Option<Workload>> {
    // Whose it is, is what it is stored under, whatever it says of itself.
    let Some(node) = node_of_workload_endpoint(&key.namespace, &key.name) else {
        let what = format!("{:?} is not node-orchestrator-workload-endpoint", key.name);
        return Err(Unusable::new("metadata.name", what));
    };
    let spec = &object.spec;
    if spec.ip_networks.is_empty() {
        return Ok(None);
    }
    if spec.interface_name.is_empty() {
        return Err(Unusable::new("spec.interfaceName", "there must be one"));
    }
    // A workload cannot claim to be of another namespace or service account.
    let is_its_own =
        |name: &String| !name.starts_with(OF_NAMESPACE) && !name.starts_with(OF_SERVICE_ACCOUNT);
    let mut labels = object.metadata.labels.clone();
    labels.retain(|name, _| is_its_own(name));
    if !spec.service_account_name.is_empty() {
        labels.insert(SERVICE_ACCOUNT.to_owned(), spec.service_account_name.clone());
    }
    let named = spec.ports.iter().filter(|port| !port.name.is_empty());
    let port = |port: &resource::WorkloadPort| NamedPort {
        name: port.name.clone(),
        protocol: port.protocol.to_backend(),
        port: port.port,
    };
    Ok(Some(Workload {
        node,
        interface: spec.interface_name.clone(),
        addresses: masked(&spec.ip_networks),
        labels,
        profiles: spec.profiles.clone(),
        ports: named.map(port).collect(),
        allowed_sources: masked(&spec.allow_spoofed_source_prefixes),
    }))
}

fn host(object: &Object<resource::HostEndpoint>) -> Result<Host> {
    let spec = &object.spec;
    if spec.node.is_empty() {
        return Err(Unusable::new("spec.node", "there must be one"));
    }
    let port = |port: &resource::EndpointPort| NamedPort {
        name: port.name.clone(),
        protocol: port.protocol.to_backend(),
        port: port.port,
    };
    Ok(Host {
        node: spec.node.clone(),
        interface: spec.interface_name.clone(),
        addresses: spec.expected_ips.clone(),
        labels: object.metadata.labels.clone(),
        profiles: spec.profiles.clone(),
        ports: spec.ports.iter().map(port).collect(),
        is_rest: false,
    })
}

/// A set of a namespace has the label of it, and takes the labels of the namespace.
fn network_set(object: &Object<resource::NetworkSet>, namespace: &str) -> NetworkSet {
    let nets = masked(&object.spec.nets);
    let mut labels = object.metadata.labels.clone();
    if namespace.is_empty() {
        return NetworkSet { nets, labels, profiles: Vec::new() };
    }
    labels.insert(NAMESPACE.to_owned(), namespace.to_owned());
    NetworkSet { nets, labels, profiles: vec![format!("{NAMESPACE_PROFILE}{namespace}")] }
}

fn masked(nets: &[Cidr]) -> Vec<Cidr> {
    nets.iter().map(|net| net.masked()).collect()
}

fn tier(spec: &resource::Tier) -> Tier {
    let end = match spec.default_action {
        Some(Action::Pass) => End::Pass,
        _ => End::Deny,
    };
    Tier { order: spec.order, end }
}

fn profile(spec: &resource::Profile) -> Result<Profile> {
    Ok(Profile {
        labels: spec.labels_to_apply.clone(),
        ingress: rules(("ingress", &spec.ingress), "")?,
        egress: rules(("egress", &spec.egress), "")?,
    })
}

fn policy(spec: &resource::Policy, namespace: &str) -> Result<Policy> {
    let decides = |direction| spec.types.is_empty() || spec.types.contains(&direction);
    let is_global = namespace.is_empty();
    let stage = match (is_global && spec.do_not_track, is_global && spec.pre_dnat) {
        (true, _) => Stage::Untracked,
        (false, true) => Stage::PreDnat,
        (false, false) => Stage::Normal,
    };
    Ok(Policy {
        tier: tier_or_default(&spec.tier).to_owned(),
        order: spec.order,
        selector: match is_global {
            true => selector_of_global(spec)?,
            false => selector_in(namespace, spec),
        },
        is_for_ingress: decides(Direction::Ingress),
        is_for_egress: decides(Direction::Egress),
        ingress: rules(("ingress", &spec.ingress), namespace)?,
        egress: rules(("egress", &spec.egress), namespace)?,
        stage,
        is_for_forward: is_global && spec.apply_on_forward,
        is_needed_everywhere: spec
            .performance_hints
            .contains(&PerformanceHint::AssumeNeededOnEveryNode),
    })
}

fn both(first: Option<Selector>, second: Option<Selector>) -> Option<Selector> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.and(&second)),
        (first, second) => first.or(second),
    }
}

fn selector_in(namespace: &str, spec: &resource::Policy) -> Selector {
    let here = Selector::equals(NAMESPACE, namespace);
    let account = spec.service_account_selector.as_ref();
    let account = account.map(|selector| selector.prefixed(OF_SERVICE_ACCOUNT));
    both(both(spec.selector.clone(), Some(here)), account).unwrap_or_default()
}

fn selector_of_global(spec: &resource::Policy) -> Result<Selector> {
    let mut selector = spec.selector.clone();
    if let Some(namespaces) = &spec.namespace_selector {
        let scoped = both(selector, Some(namespaces.prefixed(OF_NAMESPACE))).unwrap_or_default();
        selector = Some(with_all_meaning(NAMESPACE, &scoped)?);
    }
    if let Some(accounts) = &spec.service_account_selector {
        let scoped = both(selector, Some(accounts.prefixed(OF_SERVICE_ACCOUNT)));
        selector = Some(with_all_meaning(SERVICE_ACCOUNT, &scoped.unwrap_or_default())?);
    }
    Ok(selector.unwrap_or_default())
}

/// A selector in which `all()` asks for a label: all namespaces are not all endpoints. Calico does
/// it to the text, and so it is done here.
fn with_all_meaning(label: &str, selector: &Selector) -> Result<Selector> {
    match selector.canonical().contains("all()") {
        true => Ok(selector.canonical().replace("all()", &format!("has({label})")).parse()?),
        false => Ok(selector.clone()),
    }
}

#[cfg(test)]
mod tests;
