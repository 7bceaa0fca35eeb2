//! What must hold, whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::{node_of_reserve, reserve_handle};
use sandbox::claim::endpoint_key;
use sandbox::life::{Phase, Record};

use crate::trace::who;
use crate::work;
use crate::world::{Container, State, World};

/// A law is broken.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) what: String,
    /// The addresses and containers that it is about.
    pub(crate) about: Vec<String>,
}

impl Violation {
    fn new(what: String) -> Self {
        Self { what, about: Vec::new() }
    }

    fn about(mut self, what: impl ToString) -> Self {
        self.about.push(what.to_string());
        self
    }

    /// About a handle: what comes after the network is the container.
    fn about_handle(self, handle: &str) -> Self {
        let container = handle.split_once('.').map_or(handle, |(_, container)| container);
        self.about(container)
    }
}

/// Where something happened since the laws were last checked, and what was right then.
#[derive(Debug)]
pub(crate) struct Watch {
    touched: BTreeSet<usize>,
    /// The containers that run on each node.
    running: Vec<BTreeSet<usize>>,
    /// Their addresses.
    addresses: Vec<Vec<IpAddr>>,
    live: BTreeMap<IpAddr, usize>,
}

impl Watch {
    pub(crate) fn new(n_nodes: usize) -> Self {
        Self {
            touched: BTreeSet::new(),
            running: vec![BTreeSet::new(); n_nodes],
            addresses: vec![Vec::new(); n_nodes],
            live: BTreeMap::new(),
        }
    }

    /// Something happens on a node.
    pub(crate) fn touch(&mut self, node: usize) {
        self.touched.insert(node);
    }

    /// A container of a node runs, or does not.
    pub(crate) fn follow(&mut self, node: usize, container: usize, runs: bool) {
        self.touch(node);
        match runs {
            true => self.running[node].insert(container),
            false => self.running[node].remove(&container),
        };
    }
}

/// No address on two live sandboxes; no live address free in the datastore; nothing live removed.
/// Only what changed is looked at.
pub(crate) fn where_something_happened(world: &mut World) -> Result<(), Violation> {
    let touched = std::mem::take(&mut world.watch.touched);
    let moved = std::mem::take(&mut world.store.moved);
    for node in &touched {
        for address in std::mem::take(&mut world.watch.addresses[*node]) {
            world.watch.live.remove(&address);
        }
    }
    for node in touched {
        for at in world.watch.running[node].clone() {
            look_at(world, at)?;
        }
    }
    for it in moved {
        if let Some(at) = world.watch.live.get(&it.address) {
            is_held(world, &world.containers[*at], it.address)?;
        }
    }
    Ok(())
}

/// The same, whether something happened or not.
pub(crate) fn everywhere(world: &mut World) -> Result<(), Violation> {
    (0..world.nodes.len()).for_each(|node| world.watch.touch(node));
    where_something_happened(world)
}

/// A container has what it was told, and nobody else has it.
fn look_at(world: &mut World, at: usize) -> Result<(), Violation> {
    let container = &world.containers[at];
    let (node, identity) = (&world.nodes[container.node], &container.asked.identity);
    let broken = |how: &str| {
        let what = format!("{} runs on {}, and {how}", who(identity), node.name);
        Err(Violation::new(what).about(&identity.container))
    };
    match node.journal.get(identity) {
        None if container.is_orphan => {}
        None => return broken("the journal does not know it"),
        Some(record) if record.wiring.addresses != container.addresses => {
            return broken("the journal has other addresses");
        }
        Some(_) => {}
    }
    let interface = node.interfaces.values().find(|it| it.identity == *identity);
    let Some(interface) = interface else { return broken("its interface is gone") };
    if !container.addresses.iter().all(|it| interface.addresses.contains(it)) {
        return broken("its interface has other addresses");
    }
    for address in &container.addresses {
        is_held(world, container, *address)?;
    }
    let (node, told) = (container.node, container.addresses.clone());
    for address in told {
        if let Some(other) = world.watch.live.insert(address, at) {
            let [one, two] = [at, other].map(|it| &world.containers[it]);
            let places = [one, two]
                .map(|it| format!("{} on {}", who(&it.asked.identity), world.nodes[it.node].name));
            let violation = Violation::new(format!("{address} is on {}", places.join(" and on ")));
            let violation = violation.about(address).about(&one.asked.identity.container);
            return Err(violation.about(&two.asked.identity.container));
        }
        world.watch.addresses[node].push(address);
    }
    Ok(())
}

