//! Records of sandboxes that are no more, and of which no journal knows.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::{Planned, Planner, Release};

/// Removes the endpoint that a container has on a node, and lets those of its addresses go that
/// the container holds there. Returns them; none if there was no such endpoint any more, or if it
/// is another container's by now: a later sandbox of the same pod has one of the same name.
pub fn remove(
    planner: &mut Planner<'_>,
    key: &str,
    container: &str,
    node: &str,
) -> Planned<Option<Vec<IpAddr>>> {
    let Some(bytes) = planner.get(key)? else { return Ok(None) };
    let endpoint = text::json::parse(&bytes).unwrap_or_default();
    if endpoint["spec"]["containerID"].as_str().unwrap_or_default() != container {
        return Ok(None);
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
    Ok(Some(released))
}

/// Lets addresses go that a handle holds, by the numbers under which it was seen to hold them.
/// Returns those that it held.
pub fn release(
    planner: &mut Planner<'_>,
    handle: &str,
    addresses: &BTreeMap<IpAddr, Option<u64>>,
) -> Planned<Vec<IpAddr>> {
    let mut releases = Vec::new();
    let mut released = Vec::new();
    for (address, sequence) in addresses {
        let holder = planner.get_attributes(*address)?;
        if holder.is_ok_and(|it| it.handle.as_deref() == Some(handle)) {
            let (text, handle) = (address.to_string(), handle.to_owned());
            releases.push(Release { address: text, handle, sequence: *sequence });
            released.push(*address);
        }
    }
    if !releases.is_empty() {
        planner.release_ips(&releases)?;
    }
    Ok(released)
}
