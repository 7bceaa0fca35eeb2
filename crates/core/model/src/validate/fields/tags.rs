//! What each tag of Calico's validator asks of a value.

use std::collections::BTreeSet;
use std::net::IpAddr;

use base64::Engine;
use net::{Cidr, MacAddress, parse_decimal, parse_ip};
use serde_json::Value;

use crate::selector;
use crate::validate::rules::is_label;

const EMPTY: Value = Value::String(String::new());

/// What is wrong with the value, in our words; `None` when it passes.
pub(super) fn broken(check: &str, value: &Value) -> Option<String> {
    let (tag, argument) = super::split_at(check, b'=');
    match tag {
        "required" => is_missing(value).then(|| "is required".to_owned()),
        "gt" | "gte" | "lt" | "lte" => out_of_range(tag, argument, value),
        "unique" => repeated(value).map(|item| format!("{item} stands there twice")),
        "cidrs" => each_text(value, |text| broken_text("cidr", "", text)),
        "ifaceFilterSlice" => each_text(value, |text| broken_text("ifaceFilter", "", text)),
        "labels" => labels(value),
        "bpfLogFilters" => {
            let mut names = value.as_object()?.keys();
            let bad = names.find(|name| !is_name_of("_.-", 15, name))?;
            Some(format!("\"{bad}\" is not the name of an interface, such as eth0"))
        }
        "bgpFilterPrefixLengthV4" => prefix_length(value, 32),
        "bgpFilterPrefixLengthV6" => prefix_length(value, 128),
        _ => {
            let value = if value.is_null() { &EMPTY } else { value };
            broken_text(tag, argument, value.as_str()?)
        }
    }
}

fn broken_text(tag: &str, argument: &str, text: &str) -> Option<String> {
    if tag == "selector" {
        let error = selector::check(text).err()?;
        return Some(format!("\"{text}\" is not a selector: {error}"));
    }
    if tag == "oneof" {
        let mut allowed = argument.split(' ');
        let message = || format!("\"{text}\" is not one of {}", argument.replace(' ', ", "));
        return (!allowed.any(|word| word == text)).then(message);
    }
    let (passes, wanted) = judge(tag, text);
    (!passes).then(|| format!("\"{text}\" is not {wanted}"))
}

/// Whether a text passes, and what would.
fn judge(tag: &str, text: &str) -> (bool, &'static str) {
    const CIDR: &str = "a CIDR or IP address, such as 10.0.0.0/8";
    match tag {
        "net" => (
            network(text).is_some_and(is_masked),
            "an IP address or a CIDR without host bits, such as 10.0.0.0/8",
        ),
        "netv4" => (
            network(text).is_some_and(|net| is_masked(net) && is_v4(net)),
            "an IPv4 address or a CIDR without host bits, such as 10.0.0.0/8",
        ),
        "netv6" => (
            network(text).is_some_and(|net| is_masked(net) && !is_v4(net)),
            "an IPv6 address or a CIDR without host bits, such as fd00::/8",
        ),
        "cidr" => (network(text).is_some(), CIDR),
        "cidrv4" => (network(text).is_some_and(is_v4), "an IPv4 CIDR, such as 10.0.0.1/24"),
        "cidrv6" => {
            (network(text).is_some_and(|net| !is_v4(net)), "an IPv6 CIDR, such as fd00::1/64")
        }
        "ip" | "reachableBy" => (parse_ip(text).is_some(), "an IP address, such as 10.0.0.1"),
        "ipv4" => {
            (matches!(parse_ip(text), Some(IpAddr::V4(_))), "an IPv4 address, such as 10.0.0.1")
        }
        "ipv6" => {
            (matches!(parse_ip(text), Some(IpAddr::V6(_))), "an IPv6 address, such as fd00::1")
        }
        "IP:port" => (
            is_address_with_port(text),
            "an IP address with or without a port, such as 10.0.0.1:179 or [fd00::1]:179",
        ),
        "interface" => {
            (text == "*" || is_name_of("_.-", 15, text), "the name of an interface, such as eth0")
        }
        "bgpFilterInterface" => {
            (is_name_of("_.*-", 15, text), "the name of an interface, such as eth0 or eth*")
        }
        "ignoredInterface" => (
            text != "*" && is_name_of("_.*-", 15, text),
            "the name of an interface, such as eth0 or eth*, but not * alone",
        ),
        "ifaceFilter" => {
            (is_name_of(":._+-", 15, text), "the name of an interface, such as eth0 or eth+")
        }
        _ => judge_name(tag, text),
    }
}

