//! Tables, chains, rules and counters: what they are and how they are written and read.

use std::fmt;

use crate::expression::{self, Expression, Source, Verdict};
use crate::user_data;
use crate::wire::{self, Malformed, Writer};

/// The type of an attribute that is an element of a list.
pub const LIST_ELEMENT: u16 = 1;

/// The packets that a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableFamily {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// ARP: its input hook sees what any interface receives.
    Arp,
    /// Everything that one interface receives or sends, before all other hooks.
    Netdev,
    /// Frames of bridges.
    Bridge,
    /// A number without a name.
    Other(u8),
}

impl TableFamily {
    /// The kernel's number of it.
    pub fn code(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Arp => 3,
            Self::Netdev => 5,
            Self::Bridge => 7,
            Self::Ip6 => 10,
            Self::Other(code) => code,
        }
    }

    /// From the kernel's number.
    pub fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Inet,
            2 => Self::Ip,
            3 => Self::Arp,
            5 => Self::Netdev,
            7 => Self::Bridge,
            10 => Self::Ip6,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for TableFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet => f.write_str("inet"),
            Self::Ip => f.write_str("ip"),
            Self::Ip6 => f.write_str("ip6"),
            Self::Arp => f.write_str("arp"),
            Self::Netdev => f.write_str("netdev"),
            Self::Bridge => f.write_str("bridge"),
            Self::Other(code) => write!(f, "family {code}"),
        }
    }
}

/// Which table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableId {
    /// The family.
    pub family: TableFamily,
    /// The name. Keep to names that `nft` can read: its own words are refused there.
    pub name: String,
}

impl TableId {
    /// A table by family and name.
    pub fn new(family: TableFamily, name: &str) -> Self {
        Self { family, name: name.to_owned() }
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} {}", self.family, self.name)
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Which one.
    pub id: TableId,
    /// Only the socket that made it may change it, and `nft flush ruleset` spares it. Without
    /// `is_persistent` it is gone with the socket. Linux 5.12.
    pub is_owned: bool,
    /// An owned table that stays when its owner goes; the next owner may adopt it. Linux 6.9.
    pub is_persistent: bool,
    /// Its chains see no packets.
    pub is_dormant: bool,
}

impl Table {
    /// A table that anybody with the right may change.
    pub fn new(id: TableId) -> Self {
        Self { id, is_owned: false, is_persistent: false, is_dormant: false }
    }

    /// Writes it as the body of a message.
    pub fn encode(&self, writer: &mut Writer) {
        writer.text(1, &self.id.name);
        let flags = u32::from(self.is_dormant)
            + u32::from(self.is_owned) * 2
            + u32::from(self.is_persistent) * 4;
        writer.u32_be(2, flags);
    }

    /// Reads it from the body of a message.
    pub fn decode(family: u8, attributes: &[u8]) -> Result<Self, Malformed> {
        let mut table = Self::new(TableId::new(TableFamily::from_code(family), ""));
        for attribute in wire::attributes(attributes) {
            match attribute? {
                (1, value) => table.id.name = wire::read_text(value),
                (2, value) => {
                    let flags = wire::read_u32_be(value)?;
                    table.is_dormant = flags & 1 != 0;
                    table.is_owned = flags & 2 != 0;
                    table.is_persistent = flags & 4 != 0;
                }
                _ => {}
            }
        }
        Ok(table)
    }
}

/// Where in the path of a packet a base chain stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Before routing.
    Prerouting,
    /// To this host.
    Input,
    /// Through this host.
    Forward,
    /// From this host.
    Output,
    /// After routing.
    Postrouting,
    /// As received by an interface.
    Ingress,
    /// As sent by an interface.
    Egress,
}

impl Hook {
    fn code(self, family: TableFamily) -> u32 {
        match (family, self) {
            (TableFamily::Arp, Self::Output) | (TableFamily::Netdev, Self::Egress) => 1,
            (TableFamily::Arp | TableFamily::Netdev, _) | (_, Self::Prerouting) => 0,
            (_, Self::Input) => 1,
            (_, Self::Forward) => 2,
            (_, Self::Output) => 3,
            (_, Self::Postrouting) => 4,
            (_, Self::Ingress | Self::Egress) => 5,
        }
    }

    fn from_code(code: u32, family: TableFamily) -> Result<Self, Malformed> {
        Ok(match (family, code) {
            (TableFamily::Arp, 0) => Self::Input,
            (TableFamily::Arp, 1) => Self::Output,
            (TableFamily::Netdev, 0) => Self::Ingress,
            (TableFamily::Netdev, 1) => Self::Egress,
            (_, 0) => Self::Prerouting,
            (_, 1) => Self::Input,
            (_, 2) => Self::Forward,
            (_, 3) => Self::Output,
            (_, 4) => Self::Postrouting,
            (_, 5) => Self::Ingress,
            _ => return Err(Malformed("a hook without a name")),
        })
    }
}

