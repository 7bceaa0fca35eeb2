//! Who a sandbox is, and the names that others know it by.

use api::names::WorkloadEndpointParts;
use net::Cidr;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use crate::call::Call;
use crate::failure::Failure;

/// What everything a sandbox owns is keyed by: never a pod's name, which the next sandbox of a
/// stateful pod has as well.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    /// The container, as the runtime names it.
    pub container: String,
    /// The interface inside it.
    pub interface: String,
}

/// Who runs in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workload {
    /// A container that nobody has named.
    Plain,
    /// A pod of Kubernetes.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// How the names of the host's interfaces begin, at Calico too.
pub const HOST_INTERFACE_PREFIX: &str = "cali";

/// Room in an interface's name after that.
const SUFFIX_LENGTH: usize = 11;

impl Identity {
    /// The identity that a call is about.
    pub fn of(call: &Call) -> Self {
        Self { container: call.container.clone(), interface: call.interface.clone() }
    }

    /// Written into the alias of the host's interface: the kernel itself says whose it is.
    pub fn alias(&self) -> String {
        format!("margay {} {}", self.container, self.interface)
    }

    /// The identity that an alias names, if the interface is ours.
    pub fn from_alias(alias: &str) -> Option<Self> {
        let mut words = alias.strip_prefix("margay ")?.split(' ');
        let (container, interface) = (words.next()?, words.next()?);
        words
            .next()
            .is_none()
            .then(|| Self { container: container.to_owned(), interface: interface.to_owned() })
    }

    /// The key of its addresses: the network's name and the container.
    pub fn handle(&self, network: &str) -> String {
        format!("{network}.{}", self.container)
    }

    /// A name for the host's interface that no other sandbox has: for when the usual one is taken
    /// by a container whose id begins alike, or by another interface of the same container.
    pub fn spare_host_interface(&self) -> String {
        hashed_name(&format!("{} {}", self.container, self.interface))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short: String = self.container.chars().take(12).collect();
        write!(f, "{short} {}", self.interface)
    }
}

impl Workload {
    /// A pod if both arguments of Kubernetes are there.
    pub fn of(call: &Call) -> Self {
        let argument = |name: &str| call.arguments.get(name).filter(|value| !value.is_empty());
        match (argument("K8S_POD_NAMESPACE"), argument("K8S_POD_NAME")) {
            (Some(namespace), Some(name)) => {
                Self::Pod { namespace: namespace.clone(), name: name.clone() }
            }
            _ => Self::Plain,
        }
    }

    /// What endpoints call it.
    pub fn orchestrator(&self) -> &'static str {
        match self {
            Self::Plain => "cni",
            Self::Pod { .. } => "k8s",
        }
    }

    /// The namespace of its endpoint.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Plain => "default",
            Self::Pod { namespace, .. } => namespace,
        }
    }

    /// The name that the host's interface has at Calico: others look for it.
    pub fn host_interface(&self, identity: &Identity) -> String {
        match self {
            Self::Plain => {
                let start: String = identity.container.chars().take(SUFFIX_LENGTH).collect();
                format!("{HOST_INTERFACE_PREFIX}{start}")
            }
            Self::Pod { namespace, name } => hashed_name(&format!("{namespace}.{name}")),
        }
    }

    /// The name of its endpoint.
    pub fn endpoint_name(&self, node: &str, identity: &Identity) -> Result<String, Failure> {
        let (pod, container) = match self {
            Self::Plain => (String::new(), identity.container.clone()),
            Self::Pod { name, .. } => (name.clone(), String::new()),
        };
        WorkloadEndpointParts {
            node: node.to_owned(),
            orchestrator: self.orchestrator().to_owned(),
            endpoint: identity.interface.clone(),
            workload: String::new(),
            pod,
            container_id: container,
        }
        .name()
        .map_err(|error| Failure::plugin(error.to_string()))
    }
}

fn hashed_name(text: &str) -> String {
    let digest = Sha1::digest(text.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{HOST_INTERFACE_PREFIX}{}", &hex[..SUFFIX_LENGTH])
}

/// An address that a sandbox holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The address, with the mask of its block.
    pub network: Cidr,
    /// The block's sequence number when it was given: a release names it, so that a late one frees
    /// nothing that was given to somebody else since. None for addresses of other plugins.
    pub sequence: Option<u64>,
}
