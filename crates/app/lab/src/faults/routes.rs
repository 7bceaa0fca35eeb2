//! Routes that somebody deletes behind the agent's back.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use kernel::{
    LinkIndex, Netlink, NextHop, Operation, Route, RouteFilter, RouteKind, RouteProtocol, Table,
};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::lab::Lab;
use crate::screen::count;

/// How long the agent gets to restore them before the lab does.
const AGENT_WAIT: Duration = Duration::from_secs(2);

/// Deletes the routes of a node to the pods of others; of a lone node, those to its own.
pub(super) fn delete(lab: &Lab, node: &str) -> Result<Value, Failure> {
    let mut netlink = Netlink::in_netns(&lab.netns(node)?)?;
    let all = pod_routes(&mut netlink)?;
    let is_remote = |route: &Route| route.next_hops.iter().any(|hop| hop.gateway.is_some());
    let (remote, local): (Vec<Route>, Vec<Route>) = all.into_iter().partition(is_remote);
    let chosen = if remote.is_empty() { local } else { remote };
    if chosen.is_empty() {
        return Err(Failure::new(format!("{node} has no routes to pods")));
    }
    for route in &chosen {
        netlink.apply(&Operation::DeleteRoute(route.clone()))?;
    }
    Ok(Value::Array(chosen.iter().map(encode).collect()))
}

/// Sees whether the agent has restored the routes, and adds what is missing.
pub(super) fn restore(lab: &Lab, node: &str, saved: &Value) -> Result<String, Failure> {
    let mut netlink = Netlink::in_netns(&lab.netns(node)?)?;
    let began = Instant::now();
    loop {
        let missing = missing(&mut netlink, saved)?;
        if missing.is_empty() {
            let routes = count(saved.as_array().map_or(0, Vec::len), "route");
            return Ok(format!("{routes} of {node}: restored by the agent"));
        }
        if began.elapsed() > AGENT_WAIT {
            for route in &missing {
                netlink.apply(&Operation::ReplaceRoute(route.clone()))?;
            }
            let routes = count(missing.len(), "route");
            return Ok(format!("{routes} of {node}: restored by the lab, not by the agent"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the routes are there again.
pub(super) fn are_back(lab: &Lab, node: &str, saved: &Value) -> Result<bool, Failure> {
    let mut netlink = Netlink::in_netns(&lab.netns(node)?)?;
    Ok(missing(&mut netlink, saved)?.is_empty())
}

/// Those of the deleted routes that are not there.
fn missing(netlink: &mut Netlink, saved: &Value) -> Result<Vec<Route>, Failure> {
    let there = pod_routes(netlink)?;
    let is_there = |route: &Route| there.iter().any(|it| it.destination == route.destination);
    let deleted = saved.as_array().into_iter().flatten().filter_map(decode);
    Ok(deleted.filter(|route| !is_there(route)).collect())
}

/// The routes of the main table that lead to pods.
fn pod_routes(netlink: &mut Netlink) -> Result<Vec<Route>, Failure> {
    let filter = RouteFilter { table: Some(Table::MAIN), ..RouteFilter::default() };
    let pools: [IpNet; 2] =
        ["10.65.0.0/16".parse().expect("a network"), "fd65::/112".parse().expect("a network")];
    let mut routes = netlink.routes(&filter)?;
    routes.retain(|route| {
        let is_pod = pools.iter().any(|pool| pool.contains(&route.destination));
        is_pod && route.kind == RouteKind::Unicast
    });
    Ok(routes)
}

fn encode(route: &Route) -> Value {
    let hop = route.next_hops.first();
    json!({
        "destination": route.destination.to_string(),
        "gateway": hop.and_then(|hop| hop.gateway),
        "link": hop.and_then(|hop| hop.link).map(|link| link.0),
        "isOnlink": hop.is_some_and(|hop| hop.is_onlink),
        "protocol": route.protocol.0,
        "metric": route.metric,
        "source": route.source,
    })
}

fn decode(saved: &Value) -> Option<Route> {
    let number = |name: &str| saved[name].as_u64().and_then(|number| u32::try_from(number).ok());
    let address = |name: &str| saved[name].as_str()?.parse::<IpAddr>().ok();
    let hop = NextHop {
        link: number("link").map(LinkIndex),
        gateway: address("gateway"),
        is_onlink: saved["isOnlink"].as_bool().unwrap_or(false),
        weight: 1,
    };
    let destination: IpNet = saved["destination"].as_str()?.parse().ok()?;
    let protocol = RouteProtocol(u8::try_from(number("protocol")?).ok()?);
    let mut route = Route::unicast(destination, protocol, hop);
    route.metric = number("metric").unwrap_or(0);
    route.source = address("source");
    Some(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_route_comes_back_as_it_was() {
        let hop = NextHop::via("172.30.0.12".parse().unwrap(), Some(LinkIndex(2)));
        let mut route = Route::unicast("10.65.0.64/26".parse().unwrap(), RouteProtocol(80), hop);
        route.source = Some("172.30.0.11".parse().unwrap());
        assert_eq!(decode(&encode(&route)), Some(route));
        assert_eq!(decode(&json!({})), None);
    }
}
