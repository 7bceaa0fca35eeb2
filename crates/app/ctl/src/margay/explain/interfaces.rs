//! Which endpoint of a host a packet meets. That depends on the interface that it passes, and the
//! interfaces of a host only its agent knows, which tells of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use net::Cidr;
use policy::input::Key;
use policy::interfaces::{Claims, Interfaces, claims, endpoint_of};

use super::world::Node;

const LOOPBACK: &str = "lo";
/// Stands for an interface that no endpoint names.
const ANY_OTHER: &str = "";

/// The endpoints that a packet may meet at one place, with none among them if there may be none.
pub(super) type Possible = BTreeSet<Option<Key>>;

/// The interfaces of a host with their addresses, each with its network; one with a default route
/// has the network of everything as well.
pub(super) type Networks = BTreeMap<String, BTreeSet<Cidr>>;

impl Node {
    /// Whether its agent told of its interfaces, or they do not matter.
    pub(super) fn knows_interfaces(&self) -> bool {
        self.networks.is_some()
    }

    /// Those of the interface by which it talks to an address, with its own if that is known.
    pub(super) fn possible_towards(&self, own: Option<IpAddr>, far: IpAddr) -> Possible {
        self.ask(|claims| match &self.networks {
            Some(networks) => {
                let passed = passed(networks, own, far).into_iter();
                passed.map(|name| endpoint_of(claims, name).cloned()).collect()
            }
            None => {
                let named = claims.values().filter_map(|keys| keys.first().copied());
                let hosts = self.intent().hosts.iter();
                let by_address = hosts.filter(|(_, it)| it.interface.is_empty());
                let all = named.chain(by_address.map(|(key, _)| key)).cloned().map(Some);
                all.chain([endpoint_of(claims, ANY_OTHER).cloned()]).collect()
            }
        })
    }

    /// That of the interfaces of its workloads.
    pub(super) fn possible_at_workloads(&self) -> Possible {
        self.ask(|claims| [endpoint_of(claims, ANY_OTHER).cloned()].into())
    }

    fn ask<T>(&self, question: impl FnOnce(&Claims<'_>) -> T) -> T {
        let addresses = |nets: &BTreeSet<Cidr>| {
            nets.iter().map(|net| net.address()).filter(|it| !it.is_unspecified()).collect()
        };
        let told = self.networks.iter().flatten();
        let interfaces: Interfaces =
            told.map(|(name, nets)| (name.clone(), addresses(nets))).collect();
        let prefixes = &self.settings.interface_prefixes;
        question(&claims(&self.intent().hosts, &interfaces, prefixes))
    }
}

/// The interfaces that a packet may pass: the one with the host's own address, or else the one in
/// whose network the other end is; any of them if neither is known.
fn passed(networks: &Networks, own: Option<IpAddr>, far: IpAddr) -> Vec<&str> {
    let all: Vec<(&str, Cidr)> = networks
        .iter()
        .filter(|(name, _)| *name != LOOPBACK)
        .flat_map(|(name, nets)| nets.iter().map(move |net| (name.as_str(), *net)))
        .collect();
    let with_own = all.iter().find(|(_, net)| Some(net.address()) == own);
    let towards = all.iter().filter(|(_, net)| net.masked().contains(far));
    let nearest = towards.clone().map(|(_, net)| net.prefix_len()).max();
    let nearest = towards.filter(|(_, net)| Some(net.prefix_len()) == nearest);
    let found: Vec<&str> = match with_own {
        Some((name, _)) => vec![name],
        None => nearest.map(|(name, _)| *name).collect(),
    };
    let is_other = |name: &&String| *name != LOOPBACK;
    match found.is_empty() {
        true => networks.keys().filter(is_other).map(String::as_str).collect(),
        false => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_network_leads_to_the_other_end() {
        let nets = |list: &[&str]| list.iter().map(|net| net.parse().unwrap()).collect();
        let networks: Networks = [
            ("eth0", nets(&["172.30.0.11/24", "0.0.0.0/0"])),
            ("eth1", nets(&["10.0.0.11/24", "fd00::11/64"])),
            ("eth2", nets(&[])),
            ("lo", nets(&["127.0.0.1/8", "192.0.2.1/32"])),
        ]
        .map(|(name, nets)| (name.to_owned(), nets))
        .into();
        let check = |own: &str, far: &str, wanted: &[&str]| {
            let own = net::parse_ip(own);
            assert_eq!(passed(&networks, own, far.parse().unwrap()), wanted, "{own:?} {far}");
        };
        check("172.30.0.11", "10.0.0.12", &["eth0"]);
        check("", "10.0.0.12", &["eth1"]);
        check("", "198.51.100.7", &["eth0"]);
        check("192.0.2.1", "10.0.0.12", &["eth1"]);
        check("", "fd00::12", &["eth1"]);
        check("", "fd01::12", &["eth0", "eth1", "eth2"]);
    }
}
