//! The steps of a change, in the order in which the kernel takes them.

use std::collections::{BTreeMap, BTreeSet};

use nft::{Batch, Chain, Element, Rule, Set, Table, TableId};

use crate::intent::{Intent, SetChange};

use super::state::{Litter, SetUse};

/// How many elements are written at once.
const ELEMENTS_AT_ONCE: usize = 4096;

/// Which of our tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum In {
    Inet,
    Arp,
}

/// What is to be done.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Whether whatever stands under our names goes first.
    pub(super) is_anew: bool,
    pub(super) sets: BTreeMap<(In, String), SetPlan>,
    pub(super) chains: BTreeMap<(In, String), ChainPlan>,
    pub(super) gone: Litter,
    /// Of these, the chains that packets come to by themselves.
    pub(super) gone_bases: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub(super) struct SetPlan {
    pub(super) set: Set,
    pub(super) is_new: bool,
    pub(super) fill: Fill,
}

/// How the elements change.
#[derive(Clone, Debug)]
pub(super) enum Fill {
    By {
        removed: Vec<Element>,
        added: Vec<Element>,
    },
    /// With these only, which come from members of IP sets.
    Anew(Vec<Element>),
    /// With all members of an IP set; those that stand go first.
    All(SetUse),
    /// With the members that came to an IP set, without those that went.
    Change(SetUse, SetChange),
}

#[derive(Clone, Debug)]
pub(super) struct ChainPlan {
    pub(super) chain: Chain,
    pub(super) is_new: bool,
    pub(super) rules: Vec<Rule>,
}

/// Who takes the steps.
pub(super) trait Sink {
    fn reset(&mut self);
    fn add_set(&mut self, table: In, set: &Set);
    fn add_chain(&mut self, table: In, chain: &Chain);
    fn flush_set(&mut self, table: In, set: &Set);
    fn delete_elements(&mut self, table: In, set: &Set, elements: &[Element]);
    fn add_elements(&mut self, table: In, set: &Set, elements: &[Element]);
    fn flush_chain(&mut self, table: In, chain: &str);
    fn add_rule(&mut self, table: In, rule: &Rule);
    fn delete_set(&mut self, table: In, set: &str);
    fn delete_chain(&mut self, table: In, chain: &str);
}

/// A packet that is among our rules when a transaction comes into force meets the rules of before,
/// but looks into sets and maps as they are now; and sets of ranges change a little later than all
/// else. A new chain has no rules in its eyes, which is to allow, and a set that comes or goes no
/// members. Hence three transactions for a change: what is new comes first, then what leads there,
/// and what nothing leads to any more goes last.
impl Plan {
    /// Takes all steps at once.
    pub(super) fn carry_out(&self, intent: &Intent, sink: &mut impl Sink) {
        if self.is_anew {
            sink.reset();
        }
        self.prepare(intent, sink);
        self.switch(intent, sink);
        self.tidy(sink);
    }

    /// Makes what is new. It may be there already, if the next step was refused then.
    pub(super) fn prepare(&self, intent: &Intent, sink: &mut impl Sink) {
        let sets = || self.sets.iter().filter(|(_, plan)| plan.is_new);
        let chains = || self.chains.iter().filter(|(_, plan)| plan.is_hidden());
        for ((table, _), plan) in sets() {
            sink.add_set(*table, &plan.set);
            if !self.is_anew {
                sink.flush_set(*table, &plan.set);
            }
        }
        for ((table, name), plan) in chains() {
            sink.add_chain(*table, &plan.chain);
            if !self.is_anew {
                sink.flush_chain(*table, name);
            }
        }
        for ((table, _), plan) in sets() {
            plan.fill(*table, intent, sink);
        }
        for ((table, _), plan) in chains() {
            plan.rules.iter().for_each(|rule| sink.add_rule(*table, rule));
        }
    }

    /// Changes what stands, and what packets come to by themselves.
    pub(super) fn switch(&self, intent: &Intent, sink: &mut impl Sink) {
        let chains = || self.chains.iter().filter(|(_, plan)| !plan.is_hidden());
        for ((table, name), plan) in chains().filter(|(_, plan)| plan.is_new) {
            sink.add_chain(*table, &plan.chain);
            if !self.is_anew {
                sink.flush_chain(*table, name);
            }
        }
        for ((table, _), plan) in self.sets.iter().filter(|(_, plan)| !plan.is_new) {
            plan.fill(*table, intent, sink);
        }
        for ((table, name), plan) in chains() {
            if !plan.is_new {
                sink.flush_chain(*table, name);
            }
            plan.rules.iter().for_each(|rule| sink.add_rule(*table, rule));
        }
        // Their rules must not decide any more, whatever becomes of the next step.
        self.gone_bases.iter().for_each(|chain| sink.flush_chain(In::Inet, chain));
    }

    /// Removes what nothing leads to any more.
    pub(super) fn tidy(&self, sink: &mut impl Sink) {
        // Maps hold the chains that they lead to, and rules the maps.
        self.gone.chains.iter().for_each(|chain| sink.flush_chain(In::Inet, chain));
        self.gone.sets.iter().for_each(|set| sink.delete_set(In::Inet, set));
        self.gone.chains.iter().for_each(|chain| sink.delete_chain(In::Inet, chain));
    }

