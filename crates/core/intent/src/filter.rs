//! Who may talk to the sandboxes of this node.
//!
//! Profiles only, so far: what is neither allowed by a profile nor part of an allowed conversation
//! is dropped. A rule that we cannot enforce in full allows nothing, and one that may deny ends
//! what its profile and the ones after it allow: unknown is closed, and said.

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
        let mut permissions: BTreeMap<&str, [Permission; 2]> = BTreeMap::new();
        for (_, endpoint) in self.local_endpoints() {
            let mut port = Port::default();
            port.addresses.extend(endpoint.spec.ip_networks.iter().map(|n| n.address()));
            let mut is_open = [true, true];
            for name in &endpoint.spec.profiles {
                let Some(profile) = self.profiles.get(name) else { continue };
                let [ingress, egress] = permissions.entry(name).or_insert_with(|| {
                    let no_selectors = &mut BTreeMap::new();
                    [
                        Permission::of(&profile.ingress, &mut selectors),
                        Permission::of(&profile.egress, no_selectors),
                    ]
                });
                if is_open[0] {
                    port.access.extend(ingress.access.iter().cloned());
                }
                port.may_send |= is_open[1] && egress.access.contains(&Source::Anybody);
                is_open = [is_open[0] && !ingress.is_final, is_open[1] && !egress.is_final];
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

    /// Rules of profiles that endpoints of this node have and that are not enforced as written:
    /// what they would allow is closed.
    pub fn unenforced(&self) -> Vec<Unenforced> {
        let used: BTreeSet<&String> =
            self.local_endpoints().flat_map(|(_, endpoint)| &endpoint.spec.profiles).collect();
        let mut all = Vec::new();
        for name in used {
            let Some(profile) = self.profiles.get(name) else { continue };
            let lists = [("ingress", &profile.ingress), ("egress", &profile.egress)];
            for (direction, rules) in lists {
                let is_egress = direction == "egress";
                let bad = rules.iter().position(|rule| !is_enforced(rule, is_egress));
                all.extend(bad.map(|index| Unenforced {
                    profile: name.clone(),
                    direction,
                    rule: index + 1,
                }));
            }
        }
        all
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

/// A rule that is not enforced as it is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unenforced {
    /// The profile.
    pub profile: String,
    /// `ingress` or `egress`.
    pub direction: &'static str,
    /// Its place in the list, from 1.
    pub rule: usize,
}

/// What the rules of one direction of a profile allow.
#[derive(Debug)]
struct Permission {
    access: Access,
    /// Whether a rule may deny: what comes after it, in later profiles too, allows nothing.
    is_final: bool,
}

impl Permission {
    fn of(rules: &[Rule], selectors: &mut BTreeMap<String, Selector>) -> Self {
        let mut access = Access::new();
        for rule in rules {
            match rule.action {
                Action::Allow => access.extend(source_of(rule, selectors)),
                Action::Log => {}
                Action::Deny | Action::Pass => return Self { access, is_final: true },
            }
        }
        Self { access, is_final: false }
    }
}

/// Whether a rule has the effect that it says.
fn is_enforced(rule: &Rule, is_egress: bool) -> bool {
    match rule.action {
        Action::Allow if is_egress => allows_all(rule),
        Action::Allow => source_of(rule, &mut BTreeMap::new()).is_some(),
        Action::Deny => allows_all(&Rule { action: Action::Allow, ..rule.clone() }),
        Action::Log | Action::Pass => false,
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
