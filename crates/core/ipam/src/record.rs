//! What stored values mean to address management, and where they lie.

use std::collections::BTreeMap;

use api::Kind;
use api::keys::ipam::{Affinity, Block, Handle, IpamConfig};
use api::keys::value::{self, Stored, ValueError};
use api::keys::{BlockAffinityKey, Key, ListOptions, ResourceKey, ResourceKind, ResourceList};
use net::Cidr;
use serde_json::Value;

use crate::{Owner, Pool};

const HANDLES: &str = "/calico/ipam/v2/handle/";

/// A value in the form that decisions are made on.
#[derive(Debug)]
pub(crate) enum Parsed {
    Block(Block),
    Affinity(Affinity),
    Handle(Handle),
    Settings(IpamConfig),
    Pool(Pool),
    Reserved(Vec<Cidr>),
    Labels(BTreeMap<String, String>),
    /// Something that address management does not look into.
    Other,
    /// Why it cannot be used.
    Unreadable(String),
}

impl Parsed {
    pub(crate) fn read(path: &str, bytes: &[u8]) -> Self {
        // The names of handles may contain anything, slashes too.
        let key = match path.strip_prefix(HANDLES) {
            Some(id) => Some(Key::IpamHandle { id: id.to_owned() }),
            None => Key::parse(path),
        };
        let Some(key) = key else { return Self::Other };
        let read = match &key {
            Key::Block { .. } => Block::read(bytes).map(Self::Block),
            Key::BlockAffinity(_) => Affinity::read(bytes).map(Self::Affinity),
            Key::IpamHandle { .. } => Handle::read(bytes).map(Self::Handle),
            key => value::parse(key, bytes).and_then(|stored| match (key, stored) {
                (Key::IpamConfig, Stored::Json(json)) => {
                    IpamConfig::decode(&json).map(Self::Settings).map_err(ValueError::Fields)
                }
                (Key::Resource(resource), Stored::Json(json)) => {
                    Ok(Self::resource(resource, &json))
                }
                _ => Ok(Self::Other),
            }),
        };
        read.unwrap_or_else(|error| match error {
            ValueError::NotJson(why) => Self::Unreadable(why),
            error => Self::Unreadable(error.to_string()),
        })
    }

    fn resource(key: &ResourceKey, object: &Value) -> Self {
        let texts = |value: &Value| -> Vec<String> {
            let items = value.as_array().into_iter().flatten();
            items.filter_map(|it| it.as_str().map(|it| it.trim().to_owned())).collect()
        };
        match key.kind {
            ResourceKind::Api(Kind::IpPool) => match Pool::read(&key.name, object) {
                Ok(pool) => Self::Pool(pool),
                Err(why) => Self::Unreadable(why),
            },
            ResourceKind::Api(Kind::IpReservation) => {
                let cidrs = texts(&object["spec"]["reservedCIDRs"]);
                Self::Reserved(cidrs.iter().filter_map(|it| it.parse().ok()).collect())
            }
            ResourceKind::Api(Kind::Node) => {
                let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                Self::Labels(labels.map(|(name, value)| (name.clone(), text(value))).collect())
            }
            _ => Self::Other,
        }
    }
}

pub(crate) fn block_key(cidr: Cidr) -> String {
    Key::Block { cidr: cidr.masked() }.path().expect("every block has a path")
}

/// None for an owner without a name.
pub(crate) fn affinity_key(owner: &Owner, cidr: Cidr) -> Option<String> {
    let (owner_type, owner) = (owner.kind.clone(), owner.name.clone());
    Key::BlockAffinity(BlockAffinityKey { owner_type, owner, cidr: cidr.masked() }).path().ok()
}

/// None for the handle without a name.
pub(crate) fn handle_key(handle: &str) -> Option<String> {
    Key::IpamHandle { id: handle.to_owned() }.path().ok()
}

pub(crate) fn host_key(host: &str) -> Option<String> {
    Key::IpamHost { host: host.to_owned() }.path().ok()
}

pub(crate) fn settings_key() -> String {
    Key::IpamConfig.path().expect("the path of the settings is fixed")
}

fn resource_key(kind: Kind, name: &str) -> Option<String> {
    let (namespace, name) = (String::new(), name.to_owned());
    Key::Resource(ResourceKey { kind: kind.into(), namespace, name }).path().ok()
}

pub(crate) fn node_key(node: &str) -> Option<String> {
    resource_key(Kind::Node, node)
}

pub(crate) fn pool_key(name: &str) -> Option<String> {
    resource_key(Kind::IpPool, name)
}

fn folder(list: &ListOptions) -> String {
    let root = list.root();
    if root.ends_with('/') { root } else { root + "/" }
}

/// Where all objects of a kind lie.
pub(crate) fn kind_prefix(kind: Kind) -> String {
    folder(&ListOptions::Resource(ResourceList::all(kind)))
}

/// Where the blocks of a family lie.
pub(crate) fn blocks_prefix(family: u8) -> String {
    format!("/calico/ipam/v2/assignment/ipv{family}/block/")
}

/// Where the claims of an owner on blocks of a family lie; of all owners of the type without one.
pub(crate) fn affinities_prefix(owner: &Owner, family: Option<u8>) -> String {
    let named = Some(owner.name.clone()).filter(|name| !name.is_empty());
    folder(&ListOptions::BlockAffinity { owner_type: owner.kind.clone(), owner: named, family })
}

/// The block that a key is of.
pub(crate) fn block_at(key: &str) -> Option<Cidr> {
    match Key::parse(key)? {
        Key::Block { cidr } => Some(cidr),
        _ => None,
    }
}

/// The claim that a key is of.
pub(crate) fn affinity_at(key: &str) -> Option<BlockAffinityKey> {
    match Key::parse(key)? {
        Key::BlockAffinity(claim) => Some(claim),
        _ => None,
    }
}
