//! The packet filter of this node: one table of ours, in which an interface drops until its
//! endpoint is committed.
//!
//! The rules stand still; what changes are elements of sets and of the map from interfaces to
//! chains. A packet's cost does not grow with the number of sandboxes.

mod ruleset;

use intent::Filter;
use kernel::nft::{Batch, Nft, Table, TableFamily, TableId};
use kernel::{Netns, Result};

use ruleset::Ruleset;

/// The name of our tables.
pub(crate) const TABLE: &str = "margay";

/// The kernel's side of the filter.
#[derive(Debug)]
pub(crate) struct FilterTable {
    nft: Nft,
    /// What the kernel holds; none if it has to be installed.
    installed: Option<Ruleset>,
}

impl FilterTable {
    /// For a namespace.
    pub(crate) fn new(netns: &Netns) -> Result<Self> {
        Ok(Self { nft: Nft::in_netns(netns)?, installed: None })
    }

    /// Somebody else has changed our table: it is installed anew.
    pub(crate) fn doubt(&mut self) {
        self.installed = None;
    }

    /// Makes the kernel's filter the wanted one, in one transaction.
    pub(crate) fn apply(&mut self, filter: &Filter) -> Result<()> {
        let wanted = Ruleset::of(filter);
        let mut batch = Batch::new();
        match &self.installed {
            Some(installed) => wanted.change(installed, &mut batch),
            None => wanted.install(&mut batch),
        }
        if batch.is_empty() {
            return Ok(());
        }
        // Whatever comes of the transaction, the old picture is not trusted any more.
        self.installed = None;
        self.nft.commit(&batch)?;
        self.installed = Some(wanted);
        Ok(())
    }
}

fn tables() -> [Table; 2] {
    [TableFamily::Inet, TableFamily::Arp].map(|family| Table::new(TableId::new(family, TABLE)))
}
