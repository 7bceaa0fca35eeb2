//! Everything anew, while something else is in force.
//!
//! A table that is emptied and filled in one transaction lets packets through that are in it at
//! that moment, so another one is in force until it is done. Both are made while they see no
//! packets: a table that does is complete, whenever this comes to an end.

use nft::{Table, TableFamily, TableId};

use crate::intent::{Intent, Workload};

use super::plan::{Sink as _, Transaction};
use super::settings::Surroundings;
use super::{Change, Part, Renderer, Settings, Step, whole};

/// Whether our tables stand, and see packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The ones that should.
    pub own: Option<bool>,
    /// The ones that do while those are made anew.
    pub meanwhile: Option<bool>,
}

impl Renderer {
    /// Which of our tables stand, as `present` tells of all tables.
    pub fn standing(&self, present: &[Table]) -> Standing {
        let of = |name: &str| {
            let is_ours = |it: &&Table| it.id.name == name && it.id.family == TableFamily::Inet;
            present.iter().find(is_ours).map(|table| !table.is_dormant)
        };
        Standing { own: of(&self.settings.table), meanwhile: of(&self.meanwhile()) }
    }

    /// Everything anew where something stands under our names already, as `present` tells of all
    /// tables: without a moment in which nothing is in force, or half of it.
    pub fn replace(
        &self,
        intent: &Intent,
        surroundings: &Surroundings,
        present: &[Table],
    ) -> Change {
        let other = self.for_meanwhile();
        let mut change = self.laid(intent, surroundings);
        let own = std::mem::take(&mut change.steps).into_iter().chain([self.woken()]);
        let Standing { own: is_in_force, meanwhile } = self.standing(present);
        match (is_in_force, meanwhile) {
            (Some(true), before) => {
                let mut laid = other.laid(intent, surroundings).steps.into_iter();
                if before.is_some() {
                    change.steps.push(other.silenced(present));
                    change.steps.extend(laid.next().map(Step::waiting));
                }
                change.steps.extend(laid.chain([other.woken(), self.silenced(present).waiting()]));
                let mut own = own;
                change.steps.extend(own.next().map(Step::waiting));
                change.steps.extend(own);
            }
            // One before us did not come to its end: the other table is in force.
            (_, Some(_)) => change.steps.extend(own),
            // Nothing is in force: what is new waits until everything is. Small and at once.
            (_, None) if !intent.workloads.is_empty() => {
                change.steps.extend(other.install(&closed(intent), surroundings).steps);
                change.steps.extend(own);
            }
            (_, None) => {
                change.steps.extend(own);
                return change;
            }
        }
        change.steps.extend([other.silenced(present).waiting(), other.removed().waiting()]);
        change
    }

    /// The name of the tables that are in force while ours are made anew.
    pub fn meanwhile(&self) -> String {
        format!("{}-meanwhile", self.settings.table)
    }

    /// One that renders the same for these tables, of which it knows nothing.
    pub fn for_meanwhile(&self) -> Self {
        let (table, is_owned) = (self.meanwhile(), false);
        Self::new(Settings { table, is_owned, ..self.settings.clone() })
    }

    /// Everything anew in tables that see no packets, whatever stands in them.
    pub fn laid(&self, intent: &Intent, surroundings: &Surroundings) -> Change {
        let (mut change, plan) = self.drafted(intent, &whole(intent), surroundings, true);
        let first = self.silent_step(|it| {
            it.reset();
            plan.prepare(intent, it);
        });
        change.steps = vec![first, self.silent_step(|it| plan.switch(intent, it))];
        change
    }

    /// Our tables see packets from now on.
    pub fn woken(&self) -> Step {
        self.step(Part::Switch, Transaction::turn)
    }

    /// Our tables see packets no more. The kernel takes that only with what else it knows of them,
    /// as `present` tells.
    pub fn silenced(&self, present: &[Table]) -> Step {
        let tables = self.tables().map(|ours| {
            let stands = present.iter().find(|it| it.id == ours.id).cloned();
            Table { is_dormant: true, ..stands.unwrap_or(ours) }
        });
        Step::with(tables, Part::Switch, Transaction::turn)
    }

    /// Our tables, which see packets, are the own of who commits this: nobody else may change them
    /// from now on. While they are, the kernel does not let them be silenced.
    pub fn owned(&self) -> Step {
        let tables = self.tables().map(|table| Table { is_owned: true, ..table });
        Step::with(tables, Part::Switch, Transaction::turn)
    }

    /// Our tables go.
    pub fn removed(&self) -> Step {
        self.step(Part::Switch, Transaction::remove)
    }

    /// Our tables as they are made. Those that are to be owned stay when their owner goes.
    pub(super) fn tables(&self) -> [Table; 2] {
        [TableFamily::Inet, TableFamily::Arp].map(|family| {
            let id = TableId::new(family, &self.settings.table);
            Table { is_persistent: self.settings.is_owned, ..Table::new(id) }
        })
    }

    fn silent_step(&self, fill: impl FnOnce(&mut Transaction)) -> Step {
        let tables = self.tables().map(|table| Table { is_dormant: true, ..table });
        Step::with(tables, Part::Switch, fill)
    }
}

/// Lets nothing new through to workloads and from them; what was begun goes on.
fn closed(intent: &Intent) -> Intent {
    let closed = |workload: &Workload| Workload {
        tiers: Vec::new(),
        profiles: Vec::new(),
        ..workload.clone()
    };
    let workloads = intent.workloads.iter().map(|(key, it)| (key.clone(), closed(it)));
    Intent { workloads: workloads.collect(), ..Intent::default() }
}

impl Step {
    /// The same, once no packet is under way any more that has met what stood before.
    #[must_use]
    pub fn waiting(self) -> Self {
        Self { waits: true, ..self }
    }
}
