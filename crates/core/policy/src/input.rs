//! What policy is computed from: the objects of the datastore that matter to it, one by one.
//!
//! Scope has already become selectors: a policy of a namespace selects by the label of that
//! namespace, and so do its rules. `convert` makes these forms from stored objects.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use model::resource::Action;
use model::selector::Selector;
use net::{Cidr, Port, Protocol};

use crate::rule::Icmp;
use crate::verdict::End;

/// Where an endpoint or a network set is stored: opaque, unique, and ordered.
pub type Key = String;

/// Labels by name.
pub type Labels = BTreeMap<String, String>;

/// A new value of an object, or its removal.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// An interface of a pod, container or virtual machine, anywhere in the cluster.
    Workload(Key, Option<Arc<Workload>>),
    /// An interface of a host, anywhere in the cluster.
    Host(Key, Option<Arc<Host>>),
    /// Networks with labels.
    NetworkSet(Key, Option<Arc<NetworkSet>>),
    /// A policy of any kind.
    Policy(PolicyId, Option<Arc<Policy>>),
    /// A tier.
    Tier(String, Option<Tier>),
    /// A profile.
    Profile(String, Option<Arc<Profile>>),
}

/// Which policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId {
    /// Its kind.
    pub kind: PolicyKind,
    /// Its namespace; empty for policies of the cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// `namespace/name`, or the name alone.
impl fmt::Display for PolicyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(formatter, "{}/", self.namespace)?;
        }
        formatter.write_str(&self.name)
    }
}

/// The kinds of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum PolicyKind {
    GlobalNetworkPolicy,
    NetworkPolicy,
    StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy,
    StagedNetworkPolicy,
}

impl PolicyKind {
    /// The kind as resources name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::GlobalNetworkPolicy => "GlobalNetworkPolicy",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::StagedGlobalNetworkPolicy => "StagedGlobalNetworkPolicy",
            Self::StagedKubernetesNetworkPolicy => "StagedKubernetesNetworkPolicy",
            Self::StagedNetworkPolicy => "StagedNetworkPolicy",
        }
    }

    /// Whether such a policy is only counted, never enforced.
    pub fn is_staged(self) -> bool {
        !matches!(self, Self::GlobalNetworkPolicy | Self::NetworkPolicy)
    }
}

/// An interface of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// The node it is on.
    pub node: String,
    /// The interface on the host.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<Cidr>,
    /// Its own labels.
    pub labels: Labels,
    /// Its profiles in their order.
    pub profiles: Vec<String>,
    /// Its ports with names.
    pub ports: Vec<NamedPort>,
    /// Sources it may use although they are not its own.
    pub allowed_sources: Vec<Cidr>,
}

/// An interface of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// The node.
    pub node: String,
    /// The interface; `*` for all of the host; empty to find it by its addresses.
    pub interface: String,
    /// Addresses that the interface has.
    pub addresses: Vec<IpAddr>,
    /// Its own labels.
    pub labels: Labels,
    /// Its profiles in their order.
    pub profiles: Vec<String>,
    /// Its ports with names.
    pub ports: Vec<NamedPort>,
    /// Whether it is what is left of one that cannot be read as a whole: another one that is for
    /// the same interface goes before it.
    pub is_rest: bool,
}

/// A port that rules can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// The name.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
}

/// Networks with labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkSet {
    /// The networks.
    pub nets: Vec<Cidr>,
    /// Its own labels.
    pub labels: Labels,
    /// The profiles it takes labels from.
    pub profiles: Vec<String>,
}

/// A tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// Its place among the tiers; without one it comes last.
    pub order: Option<f64>,
    /// What becomes of packets that its policies concern and none decides.
    pub end: End,
}

/// Rules and labels that endpoints take from the profiles they name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Labels the endpoints get where they have none of their own.
    pub labels: Labels,
    /// Rules for traffic to the endpoints.
    pub ingress: Vec<Rule>,
    /// Rules for traffic from the endpoints.
    pub egress: Vec<Rule>,
}

/// A policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The tier it belongs to.
    pub tier: String,
    /// Its place in the tier; without one it comes last.
    pub order: Option<f64>,
    /// Which endpoints it is for.
    pub selector: Selector,
    /// Whether it decides about traffic to the endpoints.
    pub is_for_ingress: bool,
    /// Whether it decides about traffic from the endpoints.
    pub is_for_egress: bool,
    /// Rules for traffic to the endpoints.
    pub ingress: Vec<Rule>,
    /// Rules for traffic from the endpoints.
    pub egress: Vec<Rule>,
    /// Host endpoints: when it decides.
    pub stage: Stage,
    /// Host endpoints: also about forwarded traffic.
    pub is_for_forward: bool,
    /// Worth preparing where nothing uses it yet.
    pub is_needed_everywhere: bool,
}

/// When a policy on a host's interface decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// When the packet's way is known.
    #[default]
    Normal,
    /// Before destination NAT.
    PreDnat,
    /// Before connection tracking.
    Untracked,
}

/// One rule, with selectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What to do with what matches.
    pub action: Action,
    /// Only IPv4, or only IPv6.
    pub is_ipv4: Option<bool>,
    /// Only this protocol.
    pub protocol: Option<Protocol>,
    /// Any protocol but this.
    pub not_protocol: Option<Protocol>,
    /// Only these ICMP messages.
    pub icmp: Option<Icmp>,
    /// Any but these ICMP messages.
    pub not_icmp: Option<Icmp>,
    /// Where the traffic comes from.
    pub source: Entity,
    /// Where it goes.
    pub destination: Entity,
}

/// One end of the traffic. Every condition that is given must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entity {
    /// In one of these networks.
    pub nets: Vec<Cidr>,
    /// In none of these networks.
    pub not_nets: Vec<Cidr>,
    /// An endpoint or network set with such labels.
    pub selector: Option<Selector>,
    /// Not an endpoint or network set with such labels.
    pub not_selector: Option<Selector>,
    /// An endpoint of this service.
    pub service: Option<Service>,
    /// On one of these ports.
    pub ports: Vec<Port>,
    /// On none of these ports.
    pub not_ports: Vec<Port>,
}

/// A Kubernetes service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}
