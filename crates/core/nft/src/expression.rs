//! What rules are made of.

mod codec;

use crate::wire::{self, Malformed, Writer};

pub use codec::decode_counter;

const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
/// The register that takes verdicts.
const VERDICT_REGISTER: u32 = 0;

/// A register: one of 16 slots of 4 bytes. Longer values take the slots that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register(u8);

impl Register {
    /// The first slot.
    pub const FIRST: Self = Self(0);

    /// A slot below 16; fields of a concatenation lie in consecutive slots.
    pub fn slot(slot: u8) -> Option<Self> {
        (slot < 16).then_some(Self(slot))
    }

    fn code(self) -> u32 {
        8 + u32::from(self.0)
    }

    /// The kernel lists slots at multiples of 16 bytes under their old numbers 1 to 4.
    fn from_code(code: u32) -> Result<Self, Malformed> {
        let slot = match code {
            1..=4 => (code - 1) * 4,
            8..=23 => code - 8,
            _ => return Err(Malformed("a register without a slot")),
        };
        u8::try_from(slot).map(Self).map_err(|_| Malformed("a register without a slot"))
    }
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Passes this base chain.
    Accept,
    /// Is dropped for good.
    Drop,
    /// Goes on with the next rule.
    Continue,
    /// Goes through another chain, and comes back.
    Jump(String),
    /// Goes through another chain, and does not come back.
    Goto(String),
    /// Comes back to where the chain was jumped to from.
    Return,
}

impl Verdict {
    fn code(&self) -> i32 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Continue => -1,
            Self::Jump(_) => -3,
            Self::Goto(_) => -4,
            Self::Return => -5,
        }
    }

    /// Writes it as an attribute.
    pub fn encode(&self, kind: u16, writer: &mut Writer) {
        writer.nest(kind, |data| {
            data.nest(DATA_VERDICT, |verdict| {
                verdict.u32_be(VERDICT_CODE, self.code().cast_unsigned());
                if let Self::Jump(chain) | Self::Goto(chain) = self {
                    verdict.text(VERDICT_CHAIN, chain);
                }
            });
        });
    }

    /// Reads what [`Self::encode`] writes.
    pub fn decode(attributes: &[u8]) -> Result<Self, Malformed> {
        let (mut code, mut chain) = (None, String::new());
        for attribute in wire::attributes(attributes) {
            match attribute? {
                (VERDICT_CODE, value) => code = Some(wire::read_u32_be(value)?.cast_signed()),
                (VERDICT_CHAIN, value) => chain = wire::read_text(value),
                _ => {}
            }
        }
        Ok(match code {
            Some(0) => Self::Drop,
            Some(1) => Self::Accept,
            Some(-1) => Self::Continue,
            Some(-3) => Self::Jump(chain),
            Some(-4) => Self::Goto(chain),
            Some(-5) => Self::Return,
            _ => return Err(Malformed("a verdict without a name")),
        })
    }
}

/// A value in a nest, or a verdict in its place.
pub enum Value {
    /// Bytes in the order of the wire.
    Bytes(Vec<u8>),
    /// A verdict.
    Verdict(Verdict),
}

/// Reads a value.
pub fn decode_value(attributes: &[u8]) -> Result<Value, Malformed> {
    for attribute in wire::attributes(attributes) {
        match attribute? {
            (DATA_VALUE, value) => return Ok(Value::Bytes(value.to_vec())),
            (DATA_VERDICT, value) => return Verdict::decode(value).map(Value::Verdict),
            _ => {}
        }
    }
    Err(Malformed("a value without bytes"))
}

fn decode_bytes(attributes: &[u8]) -> Result<Vec<u8>, Malformed> {
    match decode_value(attributes)? {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Verdict(_) => Err(Malformed("a verdict where bytes belong")),
    }
}

/// Writes bytes as a value.
pub fn put_value(writer: &mut Writer, kind: u16, value: &[u8]) {
    writer.nest(kind, |data| data.attribute(DATA_VALUE, value));
}

/// Which part of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Ethernet.
    Link,
    /// IP, or ARP.
    Network,
    /// TCP, UDP, ICMP, …
    Transport,
}

/// What is known of a packet beside its bytes. Numbers are in the machine's byte order, names are
/// 16 bytes filled up with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meta {
    /// The Ethernet type, 2 bytes big endian.
    Protocol,
    /// The mark, 4 bytes.
    Mark,
    /// The number of the interface it came by, 4 bytes.
    InputIndex,
    /// The number of the interface it leaves by, 4 bytes.
    OutputIndex,
    /// The name of the interface it came by.
    InputName,
    /// The name of the interface it leaves by.
    OutputName,
    /// The family: 1 byte, 2 or 10.
    Family,
    /// The transport protocol, 1 byte.
    TransportProtocol,
    /// Another key, by its number.
    Other(u32),
}

