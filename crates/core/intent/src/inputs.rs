//! The part of the datastore that this node acts on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::Kind;
use api::keys::ipam::Block;
use api::keys::{Key, ResourceKey, ResourceKind};
use model::resource::{BgpConfiguration, IpPool, Node, Object, Resource, WorkloadEndpoint};
use net::Cidr;
use policy::convert::{convert, default_allow, place};
use policy::graph::Graph;
use policy::input::{Change, Labels, Workload};

use crate::elsewhere::{Condenser, Elsewhere};
use crate::felix::Parameters;
use crate::live::Vouched;
use crate::read::{Read, Rest, Said};

/// Everything absorbed so far.
#[derive(Debug)]
pub struct Inputs {
    pub(crate) node: String,
    /// The labels of this node.
    pub(crate) labels: Labels,
    pub(crate) nodes: BTreeMap<String, Addresses>,
    pub(crate) blocks: BTreeMap<Cidr, Block>,
    /// Who has confirmed a claim on a block. Several may have; the block says whose it is.
    pub(crate) owners: BTreeMap<Cidr, BTreeSet<String>>,
    pub(crate) pools: BTreeMap<String, IpPool>,
    /// The endpoints that are stored as this node's.
    pub(crate) endpoints: BTreeMap<String, Object<WorkloadEndpoint>>,
    /// The endpoints of other nodes.
    pub(crate) elsewhere: BTreeMap<Box<str>, Elsewhere>,
    condenser: Condenser,
    /// What the graph was told of this node's endpoints.
    pub(crate) presented: BTreeMap<String, Arc<Workload>>,
    /// Whether the graph is to be told of them anew.
    pub(crate) has_local_news: bool,
    pub(crate) graph: Graph,
    /// Settings, by the name of their object.
    pub(crate) parameters: BTreeMap<String, Parameters>,
    /// The networks of services, by the name of the object that tells them.
    pub(crate) services: BTreeMap<String, Vec<Cidr>>,
    /// The names of the objects of the other kinds.
    pub(crate) counted: BTreeMap<Kind, BTreeSet<String>>,
    /// Sandboxes that the journal vouches for, by the key of their endpoint.
    pub(crate) vouched: BTreeMap<String, Vouched>,
    /// How many blocks there are of which length, IPv4 or not: where an address is looked for.
    pub(crate) block_lengths: BTreeMap<(bool, u8), usize>,
    pub(crate) is_complete: bool,
    quarantined: BTreeMap<String, Vec<String>>,
    /// Those of which something is in force all the same.
    salvaged: BTreeSet<String>,
    /// Those of which an earlier value is in force, with its revision.
    kept: BTreeMap<String, i64>,
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
    /// The settings that the datastore has for this node.
    pub settings: bool,
}

impl std::ops::BitOrAssign for Changed {
    fn bitor_assign(&mut self, other: Self) {
        self.routes |= other.routes;
        self.filter |= other.filter;
        self.settings |= other.settings;
    }
}

pub(crate) const NOTHING: Changed = Changed { routes: false, filter: false, settings: false };
const ROUTES: Changed = Changed { routes: true, ..NOTHING };
const FILTER: Changed = Changed { filter: true, ..NOTHING };
const SETTINGS: Changed = Changed { settings: true, ..NOTHING };
pub(crate) const BOTH: Changed = Changed { routes: true, filter: true, settings: false };

impl Inputs {
    /// Nothing absorbed yet, for the node of this name.
    pub fn new(node: impl Into<String>) -> Self {
        let node = node.into();
        let mut graph = Graph::new(&node);
        let condenser = Condenser::new(&node);
        graph.absorb(default_allow());
        Self {
            node,
            labels: Labels::new(),
            nodes: BTreeMap::new(),
            blocks: BTreeMap::new(),
            owners: BTreeMap::new(),
            pools: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            condenser,
            presented: BTreeMap::new(),
            has_local_news: false,
            graph,
            parameters: BTreeMap::new(),
            services: BTreeMap::new(),
            counted: BTreeMap::new(),
            vouched: BTreeMap::new(),
            block_lengths: BTreeMap::new(),
            is_complete: false,
            quarantined: BTreeMap::new(),
            salvaged: BTreeSet::new(),
            kept: BTreeMap::new(),
        }
    }

