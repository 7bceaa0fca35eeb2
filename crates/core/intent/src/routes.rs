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

/// A block or address that has no way to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unroutable {
    /// Where to.
    pub destination: Cidr,
    /// The node that has it and no address of that family.
    pub node: String,
}

impl Inputs {
    /// The routes that this node should have, and what it cannot have a route to.
    pub fn routes(&self) -> (Routes, Vec<Unroutable>) {
        let mut routes = Routes::new();
        let mut unroutable = Vec::new();
        for (cidr, block) in &self.blocks {
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
                routes.insert(*network, Hop::Interface(interface.clone()));
            }
        }
        (routes, unroutable)
    }

    /// The node that has a block: both its claim and the block itself must say so.
    fn confirmed_owner(&self, cidr: Cidr) -> Option<&str> {
        let owner = self.owners.get(&cidr)?;
        let (_, named) = self.blocks.get(&cidr)?.owner()?;
        (named == owner).then_some(owner)
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
            None => unroutable.push(Unroutable { destination, node: node.to_owned() }),
        }
    }
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