impl Meta {
    fn code(self) -> u32 {
        match self {
            Self::Protocol => 1,
            Self::Mark => 3,
            Self::InputIndex => 4,
            Self::OutputIndex => 5,
            Self::InputName => 6,
            Self::OutputName => 7,
            Self::Family => 15,
            Self::TransportProtocol => 16,
            Self::Other(code) => code,
        }
    }

    fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Protocol,
            3 => Self::Mark,
            4 => Self::InputIndex,
            5 => Self::OutputIndex,
            6 => Self::InputName,
            7 => Self::OutputName,
            15 => Self::Family,
            16 => Self::TransportProtocol,
            other => Self::Other(other),
        }
    }
}

/// What connection tracking knows of a packet's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ct {
    /// The state as bits, 4 bytes: see [`ct_state`].
    State,
    /// 0 for the direction of the first packet, 1 for answers; 1 byte.
    Direction,
    /// The status as bits, 4 bytes.
    Status,
    /// The mark, 4 bytes.
    Mark,
    /// Another key, by its number.
    Other(u32),
}

/// The bits of [`Ct::State`].
pub mod ct_state {
    /// Cannot be made sense of.
    pub const INVALID: u32 = 1;
    /// Answered before.
    pub const ESTABLISHED: u32 = 2;
    /// Belongs to another connection.
    pub const RELATED: u32 = 4;
    /// The first of its connection.
    pub const NEW: u32 = 8;
    /// Exempt from tracking.
    pub const UNTRACKED: u32 = 64;
}

impl Ct {
    fn code(self) -> u32 {
        match self {
            Self::State => 0,
            Self::Direction => 1,
            Self::Status => 2,
            Self::Mark => 3,
            Self::Other(code) => code,
        }
    }

    fn from_code(code: u32) -> Self {
        match code {
            0 => Self::State,
            1 => Self::Direction,
            2 => Self::Status,
            3 => Self::Mark,
            other => Self::Other(other),
        }
    }
}

/// What the routing table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibResult {
    /// The interface's number: 4 bytes, 0 if there is no route.
    OutputIndex,
    /// The interface's name.
    OutputName,
    /// The sort of the address: 4 bytes.
    AddressKind,
}

/// The bits of [`Source::Fib`].
pub mod fib_flags {
    /// Looks up the source address.
    pub const SOURCE: u32 = 1;
    /// Looks up the destination address.
    pub const DESTINATION: u32 = 2;
    /// With the mark of the packet.
    pub const MARK: u32 = 4;
    /// As if by the interface it came by.
    pub const INPUT: u32 = 8;
    /// As if by the interface it leaves by.
    pub const OUTPUT: u32 = 16;
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Bytes of the packet.
    Payload {
        /// The header.
        header: Header,
        /// From which byte of it.
        offset: u32,
        /// How many.
        len: u32,
    },
    /// Beside the packet.
    Meta(Meta),
    /// Connection tracking.
    Ct(Ct),
    /// The routing table.
    Fib {
        /// What to look up, and how: bits of [`fib_flags`].
        flags: u32,
        /// Which part of the answer.
        result: FibResult,
    },
}

/// Sources by the name that people use.
impl Source {
    /// The IPv4 source address.
    pub const IPV4_SOURCE: Self = Self::network(12, 4);
    /// The IPv4 destination address.
    pub const IPV4_DESTINATION: Self = Self::network(16, 4);
    /// The IPv6 source address.
    pub const IPV6_SOURCE: Self = Self::network(8, 16);
    /// The IPv6 destination address.
    pub const IPV6_DESTINATION: Self = Self::network(24, 16);
    /// The source port.
    pub const SOURCE_PORT: Self = Self::transport(0, 2);
    /// The destination port.
    pub const DESTINATION_PORT: Self = Self::transport(2, 2);
    /// The ICMP type.
    pub const ICMP_TYPE: Self = Self::transport(0, 1);
    /// The ICMP code.
    pub const ICMP_CODE: Self = Self::transport(1, 1);
    /// The Ethernet source address.
    pub const MAC_SOURCE: Self = Self::Payload { header: Header::Link, offset: 6, len: 6 };
    /// The IPv4 address of the sender of an ARP message.
    pub const ARP_SENDER: Self = Self::network(14, 4);
    /// The IPv4 address that an ARP message asks for.
    pub const ARP_TARGET: Self = Self::network(24, 4);

    /// Bytes of the IP header.
    pub const fn network(offset: u32, len: u32) -> Self {
        Self::Payload { header: Header::Network, offset, len }
    }

    /// Bytes of the header after it.
    pub const fn transport(offset: u32, len: u32) -> Self {
        Self::Payload { header: Header::Transport, offset, len }
    }
}

/// Where a value goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Beside the packet; the mark, as a rule.
    Meta(Meta),
    /// The connection; the mark, as a rule.
    Ct(Ct),
}