    /// What nothing leads to before the switch.
    pub(super) fn fresh(&self) -> Litter {
        let chains = self.chains.iter().filter(|(_, plan)| plan.is_hidden());
        let sets = self.sets.iter().filter(|(_, plan)| plan.is_new);
        Litter {
            chains: chains.map(|((_, name), _)| name.clone()).collect(),
            sets: sets.map(|((_, name), _)| name.clone()).collect(),
        }
    }

    /// The sets that hold members of IP sets, by table and name.
    pub(super) fn ip_sets(&self) -> impl Iterator<Item = (In, &str)> {
        let all = self.sets.iter().filter(|(_, plan)| !matches!(plan.fill, Fill::By { .. }));
        all.map(|((table, name), _)| (*table, name.as_str()))
    }

    /// Takes elements from a set, or puts them into it.
    pub(super) fn change(&mut self, table: In, set: &Set, element: Element, is_there: bool) {
        let plan = self.sets.entry((table, set.name.clone())).or_insert_with(|| SetPlan {
            set: set.clone(),
            is_new: false,
            fill: Fill::By { removed: Vec::new(), added: Vec::new() },
        });
        if let Fill::By { removed, added } = &mut plan.fill {
            if is_there { added.push(element) } else { removed.push(element) }
        }
    }
}

impl ChainPlan {
    /// Whether no packet comes here unless something leads here.
    fn is_hidden(&self) -> bool {
        self.is_new && self.chain.base.is_none()
    }
}

impl SetPlan {
    fn fill(&self, table: In, intent: &Intent, sink: &mut impl Sink) {
        let set = &self.set;
        let (removed, added) = match &self.fill {
            Fill::By { removed, added } => (removed.clone(), added.clone()),
            Fill::Anew(elements) => {
                if !self.is_new {
                    sink.flush_set(table, set);
                }
                (Vec::new(), elements.clone())
            }
            Fill::Change(using, change) => match intent.sets.get(&using.id) {
                Some(now) => using.difference(now, change, set.has_ranges),
                None => using.difference(&Default::default(), change, set.has_ranges),
            },
            Fill::All(using) => {
                if !self.is_new {
                    sink.flush_set(table, set);
                }
                let Some(now) = intent.sets.get(&using.id) else { return };
                let mut elements = using.elements(now).peekable();
                while elements.peek().is_some() {
                    let some: Vec<Element> = elements.by_ref().take(ELEMENTS_AT_ONCE).collect();
                    sink.add_elements(table, set, &some);
                }
                return;
            }
        };
        if !removed.is_empty() {
            sink.delete_elements(table, set, &removed);
        }
        if !added.is_empty() {
            sink.add_elements(table, set, &added);
        }
    }
}

/// A transaction that takes the steps.
pub(super) struct Transaction {
    pub(super) batch: Batch,
    tables: [Table; 2],
}

impl Transaction {
    /// For these tables, as they are made.
    pub(super) fn new(tables: [Table; 2]) -> Self {
        Self { batch: Batch::new(), tables }
    }

    /// Has our tables be as they should, apart from what is in them.
    pub(super) fn turn(&mut self) {
        self.tables.iter().for_each(|table| self.batch.add_table(table));
    }

    /// Our tables go.
    pub(super) fn remove(&mut self) {
        self.tables.iter().for_each(|table| self.batch.delete_table(&table.id));
    }

    fn id(&self, table: In) -> TableId {
        let [inet, arp] = &self.tables;
        match table {
            In::Inet => inet.id.clone(),
            In::Arp => arp.id.clone(),
        }
    }
}

impl Sink for Transaction {
    fn reset(&mut self) {
        self.tables.iter().for_each(|table| self.batch.reset_table(table));
    }

    fn add_set(&mut self, table: In, set: &Set) {
        self.batch.add_set(&self.id(table), set);
    }

    fn add_chain(&mut self, table: In, chain: &Chain) {
        self.batch.add_chain(&self.id(table), chain);
    }

    fn flush_set(&mut self, table: In, set: &Set) {
        self.batch.flush_set(&self.id(table), &set.name);
    }

    fn delete_elements(&mut self, table: In, set: &Set, elements: &[Element]) {
        self.batch.delete_elements(&self.id(table), set, elements);
    }

    fn add_elements(&mut self, table: In, set: &Set, elements: &[Element]) {
        self.batch.add_elements(&self.id(table), set, elements);
    }

    fn flush_chain(&mut self, table: In, chain: &str) {
        self.batch.flush_chain(&self.id(table), chain);
    }

    fn add_rule(&mut self, table: In, rule: &Rule) {
        self.batch.add_rule(&self.id(table), rule);
    }

    fn delete_set(&mut self, table: In, set: &str) {
        self.batch.delete_set(&self.id(table), set);
    }

    fn delete_chain(&mut self, table: In, chain: &str) {
        self.batch.delete_chain(&self.id(table), chain);
    }
}