    /// The prefixes of the keys that matter.
    pub fn prefixes() -> [&'static str; 4] {
        [
            "/calico/resources/v3/projectcalico.org/",
            "/calico/ipam/v2/assignment/",
            "/calico/ipam/v2/host/",
            "/calico/ipam/v2/config",
        ]
    }

    /// Takes a key's new value, or its removal.
    pub fn absorb(&mut self, path: &str, value: Option<&[u8]>) -> Changed {
        if let Some(read) = value.and_then(|bytes| Read::new(path, bytes)) {
            return self.take(path, read);
        }
        self.quarantined.remove(path);
        self.salvaged.remove(path);
        self.kept.remove(path);
        Key::parse(path).map_or(NOTHING, |key| self.forget(&key, path))
    }

    /// Takes a key's new value, as it was read.
    pub fn take(&mut self, path: &str, read: Read) -> Changed {
        self.quarantined.remove(path);
        self.salvaged.remove(path);
        self.kept.remove(path);
        match read.0 {
            Said::Nothing => NOTHING,
            Said::Resource(key, resource, change) => {
                self.keep_resource(&key, path, &resource, change)
            }
            Said::Settings(name, parameters) => {
                self.parameters.insert(name, parameters);
                SETTINGS
            }
            Said::Block(cidr, block) => self.keep_block(cidr, *block),
            Said::Claim { cidr, owner, is_confirmed: true } => {
                self.owners.entry(cidr).or_default().insert(owner);
                ROUTES
            }
            Said::Claim { cidr, owner, is_confirmed: false } => {
                self.disown(cidr, &owner);
                ROUTES
            }
            Said::Misplaced(problems) => {
                self.quarantined.insert(path.to_owned(), problems.into());
                NOTHING
            }
            Said::Unusable(key, problems, rest) => {
                // What was there before is out of date: an address or a permission that nobody
                // vouches for any more is not kept.
                let mut changed = self.forget(&key, path);
                if let Some(rest) = rest {
                    changed |= self.keep_rest(rest);
                    self.salvaged.insert(path.to_owned());
                }
                self.quarantined.insert(path.to_owned(), problems);
                changed
            }
        }
    }

    fn keep_rest(&mut self, rest: Rest) -> Changed {
        match rest {
            Rest::Node(name, addresses) => {
                self.nodes.insert(name, addresses);
                ROUTES
            }
            Rest::Change { change, .. } => {
                self.graph.absorb(change);
                FILTER
            }
            Rest::Settings(name, parameters) => {
                self.parameters.insert(name, parameters);
                SETTINGS
            }
        }
    }

    /// Puts a key aside unread: its value is known to do harm.
    pub fn put_aside(&mut self, path: &str, why: &str) -> Changed {
        let changed = self.absorb(path, None);
        self.quarantined.insert(path.to_owned(), vec![why.to_owned()]);
        changed
    }

    /// Takes an earlier value of a key, whose stored one has these problems.
    pub fn keep(
        &mut self,
        path: &str,
        earlier: Read,
        revision: i64,
        problems: Vec<String>,
    ) -> Changed {
        let changed = self.take(path, earlier);
        self.quarantined.insert(path.to_owned(), problems);
        self.kept.insert(path.to_owned(), revision);
        changed
    }

    /// The revision that is in force of an object whose stored value cannot be used.
    pub fn kept(&self, path: &str) -> Option<i64> {
        self.kept.get(path).copied()
    }

    /// The same for all of them, by key.
    pub fn all_kept(&self) -> &BTreeMap<String, i64> {
        &self.kept
    }

    /// What could not be used, by key, with its problems as people read them.
    pub fn quarantined(&self) -> &BTreeMap<String, Vec<String>> {
        &self.quarantined
    }

