//! Takes over sandboxes that live here without a record: Calico made them, or the journal was lost.
//!
//! Whose an interface is, [`intent`] says. Nothing of it is touched but its alias; the journal has
//! it from then on, and with that its upkeep and its end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use intent::{Inside, Recognised, Stranger};
use kernel::{Link, LinkChange, LinkName, Netlink, Netns, Operation, VisibleNetns};
use sandbox::claim::endpoint_key;
use sandbox::failure::Failure;
use sandbox::identity::{HOST_INTERFACE_PREFIX, Identity};
use sandbox::life::{Record, Step};

use crate::node::Node;
use crate::sandboxes::netns_id;
use crate::supervisor::say;
use crate::{notes, wire};

/// The namespaces of this host, by the numbers that the host's own knows them by.
type Spaces = BTreeMap<u32, (Netns, VisibleNetns)>;

impl Node {
    /// Interfaces like those of sandboxes that no record of the journal has.
    pub(crate) fn strangers(&self) -> kernel::Result<Vec<Stranger>> {
        let mut host = Netlink::in_netns(&self.here)?;
        let mut links = host.links()?;
        links.retain(|link| {
            let name = link.name.as_str();
            let owner = link.alias.as_deref().and_then(Identity::from_alias);
            wire::is_veth(link)
                && name.starts_with(HOST_INTERFACE_PREFIX)
                && owner.is_none_or(|owner| self.journal.get(&owner).is_none())
                && !self.motions.contains(name)
        });
        if links.is_empty() {
            return Ok(Vec::new());
        }
        let spaces = spaces(&mut host, &self.here);
        let seen = links.iter().map(|link| Stranger {
            interface: link.name.to_string(),
            named: link.alias.as_deref().and_then(Identity::from_alias),
            inside: inside(link, &spaces),
        });
        Ok(seen.collect())
    }

    /// Before a sandbox is deleted that no journal has: whether the interface that it may have had
    /// goes with it. It may be a later one's of the same pod, or another one's of the same
    /// container: whoever is recognised is taken over. Whoever calls has its turn.
    pub(crate) fn meet(&self, identity: &Identity, interface: &str, netns: Option<&Netns>) -> bool {
        let (Some(proof), Ok(strangers)) = (self.in_sync_proof(), self.strangers()) else {
            return false;
        };
        let Some(stranger) = strangers.iter().find(|it| it.interface == interface) else {
            return false;
        };
        let recognised = self.dataplane().inputs.recognise(proof, stranger, &self.boot);
        match (recognised, &stranger.inside) {
            (Recognised::Sandbox { record, evidence }, _) => {
                if let Err(failure) = self.take_over(&record, &evidence) {
                    say(&format!("{interface}: {failure}"));
                }
                record.identity == *identity
            }
            // The runtime has named the very place that it leads to.
            (Recognised::Nobodys { .. }, Some(inside)) => {
                inside.interface == identity.interface
                    && netns.map(netns_id) == Some(inside.netns)
                    && self.name_interface(identity, interface).unwrap_or(false)
            }
            (Recognised::Nobodys { .. }, None) => false,
        }
    }

    /// Writes the name of a sandbox onto its interface again, should somebody have wiped it off:
    /// one without a name that leads to its namespace is its own.
    pub(crate) fn rename(&self, record: &Record) {
        let interface = &record.wiring.host_interface;
        let look = || -> kernel::Result<Option<Inside>> {
            let mut host = Netlink::in_netns(&self.here)?;
            let link = host.link_by_name(&LinkName::new(interface)?)?;
            let nameless = link.filter(|link| link.alias.is_none() && wire::is_veth(link));
            Ok(nameless.and_then(|link| inside(&link, &spaces(&mut host, &self.here))))
        };
        let is_its = look().ok().flatten().is_some_and(|inside| {
            inside.netns == record.netns && inside.interface == record.identity.interface
        });
        if is_its && let Err(error) = self.name_interface(&record.identity, interface) {
            say(&format!("{interface}: {error}"));
        }
    }

