//! Endpoints of sandboxes that are no more, and of which no journal knows.

use std::net::IpAddr;

use ipam::{Planned, Planner, Release};

/// Removes the endpoint that a container has on a node, and lets those of its addresses go that
/// the container holds there. Returns them. One of another container by now stays: a later sandbox
/// of the same pod has an endpoint of the same name.
pub fn remove(
    planner: &mut Planner<'_>,
    key: &str,
    container: &str,
    node: &str,
) -> Planned<Vec<IpAddr>> {
    let Some(bytes) = planner.get(key)? else { return Ok(Vec::new()) };
    let endpoint = text::json::parse(&bytes).unwrap_or_default();
    if endpoint["spec"]["containerID"].as_str().unwrap_or_default() != container {
        return Ok(Vec::new());
    }
    planner.delete(key)?;
    let networks = endpoint["spec"]["ipNetworks"].as_array().into_iter().flatten();
    let addresses = networks.filter_map(|it| it.as_str()?.split('/').next()?.parse().ok());
    let mut releases = Vec::new();
    let mut released = Vec::new();
    for address in addresses.filter(|_| !container.is_empty()) {
        let Ok(holder) = planner.get_attributes(address)? else { continue };
        let handle = holder.handle.unwrap_or_default();
        let is_its_own = handle.rsplit_once('.').is_some_and(|(_, held_by)| held_by == container);
        let is_here = holder.active_owner.get("node").is_some_and(|it| it == node);
        if is_its_own && is_here {
            let sequence = planner.sequence_of(address)?;
            releases.push(Release { address: address.to_string(), handle, sequence });
            released.push(address);
        }
    }
    if !releases.is_empty() {
        planner.release_ips(&releases)?;
    }
    Ok(released)
}
