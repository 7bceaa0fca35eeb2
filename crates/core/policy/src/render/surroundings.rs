//! The sets of networks that are around the endpoints.

use std::collections::BTreeSet;

use ipnet::IpNet;
use net::Cidr;
use nft::{DataType, Element, Key, Set, merged};

use super::draft::Draft;
use super::plan::In;
use super::settings::{Settings, Surroundings};

const NAMES: [&str; 4] = ["pools", "nat", "hosts", "services"];

fn set(name: &str, is_ipv4: bool) -> Set {
    let (number, family) = if is_ipv4 { (4, DataType::Ipv4) } else { (6, DataType::Ipv6) };
    Set::new(&format!("{name}{number}"), &[family]).with_ranges()
}

/// The sets.
pub(super) fn sets() -> impl Iterator<Item = (In, Set)> {
    NAMES.into_iter().flat_map(|name| [true, false].map(|is_ipv4| (In::Inet, set(name, is_ipv4))))
}

impl Surroundings {
    fn ranges(&self, name: &str, is_ipv4: bool, settings: &Settings) -> BTreeSet<Key> {
        let hosts = || {
            let known = self.host_addresses.iter().map(|address| Cidr::host(*address));
            known.chain(settings.external_nodes.iter().map(|it| it.masked())).collect()
        };
        let nets: Vec<Cidr> = match name {
            "pools" => self.pools.iter().copied().collect(),
            "nat" => self.nat_outgoing.iter().copied().collect(),
            "hosts" => hosts(),
            _ => self.service_networks.iter().copied().collect(),
        };
        let of_family = nets.into_iter().filter(|net| net.is_ipv4() == is_ipv4);
        merged(of_family.map(IpNet::from)).into_iter().collect()
    }
}

/// What is in each of the sets, by its name.
pub(super) fn elements(
    around: &Surroundings,
    settings: &Settings,
) -> impl Iterator<Item = (String, Element)> {
    let all = NAMES.into_iter().flat_map(|name| [(name, true), (name, false)]);
    all.flat_map(|(name, is_ipv4)| {
        let set = set(name, is_ipv4).name;
        let keys = around.ranges(name, is_ipv4, settings).into_iter();
        keys.map(move |key| (set.clone(), Element::member(key)))
    })
}

/// Changes the sets where the surroundings have changed.
pub(super) fn replace(before: &Surroundings, after: &Surroundings, draft: &mut Draft<'_>) {
    for name in NAMES {
        for is_ipv4 in [true, false] {
            let ranges = |it: &Surroundings| it.ranges(name, is_ipv4, draft.settings);
            let old = if draft.plan.is_anew { BTreeSet::new() } else { ranges(before) };
            let new = ranges(after);
            let set = set(name, is_ipv4);
            for key in old.difference(&new) {
                draft.plan.change(In::Inet, &set, Element::member(key.clone()), false);
            }
            for key in new.difference(&old) {
                draft.plan.change(In::Inet, &set, Element::member(key.clone()), true);
            }
        }
    }
}
