//! Resources in a form that cannot hold a bad value: addresses are addresses, selectors are
//! parsed, closed sets are enums.
//!
//! JSON of a kind → [`Resource`], or every problem it has. What reads a datastore goes through
//! here, so that no other code ever looks at a string that should be a value.

mod bgp;
mod endpoint;
mod node;
mod plain;
mod policy;
mod pool;

use std::collections::BTreeMap;

use api::{CalicoError, Kind, Problem, Stage};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use bgp::*;
pub use endpoint::*;
pub use node::*;
pub use plain::{plain_policy, plain_workload_endpoint};
pub use policy::*;
pub use pool::*;

use crate::validate::validate;

/// What every resource has.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// The name, unique within kind and namespace.
    pub name: String,
    /// The namespace; empty for kinds of the whole cluster.
    pub namespace: String,
    /// Tells two objects of one name apart.
    pub uid: String,
    /// The revision of the datastore at which the object was last written.
    pub resource_version: String,
    /// Labels, which selectors match.
    pub labels: BTreeMap<String, String>,
    /// Remarks for people and programs.
    pub annotations: BTreeMap<String, String>,
}

/// A spec with its metadata.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, bound(deserialize = "Spec: Default + DeserializeOwned"))]
pub struct Object<Spec> {
    /// Names and labels.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: Spec,
}

/// Any resource, validated.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is the resource of that name")]
pub enum Resource {
    BgpConfiguration(Object<BgpConfiguration>),
    BgpFilter(Object<BgpFilter>),
    BgpPeer(Object<BgpPeer>),
    BlockAffinity(Object<BlockAffinity>),
    CalicoNodeStatus(Object<CalicoNodeStatus>),
    ClusterInformation(Object<ClusterInformation>),
    FelixConfiguration(Object<FelixConfiguration>),
    GlobalNetworkPolicy(Object<Policy>),
    GlobalNetworkSet(Object<NetworkSet>),
    HostEndpoint(Object<HostEndpoint>),
    IpamConfiguration(Object<IpamConfiguration>),
    IpPool(Object<IpPool>),
    IpReservation(Object<IpReservation>),
    KubeControllersConfiguration(Object<KubeControllersConfiguration>),
    LiveMigration(Object<LiveMigration>),
    NetworkPolicy(Object<Policy>),
    NetworkSet(Object<NetworkSet>),
    Node(Object<Node>),
    Profile(Object<Profile>),
    StagedGlobalNetworkPolicy(Object<Policy>),
    StagedKubernetesNetworkPolicy(Object<KubernetesPolicy>),
    StagedNetworkPolicy(Object<Policy>),
    Tier(Object<Tier>),
    WorkloadEndpoint(Object<WorkloadEndpoint>),
}

impl Resource {
    /// Reads an object that has been decoded by its schema; gives all its problems if it has any.
    pub fn read(kind: Kind, object: &Value) -> Result<Self, Vec<Problem>> {
        let problems = validate(kind, object);
        if !problems.is_empty() {
            return Err(problems);
        }
        Self::typed(kind, object)
    }

    /// Reads an object by its types alone: what its fields and rules demand of each other is not
    /// asked.
    pub fn typed(kind: Kind, object: &Value) -> Result<Self, Vec<Problem>> {
        Ok(match kind {
            Kind::BgpConfiguration => Self::BgpConfiguration(typed(object)?),
            Kind::BgpFilter => Self::BgpFilter(typed(object)?),
            Kind::BgpPeer => Self::BgpPeer(typed(object)?),
            Kind::BlockAffinity => Self::BlockAffinity(typed(object)?),
            Kind::CalicoNodeStatus => Self::CalicoNodeStatus(typed(object)?),
            Kind::ClusterInformation => Self::ClusterInformation(typed(object)?),
            Kind::FelixConfiguration => Self::FelixConfiguration(typed(object)?),
            Kind::GlobalNetworkPolicy => Self::GlobalNetworkPolicy(typed(object)?),
            Kind::GlobalNetworkSet => Self::GlobalNetworkSet(typed(object)?),
            Kind::HostEndpoint => Self::HostEndpoint(typed(object)?),
            Kind::IpamConfiguration => Self::IpamConfiguration(typed(object)?),
            Kind::IpPool => Self::IpPool(typed(object)?),
            Kind::IpReservation => Self::IpReservation(typed(object)?),
            Kind::KubeControllersConfiguration => {
                Self::KubeControllersConfiguration(typed(object)?)
            }
            Kind::LiveMigration => Self::LiveMigration(typed(object)?),
            Kind::NetworkPolicy => Self::NetworkPolicy(typed(object)?),
            Kind::NetworkSet => Self::NetworkSet(typed(object)?),
            Kind::Node => Self::Node(typed(object)?),
            Kind::Profile => Self::Profile(typed(object)?),
            Kind::StagedGlobalNetworkPolicy => Self::StagedGlobalNetworkPolicy(typed(object)?),
            Kind::StagedKubernetesNetworkPolicy => {
                Self::StagedKubernetesNetworkPolicy(typed(object)?)
            }
            Kind::StagedNetworkPolicy => Self::StagedNetworkPolicy(typed(object)?),
            Kind::Tier => Self::Tier(typed(object)?),
            Kind::WorkloadEndpoint => Self::WorkloadEndpoint(typed(object)?),
        })
    }
}

/// The typed form of a valid object. Validation is Calico's and in a few places looser than the
/// types here, so a value may still be found unusable: that is a problem of the object too.
fn typed<T: DeserializeOwned>(object: &Value) -> Result<T, Vec<Problem>> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        let calico = CalicoError { field: path.clone(), value: None, reason: message.clone() };
        vec![Problem { path, message, stage: Stage::Validate, calico }]
    })
}
