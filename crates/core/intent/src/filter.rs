//! Who may talk to the sandboxes of this node.
//!
//! Profiles only, so far: what is neither allowed by a profile nor part of an allowed conversation
//! is dropped. A rule that we cannot enforce in full allows nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::resource::{Action, Entity, Object, Profile, Rule, WorkloadEndpoint};
use model::selector::Selector;
use net::Cidr;

use crate::Inputs;

/// Everything that the packet filter should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The interfaces of our sandboxes, by name.
    pub ports: BTreeMap<String, Port>,
    /// The addresses behind each selector that a permission names.
    pub members: BTreeMap<String, BTreeSet<IpAddr>>,
    /// All pools: between them, addresses are never translated.
    pub pools: BTreeSet<Cidr>,
    /// The pools whose packets leave with the node's address.
    pub nat_outgoing: BTreeSet<Cidr>,
}

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// The addresses of the sandbox: the only sources it may use.
    pub addresses: BTreeSet<IpAddr>,
    /// Who may reach it.
    pub access: Access,
    /// Whether it may reach others.
    pub may_send: bool,
}

/// Who may reach a sandbox: any of these.
pub type Access = BTreeSet<Source>;

/// A group of senders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Everybody.
    Anybody,
    /// Those behind a selector, by the selector's id.
    Members(String),
}

impl Inputs {
    /// The filter that this node should have.
    pub fn filter(&self) -> Filter {
        let mut filter = Filter::default();
        let mut selectors = BTreeMap::new();
        // Many endpoints have the same few profiles.
        let mut permissions: BTreeMap<&str, (bool, Access)> = BTreeMap::new();
        for (_, endpoint) in self.local_endpoints() {
            let mut port = Port::default();
            port.addresses.extend(endpoint.spec.ip_networks.iter().map(|n| n.address()));
            for name in &endpoint.spec.profiles {
                let Some(profile) = self.profiles.get(name) else { continue };
                let (may_send, access) = permissions.entry(name).or_insert_with(|| {
                    let sources = profile.ingress.iter();
                    let sources = sources.filter_map(|rule| source_of(rule, &mut selectors));
                    (profile.egress.iter().any(allows_all), sources.collect())
                });
                port.may_send |= *may_send;
                port.access.extend(access.iter().cloned());
            }
            filter.ports.insert(endpoint.spec.interface_name.clone(), port);
        }
        filter.members =
            selectors.into_iter().map(|(id, selector)| (id, self.members(&selector))).collect();
        filter.pools = self.pools.values().map(|pool| pool.cidr).collect();
        filter.nat_outgoing =
            self.pools.values().filter(|pool| pool.nat_outgoing).map(|pool| pool.cidr).collect();
        filter
    }

    /// The addresses of all endpoints of the cluster with such labels.
    fn members(&self, selector: &Selector) -> BTreeSet<IpAddr> {
        let kept = self.vouched.iter().filter(|(key, _)| !self.endpoints.contains_key(*key));
        let kept = kept.map(|(_, vouched)| &vouched.endpoint);
        self.endpoints
            .values()
            .chain(kept)
            .filter(|endpoint| selector.matches(|label| self.label(endpoint, label)))
            .flat_map(|endpoint| endpoint.spec.ip_networks.iter().map(|network| network.address()))
            .collect()
    }

    /// An endpoint's own label goes before those of its profiles, the last profile first.
    fn label<'a>(&'a self, endpoint: &'a Object<WorkloadEndpoint>, name: &str) -> Option<&'a str> {
        let own = endpoint.metadata.labels.get(name);
        let inherited = || {
            let profiles = endpoint.spec.profiles.iter().rev();
            let mut found = profiles.filter_map(|name| self.profiles.get(name));
            found.find_map(|profile: &Profile| profile.labels_to_apply.get(name))
        };
        own.or_else(inherited).map(String::as_str)
    }
}

fn source_of(rule: &Rule, selectors: &mut BTreeMap<String, Selector>) -> Option<Source> {
    if allows_all(rule) {
        return Some(Source::Anybody);
    }
    let selector = rule.source.selector.as_ref()?;
    let only_selector = Entity { selector: None, ..rule.source.clone() } == Entity::default();
    let plain = Rule { source: Entity::default(), ..rule.clone() };
    if !only_selector || !allows_all(&plain) {
        return None;
    }
    let id = selector.unique_id();
    selectors.insert(id.clone(), selector.clone());
    Some(Source::Members(id))
}

/// Whether a rule allows without any condition.
fn allows_all(rule: &Rule) -> bool {
    rule.action == Action::Allow
        && rule.ip_version.is_none()
        && rule.protocol.is_none()
        && rule.not_protocol.is_none()
        && rule.icmp.is_none()
        && rule.not_icmp.is_none()
        && rule.http.is_none()
        && rule.source == Entity::default()
        && rule.destination == Entity::default()
}