/// How two values are compared, as big-endian numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The same.
    Equal,
    /// Not the same.
    NotEqual,
    /// The packet's is lower.
    Less,
    /// Lower or the same.
    LessOrEqual,
    /// The packet's is higher.
    Greater,
    /// Higher or the same.
    GreaterOrEqual,
}

const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
];

/// What a look-up in a set or map gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// Goes on if the key is there; inverted: if it is not.
    Member {
        /// Whether absence is what is asked for.
        is_inverted: bool,
    },
    /// Takes the verdict found.
    Verdict,
    /// Loads the value found.
    Value(Register),
}

/// Which translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatKind {
    /// Of the source.
    Source,
    /// Of the destination.
    Destination,
}

/// How a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// With a TCP reset.
    TcpReset,
    /// With an ICMP message of either family: 0 no route, 1 port unreachable, 2 host unreachable,
    /// 3 administratively prohibited.
    Icmp(u8),
    /// With an ICMP message of the family of the table, by its code.
    IcmpOfFamily(u8),
}

/// The bits that say how ports are chosen in a translation.
pub mod nat_flags {
    /// At random.
    pub const RANDOM: u32 = 1 << 2;
    /// The same source for the same client.
    pub const PERSISTENT: u32 = 1 << 3;
    /// At random without regard to the client's port.
    pub const RANDOM_FULLY: u32 = 1 << 4;
}

/// One step of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Loads a value.
    Load {
        /// From where.
        source: Source,
        /// Into which register.
        register: Register,
    },
    /// Writes a value.
    Store {
        /// Where to.
        target: Target,
        /// From which register.
        register: Register,
    },
    /// Goes on if the comparison holds.
    Compare {
        /// The register.
        register: Register,
        /// How.
        operator: Comparison,
        /// With what.
        value: Vec<u8>,
    },
    /// Goes on if the register is in the range; inverted: if it is not.
    Range {
        /// The register.
        register: Register,
        /// Whether outside is what is asked for.
        is_inverted: bool,
        /// The first value inside.
        first: Vec<u8>,
        /// The last value inside.
        last: Vec<u8>,
    },
    /// `(value & mask) ^ xor`, in place.
    Bitwise {
        /// The register.
        register: Register,
        /// The bits to keep.
        mask: Vec<u8>,
        /// The bits to flip afterwards.
        xor: Vec<u8>,
    },
    /// Looks a key up.
    Lookup {
        /// Where the key starts.
        register: Register,
        /// The set or map.
        set: String,
        /// What to do with the answer.
        result: LookupResult,
    },
    /// Loads a constant.
    Constant {
        /// Into which register.
        register: Register,
        /// Which.
        value: Vec<u8>,
    },
    /// Ends the rule with a verdict.
    Verdict(Verdict),
    /// Counts; starts with these numbers.
    Counter {
        /// Packets so far.
        packets: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// Counts in a counter with a name.
    NamedCounter(String),
    /// Goes on while the rate is not exceeded; inverted: once it is.
    Limit {
        /// Packets …
        rate: u64,
        /// … in that many seconds.
        per_seconds: u64,
        /// How many may come at once.
        burst: u32,
        /// Whether excess is what is asked for.
        is_inverted: bool,
    },
    /// Puts a key into a dynamic set, or renews it there, and does the step that is kept with it:
    /// each key has its own. Ends the rule if the set is full.
    Update {
        /// Where the key starts.
        register: Register,
        /// The set.
        set: String,
        /// The step: an [`Expression::Limit`]; nothing else is read back.
        step: Box<Self>,
    },
    /// Hands the packet to listeners of a group, or to the kernel log if there is none.
    Log {
        /// The group of listeners.
        group: Option<u16>,
        /// What to write before it: at most 127 bytes.
        prefix: String,
        /// How many bytes of the packet to hand over; 0 is all.
        snap_len: u32,
    },
    /// Puts the address of the interface in the place of the source.
    Masquerade {
        /// Bits of [`nat_flags`].
        flags: u32,
        /// The first and last port, each in a register; the kernel chooses if absent.
        ports: Option<(Register, Register)>,
    },
    /// Puts another address in the place of source or destination.
    Nat {
        /// Which one.
        kind: NatKind,
        /// Whether the address is an IPv6 one.
        is_ipv6: bool,
        /// The register with the address.
        address: Option<Register>,
        /// The register with the port.
        port: Option<Register>,
        /// The register with the last port, if any from `port` on up to it will do.
        last_port: Option<Register>,
        /// Bits of [`nat_flags`].
        flags: u32,
    },
    /// Refuses the packet and says so.
    Reject(Rejection),
    /// Exempts the packet from connection tracking.
    NoTrack,
    /// A match of iptables: goes on if it holds.
    Match {
        /// Which one.
        name: String,
        /// What it asks, in the form of that match.
        info: Vec<u8>,
    },
    /// A target of iptables, by its name.
    Target(String),
    /// One that we do not make, by its name.
    Unknown(String),
}
