//! Small worlds: few names for everything, so that what is drawn meets.

use std::sync::Arc;

use model::resource::Action;
use net::{Port, Protocol};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::cluster::Cluster;
use crate::input::{
    Change, Entity, Host, Labels, NamedPort, NetworkSet, Policy, PolicyId, PolicyKind, Profile,
    Rule, Service, Stage, Tier, Workload,
};
use crate::verdict::End;

/// The node that is looked at.
pub(super) const HERE: &str = "here";

/// What happens next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Change(Change),
    Tweak(Tweak),
    Flush,
}

/// A change of one field of something that is there, taken from another object of its kind.
#[derive(Clone, Debug)]
pub(super) enum Tweak {
    Policy(PolicyId, Box<Policy>, u8),
    Workload(String, Box<Workload>, u8),
}

impl Tweak {
    /// The change, if the object is there.
    pub(super) fn of(self, cluster: &Cluster) -> Option<Change> {
        Some(match self {
            Self::Policy(id, other, field) => {
                let mut policy = Policy::clone(cluster.policies.get(&id)?);
                match field {
                    0 => policy.tier = other.tier,
                    1 => policy.order = other.order,
                    2 => policy.selector = other.selector,
                    3 => policy.is_for_ingress = other.is_for_ingress,
                    4 => policy.is_for_egress = other.is_for_egress,
                    5 => policy.ingress = other.ingress,
                    6 => policy.stage = other.stage,
                    7 => policy.is_for_forward = other.is_for_forward,
                    _ => policy.is_needed_everywhere = other.is_needed_everywhere,
                }
                Change::Policy(id, Some(Arc::new(policy)))
            }
            Self::Workload(key, other, field) => {
                let mut workload = Workload::clone(cluster.workloads.get(&key)?);
                match field {
                    0 => workload.node = other.node,
                    1 => workload.labels = other.labels,
                    2 => workload.profiles = other.profiles,
                    3 => workload.addresses = other.addresses,
                    _ => workload.ports = other.ports,
                }
                Change::Workload(key, Some(Arc::new(workload)))
            }
        })
    }
}

const SELECTORS: &[&str] = &[
    "all()",
    "global()",
    "has(a)",
    "!has(a)",
    "has(b) && !has(c)",
    "a == 'x'",
    "b == 'y'",
    "a != 'x'",
    "a in {'x', 'y'}",
    "b not in {'x', 'y'}",
    "a == 'x' && b == 'y'",
    "a in {'x', 'z'} && b in {'y', 'z'} && has(c)",
    "a == 'x' || b == 'y'",
    "(a == 'x' || a == 'y') && !has(b)",
    "a == 'x' && a == 'y'",
    "has(a) && !has(a)",
    "a starts with 'x'",
    "c contains 'y' && b == 'x'",
    "d == 'never'",
];

const NETS: &[&str] = &[
    "0.0.0.0/0",
    "0.0.0.0/1",
    "128.0.0.0/1",
    "10.0.0.0/8",
    "10.0.0.7/8",
    "10.0.0.0/16",
    "10.0.0.0/24",
    "10.0.0.0/31",
    "10.0.0.1/32",
    "10.0.0.2/32",
    "10.128.0.0/9",
    "::/0",
    "8000::/1",
    "fd00::/8",
    "fd00::/64",
    "fd00::1/128",
];

const ADDRESSES: &[&str] = &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.1", "fd00::1", "fd00::2"];

fn text(list: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(list).prop_map(str::to_owned)
}

fn labels() -> impl Strategy<Value = Labels> {
    btree_map(text(&["a", "b", "c"]), text(&["x", "y", "z"]), 0..3)
}

fn profiles() -> impl Strategy<Value = Vec<String>> {
    vec(text(&["p", "q", "missing", "projectcalico-default-allow"]), 0..3)
}

fn ports() -> impl Strategy<Value = Vec<NamedPort>> {
    let protocol = select(vec!["TCP", "udp", "6", "132", "gre"]).prop_map(Protocol::from);
    let port = (text(&["http", "dns"]), protocol, select(vec![53_u16, 80]));
    vec(port.prop_map(|(name, protocol, port)| NamedPort { name, protocol, port }), 0..3)
}

fn node() -> impl Strategy<Value = String> {
    text(&[HERE, "there"])
}

fn workload() -> impl Strategy<Value = Workload> {
    let addresses = subsequence(ADDRESSES, 0..3);
    let length = select(vec!["", "", "", "/24"]);
    (node(), labels(), profiles(), ports(), addresses, length).prop_map(
        |(node, labels, profiles, ports, addresses, length)| Workload {
            node,
            interface: "cali1".to_owned(),
            addresses: addresses
                .iter()
                .map(|it| format!("{it}{length}").parse().unwrap())
                .collect(),
            labels,
            profiles,
            ports,
            allowed_sources: Vec::new(),
        },
    )
}

fn host() -> impl Strategy<Value = Host> {
    let addresses = subsequence(ADDRESSES, 0..3);
    let interface = text(&["eth0", "*"]);
    (node(), labels(), profiles(), ports(), addresses, interface, any::<bool>()).prop_map(
        |(node, labels, profiles, ports, addresses, interface, is_rest)| Host {
            node,
            interface,
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            labels,
            profiles,
            ports,
            is_rest,
        },
    )
}

fn network_set() -> impl Strategy<Value = NetworkSet> {
    (vec(select(NETS), 0..4), labels(), profiles()).prop_map(|(nets, labels, profiles)| {
        let nets = nets.iter().map(|net| net.parse().unwrap()).collect();
        NetworkSet { nets, labels, profiles }
    })
}

