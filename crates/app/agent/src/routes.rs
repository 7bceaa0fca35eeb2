//! Keeps the kernel's routes of ours equal to the wanted ones.
//!
//! Ours are those with our protocol number. A route of somebody else is never changed: where one
//! stands in the way, that is a finding.

use std::collections::BTreeMap;

use intent::{Hop, Routes};
use ipnet::IpNet;
use kernel::{
    Errno, LinkIndex, LinkName, Netlink, NextHop, Operation, Result, Route, RouteFilter, RouteKind,
    RouteProtocol, Table,
};
use net::Cidr;

use crate::finding::Finding;

/// The protocol number of our routes, in the range that is free for programs to use.
pub(crate) const PROTOCOL: RouteProtocol = RouteProtocol(77);

/// The kernel's side of the routes.
#[derive(Debug)]
pub(crate) struct RouteTable {
    netlink: Netlink,
    /// What the kernel holds of ours, as far as we know; none if it has to be read.
    present: Option<Routes>,
    /// Wanted routes that the kernel held at some time: one that is missing was taken away.
    held: Routes,
    repaired: Vec<Cidr>,
}

impl RouteTable {
    /// For the namespace that the socket lives in.
    pub(crate) fn new(netlink: Netlink) -> Self {
        Self { netlink, present: None, held: Routes::new(), repaired: Vec::new() }
    }

    /// Something else may have changed the routes: they are read again before the next change.
    pub(crate) fn doubt(&mut self) {
        self.present = None;
    }

    /// How many routes of ours the kernel holds, as far as we know.
    pub(crate) fn count(&self) -> usize {
        self.present.as_ref().map_or(0, Routes::len)
    }

    /// Routes that somebody else had taken away, and that were put back since the last time.
    pub(crate) fn take_repaired(&mut self) -> Vec<Cidr> {
        std::mem::take(&mut self.repaired)
    }

    /// Makes the kernel's routes the wanted ones. What could not be done is named, and tried again
    /// the next time.
    pub(crate) fn apply(&mut self, wanted: &Routes) -> Result<Vec<Finding>> {
        let names = self.link_names()?;
        let present = match self.present.take() {
            Some(present) => present,
            None => self.read(&names)?,
        };
        let (put, remove) = intent::plan(wanted, &present);
        let mut now = present.clone();
        let mut findings = Vec::new();
        for (destination, hop) in put {
            let is_ours = present.contains_key(&destination);
            match self.put(destination, &hop, is_ours, &names)? {
                None => {
                    if self.held.get(&destination) == Some(&hop) {
                        self.repaired.push(destination);
                    }
                    now.insert(destination, hop);
                }
                Some(finding) => findings.push(finding),
            }
        }
        for destination in remove {
            self.remove(destination, &present[&destination], &names)?;
            now.remove(&destination);
        }
        self.held.retain(|destination, hop| wanted.get(destination) == Some(hop));
        self.held.extend(now.iter().map(|(destination, hop)| (*destination, hop.clone())));
        self.present = Some(now);
        Ok(findings)
    }

    fn link_names(&mut self) -> Result<BTreeMap<LinkIndex, LinkName>> {
        Ok(self.netlink.links()?.into_iter().map(|link| (link.index, link.name)).collect())
    }

    fn read(&mut self, names: &BTreeMap<LinkIndex, LinkName>) -> Result<Routes> {
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
                (_, Some(NextHop { gateway: Some(gateway), .. })) => Hop::Node(*gateway),
                (_, Some(NextHop { link: Some(link), .. })) => {
                    let name = names.get(link).map(ToString::to_string);
                    Hop::Interface(name.unwrap_or_default())
                }
                // Nothing that we ever make: it will be replaced, or removed.
                _ => Hop::Interface(String::new()),
            };
            routes.insert(destination, hop);
        }
        Ok(routes)
    }

    fn put(
        &mut self,
        destination: Cidr,
        hop: &Hop,
        is_ours: bool,
        names: &BTreeMap<LinkIndex, LinkName>,
    ) -> Result<Option<Finding>> {
        let Some(route) = route(destination, hop, names) else {
            let Hop::Interface(name) = hop else { return Ok(None) };
            return Ok(Some(Finding::interface_missing(destination, name)));
        };
        let operation = match is_ours {
            true => Operation::ReplaceRoute(route),
            false => Operation::AddRoute(route),
        };
        match self.netlink.apply(&operation) {
            Ok(()) => Ok(None),
            Err(error) => match error.errno() {
                Some(Errno::EXIST) => Ok(Some(Finding::foreign_route(destination))),
                Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::INVAL) => {
                    Ok(Some(Finding::gateway_unreachable(destination, hop, &error)))
                }
                Some(Errno::NODEV | Errno::NETDOWN) => {
                    Ok(Some(Finding::route_refused(destination, &error)))
                }
                _ => Err(error),
            },
        }
    }

    fn remove(
        &mut self,
        destination: Cidr,
        hop: &Hop,
        names: &BTreeMap<LinkIndex, LinkName>,
    ) -> Result<()> {
        // The kernel removes the routes of an interface that goes away.
        let Some(route) = route(destination, hop, names) else { return Ok(()) };
        match self.netlink.apply(&Operation::DeleteRoute(route)) {
            Err(error) if matches!(error.errno(), Some(Errno::SRCH | Errno::NOENT)) => Ok(()),
            result => result,
        }
    }
}

fn route(destination: Cidr, hop: &Hop, names: &BTreeMap<LinkIndex, LinkName>) -> Option<Route> {
    let network = IpNet::from(destination.masked());
    Some(match hop {
        Hop::Blackhole => Route::blackhole(network, PROTOCOL),
        Hop::Node(gateway) => Route::unicast(network, PROTOCOL, NextHop::via(*gateway, None)),
        Hop::Interface(wanted) => {
            let (index, _) = names.iter().find(|(_, name)| name.as_str() == wanted)?;
            Route::unicast(network, PROTOCOL, NextHop::on(*index))
        }
    })
}
