//! Sandboxes that live here and that no journal knows: Calico made them, or the journal was lost.
//!
//! An interface says who it is by its endpoint, or by its name and who holds addresses under it.
//! Every witness that speaks must say the same; one that contradicts leaves the interface a
//! stranger, and is named.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::keys::ipam::Attribute;
use model::resource::{Object, WorkloadEndpoint};
use net::Cidr;
use sandbox::claim::{CALICO_IPAM, endpoint_key};
use sandbox::identity::{Held, Identity, Workload};
use sandbox::life::{NetnsId, Origin, Phase, Record};
use sandbox::wiring::{self, Wiring};

use crate::join::{PLUGINS, workload_of};
use crate::live::name;
use crate::{InSync, Inputs};

/// Labels that every endpoint has: a record does not repeat them.
const USUAL_LABELS: [&str; 2] = ["projectcalico.org/namespace", "projectcalico.org/orchestrator"];

/// What runtimes call the interface inside, where nobody can look.
const USUAL_INTERFACE: &str = "eth0";

/// An interface of the host that no record of the journal has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stranger {
    /// Its name.
    pub interface: String,
    /// The sandbox that its alias names, if it does.
    pub named: Option<Identity>,
    /// What it leads to, if that can be found.
    pub inside: Option<Inside>,
}

/// The other end of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Its name there.
    pub interface: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// The MTU.
    pub mtu: u32,
    /// Its addresses, without those that every interface has.
    pub addresses: BTreeSet<IpAddr>,
    /// The namespace.
    pub netns: NetnsId,
    /// A path to it.
    pub path: String,
    /// How many processes are in it.
    pub n_processes: usize,
}

impl Stranger {
    /// Whether nobody is where it leads to. Of a place that cannot be found, nobody can tell.
    pub fn is_abandoned(&self) -> bool {
        self.inside.as_ref().is_some_and(|inside| inside.n_processes == 0)
    }
}

/// Somebody who holds addresses on this node.
#[derive(Debug)]
struct Holder {
    network: String,
    identity: Identity,
    workload: Workload,
    addresses: BTreeSet<IpAddr>,
}

/// What is known of a stranger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// It is the interface of this sandbox.
    Sandbox {
        /// As the journal should have had it.
        record: Box<Record>,
        /// How one can tell.
        evidence: String,
    },
    /// Nobody knows whose it is.
    Nobodys {
        /// Why not, in words.
        why: String,
        /// Whether somebody may use it all the same: the records name it, but contradict.
        is_claimed: bool,
    },
}

impl Inputs {
    /// Whose an interface is that is in no journal. `boot` is the present one.
    pub fn recognise(&self, _: InSync, stranger: &Stranger, boot: &str) -> Recognised {
        let local = self.endpoints.iter();
        let local = local.filter(|(_, it)| it.spec.interface_name == stranger.interface);
        let endpoints: Vec<(&String, &Object<WorkloadEndpoint>)> = local.collect();
        let found = match endpoints.as_slice() {
            [(key, endpoint)] => self.by_endpoint(stranger, key, endpoint, boot),
            [] => self.by_holder(stranger, boot),
            [(one, _), (other, _), ..] => {
                Err(format!("two endpoints name it, {} and {}", name(one), name(other)))
            }
        };
        match found {
            Ok((record, evidence)) => Recognised::Sandbox { record: Box::new(record), evidence },
            Err(why) => {
                let why = match &stranger.named {
                    Some(named) => format!("it was made for {named}; {why}"),
                    None => why,
                };
                let is_claimed =
                    !endpoints.is_empty() || !self.holders_called(&stranger.interface).is_empty();
                Recognised::Nobodys { why, is_claimed }
            }
        }
    }

