//! Where packets for addresses of the pools go.

use std::collections::BTreeMap;
use std::net::IpAddr;

use net::Cidr;

use crate::Inputs;

/// The next step of a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// Out of this interface, to a sandbox of ours.
    Interface(String),
    /// To another node.
    Node(IpAddr),
    /// Nowhere: an address of one of our blocks that nobody has. Without this the packet would
    /// follow the default route, and come back.
    Blackhole,
}

/// All routes, by destination.
pub type Routes = BTreeMap<Cidr, Hop>;

/// A block or address that gets no route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unroutable {
    /// Where to.
    pub destination: Cidr,
    /// Why not.
    pub why: Obstacle,
}

/// Why there is no route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The node that has it has no address of that family.
    NoAddress(String),
    /// It holds the address of this node: whoever routed it would cut the node off, perhaps from
    /// the datastore that could put it right.
    HoldsNode(String),
    /// Such addresses are nobody's.
    NotUnicast,
}

impl Inputs {
    /// The routes that this node should have, and what it cannot have a route to.
    pub fn routes(&self) -> (Routes, Vec<Unroutable>) {
        let mut routes = Routes::new();
        let mut unroutable = Vec::new();
        let nodes = self.node_addresses();
        for (cidr, block) in &self.blocks {
            if let Some(why) = obstacle(*cidr, &nodes) {
                unroutable.push(Unroutable { destination: *cidr, why });
                continue;
            }
            if let Some(owner) = self.confirmed_owner(*cidr) {
                if owner == self.node {
                    routes.insert(*cidr, Hop::Blackhole);
                } else {
                    self.via(owner, *cidr, &mut routes, &mut unroutable);
                }
            }
            for borrowed in block.foreign_allocations() {
                if !borrowed.node.is_empty() && borrowed.node != self.node {
                    let single = Cidr::host(borrowed.address);
                    self.via(&borrowed.node, single, &mut routes, &mut unroutable);
                }
            }
        }
        for (_, endpoint) in self.local_endpoints() {
            let interface = &endpoint.spec.interface_name;
            for network in &endpoint.spec.ip_networks {
                match obstacle(*network, &nodes) {
                    None => drop(routes.insert(*network, Hop::Interface(interface.clone()))),
                    Some(why) => unroutable.push(Unroutable { destination: *network, why }),
                }
            }
        }
        (routes, unroutable)
    }

    /// The node that has a block: both its claim and the block itself must say so.
    pub(crate) fn confirmed_owner(&self, cidr: Cidr) -> Option<&str> {
        let (_, named) = self.blocks.get(&cidr)?.owner()?;
        self.owners.get(&cidr)?.get(named).map(String::as_str)
    }

    /// The addresses by which nodes are reached.
    fn node_addresses(&self) -> BTreeMap<IpAddr, &str> {
        let each = self.nodes.iter();
        let each =
            each.flat_map(|(name, it)| it.v4.into_iter().chain(it.v6).map(move |a| (a, name)));
        each.map(|(address, name)| (address, name.as_str())).collect()
    }

    fn via(
        &self,
        node: &str,
        destination: Cidr,
        routes: &mut Routes,
        unroutable: &mut Vec<Unroutable>,
    ) {
        let address = self.nodes.get(node).and_then(|a| a.of_family(destination.is_ipv4()));
        match address {
            Some(address) => {
                routes.insert(destination, Hop::Node(address));
            }
            None => {
                let why = Obstacle::NoAddress(node.to_owned());
                unroutable.push(Unroutable { destination, why });
            }
        }
    }
}

/// What stands against a route to here.
fn obstacle(destination: Cidr, nodes: &BTreeMap<IpAddr, &str>) -> Option<Obstacle> {
    let first = destination.masked().address();
    let is_nobodys = match first {
        IpAddr::V4(it) => {
            it.is_loopback() || it.is_multicast() || it.octets()[0] == 0 || it.is_broadcast()
        }
        IpAddr::V6(it) => {
            it.is_loopback()
                || it.is_multicast()
                || it.is_unspecified()
                || it.is_unicast_link_local()
        }
    };
    if is_nobodys {
        return Some(Obstacle::NotUnicast);
    }
    let (address, node) = nodes.range(first..).next()?;
    destination.contains(*address).then(|| Obstacle::HoldsNode((*node).to_owned()))
}

/// What to change so that the kernel's routes of ours become the wanted ones: first what to put
/// in place, then what to remove, so that no packet finds a gap in between.
pub fn plan(wanted: &Routes, present: &Routes) -> (Routes, Vec<Cidr>) {
    let put = wanted
        .iter()
        .filter(|(destination, hop)| present.get(destination) != Some(hop))
        .map(|(destination, hop)| (*destination, hop.clone()))
        .collect();
    let remove =
        present.keys().filter(|destination| !wanted.contains_key(destination)).copied().collect();
    (put, remove)
}
