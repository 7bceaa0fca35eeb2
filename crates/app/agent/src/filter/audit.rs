//! Our tables read back from the kernel, and compared with what was committed.
//!
//! Events of the kernel tell of what others change; the audit finds what no event told of. It costs
//! one question where nobody but us has changed the ruleset since the last time.

use kernel::nft::{Rule, Set, TableId};
use kernel::{Error, Result};
use policy::intent::Intent;
use policy::render::{Filled, Renderer, Ruleset};

use super::netfilter::Netfilter;
use super::{FilterTable, Wanted, tables};

/// How often the tables are read if others change the ruleset meanwhile.
const READS_MAX: u32 = 8;

/// Our tables as they stood in one generation of the ruleset.
#[derive(Debug)]
pub(crate) struct Dump {
    generation: u32,
    /// Whether all of them are there, and see packets.
    is_in_force: bool,
    pub(super) ruleset: Ruleset,
}

/// What came of an audit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Audit {
    /// Our tables are what we made them.
    Same,
    /// They are not, and how.
    Drift(String),
    /// They were changed since they were read, or are not installed.
    Moved,
}

/// Reads our tables.
pub(crate) fn read(kernel: &mut impl Netfilter) -> Result<Dump> {
    for _ in 0..READS_MAX {
        let generation = kernel.generation()?;
        let read = read_once(kernel, generation);
        // What cannot be read because it went meanwhile is no error.
        if kernel.generation()? == generation {
            return read;
        }
    }
    Err(Error::Interrupted { attempt: "read our tables".to_owned(), attempts: READS_MAX })
}

fn read_once(kernel: &mut impl Netfilter, generation: u32) -> Result<Dump> {
    let present = kernel.tables()?;
    let mut dump = Dump { generation, is_in_force: true, ruleset: Ruleset::default() };
    for table in tables() {
        dump.is_in_force &= present.contains(&table);
        if !present.iter().any(|it| it.id == table.id) {
            continue;
        }
        let family = table.id.family;
        read_sets(kernel, &table.id, |set| !set.is_dynamic, &mut dump.ruleset)?;
        let chains = &mut dump.ruleset.chains;
        for chain in kernel.chains(&table.id)? {
            let rules: Vec<Rule> = Vec::new();
            chains.insert((family, chain.name.clone()), (chain, rules));
        }
        for listed in kernel.rules(&table.id)? {
            if let Some((_, rules)) = chains.get_mut(&(family, listed.rule.chain.clone())) {
                rules.push(listed.rule);
            }
        }
    }
    Ok(dump)
}

/// Reads the sets of a table, with the elements of those that matter.
pub(super) fn read_sets(
    kernel: &mut impl Netfilter,
    table: &TableId,
    matters: impl Fn(&Set) -> bool,
    into: &mut Ruleset,
) -> Result<()> {
    for set in kernel.sets(table)? {
        let elements = if matters(&set) { kernel.elements(table, &set)? } else { Vec::new() };
        let elements = elements.into_iter().map(|it| (it.key.clone(), it)).collect();
        let filled = Filled { set, elements, is_of_cluster: false };
        into.sets.insert((table.family, filled.set.name.clone()), filled);
    }
    Ok(())
}

impl<K: Netfilter> FilterTable<K> {
    /// Whether nobody but us has changed the ruleset since our tables were known to be right, or
    /// there are none to look at.
    pub(crate) fn is_vouched(&mut self) -> bool {
        self.installed.is_none() || {
            let now = self.kernel.generation().ok();
            now.is_some() && now == self.vouched
        }
    }

    /// Whether others have changed our tables before what is wanted was carried out.
    pub(super) fn has_drifted(&mut self, renderer: &Renderer, wanted: &Wanted<'_>) -> bool {
        let Ok(dump) = self.ask(read) else { return false };
        // What is dirty has the members of before, which nobody knows any more.
        let mut before = renderer.clone();
        before.refused(wanted.dirty);
        !dump.is_in_force || before.drift(wanted.intent, &dump.ruleset).is_some()
    }

    /// Compares what was read with what was made for an intent.
    pub(crate) fn audit(&mut self, intent: &Intent, dump: &Dump) -> Result<Audit> {
        let Some(renderer) = &self.installed else { return Ok(Audit::Moved) };
        if self.kernel.generation()? != dump.generation {
            return Ok(Audit::Moved);
        }
        if !dump.is_in_force {
            return Ok(Audit::Drift("a table is missing or sees no packets".to_owned()));
        }
        Ok(match renderer.drift(intent, &dump.ruleset) {
            Some(words) => Audit::Drift(words),
            None => {
                self.vouched = Some(dump.generation);
                Audit::Same
            }
        })
    }
}
