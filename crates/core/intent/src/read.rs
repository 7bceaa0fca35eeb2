//! One key of the datastore, read: what every node, and whoever asks what nodes do, makes of it.

use std::net::IpAddr;
use std::sync::Arc;

use api::keys::ipam::{Affinity, AffinityState, Block};
use api::keys::value::{self, Stored, ValueError};
use api::keys::{AffinityType, Key, ResourceKey, ResourceKind};
use api::{Kind, Problem};
use model::resource::{Resource, plain_policy, plain_workload_endpoint};
use net::Cidr;
use policy::convert::convert;
use policy::input::Change;
use policy::salvage::salvage;
use serde_json::Value;

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

/// The kinds whose objects protect something: without them something is open that was closed, or
/// the reverse.
const PROTECT: [Kind; 8] = [
    Kind::FelixConfiguration,
    Kind::GlobalNetworkPolicy,
    Kind::GlobalNetworkSet,
    Kind::HostEndpoint,
    Kind::NetworkPolicy,
    Kind::NetworkSet,
    Kind::Profile,
    Kind::Tier,
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
    /// An object under a key that is none of its kind's.
    Misplaced([String; 1]),
    /// Something that cannot be used as it is, and what is left of it.
    Unusable(Key, Vec<String>, Option<Rest>),
}

/// What is left of a value that cannot be used as it is.
#[derive(Clone, Debug)]
pub(crate) enum Rest {
    Change {
        change: Change,
        /// Whether it denies whatever the whole object would deny.
        is_strict: bool,
    },
    Node(String, Addresses),
    Settings(String, Parameters),
}

impl Read {
    /// Reads the value of a key; none for a key that is nobody's.
    pub fn new(path: &str, bytes: &[u8]) -> Option<Self> {
        let Some(key) = Key::parse(path) else {
            return Some(Self(Said::Misplaced(misplaced(path)?)));
        };
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
            Said::Unusable(_, _, Some(Rest::Change { change, .. })) => Some(change),
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

    /// Whether nodes would be better off with an earlier value: more is missing of this one than
    /// conditions of rules.
    pub fn is_lacking(&self) -> bool {
        let Said::Unusable(Key::Resource(key), _, rest) = &self.0 else { return false };
        let ResourceKind::Api(kind) = key.kind else { return false };
        let is_lacking = match rest {
            None => true,
            Some(Rest::Change { is_strict, .. }) => !is_strict,
            Some(Rest::Settings(_, parameters)) => !parameters.is_whole(),
            Some(Rest::Node(..)) => false,
        };
        is_lacking && PROTECT.contains(&kind)
    }

    /// What stays in force where more than conditions of rules is missing, given an earlier value
    /// of the key: that value, and of settings those that cannot be read now. None if it cannot be
    /// used either.
    pub fn instead(&self, earlier: Self) -> Option<Self> {
        if !self.is_lacking() {
            return None;
        }
        match (&self.0, earlier.0) {
            (Said::Unusable(_, _, Some(Rest::Settings(name, now))), Said::Settings(_, then)) => {
                Some(Self(Said::Settings(name.clone(), now.clone().over(&then))))
            }
            (_, then @ (Said::Resource(..) | Said::Settings(..))) => Some(Self(then)),
            _ => None,
        }
    }

    /// Whether it can be used as it is.
    pub fn is_whole(&self) -> bool {
        !matches!(self.0, Said::Unusable(..) | Said::Misplaced(_))
    }

    /// Why an object that nodes would act on cannot be used as it is.
    pub fn problems(&self) -> Option<&[String]> {
        match &self.0 {
            Said::Misplaced(problems) => Some(problems),
            Said::Unusable(Key::Resource(key), problems, _) => {
                let ResourceKind::Api(kind) = key.kind else { return None };
                matters(kind).then_some(problems)
            }
            _ => None,
        }
    }
}

/// Whether nodes act on objects of a kind.
fn matters(kind: Kind) -> bool {
    MATTER.contains(&kind) || kind == Kind::FelixConfiguration
}

/// What is wrong with a key below a kind on which nodes act, that none of its objects has.
fn misplaced(path: &str) -> Option<[String; 1]> {
    let rest = path.strip_prefix("/calico/resources/v3/projectcalico.org/")?;
    let plural = rest.split('/').next()?;
    let ResourceKind::Api(kind) = ResourceKind::from_plural(plural)? else { return None };
    let place = if kind.is_namespaced() { "NAMESPACE/NAME" } else { "NAME" };
    let problem = format!("key: {rest} is not that of a {kind}, such as {plural}/{place}");
    matters(kind).then_some([problem])
}

fn said(key: &Key, bytes: &[u8]) -> Result<Said, Vec<String>> {
    Ok(match key {
        Key::Resource(resource) => {
            if let Some(plain) = plain(resource.kind, bytes) {
                return object(resource, plain);
            }
            let Stored::Json(stored) = value::parse(key, bytes).map_err(told)? else {
                return Ok(Said::Nothing);
            };
            match resource.kind {
                ResourceKind::Api(Kind::FelixConfiguration) => settings(resource, &stored)?,
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

/// What there are many of, if it is stored plainly.
fn plain(kind: ResourceKind, bytes: &[u8]) -> Option<Resource> {
    let ResourceKind::Api(kind) = kind else { return None };
    match kind {
        Kind::WorkloadEndpoint => plain_workload_endpoint(bytes).map(Resource::WorkloadEndpoint),
        Kind::GlobalNetworkPolicy => {
            plain_policy(kind.name(), bytes).map(Resource::GlobalNetworkPolicy)
        }
        Kind::NetworkPolicy => plain_policy(kind.name(), bytes).map(Resource::NetworkPolicy),
        _ => None,
    }
}

/// Settings, unless the rules of writes or those who use them have something against one.
fn settings(key: &ResourceKey, stored: &Value) -> Result<Said, Vec<String>> {
    let refused = Resource::read(Kind::FelixConfiguration, stored).err().unwrap_or_default();
    let (parameters, wrong) = Parameters::read(stored);
    let is_told = |field: &str| refused.iter().any(|it| it.path.starts_with(field));
    let more = wrong.iter().filter(|(field, _)| !is_told(field));
    let more = more.map(|(field, message)| format!("{field}: {message}"));
    let problems: Vec<String> = refused.iter().map(ToString::to_string).chain(more).collect();
    match problems.is_empty() {
        true => Ok(Said::Settings(key.name.clone(), parameters)),
        false => Err(problems),
    }
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
        Kind::FelixConfiguration => {
            let (parameters, _) = Parameters::read(&stored);
            stored["spec"].is_object().then(|| Rest::Settings(resource.name.clone(), parameters))
        }
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
        kind => {
            let salvaged = salvage(kind, &stored)?;
            let mut change = convert(resource, Some(&salvaged.resource)).ok()??;
            if let Change::Host(_, Some(host)) = &mut change {
                Arc::make_mut(host).is_rest = true;
            }
            Some(Rest::Change { change, is_strict: salvaged.is_strict })
        }
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
