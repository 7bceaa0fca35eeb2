//! The packet filter of this node: one table of ours, in which an interface drops until its
//! endpoint is committed.
//!
//! The rules stand still; what changes are elements of sets and of the map from interfaces to
//! chains. A packet's cost does not grow with the number of sandboxes.

mod partly;
mod ruleset;

use std::collections::VecDeque;
use std::net::IpAddr;

use intent::{Filter, InSync};
use kernel::nft::{Batch, Nft, Table, TableFamily, TableId};
use kernel::{Netns, Result};

pub(crate) use partly::Absent;
use ruleset::Ruleset;

pub(crate) use host::marks::TABLE;

/// How many of our transactions are remembered: their events are on the way for a moment only.
const OWN_MAX: usize = 1024;

/// The kernel's side of the filter.
#[derive(Debug)]
pub(crate) struct FilterTable {
    nft: Nft,
    /// What the kernel holds; none if it has to be installed.
    installed: Option<Filter>,
    /// The generations of the ruleset that our last transactions made.
    own: VecDeque<u32>,
    /// Whether somebody else changed or removed our tables.
    is_lost: bool,
    is_repaired: bool,
}

impl FilterTable {
    /// For a namespace.
    pub(crate) fn new(netns: &Netns) -> Result<Self> {
        let nft = Nft::in_netns(netns)?;
        let own = VecDeque::new();
        Ok(Self { nft, installed: None, own, is_lost: false, is_repaired: false })
    }

    /// Somebody else has changed our tables, or may have: they are installed anew.
    pub(crate) fn doubt(&mut self, is_sure: bool) {
        if self.installed.take().is_some() {
            self.is_lost |= is_sure || !self.stands();
        }
    }

    /// Whether we made this generation of the ruleset. The kernel names the thread that did, which
    /// may be any of ours, by a number that means nothing inside a container.
    pub(crate) fn is_own(&self, generation: u32) -> bool {
        self.own.contains(&generation)
    }

    /// How many interfaces the kernel knows.
    pub(crate) fn count(&mut self) -> usize {
        match &self.installed {
            Some(installed) => installed.ports.len(),
            None => partly::n_interfaces(&mut self.nft).unwrap_or(0),
        }
    }

    /// Whether tables that somebody else had changed or removed were put right since the last time.
    pub(crate) fn take_repaired(&mut self) -> bool {
        std::mem::take(&mut self.is_repaired)
    }

    /// Whether our tables are there; who cannot look does not say that they are gone.
    fn stands(&mut self) -> bool {
        let present = self.nft.tables();
        present.map_or(true, |present| {
            tables().iter().all(|ours| present.iter().any(|table| table.id == ours.id))
        })
    }

    /// What the kernel's filter lacks of an interface with these addresses, in words.
    pub(crate) fn faults(&mut self, interface: &str, addresses: &[IpAddr]) -> Result<Vec<String>> {
        if !self.stands() {
            return Ok(vec![format!("the table {TABLE} of the packet filter is missing")]);
        }
        let mut faults = Vec::new();
        for (table, name, key) in ruleset::membership(interface, addresses) {
            let table = &tables()[table].id;
            let sets = self.nft.sets(table)?;
            let is_there = match sets.iter().find(|set| set.name == name) {
                Some(set) => self.nft.elements(table, set)?.iter().any(|it| it.key == key),
                None => false,
            };
            if !is_there {
                faults.push(format!("the packet filter does not know {interface} ({name})"));
            }
        }
        Ok(faults)
    }

    /// Makes the kernel's filter the wanted one, in one transaction.
    pub(crate) fn apply(&mut self, _: InSync, wanted: Filter) -> Result<()> {
        let mut batch = Batch::new();
        match &self.installed {
            Some(installed) => Ruleset::change(&wanted, installed, &mut batch),
            None => Ruleset::of(&wanted).install(&mut batch),
        }
        if batch.is_empty() {
            return Ok(());
        }
        // Whatever comes of the transaction, the old picture is not trusted any more.
        self.installed = None;
        self.commit(&batch)?;
        self.is_repaired |= std::mem::take(&mut self.is_lost);
        self.installed = Some(wanted);
        Ok(())
    }

    /// Makes the kernel's filter hold these as well, and nothing of what is absent; everything else
    /// in it stays. For a node that knows only its own part.
    pub(crate) fn apply_partly(&mut self, filter: &Filter, absent: &Absent) -> Result<()> {
        self.installed = None;
        let wanted = Ruleset::of(filter);
        let mut batch = Batch::new();
        match self.stands() {
            true => wanted.complete(&partly::read(&mut self.nft)?, absent, &mut batch),
            false => wanted.install(&mut batch),
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.commit(&batch)?;
        self.is_repaired |= std::mem::take(&mut self.is_lost);
        Ok(())
    }

    fn commit(&mut self, batch: &Batch) -> Result<()> {
        let before = self.nft.generation()?;
        self.nft.commit(batch)?;
        let after = self.nft.generation()?;
        // If others came in between, nobody can say which one is ours: it counts as theirs, and
        // the tables are installed once more.
        if after == before.wrapping_add(1) {
            if self.own.len() >= OWN_MAX {
                self.own.pop_front();
            }
            self.own.push_back(after);
        }
        Ok(())
    }
}

fn tables() -> [Table; 2] {
    [TableFamily::Inet, TableFamily::Arp].map(|family| Table::new(TableId::new(family, TABLE)))
}
