//! One key of the datastore, read: what every node, and whoever asks what nodes do, makes of it.

use std::net::IpAddr;
use std::sync::Arc;

use api::keys::ipam::{Affinity, AffinityState, Block};
use api::keys::value::{self, Stored, ValueError};
use api::keys::{AffinityType, Key, ResourceKey, ResourceKind};
use api::{Kind, Problem};
use model::resource::{Resource, plain_workload_endpoint};
use net::Cidr;
use policy::convert::convert;
use policy::input::Change;
use policy::salvage::salvage;

use crate::felix::Parameters;
use crate::inputs::Addresses;

/// The kinds of resources that nodes act on, besides settings.
const MATTER: [Kind; 14] = [
    Kind::BgpConfiguration,
    Kind::GlobalNetworkPolicy,
    Kind::GlobalNetworkSet,
    Kind::HostEndpoint,
    Kind::IpPool,
    Kind::NetworkPolicy,
    Kind::NetworkSet,
    Kind::Node,
    Kind::Profile,
    Kind::StagedGlobalNetworkPolicy,
    Kind::StagedKubernetesNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::Tier,
    Kind::WorkloadEndpoint,
];

/// A key with its value. To clone it is cheap.
#[derive(Clone, Debug)]
pub struct Read(pub(crate) Said);

/// What a value says.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// Nothing that a node acts on.
    Nothing,
    /// An object, and what it means to policy.
    Resource(ResourceKey, Arc<Resource>, Option<Change>),
    /// Settings, by the name of their object.
    Settings(String, Parameters),
    Block(Cidr, Box<Block>),
    /// Whether a node has confirmed its claim on a block.
    Claim {
        cidr: Cidr,
        owner: String,
        is_confirmed: bool,
    },
    /// Something that cannot be used as it is, and what is left of it.
    Unusable(Key, Vec<String>, Option<Rest>),
}

/// What is left of a value that cannot be used as it is.
#[derive(Clone, Debug)]
pub(crate) enum Rest {
    Change(Change),
    Node(String, Addresses),
}

impl Read {
    /// Reads the value of a key; none for a key that is nobody's.
    pub fn new(path: &str, bytes: &[u8]) -> Option<Self> {
        let key = Key::parse(path)?;
        Some(Self(match said(&key, bytes) {
            Ok(said) => said,
            Err(problems) => {
                let rest = rest(&key, bytes);
                Said::Unusable(key, problems, rest)
            }
        }))
    }

    /// The object, if it can be used.
    pub fn resource(&self) -> Option<(&ResourceKey, &Resource)> {
        match &self.0 {
            Said::Resource(key, resource, _) => Some((key, resource)),
            _ => None,
        }
    }

    /// What nodes tell policy of it, be it only what is left of it.
    pub fn change(&self) -> Option<&Change> {
        match &self.0 {
            Said::Resource(_, _, change) => change.as_ref(),
            Said::Unusable(_, _, Some(Rest::Change(change))) => Some(change),
            _ => None,
        }
    }

    /// A node's name and addresses, those under which others reach it first.
    pub fn node(&self) -> Option<(&str, Vec<IpAddr>)> {
        let (name, mut addresses): (&str, Vec<IpAddr>) = match &self.0 {
            Said::Resource(key, resource, _) => {
                let Resource::Node(node) = &**resource else { return None };
                let bgp = node.spec.bgp.iter().flat_map(|it| [it.ipv4_address, it.ipv6_address]);
                let others = node.spec.addresses.iter().map(|it| it.address.address());
                (&key.name, bgp.flatten().map(Cidr::address).chain(others).collect())
            }
            Said::Unusable(_, _, Some(Rest::Node(name, it))) => {
                (name, it.v4.into_iter().chain(it.v6).collect())
            }
            _ => return None,
        };
        addresses.dedup();
        Some((name, addresses))
    }

