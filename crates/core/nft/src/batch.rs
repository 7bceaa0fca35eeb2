//! A transaction: many changes of the ruleset that take effect together or not at all.

use crate::set::{Element, Set};
use crate::table::{Chain, NamedCounter, Rule, Table, TableId};
use crate::wire::{self, APPEND, CREATE, EXCLUSIVE, REPLACE, Writer};

/// The number of nf_tables among the parts of netfilter.
const SUBSYSTEM: u16 = 10;
/// The kernel counts the length of a nest in 16 bits; the rest is for what stands around it.
const ELEMENTS_LEN_MAX: usize = 60_000;

const NEW_TABLE: u8 = 0;
const DELETE_TABLE: u8 = 2;
const NEW_CHAIN: u8 = 3;
const DELETE_CHAIN: u8 = 5;
const NEW_RULE: u8 = 6;
const DELETE_RULE: u8 = 8;
const NEW_SET: u8 = 9;
const DELETE_SET: u8 = 11;
const NEW_ELEMENTS: u8 = 12;
const DELETE_ELEMENTS: u8 = 14;
const NEW_OBJECT: u8 = 18;
const DELETE_OBJECT: u8 = 20;
const BEGIN: u16 = 0x10;
const END: u16 = 0x11;
const GENERATION: u16 = 1;

/// The type of a message of nf_tables.
pub fn kind(message: u8) -> u16 {
    (SUBSYSTEM << 8) | u16::from(message)
}

/// Changes to be committed together by [``kernel::nft::Nft::commit``], in this order.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    writer: Writer,
    /// Where each message starts, and what it does.
    attempts: Vec<(usize, String)>,
    generation: Option<u32>,
    n_sets: u32,
}

impl Batch {
    /// An empty transaction.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// How many messages it is.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Commits only if nobody has changed the ruleset since it had this generation.
    pub fn if_generation(&mut self, generation: u32) {
        self.generation = Some(generation);
    }

    /// Adds a table, or does nothing if it exists.
    pub fn add_table(&mut self, table: &Table) {
        let attempt = format!("add {}", table.id);
        self.put(NEW_TABLE, CREATE, &table.id, attempt, |body| table.encode(body));
    }

    /// Deletes a table with everything in it; an error if it does not exist.
    pub fn delete_table(&mut self, table: &TableId) {
        let attempt = format!("delete {table}");
        self.put(DELETE_TABLE, 0, table, attempt, |body| body.text(1, &table.name));
    }

    /// Empties a table whether it exists or not, which leaves it there with nothing in it.
    pub fn reset_table(&mut self, table: &Table) {
        // So that there is one to delete, whatever it is like.
        let attempt = format!("add {}", table.id);
        self.put(NEW_TABLE, CREATE, &table.id, attempt, |body| body.text(1, &table.id.name));
        self.delete_table(&table.id);
        self.add_table(table);
    }

    /// Adds a chain, or does nothing if it exists and agrees. The devices of an existing chain
    /// are added to.
    pub fn add_chain(&mut self, table: &TableId, chain: &Chain) {
        let attempt = format!("add chain {} to {table}", chain.name);
        self.put(NEW_CHAIN, CREATE, table, attempt, |body| chain.encode(table, body));
    }

    /// Deletes a chain, which must be empty and jumped to by nobody.
    pub fn delete_chain(&mut self, table: &TableId, chain: &str) {
        let attempt = format!("delete chain {chain} of {table}");
        self.put(DELETE_CHAIN, 0, table, attempt, |body| {
            body.text(1, &table.name);
            body.text(3, chain);
        });
    }

    /// Deletes the rules of a chain.
    pub fn flush_chain(&mut self, table: &TableId, chain: &str) {
        let attempt = format!("flush chain {chain} of {table}");
        self.put(DELETE_RULE, 0, table, attempt, |body| {
            body.text(1, &table.name);
            body.text(2, chain);
        });
    }

    /// Adds a rule to the end of its chain.
    pub fn add_rule(&mut self, table: &TableId, rule: &Rule) {
        let attempt = described("add rule", table, rule);
        self.put(NEW_RULE, CREATE | APPEND, table, attempt, |body| rule.encode(table, body));
    }

    /// Puts a rule in the place of the one with this handle.
    pub fn replace_rule(&mut self, table: &TableId, handle: u64, rule: &Rule) {
        let attempt = described("replace rule", table, rule);
        self.put(NEW_RULE, REPLACE, table, attempt, |body| {
            rule.encode(table, body);
            body.u64_be(3, handle);
        });
    }

    /// Deletes the rule with this handle.
    pub fn delete_rule(&mut self, table: &TableId, chain: &str, handle: u64) {
        let attempt = format!("delete rule {handle} of chain {chain} of {table}");
        self.put(DELETE_RULE, 0, table, attempt, |body| {
            body.text(1, &table.name);
            body.text(2, chain);
            body.u64_be(3, handle);
        });
    }

    /// Adds a set or map, or does nothing if it exists and agrees.
    pub fn add_set(&mut self, table: &TableId, set: &Set) {
        self.n_sets += 1;
        let id = self.n_sets;
        let attempt = format!("add set {} to {table}", set.name);
        self.put(NEW_SET, CREATE, table, attempt, |body| set.encode(table, id, body));
    }

