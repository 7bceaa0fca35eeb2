//! Which endpoints of a host are for which of its interfaces.
//!
//! An interface has one endpoint: the first by name that names it or expects one of its addresses,
//! and what is left of a bad one only where no other is for it. The one for `*` is for all others.
//! What goes through `lo` is never judged, and interfaces of workloads have endpoints of another
//! kind.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::input::Key;
use crate::intent::{ALL_INTERFACES, Host};

const LOOPBACK: &str = "lo";
/// No interface has a longer name, so that one that an endpoint names never comes.
const NAME_LEN_MAX: usize = 15;

/// The interfaces of a host with their addresses, those of workloads left out.
pub type Interfaces = BTreeMap<String, BTreeSet<IpAddr>>;

/// The endpoints that claim each interface, in order: the first is in force. Those that claim all
/// others are under `*`.
pub type Claims<'a> = BTreeMap<&'a str, Vec<&'a Key>>;

/// Who claims what. An interface that an endpoint names is claimed before it is there, so that it
/// is closed from its first packet on. `of_workloads` is how names of workloads' interfaces begin.
pub fn claims<'a>(
    hosts: &'a BTreeMap<Key, Host>,
    interfaces: &'a Interfaces,
    of_workloads: &[String],
) -> Claims<'a> {
    let mut claims = Claims::new();
    let is_of_workload =
        |name: &str| of_workloads.iter().any(|prefix| name.starts_with(prefix.as_str()));
    let is_judged = |name: &str| {
        let can_be = !name.is_empty() && name.len() <= NAME_LEN_MAX;
        can_be && name != LOOPBACK && !is_of_workload(name)
    };
    let mut in_order: Vec<(&Key, &Host)> = hosts.iter().collect();
    in_order.sort_by_key(|(_, host)| host.is_rest);
    for (key, host) in in_order {
        let has_address = |(_, addresses): &(&String, &BTreeSet<IpAddr>)| {
            host.addresses.iter().any(|address| addresses.contains(address))
        };
        let claimed: Vec<&str> = match host.interface.as_str() {
            "" => interfaces.iter().filter(has_address).map(|(name, _)| name.as_str()).collect(),
            name => vec![name],
        };
        for name in claimed.into_iter().filter(|name| is_judged(name)) {
            claims.entry(name).or_default().push(key);
        }
    }
    claims
}

/// The endpoint of an interface; none if nobody judges what goes through it.
pub fn endpoint_of<'a>(claims: &Claims<'a>, interface: &str) -> Option<&'a Key> {
    let own = claims.get(interface);
    let rest = claims.get(ALL_INTERFACES).filter(|_| interface != LOOPBACK);
    own.or(rest)?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(interface: &str, addresses: &[[u8; 4]]) -> Host {
        let addresses = addresses.iter().copied().map(IpAddr::from).collect();
        Host { interface: interface.to_owned(), addresses, ..Host::default() }
    }

    #[test]
    fn the_first_by_name_is_in_force_and_what_is_named_need_not_be_there() {
        let hosts: BTreeMap<Key, Host> = [
            ("a", host("eth0", &[])),
            ("b", host("", &[[192, 0, 2, 1]])),
            ("c", host("eth9", &[])),
            ("d", host("*", &[])),
            ("e", host("*", &[])),
            ("f", host("", &[[127, 0, 0, 1]])),
            ("g", host("cali1", &[])),
            ("h", host("", &[[192, 0, 2, 99]])),
            ("i", host("longer-than-names", &[])),
        ]
        .map(|(key, host)| (key.to_owned(), host))
        .into();
        let at = |address: [u8; 4]| [IpAddr::from(address)].into();
        let interfaces = [
            ("eth0".to_owned(), at([192, 0, 2, 1])),
            ("eth1".to_owned(), at([192, 0, 2, 2])),
            ("lo".to_owned(), at([127, 0, 0, 1])),
        ]
        .into();
        let claims = claims(&hosts, &interfaces, &["cali".to_owned()]);
        let found: Vec<(&str, Vec<&str>)> = claims
            .iter()
            .map(|(name, keys)| (*name, keys.iter().map(|key| key.as_str()).collect()))
            .collect();
        let wanted: [(&str, Vec<&str>); 3] =
            [("*", vec!["d", "e"]), ("eth0", vec!["a", "b"]), ("eth9", vec!["c"])];
        assert_eq!(found, wanted);
        let of = |name: &str| endpoint_of(&claims, name).map(String::as_str);
        assert_eq!([of("eth0"), of("eth1"), of("lo")], [Some("a"), Some("d"), None]);
    }
}
