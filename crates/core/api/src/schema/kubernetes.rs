//! Staged Kubernetes network policies.

use super::Keep::{Always, Given};
use super::Limit::{MaxItems, MinItems, OneOf};
use super::Shape::{self, IntOrText, List, Map, Text};
use super::meta::{API_VERSION, KIND, METADATA, spec};
use super::{Field, Object};

/// The kind StagedKubernetesNetworkPolicy.
#[rustfmt::skip]
pub(super) static STAGED_KUBERNETES_NETWORK_POLICY: Object = Object {
    name: "StagedKubernetesNetworkPolicy",
    fields: &[KIND, API_VERSION, METADATA, spec(&STAGED_KUBERNETES_NETWORK_POLICY_SPEC)],
};

#[rustfmt::skip]
static STAGED_KUBERNETES_NETWORK_POLICY_SPEC: Object = Object {
    name: "StagedKubernetesNetworkPolicySpec",
    fields: &[
        Field::new("stagedAction", "StagedAction", Text).default(r#""Set""#).limits(&[OneOf(&["Set", "Delete", "Learn", "Ignore"])]).help("What would happen if it were put in force"),
        Field::new("podSelector", "PodSelector", Shape::Object(&LABEL_SELECTOR)).keep(Always).help("Selects the pods of its namespace it would apply to"),
        Field::new("ingress", "Ingress", List(&Shape::Object(&NETWORK_POLICY_INGRESS_RULE))).help("Traffic to the pods that would be allowed"),
        Field::new("egress", "Egress", List(&Shape::Object(&NETWORK_POLICY_EGRESS_RULE))).help("Traffic from the pods that would be allowed"),
        Field::new("policyTypes", "PolicyTypes", List(&Text)).limits(&[MinItems(1), MaxItems(2)]).help("The directions it would apply to"),
    ],
};

#[rustfmt::skip]
static LABEL_SELECTOR: Object = Object {
    name: "LabelSelector",
    fields: &[
        Field::new("matchLabels", "MatchLabels", Map(&Text)).help("Labels that must all be there"),
        Field::new("matchExpressions", "MatchExpressions", List(&Shape::Object(&LABEL_SELECTOR_REQUIREMENT))).help("Conditions that must all hold"),
    ],
};

#[rustfmt::skip]
static LABEL_SELECTOR_REQUIREMENT: Object = Object {
    name: "LabelSelectorRequirement",
    fields: &[
        Field::new("key", "Key", Text).keep(Always).required().help("The label"),
        Field::new("operator", "Operator", Text).keep(Always).required().help("In, NotIn, Exists or DoesNotExist"),
        Field::new("values", "Values", List(&Text)).help("The values for In and NotIn"),
    ],
};

#[rustfmt::skip]
static NETWORK_POLICY_INGRESS_RULE: Object = Object {
    name: "NetworkPolicyIngressRule",
    fields: &[
        Field::new("ports", "Ports", List(&Shape::Object(&NETWORK_POLICY_PORT))).help("Any of these ports; all if not set"),
        Field::new("from", "From", List(&Shape::Object(&NETWORK_POLICY_PEER))).help("Any of these peers; all if not set"),
    ],
};

#[rustfmt::skip]
static NETWORK_POLICY_PORT: Object = Object {
    name: "NetworkPolicyPort",
    fields: &[
        Field::new("protocol", "Protocol", Text).keep(Given).help("TCP, UDP or SCTP; TCP if not set"),
        Field::new("port", "Port", IntOrText).keep(Given).help("The port, by number or name; all if not set"),
        Field::new("endPort", "EndPort", Shape::INT32).keep(Given).help("The last port of a range that starts at port"),
    ],
};

#[rustfmt::skip]
static NETWORK_POLICY_PEER: Object = Object {
    name: "NetworkPolicyPeer",
    fields: &[
        Field::new("podSelector", "PodSelector", Shape::Object(&LABEL_SELECTOR)).keep(Given).help("Selects pods"),
        Field::new("namespaceSelector", "NamespaceSelector", Shape::Object(&LABEL_SELECTOR)).keep(Given).help("Selects namespaces"),
        Field::new("ipBlock", "IPBlock", Shape::Object(&IP_BLOCK)).keep(Given).help("A range of addresses"),
    ],
};

#[rustfmt::skip]
static IP_BLOCK: Object = Object {
    name: "IPBlock",
    fields: &[
        Field::new("cidr", "CIDR", Text).keep(Always).required().help("The range"),
        Field::new("except", "Except", List(&Text)).help("Parts of the range to leave out"),
    ],
};

#[rustfmt::skip]
static NETWORK_POLICY_EGRESS_RULE: Object = Object {
    name: "NetworkPolicyEgressRule",
    fields: &[
        Field::new("ports", "Ports", List(&Shape::Object(&NETWORK_POLICY_PORT))).help("Any of these ports; all if not set"),
        Field::new("to", "To", List(&Shape::Object(&NETWORK_POLICY_PEER))).help("Any of these peers; all if not set"),
    ],
};
