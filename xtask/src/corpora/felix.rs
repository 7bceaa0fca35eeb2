//! What Felix reads and what it answers, for the topics that compare with it.
//!
//! Only what concerns policy is compared: sets, policies, profiles, and endpoints with their tiers.
//! Of an endpoint that is its interface, addresses, tiers and profiles; of a rule, what packets it
//! matches and what it does. What Felix passes on for others to read (original selectors, HTTP
//! matches, annotations, ids of rules, labels of namespaces) is not ours to repeat.
//!
//! The graph hears every change as well, and must come to what the reference comes to.

mod recorded;
mod v1;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use anyhow::{Context, bail};
use api::keys::value::{self, Stored};
use api::keys::{Key, ResourceKey, ResourceKind};
use api::names::old_workload_endpoint;
use model::resource::Resource;
use policy::Cluster;
use policy::convert::convert;
use policy::graph::Graph;
use policy::input::{Change, Labels, PolicyId, Rule, Workload};
use policy::intent::Intent;
use policy::salvage::salvage;
use serde_json::Value;

pub(super) use recorded::{has_any, read_seen, recorded};
pub(super) use v1::read_policy;

/// A cluster that is filled as the recordings fill theirs.
#[derive(Default)]
pub(super) struct Filled {
    pub(super) cluster: Cluster,
    /// What was not taken, by its path.
    pub(super) refused: BTreeMap<String, Refused>,
    /// Parts of profiles, which come one by one in the older form.
    profile_labels: BTreeMap<String, Labels>,
    profile_rules: BTreeMap<String, (Vec<Rule>, Vec<Rule>)>,
    /// What the graph, which lives on through all steps, has not heard yet.
    unheard: Vec<Change>,
    graph: Option<Graph>,
}

/// An object that was not taken: what to look for where Felix took it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refused {
    Workload(String),
    Host(String),
    Policy(PolicyId),
    NetworkSet(String),
    Tier(String),
    Profile(String),
}

/// How strictly stored objects are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As the agent reads them: what the client would have refused is refused.
    Valid,
    /// By their types alone.
    Typed,
}

impl Filled {
    /// Takes what is stored under a key of the v3 API, or its removal; others mean nothing.
    pub(super) fn store(
        &mut self,
        path: &str,
        raw: Option<&[u8]>,
        reading: Reading,
    ) -> anyhow::Result<()> {
        self.refused.remove(path);
        let Some(Key::Resource(key)) = Key::parse(path) else { return Ok(()) };
        let gone = convert(&key, None)?;
        let Some(gone) = gone else { return Ok(()) };
        let read = raw.map(|raw| read_stored(&key, raw, reading)).transpose();
        let change = read.and_then(|resource| {
            convert(&key, resource.as_ref()).map_err(|error| error.to_string())
        });
        match change {
            Ok(change) => self.absorb(change.context("a kind that is none")?),
            Err(_) => {
                self.refused.insert(path.to_owned(), Refused::of(&gone));
                let left = raw.and_then(|raw| left_of(&key, raw)).unwrap_or(gone);
                self.absorb(left);
            }
        }
        Ok(())
    }

    fn absorb(&mut self, change: Change) {
        self.unheard.push(change.clone());
        self.cluster.absorb(change);
    }

    /// The intent of a node, with the workloads under the names that Felix gives them. The graph
    /// must come to the same, by the changes since it was asked last.
    pub(super) fn intent(&mut self, node: &str) -> anyhow::Result<Intent> {
        let mut intent = policy::reference::intent(&self.cluster, node);
        let graph = self.graph.get_or_insert_with(|| Graph::new(node));
        std::mem::take(&mut self.unheard).into_iter().for_each(|change| graph.absorb(change));
        graph.flush();
        if let Some(difference) = difference(graph.intent(), &intent) {
            bail!("the graph is of another mind than the reference: {difference}");
        }
        let workloads = std::mem::take(&mut intent.workloads);
        intent.workloads = workloads
            .into_iter()
            .map(|(key, mut workload)| {
                workload.addresses.sort_by_key(|net| !net.is_ipv4());
                (felix_name(&key), workload)
            })
            .collect();
        for host in intent.hosts.values_mut() {
            host.addresses.sort_by_key(|address| !address.is_ipv4());
        }
        Ok(intent)
    }
}

/// A cluster that can be compared whichever form it was read from.
type Comparable = (Cluster, BTreeMap<String, Arc<Workload>>);

impl Filled {
    /// The cluster, with its workloads under the names that Felix gives them.
    pub(super) fn comparable(&self) -> Comparable {
        let mut cluster = self.cluster.clone();
        let workloads = std::mem::take(&mut cluster.workloads).into_iter();
        (cluster, workloads.map(|(key, it)| (felix_name(&key), it)).collect())
    }

