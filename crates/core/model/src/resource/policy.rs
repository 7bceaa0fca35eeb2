//! Policies, profiles and tiers.

use std::collections::BTreeMap;

use net::{Cidr, Port, Protocol};
use serde::{Deserialize, Deserializer};

use crate::selector::Selector;

/// What a rule does with the packets it matches.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Lets them through.
    Allow,
    /// Drops them.
    Deny,
    /// Notes them and goes on with the next rule.
    Log,
    /// Leaves the decision to the next tier.
    Pass,
}

/// A direction of traffic, seen from the endpoint.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Direction {
    Ingress,
    Egress,
}

/// What a staged policy would do to the policy it stands for.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum StagedAction {
    #[default]
    Set,
    Delete,
    Learn,
    Ignore,
}

/// A hint that a policy is worth preparing where nothing uses it yet.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name says it")]
pub enum PerformanceHint {
    AssumeNeededOnEveryNode,
}

/// An empty text is a selector that was not given, which is not the same as `all()`: that one is
/// narrowed by the scope it stands in.
fn unless_empty<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Selector>, D::Error> {
    let text = <Option<std::borrow::Cow<'de, str>>>::deserialize(source)?;
    let given = text.filter(|text| !text.is_empty());
    given.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
}

/// A policy of any scope, in force or staged.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Policy {
    /// The tier it belongs to; empty means `default`.
    pub tier: String,
    /// Its place in the tier; without one it comes last.
    pub order: Option<f64>,
    /// Which endpoints it is for; none for all.
    #[serde(deserialize_with = "unless_empty")]
    pub selector: Option<Selector>,
    /// Narrows the endpoints by the labels of their namespace (global policies).
    #[serde(deserialize_with = "unless_empty")]
    pub namespace_selector: Option<Selector>,
    /// Narrows the endpoints by the labels of their service account.
    #[serde(deserialize_with = "unless_empty")]
    pub service_account_selector: Option<Selector>,
    /// The directions it decides.
    pub types: Vec<Direction>,
    /// Rules for traffic to the endpoints.
    pub ingress: Vec<Rule>,
    /// Rules for traffic from the endpoints.
    pub egress: Vec<Rule>,
    /// Host endpoints: decide before connection tracking.
    pub do_not_track: bool,
    /// Host endpoints: decide before destination NAT.
    #[serde(rename = "preDNAT")]
    pub pre_dnat: bool,
    /// Host endpoints: also decide about forwarded traffic.
    pub apply_on_forward: bool,
    /// Hints.
    pub performance_hints: Vec<PerformanceHint>,
    /// Staged policies: what they would do.
    pub staged_action: StagedAction,
}

/// One rule.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// What to do with what matches.
    pub action: Action,
    /// Only this version of IP.
    pub ip_version: Option<u8>,
    /// Only this protocol.
    pub protocol: Option<Protocol>,
    /// Any protocol but this.
    pub not_protocol: Option<Protocol>,
    /// Only these ICMP messages.
    pub icmp: Option<Icmp>,
    /// Any but these ICMP messages.
    #[serde(rename = "notICMP")]
    pub not_icmp: Option<Icmp>,
    /// Where the traffic comes from.
    #[serde(default)]
    pub source: Entity,
    /// Where it goes.
    #[serde(default)]
    pub destination: Entity,
    /// Only these HTTP requests.
    pub http: Option<Http>,
    /// Remarks.
    #[serde(default)]
    pub metadata: RuleMetadata,
}

/// Remarks on a rule.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct RuleMetadata {
    /// Free keys and values.
    pub annotations: BTreeMap<String, String>,
}

/// ICMP messages by type, and by code within it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub struct Icmp {
    /// The type.
    #[serde(rename = "type")]
    pub kind: Option<u8>,
    /// The code.
    pub code: Option<u8>,
}

/// HTTP requests by method and path.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Http {
    /// Any of these methods.
    pub methods: Vec<String>,
    /// Any of these paths.
    pub paths: Vec<HttpPath>,
}

/// A path, whole or by its beginning.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum HttpPath {
    Exact(String),
    Prefix(String),
}

/// One end of the traffic. Every condition that is given must hold.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Entity {
    /// In one of these networks.
    pub nets: Vec<Cidr>,
    /// In none of these networks.
    pub not_nets: Vec<Cidr>,
    /// An endpoint or network set with such labels.
    #[serde(deserialize_with = "unless_empty")]
    pub selector: Option<Selector>,
    /// Not an endpoint or network set with such labels.
    #[serde(deserialize_with = "unless_empty")]
    pub not_selector: Option<Selector>,
    /// In a namespace with such labels.
    #[serde(deserialize_with = "unless_empty")]
    pub namespace_selector: Option<Selector>,
    /// Of one of these service accounts.
    pub service_accounts: Option<ServiceAccounts>,
    /// An endpoint of this service.
    pub services: Option<ServiceMatch>,
    /// On one of these ports.
    pub ports: Vec<Port>,
    /// On none of these ports.
    pub not_ports: Vec<Port>,
}

/// Service accounts by name or labels.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct ServiceAccounts {
    /// Any of these names.
    pub names: Vec<String>,
    /// With such labels.
    #[serde(deserialize_with = "unless_empty")]
    pub selector: Option<Selector>,
}

/// A Kubernetes service.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct ServiceMatch {
    /// Its name.
    pub name: String,
    /// Its namespace; empty for the namespace of the policy.
    pub namespace: String,
}

/// Rules and labels that endpoints take from the profiles they name.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Profile {
    /// Rules for traffic to the endpoints.
    pub ingress: Vec<Rule>,
    /// Rules for traffic from the endpoints.
    pub egress: Vec<Rule>,
    /// Labels the endpoints get where they have none of their own.
    pub labels_to_apply: BTreeMap<String, String>,
}

/// A group of policies that decides before or after other groups.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Tier {
    /// Its place among the tiers; without one it comes last.
    pub order: Option<f64>,
    /// What happens to traffic that its policies concern and none decides.
    pub default_action: Option<Action>,
}

/// A Kubernetes network policy that is staged; its rules stay in Kubernetes' own form.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct KubernetesPolicy {
    /// What it would do.
    pub staged_action: StagedAction,
    /// Which pods it is for.
    pub pod_selector: serde_json::Value,
    /// Rules for traffic to the pods.
    pub ingress: Vec<serde_json::Value>,
    /// Rules for traffic from the pods.
    pub egress: Vec<serde_json::Value>,
    /// The directions it decides.
    pub policy_types: Vec<Direction>,
}