/// The datastore has a container, or the reserve of its node, for the holder of an address.
fn is_held(world: &World, container: &Container, address: IpAddr) -> Result<(), Violation> {
    let node = &world.nodes[container.node];
    let identity = &container.asked.identity;
    let holder = world.store.holders.get(&address);
    let record = node.journal.get(identity);
    let handle = match record {
        Some(record) => work::held(record, world.options.bug).handle(),
        None => identity.handle(container.asked.network),
    };
    let may_be_reserve = record.is_none_or(|it| it.owed.is_some());
    let is_reserve = |it: &&String| node_of_reserve(it) == Some(node.name.as_str());
    if holder == Some(&handle) || (may_be_reserve && holder.as_ref().is_some_and(is_reserve)) {
        return Ok(());
    }
    let name = holder.map_or("nobody", String::as_str);
    let (who, on) = (who(identity), &node.name);
    let what = format!("{address} is on {who} on {on}, and {name} holds it in the datastore");
    let violation = Violation::new(what).about(address).about(&identity.container);
    Err(holder.into_iter().fold(violation, |it, holder| it.about_handle(holder)))
}

/// Nothing is left over, and nothing is missing.
pub(crate) fn at_the_end(world: &World) -> Result<(), Violation> {
    let mut handles: BTreeSet<String> = world.others.pods.keys().cloned().collect();
    handles.extend(world.nodes.iter().map(|node| reserve_handle(&node.name)));
    let mut endpoints = BTreeSet::new();
    for container in world.containers.iter().filter(|it| it.state == State::Running) {
        let record = settled(world, container)?;
        handles.insert(work::held(&record, world.options.bug).handle());
        endpoints.insert(endpoint_key(&record));
    }
    for (address, handle) in &world.store.holders {
        if !handles.contains(handle) {
            let what = format!("{address} leaks: {handle} holds it");
            return Err(Violation::new(what).about(address).about_handle(handle));
        }
    }
    for (key, _) in world.store.under("/calico/ipam/v2/handle/") {
        let handle = key.rsplit('/').next().unwrap_or_default();
        if !handles.contains(handle) {
            let what = format!("the handle {handle} is left over");
            return Err(Violation::new(what).about_handle(handle));
        }
    }
    let kind = "/calico/resources/v3/projectcalico.org/workloadendpoints/";
    for (key, (value, _)) in world.store.under(kind) {
        if !endpoints.contains(key) {
            let endpoint = text::json::parse(value).unwrap_or_default();
            let container = endpoint["spec"]["containerID"].as_str().unwrap_or_default();
            let what = format!("the endpoint {key} of {container} is left over");
            return Err(Violation::new(what).about(container).about(crate::trace::short(key)));
        }
    }
    (0..world.nodes.len()).try_for_each(|node| is_tidy(world, node))
}

/// The datastore knows a container that runs; what is known of it.
fn settled(world: &World, container: &Container) -> Result<Record, Violation> {
    let node = &world.nodes[container.node];
    let identity = &container.asked.identity;
    let Some(record) = node.journal.get(identity) else {
        return Ok(node.record(&container.asked, 0, Phase::Ready));
    };
    let broken = |what: String| Err(Violation::new(what).about(&record.identity.container));
    if record.owed.is_some() {
        return broken(format!("the datastore was never told of {}", who(identity)));
    }
    let key = endpoint_key(record);
    if !world.store.has(&key) {
        return broken(format!("{} runs without its endpoint {key}", who(identity)));
    }
    Ok(record.clone())
}

/// A node has nothing but what runs.
fn is_tidy(world: &World, node: usize) -> Result<(), Violation> {
    let node = &world.nodes[node];
    let runs = |identity: &sandbox::identity::Identity| {
        let at = world.known.get(identity);
        at.is_some_and(|at| world.containers[*at].state == State::Running)
    };
    let bad = node.agent.iter().flat_map(|agent| agent.inputs.quarantined()).next();
    if let Some((key, problems)) = bad {
        let what = format!("{} cannot read {key}: {}", node.name, problems.join("; "));
        return Err(Violation::new(what).about(crate::trace::short(key)));
    }
    let mut interfaces = node.interfaces.iter();
    if let Some((name, it)) = interfaces.find(|(_, it)| !runs(&it.identity)) {
        let what = format!("{name} of {} is left over on {}", who(&it.identity), node.name);
        return Err(Violation::new(what).about(name).about(&it.identity.container));
    }
    if let Some(identity) = node.journal.keys().find(|it| !runs(it)) {
        let what = format!("{} stays in the journal of {}", who(identity), node.name);
        return Err(Violation::new(what).about(&identity.container));
    }
    Ok(())
}
