//! The part of the datastore that this node acts on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::keys::ipam::{Affinity, AffinityState, Block};
use api::keys::value::{self, Stored, ValueError};
use api::keys::{AffinityType, Key, ResourceKind};
use api::{Kind, Problem};
use model::resource::{IpPool, Object, Profile, Resource, WorkloadEndpoint};
use net::Cidr;

use crate::live::Vouched;

/// Everything absorbed so far.
#[derive(Debug, Default)]
pub struct Inputs {
    pub(crate) node: String,
    pub(crate) nodes: BTreeMap<String, Addresses>,
    pub(crate) blocks: BTreeMap<Cidr, Block>,
    /// Who has confirmed a claim on a block. Several may have; the block says whose it is.
    pub(crate) owners: BTreeMap<Cidr, BTreeSet<String>>,
    pub(crate) pools: BTreeMap<String, IpPool>,
    pub(crate) endpoints: BTreeMap<String, Object<WorkloadEndpoint>>,
    pub(crate) profiles: BTreeMap<String, Profile>,
    /// Sandboxes that the journal vouches for, by the key of their endpoint.
    pub(crate) vouched: BTreeMap<String, Vouched>,
    /// How many blocks there are of which length, IPv4 or not: where an address is looked for.
    pub(crate) block_lengths: BTreeMap<(bool, u8), usize>,
    pub(crate) is_complete: bool,
    quarantined: BTreeMap<String, Vec<String>>,
}

/// The addresses under which other nodes reach a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) v4: Option<IpAddr>,
    pub(crate) v6: Option<IpAddr>,
}

impl Addresses {
    pub(crate) fn of_family(&self, is_ipv4: bool) -> Option<IpAddr> {
        if is_ipv4 { self.v4 } else { self.v6 }
    }
}

/// What a change can have an effect on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The routes.
    pub routes: bool,
    /// Who may talk to whom.
    pub filter: bool,
}

impl std::ops::BitOrAssign for Changed {
    fn bitor_assign(&mut self, other: Self) {
        self.routes |= other.routes;
        self.filter |= other.filter;
    }
}

pub(crate) const NOTHING: Changed = Changed { routes: false, filter: false };
const ROUTES: Changed = Changed { routes: true, filter: false };
const FILTER: Changed = Changed { routes: false, filter: true };
pub(crate) const BOTH: Changed = Changed { routes: true, filter: true };

