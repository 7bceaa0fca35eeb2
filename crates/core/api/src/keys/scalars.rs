//! Addresses inside values: which fields hold them, and how Calico rewrites them.

use net::{Cidr, MacAddress, parse_ip};
use serde_json::Value;

use super::ipam::wrong;
use crate::Problem;
use crate::schema::{Object, Shape};

/// What a text stands for.
#[derive(Clone, Copy)]
enum Scalar {
    /// An address; empty text is no address.
    Address,
    /// A network; an address is one of full length. Host bits stay.
    Network,
    /// The same, but it must be there: Calico would write `<nil>` for it.
    NeededNetwork,
    Mac,
    /// An AS number in quotes.
    QuotedAsNumber,
    /// A whole number or `null`.
    Index,
}

fn scalar_of(object: &str, field: &str) -> Option<Scalar> {
    Some(match (object, field) {
        ("AllocationBlock" | "IPPool", "cidr") => Scalar::NeededNetwork,
        ("AllocationBlock", "allocations") => Scalar::Index,
        ("NetworkSet", "nets")
        | ("WorkloadEndpoint", "ipv4_nets" | "ipv6_nets" | "allow_spoofed_source_ips")
        | (
            "Rule",
            "src_net" | "src_nets" | "dst_net" | "dst_nets" | "!src_net" | "!src_nets" | "!dst_net"
            | "!dst_nets",
        ) => Scalar::Network,
        ("WorkloadEndpoint", "ipv4_gateway" | "ipv6_gateway")
        | ("HostEndpoint", "expected_ipv4_addrs" | "expected_ipv6_addrs")
        | ("Wireguard", "interfaceIPv4Addr" | "interfaceIPv6Addr")
        | ("IPNAT", "int_ip" | "ext_ip")
        | ("BGPPeer", "ip") => Scalar::Address,
        ("WorkloadEndpoint", "mac") => Scalar::Mac,
        ("BGPPeer", "as_num") => Scalar::QuotedAsNumber,
        _ => return None,
    })
}

/// Rewrites the addresses of a decoded value as Calico writes them, and says which are none.
pub(super) fn settle(object: &'static Object, value: &mut Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    walk(object, value, "", &mut problems);
    problems
}

fn walk(object: &'static Object, value: &mut Value, path: &str, problems: &mut Vec<Problem>) {
    let Value::Object(fields) = value else { return };
    for field in object.fields {
        let Some(value) = fields.get_mut(field.name) else { continue };
        let path = match path {
            "" => field.name.to_owned(),
            path => format!("{path}.{}", field.name),
        };
        let scalar = scalar_of(object.name, field.name);
        each(value, &path, &mut |value, path| match (scalar, field.shape) {
            (Some(scalar), _) => {
                if let Err(message) = rewrite(scalar, value) {
                    problems.push(wrong(path, &message));
                }
            }
            (None, Shape::Object(inner) | Shape::List(&Shape::Object(inner))) => {
                walk(inner, value, path, problems);
            }
            _ => {}
        });
    }
}

/// The value itself, or each item if it is a list.
fn each(value: &mut Value, path: &str, visit: &mut dyn FnMut(&mut Value, &str)) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                visit(item, &format!("{path}[{index}]"));
            }
        }
        single => visit(single, path),
    }
}

fn rewrite(scalar: Scalar, value: &mut Value) -> Result<(), String> {
    if let (Value::Null, false) = (&*value, matches!(scalar, Scalar::NeededNetwork)) {
        return Ok(());
    }
    if let Scalar::Index = scalar {
        return value.as_i64().map(drop).ok_or_else(|| format!("{value} is no index"));
    }
    let text = value.as_str().unwrap_or_default();
    let written = match scalar {
        Scalar::Address if text.is_empty() => Some(String::new()),
        Scalar::Address => parse_ip(text).map(|address| address.to_string()),
        Scalar::Network | Scalar::NeededNetwork => {
            text.parse().ok().map(|cidr: Cidr| cidr.to_string())
        }
        Scalar::Mac => text.parse().ok().map(|mac: MacAddress| mac.to_string()),
        Scalar::QuotedAsNumber if text.is_empty() => Some("0".to_owned()),
        Scalar::QuotedAsNumber => text.parse().ok().map(|number: u32| number.to_string()),
        Scalar::Index => None,
    };
    let Some(written) = written else {
        let noun = match scalar {
            Scalar::Address => "an IP address",
            Scalar::Network | Scalar::NeededNetwork => "a CIDR",
            Scalar::Mac => "a MAC address",
            Scalar::QuotedAsNumber => "an AS number",
            Scalar::Index => "an index",
        };
        return Err(format!("\"{text}\" is not {noun}"));
    };
    *value = Value::String(written);
    Ok(())
}
