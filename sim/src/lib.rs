//! A made-up cluster that runs the shipped decisions: address management, the courses of sandboxes,
//! what a node should hold, and the join of its witnesses.
//!
//! Everything follows from one number. Agents, machines, the datastore, runtimes, Calico beside us
//! and operators take turns in an order that is drawn; each does one step, so that anything can
//! happen between any two. After every step the laws are checked; when the faults stop, everybody
//! gets one pass of the join, and nothing may be left over.

mod laws;
mod look;
mod node;
mod options;
mod others;
mod runtime;
mod store;
mod trace;
mod work;
mod world;

pub use options::{Bug, Options};

use world::World;

/// A law that was broken.
#[derive(Clone, Debug)]
pub struct Broken {
    /// What to give to [`run`] to see it again.
    pub seed: u64,
    /// At which step.
    pub step: usize,
    /// What is wrong.
    pub what: String,
    /// What happened lately to the addresses and the containers that it is about.
    pub history: Vec<String>,
    /// What happened, the last things last.
    pub trace: Vec<String>,
}

/// What runs have seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// How many steps there were.
    pub steps: usize,
    /// How many nodes.
    pub nodes: usize,
    /// How often an agent was killed.
    pub crashes: usize,
    /// How many sandboxes came up.
    pub sandboxes: usize,
    /// How many of them with an address of the reserve.
    pub from_reserve: usize,
    /// How many of them with an IPv6 address.
    pub with_ipv6: usize,
    /// How many of them were not the first interface of their container.
    pub second_interfaces: usize,
    /// How many transactions the datastore applied.
    pub transactions: i64,
}

impl std::ops::Add for Summary {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            nodes: self.nodes + other.nodes,
            crashes: self.crashes + other.crashes,
            sandboxes: self.sandboxes + other.sandboxes,
            from_reserve: self.from_reserve + other.from_reserve,
            with_ipv6: self.with_ipv6 + other.with_ipv6,
            second_interfaces: self.second_interfaces + other.second_interfaces,
            transactions: self.transactions + other.transactions,
        }
    }
}

/// Runs a cluster from a number.
pub fn run(seed: u64, options: &Options) -> Result<Summary, Box<Broken>> {
    let mut world = World::new(seed, options, false);
    match world.run() {
        Ok(()) => Ok(world.summary()),
        Err(_) => Err(Box::new(retold(seed, options))),
    }
}

/// Runs a cluster that breaks a law once more, with words.
fn retold(seed: u64, options: &Options) -> Broken {
    let mut world = World::new(seed, options, true);
    let violation = world.run().expect_err("a run is a function of its seed and its options");
    let (step, trace) = (world.step, world.trace.into_lines());
    let history = trace::history(&trace, &violation.about);
    Broken { seed, step, what: violation.what, history, trace }
}

#[cfg(test)]
mod tests;
