//! nf_tables: the ruleset changed in transactions, read back, and watched.
//!
//! The values and their encoding are crate `nft`.

mod monitor;

pub use ::nft::{
    Base, Batch, Chain, ChainKind, DataType, Element, ElementValue, Expression, Hook, Key,
    ListedRule, NamedCounter, Register, Rule, Set, SetKind, Source, Table, TableFamily, TableId,
    Verdict, expression, merged,
};
use ::nft::{batch, set};
use std::fmt;
use std::time::{Duration, Instant};

pub use monitor::{RulesetEvent, RulesetMonitor, Subject};

use crate::error::{Errno, Error, Failure, Result};
use crate::netns::Netns;
use crate::socket::{self, NETFILTER, Socket};
use crate::wire::{self, Malformed, Message, Writer};

const FIXED_LEN: usize = 4;
const GET_TABLE: u8 = 1;
const GET_CHAIN: u8 = 4;
const GET_RULE: u8 = 7;
const GET_SET: u8 = 10;
const GET_ELEMENTS: u8 = 13;
const GET_GENERATION: u8 = 16;
const GET_OBJECT: u8 = 19;
/// What is waited where the kernel cannot be asked.
const WITHOUT_BARRIER: Duration = Duration::from_millis(50);

/// Reads and changes the ruleset of the namespace it was opened in.
pub struct Nft {
    socket: Socket,
    netns: Option<Netns>,
}

impl fmt::Debug for Nft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nft")
    }
}

impl Nft {
    /// Opens a socket in the namespace of the calling thread. Owned tables belong to it.
    pub fn open() -> Result<Self> {
        Ok(Self { socket: Socket::open(NETFILTER, None, &[])?, netns: None })
    }

    /// Opens a socket that lives in `netns`, wherever it is used.
    pub fn in_netns(netns: &Netns) -> Result<Self> {
        let socket = Socket::open(NETFILTER, Some(netns), &[])?;
        Ok(Self { socket, netns: Some(netns.clone()) })
    }

    /// Takes another socket: tables that belonged to the one before belong to nobody, and stay if
    /// they are persistent.
    pub fn disown(&mut self) -> Result<()> {
        self.socket = Socket::open(NETFILTER, self.netns.as_ref(), &[])?;
        Ok(())
    }

    /// Commits a transaction: all of it, or nothing.
    ///
    /// What the kernel refuses comes back as [`Error::Rejected`] with each change that is wrong by
    /// name; a ruleset of another generation than the batch asks for as [`Error::Outdated`].
    pub fn commit(&mut self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let n_messages = u32::try_from(batch.len() + 2).unwrap_or(u32::MAX);
        let first = self.socket.reserve_sequences(n_messages);
        let writer = batch.encode(first);
        let attempt = format!("commit {} changes of the ruleset", batch.len());
        if !self.socket.widen_send_queue(writer.len()) {
            return Err(Error::TooLarge { attempt });
        }
        self.socket.send(&writer, &attempt)?;
        self.outcome(batch, first, &attempt)
    }

    /// The transaction is decided when the send returns: all answers are there.
    fn outcome(&mut self, batch: &Batch, first: u32, attempt: &str) -> Result<()> {
        let last = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        let (mut failures, mut is_acknowledged) = (Vec::new(), false);
        loop {
            let datagram = match self.socket.receive(Instant::now()) {
                Ok(Some(datagram)) => datagram,
                Ok(None) => break,
                Err(Errno::NOBUFS) => continue,
                Err(errno) => return Err(Error::system(attempt, errno)),
            };
            let malformed = |source| Error::Malformed { attempt: attempt.to_owned(), source };
            for message in wire::messages(datagram) {
                let message = message.map_err(malformed)?;
                let number = message.sequence.wrapping_sub(first);
                match socket::outcome(&message).map_err(malformed)? {
                    Some(Ok(())) => is_acknowledged |= number == last,
                    Some(Err(refusal)) if number <= last + 1 => {
                        failures.push(Failure { attempt: batch.attempt(number), refusal });
                    }
                    _ => {}
                }
            }
        }
        match (batch.generation(), failures.first()) {
            (Some(generation), Some(failure)) if failure.refusal.errno == Errno::RESTART => {
                Err(Error::Outdated { generation })
            }
            (_, Some(_)) => Err(Error::Rejected(failures)),
            (_, None) if is_acknowledged => Ok(()),
            (_, None) => Err(Error::Lost { attempt: attempt.to_owned() }),
        }
    }

