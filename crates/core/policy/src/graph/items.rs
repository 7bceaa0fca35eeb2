//! Endpoints and network sets of the whole cluster, as small as they can be kept: what each of them
//! contributes to the sets that it is in. Their labels are with the label index.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use net::Cidr;

use super::label_index::ItemId;
use super::slots::Slots;
use crate::input::{Host, NamedPort, NetworkSet, Workload};
use crate::packet::protocol_number;
use crate::scan::SetDefinition;
use crate::set::Member;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Workload,
    Host,
    NetworkSet,
}

/// All items.
#[derive(Debug, Default)]
pub(super) struct Items {
    workloads: BTreeMap<Box<str>, ItemId>,
    hosts: BTreeMap<Box<str>, ItemId>,
    network_sets: BTreeMap<Box<str>, ItemId>,
    items: Slots<Item>,
}

/// What an item contributes to sets.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Item {
    nets: Nets,
    ports: Box<[Port]>,
}

/// Networks; most items have one address.
#[derive(Debug, PartialEq)]
enum Nets {
    One(Cidr),
    Several(Box<[Cidr]>),
}

#[derive(Debug, PartialEq)]
struct Port {
    name: Box<str>,
    protocol: u8,
    number: u16,
}

impl Items {
    /// The number of an item.
    pub(super) fn find(&self, kind: Kind, key: &str) -> Option<ItemId> {
        self.of_kind(kind).get(key).copied()
    }

    /// Puts a new item.
    pub(super) fn insert(&mut self, kind: Kind, key: &str, item: Item) -> ItemId {
        let id = self.items.insert(item);
        self.of_kind_mut(kind).insert(key.into(), id);
        id
    }

    /// Puts an item in the place of another. Returns that one.
    pub(super) fn replace(&mut self, id: ItemId, item: Item) -> Item {
        std::mem::replace(&mut self.items[id], item)
    }

    /// Removes an item.
    pub(super) fn remove(&mut self, kind: Kind, key: &str) -> Option<(ItemId, Item)> {
        let id = self.of_kind_mut(kind).remove(key)?;
        Some((id, self.items.remove(id)))
    }

    /// What an item contributes.
    pub(super) fn get(&self, id: ItemId) -> &Item {
        &self.items[id]
    }

    fn of_kind(&self, kind: Kind) -> &BTreeMap<Box<str>, ItemId> {
        match kind {
            Kind::Workload => &self.workloads,
            Kind::Host => &self.hosts,
            Kind::NetworkSet => &self.network_sets,
        }
    }

    fn of_kind_mut(&mut self, kind: Kind) -> &mut BTreeMap<Box<str>, ItemId> {
        match kind {
            Kind::Workload => &mut self.workloads,
            Kind::Host => &mut self.hosts,
            Kind::NetworkSet => &mut self.network_sets,
        }
    }

    /// Whether nothing of all that came is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl Item {
    /// An endpoint is its addresses, whatever networks they are given in.
    pub(super) fn of_workload(workload: &Workload) -> Self {
        let addresses = workload.addresses.iter().map(|net| Cidr::host(net.network()));
        Self { nets: addresses.collect(), ports: ports(&workload.ports) }
    }

    /// See [`Self::of_workload`].
    pub(super) fn of_host(host: &Host) -> Self {
        let addresses = host.addresses.iter().map(|address| Cidr::host(*address));
        Self { nets: addresses.collect(), ports: ports(&host.ports) }
    }

    /// A network set is its networks.
    pub(super) fn of_network_set(set: &NetworkSet) -> Self {
        let nets = set.nets.iter().flat_map(|net| halved(*net));
        Self { nets: nets.collect(), ports: Box::default() }
    }

    /// What it contributes to a set that it is in.
    pub(super) fn members(&self, definition: &SetDefinition, mut each: impl FnMut(Member)) {
        match definition {
            SetDefinition::Selector(_) => {
                self.nets.as_slice().iter().for_each(|net| each(Member::Net(*net)));
            }
            SetDefinition::NamedPort { protocol, name, .. } => {
                let is_meant =
                    |port: &&Port| *port.name == **name && protocol.includes(port.protocol);
                for port in self.ports.iter().filter(is_meant) {
                    let (protocol, port) = (port.protocol, port.number);
                    for net in self.nets.as_slice() {
                        each(Member::Port { address: net.address(), protocol, port });
                    }
                }
            }
            SetDefinition::Service { .. } => {}
        }
    }
}

fn ports(ports: &[NamedPort]) -> Box<[Port]> {
    let known = ports.iter().filter_map(|port| {
        let protocol = protocol_number(&port.protocol)?;
        Some(Port { name: port.name.as_str().into(), protocol, number: port.port })
    });
    known.collect()
}

/// A network; one of all addresses as its two halves, because sets in the kernel have no place for
/// it.
fn halved(net: Cidr) -> impl Iterator<Item = Cidr> {
    let half_way: IpAddr = match net.is_ipv4() {
        true => Ipv4Addr::new(128, 0, 0, 0).into(),
        false => Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0).into(),
    };
    let parts = match net.prefix_len() {
        0 => [Cidr::new(net.network(), 1), Cidr::new(half_way, 1)],
        _ => [Some(net.masked()), None],
    };
    parts.into_iter().flatten()
}

impl Nets {
    fn as_slice(&self) -> &[Cidr] {
        match self {
            Self::One(net) => std::slice::from_ref(net),
            Self::Several(nets) => nets,
        }
    }
}

impl Default for Nets {
    fn default() -> Self {
        Self::Several(Box::default())
    }
}

impl FromIterator<Cidr> for Nets {
    fn from_iter<I: IntoIterator<Item = Cidr>>(nets: I) -> Self {
        let mut nets = nets.into_iter();
        match (nets.next(), nets.next()) {
            (Some(net), None) => Self::One(net),
            (first, second) => Self::Several(first.into_iter().chain(second).chain(nets).collect()),
        }
    }
}
