//! What must hold, whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::reserve_handle;
use sandbox::claim::endpoint_key;

use crate::node::NETWORK;
use crate::others::blocks;
use crate::work;
use crate::world::{State, World};

/// No address on two live sandboxes; no live address free in the datastore; nothing live removed.
pub(crate) fn at_every_step(world: &World) -> Result<(), String> {
    let mut seen: BTreeMap<IpAddr, String> = BTreeMap::new();
    let holders = holders(world);
    for container in world.containers.iter().filter(|it| it.state == State::Running) {
        let node = &world.nodes[container.node];
        let who = format!("{} on {}", container.identity, node.name);
        let Some(record) = node.journal.get(&container.identity) else {
            return Err(format!("{who} runs, and the journal does not know it"));
        };
        let interface = node.interfaces.get(&record.wiring.host_interface);
        if interface.is_none_or(|it| it.identity != container.identity) {
            return Err(format!("{who} runs, and its interface is gone"));
        }
        for address in &record.wiring.addresses {
            if let Some(other) = seen.insert(*address, who.clone()) {
                return Err(format!("{address} is on {who} and on {other}"));
            }
            if let Some((pod, _)) = world.others.pods.iter().find(|(_, it)| *it == address) {
                return Err(format!("{address} is on {who} and on {pod}"));
            }
            let holder = holders.get(address);
            let handle = work::holder(record, world.options.bug).handle(NETWORK);
            let is_held = match record.owed {
                None => holder == Some(&handle),
                Some(_) => holder == Some(&reserve_handle(&node.name)) || holder == Some(&handle),
            };
            if !is_held {
                let holder = holder.map_or("nobody", String::as_str);
                return Err(format!("{address} is on {who}, and {holder} holds it"));
            }
        }
    }
    Ok(())
}

/// Who holds each address.
fn holders(world: &World) -> BTreeMap<IpAddr, String> {
    let mut holders = BTreeMap::new();
    for (_, block) in blocks(&world.store) {
        for ordinal in 0..block.allocations.len() {
            let holder = block.attribute(ordinal).filter(|it| it.released_at.is_none());
            let Some(handle) = holder.and_then(|it| it.handle.clone()) else { continue };
            if let Some(address) = block.address(ordinal) {
                holders.insert(address, handle);
            }
        }
    }
    holders
}

/// Nothing is left over, and nothing is missing.
pub(crate) fn at_the_end(world: &World) -> Result<(), String> {
    let mut handles: BTreeSet<String> = world.others.pods.keys().cloned().collect();
    handles.extend(world.nodes.iter().map(|node| reserve_handle(&node.name)));
    let mut endpoints = BTreeSet::new();
    for container in world.containers.iter().filter(|it| it.state == State::Running) {
        let record = world.nodes[container.node].journal.get(&container.identity);
        let Some(record) = record else { continue };
        handles.insert(work::holder(record, world.options.bug).handle(NETWORK));
        let key = endpoint_key(record);
        if record.owed.is_some() {
            return Err(format!("the datastore was never told of {}", container.identity));
        }
        if world.store.get(&key).is_none() {
            return Err(format!("{} runs without an endpoint ({key})", container.identity));
        }
        endpoints.insert(key);
    }
    for (address, handle) in holders(world) {
        if !handles.contains(&handle) {
            return Err(format!("{address} leaks: {handle} holds it"));
        }
    }
    for (key, _) in world.store.under("/calico/ipam/v2/handle/") {
        let handle = key.rsplit('/').next().unwrap_or_default();
        if !handles.contains(handle) {
            return Err(format!("the handle {handle} is left over"));
        }
    }
    let kind = "/calico/resources/v3/projectcalico.org/workloadendpoints/";
    for (key, _) in world.store.under(kind) {
        if !endpoints.contains(key) {
            return Err(format!("the endpoint {key} is left over"));
        }
    }
    for node in &world.nodes {
        let bad = node.agent.iter().flat_map(|agent| agent.inputs.quarantined()).next();
        if let Some((key, problems)) = bad {
            return Err(format!("{} cannot read {key}: {}", node.name, problems.join("; ")));
        }
        for (name, interface) in &node.interfaces {
            if !node.journal.contains_key(&interface.identity) {
                return Err(format!("{name} on {} is left over", node.name));
            }
        }
        if let Some(record) = node.journal.values().find(|it| {
            !world.containers.iter().any(|container| {
                container.identity == it.identity && container.state == State::Running
            })
        }) {
            return Err(format!("{} stays in the journal of {}", record.identity, node.name));
        }
    }
    Ok(())
}