impl Inputs {
    /// Nothing absorbed yet, for the node of this name.
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), ..Self::default() }
    }

    /// The prefixes of the keys that matter.
    pub fn prefixes() -> [&'static str; 7] {
        [
            "/calico/resources/v3/projectcalico.org/nodes/",
            "/calico/resources/v3/projectcalico.org/ippools/",
            "/calico/resources/v3/projectcalico.org/profiles/",
            "/calico/resources/v3/projectcalico.org/workloadendpoints/",
            "/calico/ipam/v2/assignment/",
            "/calico/ipam/v2/host/",
            "/calico/ipam/v2/config",
        ]
    }

    /// Takes a key's new value, or its removal.
    pub fn absorb(&mut self, path: &str, value: Option<&[u8]>) -> Changed {
        self.quarantined.remove(path);
        let Some(key) = Key::parse(path) else {
            return NOTHING;
        };
        let Some(bytes) = value else {
            return self.forget(&key, path);
        };
        match self.keep(&key, path, bytes) {
            Ok(changed) => changed,
            Err(problems) => {
                // What was there before is out of date: an address or a permission that nobody
                // vouches for any more is not kept.
                let mut changed = self.forget(&key, path);
                changed |= self.salvage(&key, bytes);
                self.quarantined.insert(path.to_owned(), problems);
                changed
            }
        }
    }

    /// What could not be used, by key, with its problems as people read them.
    pub fn quarantined(&self) -> &BTreeMap<String, Vec<String>> {
        &self.quarantined
    }

    fn keep(&mut self, key: &Key, path: &str, bytes: &[u8]) -> Result<Changed, Vec<String>> {
        match key {
            Key::Resource(resource) => {
                let Stored::Json(stored) = value::parse(key, bytes).map_err(told)? else {
                    return Ok(NOTHING);
                };
                let ResourceKind::Api(kind) = resource.kind else { return Ok(NOTHING) };
                let is_ours = matches!(
                    kind,
                    Kind::Node | Kind::IpPool | Kind::Profile | Kind::WorkloadEndpoint
                );
                if !is_ours {
                    return Ok(NOTHING);
                }
                Ok(self.keep_resource(
                    path,
                    &resource.name,
                    Resource::read(kind, &stored).map_err(spoken)?,
                ))
            }
            Key::Block { cidr } => {
                let block = Block::read(bytes).map_err(told)?;
                Ok(self.keep_block(*cidr, block))
            }
            Key::BlockAffinity(affinity) => {
                let state = Affinity::read(bytes).map_err(told)?.state;
                if affinity.owner_type != AffinityType::Host {
                    return Ok(NOTHING);
                }
                match state == AffinityState::Confirmed {
                    true => {
                        let owners = self.owners.entry(affinity.cidr).or_default();
                        owners.insert(affinity.owner.clone());
                    }
                    false => self.disown(affinity.cidr, &affinity.owner),
                }
                Ok(ROUTES)
            }
            _ => value::parse(key, bytes).map(|_| NOTHING).map_err(told),
        }
    }

    /// A bad field of a Node does not cost the others their way to it: each address counts for
    /// itself.
    fn salvage(&mut self, key: &Key, bytes: &[u8]) -> Changed {
        let Key::Resource(resource) = key else { return NOTHING };
        if resource.kind != ResourceKind::Api(Kind::Node) {
            return NOTHING;
        }
        let Ok(node) = text::json::parse(bytes) else { return NOTHING };
        let address = |field: &str, is_ipv4: bool| {
            let text = node["spec"]["bgp"][field].as_str()?;
            let address = text.parse::<Cidr>().ok()?.address();
            (address.is_ipv4() == is_ipv4).then_some(address)
        };
        let addresses =
            Addresses { v4: address("ipv4Address", true), v6: address("ipv6Address", false) };
        if addresses != Addresses::default() {
            self.nodes.insert(resource.name.clone(), addresses);
        }
        ROUTES
    }

    fn disown(&mut self, cidr: Cidr, owner: &str) {
        let Some(owners) = self.owners.get_mut(&cidr) else { return };
        owners.remove(owner);
        if owners.is_empty() {
            self.owners.remove(&cidr);
        }
    }

    fn keep_block(&mut self, cidr: Cidr, block: Block) -> Changed {
        let before = self.blocks.insert(cidr, block);
        if before.is_none() {
            *self.block_lengths.entry((cidr.is_ipv4(), cidr.prefix_len())).or_default() += 1;
        }
        match before.as_ref() == self.blocks.get(&cidr) {
            true => NOTHING,
            false => self.of_block(cidr),
        }
    }

    /// A block decides about routes, and about sandboxes of ours that have addresses in it.
    fn of_block(&self, cidr: Cidr) -> Changed {
        let mut networks = self.vouched.values().flat_map(|it| &it.endpoint.spec.ip_networks);
        match networks.any(|network| cidr.contains(network.address())) {
            true => BOTH,
            false => ROUTES,
        }
    }

    fn forget_block(&mut self, cidr: Cidr) {
        if self.blocks.remove(&cidr).is_none() {
            return;
        }
        let length = (cidr.is_ipv4(), cidr.prefix_len());
        let left = self.block_lengths.get(&length).map_or(0, |n| n.saturating_sub(1));
        match left {
            0 => self.block_lengths.remove(&length),
            n => self.block_lengths.insert(length, n),
        };
    }

    fn keep_resource(&mut self, path: &str, name: &str, resource: Resource) -> Changed {
        match resource {
            Resource::Node(node) => {
                let bgp = node.spec.bgp.unwrap_or_default();
                let addresses = Addresses {
                    v4: bgp.ipv4_address.map(Cidr::address),
                    v6: bgp.ipv6_address.map(Cidr::address),
                };
                match self.nodes.insert(name.to_owned(), addresses.clone()) == Some(addresses) {
                    true => NOTHING,
                    false => ROUTES,
                }
            }
            Resource::IpPool(pool) => {
                self.pools.insert(name.to_owned(), pool.spec);
                FILTER
            }
            Resource::Profile(profile) => {
                self.profiles.insert(name.to_owned(), profile.spec);
                FILTER
            }
            Resource::WorkloadEndpoint(endpoint) => {
                self.endpoints.insert(path.to_owned(), endpoint);
                BOTH
            }
            _ => NOTHING,
        }
    }

    fn forget(&mut self, key: &Key, path: &str) -> Changed {
        match key {
            Key::Resource(resource) => match resource.kind {
                ResourceKind::Api(Kind::Node) => {
                    self.nodes.remove(&resource.name);
                    ROUTES
                }
                ResourceKind::Api(Kind::IpPool) => {
                    self.pools.remove(&resource.name);
                    FILTER
                }
                ResourceKind::Api(Kind::Profile) => {
                    self.profiles.remove(&resource.name);
                    FILTER
                }
                ResourceKind::Api(Kind::WorkloadEndpoint) => {
                    match self.endpoints.remove(path).is_some() {
                        true => BOTH,
                        false => NOTHING,
                    }
                }
                _ => NOTHING,
            },
            Key::Block { cidr } => {
                self.forget_block(*cidr);
                self.of_block(*cidr)
            }
            Key::BlockAffinity(affinity) => {
                self.disown(affinity.cidr, &affinity.owner);
                ROUTES
            }
            _ => NOTHING,
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
