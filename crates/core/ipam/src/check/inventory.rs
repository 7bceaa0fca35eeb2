//! Every record that has to do with addresses, in a form small enough to hold all of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::Kind;
use api::keys::ipam::{Affinity, AffinityState, Handle};
use api::keys::value::{self, Stored};
use api::keys::{BlockAffinityKey, Key, ResourceKind};
use net::Cidr;

use super::endpoint::{self, Endpoint};
use super::live::Live;
use super::stock::Stock;
use crate::Pool;
use crate::record::{block_key, kind_prefix};

const ROOT: &str = "/calico/ipam/v2/";
const HANDLES: &str = "/calico/ipam/v2/handle/";
const SETTINGS: &str = "/calico/ipam/v2/config";

/// Where the records of addresses lie, in the order in which they are to be read: what lives is
/// read after what is held, so that whatever came in between is seen to live.
pub fn prefixes() -> Vec<String> {
    let kinds = [Kind::IpPool, Kind::IpReservation, Kind::Node].map(kind_prefix);
    std::iter::once(ROOT.to_owned()).chain(kinds).chain([endpoints_prefix()]).collect()
}

/// Where the workload endpoints lie.
pub fn endpoints_prefix() -> String {
    kind_prefix(Kind::WorkloadEndpoint)
}

/// What a handle says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandleFacts {
    pub(crate) revision: i64,
    /// How many addresses it has in which block.
    pub(crate) blocks: Box<[(Cidr, i64)]>,
    /// What it names in the place of blocks and is none.
    pub(crate) odd: Box<[String]>,
    pub(crate) is_deleted: bool,
    /// Why it cannot be read.
    pub(crate) unreadable: Option<Box<str>>,
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
    pub(crate) handles: BTreeMap<Arc<str>, HandleFacts>,
    pub(crate) claims: BTreeMap<String, ClaimFacts>,
    pub(crate) pools: Vec<Pool>,
    /// Tunnel addresses by node.
    pub(crate) nodes: BTreeMap<String, Vec<IpAddr>>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Records outside of the above that cannot be read: why, by key.
    pub(crate) unreadable: BTreeMap<String, String>,
    pub(crate) live: Option<Live>,
    words: BTreeSet<Arc<str>>,
}

impl Inventory {
    /// Takes in a record.
    pub fn absorb(&mut self, key: &str, bytes: &[u8], revision: i64) {
        self.unreadable.remove(key);
        if let Some(id) = key.strip_prefix(HANDLES) {
            return self.absorb_handle(id, bytes, revision);
        }
        if key == SETTINGS || is_host(key) {
            return;
        }
        match Key::parse(key) {
            Some(Key::Block { cidr }) if block_key(cidr) == key => {
                let mut words = std::mem::take(&mut self.words);
                let stock = Stock::read(cidr, bytes, revision, &mut |it| intern(&mut words, it));
                self.words = words;
                self.blocks.insert(cidr, stock);
            }
            Some(Key::BlockAffinity(claim)) => self.absorb_claim(key, claim, bytes, revision),
            Some(Key::Resource(resource)) => match resource.kind {
                ResourceKind::Api(Kind::WorkloadEndpoint) => {
                    let mut words = std::mem::take(&mut self.words);
                    let read = Endpoint::read(&resource, bytes, &mut |it| intern(&mut words, it));
                    self.words = words;
                    match read {
                        Ok(endpoint) => self.endpoints.push(endpoint),
                        Err(why) => drop(self.unreadable.insert(key.to_owned(), why)),
                    }
                }
                ResourceKind::Api(kind) => self.absorb_object(key, kind, &resource.name, bytes),
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
        let key = Key::IpamHandle { id: id.to_owned() };
        let read = match value::parse(&key, bytes) {
            Ok(Stored::Json(json)) => Handle::decode(&json)
                .map_err(|problems| problems.first().map(ToString::to_string).unwrap_or_default()),
            Ok(_) => Err("not an object".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let facts = match read {
            Ok(handle) => {
                let (mut blocks, mut odd) = (Vec::new(), Vec::new());
                for (text, count) in handle.blocks {
                    match text.parse::<Cidr>() {
                        Ok(cidr) if cidr.to_string() == text => blocks.push((cidr, count)),
                        _ => odd.push(text),
                    }
                }
                let (blocks, odd) = (blocks.into(), odd.into());
                HandleFacts { revision, blocks, odd, is_deleted: handle.deleted, unreadable: None }
            }
            Err(why) => {
                HandleFacts { revision, unreadable: Some(why.into()), ..HandleFacts::default() }
            }
        };
        let id = intern(&mut self.words, id);
        self.handles.insert(id, facts);
    }

    fn absorb_claim(&mut self, key: &str, claim: BlockAffinityKey, bytes: &[u8], revision: i64) {
        let read = match value::parse(&Key::BlockAffinity(claim.clone()), bytes) {
            Ok(Stored::Json(json)) => Affinity::decode(&json)
                .map_err(|problems| problems.first().map(ToString::to_string).unwrap_or_default()),
            Ok(_) => Err("not an object".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let (affinity, unreadable) = match read {
            Ok(affinity) => (affinity, None),
            Err(why) => (Affinity::default(), Some(why)),
        };
        let (state, is_deleted) = (affinity.state, affinity.deleted);
        let facts = ClaimFacts { key: claim, revision, state, is_deleted, unreadable };
        self.claims.insert(key.to_owned(), facts);
    }

    fn absorb_object(&mut self, key: &str, kind: Kind, name: &str, bytes: &[u8]) {
        let parsed = Key::parse(key).map(|key| value::parse(&key, bytes));
        let object = match parsed {
            Some(Ok(Stored::Json(object))) => object,
            Some(Err(error)) => {
                self.unreadable.insert(key.to_owned(), error.to_string());
                // That it is there is known all the same.
                if kind == Kind::Node {
                    self.nodes.insert(name.to_owned(), Vec::new());
                }
                return;
            }
            _ => return,
        };
        match kind {
            Kind::IpPool => match Pool::read(name, &object) {
                Ok(pool) => self.pools.push(pool),
                Err(why) => drop(self.unreadable.insert(key.to_owned(), why)),
            },
            Kind::Node => drop(self.nodes.insert(name.to_owned(), endpoint::tunnels(&object))),
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

/// `/calico/ipam/v2/host/NAME`: that a node takes part; nothing more is under it.
fn is_host(key: &str) -> bool {
    matches!(Key::parse(key), Some(Key::IpamHost { .. }))
}

fn intern(words: &mut BTreeSet<Arc<str>>, word: &str) -> Arc<str> {
    if let Some(known) = words.get(word) {
        return known.clone();
    }
    let word: Arc<str> = word.into();
    words.insert(word.clone());
    word
}
