//! Which labels tell an endpoint from others.

use std::net::IpAddr;

use model::selector::{Selector, is_label_name};

use super::{Target, Wish};
use crate::cluster::Cluster;
use crate::endpoint::Endpoint;
use crate::input::Labels;

/// Labels by which people name what runs, the usual ones first.
const USUAL: [&str; 8] = [
    "app",
    "app.kubernetes.io/name",
    "k8s-app",
    "role",
    "app.kubernetes.io/component",
    "component",
    "name",
    "run",
];

/// Labels that change with every roll-out, or name one pod.
const PASSING: [&str; 6] = [
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
];

/// The other end of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// By its labels.
    Labels {
        /// The labels.
        selector: Selector,
        /// The namespaces, as the rule selects them; none for those of the policy.
        namespaces: Option<Selector>,
    },
    /// By its address.
    Net(IpAddr),
}

/// Single labels that an endpoint has, the most telling first, with how many others have them.
fn candidates(cluster: &Cluster, labels: &Labels, scope: &[Endpoint]) -> Vec<(Selector, usize)> {
    let is_ours = |name: &str| {
        !name.starts_with("projectcalico.org/")
            && !name.starts_with("pcns.")
            && !name.starts_with("pcsa.")
            && !PASSING.contains(&name)
            && is_label_name(name)
    };
    let mut found = Vec::new();
    for (name, value) in labels.iter().filter(|(name, _)| is_ours(name)) {
        let selector = Selector::equals(name, value);
        let n = scope.iter().filter(|it| cluster.is_selected(it, &selector)).count();
        let is_telling = n < scope.len() || n == 1;
        let place = USUAL.iter().position(|usual| usual == name).unwrap_or(USUAL.len());
        found.push(((!is_telling, place, n, name.clone()), selector));
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found.into_iter().map(|((_, _, n, _), selector)| (selector, n)).collect()
}

/// Endpoints of one namespace, or those without one.
fn scope(cluster: &Cluster, namespace: Option<&str>) -> Vec<Endpoint> {
    cluster.endpoints().filter(|it| cluster.namespace_of(it) == namespace).collect()
}

/// Whom the new policy is for: the scope of its namespace is part of it.
pub(super) fn policy_selector(
    cluster: &Cluster,
    wish: Wish<'_>,
    target: &Target,
) -> Option<Selector> {
    let namespace = cluster.namespace_of(wish.endpoint);
    let scope = scope(cluster, namespace);
    let has_tier = |it: &Endpoint| cluster.has_tier(it, &target.tier, wish.direction, target.layer);
    let is_decided = has_tier(wish.endpoint);
    // Where the tier decided so far it goes on to do so, and where it did not, it does not.
    let changes_nothing_else = |selector: &Selector| {
        let selected = cluster.endpoints().filter(|it| cluster.is_selected(it, selector));
        selected.into_iter().all(|it| has_tier(&it) == is_decided)
    };
    let scoped = |selector: Selector| match namespace {
        Some(namespace) => {
            selector.and(&Selector::equals("projectcalico.org/namespace", namespace))
        }
        None => selector,
    };
    let labels = cluster.labels_of(wish.endpoint)?;
    let singles = candidates(cluster, &labels, &scope).into_iter().map(|(it, _)| it);
    let same = target.example.as_ref().and_then(|id| cluster.policies.get(id));
    let same = same.map(|it| it.selector.clone());
    let all = namespace.map(|_| Selector::all());
    let mut choices = singles.chain(same).chain(all).map(scoped);
    choices.find(|it| cluster.is_selected(wish.endpoint, it) && changes_nothing_else(it))
}

/// The other end by its labels, if it has telling ones.
pub(super) fn peer(cluster: &Cluster, wish: Wish<'_>, address: IpAddr) -> Option<Peer> {
    let peer = cluster.endpoints_at(address).into_iter().next()?;
    let namespace = cluster.namespace_of(&peer);
    let labels = cluster.labels_of(&peer)?;
    let scope = scope(cluster, namespace);
    let (selector, n) = candidates(cluster, &labels, &scope).into_iter().next()?;
    if n == scope.len() && n > 1 {
        return None;
    }
    let ours = cluster.namespace_of(wish.endpoint);
    let (selector, namespaces) = match (ours, namespace) {
        (Some(ours), Some(theirs)) if ours == theirs => (selector, None),
        (_, Some(theirs)) => other_namespace(selector, &labels, theirs),
        // Policies of the cluster select what has no namespace like everything else.
        (None, None) => (selector, None),
        (Some(_), None) => (selector, "global()".parse().ok()),
    };
    Some(Peer::Labels { selector, namespaces })
}

/// A namespace by a label that it has for its name, or else by the label of what is in it.
fn other_namespace(
    selector: Selector,
    labels: &Labels,
    namespace: &str,
) -> (Selector, Option<Selector>) {
    for name in ["kubernetes.io/metadata.name", "projectcalico.org/name"] {
        if labels.get(&format!("pcns.{name}")).is_some_and(|it| it == namespace) {
            return (selector, Some(Selector::equals(name, namespace)));
        }
    }
    let here = Selector::equals("projectcalico.org/namespace", namespace);
    (here.and(&selector), Some(Selector::all()))
}

/// The selector as it is written in a policy of a namespace, whose scope goes without saying.
pub(super) fn without_scope(selector: &Selector, namespace: &str) -> String {
    let sets = std::collections::BTreeMap::new();
    let words = crate::explain::Words { sets: &sets, namespace };
    match namespace.is_empty() {
        true => selector.canonical().to_owned(),
        false => words.selector(selector),
    }
}