    /// Why an object that nodes would act on cannot be used as it is.
    pub fn problems(&self) -> Option<&[String]> {
        let Said::Unusable(Key::Resource(key), problems, _) = &self.0 else { return None };
        let ResourceKind::Api(kind) = key.kind else { return None };
        let matters = MATTER.contains(&kind) || kind == Kind::FelixConfiguration;
        matters.then_some(problems)
    }
}

fn said(key: &Key, bytes: &[u8]) -> Result<Said, Vec<String>> {
    Ok(match key {
        Key::Resource(resource) => {
            if resource.kind == ResourceKind::Api(Kind::WorkloadEndpoint)
                && let Some(endpoint) = plain_workload_endpoint(bytes)
            {
                return object(resource, Resource::WorkloadEndpoint(endpoint));
            }
            let Stored::Json(stored) = value::parse(key, bytes).map_err(told)? else {
                return Ok(Said::Nothing);
            };
            match resource.kind {
                ResourceKind::Api(Kind::FelixConfiguration) => {
                    let parameters = Parameters::read(&stored).map_err(|problem| vec![problem])?;
                    Said::Settings(resource.name.clone(), parameters)
                }
                ResourceKind::Api(kind) if MATTER.contains(&kind) => {
                    object(resource, Resource::read(kind, &stored).map_err(spoken)?)?
                }
                _ => Said::Nothing,
            }
        }
        Key::Block { cidr } => Said::Block(*cidr, Box::new(Block::read(bytes).map_err(told)?)),
        Key::BlockAffinity(claim) => {
            let state = Affinity::read(bytes).map_err(told)?.state;
            if claim.owner_type != AffinityType::Host {
                return Ok(Said::Nothing);
            }
            let (cidr, owner) = (claim.cidr, claim.owner.clone());
            Said::Claim { cidr, owner, is_confirmed: state == AffinityState::Confirmed }
        }
        _ => value::parse(key, bytes).map(|_| Said::Nothing).map_err(told)?,
    })
}

fn object(key: &ResourceKey, resource: Resource) -> Result<Said, Vec<String>> {
    let mut change = convert(key, Some(&resource)).map_err(|it| vec![it.to_string()])?;
    if let (Some(Change::Workload(_, Some(workload))), Resource::WorkloadEndpoint(endpoint)) =
        (&mut change, &resource)
        && workload.node != endpoint.spec.node
    {
        // Where it is, its own field says, here as for routes.
        Arc::make_mut(workload).node.clone_from(&endpoint.spec.node);
    }
    Ok(Said::Resource(key.clone(), Arc::new(resource), change))
}

/// What can be used of an object all the same.
fn rest(key: &Key, bytes: &[u8]) -> Option<Rest> {
    let Key::Resource(resource) = key else { return None };
    let ResourceKind::Api(kind) = resource.kind else { return None };
    let stored = text::json::parse(bytes).ok()?;
    match kind {
        Kind::WorkloadEndpoint => None,
        // A bad field of a Node does not cost the others their way to it: each address counts for
        // itself.
        Kind::Node => {
            let address = |field: &str, is_ipv4: bool| {
                let text = stored["spec"]["bgp"][field].as_str()?;
                let address = text.parse::<Cidr>().ok()?.address();
                (address.is_ipv4() == is_ipv4).then_some(address)
            };
            let (v4, v6) = (address("ipv4Address", true), address("ipv6Address", false));
            let name = resource.name.clone();
            (v4.is_some() || v6.is_some()).then_some(Rest::Node(name, Addresses { v4, v6 }))
        }
        // Until an object of policy is mended, what it protects stays so.
        kind => convert(resource, Some(&salvage(kind, &stored)?)).ok()?.map(Rest::Change),
    }
}

fn told(error: ValueError) -> Vec<String> {
    match error {
        ValueError::Fields(problems) => spoken(problems),
        error => vec![error.to_string()],
    }
}

fn spoken(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
