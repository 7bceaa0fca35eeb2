//! FelixConfiguration: ranges, addresses and settings that exclude each other.

use net::{Cidr, Duration, Port, parse_ip};

use super::metadata::{LABEL_LENGTH_MAX, is_dns_label};
use super::place::whole_number;
use super::scalar::read_port;
use super::{Faults, Place};

/// A `multiport` match takes 15 numbers, two per range.
const NODE_PORT_RANGES_MAX: usize = 7;
/// How many routing tables Felix may be given.
const TABLES_MAX: i128 = 0xffff;
/// The highest routing table that Linux knows.
const TABLE_NUMBER_MAX: i64 = 0xffff_ffff;
/// What OpenStack regions get in front when they become namespaces.
const REGION_PREFIX: &str = "openstack-region-";

/// Node ports are few ranges of numbers.
pub(super) fn node_port_ranges(spec: &Place<'_>, faults: &mut Faults) {
    const FIELD: &str = "KubeNodePortRanges";
    let ranges = spec.each("kubeNodePortRanges");
    let printed = || spec.printed_field("kubeNodePortRanges");
    if ranges.len() > NODE_PORT_RANGES_MAX {
        faults.note(
            spec.path_of("kubeNodePortRanges"),
            format!("there may be {NODE_PORT_RANGES_MAX} ranges, not {}", ranges.len()),
            (FIELD, printed()),
            "node port ranges list is too long (max 7)",
        );
    }
    for range in &ranges {
        if let Some(Port::Name(name)) = read_port(range.value) {
            faults.note(
                &range.path,
                format!("\"{name}\" is not a port number or range of them"),
                (FIELD, printed()),
                "node port ranges should not contain named ports",
            );
        }
    }
}

/// External nodes are IPv4 prefixes.
pub(super) fn external_nodes(spec: &Place<'_>, faults: &mut Faults) {
    for item in spec.each("externalNodesList") {
        let text = item.value.as_str().unwrap_or_default();
        let reason = match text.parse::<Cidr>() {
            Ok(cidr) if cidr.is_ipv4() => continue,
            Err(_) if !text.is_empty() => "has invalid CIDR(s)",
            _ => "has invalid IPv6 CIDR",
        };
        let message = format!("\"{text}\" is not an IPv4 prefix such as 10.0.0.0/8");
        faults.note(&item.path, message, ("ExternalNodesCIDRList", text.to_owned()), reason);
    }
}

/// The region becomes the end of a namespace's name.
pub(super) fn openstack_region(spec: &Place<'_>, faults: &mut Faults) {
    let region = spec.text("openstackRegion");
    let longest = LABEL_LENGTH_MAX - REGION_PREFIX.len();
    let (message, reason) = if region.len() > longest {
        (format!("a region may have {longest} characters"), "is too long")
    } else if !region.is_empty() && !is_dns_label(region) {
        let message = format!("\"{region}\" is not a name of lower-case letters, digits and \"-\"");
        (message, "must be a valid DNS label")
    } else {
        return;
    };
    let value = ("OpenstackRegion", region.to_owned());
    faults.note(spec.path_of("openstackRegion"), message, value, reason);
}

const ADDRESSES: [(&str, &str, u8); 3] = [
    ("natOutgoingAddress", "NATOutgoingAddress", 4),
    ("deviceRouteSourceAddress", "DeviceRouteSourceAddress", 4),
    ("deviceRouteSourceAddressIPv6", "DeviceRouteSourceAddressIPv6", 6),
];

/// Source addresses are addresses.
pub(super) fn addresses(spec: &Place<'_>, faults: &mut Faults) {
    for (field, name, _) in ADDRESSES {
        let text = spec.text(field);
        if !text.is_empty() && parse_ip(text).is_none() {
            faults.note(
                spec.path_of(field),
                format!("\"{text}\" is not an IP address"),
                (name, text.to_owned()),
                "is not a valid IP address",
            );
        }
    }
}

/// Source addresses are of the IP version of their field.
pub(super) fn address_families(spec: &Place<'_>, faults: &mut Faults) {
    for (field, _, version) in ADDRESSES {
        let text = spec.text(field);
        // Unlike Go's reading, the CRD rule does not take an IPv4 address in IPv6 form.
        let is_right = match text.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V4(_)) => version == 4,
            Ok(std::net::IpAddr::V6(v6)) => version == 6 && v6.to_ipv4_mapped().is_none(),
            Err(_) => false,
        };
        if !text.is_empty() && !is_right {
            let reason = format!("{field} must be a valid IPv{version} address");
            faults.schema(
                spec,
                field,
                format!("\"{text}\" is not an IPv{version} address"),
                reason,
            );
        }
    }
}

/// Felix gets a bounded number of routing tables.
pub(super) fn table_count(spec: &Place<'_>, faults: &mut Faults) {
    let count: i128 = spec
        .each("routeTableRanges")
        .iter()
        .map(|range| i128::from(range.number("max")) - i128::from(range.number("min")) + 1)
        .sum();
    if count > TABLES_MAX {
        faults.note(
            spec.path_of("routeTableRanges"),
            format!("there may be {TABLES_MAX} tables, these ranges have {count}"),
            ("RouteTableRanges", format!("&{}", spec.printed_field("routeTableRanges"))),
            "targets too many tables",
        );
    }
}

