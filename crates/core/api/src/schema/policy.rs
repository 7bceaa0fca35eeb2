//! Policies, tiers and profiles, and the rules in them.

use super::Keep::{Always, Given};
use super::Limit::{
    AllOf, Each, MaxItems, MaxLength, Maximum, MinItems, Minimum, OneOf, OneOfNumbers,
};
use super::Shape::{self, Bool, Float, List, Map, Port, Protocol, Text};
use super::meta::{API_VERSION, CONDITION, KIND, METADATA, spec, status};
use super::{Field, Object};

/// The kind GlobalNetworkPolicy.
#[rustfmt::skip]
pub(super) static GLOBAL_NETWORK_POLICY: Object = Object {
    name: "GlobalNetworkPolicy",
    fields: &[KIND, API_VERSION, METADATA, spec(&GLOBAL_NETWORK_POLICY_SPEC)],
};

#[rustfmt::skip]
static GLOBAL_NETWORK_POLICY_SPEC: Object = Object {
    name: "GlobalNetworkPolicySpec",
    fields: &[
        Field::new("tier", "Tier", Text).default(r#""default""#).checks("omitempty,name").help("The tier it belongs to"),
        Field::new("order", "Order", Float).keep(Given).help("Its place in the tier, lowest first; without it comes last"),
        Field::new("ingress", "Ingress", List(&Shape::Object(&RULE))).limits(&[MaxItems(1024)]).checks("omitempty,dive").help("Rules for packets to the endpoints; the first that matches decides"),
        Field::new("egress", "Egress", List(&Shape::Object(&RULE))).limits(&[MaxItems(1024)]).checks("omitempty,dive").help("Rules for packets from the endpoints; the first that matches decides"),
        Field::new("selector", "Selector", Text).limits(&[MaxLength(1024)]).checks("selector").help("Selects the endpoints it applies to"),
        Field::new("types", "Types", List(&Text)).limits(&[MinItems(1), MaxItems(2), Each(&[OneOf(&["Ingress", "Egress"])])]).help("The directions it applies to; found from the rules if not set"),
        Field::new("doNotTrack", "DoNotTrack", Bool).help("Applies before connection tracking, which it turns off; host endpoints only"),
        Field::new("preDNAT", "PreDNAT", Bool).help("Applies before the destination is rewritten; ingress of host endpoints only"),
        Field::new("applyOnForward", "ApplyOnForward", Bool).help("Applies to packets that host endpoints forward, too"),
        Field::new("serviceAccountSelector", "ServiceAccountSelector", Text).limits(&[MaxLength(1024)]).checks("selector").help("Narrows it to workloads of these service accounts"),
        Field::new("namespaceSelector", "NamespaceSelector", Text).limits(&[MaxLength(1024)]).checks("selector").help("Narrows it to workloads of these namespaces"),
        Field::new("performanceHints", "PerformanceHints", List(&Text)).limits(&[Each(&[OneOf(&["AssumeNeededOnEveryNode"])])]).checks("omitempty,unique,dive,oneof=AssumeNeededOnEveryNode").help("Advice for how to spread the policy over the nodes"),
    ],
};

#[rustfmt::skip]
pub(super) static RULE: Object = Object {
    name: "Rule",
    fields: &[
        Field::new("action", "Action", Text).keep(Always).required().limits(&[OneOf(&["Allow", "Deny", "Log", "Pass"])]).help("What becomes of packets that match: Allow, Deny, Log or Pass"),
        Field::new("ipVersion", "IPVersion", Shape::INT).keep(Given).limits(&[OneOfNumbers(&[4, 6])]).help("4 or 6; both if not set"),
        Field::new("protocol", "Protocol", Protocol).keep(Given).help("The protocol, by name or number"),
        Field::new("icmp", "ICMP", Shape::Object(&ICMP_FIELDS)).keep(Given).help("The ICMP type and code"),
        Field::new("notProtocol", "NotProtocol", Protocol).keep(Given).help("Every protocol but this one"),
        Field::new("notICMP", "NotICMP", Shape::Object(&ICMP_FIELDS)).keep(Given).help("Every ICMP type and code but this"),
        Field::new("source", "Source", Shape::Object(&ENTITY_RULE)).help("Where packets come from"),
        Field::new("destination", "Destination", Shape::Object(&ENTITY_RULE)).help("Where packets go to"),
        Field::new("http", "HTTP", Shape::Object(&HTTP_MATCH)).keep(Given).help("The HTTP request; needs a dataplane that reads HTTP"),
        Field::new("metadata", "Metadata", Shape::Object(&RULE_METADATA)).keep(Given).help("Notes that do not change what the rule does"),
    ],
};

#[rustfmt::skip]
static ICMP_FIELDS: Object = Object {
    name: "ICMPFields",
    fields: &[
        Field::new("type", "Type", Shape::INT).keep(Given).limits(&[Minimum(0), Maximum(254)]).checks("omitempty,gte=0,lte=254").help("The ICMP type"),
        Field::new("code", "Code", Shape::INT).keep(Given).limits(&[Minimum(0), Maximum(255)]).checks("omitempty,gte=0,lte=255").help("The ICMP code; needs the type"),
    ],
};

#[rustfmt::skip]
static ENTITY_RULE: Object = Object {
    name: "EntityRule",
    fields: &[
        Field::new("nets", "Nets", List(&Text)).limits(&[MaxItems(256)]).checks("omitempty,dive,net").help("Any of these ranges"),
        Field::new("selector", "Selector", Text).limits(&[MaxLength(1024)]).checks("omitempty,selector").help("Endpoints and network sets with matching labels"),
        Field::new("namespaceSelector", "NamespaceSelector", Text).limits(&[MaxLength(1024)]).checks("omitempty,selector").help("Endpoints and network sets in namespaces with matching labels"),
        Field::new("services", "Services", Shape::Object(&SERVICE_MATCH)).keep(Given).help("The endpoints of a Kubernetes service"),
        Field::new("ports", "Ports", List(&Port)).limits(&[MaxItems(50)]).checks("omitempty,dive").help("Any of these ports: numbers, ranges as \"80:90\", or names"),
        Field::new("notNets", "NotNets", List(&Text)).limits(&[MaxItems(256)]).checks("omitempty,dive,net").help("None of these ranges"),
        Field::new("notSelector", "NotSelector", Text).limits(&[MaxLength(1024)]).checks("omitempty,selector").help("No endpoints with matching labels"),
        Field::new("notPorts", "NotPorts", List(&Port)).limits(&[MaxItems(50)]).checks("omitempty,dive").help("None of these ports"),
        Field::new("serviceAccounts", "ServiceAccounts", Shape::Object(&SERVICE_ACCOUNT_MATCH)).keep(Given).help("Workloads that run as these service accounts"),
    ],
};

#[rustfmt::skip]
static SERVICE_MATCH: Object = Object {
    name: "ServiceMatch",
    fields: &[
        Field::new("name", "Name", Text).limits(&[MaxLength(253)]).checks("omitempty,name").help("The name of the service"),
        Field::new("namespace", "Namespace", Text).limits(&[MaxLength(253)]).checks("omitempty,name").help("Its namespace; the policy's own if not set"),
    ],
};

#[rustfmt::skip]
static SERVICE_ACCOUNT_MATCH: Object = Object {
    name: "ServiceAccountMatch",
    fields: &[
        Field::new("names", "Names", List(&Text)).help("The names of service accounts"),
        Field::new("selector", "Selector", Text).checks("omitempty,selector").help("Selects service accounts by their labels"),
    ],
};

#[rustfmt::skip]
static HTTP_MATCH: Object = Object {
    name: "HTTPMatch",
    fields: &[
        Field::new("methods", "Methods", List(&Text)).limits(&[MaxItems(20)]).help("Any of these methods"),
        Field::new("paths", "Paths", List(&Shape::Object(&HTTP_PATH))).limits(&[MaxItems(20)]).help("Any of these paths"),
    ],
};

#[rustfmt::skip]
static HTTP_PATH: Object = Object {
    name: "HTTPPath",
    fields: &[
        Field::new("exact", "Exact", Text).limits(&[MaxLength(1024)]).help("The whole path"),
        Field::new("prefix", "Prefix", Text).limits(&[MaxLength(1024)]).help("The start of the path"),
    ],
};

#[rustfmt::skip]
static RULE_METADATA: Object = Object {
    name: "RuleMetadata",
    fields: &[
        Field::new("annotations", "Annotations", Map(&Text)).help("Keys and values"),
    ],
};

/// The kind NetworkPolicy.
#[rustfmt::skip]
pub(super) static NETWORK_POLICY: Object = Object {
    name: "NetworkPolicy",
    fields: &[KIND, API_VERSION, METADATA, spec(&NETWORK_POLICY_SPEC)],
};

#[rustfmt::skip]
static NETWORK_POLICY_SPEC: Object = Object {
    name: "NetworkPolicySpec",
    fields: &[
        Field::new("tier", "Tier", Text).default(r#""default""#).checks("omitempty,name").help("The tier it belongs to"),
        Field::new("order", "Order", Float).keep(Given).help("Its place in the tier, lowest first; without it comes last"),
        Field::new("ingress", "Ingress", List(&Shape::Object(&RULE))).limits(&[MaxItems(1024)]).checks("omitempty,dive").help("Rules for packets to the endpoints; the first that matches decides"),
        Field::new("egress", "Egress", List(&Shape::Object(&RULE))).limits(&[MaxItems(1024)]).checks("omitempty,dive").help("Rules for packets from the endpoints; the first that matches decides"),
        Field::new("selector", "Selector", Text).limits(&[MaxLength(1024)]).checks("selector").help("Selects the endpoints of its namespace it applies to"),
        Field::new("types", "Types", List(&Text)).limits(&[MinItems(1), MaxItems(2), Each(&[OneOf(&["Ingress", "Egress"])])]).help("The directions it applies to; found from the rules if not set"),
        Field::new("serviceAccountSelector", "ServiceAccountSelector", Text).limits(&[MaxLength(1024)]).checks("selector").help("Narrows it to workloads of these service accounts"),
        Field::new("performanceHints", "PerformanceHints", List(&Text)).limits(&[Each(&[OneOf(&["AssumeNeededOnEveryNode"])])]).checks("omitempty,unique,dive,oneof=AssumeNeededOnEveryNode").help("Advice for how to spread the policy over the nodes"),
    ],
};

/// The kind StagedGlobalNetworkPolicy.
#[rustfmt::skip]
pub(super) static STAGED_GLOBAL_NETWORK_POLICY: Object = Object {
    name: "StagedGlobalNetworkPolicy",
    fields: &[KIND, API_VERSION, METADATA, spec(&STAGED_GLOBAL_NETWORK_POLICY_SPEC)],
};

#[rustfmt::skip]
static STAGED_GLOBAL_NETWORK_POLICY_SPEC: Object = Object {
    name: "StagedGlobalNetworkPolicySpec",
    fields: &[
        Field::new("stagedAction", "StagedAction", Text).default(r#""Set""#).limits(&[OneOf(&["Set", "Delete", "Learn", "Ignore"])]).help("What would happen if it were put in force"),
        Field::new("tier", "Tier", Text).default(r#""default""#).checks("omitempty,name").help("The tier it would belong to"),
        Field::new("order", "Order", Float).keep(Given).help("Its place in the tier, lowest first; without it comes last"),
        Field::new("ingress", "Ingress", List(&Shape::Object(&RULE))).limits(&[MaxItems(1024)]).checks("omitempty,dive").help("Rules for packets to the endpoints; the first that matches decides"),
        Field::new("egress", "Egress", List(&Shape::Object(&RULE))).limits(&[MaxItems(1024)]).checks("omitempty,dive").help("Rules for packets from the endpoints; the first that matches decides"),
        Field::new("selector", "Selector", Text).limits(&[MaxLength(1024)]).checks("selector").help("Selects the endpoints it would apply to"),
        Field::new("types", "Types", List(&Text)).limits(&[MinItems(1), MaxItems(2), Each(&[OneOf(&["Ingress", "Egress"])])]).help("The directions it would apply to; found from the rules if not set"),
        Field::new("doNotTrack", "DoNotTrack", Bool).help("Applies before connection tracking, which it turns off; host endpoints only"),
        Field::new("preDNAT", "PreDNAT", Bool).help("Applies before the destination is rewritten; ingress of host endpoints only"),
        Field::new("applyOnForward", "ApplyOnForward", Bool).help("Applies to packets that host endpoints forward, too"),
        Field::new("serviceAccountSelector", "ServiceAccountSelector", Text).limits(&[MaxLength(1024)]).checks("selector").help("Narrows it to workloads of these service accounts"),
        Field::new("namespaceSelector", "NamespaceSelector", Text).limits(&[MaxLength(1024)]).checks("selector").help("Narrows it to workloads of these namespaces"),
        Field::new("performanceHints", "PerformanceHints", List(&Text)).limits(&[Each(&[OneOf(&["AssumeNeededOnEveryNode"])])]).checks("omitempty,unique,dive,oneof=AssumeNeededOnEveryNode").help("Advice for how to spread the policy over the nodes"),
    ],
};

/// The kind StagedNetworkPolicy.
#[rustfmt::skip]
pub(super) static STAGED_NETWORK_POLICY: Object = Object {
    name: "StagedNetworkPolicy",
    fields: &[KIND, API_VERSION, METADATA, spec(&STAGED_NETWORK_POLICY_SPEC)],
};

#[rustfmt::skip]
static STAGED_NETWORK_POLICY_SPEC: Object = Object {
    name: "StagedNetworkPolicySpec",
    fields: &[
        Field::new("stagedAction", "StagedAction", Text).default(r#""Set""#).limits(&[OneOf(&["Set", "Delete", "Learn", "Ignore"])]).help("What would happen if it were put in force"),
        Field::new("tier", "Tier", Text).default(r#""default""#).checks("omitempty,name").help("The tier it would belong to"),
        Field::new("order", "Order", Float).keep(Given).help("Its place in the tier, lowest first; without it comes last"),
        Field::new("ingress", "Ingress", List(&Shape::Object(&RULE))).limits(&[MaxItems(1024)]).checks("omitempty,dive").help("Rules for packets to the endpoints; the first that matches decides"),
        Field::new("egress", "Egress", List(&Shape::Object(&RULE))).limits(&[MaxItems(1024)]).checks("omitempty,dive").help("Rules for packets from the endpoints; the first that matches decides"),
        Field::new("selector", "Selector", Text).limits(&[MaxLength(1024)]).checks("selector").help("Selects the endpoints of its namespace it would apply to"),
        Field::new("types", "Types", List(&Text)).limits(&[MinItems(1), MaxItems(2), Each(&[OneOf(&["Ingress", "Egress"])])]).help("The directions it would apply to; found from the rules if not set"),
        Field::new("serviceAccountSelector", "ServiceAccountSelector", Text).limits(&[MaxLength(1024)]).checks("selector").help("Narrows it to workloads of these service accounts"),
        Field::new("performanceHints", "PerformanceHints", List(&Text)).limits(&[Each(&[OneOf(&["AssumeNeededOnEveryNode"])])]).checks("omitempty,unique,dive,oneof=AssumeNeededOnEveryNode").help("Advice for how to spread the policy over the nodes"),
    ],
};

/// The kind Tier.
#[rustfmt::skip]
pub(super) static TIER: Object = Object {
    name: "Tier",
    fields: &[KIND, API_VERSION, METADATA, spec(&TIER_SPEC), status(&TIER_STATUS, Always)],
};

#[rustfmt::skip]
static TIER_SPEC: Object = Object {
    name: "TierSpec",
    fields: &[
        Field::new("order", "Order", Float).keep(Given).help("Its place among the tiers, lowest first"),
        Field::new("defaultAction", "DefaultAction", Text).keep(Given).default(r#""Deny""#).limits(&[AllOf(&[OneOf(&["Allow", "Deny", "Log", "Pass"]), OneOf(&["Pass", "Deny"])])]).checks("omitempty,oneof=Deny Pass").help("What becomes of packets that no policy of the tier decided"),
    ],
};

#[rustfmt::skip]
static TIER_STATUS: Object = Object {
    name: "TierStatus",
    fields: &[
        Field::new("conditions", "Conditions", List(&Shape::Object(&CONDITION))).help("What is known about the tier"),
    ],
};

/// The kind Profile.
#[rustfmt::skip]
pub(super) static PROFILE: Object = Object {
    name: "Profile",
    fields: &[KIND, API_VERSION, METADATA, spec(&PROFILE_SPEC)],
};

#[rustfmt::skip]
static PROFILE_SPEC: Object = Object {
    name: "ProfileSpec",
    fields: &[
        Field::new("ingress", "Ingress", List(&Shape::Object(&RULE))).checks("omitempty,dive").help("Rules for packets to the endpoints, after all policy"),
        Field::new("egress", "Egress", List(&Shape::Object(&RULE))).checks("omitempty,dive").help("Rules for packets from the endpoints, after all policy"),
        Field::new("labelsToApply", "LabelsToApply", Map(&Text)).checks("omitempty,labels").help("Labels that endpoints of the profile inherit"),
    ],
};
