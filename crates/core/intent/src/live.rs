//! Sandboxes that live on this node, whatever the datastore says of them.
//!
//! The node's own journal vouches for them. While their endpoint is missing or cannot be read,
//! what the journal knows takes its place, so that nobody's slip costs a pod its network. Only
//! where the address has another holder by now is the sandbox left out: then it is closed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::keys::Key;
use api::keys::ipam::Block;
use model::resource::{Metadata, Object, WorkloadEndpoint};
use net::Cidr;
use sandbox::claim::CALICO_IPAM;
use sandbox::identity::Identity;
use sandbox::life::Record;

use crate::inputs::{BOTH, NOTHING};
use crate::{Changed, Inputs};

/// What the journal knows of a live sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Its container: the next sandbox of a stateful pod has an endpoint of the same name.
    pub container: String,
    /// The host's interface.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<Cidr>,
    /// The handle that holds them; none if another address manager gave them.
    pub handle: Option<String>,
    /// Its profiles.
    pub profiles: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl Live {
    /// What the filter and the routes need to know of a sandbox.
    pub fn of(record: &Record) -> Self {
        let workload = &record.workload;
        let mut labels: BTreeMap<String, String> = record.labels.iter().cloned().collect();
        let namespace = workload.namespace().to_owned();
        labels.insert("projectcalico.org/namespace".to_owned(), namespace);
        let orchestrator = workload.orchestrator().to_owned();
        labels.insert("projectcalico.org/orchestrator".to_owned(), orchestrator);
        Self {
            container: record.identity.container.clone(),
            interface: record.wiring.host_interface.clone(),
            addresses: record.addresses.iter().map(|held| held.network).collect(),
            handle: (record.ipam == CALICO_IPAM).then(|| record.handle()),
            profiles: record.profiles(),
            labels,
        }
    }
}

/// An address of a live sandbox that somebody else has by now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dispute {
    /// The address.
    pub address: IpAddr,
    /// The host's interface of our sandbox.
    pub interface: String,
    /// The handle of our sandbox.
    pub ours: String,
    /// The handle that holds the address, and the node that it names.
    pub theirs: String,
}

/// Two endpoints that have one address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Twin {
    /// The address.
    pub address: IpAddr,
    /// The name of our endpoint.
    pub ours: String,
    /// The name of the other.
    pub theirs: String,
    /// The other's node.
    pub node: String,
}

/// An endpoint that names the interface of a live sandbox that is not its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Impostor {
    /// The interface.
    pub interface: String,
    /// The name of the endpoint.
    pub endpoint: String,
    /// The name of the sandbox's own.
    pub ours: String,
}

/// An endpoint that says of a live sandbox what is not so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contradiction {
    /// The name of the endpoint.
    pub endpoint: String,
    /// The node that it names.
    pub node: String,
    /// The interface that it names.
    pub interface: String,
    /// The interface that the sandbox has here.
    pub ours: String,
}

/// An endpoint of this node, as people name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalEndpoint {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether the journal vouches for its sandbox.
    pub is_live: bool,
}

/// A sandbox that is vouched for, in the form of an endpoint.
#[derive(Debug)]
pub(crate) struct Vouched {
    container: String,
    handle: Option<String>,
    pub(crate) endpoint: Object<WorkloadEndpoint>,
}

impl Inputs {
    /// The journal vouches for a sandbox whose endpoint has this key.
    pub fn vouch(&mut self, key: &str, live: Live) -> Changed {
        let spec = WorkloadEndpoint {
            node: self.node.clone(),
            interface_name: live.interface,
            ip_networks: live.addresses.iter().map(|it| Cidr::host(it.address())).collect(),
            profiles: live.profiles,
            ..WorkloadEndpoint::default()
        };
        let metadata = Metadata { labels: live.labels, ..Metadata::default() };
        let endpoint = Object { metadata, spec };
        let vouched = Vouched { container: live.container, handle: live.handle, endpoint };
        let had = self.vouched.insert(key.to_owned(), vouched);
        self.has_local_news = true;
        let is_stored = self.endpoints.contains_key(key) && !self.is_contradicted(key);
        let is_known = had.is_some() || is_stored;
        if is_known { NOTHING } else { BOTH }
    }

    /// The sandbox of a container is leaving: its endpoint stands for itself, unless a later
    /// sandbox of the same pod has it.
    pub fn withdraw(&mut self, key: &str, container: &str) -> Changed {
        if !self.is_vouched(key) || self.is_of_another(key, container) {
            return NOTHING;
        }
        self.vouched.remove(key);
        self.has_local_news = true;
        BOTH
    }

    /// Whether the journal vouches for a sandbox of another container under this key.
    pub fn is_of_another(&self, key: &str, container: &str) -> bool {
        self.vouched.get(key).is_some_and(|vouched| vouched.container != container)
    }

