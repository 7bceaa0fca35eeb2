//! BGP: communities, peers and filters.

use net::{Cidr, parse_decimal, parse_ip};
use serde_json::Value;

use super::{Faults, Place};

/// Communities have the form `a:b` (16 bits each) or `a:b:c` (32 bits each).
pub(super) fn communities(spec: &Place<'_>, faults: &mut Faults) {
    const FIELD: &str = "Spec.Communities[].Value";
    for community in spec.each("communities") {
        let value = community.text("value");
        let path = community.path_of("value");
        if !community_parts(value, &path, FIELD, faults) {
            let message = format!("\"{value}\" is not a community such as 65000:1 or 65000:1:2");
            let reason = "invalid community value or format used.";
            faults.note(path, message, (FIELD, value.to_owned()), reason);
        }
    }
}

/// Advertised prefixes can be read, and their communities are values or defined names.
pub(super) fn prefix_advertisements(spec: &Place<'_>, faults: &mut Faults) {
    const FIELD: &str = "Spec.PrefixAdvertisement[].Communities[]";
    let defined: Vec<&str> =
        spec.each("communities").iter().map(|community| community.text("name")).collect();
    for advertisement in spec.each("prefixAdvertisements") {
        let cidr = advertisement.text("cidr");
        if !cidr.is_empty() && cidr.parse::<Cidr>().is_err() {
            faults.note(
                advertisement.path_of("cidr"),
                format!("\"{cidr}\" is not a prefix such as 10.0.0.0/8"),
                ("Spec.PrefixAdvertisement[].CIDR", cidr.to_owned()),
                "invalid CIDR value.",
            );
        }
        for community in advertisement.each("communities") {
            let value = community.value.as_str().unwrap_or_default();
            let is_value = community_parts(value, &community.path, FIELD, faults);
            if !is_value && !defined.contains(&value) {
                let message = format!("\"{value}\" is neither a community nor the name of one");
                let reason = "community used is invalid or not defined.";
                faults.note(&community.path, message, (FIELD, value.to_owned()), reason);
            }
        }
    }
}

/// Whether the text has the form of a community; notes each part that is too large.
fn community_parts(text: &str, path: &str, field: &str, faults: &mut Faults) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (bits, most) = match parts.len() {
        2 => (16, u64::from(u16::MAX)),
        3 => (32, u64::from(u32::MAX)),
        _ => return false,
    };
    if !parts.iter().all(is_number) {
        return false;
    }
    for part in parts {
        if parse_decimal::<u64>(part).is_none_or(|number| number > most) {
            let message = format!("{part} is above {most}, the largest number of {bits} bits");
            let reason = format!("invalid community value, expected {bits} bit value");
            faults.note(path, message, (field, text.to_owned()), reason);
        }
    }
    true
}

/// The gateway to a peer is of the peer's address family.
pub(super) fn gateway_family(spec: &Place<'_>, faults: &mut Faults) {
    let gateway = parse_ip(spec.text("reachableBy"));
    let peer = peer_address(spec.text("peerIP"));
    if let (Some(gateway), Some(peer)) = (gateway, peer)
        && gateway.is_ipv4() != peer.is_ipv4()
    {
        faults.note(
            spec.path_of("reachableBy"),
            "reachableBy must be of the same IP version as peerIP",
            ("ReachableBy", spec.text("reachableBy").to_owned()),
            "ReachableBy and PeerIP address family mismatched",
        );
    }
}

/// The address in `1.2.3.4`, `1.2.3.4:179`, `fd00::1` or `[fd00::1]:179`.
fn peer_address(text: &str) -> Option<std::net::IpAddr> {
    parse_ip(text).or_else(|| {
        let (address, port) = text.rsplit_once(':')?;
        parse_decimal::<u16>(port).filter(|port| *port > 0)?;
        parse_ip(address.trim_start_matches('[').trim_end_matches(']'))
    })
}

