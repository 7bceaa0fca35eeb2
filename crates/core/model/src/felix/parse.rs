//! Text → value, for every kind of parameter.
//!
//! White space is never trimmed where one value is meant; in lists it depends on the kind,
//! as users of the real agent found it.

use std::net::IpAddr;

use net::{Dscp, Duration, Port};

use super::Host;
use super::lists;
use super::number::{parse_float, parse_int, parse_uint};
use super::parameter::Kind;
use super::value::{Pattern, TableRange, Value};

const INTERFACE_LENGTH_MAX: usize = 15;
const HOST_ADDRESS_LENGTH_MAX: usize = 64;
/// A DNS label has at most 63 characters, and `openstack-region-` goes before the region.
const REGION_LENGTH_MAX: usize = 46;
const MARK_BITS_MIN: u32 = 2;
const TABLE_MAX: u32 = 250;

/// Reads one value; the error says what would have been right.
pub(super) fn parse(kind: Kind, text: &str, host: &Host<'_>) -> Result<Value, String> {
    let value = match kind {
        Kind::Bool | Kind::OptionalBool => parse_bool(text).map(Value::Bool),
        Kind::Int(low, high) => {
            parse_int(text).filter(|n| (low..=high).contains(n)).map(Value::Int)
        }
        Kind::Seconds => parse_time(text, 1e9),
        Kind::Milliseconds => parse_time(text, 1e6),
        Kind::OneOf(words) => {
            let wanted = text.to_lowercase();
            let found = words.split(' ').find(|word| word.to_lowercase() == wanted);
            found.map(|word| Value::Text(word.to_owned()))
        }
        Kind::Pattern => Pattern::new(text).map(Value::Pattern),
        Kind::ExistingFile => text_if(text, (host.exists)(text)),
        Kind::Executable => (host.find_executable)(text).map(Value::Text),
        Kind::Ipv4 => net::parse_ip(text).filter(IpAddr::is_ipv4).map(Value::Address),
        Kind::Ipv6 => net::parse_ip(text).filter(IpAddr::is_ipv6).map(Value::Address),
        Kind::PortRange => parse_port(text).map(Value::Port),
        Kind::PortRanges => {
            text.split(',').map(parse_port).collect::<Option<_>>().map(Value::Ports)
        }
        Kind::MarkMask => parse_mark(text).map(Value::Int),
        Kind::TableRange => parse_table_range(text).map(Value::Tables),
        Kind::Dscp => parse_dscp(text).map(Value::Dscp),
        Kind::InterfacePatterns => lists::interface_patterns(text).map(Value::Patterns),
        Kind::InterfaceFilters => lists::interface_filters(text).map(Value::List),
        Kind::Endpoints => lists::endpoints(text).map(Value::List),
        Kind::Cidrs => lists::cidrs(text).map(Value::Cidrs),
        Kind::FailsafePorts => return lists::failsafe_ports(text).map(Value::FailsafePorts),
        Kind::TableRanges => return lists::table_ranges(text).map(Value::TableRanges),
        Kind::KeyValues => return lists::key_values(text).map(Value::Map),
        Kind::KeyDurations => return lists::key_durations(text).map(Value::Durations),
        _ => text_if(text, is_text_of(kind, text)),
    };
    value.ok_or_else(|| format!("need {kind}"))
}

fn text_if(text: &str, is_right: bool) -> Option<Value> {
    is_right.then(|| Value::Text(text.to_owned()))
}

/// The kinds whose value is the text itself.
fn is_text_of(kind: Kind, text: &str) -> bool {
    match kind {
        Kind::Text => !text.contains('\n'),
        Kind::Hostname => !text.is_empty() && is_made_of(text, b"_.-"),
        Kind::HostAddress => {
            !text.is_empty() && text.len() <= HOST_ADDRESS_LENGTH_MAX && is_made_of(text, b":._+-")
        }
        Kind::Authority => text.split_once(':').is_some_and(|(host, port)| {
            let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            !host.is_empty() && !host.contains('/') && is_port
        }),
        Kind::InterfaceNames => text.split(',').all(is_interface_name),
        Kind::InterfaceFilter => is_interface_filter(text),
        Kind::Region => is_region(text),
        Kind::LogRate => is_log_rate(text),
        _ => true,
    }
}

/// Letters, digits and the other bytes named.
fn is_made_of(text: &str, others: &[u8]) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

pub(super) fn is_interface_name(text: &str) -> bool {
    (1..=INTERFACE_LENGTH_MAX).contains(&text.len()) && is_made_of(text, b"_-")
}

pub(super) fn is_interface_filter(text: &str) -> bool {
    (1..=INTERFACE_LENGTH_MAX).contains(&text.len()) && is_made_of(text, b":._+-")
}

fn is_region(text: &str) -> bool {
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= REGION_LENGTH_MAX
        && text.starts_with(is_lower)
        && text.ends_with(is_lower)
        && text.chars().all(|c| is_lower(c) || c == '-')
}

fn is_log_rate(text: &str) -> bool {
    text.split_once('/').is_some_and(|(count, unit)| {
        matches!(count.len(), 1..=4)
            && !count.starts_with('0')
            && count.bytes().all(|byte| byte.is_ascii_digit())
            && matches!(unit, "second" | "minute" | "hour" | "day")
    })
}

fn parse_bool(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "true" | "1" | "yes" | "y" | "t" => Some(true),
        "false" | "0" | "no" | "n" | "f" => Some(false),
        _ => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a span too long for the type becomes the longest there is"
)]
fn parse_time(text: &str, unit: f64) -> Option<Value> {
    let nanoseconds = parse_float(text)? * unit;
    if nanoseconds.is_nan() {
        return None;
    }
    Some(Value::Duration(Duration::from_nanoseconds(nanoseconds as i64)))
}

fn parse_port(text: &str) -> Option<Port> {
    text.parse().ok().filter(|port| matches!(port, Port::Numbers { .. }))
}

fn parse_mark(text: &str) -> Option<i64> {
    let mark = u32::try_from(parse_uint(text)?).ok()?;
    (mark.count_ones() >= MARK_BITS_MIN).then(|| i64::from(mark))
}

fn parse_table_range(text: &str) -> Option<TableRange> {
    let (first, last) = text.split_once('-')?;
    let range = TableRange { first: net::parse_decimal(first)?, last: net::parse_decimal(last)? };
    (range.first >= 1 && range.first <= range.last && range.last <= TABLE_MAX).then_some(range)
}

fn parse_dscp(text: &str) -> Option<Dscp> {
    let dscp = Dscp::from(text).canonical();
    dscp.value().is_ok().then_some(dscp)
}
