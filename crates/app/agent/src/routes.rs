//! Keeps the kernel's routes of ours equal to the wanted ones.
//!
//! Ours are those with our protocol number. A route of somebody else is never changed: where one
//! stands in the way, that is a finding. What Calico left of the same routes becomes ours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use intent::{Hop, InSync, Routes};
use ipnet::IpNet;
use kernel::{
    Errno, Event, Link, LinkIndex, LinkName, Netlink, NextHop, Operation, Result, Route,
    RouteFilter, RouteKind, RouteProtocol, Table,
};
use net::Cidr;

use crate::finding::Finding;
use crate::interfaces::{Networks, is_default, is_of_sandbox};

/// The protocol number of our routes.
pub(crate) const PROTOCOL: RouteProtocol = RouteProtocol(host::marks::ROUTE_PROTOCOL);

/// The protocol number of the routes that Calico's BIRD makes.
const BIRD: RouteProtocol = RouteProtocol(12);

/// The kernel's side of the routes.
#[derive(Debug)]
pub(crate) struct RouteTable {
    netlink: Netlink,
    /// What the kernel holds of ours, as far as we know; none if it has to be read.
    present: Option<Routes>,
    /// Wanted routes that the kernel held at some time: one that is missing was taken away.
    held: Routes,
    repaired: Vec<Cidr>,
    /// Interfaces that lead to other nodes and have no carrier.
    unplugged: BTreeSet<String>,
}

/// What stands in the way of routes.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    pub(crate) findings: Vec<Finding>,
    /// Destinations whose interface is not there.
    pub(crate) missing: Vec<(Cidr, String)>,
}

/// What became of a route.
enum Placed {
    Here,
    NoInterface(String),
    Refused(Finding),
}

impl RouteTable {
    /// The interfaces of this host with their addresses, and with everything where a default route
    /// leads; those of sandboxes are left out.
    pub(crate) fn networks(&mut self) -> Result<Networks> {
        let links = self.netlink.links()?.into_iter();
        let names: BTreeMap<LinkIndex, String> = links
            .filter(|link| !is_of_sandbox(&link.name))
            .map(|link| (link.index, link.name.to_string()))
            .collect();
        let mut networks: Networks =
            names.values().map(|name| (name.clone(), BTreeSet::new())).collect();
        for found in self.netlink.addresses(None)? {
            let name = names.get(&found.link);
            if let Some(of_link) = name.and_then(|name| networks.get_mut(name)) {
                of_link.insert(found.address.into());
            }
        }
        let filter = RouteFilter { table: Some(Table::MAIN), ..RouteFilter::default() };
        for route in self.netlink.routes(&filter)?.iter().filter(|it| is_default(it)) {
            for name in route.next_hops.iter().filter_map(|hop| names.get(&hop.link?)) {
                networks.entry(name.clone()).or_default().insert(route.destination.into());
            }
        }
        Ok(networks)
    }

    /// For the namespace that the socket lives in.
    pub(crate) fn new(netlink: Netlink) -> Self {
        Self {
            netlink,
            present: None,
            held: Routes::new(),
            repaired: Vec::new(),
            unplugged: BTreeSet::new(),
        }
    }

    /// Something else may have changed the routes: they are read again before the next change.
    pub(crate) fn doubt(&mut self) {
        self.present = None;
    }

    /// How many routes of ours the kernel holds.
    pub(crate) fn count(&mut self) -> usize {
        match &self.present {
            Some(present) => present.len(),
            None => self.read().map_or(0, |present| present.len()),
        }
    }

    /// Routes that somebody else had taken away, and that were put back since the last time.
    pub(crate) fn take_repaired(&mut self) -> Vec<Cidr> {
        std::mem::take(&mut self.repaired)
    }

