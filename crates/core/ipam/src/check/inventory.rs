//! Every record that has to do with addresses, in a form small enough to hold all of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::Kind;
use api::keys::ipam::{Affinity, AffinityState};
use api::keys::value::{self, Stored};
use api::keys::{BlockAffinityKey, Key, ResourceKey, ResourceKind};
use net::Cidr;

use super::endpoint::{self, Endpoint, Tail, Texts};
use super::handle::{HandleFacts, Handles};
use super::live::Live;
use super::stock::Stock;
use crate::Pool;
use crate::record::{block_key, kind_prefix};

const ROOT: &str = "/calico/ipam/v2/";
const HANDLES: &str = "/calico/ipam/v2/handle/";
const ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";
/// What stands before the node in the handle of its reserve.
pub(crate) const RESERVE: &str = "margay-reserve";

/// Where the records of addresses lie, in the order in which they are to be read: what lives is
/// read after what is held, so that whatever came in between is seen to live.
pub fn prefixes() -> Vec<String> {
    let kinds = [Kind::IpPool, Kind::IpReservation, Kind::Node].map(kind_prefix);
    std::iter::once(ROOT.to_owned()).chain(kinds).chain([endpoints_prefix()]).collect()
}

/// Where the workload endpoints lie.
pub fn endpoints_prefix() -> String {
    ENDPOINTS.to_owned()
}

/// What a claim on a block says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimFacts {
    pub(crate) key: BlockAffinityKey,
    pub(crate) revision: i64,
    pub(crate) state: AffinityState,
    pub(crate) is_deleted: bool,
    pub(crate) unreadable: Option<String>,
}

impl ClaimFacts {
    /// Whether the owner has the block. Very old versions did not say.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state, AffinityState::Confirmed | AffinityState::Unset)
    }
}

/// Every record that has to do with addresses.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    pub(crate) blocks: BTreeMap<Cidr, Stock>,
    pub(crate) handles: Handles,
    pub(crate) claims: BTreeMap<String, ClaimFacts>,
    pub(crate) pools: Vec<Pool>,
    /// Tunnel addresses by node.
    pub(crate) nodes: BTreeMap<String, Vec<IpAddr>>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Records outside of the above that cannot be read: why, by key.
    pub(crate) unreadable: BTreeMap<String, String>,
    pub(crate) live: Option<Live>,
    words: BTreeSet<Arc<str>>,
    /// What stands before the container in some handles.
    networks: BTreeSet<Box<str>>,
}

/// So many networks are looked through for the handle of a container.
const NETWORKS_MAX: usize = 4;

impl Texts for Inventory {
    fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.words.get(text) {
            return known.clone();
        }
        let word: Arc<str> = text.into();
        self.words.insert(word.clone());
        word
    }

    fn handle(&mut self, id: &str) -> Arc<str> {
        self.handles.name(id)
    }

    fn container(&mut self, text: &str) -> Tail {
        let mut id = String::with_capacity(text.len() + 32);
        let handle = self.networks.iter().find_map(|network| {
            id.clear();
            id.extend([network, ".", text]);
            self.handles.named(&id)
        });
        handle.map_or_else(|| text.into(), |handle| Tail::of(handle, text.len()))
    }
}

impl Inventory {
    /// Takes in a record.
    pub fn absorb(&mut self, key: &str, bytes: &[u8], revision: i64) {
        self.unreadable.remove(key);
        if let Some(id) = key.strip_prefix(HANDLES) {
            return self.absorb_handle(id, bytes, revision);
        }
        match endpoint_at(key).or_else(|| Key::parse(key)) {
            // That a node takes part, and the settings, say nothing of addresses.
            Some(Key::IpamHost { .. } | Key::IpamConfig) => {}
            Some(Key::Block { cidr }) if block_key(cidr) == key => {
                let stock = Stock::read(cidr, bytes, revision, self);
                self.blocks.insert(cidr, stock);
            }
            Some(Key::BlockAffinity(claim)) => self.absorb_claim(key, claim, bytes, revision),
            Some(Key::Resource(resource)) => match resource.kind {
                ResourceKind::Api(Kind::WorkloadEndpoint) => {
                    match Endpoint::read(&resource, bytes, self) {
                        Ok(endpoint) => self.endpoints.push(endpoint),
                        Err(why) => drop(self.unreadable.insert(key.to_owned(), why)),
                    }
                }
                ResourceKind::Api(kind) => self.absorb_object(key, kind, resource, bytes),
                _ => {}
            },
            _ if key.starts_with(ROOT) => {
                let why = "its key names no block, claim or handle";
                self.unreadable.insert(key.to_owned(), why.to_owned());
            }
            _ => {}
        }
    }