    /// Whether the journal vouches for the sandbox whose endpoint has this key.
    pub fn is_vouched(&self, key: &str) -> bool {
        self.vouched.contains_key(key)
    }

    /// Whether a key is one of those that live sandboxes rest on: their endpoints and handles, the
    /// blocks of their addresses, and this node's claims on these.
    pub fn carries_live(&self, path: &str) -> bool {
        let is_in = |cidr: Cidr| {
            let mut networks = self.vouched.values().flat_map(|it| &it.endpoint.spec.ip_networks);
            networks.any(|network| cidr.contains(network.address()))
        };
        match Key::parse(path) {
            Some(Key::Block { cidr }) => is_in(cidr),
            Some(Key::BlockAffinity(claim)) => claim.owner == self.node && is_in(claim.cidr),
            Some(Key::IpamHandle { id }) => {
                self.vouched.values().any(|it| it.handle.as_ref() == Some(&id))
            }
            Some(Key::Resource(_)) => self.vouched.contains_key(path),
            _ => false,
        }
    }

    /// Whether something is missing of the live sandbox whose endpoint has this key: the endpoint,
    /// the place of an address in its block, or this node's claim on a block of its own. Handles
    /// are not known here.
    pub fn lacks(&self, key: &str) -> bool {
        let Some(vouched) = self.vouched.get(key) else { return false };
        let is_stored = !self.is_unknown(key);
        let mut addresses = vouched.endpoint.spec.ip_networks.iter().map(|it| it.address());
        !is_stored
            || vouched.handle.as_ref().is_some_and(|handle| {
                addresses.any(|address| {
                    let held = self.holder(address).and_then(|holder| holder.handle.as_ref());
                    held != Some(handle) || self.is_unclaimed(address)
                })
            })
    }

    /// Whether the block of an address has no owner, or this node without its claim.
    fn is_unclaimed(&self, address: IpAddr) -> bool {
        let Some((cidr, block)) = self.block_of(address) else { return true };
        match block.owner() {
            Some((_, owner)) if owner != self.node => false,
            Some(_) => self.confirmed_owner(cidr).is_none(),
            None => true,
        }
    }

    /// Addresses of live sandboxes that others hold: their interfaces are closed.
    pub fn disputes(&self) -> Vec<Dispute> {
        let all = self.vouched.values();
        all.filter_map(|vouched| self.dispute(vouched)).collect()
    }

    fn dispute(&self, vouched: &Vouched) -> Option<Dispute> {
        let ours = vouched.handle.as_ref()?;
        let addresses = vouched.endpoint.spec.ip_networks.iter().map(|it| it.address());
        addresses.into_iter().find_map(|address| {
            let holder = self.holder(address)?;
            let handle = holder.handle.as_deref().unwrap_or_default();
            let handle = handle.split('\r').next().unwrap_or_default();
            if handle.is_empty() || handle == ours {
                return None;
            }
            // The node's own reserve makes room.
            if handle.strip_prefix("margay-reserve.") == Some(&self.node) {
                return None;
            }
            let node = holder.active_owner.get("node");
            let on = node.map_or(String::new(), |node| format!(" on {node}"));
            Some(Dispute {
                address,
                interface: vouched.endpoint.spec.interface_name.clone(),
                ours: ours.clone(),
                theirs: format!("{handle}{on}"),
            })
        })
    }

    /// Who holds an address by its block, unless it was let go.
    pub(crate) fn holder(&self, address: IpAddr) -> Option<&api::keys::ipam::Attribute> {
        let (_, block) = self.block_of(address)?;
        let holder = block.attribute(block.ordinal(address)?)?;
        holder.released_at.is_none().then_some(holder)
    }

    pub(crate) fn block_of(&self, address: IpAddr) -> Option<(Cidr, &Block)> {
        let lengths = self.block_lengths.keys();
        let lengths = lengths.filter(|(is_ipv4, _)| *is_ipv4 == address.is_ipv4());
        let mut cidrs = lengths.filter_map(|(_, len)| Some(Cidr::new(address, *len)?.masked()));
        cidrs.find_map(|cidr| Some((cidr, self.blocks.get(&cidr)?)))
    }

    /// Other endpoints with an address of a live sandbox.
    pub fn twins(&self) -> Vec<Twin> {
        let mut ours: BTreeMap<IpAddr, &String> = BTreeMap::new();
        for (key, vouched) in &self.vouched {
            let addresses = vouched.endpoint.spec.ip_networks.iter();
            ours.extend(addresses.map(|network| (network.address(), key)));
        }
        let here = self.endpoints.iter().flat_map(|(key, it)| {
            let networks = it.spec.ip_networks.iter();
            networks.map(move |network| (key.as_str(), network.address(), it.spec.node.as_str()))
        });
        let elsewhere = self.elsewhere.iter().flat_map(|(key, it)| {
            it.addresses.iter().map(move |network| (&**key, network.address(), &*it.node))
        });
        let all = here.chain(elsewhere).filter_map(|(key, address, node)| {
            let our = ours.get(&address).filter(|our| our.as_str() != key)?;
            let (ours, theirs) = (name(our), name(key));
            Some(Twin { address, ours, theirs, node: node.to_owned() })
        });
        all.collect()
    }

