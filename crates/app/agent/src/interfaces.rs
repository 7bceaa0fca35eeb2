//! The interfaces of this host: which of its endpoints each has depends on names and addresses,
//! which anybody may change at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use intent::Inputs;
use kernel::{Event, LinkIndex, LinkName, Route, TEMPORARY_NAME_PREFIX};
use net::Cidr;
use policy::intent::{Host, TierInForce};
use policy::interfaces::{Claims, Interfaces, claims, endpoint_of};
use sandbox::identity::HOST_INTERFACE_PREFIX;

use crate::finding::Finding;
use crate::node::{Dataplane, Node};

/// The interfaces of this host with their addresses, each with the network that it is in; one with
/// a default route has the network of everything as well.
pub(crate) type Networks = BTreeMap<String, BTreeSet<Cidr>>;

/// The same without the networks.
pub(crate) fn addresses(networks: &Networks) -> Interfaces {
    let of = |nets: &BTreeSet<Cidr>| {
        nets.iter().map(|net| net.address()).filter(|it| !it.is_unspecified()).collect()
    };
    networks.iter().map(|(name, nets)| (name.clone(), of(nets))).collect()
}

/// Whether an interface is the host's end of a sandbox, or about to be.
pub(crate) fn is_of_sandbox(name: &LinkName) -> bool {
    [HOST_INTERFACE_PREFIX, TEMPORARY_NAME_PREFIX].iter().any(|it| name.as_str().starts_with(it))
}

/// Whether a route leads everywhere.
pub(crate) fn is_default(route: &Route) -> bool {
    route.destination.prefix_len() == 0
}

/// Tells what happens to interfaces of the host from what happens to those of sandboxes: an address
/// comes without the name of its interface.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Those of sandboxes, as far as was told.
    sandboxes: BTreeSet<LinkIndex>,
}

impl Watched {
    /// Whether an event may give an interface another endpoint of the host, or packets another
    /// interface.
    pub(crate) fn concerns_hosts(&mut self, event: &Event) -> bool {
        match event {
            Event::Link(link) if is_of_sandbox(&link.name) => {
                self.sandboxes.insert(link.index);
                false
            }
            Event::Link(link) => {
                self.sandboxes.remove(&link.index);
                true
            }
            Event::LinkGone(link) => {
                self.sandboxes.remove(&link.index);
                !is_of_sandbox(&link.name)
            }
            Event::Address(it) | Event::AddressGone(it) => !self.sandboxes.contains(&it.link),
            // Nodes tell where it leads.
            Event::Route(route) | Event::RouteGone(route) => is_default(route),
            Event::Lost => {
                self.sandboxes.clear();
                true
            }
            _ => false,
        }
    }
}

impl Node {
    /// Interfaces of this host have changed. Whether the filter has to be compared again: only
    /// endpoints of the host go by them.
    pub(crate) fn doubts_interfaces(&self) -> bool {
        let mut dataplane = self.dataplane();
        let has_hosts = |inputs: &Inputs| !inputs.policy().hosts.is_empty();
        let recalled = dataplane.recalled.as_ref();
        let matters =
            has_hosts(&dataplane.inputs) || recalled.is_some_and(|it| has_hosts(&it.inputs));
        dataplane.changed.filter |= matters;
        matters
    }
}

impl Dataplane {
    /// Reads the interfaces of this host, and keeps them in mind.
    pub(crate) fn look_at_interfaces(&mut self) -> Result<Interfaces, kernel::Error> {
        let networks = self.routes.networks()?;
        let interfaces = addresses(&networks);
        self.networks = Some(networks);
        Ok(interfaces)
    }

    fn claims<T>(&self, ask: impl FnOnce(&Claims<'_>, &Interfaces) -> T) -> T {
        let interfaces = self.networks.as_ref().map(addresses).unwrap_or_default();
        let prefixes = &self.filter.settings().interface_prefixes;
        ask(&claims(&self.inputs.policy().hosts, &interfaces, prefixes), &interfaces)
    }

    /// The tiers by which the host judges packets of an address, where that can be told.
    pub(crate) fn host_tiers(&self, address: IpAddr) -> &[TierInForce] {
        if let Some(host) = self.host_at(address) {
            return &host.tiers;
        }
        // What is passed on may be anybody's: only one endpoint can be told from others.
        let hosts = self.inputs.policy().hosts.values();
        let mut judges = hosts.filter(|it| !it.forward.is_empty());
        match (judges.next(), judges.next()) {
            (Some(only), None) => &only.forward,
            _ => &[],
        }
    }

    /// The endpoint of the interface that has an address.
    fn host_at(&self, address: IpAddr) -> Option<&Host> {
        let key = self.claims(|claims, interfaces| {
            let mut with_it = interfaces.iter().filter(|(_, own)| own.contains(&address));
            let (name, _) = with_it.next()?;
            endpoint_of(claims, name).cloned()
        });
        self.inputs.policy().hosts.get(&key?)
    }

    /// Interfaces that several endpoints claim.
    pub(crate) fn rival_claims(&self) -> Vec<Finding> {
        self.claims(|claims, _| {
            let several = claims.iter().filter(|(_, keys)| keys.len() > 1);
            several.map(|(name, keys)| Finding::rival_claims(name, keys)).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use kernel::{Address, Link, Scope};

    use super::*;

    fn link(index: u32, name: &str) -> Link {
        Link {
            index: LinkIndex(index),
            name: LinkName::new(name).unwrap(),
            kind: None,
            alias: None,
            mac: None,
            mtu: 1500,
            is_up: true,
            is_running: true,
            is_loopback: false,
            master: None,
            peer: None,
            peer_netns_id: None,
            n_tx_queues: 1,
        }
    }

    #[test]
    fn what_happens_to_sandboxes_does_not_concern_endpoints_of_the_host() {
        let mut watched = Watched::default();
        let address = |index| {
            Event::Address(Address {
                link: LinkIndex(index),
                address: "fe80::1/64".parse().unwrap(),
                scope: Scope::Link,
                has_no_dad: false,
                has_no_prefix_route: false,
                is_tentative: false,
                is_duplicate: false,
            })
        };
        assert!(!watched.concerns_hosts(&Event::Link(link(7, "cali1"))));
        assert!(!watched.concerns_hosts(&address(7)));
        assert!(watched.concerns_hosts(&address(8)), "nobody said whose it is");
        assert!(!watched.concerns_hosts(&Event::LinkGone(link(7, "cali1"))));
        assert!(watched.concerns_hosts(&Event::Link(link(7, "late0"))));
        assert!(watched.concerns_hosts(&address(7)), "the number has another owner now");
        assert!(watched.concerns_hosts(&Event::LinkGone(link(7, "late0"))));
        watched.concerns_hosts(&Event::Link(link(9, "cali2")));
        assert!(watched.concerns_hosts(&Event::Lost));
        assert!(watched.concerns_hosts(&address(9)), "something may have been missed");
    }
}
