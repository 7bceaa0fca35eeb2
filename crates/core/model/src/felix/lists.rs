//! The kinds of parameters that are lists of something.

use std::collections::BTreeMap;

use net::{Cidr, Duration};

use super::parse::{is_interface_filter, is_interface_name};
use super::value::{FailsafePort, Pattern, TableRange};

/// How many route tables all ranges together may hold.
const TABLES_MAX: u64 = 65_535;

/// The items of a list with spaces around each, empty ones left out.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(|item| item.trim_matches(' ')).filter(|item| !item.is_empty())
}

pub(super) fn interface_patterns(text: &str) -> Option<Vec<Pattern>> {
    text.split(',')
        .map(|item| match item.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some(pattern) => {
                let has_space = pattern.contains(['\t', '\n', '\x0c', '\r', ' ']);
                if pattern.is_empty() || has_space { None } else { Pattern::new(pattern) }
            }
            None if is_interface_name(item) => Pattern::new(&format!("^{item}$")),
            None => None,
        })
        .collect()
}

pub(super) fn interface_filters(text: &str) -> Option<Vec<String>> {
    items(text).map(|item| is_interface_filter(item).then(|| item.to_owned())).collect()
}

pub(super) fn cidrs(text: &str) -> Option<Vec<Cidr>> {
    items(text).map(|item| item.parse().ok().map(Cidr::masked)).collect()
}

pub(super) fn endpoints(text: &str) -> Option<Vec<String>> {
    items(text).map(endpoint).collect()
}

/// `scheme://host` with perhaps a port and one slash at the end, in canonical form.
fn endpoint(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match authority.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
        Some((address, after)) => {
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, after)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_host = host.bytes().all(|byte| {
        byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:".contains(&byte) || !byte.is_ascii()
    });
    let is_port = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    (is_scheme && is_host && is_port)
        .then(|| format!("{}://{authority}/", scheme.to_ascii_lowercase()))
}

pub(super) fn failsafe_ports(text: &str) -> Result<Vec<FailsafePort>, String> {
    items(text).map(failsafe_port).collect()
}

fn failsafe_port(item: &str) -> Result<FailsafePort, String> {
    let shape = || {
        format!(
            "{item} should be protocol:net:port, protocol:port or port, an IPv6 net in brackets"
        )
    };
    // Colons inside the brackets of an IPv6 prefix do not divide the item.
    let (bracketed, item) = match (item.find('['), item.find(']')) {
        (Some(open), Some(_)) => {
            let close = item.find("]:").filter(|close| *close > open).ok_or_else(shape)?;
            let outside = [item.get(..open), item.get(close + 2..)];
            (item.get(open + 1..close), outside.map(|part| part.unwrap_or("")).concat())
        }
        _ => (None, item.to_owned()),
    };
    let parts: Vec<&str> = item.split(':').collect();
    let (protocol, net, port) = match parts[..] {
        [port] => ("tcp", bracketed, port),
        [protocol, port] => (protocol, bracketed, port),
        [protocol, net, port] => (protocol, Some(net), port),
        _ => return Err(shape()),
    };
    let protocol = match protocol.to_lowercase().as_str() {
        "tcp" => "tcp",
        "udp" => "udp",
        other => return Err(format!("unknown protocol {other}, need tcp or udp")),
    };
    let port: i64 = port.parse().map_err(|_| format!("port {port} is not a number"))?;
    let port = u16::try_from(port).map_err(|_| format!("port {port} is not in 0 to 65535"))?;
    let net = match net.filter(|net| !net.is_empty()) {
        Some(net) => {
            let cidr: Cidr = net.parse().map_err(|error| format!("{net} is {error}"))?;
            Some(cidr.masked())
        }
        None => None,
    };
    Ok(FailsafePort { protocol, port, net })
}

/// Every `digits-digits` in the text, whatever stands between them.
pub(super) fn table_ranges(text: &str) -> Result<Vec<TableRange>, String> {
    let mut ranges = Vec::new();
    let mut n_tables = 0_u64;
    let mut rest = text;
    while let Some((first, last, after)) = next_range(rest) {
        rest = after;
        let number = |digits: &str| net::parse_decimal::<u32>(digits);
        let first = number(first)
            .filter(|first| *first > 0)
            .ok_or_else(|| format!("table {first} is not in 1 to {}", u32::MAX))?;
        let last = number(last).ok_or_else(|| format!("table {last} is above {}", u32::MAX))?;
        if first > last {
            return Err(format!("range {first}-{last} runs backwards"));
        }
        n_tables += u64::from(last - first) + 1;
        if n_tables > TABLES_MAX {
            return Err(format!("more than {TABLES_MAX} tables"));
        }
        ranges.push(TableRange { first, last });
    }
    if ranges.is_empty() {
        return Err("need ranges of route tables as 1-250".into());
    }
    Ok(ranges)
}

fn next_range(text: &str) -> Option<(&str, &str, &str)> {
    let not_digit = |c: char| !c.is_ascii_digit();
    let mut searched = 0;
    loop {
        let dash = searched + text.get(searched..)?.find('-')?;
        let (before, after) = (text.get(..dash)?, text.get(dash + 1..)?);
        let first = before.rsplit(not_digit).next().unwrap_or("");
        let last = after.split(not_digit).next().unwrap_or("");
        if !first.is_empty() && !last.is_empty() {
            return Some((first, last, after.get(last.len()..)?));
        }
        searched = dash + 1;
    }
}

pub(super) fn key_values(text: &str) -> Result<BTreeMap<String, String>, String> {
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    text.split(',')
        .filter(|item| !item.is_empty())
        .map(|item| key_value(item).ok_or_else(|| format!("{item} is not key=value")))
        .collect()
}

/// The first `word=value` in the item. What stands before the word is skipped; spaces of the
/// value are kept.
fn key_value(item: &str) -> Option<(String, String)> {
    item.match_indices('=').find_map(|(at, _)| {
        let before = item.get(..at)?;
        let key = before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()?;
        let value = item.get(at + 1..)?.split('\n').next()?;
        (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
    })
}

pub(super) fn key_durations(text: &str) -> Result<BTreeMap<String, Duration>, String> {
    key_values(text)?
        .into_iter()
        .map(|(key, value)| match value.trim().parse() {
            Ok(duration) => Ok((key, duration)),
            Err(error) => Err(format!("{key}: {error}")),
        })
        .collect()
}
