//! What is ours in this host's kernel: interfaces by their alias, routes by their protocol, tables
//! by their name.

use host::marks;
use kernel::nft::{Nft, Table};
use kernel::{Netlink, RouteFilter, RouteProtocol};
use sandbox::identity::Identity;

use super::super::failure::Failure;
use super::step::{Act, Step};

/// Everything of ours.
pub(super) fn look() -> Result<Vec<Step>, Failure> {
    let failed = |error: kernel::Error| Failure::new(error.to_string());
    let mut netlink = Netlink::open().map_err(failed)?;
    let mut steps = Vec::new();
    for link in netlink.links().map_err(failed)? {
        if let Some(identity) = link.alias.as_deref().and_then(Identity::from_alias) {
            let of = format!("of container {identity}");
            steps.push(Step::new("interface", link.name.to_string(), &of, Act::Link(link.index)));
        }
    }
    let ours = RouteFilter {
        protocol: Some(RouteProtocol(marks::ROUTE_PROTOCOL)),
        ..RouteFilter::default()
    };
    for route in netlink.routes(&ours).map_err(failed)? {
        let name = route.destination.to_string();
        steps.push(Step::new("route", name, "route", Act::Route(Box::new(route))));
    }
    let tables = Nft::open().and_then(|mut nft| nft.tables()).map_err(failed)?;
    let is_ours = |table: &Table| marks::TABLES.contains(&table.id.name.as_str());
    for table in tables.into_iter().filter(is_ours) {
        let name = format!("{} {}", table.id.family, table.id.name);
        steps.push(Step::new("table", name, "nftables table", Act::Table(table.id)));
    }
    Ok(steps)
}
