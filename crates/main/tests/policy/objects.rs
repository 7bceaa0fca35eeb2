//! Calico objects as people write them → what policy is computed from, on the way that the shipped
//! programs go: prepared, stored, read, converted.

use std::net::IpAddr;

use api::Kind;
use api::keys::{ResourceKey, ResourceKind};
use model::prepare::{Context, Neighbours, prepare_create};
use model::resource::Resource;
use policy::convert::convert;
use policy::input::Change;
use serde_json::{Value, json};

use crate::packet;
use crate::probes::{Place, Prober};
use crate::world::{NODE_ADDRESSES, Pod, World, world};

/// The node whose pods are namespaces.
pub(crate) const NODE: &str = "n1";

/// The cluster that all tests start from.
const CLUSTER: &str = include_str!("semantics/cluster.yaml");

/// Somebody who can send and receive: by name, with an address of each family.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) addresses: [IpAddr; 2],
}

impl Party {
    pub(crate) fn address(&self, is_ipv4: bool) -> IpAddr {
        self.addresses[usize::from(!is_ipv4)]
    }
}

/// The objects of the cluster, and those who live in it.
pub(crate) struct Cluster {
    pub(crate) objects: Vec<Value>,
    pub(crate) parties: Vec<Party>,
    pods: Vec<Pod>,
}

impl Cluster {
    pub(crate) fn read() -> Self {
        let cluster = text::yaml::parse(CLUSTER.as_bytes()).unwrap();
        let objects = cluster["objects"].as_array().unwrap().clone();
        let (mut parties, mut pods) = (Vec::new(), Vec::new());
        for object in objects.iter().filter(|it| it["kind"] == "WorkloadEndpoint") {
            let (metadata, spec) = (&object["metadata"], &object["spec"]);
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let address = |at: usize| {
                let net = text(&spec["ipNetworks"][at]);
                net.split('/').next().unwrap().parse::<IpAddr>().unwrap()
            };
            let addresses = [address(0), address(1)];
            let place = match spec["node"].as_str() {
                Some(NODE) => Place::Pod(pods.len()),
                _ => Place::Remote,
            };
            if place != Place::Remote {
                let interface = text(&spec["interfaceName"]);
                pods.push(Pod { interface, addresses: addresses.to_vec() });
            }
            let name = format!("{}/{}", text(&metadata["namespace"]), text(&spec["pod"]));
            parties.push(Party { name, place, addresses });
        }
        for (name, addresses) in cluster["elsewhere"].as_object().unwrap() {
            let address = |at: usize| addresses[at].as_str().unwrap().parse().unwrap();
            let (name, place) = (name.clone(), Place::Remote);
            parties.push(Party { name, place, addresses: [address(0), address(1)] });
        }
        let (name, place) = ("node".to_owned(), Place::Node);
        parties.push(Party { name, place, addresses: NODE_ADDRESSES });
        Self { objects, parties, pods }
    }

    /// The namespaces of those who live in it.
    pub(crate) fn prober(&self) -> Option<Prober> {
        self.world().map(Prober::new)
    }

    pub(crate) fn world(&self) -> Option<World> {
        let remote = self.parties.iter().filter(|it| it.place == Place::Remote);
        let elsewhere: Vec<IpAddr> = remote.flat_map(|it| it.addresses).collect();
        world(&self.pods, &elsewhere)
    }

    pub(crate) fn party(&self, name: &str) -> &Party {
        let found = self.parties.iter().find(|party| party.name == name);
        found.unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Every pair that the node has a say in.
    pub(crate) fn pairs(&self) -> Vec<(&Party, &Party)> {
        let all = self.parties.iter();
        let pairs = all.flat_map(|from| self.parties.iter().map(move |to| (from, to)));
        let is_local = |party: &Party| matches!(party.place, Place::Pod(_));
        pairs
            .filter(|(from, to)| from.name != to.name && (is_local(from) || is_local(to)))
            .collect()
    }
}

/// What an object means to policy.
pub(crate) fn changes(object: &Value) -> Change {
    read(object).unwrap_or_else(|problem| panic!("{problem}: {object}"))
}

/// The same; none if users may not store it.
pub(crate) fn accepted(object: &Value) -> Option<Change> {
    read(object).ok()
}

fn read(object: &Value) -> Result<Change, String> {
    let (key, stored) = prepared(object)?;
    let resource = Resource::read(kind(object), &stored).map_err(|it| format!("{it:?}"))?;
    let change = convert(&key, Some(&resource)).map_err(|unusable| unusable.to_string())?;
    change.ok_or_else(|| "it means nothing to policy".to_owned())
}

/// What the removal of an object means to policy.
pub(crate) fn removal(object: &Value) -> Change {
    let (key, _) = prepared(object).unwrap();
    convert(&key, None).unwrap().unwrap()
}

fn kind(object: &Value) -> Kind {
    object["kind"].as_str().unwrap().parse().unwrap()
}

fn prepared(object: &Value) -> Result<(ResourceKey, Value), String> {
    let mut object = object.clone();
    object["apiVersion"] = json!("projectcalico.org/v3");
    let kind = kind(&object);
    let context = Context {
        uid: "8f5e4a5e-0000-4000-8000-000000000001".to_owned(),
        now: "2026-01-01T00:00:00Z".to_owned(),
        default_namespace: "default".to_owned(),
    };
    let neighbours = Neighbours { tier_exists: true, ..Neighbours::default() };
    let stored = prepare_create(kind, object, &context, &neighbours)
        .map_err(|refusal| format!("{refusal:?}"))?;
    let text = |name: &str| stored["metadata"][name].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    Ok((ResourceKey { kind: ResourceKind::Api(kind), namespace, name }, stored))
}

/// A packet between two parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    pub(crate) is_ipv4: bool,
    pub(crate) protocol: u8,
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) icmp: Option<(u8, u8)>,
}

impl Shape {
    pub(crate) fn packet(self, from: &Party, to: &Party) -> policy::Packet {
        let (source, destination) = (from.address(self.is_ipv4), to.address(self.is_ipv4));
        let packet = packet::plain(source, destination, self.protocol, self.ports);
        let is_of_host = from.place == Place::Node || to.place == Place::Node;
        policy::Packet { icmp: self.icmp, is_of_host, ..packet }
    }
}
