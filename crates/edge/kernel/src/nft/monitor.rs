//! Changes of the ruleset as they happen, whoever makes them.

use std::fmt;

use crate::error::Result;
use crate::listen::{self, Listener};
use crate::netns::Netns;
use crate::socket::{NETFILTER, Socket};
use crate::wire::{self, Malformed, Message};
use ::nft::{TableFamily, TableId};

const GROUP: u32 = 7;
const FIXED_LEN: usize = 4;
const NEW_GENERATION: u8 = 15;

/// What sort of object changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A table.
    Table,
    /// A chain.
    Chain,
    /// A rule.
    Rule,
    /// A set or map.
    Set,
    /// Elements of a set or map.
    Elements,
    /// A counter or another object with a name.
    Object,
    /// A flow table.
    Flowtable,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::Chain => "chain",
            Self::Rule => "a rule of chain",
            Self::Set => "set",
            Self::Elements => "elements of set",
            Self::Object => "object",
            Self::Flowtable => "flow table",
        })
    }
}

/// A change of the ruleset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesetEvent {
    /// Something in a table was added, changed or deleted. Ours as well: compare with
    /// [`RulesetEvent::Committed`], which follows.
    Changed {
        /// The table.
        table: TableId,
        /// What changed.
        subject: Subject,
        /// The name of the chain, set or object, or of the chain or set that it is in; empty for a
        /// table.
        name: String,
        /// Whether it was deleted.
        is_deletion: bool,
    },
    /// A transaction ended; its changes came before.
    Committed {
        /// The generation of the ruleset from now on.
        generation: u32,
        /// The process that did it, as the first process namespace numbers it.
        process: u32,
        /// Its name.
        program: String,
    },
    /// Events were dropped: the ruleset has to be read again.
    Lost,
}

/// Listens for changes of the ruleset in one namespace.
pub type RulesetMonitor = Listener<RulesetEvent>;

impl RulesetMonitor {
    /// Listens in `netns`, or in the namespace of the calling thread.
    pub fn open(netns: Option<&Netns>) -> Result<Self> {
        let socket = Socket::open(NETFILTER, netns, &[GROUP])?;
        let doing = "listen for changes of the ruleset";
        Ok(Self::on(socket, decode_events, RulesetEvent::Lost, doing))
    }
}

/// The events of one datagram; what cannot be read counts as lost.
pub(crate) fn decode_events(datagram: &[u8]) -> Vec<RulesetEvent> {
    listen::events(datagram, decode_event, &RulesetEvent::Lost)
}

fn decode_event(message: &Message<'_>) -> Result<Option<RulesetEvent>, Malformed> {
    let [_, number] = message.kind.to_be_bytes();
    let family = *message.body.first().ok_or(Malformed("a change is cut off"))?;
    if number == NEW_GENERATION {
        return decode_commit(message.body).map(Some);
    }
    let (subject, is_deletion) = match number {
        0 => (Subject::Table, false),
        2 => (Subject::Table, true),
        3 => (Subject::Chain, false),
        5 => (Subject::Chain, true),
        6 => (Subject::Rule, false),
        8 => (Subject::Rule, true),
        9 => (Subject::Set, false),
        11 => (Subject::Set, true),
        12 => (Subject::Elements, false),
        14 => (Subject::Elements, true),
        18 => (Subject::Object, false),
        20 => (Subject::Object, true),
        22 => (Subject::Flowtable, false),
        24 => (Subject::Flowtable, true),
        _ => return Ok(None),
    };
    // Every object names its table, and a table its own name.
    let mut table = TableId::new(TableFamily::from_code(family), "");
    let mut name = String::new();
    let its_name = match subject {
        Subject::Table => None,
        Subject::Chain => Some(3),
        _ => Some(2),
    };
    for attribute in wire::attributes_after(message.body, FIXED_LEN)? {
        match attribute? {
            (1, value) => table.name = wire::read_text(value),
            (kind, value) if Some(kind) == its_name => name = wire::read_text(value),
            _ => {}
        }
    }
    Ok(Some(RulesetEvent::Changed { table, subject, name, is_deletion }))
}

fn decode_commit(body: &[u8]) -> Result<RulesetEvent, Malformed> {
    let (mut generation, mut process, mut program) = (0, 0, String::new());
    for attribute in wire::attributes_after(body, FIXED_LEN)? {
        match attribute? {
            (1, value) => generation = wire::read_u32_be(value)?,
            (2, value) => process = wire::read_u32_be(value)?,
            (3, value) => program = wire::read_text(value),
            _ => {}
        }
    }
    Ok(RulesetEvent::Committed { generation, process, program })
}
