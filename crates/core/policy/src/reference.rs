//! From a cluster to what a node has to carry out, computed anew from everything each time.
//!
//! This is what any faster way has to agree with: it keeps nothing between two calls, and looks at
//! every object for every question.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::resource::Action;
use model::selector::Selector;
use net::Cidr;

use crate::cluster::Cluster;
use crate::input::{self, NamedPort, PolicyId, Stage};
use crate::intent::{Directions, Host, Intent, TierInForce, Workload};
use crate::labels::Labelled;
use crate::order::{PolicyOrder, TierOrder};
use crate::packet::protocol_number;
use crate::rule::Rule;
use crate::scan::{Scanned, SetDefinition, scan_policy, scan_profile};
use crate::set::{IpSet, Member};
use crate::verdict::End;

/// What the node of this name has to carry out.
pub fn intent(cluster: &Cluster, node: &str) -> Intent {
    let tiers = tiers(cluster);
    let mut intent = Intent::default();
    let mut active = BTreeSet::new();
    let mut named = BTreeSet::new();
    for (key, workload) in cluster.workloads.iter().filter(|(_, it)| it.node == node) {
        let selected = selected(cluster, of_workload(workload));
        named.extend(&workload.profiles);
        intent.workloads.insert(key.clone(), local_workload(workload, &tiers, &selected));
        active.extend(selected);
    }
    for (key, host) in cluster.hosts.iter().filter(|(_, it)| it.node == node) {
        let selected = selected(cluster, of_host(host));
        named.extend(&host.profiles);
        intent.hosts.insert(key.clone(), local_host(host, &tiers, &selected));
        active.extend(selected);
    }
    let everywhere = cluster.policies.iter().filter(|(_, policy)| policy.is_needed_everywhere);
    active.extend(everywhere.map(|(id, _)| id));

    let mut definitions = BTreeMap::new();
    for id in active {
        let Scanned { directions, sets } = scan_policy(&cluster.policies[id]);
        definitions.extend(sets);
        intent.policies.insert(id.clone(), Arc::new(directions));
    }
    for name in named {
        let Scanned { directions, sets } = match cluster.profiles.get(name) {
            Some(profile) => scan_profile(profile),
            None => Scanned { directions: missing_profile(), sets: BTreeMap::new() },
        };
        definitions.extend(sets);
        intent.profiles.insert(name.clone(), Arc::new(directions));
    }
    for (id, definition) in definitions {
        intent.sets.insert(id, IpSet { members: members(cluster, &definition) });
    }
    intent
}

/// The rules in place of a profile that nobody has written.
fn missing_profile() -> Directions {
    Directions { ingress: vec![Rule::all(Action::Deny)], egress: vec![Rule::all(Action::Deny)] }
}

fn of_workload(workload: &input::Workload) -> Labelled<'_> {
    Labelled { own: &workload.labels, profiles: &workload.profiles }
}

fn of_host(host: &input::Host) -> Labelled<'_> {
    Labelled { own: &host.labels, profiles: &host.profiles }
}

fn selected<'a>(cluster: &'a Cluster, endpoint: Labelled<'a>) -> BTreeSet<&'a PolicyId> {
    let is_for = |policy: &input::Policy| endpoint.is_selected(&policy.selector, &cluster.profiles);
    let policies = cluster.policies.iter().filter(|(_, policy)| is_for(policy));
    policies.map(|(id, _)| id).collect()
}

/// A tier with all its policies in their order.
struct Tier<'a> {
    name: &'a str,
    end: End,
    policies: Vec<(&'a PolicyId, &'a input::Policy)>,
}

/// All tiers that have policies, in their order.
fn tiers(cluster: &Cluster) -> Vec<Tier<'_>> {
    let names = cluster.policies.values().map(|policy| policy.tier.as_str());
    let mut names = names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    names.sort_by_key(|name| TierOrder::new(name, cluster.tiers.get(*name)));
    let tier = |name| {
        let of_tier = cluster.policies.iter().filter(|(_, policy)| policy.tier == name);
        let mut policies = of_tier.map(|(id, policy)| (id, &**policy)).collect::<Vec<_>>();
        policies.sort_by_key(|(id, policy)| PolicyOrder::new(policy.order, (*id).clone()));
        // A tier that only policies speak of denies what they leave undecided.
        let end = cluster.tiers.get(name).map_or(End::Deny, |tier| tier.end);
        Tier { name, end, policies }
    };
    names.into_iter().map(tier).collect()
}

/// The tiers with the policies that are selected and wanted; those without any are left out.
fn in_force(
    tiers: &[Tier<'_>],
    selected: &BTreeSet<&PolicyId>,
    is_wanted: impl Fn(&input::Policy) -> bool,
) -> Vec<TierInForce> {
    let of_tier = |tier: &Tier<'_>| {
        let policies = |decides: fn(&input::Policy) -> bool| {
            let list = tier.policies.iter();
            let here = list.filter(|(id, it)| selected.contains(id) && is_wanted(it));
            here.filter(|(_, it)| decides(it)).map(|(id, _)| (*id).clone()).collect::<Vec<_>>()
        };
        TierInForce {
            name: tier.name.to_owned(),
            end: tier.end,
            ingress: policies(|policy| policy.is_for_ingress),
            egress: policies(|policy| policy.is_for_egress && policy.stage != Stage::PreDnat),
        }
    };
    let all = tiers.iter().map(of_tier);
    all.filter(|tier| !tier.ingress.is_empty() || !tier.egress.is_empty()).collect()
}