    /// Makes the kernel's routes the wanted ones, and removes the others of ours. What could not be
    /// done is named, and tried again the next time.
    pub(crate) fn apply(&mut self, _: InSync, wanted: &Routes) -> Result<Troubles> {
        let is_known = self.present.is_some();
        let present = match self.present.take() {
            Some(present) => present,
            None => self.read()?,
        };
        let (put, remove) = intent::plan(wanted, &present);
        let mut now = present;
        let mut troubles = Troubles::default();
        for (destination, hop) in put {
            let is_ours = now.contains_key(&destination);
            match self.put(destination, &hop, is_ours)? {
                Placed::Here => {
                    if self.held.get(&destination) == Some(&hop) {
                        self.repaired.push(destination);
                    }
                    self.held.insert(destination, hop.clone());
                    now.insert(destination, hop);
                }
                Placed::NoInterface(name) => troubles.missing.push((destination, name)),
                Placed::Refused(finding) => troubles.findings.push(finding),
            }
        }
        for destination in remove {
            if let Some(hop) = now.get(&destination) {
                self.remove(destination, &hop.clone())?;
            }
            now.remove(&destination);
        }
        self.held.retain(|destination, hop| wanted.get(destination) == Some(hop));
        if !is_known {
            let kept = now.iter().map(|(destination, hop)| (*destination, hop.clone()));
            self.held.extend(kept);
        }
        self.present = Some(now);
        troubles.findings.extend(self.unplugged.iter().map(|link| Finding::unplugged(link)));
        Ok(troubles)
    }

    /// Whether something that happened in the kernel makes what we know of our routes doubtful.
    /// What we do ourselves does not: it comes back as an event when it is known already. Of an
    /// interface only the last event counts, and none while it is being made or removed.
    pub(crate) fn has_news(&self, events: &[Event], is_moving: impl Fn(&LinkName) -> bool) -> bool {
        let mut links = BTreeMap::new();
        for event in events {
            match event {
                Event::Link(link) | Event::LinkGone(link) => {
                    links.insert(link.index, (event, &link.name));
                }
                _ if self.is_news(event) => return true,
                _ => {}
            }
        }
        links.values().any(|(event, name)| !is_moving(name) && self.is_news(event))
    }

    fn is_news(&self, event: &Event) -> bool {
        let Some(present) = &self.present else { return true };
        let leads_to = |name: &LinkName| {
            present.values().any(|hop| matches!(hop, Hop::Interface(it) if it == name.as_str()))
        };
        match event {
            Event::Link(link) if is_of_sandbox(&link.name) => !link.is_up && leads_to(&link.name),
            Event::LinkGone(link) if is_of_sandbox(&link.name) => leads_to(&link.name),
            // Routes by way of other nodes go with the interface that they use, unannounced.
            Event::Link(_) | Event::LinkGone(_) | Event::Lost => true,
            Event::Route(route) => {
                let known = present.get(&Cidr::from(route.destination));
                match route.protocol == PROTOCOL {
                    true => !known.is_some_and(|hop| is_by(route, hop)),
                    false => known.is_some(),
                }
            }
            Event::RouteGone(route) => {
                route.protocol == PROTOCOL && present.contains_key(&Cidr::from(route.destination))
            }
            _ => false,
        }
    }

    /// Reads what the kernel has, unless that is known.
    pub(crate) fn learn(&mut self) -> Result<()> {
        if self.present.is_none() {
            let present = self.read()?;
            let read = present.iter().map(|(destination, hop)| (*destination, hop.clone()));
            self.held.extend(read);
            self.present = Some(present);
        }
        Ok(())
    }

    /// Puts routes in place and removes none, for a node that knows only some. An interface that is
    /// not there needs no route.
    pub(crate) fn add(&mut self, wanted: &Routes) -> Result<()> {
        let present = self.read()?;
        self.present = None;
        let (put, _) = intent::plan(wanted, &present);
        for (destination, hop) in put {
            self.put(destination, &hop, present.contains_key(&destination))?;
        }
        Ok(())
    }