    /// Endpoints that name an interface of a live sandbox: they are not used.
    pub fn impostors(&self) -> Vec<Impostor> {
        let interfaces = self.vouched_interfaces();
        let claims = self.endpoints.iter().filter_map(|(key, it)| {
            let owner = interfaces.get(it.spec.interface_name.as_str())?;
            let interface = it.spec.interface_name.clone();
            let of = || Impostor { interface, endpoint: name(key), ours: name(owner) };
            (*owner != key).then(of)
        });
        claims.collect()
    }

    /// Whether the stored endpoint of a live sandbox has another node or another interface than the
    /// sandbox: it is not used.
    fn is_contradicted(&self, key: &str) -> bool {
        let Some(vouched) = self.vouched.get(key) else { return false };
        let ours = &vouched.endpoint.spec.interface_name;
        let stored = self.endpoints.get(key);
        self.elsewhere.contains_key(key) || stored.is_some_and(|it| it.spec.interface_name != *ours)
    }

    /// Endpoints of live sandboxes that are not used, because they say something else of them.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let all = self.vouched.iter().filter(|(key, _)| self.is_contradicted(key));
        let told = all.filter_map(|(key, vouched)| {
            let here = self.endpoints.get(key).map(|it| it.spec.interface_name.as_str());
            let elsewhere =
                || self.elsewhere.get(key.as_str()).map(|it| (&*it.node, &*it.interface));
            let (node, interface) = here.map(|it| (&*self.node, it)).or_else(elsewhere)?;
            Some(Contradiction {
                endpoint: name(key),
                node: node.to_owned(),
                interface: interface.to_owned(),
                ours: vouched.endpoint.spec.interface_name.clone(),
            })
        });
        told.collect()
    }

    /// The interface that the endpoint of a sandbox names, if there is one on this node.
    pub fn interface_of(&self, identity: &Identity) -> Option<String> {
        let is_its = |it: &&Object<WorkloadEndpoint>| {
            it.spec.container_id == identity.container && it.spec.endpoint == identity.interface
        };
        self.endpoints.values().find(is_its).map(|it| it.spec.interface_name.clone())
    }

    /// Whether the datastore has no endpoint with this key.
    pub fn is_unknown(&self, key: &str) -> bool {
        !self.endpoints.contains_key(key)
            && !self.elsewhere.contains_key(key)
            && !self.quarantined().contains_key(key)
    }

    /// The endpoint of this node with an interface.
    pub fn endpoint_with(&self, interface: &str) -> Option<LocalEndpoint> {
        let mut local = self.local_endpoints();
        let (key, _) = local.find(|(_, it)| it.spec.interface_name == interface)?;
        let mut words = key.rsplit('/');
        let (name, namespace) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(LocalEndpoint { namespace, name, is_live: self.is_vouched(key) })
    }

    /// The interfaces of live sandboxes, with the keys of their endpoints.
    fn vouched_interfaces(&self) -> BTreeMap<&str, &String> {
        let all = self.vouched.iter();
        all.map(|(key, it)| (it.endpoint.spec.interface_name.as_str(), key)).collect()
    }

    /// The endpoints of this node, by key: those in the datastore, and for live sandboxes without
    /// a usable one what the journal says. Those whose address somebody else has are not there.
    pub fn local_endpoints(&self) -> impl Iterator<Item = (&String, &Object<WorkloadEndpoint>)> {
        let interfaces = self.vouched_interfaces();
        let stored = self.endpoints.iter().filter(move |(key, it)| {
            let owner = interfaces.get(it.spec.interface_name.as_str());
            owner.is_none_or(|owner| owner == key) && !self.is_contradicted(key)
        });
        let kept = self
            .vouched
            .iter()
            .filter(|(key, _)| !self.endpoints.contains_key(*key) || self.is_contradicted(key));
        let kept = kept.map(|(key, vouched)| (key, &vouched.endpoint));
        stored.chain(kept).filter(|(key, _)| {
            let vouched = self.vouched.get(*key);
            vouched.is_none_or(|vouched| self.dispute(vouched).is_none())
        })
    }
}

/// The name of the endpoint with a key.
pub(crate) fn name(key: &str) -> String {
    key.rsplit('/').next().unwrap_or(key).to_owned()
}