/// A range of routing tables runs upwards from 1.
pub(super) fn table_range(range: &Place<'_>, faults: &mut Faults) {
    let (min, max) = (range.number("min"), range.number("max"));
    let breaches = [
        (min > max, "min", "min is above max", "min value cannot be greater than max value"),
        (min <= 0, "min", "tables start at 1", "cannot target indices < 1"),
        (max > TABLE_NUMBER_MAX, "max", "the last table is 4294967295", "max index too high"),
    ];
    for (breached, field, message, reason) in breaches {
        if breached {
            let value = ("RouteTableRange", range.printed());
            faults.note(range.path_of(field), message, value, reason);
        }
    }
}

/// The same in the words of the CRD.
pub(super) fn table_range_schema(range: &Place<'_>, faults: &mut Faults) {
    let (min, max) = (range.number("min"), range.number("max"));
    if min < 1 {
        faults.schema(range, "min", "tables start at 1", "min must be >= 1");
    }
    if min > max {
        faults.schema(range, "min", "min is above max", "min must not be greater than max");
    }
}

const OLD_RANGE_REASON: &str = "must be a range of route table indices within 1..250";

fn is_old_range(range: &Place<'_>) -> bool {
    let (min, max) = (range.number("min"), range.number("max"));
    min >= 1 && max >= min && max <= 250
}

/// The older setting of a single range stays below the tables that Linux reserves.
pub(super) fn old_table_range(range: &Place<'_>, faults: &mut Faults) {
    if !is_old_range(range) {
        let value = ("RouteTableRange", range.printed());
        faults.note(&range.path, "the range must lie within 1 to 250", value, OLD_RANGE_REASON);
    }
}

/// The same in the words of the CRD.
pub(super) fn old_table_range_schema(range: &Place<'_>, faults: &mut Faults) {
    if !is_old_range(range) {
        faults.schema(range, "", "the range must lie within 1 to 250", OLD_RANGE_REASON);
    }
}

/// Routing tables are given by the new field or by the old one.
pub(super) fn one_table_setting(spec: &Place<'_>, faults: &mut Faults) {
    if spec.has("routeTableRange") && spec.has("routeTableRanges") {
        let reason = "routeTableRange and routeTableRanges cannot both be set";
        let message = "routeTableRange and routeTableRanges exclude each other";
        faults.schema(spec, "routeTableRange", message, reason);
    }
}

/// `default` and `node.*` say by their name where they apply.
pub(super) fn selector_only_on_groups(object: &Place<'_>, faults: &mut Faults) {
    let name = object.at("metadata").map_or("", |metadata| metadata.text("name"));
    if name.is_empty() {
        super::metadata::unnamed(object, faults);
    }
    let has_selector = object.at("spec").is_some_and(|spec| spec.has("nodeSelector"));
    if has_selector && (name == "default" || name.starts_with("node.")) {
        let reason = "nodeSelector must not be set on the 'default' or per-node ('node.*') \
                      FelixConfiguration";
        let message = format!("\"{name}\" says by its name where it applies; remove nodeSelector");
        faults.schema(object, "spec.nodeSelector", message, reason);
    }
}

/// A health timeout names its source and does not run backwards.
pub(super) fn health_timeout(timeout: &Place<'_>, faults: &mut Faults) {
    let name = timeout.text("name");
    let printed = || format!("{{{name} {{{}}}}}", timeout.printed_field("timeout"));
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_ -".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_allowed) {
        faults.note(
            timeout.path_of("name"),
            format!("\"{name}\" is not made of letters, digits, \"_\", \"-\" and spaces"),
            ("HealthTimeoutOverride.Name", printed()),
            "name should match regex ^[a-zA-Z0-9_ -]+$",
        );
    }
    let is_negative =
        timeout.text("timeout").parse::<Duration>().is_ok_and(|duration| duration.seconds() < 0.0)
            || timeout.value.get("timeout").and_then(whole_number).is_some_and(|nanos| nanos < 0);
    if is_negative {
        faults.note(
            timeout.path_of("timeout"),
            "the timeout must not be negative",
            ("HealthTimeoutOverride.Timeout", printed()),
            "Timeout should not be negative",
        );
    }
}

/// A failsafe port is one of a protocol that has ports.
pub(super) fn failsafe_protocol(port: &Place<'_>, faults: &mut Faults) {
    let protocol = port.text("protocol");
    if !["TCP", "UDP", "SCTP"].contains(&protocol) {
        faults.note(
            port.path_of("protocol"),
            format!("\"{protocol}\" is not TCP, UDP or SCTP"),
            ("ProtoPort.Protocol", protocol.to_owned()),
            "protocol must be 'TCP' or 'UDP' or 'SCTP'.",
        );
    }
}