    /// Addresses that are inside of interfaces which no record has.
    pub(crate) fn addresses_of_strangers(&self) -> BTreeSet<IpAddr> {
        let strangers = self.strangers().unwrap_or_default();
        let inside = strangers.into_iter().filter_map(|stranger| stranger.inside);
        inside.flat_map(|inside| inside.addresses).collect()
    }

    /// Takes a sandbox over that lives; false if somebody was faster.
    pub(crate) fn adopt(&self, record: &Record, evidence: &str) -> Result<bool, Failure> {
        let turn = self.turns.named(record.wiring.host_interface.clone());
        let _turn = turn.take();
        self.take_over(record, evidence)
    }

    /// The same for whoever has the turn.
    fn take_over(&self, record: &Record, evidence: &str) -> Result<bool, Failure> {
        let interface = &record.wiring.host_interface;
        let name = || {
            let named = self.name_interface(&record.identity, interface);
            named.map_err(|error| Failure::plugin(format!("{interface}: {error}")))
        };
        match self.journal.get(&record.identity) {
            // Somebody has wiped its name off.
            Some(known) if known.wiring.host_interface == *interface => return name(),
            Some(_) => return Ok(false),
            None => {}
        }
        // The alias comes first: an interface that bears its name and is in no journal is adopted
        // again, but one in the journal that does not bear it would look like a dead one's.
        self.fault(Step::Name, "before");
        if !name()? {
            return Ok(false);
        }
        self.fault(Step::Name, "after");
        self.fault(Step::Adopt, "before");
        self.write(record)?;
        self.fault(Step::Adopt, "after");
        // Whatever is missing of it in the datastore is written back now.
        self.doubts.key(&endpoint_key(record));
        let who = notes::spoken(record);
        self.events.note("adopted", &format!("{who}: it was in no journal; {evidence}"));
        Ok(true)
    }

    /// Whether the interface was there to be named.
    fn name_interface(&self, identity: &Identity, interface: &str) -> kernel::Result<bool> {
        let mut host = Netlink::in_netns(&self.here)?;
        let Some(link) = host.link_by_name(&LinkName::new(interface)?)? else { return Ok(false) };
        let alias = Some(identity.alias());
        if link.alias != alias {
            let change = LinkChange { alias, ..LinkChange::default() };
            host.apply(&Operation::ChangeLink(link.index, change))?;
        }
        Ok(true)
    }
}

/// Namespaces that end meanwhile, and those that may not be entered, are left out.
fn spaces(host: &mut Netlink, here: &Netns) -> Spaces {
    let mut spaces = Spaces::new();
    for seen in Netns::visible().into_values() {
        let Ok(netns) = Netns::open(&seen.path) else { continue };
        if netns.id() == here.id() {
            continue;
        }
        if let Ok(Some(number)) = host.netns_id(&netns) {
            spaces.insert(number, (netns, seen));
        }
    }
    spaces
}

fn inside(link: &Link, spaces: &Spaces) -> Option<Inside> {
    let (netns, seen) = spaces.get(&link.peer_netns_id?)?;
    let mut netlink = Netlink::in_netns(netns).ok()?;
    let links = netlink.links().ok()?;
    let inner = links.iter().find(|it| Some(it.index) == link.peer)?;
    let addresses = netlink.addresses(Some(inner.index)).ok()?;
    let addresses = addresses.iter().map(|it| it.address.addr());
    Some(Inside {
        interface: inner.name.to_string(),
        mac: inner.mac.map_or([0; 6], |mac| mac.0),
        mtu: inner.mtu,
        addresses: addresses.filter(|it| !is_usual(*it)).collect(),
        netns: netns_id(netns),
        path: seen.path.display().to_string(),
        n_processes: seen.n_processes,
    })
}

/// Addresses that interfaces have without anybody giving them one.
fn is_usual(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_loopback(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_loopback(),
    }
}