    /// Whether the kernel has this route, as far as we know.
    pub(crate) fn holds(&self, destination: &Cidr, hop: &Hop) -> bool {
        self.present.as_ref().is_some_and(|present| present.get(destination) == Some(hop))
    }

    /// The addresses that lead to sandboxes of ours; none if that has to be read first.
    pub(crate) fn addresses(&self) -> Option<BTreeSet<IpAddr>> {
        let local = self.present.as_ref()?.iter();
        let local = local.filter(|(_, hop)| matches!(hop, Hop::Interface(_)));
        Some(local.map(|(destination, _)| destination.address()).collect())
    }

    fn read(&mut self) -> Result<Routes> {
        let links: BTreeMap<LinkIndex, Link> =
            self.netlink.links()?.into_iter().map(|link| (link.index, link)).collect();
        self.unplugged.clear();
        let filter = RouteFilter {
            table: Some(Table::MAIN),
            protocol: Some(PROTOCOL),
            ..RouteFilter::default()
        };
        let mut routes = Routes::new();
        for route in self.netlink.routes(&filter)? {
            let destination = Cidr::from(route.destination);
            let hop = match (route.kind, route.next_hops.first()) {
                (RouteKind::Blackhole, _) => Hop::Blackhole,
                (_, Some(NextHop { gateway: Some(gateway), link, .. })) => {
                    let way = link.as_ref().and_then(|link| links.get(link));
                    let way = way.filter(|link| !link.is_running);
                    self.unplugged.extend(way.map(|link| link.name.to_string()));
                    Hop::Node(*gateway)
                }
                (_, Some(NextHop { link: Some(link), .. })) => {
                    let name = links.get(link).map(|link| link.name.to_string());
                    Hop::Interface(name.unwrap_or_default())
                }
                // Nothing that we ever make: it will be replaced, or removed.
                _ => Hop::Interface(String::new()),
            };
            routes.insert(destination, hop);
        }
        Ok(routes)
    }

    fn put(&mut self, destination: Cidr, hop: &Hop, is_ours: bool) -> Result<Placed> {
        let Some(route) = self.route(destination, hop)? else {
            let Hop::Interface(name) = hop else { return Ok(Placed::Here) };
            return Ok(Placed::NoInterface(name.clone()));
        };
        let operation = match is_ours {
            true => Operation::ReplaceRoute(route.clone()),
            false => Operation::AddRoute(route.clone()),
        };
        let done = match self.netlink.apply(&operation) {
            Err(error)
                if error.errno() == Some(Errno::EXIST) && self.is_calicos(&route, hop)? =>
            {
                self.netlink.apply(&Operation::ReplaceRoute(route))
            }
            done => done,
        };
        match done {
            Ok(()) => Ok(Placed::Here),
            Err(error) => Ok(Placed::Refused(match error.errno() {
                Some(Errno::EXIST) => Finding::foreign_route(destination),
                Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::INVAL) => {
                    Finding::gateway_unreachable(destination, hop, &error)
                }
                Some(Errno::NODEV | Errno::NETDOWN) => Finding::route_refused(destination, &error),
                _ => return Err(error),
            })),
        }
    }

    /// Whether what stands in the way of a route is the same one, as Calico makes it: to the
    /// interface of a sandbox, or by its BIRD.
    fn is_calicos(&mut self, route: &Route, hop: &Hop) -> Result<bool> {
        let filter = RouteFilter { table: Some(Table::MAIN), ..RouteFilter::default() };
        let all = self.netlink.routes(&filter)?;
        let mut same = all.iter().filter(|it| it.destination == route.destination).peekable();
        let link = |it: &Route| it.next_hops.first().and_then(|hop| hop.link);
        Ok(same.peek().is_some()
            && same.all(|it| match hop {
                Hop::Interface(_) => is_by(it, hop) && link(it) == link(route),
                Hop::Node(_) | Hop::Blackhole => it.protocol == BIRD && is_by(it, hop),
            }))
    }

    fn remove(&mut self, destination: Cidr, hop: &Hop) -> Result<()> {
        // The kernel removes the routes of an interface that goes away.
        let Some(route) = self.route(destination, hop)? else { return Ok(()) };
        match self.netlink.apply(&Operation::DeleteRoute(route)) {
            Err(error) if matches!(error.errno(), Some(Errno::SRCH | Errno::NOENT)) => Ok(()),
            result => result,
        }
    }

    /// The route as the kernel wants it; none if its interface is not there.
    fn route(&mut self, destination: Cidr, hop: &Hop) -> Result<Option<Route>> {
        let network = IpNet::from(destination.masked());
        Ok(match hop {
            Hop::Blackhole => Some(Route::blackhole(network, PROTOCOL)),
            Hop::Node(gateway) => {
                Some(Route::unicast(network, PROTOCOL, NextHop::via(*gateway, None)))
            }
            Hop::Interface(wanted) => {
                // A name that no interface can have belongs to none.
                let Ok(name) = LinkName::new(wanted) else { return Ok(None) };
                let link = self.netlink.link_by_name(&name)?;
                link.map(|link| Route::unicast(network, PROTOCOL, NextHop::on(link.index)))
            }
        })
    }
}