/// Settings of the node mesh need the mesh.
pub(super) fn node_mesh(spec: &Place<'_>, faults: &mut Faults) {
    if spec.value.get("nodeToNodeMeshEnabled") != Some(&Value::Bool(false)) {
        return;
    }
    for field in ["nodeMeshPassword", "nodeMeshMaxRestartTime"] {
        if spec.has(field) {
            let reason = format!("{field} cannot be set when nodeToNodeMeshEnabled is false");
            let message = format!("{field} needs nodeToNodeMeshEnabled: true");
            faults.schema(spec, field, message, reason);
        }
    }
}

/// Named communities are there to be used.
pub(super) fn communities_used(spec: &Place<'_>, faults: &mut Faults) {
    if spec.has_items("communities") && !spec.has_items("prefixAdvertisements") {
        let reason = "communities are defined but not used in prefixAdvertisements";
        let message = "communities need prefixAdvertisements that use them";
        faults.schema(spec, "communities", message, reason);
    }
}

/// A peer is named in one way on either side.
pub(super) fn peer_exclusions(spec: &Place<'_>, faults: &mut Faults) {
    let has = |field: &str| !spec.text(field).is_empty();
    if has("node") && has("nodeSelector") {
        let reason = "node and nodeSelector cannot both be set";
        faults.schema(spec, "nodeSelector", "node and nodeSelector exclude each other", reason);
    }
    if has("peerIP") && has("peerSelector") {
        let reason = "peerIP and peerSelector cannot both be set";
        faults.schema(spec, "peerSelector", "peerIP and peerSelector exclude each other", reason);
    }
    if has("peerSelector") && spec.number("asNumber") != 0 {
        let reason = "asNumber must be empty when peerSelector is set";
        let message = "with peerSelector the AS number is that of the selected node";
        faults.schema(spec, "asNumber", message, reason);
    }
}

/// Peering with local workloads needs an AS number and no other peer.
pub(super) fn workload_peers(spec: &Place<'_>, faults: &mut Faults) {
    if spec.text("localWorkloadSelector").is_empty() {
        return;
    }
    for field in ["peerIP", "peerSelector"] {
        if !spec.text(field).is_empty() {
            let reason = format!("{field} must be empty when localWorkloadSelector is set");
            let message = format!("{field} and localWorkloadSelector exclude each other");
            faults.schema(spec, field, message, reason);
        }
    }
    if spec.number("asNumber") == 0 {
        let reason = "asNumber is required when localWorkloadSelector is set";
        faults.schema(spec, "asNumber", "localWorkloadSelector needs asNumber", reason);
    }
}

/// A gateway leads to a peer with an address.
pub(super) fn gateway_needs_peer(spec: &Place<'_>, faults: &mut Faults) {
    if !spec.text("reachableBy").is_empty() && spec.text("peerIP").is_empty() {
        let reason = "reachableBy must be empty when peerIP is empty";
        faults.schema(spec, "reachableBy", "reachableBy needs peerIP", reason);
    }
}

/// The next hop is set by the new field or by the old one.
pub(super) fn next_hop(spec: &Place<'_>, faults: &mut Faults) {
    if spec.flag("keepOriginalNextHop") && spec.has("nextHopMode") {
        let reason = "keepOriginalNextHop and nextHopMode cannot both be set; \
                      keepOriginalNextHop is deprecated, use nextHopMode instead";
        let message = "keepOriginalNextHop and nextHopMode exclude each other; use nextHopMode";
        faults.schema(spec, "keepOriginalNextHop", message, reason);
    }
}

/// The parts of a filter rule that need each other.
pub(super) fn filter_rule(rule: &Place<'_>, faults: &mut Faults) {
    let has_cidr = !rule.text("cidr").is_empty();
    if has_cidr == rule.text("matchOperator").is_empty() {
        let reason = "cidr and matchOperator must both be set or both be empty";
        faults.schema(rule, "cidr", "cidr and matchOperator need each other", reason);
    }
    if rule.has("prefixLength") && !has_cidr {
        let reason = "cidr is required when prefixLength is set";
        faults.schema(rule, "prefixLength", "prefixLength needs cidr", reason);
    }
    if rule.has_items("operations") && rule.text("action") != "Accept" {
        let reason = "operations may only be used with action Accept";
        faults.schema(rule, "operations", "operations need the action Accept", reason);
    }
}