    /// The number that grows with every transaction, whoever commits it.
    pub fn generation(&mut self) -> Result<u32> {
        let mut generation = 0;
        self.socket.request(
            &"read the generation of the ruleset",
            batch::kind(GET_GENERATION),
            0,
            |body| body.put(&[0; 4]),
            |message| {
                for attribute in wire::attributes_after(message.body, FIXED_LEN)? {
                    if let (1, value) = attribute? {
                        generation = wire::read_u32_be(value)?;
                    }
                }
                Ok(())
            },
        )?;
        Ok(generation)
    }

    /// All tables, others' included.
    pub fn tables(&mut self) -> Result<Vec<Table>> {
        let attempt = "list the tables";
        self.list(
            attempt,
            GET_TABLE,
            0,
            |_| {},
            |family, rest| Table::decode(family, rest).map(Some),
        )
    }

    /// The chains of a table, or of all.
    pub fn chains(&mut self, table: Option<&TableId>) -> Result<Vec<(TableId, Chain)>> {
        let family = family_of(table);
        self.list(
            "list the chains",
            GET_CHAIN,
            family,
            |_| {},
            |family, rest| {
                Ok(Some(Chain::decode(family, rest)?).filter(|(id, _)| is_wanted(table, id)))
            },
        )
    }

    /// The rules of a table, or of all, chain by chain in order, with counts.
    pub fn rules(&mut self, table: Option<&TableId>) -> Result<Vec<ListedRule>> {
        let fill = |body: &mut Writer| put_table(body, table);
        self.list("list the rules", GET_RULE, family_of(table), fill, |family, rest| {
            let listed = ListedRule::decode(family, rest)?;
            Ok(Some(listed).filter(|rule| is_wanted(table, &rule.table)))
        })
    }

    /// The rules of one chain, in order, with counts.
    pub fn rules_of(&mut self, table: &TableId, chain: &str) -> Result<Vec<Rule>> {
        let attempt = format!("list the rules of chain {chain} of {table}");
        let fill = |body: &mut Writer| {
            body.text(1, &table.name);
            body.text(2, chain);
        };
        self.list(&attempt, GET_RULE, table.family.code(), fill, |family, rest| {
            let listed = ListedRule::decode(family, rest)?;
            let is_its = listed.table == *table && listed.rule.chain == chain;
            Ok(is_its.then_some(listed.rule))
        })
    }

    /// The sets and maps of a table; those inside rules are left out.
    pub fn sets(&mut self, table: &TableId) -> Result<Vec<Set>> {
        let fill = |body: &mut Writer| put_table(body, Some(table));
        self.list("list the sets", GET_SET, table.family.code(), fill, |family, rest| {
            let decoded = Set::decode(family, rest)?;
            Ok(decoded.filter(|(id, _)| id == table).map(|(_, set)| set))
        })
    }

    /// The sets and maps of a table, with those inside rules.
    pub fn all_sets(&mut self, table: &TableId) -> Result<Vec<Set>> {
        let fill = |body: &mut Writer| put_table(body, Some(table));
        self.list("list the sets", GET_SET, table.family.code(), fill, |family, rest| {
            let (id, set, _) = Set::decode_any(family, rest)?;
            Ok((id == *table).then_some(set))
        })
    }