/// What a base chain may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// Let pass or not.
    Filter,
    /// Translate addresses: sees the first packet of a connection only.
    Nat,
    /// Route again after a change (output).
    Route,
}

/// What makes a chain a base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// What it may do.
    pub kind: ChainKind,
    /// Where it stands.
    pub hook: Hook,
    /// Lower is earlier.
    pub priority: i32,
    /// What happens to packets that no rule decides: dropped, or accepted.
    pub drops_by_default: bool,
    /// The interfaces, for [`Hook::Ingress`] and [`Hook::Egress`].
    pub devices: Vec<String>,
}

impl Base {
    /// A base chain that accepts by default.
    pub fn new(kind: ChainKind, hook: Hook, priority: i32) -> Self {
        Self { kind, hook, priority, drops_by_default: false, devices: Vec::new() }
    }
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Present on base chains.
    pub base: Option<Base>,
}

impl Chain {
    /// A chain that rules jump to.
    pub fn plain(name: &str) -> Self {
        Self { name: name.to_owned(), base: None }
    }

    /// A chain that packets enter by themselves.
    pub fn based(name: &str, base: Base) -> Self {
        Self { name: name.to_owned(), base: Some(base) }
    }

    /// Writes it as the body of a message.
    pub fn encode(&self, table: &TableId, writer: &mut Writer) {
        writer.text(1, &table.name);
        writer.text(3, &self.name);
        let Some(base) = &self.base else { return };
        writer.nest(4, |hook| {
            hook.u32_be(1, base.hook.code(table.family));
            hook.u32_be(2, base.priority.cast_unsigned());
            match base.devices.as_slice() {
                [] => {}
                [device] => hook.text(3, device),
                devices => hook.nest(4, |list| {
                    for device in devices {
                        list.text(1, device);
                    }
                }),
            }
        });
        writer.u32_be(5, u32::from(!base.drops_by_default));
        writer.text(
            7,
            match base.kind {
                ChainKind::Filter => "filter",
                ChainKind::Nat => "nat",
                ChainKind::Route => "route",
            },
        );
    }

    /// The chain and the table that it is in.
    pub fn decode(family: u8, attributes: &[u8]) -> Result<(TableId, Self), Malformed> {
        let family = TableFamily::from_code(family);
        let (mut table, mut chain) = (TableId::new(family, ""), Self::plain(""));
        let (mut hook, mut kind, mut policy) = (None, ChainKind::Filter, 1);
        for attribute in wire::attributes(attributes) {
            match attribute? {
                (1, value) => table.name = wire::read_text(value),
                (3, value) => chain.name = wire::read_text(value),
                (4, value) => hook = Some(decode_hook(family, value)?),
                (5, value) => policy = wire::read_u32_be(value)?,
                (7, value) => {
                    kind = match wire::read_text(value).as_str() {
                        "nat" => ChainKind::Nat,
                        "route" => ChainKind::Route,
                        _ => ChainKind::Filter,
                    }
                }
                _ => {}
            }
        }
        chain.base = hook.map(|base| Base { kind, drops_by_default: policy == 0, ..base });
        Ok((table, chain))
    }
}

fn decode_hook(family: TableFamily, attributes: &[u8]) -> Result<Base, Malformed> {
    let mut base = Base::new(ChainKind::Filter, Hook::Prerouting, 0);
    for attribute in wire::attributes(attributes) {
        match attribute? {
            (1, value) => base.hook = Hook::from_code(wire::read_u32_be(value)?, family)?,
            (2, value) => base.priority = wire::read_u32_be(value)?.cast_signed(),
            (3, value) => base.devices = vec![wire::read_text(value)],
            (4, value) => {
                let names = wire::attributes(value).map(|one| one.map(|(_, v)| wire::read_text(v)));
                base.devices = names.collect::<Result<_, _>>()?;
            }
            _ => {}
        }
    }
    Ok(base)
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The chain that it is in.
    pub chain: String,
    /// What it does, from left to right; a match that fails ends it.
    pub expressions: Vec<Expression>,
    /// A word of ours (an id), which `nft` shows as comment. At most 253 bytes.
    pub comment: Option<String>,
}

impl Rule {
    /// An empty rule.
    pub fn new(chain: &str) -> Self {
        Self { chain: chain.to_owned(), expressions: Vec::new(), comment: None }
    }

    /// Adds one expression.
    #[must_use]
    pub fn with(mut self, expression: Expression) -> Self {
        self.expressions.push(expression);
        self
    }

    /// Goes on only if `source` has this value.
    #[must_use]
    pub fn when(self, source: Source, value: &[u8]) -> Self {
        self.compare(source, expression::Comparison::Equal, value)
    }

    /// Goes on only if `source` has another value.
    #[must_use]
    pub fn unless(self, source: Source, value: &[u8]) -> Self {
        self.compare(source, expression::Comparison::NotEqual, value)
    }