    fn by_endpoint(
        &self,
        stranger: &Stranger,
        key: &str,
        endpoint: &Object<WorkloadEndpoint>,
        boot: &str,
    ) -> Result<(Record, String), String> {
        let (spec, name) = (&endpoint.spec, name(key));
        let identity =
            Identity { container: spec.container_id.clone(), interface: spec.endpoint.clone() };
        if identity.container.is_empty() || identity.interface.is_empty() {
            return Err(format!("its endpoint {name} names no container"));
        }
        if !PLUGINS.contains(&spec.orchestrator.as_str()) {
            return Err(format!("its endpoint {name} is {}'s", spec.orchestrator));
        }
        let workload = workload_of(key, spec);
        agrees(stranger, &identity)?;
        let addresses: Vec<IpAddr> = spec.ip_networks.iter().map(|it| it.address()).collect();
        if let Some(inside) = &stranger.inside
            && let Some(missing) = addresses.iter().find(|it| !inside.addresses.contains(it))
        {
            let has: Vec<String> = inside.addresses.iter().map(ToString::to_string).collect();
            let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
            let at = &inside.path;
            return Err(format!("its endpoint {name} has {missing}, inside there is {has} ({at})"));
        }
        let network = self.network_of(&identity, &addresses)?;
        if network.is_none() && stranger.inside.is_none() {
            return Err(format!("only its endpoint {name} says so: its other end is not found"));
        }
        let is_managed = network.is_some() || addresses.iter().any(|it| self.is_in_pool(*it));
        let network = network.or_else(|| match &workload {
            // Calico's plugin names the profile of a plain network after it.
            Workload::Plain => spec.profiles.first().cloned(),
            Workload::Pod { .. } => self.only_network(),
        });
        let labels = endpoint.metadata.labels.iter();
        let labels = labels.filter(|(label, _)| !USUAL_LABELS.contains(&label.as_str()));
        let mut record = self.record(stranger, identity, workload, boot)?;
        record.labels = labels.map(|(label, value)| (label.clone(), value.clone())).collect();
        record.profiles = Some(spec.profiles.clone());
        record.network = network.unwrap_or_default();
        let mac = spec.mac.as_ref().and_then(|mac| mac.bytes().try_into().ok());
        record.wiring.mac = mac.unwrap_or(record.wiring.mac);
        // What nobody holds can be claimed again only under the handle that it had.
        let is_claimable = is_managed && !record.network.is_empty();
        self.give(&mut record, &addresses, is_claimable);
        if endpoint_key(&record) != key {
            return Err(format!("its endpoint {name} is not named as its own fields say"));
        }
        Ok((record, format!("its endpoint {name} names it")))
    }

    /// Without an endpoint, the records of addresses say whose it is: by whom they are held, and
    /// how the interface of that one is called. What is inside only decides between sandboxes of
    /// one pod: whoever runs there can give itself any address.
    fn by_holder(&self, stranger: &Stranger, boot: &str) -> Result<(Record, String), String> {
        let no_endpoint = "no endpoint names it";
        let mut holders = self.holders_called(&stranger.interface);
        if let Some(inside) = stranger.inside.as_ref().filter(|_| holders.len() > 1) {
            holders.retain(|_, holder| holder.addresses.is_subset(&inside.addresses));
        }
        let mut holders = holders.into_iter();
        let (handle, holder) = match (holders.next(), holders.next()) {
            (Some(one), None) => one,
            (Some((one, _)), Some((other, _))) => {
                return Err(format!("{no_endpoint}, and it may be {one}'s or {other}'s"));
            }
            (None, _) => {
                return Err(format!("{no_endpoint}, and no address is held for such a one"));
            }
        };
        let Holder { network, identity, workload, addresses } = holder;
        let interface = stranger.inside.as_ref().map(|inside| inside.interface.clone());
        let identity = Identity { interface: interface.unwrap_or(identity.interface), ..identity };
        agrees(stranger, &identity)?;
        let of_namespace = format!("kns.{}", workload.namespace());
        let profile = match &workload {
            Workload::Pod { .. } if self.has_profile(&of_namespace) => of_namespace,
            _ => network.clone(),
        };
        let mut record = self.record(stranger, identity, workload, boot)?;
        record.network = network;
        record.profiles = Some(vec![profile]);
        let addresses: Vec<IpAddr> = addresses.into_iter().collect();
        self.give(&mut record, &addresses, true);
        let held: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        Ok((record, format!("{handle} holds {} here, and is called so", held.join(", "))))
    }

    /// Who holds addresses on this node and has an interface of this name, by handle.
    fn holders_called(&self, interface: &str) -> BTreeMap<String, Holder> {
        let mut holders: BTreeMap<String, Holder> = BTreeMap::new();
        for block in self.blocks.values() {
            for ordinal in 0..block.allocations.len() {
                let (Some(held), Some(address)) =
                    (block.attribute(ordinal), block.address(ordinal))
                else {
                    continue;
                };
                let Some(holder) = self.holder_called(held, interface) else { continue };
                let handle = held.handle.clone().unwrap_or_default();
                holders.entry(handle).or_insert(holder).addresses.insert(address);
            }
        }
        holders
    }

