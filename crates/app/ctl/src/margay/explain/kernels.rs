//! How far the kernels of the nodes on the way have come with what decides, as their agents told.

use std::collections::BTreeSet;
use std::fmt;

use api::Kind;
use policy::Endpoint;
use store::realised::Realised;
use store::resources::Name;

use super::Answer;
use super::hops::Hop;
use super::world::{World, spoken};

/// How far the kernel of a node has come.
pub(super) struct Kernel {
    pub(super) node: String,
    pub(super) revision: i64,
    /// Whether something was written since.
    is_behind: bool,
    /// What it does not carry out and may have a say, and why.
    pub(super) refused: Vec<Refusal>,
}

/// An object that a node does not carry out.
pub(super) struct Refusal {
    pub(super) object: String,
    /// Whether the node goes on with it although it was removed.
    is_removed: bool,
    pub(super) why: String,
}

impl Kernel {
    /// Whether what the datastore wants is what the kernel does.
    pub(super) fn has_all(&self) -> bool {
        !self.is_behind && self.refused.is_empty()
    }

    /// What it lacks.
    pub(super) fn lack(&self) -> Option<String> {
        match self.refused.first() {
            Some(Refusal { object, why, .. }) => Some(format!("refused {object}: {why}")),
            None => self.is_behind.then(|| format!("behind at revision {}", self.revision)),
        }
    }

    /// A line for each object that it does not carry out.
    pub(super) fn told(&self) -> impl Iterator<Item = String> {
        self.refused.iter().map(|Refusal { object, is_removed, why }| {
            let node = &self.node;
            let what = match is_removed {
                true => format!("{node} goes on with {object}, which was removed"),
                false => format!("{node} does not carry out {object}"),
            };
            format!("{what} ({why}); the answer is what the datastore wants")
        })
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, revision, is_behind, refused } = self;
        match (is_behind, refused.is_empty()) {
            (true, _) => write!(f, "not in the kernel of {node}: behind at revision {revision}"),
            (false, false) => write!(f, "not as such in the kernel of {node}"),
            (false, true) => write!(f, "in the kernel of {node}"),
        }
    }
}

/// How far the nodes have come whose policies decide, as far as they have told.
pub(super) fn kernels(answer: &Answer<'_>) -> Vec<Kernel> {
    let judges: BTreeSet<&String> = answer.hops.iter().map(|hop| &hop.node).collect();
    let ends = [&answer.source.node, &answer.destination.node].into_iter().flatten();
    let nodes: BTreeSet<&String> = judges.iter().copied().chain(ends).collect();
    let kernel = |node: &String| {
        let world = answer.world;
        let told = world.told.get(node)?;
        let revision = told.revision;
        let hops: Vec<&Hop> = answer.hops.iter().filter(|hop| hop.node == *node).collect();
        let refused = refusals(told, world, &hops);
        let is_behind = revision < world.revision;
        let kernel = Kernel { node: node.clone(), revision, is_behind, refused };
        // Where nothing decides it matters only if something should, or should not.
        (judges.contains(node) || !kernel.refused.is_empty()).then_some(kernel)
    };
    nodes.into_iter().filter_map(kernel).collect()
}

/// What a node does not carry out, of all that may have a say at its places on the way.
fn refusals(told: &Realised, world: &World, hops: &[&Hop]) -> Vec<Refusal> {
    let met: BTreeSet<String> = hops.iter().flat_map(|hop| met(hop)).collect();
    let is_meant = |key: &String, why: &String| {
        let is_met = met.contains(key);
        match Name::at_key(key).map(|name| name.kind) {
            // What is left of it, it is here as well.
            _ if world.aside.get(key) == Some(why) => false,
            Some(Kind::WorkloadEndpoint) => is_met,
            Some(Kind::HostEndpoint) => is_met || !world.has(key),
            // An earlier value may decide where this one does not.
            Some(Kind::NetworkPolicy | Kind::GlobalNetworkPolicy) => {
                is_met || !told.absent.contains(key)
            }
            // Who is in a set, or which labels a profile gives, may decide anywhere.
            _ => true,
        }
    };
    let meant = told.refused.iter().filter(|(key, why)| is_meant(key, why));
    let refusal = |(key, why): (&String, &String)| Refusal {
        object: spoken(key),
        is_removed: key.starts_with('/') && !world.has(key),
        why: why.clone(),
    };
    meant.map(refusal).collect()
}

/// The keys of the endpoint and of the policies that a packet meets at a place.
fn met(hop: &Hop) -> impl Iterator<Item = String> {
    let key = |kind, namespace: &str, name: &str| {
        Name { kind, namespace: namespace.to_owned(), name: name.to_owned() }.key()
    };
    let (kind, place) = match &hop.endpoint {
        Endpoint::Workload(place) => (Kind::WorkloadEndpoint, place),
        Endpoint::Host(place) => (Kind::HostEndpoint, place),
    };
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    let policies = hop.walk.tiers.iter().flat_map(|tier| &tier.policies);
    let policies = policies.filter_map(move |policy| {
        let kind = policy.id.kind.name().parse().ok()?;
        Some(key(kind, &policy.id.namespace, &policy.id.name))
    });
    policies.chain([key(kind, namespace, name)])
}