    fn compare(self, source: Source, operator: expression::Comparison, value: &[u8]) -> Self {
        let register = expression::Register::FIRST;
        self.with(Expression::Load { source, register }).with(Expression::Compare {
            register,
            operator,
            value: value.to_vec(),
        })
    }

    /// Goes on only if some bit of `mask` is set in a 4-byte `source` of the machine's byte order.
    #[must_use]
    pub fn when_any_bit(self, source: Source, mask: u32) -> Self {
        let register = expression::Register::FIRST;
        self.with(Expression::Load { source, register })
            .with(Expression::Bitwise {
                register,
                mask: mask.to_ne_bytes().to_vec(),
                xor: vec![0; 4],
            })
            .with(Expression::Compare {
                register,
                operator: expression::Comparison::NotEqual,
                value: vec![0; 4],
            })
    }

    /// Goes on only if `source` is in the set.
    #[must_use]
    pub fn when_in(self, source: Source, set: &str) -> Self {
        let register = expression::Register::FIRST;
        let result = expression::LookupResult::Member { is_inverted: false };
        self.with(Expression::Load { source, register }).with(Expression::Lookup {
            register,
            set: set.to_owned(),
            result,
        })
    }

    /// Takes the verdict that the map has for `source`; goes on if it has none.
    #[must_use]
    pub fn dispatch(self, source: Source, map: &str) -> Self {
        let register = expression::Register::FIRST;
        self.with(Expression::Load { source, register }).with(Expression::Lookup {
            register,
            set: map.to_owned(),
            result: expression::LookupResult::Verdict,
        })
    }

    /// Counts what gets here.
    #[must_use]
    pub fn counted(self) -> Self {
        self.with(Expression::Counter { packets: 0, bytes: 0 })
    }

    /// Ends with a verdict.
    #[must_use]
    pub fn verdict(self, verdict: Verdict) -> Self {
        self.with(Expression::Verdict(verdict))
    }

    /// Carries a word of ours.
    #[must_use]
    pub fn comment(mut self, comment: &str) -> Self {
        self.comment = Some(comment.to_owned());
        self
    }

    /// Writes it as the body of a message.
    pub fn encode(&self, table: &TableId, writer: &mut Writer) {
        writer.text(1, &table.name);
        writer.text(2, &self.chain);
        writer.nest(4, |list| {
            for expression in &self.expressions {
                list.nest(LIST_ELEMENT, |one| expression.encode(one));
            }
        });
        if let Some(comment) = &self.comment {
            writer.attribute(7, &user_data::comment(0, comment));
        }
    }
}

/// A rule as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRule {
    /// The table.
    pub table: TableId,
    /// The number that deletes or replaces it.
    pub handle: u64,
    /// The rule, with the counts of its counters.
    pub rule: Rule,
}

impl ListedRule {
    /// Reads it from the body of a message.
    pub fn decode(family: u8, attributes: &[u8]) -> Result<Self, Malformed> {
        let table = TableId::new(TableFamily::from_code(family), "");
        let mut listed = Self { table, handle: 0, rule: Rule::new("") };
        for attribute in wire::attributes(attributes) {
            match attribute? {
                (1, value) => listed.table.name = wire::read_text(value),
                (2, value) => listed.rule.chain = wire::read_text(value),
                (3, value) => listed.handle = wire::read_u64_be(value)?,
                (4, value) => {
                    let decode = |one: Result<(u16, &[u8]), Malformed>| Expression::decode(one?.1);
                    listed.rule.expressions =
                        wire::attributes(value).map(decode).collect::<Result<_, _>>()?;
                }
                (7, value) => listed.rule.comment = user_data::read_comment(0, value),
                _ => {}
            }
        }
        Ok(listed)
    }
}

/// A counter with a name, which several rules can share and which outlives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCounter {
    /// Its name.
    pub name: String,
    /// Packets so far.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The number of the object type "counter".
pub const OBJECT_COUNTER: u32 = 1;

impl NamedCounter {
    /// Writes it as the body of a message.
    pub fn encode(table: &TableId, name: &str, writer: &mut Writer) {
        writer.text(1, &table.name);
        writer.text(2, name);
        writer.u32_be(3, OBJECT_COUNTER);
        writer.nest(4, |_| {});
    }

    /// The counter and its table; `None` for other objects.
    pub fn decode(family: u8, attributes: &[u8]) -> Result<Option<(TableId, Self)>, Malformed> {
        let mut table = TableId::new(TableFamily::from_code(family), "");
        let mut counter = Self { name: String::new(), packets: 0, bytes: 0 };
        let mut kind = 0;
        for attribute in wire::attributes(attributes) {
            match attribute? {
                (1, value) => table.name = wire::read_text(value),
                (2, value) => counter.name = wire::read_text(value),
                (3, value) => kind = wire::read_u32_be(value)?,
                (4, value) if kind == OBJECT_COUNTER => {
                    (counter.packets, counter.bytes) = expression::decode_counter(value)?;
                }
                _ => {}
            }
        }
        Ok((kind == OBJECT_COUNTER).then_some((table, counter)))
    }
}
