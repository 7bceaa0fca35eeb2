//! Who else writes: Calico on other nodes, its collector, and operators.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::keys::ipam::Block;
use ipam::{AutoAssign, Next, Outcome, Planned, Planner, Pursuit, Release, View};

use crate::options::Bug;
use crate::store::Store;
use crate::world::{State, World};

const BLOCKS: &str = "/calico/ipam/v2/assignment/";

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Others {
    nodes: Vec<String>,
    /// The pods on Calico's nodes, by handle.
    pub(crate) pods: BTreeMap<String, IpAddr>,
    /// What the collector has found to be nobody's, and releases some time later.
    found: Vec<Release>,
    n_made: u64,
}

impl Others {
    pub(crate) fn new(nodes: Vec<String>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// One of them does something.
    pub(crate) fn act(&mut self, world: &mut World) {
        match world.chance.u8(0..20) {
            0..6 => self.make(world),
            6..10 => self.remove(world),
            10..12 => give_up_an_empty_block(world),
            12..15 => self.find(world),
            15..18 => self.collect(world),
            _ => {
                let rate = world.options.edit * 10;
                if world.chance.u32(0..1000) < rate {
                    edit(world);
                }
            }
        }
    }

    fn make(&mut self, world: &mut World) {
        if self.nodes.is_empty() {
            return;
        }
        let node = self.nodes[world.chance.usize(0..self.nodes.len())].clone();
        self.n_made += 1;
        let handle = format!("k8s-pod-network.calico-{}", self.n_made);
        let attributes = BTreeMap::from([("node".to_owned(), node.clone())]);
        let request = AutoAssign {
            node,
            num4: 1,
            handle: Some(handle.clone()),
            attributes,
            purpose: "Workload".to_owned(),
            ..AutoAssign::default()
        };
        let assigned = at_once(world, |planner| planner.auto_assign(&request));
        let address = assigned.addresses().next().map(|network| network.address());
        if let Some(address) = address {
            world.tell(format!("Calico gives {address} to {handle}"));
            self.pods.insert(handle, address);
        }
    }

    fn remove(&mut self, world: &mut World) {
        let handle = self.pods.keys().nth(world.chance.usize(0..self.pods.len().max(1))).cloned();
        let Some(handle) = handle else { return };
        let _ = at_once(world, |planner| planner.release_by_handle(&handle));
        world.tell(format!("Calico releases {handle}"));
        self.pods.remove(&handle);
    }

    /// The collector looks for addresses of containers that are gone.
    fn find(&mut self, world: &World) {
        let handle = |at: &crate::world::Container| at.identity.handle(crate::node::NETWORK);
        let is_gone =
            |state: State| matches!(state, State::Stopping | State::Deleting | State::Gone);
        let gone: BTreeSet<String> =
            world.containers.iter().filter(|it| is_gone(it.state)).map(handle).collect();
        for (_, block) in blocks(&world.store) {
            for ordinal in 0..block.allocations.len() {
                let held = block.attribute(ordinal).and_then(|it| it.handle.clone());
                let Some(handle) = held.filter(|it| gone.contains(it)) else { continue };
                let Some(address) = block.address(ordinal) else { continue };
                let sequence = block.sequence_of(ordinal);
                let sequence =
                    sequence.filter(|_| world.options.bug != Some(Bug::ReleaseWithoutSequence));
                self.found.push(Release { address: address.to_string(), handle, sequence });
            }
        }
    }

    /// It releases what it found, however long ago.
    fn collect(&mut self, world: &mut World) {
        if self.found.is_empty() {
            return;
        }
        let release = self.found.swap_remove(world.chance.usize(0..self.found.len()));
        let _ = at_once(world, |planner| planner.release_ips(std::slice::from_ref(&release)));
        world.tell(format!("the collector releases {} of {}", release.address, release.handle));
    }
}

/// All blocks that can be read.
pub(crate) fn blocks(store: &Store) -> impl Iterator<Item = (String, Block)> {
    store.under(BLOCKS).filter_map(|(key, (value, _))| {
        let value = text::json::parse(value).ok()?;
        Some((key.clone(), Block::decode(&value).ok()?))
    })
}

/// Calico takes claims on empty blocks away from nodes that do not need them.
fn give_up_an_empty_block(world: &mut World) {
    let all: Vec<net::Cidr> = blocks(&world.store).map(|(_, block)| block.cidr).collect();
    if all.is_empty() {
        return;
    }
    let cidr = all[world.chance.usize(0..all.len())];
    if at_once(world, |planner| planner.release_block_affinity(cidr, true)).is_ok() {
        world.tell(format!("Calico gives {cidr} up if it is empty"));
    }
}

/// An operator removes a record that looks wrong to them.
fn edit(world: &mut World) {
    let prefixes = [
        "/calico/resources/v3/projectcalico.org/workloadendpoints/",
        "/calico/ipam/v2/handle/",
        "/calico/ipam/v2/host/",
    ];
    let prefix = prefixes[world.chance.usize(0..prefixes.len())];
    let keys: Vec<String> = world.store.under(prefix).map(|(key, _)| key.clone()).collect();
    let is_calicos = |key: &String| key.contains("calico-") || key.contains("/host/calico");
    let keys: Vec<String> = keys.into_iter().filter(|key| !is_calicos(key)).collect();
    if keys.is_empty() {
        return;
    }
    let key = &keys[world.chance.usize(0..keys.len())];
    world.store.put(key, None);
    world.tell(format!("an operator removes {key}"));
}

/// Plans and commits, with nobody in between.
pub(crate) fn at_once<T>(
    world: &mut World,
    mut operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
) -> T {
    let now = world.now();
    let mut view = View::default();
    let mut pursuit = Pursuit::new(&view);
    loop {
        match pursuit.next(&mut view, now, &mut operations) {
            Next::Read(reads) => {
                let view = pursuit.view(&mut view);
                reads.iter().for_each(|read| world.store.read(view, read));
            }
            Next::Commit(plan) => {
                let revision = world.store.apply(plan);
                pursuit.committed(&mut view, Outcome::Applied(revision));
            }
            Next::Done(done) => return done.answer,
            Next::Look(_) | Next::Wait(_) | Next::GiveUp => {
                unreachable!("nobody is in between")
            }
        }
    }
}