fn entity() -> impl Strategy<Value = Entity> {
    let selector = || option::weighted(0.4, select(SELECTORS).prop_map(|it| it.parse().unwrap()));
    let port = prop_oneof![
        text(&["http", "dns"]).prop_map(|name| Port::named(&name).unwrap()),
        Just(Port::single(80)),
    ];
    let service = Service { namespace: "n".to_owned(), name: "s".to_owned() };
    let ports = vec(port, 0..2);
    (selector(), selector(), ports, option::weighted(0.05, Just(service))).prop_map(
        |(selector, not_selector, ports, service)| Entity {
            selector,
            not_selector,
            ports,
            service,
            ..Entity::default()
        },
    )
}

fn rule() -> impl Strategy<Value = Rule> {
    let action = select(vec![Action::Allow, Action::Deny, Action::Log, Action::Pass]);
    let protocol = option::of(select(vec!["TCP", "UDP"]).prop_map(Protocol::from));
    (action, protocol, entity(), entity()).prop_map(|(action, protocol, source, destination)| {
        Rule {
            action,
            is_ipv4: None,
            protocol,
            not_protocol: None,
            icmp: None,
            not_icmp: None,
            source,
            destination,
        }
    })
}

fn profile() -> impl Strategy<Value = Profile> {
    let rules = || vec(rule(), 0..2);
    (labels(), rules(), rules()).prop_map(|(labels, ingress, egress)| Profile {
        labels,
        ingress,
        egress,
    })
}

fn order() -> impl Strategy<Value = Option<f64>> {
    select(vec![None, Some(-1.0), Some(0.0), Some(-0.0), Some(2.0)])
}

fn policy() -> impl Strategy<Value = Policy> {
    let selector = select(SELECTORS).prop_map(|it| it.parse().unwrap());
    let stage = select(vec![Stage::Normal, Stage::Normal, Stage::PreDnat, Stage::Untracked]);
    let rules = || vec(rule(), 0..3);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), proptest::bool::weighted(0.1));
    let tier = text(&["default", "one", "two", "unwritten"]);
    (tier, order(), selector, stage, flags, rules(), rules()).prop_map(
        |(tier, order, selector, stage, flags, ingress, egress)| {
            let (is_for_ingress, is_for_egress, is_for_forward, is_needed_everywhere) = flags;
            Policy {
                tier,
                order,
                selector,
                is_for_ingress,
                is_for_egress,
                ingress,
                egress,
                stage,
                is_for_forward,
                is_needed_everywhere,
            }
        },
    )
}

fn policy_id() -> impl Strategy<Value = PolicyId> {
    let ids = [
        (PolicyKind::GlobalNetworkPolicy, "", "a"),
        (PolicyKind::GlobalNetworkPolicy, "", "a-b"),
        (PolicyKind::NetworkPolicy, "n", "a"),
        (PolicyKind::NetworkPolicy, "m", "a"),
        (PolicyKind::StagedNetworkPolicy, "n", "a"),
    ];
    let id = |(kind, namespace, name): (PolicyKind, &str, &str)| PolicyId {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    select(ids.map(id).to_vec())
}

fn tier() -> impl Strategy<Value = Tier> {
    (order(), select(vec![End::Deny, End::Pass])).prop_map(|(order, end)| Tier { order, end })
}

/// Anything that can happen.
pub(super) fn step() -> impl Strategy<Value = Step> {
    /// A new value, or now and then none.
    fn value<T: std::fmt::Debug + Clone>(
        value: impl Strategy<Value = T>,
    ) -> impl Strategy<Value = Option<Arc<T>>> {
        option::weighted(0.75, value.prop_map(Arc::new))
    }
    let key = || text(&["k1", "k2", "k3"]);
    let change = prop_oneof![
        4 => (key(), value(workload())).prop_map(|(key, it)| Change::Workload(key, it)),
        2 => (key(), value(host())).prop_map(|(key, it)| Change::Host(key, it)),
        3 => (key(), value(network_set())).prop_map(|(key, it)| Change::NetworkSet(key, it)),
        4 => (policy_id(), value(policy())).prop_map(|(id, it)| Change::Policy(id, it)),
        1 => (text(&["default", "one", "two"]), option::weighted(0.75, tier()))
            .prop_map(|(name, it)| Change::Tier(name, it)),
        2 => (text(&["p", "q", "projectcalico-default-allow"]), value(profile()))
            .prop_map(|(name, it)| Change::Profile(name, it)),
    ];
    let of_policy = (policy_id(), policy().prop_map(Box::new), 0..9_u8);
    let of_workload = (key(), workload().prop_map(Box::new), 0..5_u8);
    let tweak = prop_oneof![
        2 => of_policy.prop_map(|(id, other, field)| Tweak::Policy(id, other, field)),
        1 => of_workload.prop_map(|(key, other, field)| Tweak::Workload(key, other, field)),
    ];
    prop_oneof![
        6 => change.prop_map(Step::Change),
        3 => tweak.prop_map(Step::Tweak),
        2 => Just(Step::Flush),
    ]
}

/// The removal of everything there is.
pub(super) fn removals(cluster: &Cluster) -> Vec<Change> {
    let workloads = cluster.workloads.keys().map(|key| Change::Workload(key.clone(), None));
    let hosts = cluster.hosts.keys().map(|key| Change::Host(key.clone(), None));
    let network_sets = cluster.network_sets.keys();
    let network_sets = network_sets.map(|key| Change::NetworkSet(key.clone(), None));
    let policies = cluster.policies.keys().map(|id| Change::Policy(id.clone(), None));
    let tiers = cluster.tiers.keys().map(|name| Change::Tier(name.clone(), None));
    let profiles = cluster.profiles.keys().map(|name| Change::Profile(name.clone(), None));
    let endpoints = workloads.chain(hosts).chain(network_sets);
    endpoints.chain(policies).chain(tiers).chain(profiles).collect()
}