fn judge_name(tag: &str, text: &str) -> (bool, &'static str) {
    match tag {
        "mac" => (text.parse::<MacAddress>().is_ok(), "a MAC address, such as 02:00:00:00:00:01"),
        "name" => (
            text.split('.').all(|label| {
                is_dashed(label, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            }),
            "a name of lower-case letters, digits, '-' and '.', such as node-1",
        ),
        "containerID" => (
            is_dashed(text, u8::is_ascii_alphanumeric),
            "a container ID of letters, digits and '-'",
        ),
        "portName" => (
            is_port_name(text),
            "a port name of up to 15 lower-case letters, digits and '-', such as http",
        ),
        "prometheusHost" => (is_name_of(":._+-", 64, text), "a host name or IP address"),
        "regexp" => (
            regex::bytes::RegexBuilder::new(text).unicode(false).build().is_ok(),
            "a regular expression, such as ^eth.*",
        ),
        "keyValueList" => (is_key_value_list(text), "a list such as name=value,name=value"),
        "wireguardPublicKey" => {
            let key = base64::engine::general_purpose::STANDARD.decode(text);
            (key.is_ok_and(|key| key.len() == 32), "a WireGuard public key in base64")
        }
        "ipType" => (
            ["CalicoNodeIP", "InternalIP", "ExternalIP"].contains(&text),
            "CalicoNodeIP, InternalIP or ExternalIP",
        ),
        "createDefaultHostEndpoint" => {
            (["Enabled", "Disabled"].contains(&text), "Enabled or Disabled")
        }
        _ => (true, ""),
    }
}

/// Calico reads the empty text as a network of no address, which counts as IPv6.
fn network(text: &str) -> Option<Option<Cidr>> {
    if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
}

fn is_masked(network: Option<Cidr>) -> bool {
    network.is_none_or(|cidr| cidr.network() == cidr.address())
}

fn is_v4(network: Option<Cidr>) -> bool {
    network.is_some_and(Cidr::is_ipv4)
}

fn is_address_with_port(text: &str) -> bool {
    let is_port = |port: &str| parse_decimal::<u16>(port).is_some_and(|port| port > 0);
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => {
            matches!(parse_ip(host), Some(IpAddr::V4(_))) && is_port(port)
        }
        Some((host, port)) if host.starts_with('[') => {
            let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            inner.is_some_and(|host| parse_ip(host).is_some()) && is_port(port)
        }
        _ => parse_ip(text).is_some(),
    }
}

/// Letters, digits and the marks, at least one and at most so many.
fn is_name_of(marks: &str, most: usize, text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || marks.as_bytes().contains(&byte);
    (1..=most).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Allowed characters, and `-` between them.
fn is_dashed(text: &str, is_allowed: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&is_allowed)
        && bytes.last().is_some_and(&is_allowed)
        && bytes.iter().all(|byte| *byte == b'-' || is_allowed(byte))
}

fn is_port_name(text: &str) -> bool {
    text.len() <= 15
        && is_dashed(text, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && text.bytes().any(|byte| byte.is_ascii_lowercase())
        && !text.contains("--")
}

fn is_key_value_list(text: &str) -> bool {
    text.trim().is_empty()
        || text.split(',').filter(|item| !item.is_empty()).all(|item| {
            let is_space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c');
            item.trim_start_matches(is_space).split_once('=').is_some_and(|(key, value)| {
                let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                !key.is_empty() && key.bytes().all(is_word) && !value.contains('\n')
            })
        })
}

fn is_missing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn out_of_range(tag: &str, argument: &str, value: &Value) -> Option<String> {
    let bound: i64 = argument.parse().ok()?;
    let number = match value {
        Value::Null => 0,
        value => value.as_i64()?,
    };
    let (passes, words) = match tag {
        "gt" => (number > bound, "must be above"),
        "gte" => (number >= bound, "must be at least"),
        "lt" => (number < bound, "must be below"),
        _ => (number <= bound, "must be at most"),
    };
    (!passes).then(|| format!("{number} {words} {bound}"))
}

fn repeated(value: &Value) -> Option<String> {
    let mut seen = BTreeSet::new();
    value.as_array()?.iter().map(Value::to_string).find(|item| !seen.insert(item.clone()))
}

fn each_text(value: &Value, check: impl Fn(&str) -> Option<String>) -> Option<String> {
    value.as_array()?.iter().filter_map(Value::as_str).find_map(check)
}

fn labels(value: &Value) -> Option<String> {
    let mut entries = value.as_object()?.iter();
    let (key, value) =
        entries.find(|(key, value)| !is_label(key, value.as_str().unwrap_or_default()))?;
    Some(format!("{key}={} is not a label", value.as_str().unwrap_or_default()))
}

fn prefix_length(value: &Value, most: i64) -> Option<String> {
    let length = value.as_i64().filter(|length| !(0..=most).contains(length))?;
    Some(format!("{length} is not a prefix length from 0 to {most}"))
}
