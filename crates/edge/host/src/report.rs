//! What an agent answers when it is asked how it is: the form on its socket, and of `-o json`.
//!
//! Field names are stable; times are RFC 3339 in UTC.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sandbox::identity::Workload;
use sandbox::life::{Phase, Record};
use serde::{Deserialize, Serialize};

use crate::drops::Drop;
use crate::events::Event;

/// How a part of the system stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    #[default]
    Fine,
    /// Something works less well than it should.
    Degraded,
    /// Something does not work.
    Broken,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its stable code.
    pub code: String,
    /// How bad it is.
    pub severity: Severity,
    /// The part of the status that it belongs to.
    pub cause: String,
    /// What is wrong, in one line.
    pub problem: String,
    /// What to type; empty if nothing helps but waiting.
    pub fix: String,
}

/// How a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The worst of the findings.
    pub status: Severity,
    /// The node's name in the datastore.
    pub node: String,
    /// The version of the agent.
    pub version: String,
    /// The process that serves.
    pub pid: u32,
    /// Since when it runs.
    pub since: String,
    /// How many sandboxes there are in each phase.
    pub sandboxes: BTreeMap<String, usize>,
    /// The datastore.
    pub store: Store,
    /// When the datastore last said what is said here of it; not there while it answers, and empty
    /// if this node has never heard it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// The addresses of this node.
    pub ipam: Ipam,
    /// The routes in the kernel.
    pub routes: Applied,
    /// The packet filter in the kernel.
    pub filter: Applied,
    /// The release of the kernel.
    pub kernel: String,
    /// The newest revision of any object of policy that the kernel has.
    pub policy_revision: i64,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// What is to be known, and is not known to be wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The datastore, as the agent sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Store {
    /// A file, or endpoints.
    pub place: String,
    /// Whether changes arrive.
    pub is_connected: bool,
    /// Since when they do, or do not.
    pub since: String,
    /// Why they do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Everything up to this revision has been seen.
    pub revision: i64,
}

/// The blocks of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ipam {
    /// How many blocks it has; not there if nobody knows, as after a start without the datastore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<usize>,
    /// How many addresses are in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<u64>,
    /// How many of these are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// How many pools the cluster has.
    pub pools: usize,
    /// How many of the addresses in use are held for times without the datastore.
    pub reserve: usize,
}

/// A part of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Applied {
    /// Whether the kernel holds what it should.
    pub is_applied: bool,
    /// How many routes, or how many interfaces.
    pub count: usize,
    /// Since the agent started: how often it put back what somebody else had removed.
    pub repaired: u64,
}

/// One sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sandbox {
    /// The container, as the runtime names it.
    pub container: String,
    /// The namespace of its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The interface on the host.
    pub interface: String,
    /// The interface inside.
    pub container_interface: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// How far it has come.
    pub phase: String,
    /// The network that it is attached to.
    pub network: String,
    /// The name of its endpoint.
    pub endpoint: String,
    /// The network namespace, as the runtime names it.
    pub netns: String,
}

impl From<Record> for Sandbox {
    fn from(record: Record) -> Self {
        let (namespace, pod) = match record.workload {
            Workload::Plain => (None, None),
            Workload::Pod { namespace, name } => (Some(namespace), Some(name)),
        };
        let addresses = record.addresses.iter().map(|held| held.network.address().to_string());
        Self {
            namespace,
            pod,
            container: record.identity.container,
            interface: record.wiring.host_interface,
            container_interface: record.wiring.container_interface,
            addresses: addresses.collect(),
            phase: phase(record.phase).to_owned(),
            network: record.network,
            endpoint: record.endpoint,
            netns: record.netns_path,
        }
    }
}

/// The name of a phase, as in the journal.
pub fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Claiming => "claiming",
        Phase::Claimed => "claimed",
        Phase::Wired => "wired",
        Phase::Ready => "ready",
        Phase::Leaving => "leaving",
        Phase::Releasing => "releasing",
    }
}

/// How many records there are in each phase.
pub fn by_phase(records: &[Record]) -> BTreeMap<String, usize> {
    let mut phases = BTreeMap::new();
    for record in records {
        *phases.entry(phase(record.phase).to_owned()).or_default() += 1;
    }
    phases
}

/// All sandboxes of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandboxes {
    /// The node.
    pub node: String,
    /// Its sandboxes.
    pub sandboxes: Vec<Sandbox>,
}

/// Events of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// The node; empty if nobody was there to say it.
    pub node: String,
    /// Its events, oldest first.
    pub events: Vec<Event>,
}

/// Packets that policies of a node denied lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// The node.
    pub node: String,
    /// When the agent began to count, in milliseconds since 1970: the next one starts with 1 again.
    #[serde(default)]
    pub epoch: u64,
    /// The packets, oldest first.
    pub drops: Vec<Drop>,
    /// Whether the agent was told not to record any.
    #[serde(default)]
    pub is_off: bool,
    /// How often packets came faster than they could be noted.
    pub lost: u64,
    /// How many more packets each rule denied since it stands, by its text, if that was asked for.
    #[serde(default)]
    pub unrecorded: BTreeMap<String, u64>,
}

/// What the witnesses of a node do not agree about, and what was done about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciliation {
    /// The node.
    pub node: String,
    /// All matters; after something was settled, only what that was about.
    pub matters: Vec<Matter>,
    /// How many findings the status has beside them.
    #[serde(default)]
    pub findings: usize,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matter {
    /// What it is about: the same at every look.
    pub name: String,
    /// How it stands.
    pub state: MatterState,
    /// What is wrong, in one line.
    pub problem: String,
    /// How one can tell.
    pub evidence: String,
    /// What is to be done, or was.
    pub action: String,
    /// What to type where that is for a person.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub fix: String,
}

/// How a matter stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatterState {
    /// It can be settled.
    #[default]
    Open,
    /// It was settled just now.
    Done,
    /// It was settled by somebody else meanwhile, or has changed.
    Gone,
    /// It was tried and did not work.
    Failed,
    /// It is for a person to decide.
    Left,
}

/// Addresses in use on a node that no record of its agent has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strangers {
    /// Inside of interfaces like those of sandboxes.
    pub addresses: BTreeSet<IpAddr>,
}
