//! What is known about a parameter without looking at any value of it.

use std::fmt;

use super::table::PARAMETERS;
use super::value::Value;
use super::{Host, parse};

/// How the text of a parameter is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true`, `1`, `yes`, `y`, `t` or `false`, `0`, `no`, `n`, `f`, in any case.
    Bool,
    /// A boolean for which "not set" means something of its own.
    OptionalBool,
    /// An integer from the first to the second bound, in any of Go's literal forms.
    Int(i64, i64),
    /// A decimal number of seconds, without a unit.
    Seconds,
    /// A decimal number of milliseconds, without a unit.
    Milliseconds,
    /// One of the words, in any case.
    OneOf(&'static str),
    /// Any one line of text.
    Text,
    /// A host name of letters, digits, `_`, `.` and `-`.
    Hostname,
    /// A host name or an address, of at most 64 characters.
    HostAddress,
    /// `host:port`.
    Authority,
    /// Prefixes of interface names, joined by commas.
    InterfaceNames,
    /// Interface names and `/patterns/`, joined by commas.
    InterfacePatterns,
    /// An interface name; a `+` at its end stands for anything.
    InterfaceFilter,
    /// Interface names as in [`Kind::InterfaceFilter`], joined by commas.
    InterfaceFilters,
    /// A regular expression.
    Pattern,
    /// A path, whether or not there is such a file.
    File,
    /// A path at which there must be something.
    ExistingFile,
    /// A program, by path or by name.
    Executable,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// `protocol:net:port`, `protocol:port` or `port`, joined by commas.
    FailsafePorts,
    /// A port number or `first:last`.
    PortRange,
    /// Port numbers and ranges, joined by commas.
    PortRanges,
    /// URLs without a path, joined by commas.
    Endpoints,
    /// A 32-bit number with at least two bits set.
    MarkMask,
    /// Addresses and prefixes, joined by commas.
    Cidrs,
    /// A DNS label that still fits after the prefix of OpenStack namespaces.
    Region,
    /// `first-last` within 1 to 250.
    TableRange,
    /// Every `first-last` in the text.
    TableRanges,
    /// `key=value`, joined by commas.
    KeyValues,
    /// `key=duration`, joined by commas.
    KeyDurations,
    /// A number from 0 to 63 or a name such as `AF11`.
    Dscp,
    /// A number and a unit of time such as `10/second`.
    LogRate,
}

/// What to write for a parameter, in words.
impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bool | Self::OptionalBool => "true or false",
            Self::Int(i64::MIN, i64::MAX) => "an integer",
            Self::Int(low, i64::MAX) => return write!(formatter, "an integer from {low}"),
            Self::Int(low, high) => return write!(formatter, "an integer from {low} to {high}"),
            Self::Seconds => "a number of seconds",
            Self::Milliseconds => "a number of milliseconds",
            Self::OneOf(words) => return write!(formatter, "one of {}", words.replace(' ', ", ")),
            Self::Text => "one line of text",
            Self::Hostname => "a host name",
            Self::HostAddress => "a host name or an IP address",
            Self::Authority => "host:port",
            Self::InterfaceNames => "interface name prefixes, joined by commas",
            Self::InterfacePatterns => "interface names or /patterns/, joined by commas",
            Self::InterfaceFilter => "an interface name, with + for any ending",
            Self::InterfaceFilters => "interface names, with + for any ending, joined by commas",
            Self::Pattern => "a regular expression",
            Self::File => "a path",
            Self::ExistingFile => "the path of a file that exists",
            Self::Executable => "the path or the name of a program that exists",
            Self::Ipv4 => "an IPv4 address",
            Self::Ipv6 => "an IPv6 address",
            Self::FailsafePorts => {
                "ports as tcp:22, udp:10.0.0.0/8:53, tcp:[fd00::/64]:22 or 22, joined by commas"
            }
            Self::PortRange => "a port number or a range as 1000:2000",
            Self::PortRanges => "port numbers or ranges as 1000:2000, joined by commas",
            Self::Endpoints => "URLs as http://host:port, joined by commas",
            Self::MarkMask => "a 32-bit mask of at least two bits, as 0xffff0000",
            Self::Cidrs => "IP addresses or prefixes, joined by commas",
            Self::Region => "a DNS label of at most 46 characters",
            Self::TableRange => "a range of route tables as 1-250, within 1 to 250",
            Self::TableRanges => "ranges of route tables as 1-250, 65535 tables at most",
            Self::KeyValues => "key=value pairs, joined by commas",
            Self::KeyDurations => "key=duration pairs as a=1m30s, joined by commas",
            Self::Dscp => "a number from 0 to 63 or a name as AF11",
            Self::LogRate => "a rate from 1 to 9999 as 10/second, /minute, /hour or /day",
        })
    }
}