    fn holder_called(&self, held: &Attribute, interface: &str) -> Option<Holder> {
        let part = |name: &str| held.active_owner.get(name).cloned();
        let is_here = held.released_at.is_none() && part(Attribute::NODE)? == self.node;
        let (network, container) = held.handle.as_deref()?.rsplit_once('.').filter(|_| is_here)?;
        let identity =
            Identity { container: container.to_owned(), interface: USUAL_INTERFACE.to_owned() };
        let workload = match (part("namespace"), part("pod")) {
            (Some(namespace), Some(name)) => Workload::Pod { namespace, name },
            _ => Workload::Plain,
        };
        let is_called = workload.host_interface(&identity) == interface
            || identity.spare_host_interface() == interface;
        let (network, addresses) = (network.to_owned(), BTreeSet::new());
        is_called.then_some(Holder { network, identity, workload, addresses })
    }

    /// The network whose handle holds addresses of a container; none if nobody does. Whatever
    /// somebody else holds is a dispute that only a person can decide.
    fn network_of(
        &self,
        identity: &Identity,
        addresses: &[IpAddr],
    ) -> Result<Option<String>, String> {
        let mut network = None;
        for address in addresses {
            let Some(holder) = self.holder(*address) else { continue };
            let handle = holder.handle.as_deref().unwrap_or_default();
            match handle.strip_suffix(&identity.container).and_then(|it| it.strip_suffix('.')) {
                Some(name) if network.as_deref().is_none_or(|known| known == name) => {
                    network = Some(name.to_owned());
                }
                _ => {
                    let container = &identity.container;
                    return Err(format!("{address} of container {container} is held by {handle}"));
                }
            }
        }
        Ok(network)
    }

    /// Whether an address is of a pool, and so managed by Calico's rules.
    fn is_in_pool(&self, address: IpAddr) -> bool {
        self.pools.values().any(|pool| pool.cidr.contains(address))
    }

    /// The network of this node's sandboxes, if their handles name one only.
    fn only_network(&self) -> Option<String> {
        let networks = self.endpoints.values().filter_map(|it| {
            let address = it.spec.ip_networks.first()?.address();
            let handle = self.holder(address)?.handle.as_deref()?;
            handle.strip_suffix(&it.spec.container_id)?.strip_suffix('.')
        });
        let networks: BTreeSet<&str> = networks.collect();
        networks.first().filter(|_| networks.len() == 1).map(|it| (*it).to_owned())
    }

    /// A sandbox that is up, as far as its interface tells.
    fn record(
        &self,
        stranger: &Stranger,
        identity: Identity,
        workload: Workload,
        boot: &str,
    ) -> Result<Record, String> {
        let inside = stranger.inside.as_ref();
        let origin = Origin {
            identity,
            workload,
            network: String::new(),
            node: self.node.clone(),
            boot: boot.to_owned(),
            netns: inside.map_or(NetnsId { device: 0, inode: 0 }, |it| it.netns),
            netns_path: inside.map(|it| it.path.clone()).unwrap_or_default(),
            ipam: String::new(),
        };
        let record = Record::of(origin, Phase::Ready).map_err(|failure| failure.message)?;
        let wiring = Wiring {
            host_interface: stranger.interface.clone(),
            mac: inside.map_or([0; 6], |it| it.mac),
            mtu: inside.map(|it| it.mtu),
            routes: wiring::default_routes(),
            ..record.wiring
        };
        Ok(Record { wiring, ..record })
    }

    /// Writes addresses into a record, as the blocks have them.
    fn give(&self, record: &mut Record, addresses: &[IpAddr], is_managed: bool) {
        let held = addresses.iter().map(|address| {
            let block = self.block_of(*address).filter(|_| is_managed);
            let sequence = block.and_then(|(_, it)| it.sequence_of(it.ordinal(*address)?));
            let length = block.map(|(cidr, _)| cidr.prefix_len());
            let network = length.and_then(|length| Cidr::new(*address, length));
            Held { network: network.unwrap_or_else(|| Cidr::host(*address)), sequence }
        });
        record.addresses = held.collect();
        record.wiring.addresses = addresses.to_vec();
        if is_managed {
            record.ipam = CALICO_IPAM.to_owned();
        }
    }
}

/// The alias of an interface and its other end, where they are known, must not contradict.
fn agrees(stranger: &Stranger, identity: &Identity) -> Result<(), String> {
    if stranger.named.as_ref().is_some_and(|named| named != identity) {
        return Err(format!("the datastore has it for {identity}"));
    }
    match stranger.inside.as_ref().filter(|it| it.interface != identity.interface) {
        Some(inside) => Err(format!(
            "it leads to {} of a container, and the datastore has it for {identity}",
            inside.interface
        )),
        None => Ok(()),
    }
}