    /// Deletes a set or map, which no rule must use.
    pub fn delete_set(&mut self, table: &TableId, set: &str) {
        let attempt = format!("delete set {set} of {table}");
        self.put(DELETE_SET, 0, table, attempt, |body| {
            body.text(1, &table.name);
            body.text(2, set);
        });
    }

    /// Deletes all elements of a set or map.
    pub fn flush_set(&mut self, table: &TableId, set: &str) {
        let attempt = format!("flush set {set} of {table}");
        self.put(DELETE_ELEMENTS, 0, table, attempt, |body| {
            body.text(1, &table.name);
            body.text(2, set);
        });
    }

    /// Adds elements; those that are there already, and agree, stay.
    pub fn add_elements(&mut self, table: &TableId, set: &Set, elements: &[Element]) {
        self.put_elements(NEW_ELEMENTS, CREATE, table, set, elements);
    }

    /// Adds elements that must not be there.
    pub fn create_elements(&mut self, table: &TableId, set: &Set, elements: &[Element]) {
        self.put_elements(NEW_ELEMENTS, CREATE | EXCLUSIVE, table, set, elements);
    }

    /// Deletes elements; an error if one is not there.
    pub fn delete_elements(&mut self, table: &TableId, set: &Set, elements: &[Element]) {
        self.put_elements(DELETE_ELEMENTS, 0, table, set, elements);
    }

    /// Adds a counter with a name, or does nothing if it exists.
    pub fn add_counter(&mut self, table: &TableId, name: &str) {
        let attempt = format!("add counter {name} to {table}");
        let fill = |body: &mut Writer| NamedCounter::encode(table, name, body);
        self.put(NEW_OBJECT, CREATE, table, attempt, fill);
    }

    /// Deletes a counter, which no rule must use.
    pub fn delete_counter(&mut self, table: &TableId, name: &str) {
        let attempt = format!("delete counter {name} of {table}");
        let fill = |body: &mut Writer| NamedCounter::encode(table, name, body);
        self.put(DELETE_OBJECT, 0, table, attempt, fill);
    }

    fn put_elements(
        &mut self,
        message: u8,
        flags: u16,
        table: &TableId,
        set: &Set,
        elements: &[Element],
    ) {
        let verb = if message == NEW_ELEMENTS { "add" } else { "delete" };
        let mut rest = elements;
        while !rest.is_empty() {
            let mut list = Writer::default();
            let mut n_taken = 0;
            while let Some(element) = rest.get(n_taken).filter(|_| list.len() < ELEMENTS_LEN_MAX) {
                element.encode(set, &mut list);
                n_taken += 1;
            }
            let attempt = format!("{verb} {n_taken} elements of set {} of {table}", set.name);
            self.put(message, flags, table, attempt, |body| {
                body.text(1, &table.name);
                body.text(2, &set.name);
                body.nest(3, |nest| nest.put(list.bytes()));
            });
            rest = rest.get(n_taken..).unwrap_or(&[]);
        }
    }

    fn put(
        &mut self,
        message: u8,
        flags: u16,
        table: &TableId,
        attempt: String,
        fill: impl FnOnce(&mut Writer),
    ) {
        self.attempts.push((self.writer.len(), attempt));
        self.writer.message(kind(message), flags | wire::REQUEST, 0, |body| {
            body.put(&[table.family.code(), 0, 0, 0]);
            fill(body);
        });
    }

    /// The bytes of the transaction; its messages are numbered from `first` on, the frame included,
    /// and the last change asks for an acknowledgement.
    pub fn encode(&self, first: u32) -> Writer {
        let mut writer = Writer::default();
        writer.message(BEGIN, wire::REQUEST, first, |body| {
            frame(body);
            if let Some(generation) = self.generation {
                body.u32_be(GENERATION, generation);
            }
        });
        let start = writer.len();
        writer.append(&self.writer);
        let mut sequence = first;
        for (at, _) in &self.attempts {
            sequence = sequence.wrapping_add(1);
            writer.set_sequence(start + at, sequence);
        }
        if let Some((at, _)) = self.attempts.last() {
            writer.add_flags(start + at, wire::ACK);
        }
        writer.message(END, wire::REQUEST, sequence.wrapping_add(1), frame);
        writer
    }

    /// What the message with this number after the first does.
    pub fn attempt(&self, after_first: u32) -> String {
        let at = (after_first as usize).checked_sub(1);
        let found = at.and_then(|at| self.attempts.get(at));
        found.map_or_else(|| "commit the ruleset".to_owned(), |(_, attempt)| attempt.clone())
    }

    /// The generation of the ruleset that it asks for.
    pub fn generation(&self) -> Option<u32> {
        self.generation
    }
}

fn frame(body: &mut Writer) {
    body.put(&[0, 0]);
    body.put(&SUBSYSTEM.to_be_bytes());
}

fn described(verb: &str, table: &TableId, rule: &Rule) -> String {
    let comment = rule.comment.as_deref().map(|text| format!(" {text:?}")).unwrap_or_default();
    format!("{verb}{comment} in chain {} of {table}", rule.chain)
}