/// The field of a FelixConfiguration that sets a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name of the field in the resource.
    pub name: &'static str,
    /// Whether an empty text counts as given; where it does not, it is as if left out.
    pub keeps_empty: bool,
}

pub(super) const NONE: u8 = 0;
pub(super) const NON_ZERO: u8 = 1;
pub(super) const FATAL: u8 = 2;
pub(super) const LOCAL: u8 = 4;
pub(super) const INTERNAL: u8 = 8;
pub(super) const NO_FIELD: Option<Field> = None;

pub(super) const fn field(name: &'static str) -> Option<Field> {
    Some(Field { name, keeps_empty: false })
}

pub(super) const fn kept(name: &'static str) -> Option<Field> {
    Some(Field { name, keeps_empty: true })
}

pub(super) const fn p(
    name: &'static str,
    field: Option<Field>,
    kind: Kind,
    default_text: &'static str,
    flags: u8,
) -> Parameter {
    Parameter { name, field, kind, default_text, flags }
}

/// One parameter of the agent.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name, which is also the key in the configuration file.
    pub name: &'static str,
    /// The field of a FelixConfiguration that sets it, if there is one.
    pub field: Option<Field>,
    /// How its text is read.
    pub kind: Kind,
    /// The text of the default; empty when the default is the zero value.
    pub default_text: &'static str,
    flags: u8,
}

impl Parameter {
    /// The parameter of that name, in any case.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::index_of(name).and_then(|index| PARAMETERS.get(index))
    }

    /// The place of the parameter in [`PARAMETERS`].
    pub(super) fn index_of(name: &str) -> Option<usize> {
        let wanted = name.to_lowercase();
        let lower = |known: &Self| known.name.bytes().map(|byte| byte.to_ascii_lowercase());
        PARAMETERS.binary_search_by(|known| lower(known).cmp(wanted.bytes())).ok()
    }

    /// The environment variable that sets the parameter; its case does not matter.
    pub fn environment_variable(&self) -> String {
        format!("FELIX_{}", self.name)
    }

    /// Whether `none` is refused.
    pub fn is_non_zero(&self) -> bool {
        self.flags & NON_ZERO != 0
    }

    /// Whether a bad value keeps the agent from starting; otherwise the default is used.
    pub fn is_fatal_when_bad(&self) -> bool {
        self.flags & FATAL != 0
    }

    /// Whether the parameter is ignored when it comes from the datastore.
    pub fn is_local_only(&self) -> bool {
        self.flags & LOCAL != 0
    }

    /// Whether the parameter is set by the system itself, not by a user.
    pub fn is_internal(&self) -> bool {
        self.flags & INTERNAL != 0
    }

    /// What `none` gives.
    pub fn zero(&self) -> Value {
        Value::zero(self.kind)
    }

    /// The value when no source gives one.
    pub fn default(&self) -> Value {
        // The default program is a name to look up when it is needed, perhaps never.
        if self.kind == Kind::Executable {
            return Value::Text(self.default_text.to_owned());
        }
        if self.default_text.is_empty() {
            return self.zero();
        }
        let host = Host { name: "", exists: &|_| false, find_executable: &|_| None };
        parse::parse(self.kind, self.default_text, &host).unwrap_or_else(|_| self.zero())
    }

    /// Reads a text that is neither empty nor `none`; the error says what would be right.
    pub fn parse(&self, text: &str, host: &Host<'_>) -> Result<Value, String> {
        parse::parse(self.kind, text, host)
    }
}
