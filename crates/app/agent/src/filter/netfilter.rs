//! What the filter asks of the kernel.

use std::fmt::Debug;
use std::time::Duration;

use kernel::Result;
use kernel::nft::{Batch, Chain, Element, ListedRule, Nft, Set, Table, TableId};

/// The ruleset of a network namespace.
pub(crate) trait Netfilter: Debug {
    /// Commits a transaction: all of it, or nothing.
    fn commit(&mut self, batch: &Batch) -> Result<()>;
    /// Tables that are ours alone are so no more.
    fn disown(&mut self) -> Result<()>;
    /// The number that grows with every transaction, whoever commits it.
    fn generation(&mut self) -> Result<u32>;
    /// All tables, others' included.
    fn tables(&mut self) -> Result<Vec<Table>>;
    /// The chains of a table.
    fn chains(&mut self, table: &TableId) -> Result<Vec<Chain>>;
    /// The rules of a table, chain by chain in order.
    fn rules(&mut self, table: &TableId) -> Result<Vec<ListedRule>>;
    /// The sets and maps of a table.
    fn sets(&mut self, table: &TableId) -> Result<Vec<Set>>;
    /// The elements of a set or map.
    fn elements(&mut self, table: &TableId, set: &Set) -> Result<Vec<Element>>;
    /// Waits until every packet that is among rules now has left them.
    fn await_packets(&mut self);
    /// Leaves the kernel alone for a moment.
    fn rest(&mut self, pause: Duration);
}

impl Netfilter for Nft {
    fn commit(&mut self, batch: &Batch) -> Result<()> {
        Self::commit(self, batch)
    }

    fn disown(&mut self) -> Result<()> {
        Self::disown(self)
    }

    fn generation(&mut self) -> Result<u32> {
        Self::generation(self)
    }

    fn tables(&mut self) -> Result<Vec<Table>> {
        Self::tables(self)
    }

    fn chains(&mut self, table: &TableId) -> Result<Vec<Chain>> {
        Ok(Self::chains(self, Some(table))?.into_iter().map(|(_, chain)| chain).collect())
    }

    fn rules(&mut self, table: &TableId) -> Result<Vec<ListedRule>> {
        Self::rules(self, Some(table))
    }

    fn sets(&mut self, table: &TableId) -> Result<Vec<Set>> {
        Self::sets(self, table)
    }

    fn elements(&mut self, table: &TableId, set: &Set) -> Result<Vec<Element>> {
        Self::elements(self, table, set)
    }

    fn await_packets(&mut self) {
        kernel::nft::await_packets();
    }

    fn rest(&mut self, pause: Duration) {
        std::thread::sleep(pause);
    }
}
