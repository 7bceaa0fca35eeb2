//! The way of a node's addresses from the plugin `host-local`, which keeps them in files of its
//! host, to Calico's records: each address is claimed for the container that its file names.
//!
//! Everything is decided on three things: the files, the records, and a [`Journal`] of what was
//! claimed before. So the way can end anywhere and begin again. The records are never locked: each
//! claim is a transaction that rests on what it read.

mod endpoints;
mod file;
mod standing;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use endpoints::{Endpoints, endpoints_prefix, node_key};
pub use file::{Found, Given, is_network, read};
pub use standing::{Standing, claim, cluster, survey, unlock};
pub use step::Step;

/// The network of Calico's own configuration.
pub const USUAL_NETWORK: &str = "k8s-pod-network";

/// Something that keeps an address from moving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file that it is about.
    pub file: String,
    /// What is wrong.
    pub what: String,
    /// What puts it right.
    pub fix: String,
}

/// An address, and who is to hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: IpAddr,
    /// The handle to hold it under.
    pub handle: String,
    /// What to note beside it.
    pub attributes: BTreeMap<String, String>,
    /// The file that says so; none for an address of the node itself.
    pub file: Option<String>,
    /// Whether an endpoint of the same container has the address.
    pub is_confirmed: bool,
}

/// What was done before, for a run that follows one that ended early.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The cluster whose records are meant: of another's nothing was claimed.
    pub cluster: String,
    /// The node.
    pub node: String,
    /// Whether files are being removed: one that is missing was moved, else its container left.
    pub is_clearing: bool,
    /// The addresses that were claimed, and for which handle.
    pub claimed: BTreeMap<IpAddr, String>,
}

impl Journal {
    /// What an earlier run left, if it was about the same records.
    pub fn resume(earlier: Option<Self>, cluster: &str, node: &str) -> Self {
        let fresh = || Self { cluster: cluster.into(), node: node.into(), ..Self::default() };
        earlier.filter(|it| it.cluster == cluster && it.node == node).unwrap_or_else(fresh)
    }

    /// Whether an earlier run claimed the address for this handle.
    pub fn has(&self, claim: &Claim) -> bool {
        self.claimed.get(&claim.address) == Some(&claim.handle)
    }

    /// Addresses that were claimed and whose container left by way of host-local since: they are
    /// still held, by nobody.
    pub fn forsaken(&self, claims: &[Claim]) -> Vec<IpAddr> {
        let present: BTreeSet<IpAddr> = claims.iter().map(|claim| claim.address).collect();
        let gone = self.claimed.keys().filter(|address| !present.contains(address));
        gone.filter(|_| !self.is_clearing).copied().collect()
    }
}

/// What is to be claimed for the files of a folder, and which of them name somebody else's address.
pub fn intend(
    node: &str,
    network: &str,
    files: &[Given],
    endpoints: &Endpoints,
    object: Option<&Value>,
) -> (Vec<Claim>, Vec<Problem>) {
    let mut claims: BTreeMap<IpAddr, Claim> = BTreeMap::new();
    let mut problems = Vec::new();
    for given in files {
        match intended(node, network, given, endpoints) {
            Err(problem) => problems.push(problem),
            Ok(claim) => match claims.get(&claim.address).and_then(|it| it.file.clone()) {
                Some(other) => problems.push(Problem {
                    file: given.file.clone(),
                    what: format!("{} has another file, {other}", given.address),
                    fix: format!("rm {}      # or the other one", given.file),
                }),
                None => drop(claims.insert(claim.address, claim)),
            },
        }
    }
    for claim in object.map(|object| endpoints::tunnels(node, object)).unwrap_or_default() {
        claims.entry(claim.address).or_insert(claim);
    }
    (claims.into_values().collect(), problems)
}

fn intended(
    node: &str,
    network: &str,
    given: &Given,
    endpoints: &Endpoints,
) -> Result<Claim, Problem> {
    let mut attributes = BTreeMap::from([("node".to_owned(), node.to_owned())]);
    let mut is_confirmed = false;
    for endpoint in endpoints.of(given.address) {
        let is_same = endpoint.container.eq_ignore_ascii_case(&given.container);
        if endpoint.node != node || !(is_same || endpoint.container.is_empty()) {
            let container = given.short();
            return Err(Problem {
                file: given.file.clone(),
                what: format!("{endpoint} has {}, not container {container}", given.address),
                fix: format!("rm {}      # if container {container} is gone", given.file),
            });
        }
        is_confirmed = true;
        if !endpoint.pod.is_empty() {
            attributes.insert("namespace".to_owned(), endpoint.namespace.clone());
            attributes.insert("pod".to_owned(), endpoint.pod.clone());
        }
    }
    Ok(Claim {
        address: given.address,
        handle: format!("{network}.{}", given.container),
        attributes,
        file: Some(given.file.clone()),
        is_confirmed,
    })
}

/// Whether a network configuration lets `host-local` give out addresses for a network.
pub fn names_host_local(network: &str, configuration: &Value) -> bool {
    let plugins = configuration["plugins"].as_array().map_or(&[][..], Vec::as_slice);
    let mut all = std::iter::once(configuration).chain(plugins);
    configuration["name"] == network && all.any(|plugin| plugin["ipam"]["type"] == "host-local")
}

#[cfg(test)]
mod tests;