    /// Whether something of an object that cannot be used as it is is in force all the same.
    pub fn is_salvaged(&self, path: &str) -> bool {
        self.salvaged.contains(path)
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
    fn of_block(&mut self, cidr: Cidr) -> Changed {
        let mut networks = self.vouched.values().flat_map(|it| &it.endpoint.spec.ip_networks);
        if !networks.any(|network| cidr.contains(network.address())) {
            return ROUTES;
        }
        self.has_local_news = true;
        BOTH
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

    fn keep_resource(
        &mut self,
        key: &ResourceKey,
        path: &str,
        resource: &Resource,
        change: Option<Change>,
    ) -> Changed {
        match resource {
            Resource::Node(node) => self.keep_node(&key.name, node),
            Resource::IpPool(pool) => {
                self.pools.insert(key.name.clone(), pool.spec.clone());
                FILTER
            }
            Resource::BgpConfiguration(configuration) => {
                self.services.insert(key.name.clone(), services(&configuration.spec));
                FILTER
            }
            Resource::WorkloadEndpoint(endpoint) => {
                let workload = match change {
                    Some(Change::Workload(_, Some(workload))) => workload,
                    _ => without_addresses(endpoint),
                };
                self.keep_endpoint(path, endpoint, workload)
            }
            _ => {
                if let ResourceKind::Api(kind) = key.kind {
                    self.counted.entry(kind).or_default().insert(place(key));
                }
                if let Some(change) = change {
                    self.graph.absorb(change);
                }
                FILTER
            }
        }
    }

    fn forget_resource(&mut self, resource: &ResourceKey, path: &str) -> Changed {
        let ResourceKind::Api(kind) = resource.kind else { return NOTHING };
        match kind {
            Kind::Node => {
                self.nodes.remove(&resource.name);
                BOTH
            }
            Kind::IpPool => {
                self.pools.remove(&resource.name);
                FILTER
            }
            Kind::BgpConfiguration => {
                self.services.remove(&resource.name);
                FILTER
            }
            Kind::FelixConfiguration => {
                self.parameters.remove(&resource.name);
                SETTINGS
            }
            Kind::WorkloadEndpoint => self.forget_endpoint(path),
            _ => {
                let known = self.counted.get_mut(&kind);
                if let Some(known) = known {
                    known.remove(&place(resource));
                }
                if let Ok(Some(change)) = convert(resource, None) {
                    self.graph.absorb(change);
                }
                FILTER
            }
        }
    }

    fn keep_node(&mut self, name: &str, node: &Object<Node>) -> Changed {
        let bgp = node.spec.bgp.clone().unwrap_or_default();
        let addresses = Addresses {
            v4: bgp.ipv4_address.map(Cidr::address),
            v6: bgp.ipv6_address.map(Cidr::address),
        };
        let mut changed = NOTHING;
        if name == self.node && self.labels != node.metadata.labels {
            self.labels.clone_from(&node.metadata.labels);
            changed |= SETTINGS;
        }
        if self.nodes.insert(name.to_owned(), addresses.clone()) != Some(addresses) {
            changed |= BOTH;
        }
        changed
    }

    fn keep_endpoint(
        &mut self,
        path: &str,
        endpoint: &Object<WorkloadEndpoint>,
        workload: Arc<Workload>,
    ) -> Changed {
        if endpoint.spec.node == self.node {
            self.elsewhere.remove(path);
            self.endpoints.insert(path.to_owned(), endpoint.clone());
            self.has_local_news = true;
            return BOTH;
        }
        let was_here = self.endpoints.remove(path).is_some() || self.vouched.contains_key(path);
        let was_told = was_here || self.presented.contains_key(path);
        let condensed = self.condenser.condense(path, Arc::clone(&workload), was_told);
        self.elsewhere.insert(path.into(), condensed);
        self.present_elsewhere(path, Some(workload));
        if was_here { BOTH } else { FILTER }
    }

    fn forget_endpoint(&mut self, path: &str) -> Changed {
        if self.endpoints.remove(path).is_some() {
            self.has_local_news = true;
            return BOTH;
        }
        if self.elsewhere.remove(path).is_none() {
            return NOTHING;
        }
        self.present_elsewhere(path, None);
        if self.vouched.contains_key(path) { BOTH } else { FILTER }
    }

    fn forget(&mut self, key: &Key, path: &str) -> Changed {
        match key {
            Key::Resource(resource) => self.forget_resource(resource, path),
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

/// The networks of services that a configuration names.
fn services(configuration: &BgpConfiguration) -> Vec<Cidr> {
    let lists = [
        &configuration.service_cluster_ips,
        &configuration.service_external_ips,
        &configuration.service_load_balancer_ips,
    ];
    lists.into_iter().flatten().filter_map(|block| block.cidr).collect()
}

/// An endpoint that policy cannot know yet.
fn without_addresses(endpoint: &Object<WorkloadEndpoint>) -> Arc<Workload> {
    let (node, interface) = (endpoint.spec.node.clone(), endpoint.spec.interface_name.clone());
    Arc::new(Workload { node, interface, ..Workload::default() })
}