    /// Takes in what a node says of itself.
    pub fn witness(&mut self, live: Live) {
        self.live = Some(live);
    }

    /// The revision at which a block was last written, by its key; none if it is not there.
    pub fn revision_of_block(&self, key: &str) -> Option<i64> {
        match Key::parse(key)? {
            Key::Block { cidr } => self.blocks.get(&cidr).map(|stock| stock.revision),
            _ => None,
        }
    }

    /// Forgets a record of addresses: it is gone.
    pub(crate) fn forget(&mut self, key: &str) {
        self.unreadable.remove(key);
        if let Some(id) = key.strip_prefix(HANDLES) {
            self.handles.remove(id);
        } else if let Some(Key::Block { cidr }) = Key::parse(key) {
            self.blocks.remove(&cidr);
        } else {
            self.claims.remove(key);
        }
    }

    fn absorb_handle(&mut self, id: &str, bytes: &[u8], revision: i64) {
        let facts = HandleFacts::read(bytes, revision);
        if let Some((network, _)) = id.rsplit_once('.').filter(|it| it.0 != RESERVE)
            && !self.networks.contains(network)
            && self.networks.len() < NETWORKS_MAX
        {
            self.networks.insert(network.into());
        }
        self.handles.insert(id, facts);
    }

    fn absorb_claim(&mut self, key: &str, claim: BlockAffinityKey, bytes: &[u8], revision: i64) {
        let (affinity, unreadable) = match Affinity::read(bytes) {
            Ok(affinity) => (affinity, None),
            Err(why) => (Affinity::default(), Some(why.to_string())),
        };
        let (state, is_deleted) = (affinity.state, affinity.deleted);
        let facts = ClaimFacts { key: claim, revision, state, is_deleted, unreadable };
        self.claims.insert(key.to_owned(), facts);
    }

    fn absorb_object(&mut self, key: &str, kind: Kind, resource: ResourceKey, bytes: &[u8]) {
        let name = resource.name.clone();
        let object = match value::parse(&Key::Resource(resource), bytes) {
            Ok(Stored::Json(object)) => object,
            Err(error) => {
                self.unreadable.insert(key.to_owned(), error.to_string());
                // That it is there is known all the same.
                if kind == Kind::Node {
                    self.nodes.insert(name, Vec::new());
                }
                return;
            }
            _ => return,
        };
        match kind {
            Kind::IpPool => match Pool::read(&name, &object) {
                Ok(pool) => self.pools.push(pool),
                Err(why) => drop(self.unreadable.insert(key.to_owned(), why)),
            },
            Kind::Node => drop(self.nodes.insert(name, endpoint::tunnels(&object))),
            _ => {}
        }
    }

    /// Whether a node is known not to exist.
    pub(crate) fn is_gone(&self, node: &str) -> bool {
        !self.nodes.is_empty() && !self.nodes.contains_key(node)
    }

    /// The endpoints that cannot be read, by key.
    pub(crate) fn unreadable_endpoints(&self) -> impl Iterator<Item = &str> {
        let prefix = endpoints_prefix();
        let keys = self.unreadable.keys().map(String::as_str);
        keys.filter(move |key| key.starts_with(&prefix))
    }
}

/// The key of an endpoint in whose path nothing is escaped, as nearly all are.
fn endpoint_at(path: &str) -> Option<Key> {
    let (namespace, name) = path.strip_prefix(ENDPOINTS)?.split_once('/')?;
    let is_plain = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
    let key = || ResourceKey {
        kind: Kind::WorkloadEndpoint.into(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    (is_plain && !path.contains('%')).then(key).map(Key::Resource)
}
