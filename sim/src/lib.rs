//! A made-up cluster that runs the shipped decisions: address management, the courses of sandboxes,
//! what a node should hold, and the join of its witnesses.
//!
//! Everything follows from one number. Agents, machines, the datastore, runtimes, Calico beside us
//! and operators take turns in an order that is drawn; each does one step, so that anything can
//! happen between any two. After every step the laws are checked; when the faults stop, everybody
//! gets one pass of the join, and nothing may be left over.

mod laws;
mod node;
mod options;
mod others;
mod store;
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
    /// What happened, the last things last.
    pub trace: Vec<String>,
}

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// How many steps there were.
    pub steps: usize,
    /// How many sandboxes came up.
    pub sandboxes: usize,
    /// How many of them with an address of the reserve.
    pub from_reserve: usize,
    /// How many transactions the datastore applied.
    pub transactions: i64,
}

impl std::ops::Add for Summary {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            sandboxes: self.sandboxes + other.sandboxes,
            from_reserve: self.from_reserve + other.from_reserve,
            transactions: self.transactions + other.transactions,
        }
    }
}

/// Runs a cluster from a number.
pub fn run(seed: u64, options: &Options) -> Result<Summary, Box<Broken>> {
    let mut world = World::new(seed, options);
    let result = world.run();
    result.map_err(|what| {
        let (step, trace) = (world.step, std::mem::take(&mut world.trace));
        Box::new(Broken { seed, step, what, trace })
    })?;
    Ok(world.summary())
}

#[cfg(test)]
mod tests;