    /// The elements of a set or map.
    pub fn elements(&mut self, table: &TableId, set: &Set) -> Result<Vec<Element>> {
        let attempt = format!("list the elements of set {} of {table}", set.name);
        let fill = |body: &mut Writer| {
            body.text(1, &table.name);
            body.text(2, &set.name);
        };
        let decode = |_, rest: &[u8]| set::decode_elements(rest).map(Some);
        let parts = self.list(&attempt, GET_ELEMENTS, table.family.code(), fill, decode)?;
        Ok(set::join(set, parts.into_iter().flatten().collect()))
    }

    /// The counters with names of a table.
    pub fn counters(&mut self, table: &TableId) -> Result<Vec<NamedCounter>> {
        let fill = |body: &mut Writer| put_table(body, Some(table));
        self.list("list the counters", GET_OBJECT, table.family.code(), fill, |family, rest| {
            let decoded = NamedCounter::decode(family, rest)?;
            Ok(decoded.filter(|(id, _)| id == table).map(|(_, counter)| counter))
        })
    }

    fn list<T>(
        &mut self,
        attempt: &str,
        message: u8,
        family: u8,
        fill: impl Fn(&mut Writer),
        decode: impl Fn(u8, &[u8]) -> Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>> {
        self.socket.dump(
            &attempt,
            batch::kind(message),
            |body| {
                body.put(&[family, 0, 0, 0]);
                fill(body);
            },
            |message: &Message<'_>| {
                let (family, rest) = split(message.body)?;
                decode(family, rest)
            },
        )
    }
}

/// Waits until every packet that is among rules now has left them: some milliseconds.
///
/// A packet goes on by what it met first, whatever is committed meanwhile, and may be held up for
/// long if its processor is.
pub fn await_packets() {
    // The kernel answers when each processor has done with whatever it was about.
    if rustix::thread::membarrier(rustix::thread::MembarrierCommand::Global).is_err() {
        std::thread::sleep(WITHOUT_BARRIER);
    }
}

/// An object in a message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A table.
    Table(Table),
    /// A chain and its table.
    Chain(TableId, Chain),
    /// A rule.
    Rule(ListedRule),
    /// A set or map and its table.
    Set(TableId, Set),
    /// How many elements a message brings; what they mean depends on their set.
    Elements(usize),
    /// A counter and its table.
    Counter(TableId, NamedCounter),
}

/// Reads the objects of one datagram of the kernel, such as a recorded one. Messages about other
/// things are left out.
pub fn decode_objects(datagram: &[u8]) -> Result<Vec<Object>, Malformed> {
    let mut found = Vec::new();
    for message in wire::messages(datagram) {
        let message = message?;
        let [_, number] = message.kind.to_be_bytes();
        let (family, rest) = split(message.body)?;
        found.extend(match number {
            0 => Some(Object::Table(Table::decode(family, rest)?)),
            3 => Some(Chain::decode(family, rest)?).map(|(table, one)| Object::Chain(table, one)),
            6 => Some(Object::Rule(ListedRule::decode(family, rest)?)),
            9 => Set::decode(family, rest)?.map(|(table, one)| Object::Set(table, one)),
            12 => {
                let elements = set::decode_elements(rest)?;
                let ranges = Set::new("", &[DataType::Ipv4]).with_ranges();
                Some(Object::Elements(set::join(&ranges, elements).len()))
            }
            18 => {
                NamedCounter::decode(family, rest)?.map(|(table, one)| Object::Counter(table, one))
            }
            _ => None,
        });
    }
    Ok(found)
}

fn split(body: &[u8]) -> Result<(u8, &[u8]), Malformed> {
    match body {
        [family, _, _, _, rest @ ..] => Ok((*family, rest)),
        _ => Err(Malformed("an object is cut off")),
    }
}

fn family_of(table: Option<&TableId>) -> u8 {
    table.map_or(0, |table| table.family.code())
}

fn put_table(body: &mut Writer, table: Option<&TableId>) {
    if let Some(table) = table {
        body.text(1, &table.name);
    }
}

fn is_wanted(table: Option<&TableId>, found: &TableId) -> bool {
    table.is_none_or(|table| table == found)
}