/// Whether a route of the kernel is the one to this hop.
fn is_by(route: &Route, hop: &Hop) -> bool {
    let first = route.next_hops.first();
    match hop {
        Hop::Blackhole => route.kind == RouteKind::Blackhole,
        Hop::Node(gateway) => first.is_some_and(|it| it.gateway == Some(*gateway)),
        Hop::Interface(_) => first.is_some_and(|it| it.gateway.is_none() && it.link.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use kernel::Link;

    use super::*;

    fn link(name: &str, is_up: bool) -> Link {
        Link {
            index: LinkIndex(7),
            name: LinkName::new(name).unwrap(),
            kind: None,
            alias: None,
            mac: None,
            mtu: 1500,
            is_up,
            is_running: is_up,
            is_loopback: false,
            master: None,
            peer: None,
            peer_netns_id: None,
            n_tx_queues: 1,
        }
    }

    #[test]
    fn what_the_agent_does_itself_is_no_news() {
        let pod: IpNet = "10.65.0.1/32".parse().unwrap();
        let mut table = RouteTable::new(Netlink::open().unwrap());
        table.present = Some(Routes::from([(pod.into(), Hop::Interface("cali1".into()))]));
        let ours = Route::unicast(pod, PROTOCOL, NextHop::on(LinkIndex(7)));
        let down = Event::Link(link("cali1", false));
        let up = Event::Link(link("cali1", true));
        let nobody = |_: &LinkName| false;
        let made = [Event::Link(link("mgy1", false)), down.clone(), up.clone()];
        assert!(!table.has_news(&made, nobody));
        assert!(!table.has_news(&[Event::Route(ours.clone())], nobody));
        assert!(table.has_news(&[up, down.clone()], nobody), "somebody switched it off");
        assert!(!table.has_news(&[down], |_| true), "it is being removed");
        assert!(table.has_news(&[Event::LinkGone(link("cali1", true))], nobody));
        assert!(!table.has_news(&[Event::LinkGone(link("cali2", true))], nobody));
        assert!(table.has_news(&[Event::Link(link("eth0", true))], nobody));
        assert!(table.has_news(&[Event::RouteGone(ours.clone())], nobody));
        let theirs = Route { protocol: RouteProtocol(4), ..ours };
        assert!(table.has_news(&[Event::Route(theirs.clone())], nobody), "it took our place");
        assert!(!table.has_news(&[Event::RouteGone(theirs)], nobody));
        table.doubt();
        assert!(table.has_news(&[Event::Link(link("cali2", true))], nobody));
    }
}
