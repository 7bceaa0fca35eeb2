//! The values that parameters have after reading.

use std::collections::BTreeMap;
use std::net::IpAddr;

use net::{Cidr, Dscp, Duration, Port};
use regex::Regex;

use super::parameter::Kind;

/// A value of a parameter. A list or map that was never given is [`Value::Unset`]; one that
/// was given empty is an empty one.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Unset,
    /// A truth value.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A span of time.
    Duration(Duration),
    /// A text, a path or a choice.
    Text(String),
    /// An address.
    Address(IpAddr),
    /// A regular expression.
    Pattern(Pattern),
    /// Several regular expressions.
    Patterns(Vec<Pattern>),
    /// Several texts.
    List(Vec<String>),
    /// Texts by name.
    Map(BTreeMap<String, String>),
    /// Spans of time by name.
    Durations(BTreeMap<String, Duration>),
    /// Several prefixes, without host bits.
    Cidrs(Vec<Cidr>),
    /// Ports that no policy may close.
    FailsafePorts(Vec<FailsafePort>),
    /// A port number or a range of them.
    Port(Port),
    /// Several port numbers and ranges.
    Ports(Vec<Port>),
    /// A code point.
    Dscp(Dscp),
    /// Route tables; 0 to 0 when not given.
    Tables(TableRange),
    /// Several ranges of route tables.
    TableRanges(Vec<TableRange>),
}

/// A compiled regular expression that compares by its text.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles the text; `None` if it is not a regular expression.
    pub fn new(text: &str) -> Option<Self> {
        Regex::new(text).ok().map(Self)
    }

    /// Whether the expression is found in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The text of the expression.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

/// A port that no policy may close, perhaps only towards one prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailsafePort {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// The port number.
    pub port: u16,
    /// The prefix of the other end; any when there is none.
    pub net: Option<Cidr>,
}

/// The route tables from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableRange {
    /// The lowest table.
    pub first: u32,
    /// The highest table.
    pub last: u32,
}

impl Value {
    /// The value of a parameter of the kind when it is switched off.
    pub(super) fn zero(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(false),
            Kind::Int(..) | Kind::MarkMask => Self::Int(0),
            Kind::Seconds | Kind::Milliseconds => Self::Duration(Duration::default()),
            Kind::OneOf(_)
            | Kind::Text
            | Kind::Hostname
            | Kind::HostAddress
            | Kind::Authority
            | Kind::InterfaceNames
            | Kind::InterfaceFilter
            | Kind::File
            | Kind::ExistingFile
            | Kind::Executable
            | Kind::Region
            | Kind::LogRate => Self::Text(String::new()),
            Kind::PortRange => Self::Port(Port::single(0)),
            Kind::TableRange => Self::Tables(TableRange::default()),
            Kind::Dscp => Self::Dscp(Dscp::Number(0)),
            Kind::OptionalBool
            | Kind::InterfacePatterns
            | Kind::InterfaceFilters
            | Kind::Pattern
            | Kind::Ipv4
            | Kind::Ipv6
            | Kind::FailsafePorts
            | Kind::PortRanges
            | Kind::Endpoints
            | Kind::Cidrs
            | Kind::TableRanges
            | Kind::KeyValues
            | Kind::KeyDurations => Self::Unset,
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// The number, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    /// The span of time, if it is one.
    pub fn as_duration(&self) -> Option<Duration> {
        if let Self::Duration(value) = self { Some(*value) } else { None }
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }
}
