//! Records of sandboxes that are no more, and of which no journal knows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::{Planned, Planner, Release};

/// Removes the endpoint that a container has on a node, and lets those of its addresses go that
/// the container holds there. Returns them; none if there was no such endpoint any more, or if it
/// is another container's by now: a later sandbox of the same pod has one of the same name.
/// Addresses that are `used` stay: another interface of the container holds them under the same
/// handle.
pub fn remove(
    planner: &mut Planner<'_>,
    key: &str,
    container: &str,
    node: &str,
    used: &BTreeSet<IpAddr>,
) -> Planned<Option<Vec<IpAddr>>> {
    let Some(bytes) = planner.get(key)? else { return Ok(None) };
    let endpoint = text::json::parse(&bytes).unwrap_or_default();
    if endpoint["spec"]["containerID"].as_str().unwrap_or_default() != container {
        return Ok(None);
    }
    planner.delete(key)?;
    let networks = endpoint["spec"]["ipNetworks"].as_array().into_iter().flatten();
    let addresses =
        networks.filter_map(|it| it.as_str()?.split('/').next()?.parse::<IpAddr>().ok());
    let unused = addresses.filter(|address| !used.contains(address));
    let mut releases = Vec::new();
    let mut released = Vec::new();
    for address in unused.filter(|_| !container.is_empty()) {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ipam::{AutoAssign, Moment, Step, View};
    use serde_json::json;

    use super::*;

    const NOW: Moment = Moment::from_nanoseconds(1_794_770_996_000_000_000);
    const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

    /// A container has an address on another interface by now that its ghost names as well.
    #[test]
    fn an_address_that_another_interface_has_by_now_stays() {
        let mut view = View::default();
        let put = |view: &mut View, key: &str, value: serde_json::Value| {
            view.observe(key, Some((text::json::to_string(&value).into_bytes(), 1)), 1);
        };
        view.complete("/calico/", 1);
        let object = |kind: &str, name: &str, spec: serde_json::Value| {
            json!({
                "kind": kind, "apiVersion": "projectcalico.org/v3",
                "metadata": { "name": name }, "spec": spec,
            })
        };
        let pool = object("IPPool", "p", json!({ "cidr": "10.0.0.0/28", "blockSize": 30 }));
        put(&mut view, &format!("{RESOURCES}/ippools/p"), pool);
        put(&mut view, &format!("{RESOURCES}/nodes/n1"), object("Node", "n1", json!({})));
        let request = AutoAssign {
            node: "n1".to_owned(),
            num4: 1,
            handle: Some("net.c1".to_owned()),
            attributes: BTreeMap::from([("node".to_owned(), "n1".to_owned())]),
            purpose: "Workload".to_owned(),
            ..AutoAssign::default()
        };
        let step = ipam::plan(&view, NOW, |planner| planner.auto_assign(&request));
        let Step::Done(assigned, plan) = step else { panic!("{step:?}") };
        view.absorb(&plan, 2);
        let address = assigned.addresses().next().unwrap().address();
        let key = format!("{RESOURCES}/workloadendpoints/d/ghost");
        let spec = json!({ "containerID": "c1", "ipNetworks": [format!("{address}/32")] });
        put(&mut view, &key, object("WorkloadEndpoint", "ghost", spec));
        let released = |used: &[IpAddr]| {
            let used = used.iter().copied().collect();
            let step = ipam::plan(&view, NOW, |it| remove(it, &key, "c1", "n1", &used));
            let Step::Done(released, plan) = step else { panic!("{step:?}") };
            assert!(plan.changes.iter().any(|it| it.key == key && it.value.is_none()));
            released.unwrap()
        };
        assert_eq!(released(&[]), [address]);
        assert_eq!(released(&[address]), [] as [IpAddr; 0]);
    }
}
