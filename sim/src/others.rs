//! Who else writes: Calico on other nodes, its collector, and operators.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::{AutoAssign, Next, Outcome, Planned, Planner, Pursuit, Release, View};

use crate::options::Bug;
use crate::trace::{addresses, short};
use crate::world::{Container, State, World};

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Others {
    nodes: Vec<String>,
    /// The pods on Calico's nodes, by handle.
    pub(crate) pods: BTreeMap<String, Vec<IpAddr>>,
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
        let rate = world.options.edit;
        if world.happens(rate) {
            return edit(world);
        }
        match world.chance.u8(0..19) {
            0..5 => self.make(world),
            5..8 => self.remove(world),
            8..10 => give_up_an_empty_block(world),
            10..14 => self.find(world),
            _ => self.collect(world),
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
            num4: world.families.0.into(),
            num6: world.families.1.into(),
            handle: Some(handle.clone()),
            attributes,
            purpose: "Workload".to_owned(),
            ..AutoAssign::default()
        };
        let assigned = at_once(world, |planner| planner.auto_assign(&request));
        let given: Vec<IpAddr> = assigned.addresses().map(|network| network.address()).collect();
        if !given.is_empty() {
            world.tell(|| format!("Calico gives{} to {handle}", addresses(&given)));
            self.pods.insert(handle, given);
        }
    }

    fn remove(&mut self, world: &mut World) {
        let handle = self.pods.keys().nth(world.chance.usize(0..self.pods.len().max(1))).cloned();
        let Some(handle) = handle else { return };
        let _ = at_once(world, |planner| planner.release_by_handle(&handle));
        let gone = self.pods.remove(&handle).unwrap_or_default();
        world.tell(|| format!("Calico releases{} of {handle}", addresses(&gone)));
    }

    /// The collector looks for addresses of containers that are gone.
    fn find(&mut self, world: &World) {
        let handle = |it: &Container| it.asked.identity.handle(it.asked.network);
        let is_gone =
            |it: &&Container| matches!(it.state, State::Stopping | State::Deleting | State::Gone);
        let (gone, there): (Vec<&Container>, Vec<&Container>) =
            world.containers.iter().partition(is_gone);
        // An interface may be gone while another one of the container lives.
        let there: BTreeSet<String> = there.into_iter().map(handle).collect();
        let gone: BTreeSet<String> =
            gone.into_iter().map(handle).filter(|it| !there.contains(it)).collect();
        for block in world.store.blocks() {
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
        world.tell(|| format!("the collector releases {} of {}", release.address, release.handle));
    }
}

/// Calico takes claims on empty blocks away from nodes that do not need them.
fn give_up_an_empty_block(world: &mut World) {
    let all: Vec<net::Cidr> = world.store.blocks().map(|block| block.cidr).collect();
    if all.is_empty() {
        return;
    }
    let cidr = all[world.chance.usize(0..all.len())];
    if at_once(world, |planner| planner.release_block_affinity(cidr, true)).is_ok() {
        world.tell(|| format!("Calico gives {cidr} up if it is empty"));
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
    world.tell(|| format!("an operator removes {}", short(key)));
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
