//! The life of a sandbox as a journal of steps.
//!
//! A [`Record`] says how far a sandbox has come. It is written before the step that needs it, so
//! that after a crash anywhere the record names everything that may exist: the next step is
//! decided by the record and by what is wanted, never by memory. Every step may be repeated.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::identity::{Held, Identity, Workload};
use crate::wiring::Wiring;

/// A network namespace, as the kernel tells two of them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetnsId {
    /// The device of its file.
    pub device: u64,
    /// The file's number there.
    pub inode: u64,
}

/// How far a sandbox has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Its addresses and endpoint are about to be claimed, or were.
    Claiming,
    /// They are claimed; interfaces may exist.
    Claimed,
    /// The interfaces stand, closed.
    Wired,
    /// Packets flow; the runtime was told.
    Ready,
    /// It is being taken down; anything may be gone.
    Leaving,
    /// Nothing of it is left here; the datastore is still to be told.
    Releasing,
}

impl Phase {
    /// Whether it is on its way out.
    pub fn is_leaving(self) -> bool {
        matches!(self, Self::Leaving | Self::Releasing)
    }
}

/// What is known of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Who it is.
    pub identity: Identity,
    /// The network it is attached to.
    pub network: String,
    /// Who runs there.
    pub workload: Workload,
    /// The node whose records it has.
    pub node: String,
    /// The boot of the machine in which it was made: with another one, nothing of it lives.
    pub boot: String,
    /// Its network namespace.
    pub netns: NetnsId,
    /// The path by which the runtime knows the namespace.
    pub netns_path: String,
    /// The name of its endpoint.
    pub endpoint: String,
    /// The plugin that manages its addresses.
    pub ipam: String,
    /// Its addresses.
    pub addresses: Vec<Held>,
    /// How it is wired.
    pub wiring: Wiring,
    /// The profiles of its endpoint. A record of an older version does not say; its network's was
    /// the only one then.
    #[serde(default)]
    pub profiles: Option<Vec<String>>,
    /// The labels of its endpoint beside those that every endpoint has.
    #[serde(default)]
    pub labels: Vec<(String, String)>,
    /// What the datastore is still to be told; none if it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owed: Option<Owed>,
    /// How far it has come.
    pub phase: Phase,
}

/// Who asks for an interface, and where.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Who it is.
    pub identity: Identity,
    /// Who runs there.
    pub workload: Workload,
    /// The network it is attached to.
    pub network: String,
    /// The node whose records it has.
    pub node: String,
    /// The boot of the machine.
    pub boot: String,
    /// Its network namespace.
    pub netns: NetnsId,
    /// The path by which the runtime knows the namespace.
    pub netns_path: String,
    /// The plugin that manages its addresses.
    pub ipam: String,
}

/// What is still to be told of a sandbox that was made without the datastore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// The uid of its endpoint.
    pub endpoint_uid: String,
    /// The uid of its network's profile, should that have to be made.
    pub profile_uid: String,
    /// Whether the datastore may know some of it: a request was sent, whatever became of it.
    pub was_tried: bool,
}

/// What is wanted of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// It runs.
    Up,
    /// It is gone.
    Gone,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Claim addresses and write the endpoint, in one transaction.
    Claim,
    /// The same without the datastore: take addresses of the reserve.
    Take,
    /// Make the interfaces, closed.
    Wire,
    /// Let packets pass.
    Open,
    /// Tell the datastore of what was taken, in one transaction.
    Settle,
    /// Write down that it leaves, before anything is undone.
    Leave,
    /// Let no packet pass, and remove the interfaces.
    Unwire,
    /// Take the endpoint and the addresses back, in one transaction.
    Release,
    /// Write the name of a sandbox that others made onto its interface.
    Name,
    /// Write it into the journal.
    Adopt,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Claim,
        Self::Take,
        Self::Wire,
        Self::Open,
        Self::Settle,
        Self::Leave,
        Self::Unwire,
        Self::Release,
        Self::Name,
        Self::Adopt,
    ];

    /// Its name, in messages and as a place where a test stops the process.
    pub fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Take => "take",
            Self::Wire => "wire",
            Self::Open => "open",
            Self::Settle => "settle",
            Self::Leave => "leave",
            Self::Unwire => "unwire",
            Self::Release => "release",
            Self::Name => "name",
            Self::Adopt => "adopt",
        }
    }
}

impl Record {
    /// A sandbox of which nothing else is known: no address, and the usual name for its interface.
    pub fn of(origin: Origin, phase: Phase) -> Result<Self, Failure> {
        let Origin { identity, workload, network, node, boot, netns, netns_path, ipam } = origin;
        Ok(Self {
            endpoint: workload.endpoint_name(&node, &identity)?,
            wiring: Wiring {
                host_interface: workload.host_interface(&identity),
                container_interface: identity.interface.clone(),
                mac: [0; 6],
                mtu: None,
                queues: 1,
                addresses: Vec::new(),
                routes: Vec::new(),
                allow_forwarding: false,
            },
            identity,
            network,
            workload,
            node,
            boot,
            netns,
            netns_path,
            ipam,
            addresses: Vec::new(),
            profiles: None,
            labels: Vec::new(),
            owed: None,
            phase,
        })
    }

    /// What to do next; none if the target is reached. A sandbox that is gone has no record.
    pub fn next(&self, target: Target) -> Option<Step> {
        match (target, self.phase) {
            (Target::Up, Phase::Claiming) => Some(Step::Claim),
            (Target::Up, Phase::Claimed) => Some(Step::Wire),
            (Target::Up, Phase::Wired) => Some(Step::Open),
            (Target::Up, Phase::Ready) => None,
            // Whoever began to leave goes on leaving: the runtime adds anew.
            (_, Phase::Leaving) => Some(Step::Unwire),
            (_, Phase::Releasing) => Some(Step::Release),
            (Target::Gone, _) => Some(Step::Leave),
        }
    }

    /// The phase after a step that went well; none when nothing is left.
    pub fn after(&self, step: Step) -> Option<Phase> {
        match step {
            Step::Claim | Step::Take => Some(Phase::Claimed),
            Step::Wire => Some(Phase::Wired),
            Step::Open | Step::Settle | Step::Name | Step::Adopt => Some(Phase::Ready),
            Step::Leave => Some(Phase::Leaving),
            Step::Unwire => Some(Phase::Releasing),
            Step::Release => None,
        }
    }

    /// The profiles of its endpoint.
    pub fn profiles(&self) -> Vec<String> {
        self.profiles.clone().unwrap_or_else(|| vec![self.network.clone()])
    }

    /// Whether it is attached to a network. Of a sandbox that others made, nobody may have written
    /// down which one it is: whoever asks for it knows.
    pub fn is_of(&self, network: &str) -> bool {
        self.network.is_empty() || self.network == network
    }

    /// The key of its addresses.
    pub fn handle(&self) -> String {
        self.identity.handle(&self.network)
    }
}
