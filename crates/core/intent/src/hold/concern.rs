//! What of a change concerns the endpoints of hosts.

use std::collections::BTreeSet;

use policy::input::PolicyId;
use policy::intent::{Dirty, Host, Intent};
use policy::{Peer, Rule};

/// Whether what is different concerns endpoints of hosts.
pub fn concerns_hosts(intent: &Intent, dirty: &Dirty) -> bool {
    if !dirty.hosts.is_empty() {
        return true;
    }
    let hosts = intent.hosts.values();
    let policies: BTreeSet<_> = hosts.clone().flat_map(policies_of).collect();
    let profiles: BTreeSet<_> = hosts.flat_map(|host| &host.profiles).collect();
    let rules_of_policies = policies.iter().filter_map(|id| intent.policies.get(*id));
    let rules_of_profiles = profiles.iter().filter_map(|name| intent.profiles.get(*name));
    let directions = || rules_of_policies.clone().chain(rules_of_profiles.clone());
    let mut rules = directions().flat_map(|it| it.ingress.iter().chain(&it.egress));
    policies.iter().any(|id| dirty.policies.contains(*id))
        || profiles.iter().any(|name| dirty.profiles.contains(*name))
        || !dirty.sets.is_empty() && rules.any(|rule| names_any(rule, dirty))
}

fn policies_of(host: &Host) -> impl Iterator<Item = &PolicyId> {
    let lists = [&host.tiers, &host.forward, &host.pre_dnat, &host.untracked];
    let tiers = lists.into_iter().flatten();
    tiers.flat_map(|tier| tier.ingress.iter().chain(&tier.egress))
}

fn names_any(rule: &Rule, dirty: &Dirty) -> bool {
    let sets = |peer: &'_ Peer| {
        let lists =
            [&peer.sets, &peer.not_sets, &peer.port_sets, &peer.ports.named, &peer.not_ports.named];
        lists.into_iter().flatten().any(|set| dirty.sets.contains_key(set))
    };
    sets(&rule.source) || sets(&rule.destination)
}