/// Before the way of a packet is known nothing ends with a tier: the normal policies follow.
fn passing(mut tiers: Vec<TierInForce>) -> Vec<TierInForce> {
    for tier in &mut tiers {
        tier.end = End::Pass;
    }
    tiers
}

fn local_workload(
    workload: &input::Workload,
    tiers: &[Tier<'_>],
    selected: &BTreeSet<&PolicyId>,
) -> Workload {
    Workload {
        interface: workload.interface.clone(),
        addresses: workload.addresses.clone(),
        allowed_sources: workload.allowed_sources.clone(),
        tiers: in_force(tiers, selected, |policy| policy.stage == Stage::Normal),
        profiles: workload.profiles.clone(),
    }
}

fn local_host(host: &input::Host, tiers: &[Tier<'_>], selected: &BTreeSet<&PolicyId>) -> Host {
    let at = |stage| in_force(tiers, selected, |policy| policy.stage == stage);
    let is_forward =
        |policy: &input::Policy| policy.stage == Stage::Normal && policy.is_for_forward;
    Host {
        interface: host.interface.clone(),
        addresses: host.addresses.clone(),
        tiers: at(Stage::Normal),
        forward: in_force(tiers, selected, is_forward),
        pre_dnat: passing(at(Stage::PreDnat)),
        untracked: passing(at(Stage::Untracked)),
        profiles: host.profiles.clone(),
        is_rest: host.is_rest,
    }
}

/// What is in a set now.
pub(crate) fn members(cluster: &Cluster, definition: &SetDefinition) -> BTreeSet<Member> {
    match definition {
        SetDefinition::Selector(selector) => {
            widest(nets(cluster, selector)).into_iter().map(Member::Net).collect()
        }
        SetDefinition::NamedPort { selector, protocol, name } => {
            let mut members = BTreeSet::new();
            for (addresses, ports) in endpoints(cluster, selector) {
                for port in ports.iter().filter(|port| port.name == *name) {
                    let Some(number) = protocol_number(&port.protocol) else { continue };
                    if protocol.includes(number) {
                        members.extend(addresses.iter().map(|net| Member::Port {
                            address: net.address(),
                            protocol: number,
                            port: port.port,
                        }));
                    }
                }
            }
            members
        }
        // Who serves a service is not known here.
        SetDefinition::Service { .. } => BTreeSet::new(),
    }
}

/// The addresses and ports of all endpoints with such labels, one list of each for each endpoint.
fn endpoints<'a>(cluster: &'a Cluster, selector: &Selector) -> Vec<(Vec<Cidr>, &'a [NamedPort])> {
    let is_selected = |labelled: Labelled<'_>| labelled.is_selected(selector, &cluster.profiles);
    let workloads = cluster.workloads.values().filter(|it| is_selected(of_workload(it)));
    let hosts = cluster.hosts.values().filter(|it| is_selected(of_host(it)));
    let of_workload = |it: &'a Arc<input::Workload>| {
        // The address of a workload is one address, whatever the length of its network.
        let addresses = it.addresses.iter().map(|net| Cidr::host(net.network()));
        (addresses.collect::<Vec<_>>(), it.ports.as_slice())
    };
    let of_host = |it: &'a Arc<input::Host>| {
        let addresses = it.addresses.iter().map(|address| Cidr::host(*address));
        (addresses.collect::<Vec<_>>(), it.ports.as_slice())
    };
    workloads.map(of_workload).chain(hosts.map(of_host)).collect()
}

/// The networks of everything with such labels.
fn nets(cluster: &Cluster, selector: &Selector) -> Vec<Cidr> {
    let addresses = endpoints(cluster, selector).into_iter().flat_map(|(addresses, _)| addresses);
    let sets = cluster.network_sets.values().filter(|set| {
        let labelled = Labelled { own: &set.labels, profiles: &set.profiles };
        labelled.is_selected(selector, &cluster.profiles)
    });
    addresses.chain(sets.flat_map(|set| &set.nets).flat_map(|net| halved(*net))).collect()
}

/// A network of all addresses as its two halves, because dataplanes have no place for length 0.
fn halved(net: Cidr) -> Vec<Cidr> {
    if net.prefix_len() > 0 {
        return vec![net.masked()];
    }
    let halves = if net.is_ipv4() { ["0.0.0.0/1", "128.0.0.0/1"] } else { ["::/1", "8000::/1"] };
    halves.iter().filter_map(|half| half.parse().ok()).collect()
}

/// The networks that lie in no other of them.
fn widest(mut nets: Vec<Cidr>) -> BTreeSet<Cidr> {
    // A network that holds another comes before it, and only networks that it holds stand between.
    nets.sort_by_key(|net| (net.network(), net.prefix_len()));
    let mut widest: Vec<Cidr> = Vec::new();
    for net in nets {
        if !widest.last().is_some_and(|last| last.contains(net.network())) {
            widest.push(net);
        }
    }
    widest.into_iter().collect()
}

#[cfg(test)]
mod tests;