    /// The cluster without what was refused here or there.
    pub(super) fn without(&self, refused: &BTreeMap<String, Refused>) -> Self {
        let mut left = Self { cluster: self.cluster.clone(), ..Self::default() };
        for refused in refused.values() {
            match refused {
                Refused::Workload(name) => drop(left.cluster.workloads.remove(name)),
                Refused::Host(name) => drop(left.cluster.hosts.remove(name)),
                Refused::Policy(id) => drop(left.cluster.policies.remove(id)),
                Refused::NetworkSet(name) => drop(left.cluster.network_sets.remove(name)),
                Refused::Tier(name) => drop(left.cluster.tiers.remove(name)),
                Refused::Profile(name) => drop(left.cluster.profiles.remove(name)),
            }
        }
        left
    }

    /// Whether this took what another refused to take.
    pub(super) fn has(&self, refused: &Refused) -> bool {
        match refused {
            Refused::Workload(name) => self.cluster.workloads.contains_key(name),
            Refused::Host(name) => self.cluster.hosts.contains_key(name),
            Refused::Policy(id) => self.cluster.policies.contains_key(id),
            Refused::NetworkSet(name) => self.cluster.network_sets.contains_key(name),
            Refused::Tier(name) => self.cluster.tiers.contains_key(name),
            Refused::Profile(name) => self.cluster.profiles.contains_key(name),
        }
    }
}

impl Refused {
    fn of(gone: &Change) -> Self {
        match gone {
            Change::Workload(key, _) => Self::Workload(felix_name(key)),
            Change::Host(key, _) => Self::Host(key.clone()),
            Change::Policy(id, _) => Self::Policy(id.clone()),
            Change::NetworkSet(key, _) => Self::NetworkSet(key.clone()),
            Change::Tier(name, _) => Self::Tier(name.clone()),
            Change::Profile(name, _) => Self::Profile(name.clone()),
        }
    }
}

fn read_stored(key: &ResourceKey, raw: &[u8], reading: Reading) -> Result<Resource, String> {
    let ResourceKind::Api(kind) = key.kind else { return Err("no kind of the API".to_owned()) };
    let full = Key::Resource(key.clone());
    let Stored::Json(object) = value::parse(&full, raw).map_err(|error| error.to_string())? else {
        return Err("no object".to_owned());
    };
    let resource = match reading {
        Reading::Valid => Resource::read(kind, &object),
        Reading::Typed => Resource::typed(kind, &object),
    };
    resource.map_err(|problems| format!("{problems:?}"))
}

/// What is left of an object that is refused.
fn left_of(key: &ResourceKey, raw: &[u8]) -> Option<Change> {
    let ResourceKind::Api(kind) = key.kind else { return None };
    let left = salvage(kind, &text::json::parse(raw).ok()?)?;
    convert(key, Some(&left.resource)).ok()?
}

/// `namespace/node-orchestrator-workload-endpoint` as `orchestrator/namespace/workload/endpoint`.
/// What has more parts has Felix's form already.
fn felix_name(key: &str) -> String {
    let parts = key
        .split_once('/')
        .filter(|(_, name)| !name.contains('/'))
        .and_then(|(namespace, name)| old_workload_endpoint(namespace, name).ok());
    match parts {
        Some(it) => format!("{}/{}/{}", it.orchestrator, it.workload, it.endpoint),
        None => key.to_owned(),
    }
}

/// How two intents differ, in words; none if they are equal.
pub(super) fn difference(ours: &Intent, recorded: &Intent) -> Option<String> {
    let mut lines = Vec::new();
    compare("workload", &ours.workloads, &recorded.workloads, &mut lines);
    compare("host", &ours.hosts, &recorded.hosts, &mut lines);
    compare("policy", &ours.policies, &recorded.policies, &mut lines);
    compare("profile", &ours.profiles, &recorded.profiles, &mut lines);
    compare("set", &ours.sets, &recorded.sets, &mut lines);
    (!lines.is_empty()).then(|| lines.join("; "))
}

fn compare<K: Ord + Debug, V: PartialEq + Debug>(
    what: &str,
    ours: &BTreeMap<K, V>,
    recorded: &BTreeMap<K, V>,
    lines: &mut Vec<String>,
) {
    for key in ours.keys().chain(recorded.keys()).collect::<BTreeSet<_>>() {
        match (ours.get(key), recorded.get(key)) {
            (ours, recorded) if ours == recorded => {}
            (ours, recorded) => {
                lines.push(format!("{what} {key:?}: ours {ours:?}, recorded {recorded:?}"));
            }
        }
    }
}

/// The fields of a JSON object; none if it is none.
fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}
