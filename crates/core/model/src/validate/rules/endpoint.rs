//! Endpoints of workloads and hosts, and the nodes they are on.

use std::net::IpAddr;

use net::Cidr;

use super::scalar::read_protocol;
use super::{Faults, Place};

/// A node's BGP section says something.
pub(super) fn node_bgp(spec: &Place<'_>, faults: &mut Faults) {
    let Some(bgp) = spec.at("bgp") else { return };
    if bgp.value.as_object().is_some_and(serde_json::Map::is_empty) {
        let value = ("BGP", "&{<nil>    }".to_owned());
        faults.note(&bgp.path, "bgp is empty; remove it", value, "Spec.BGP should not be empty");
    }
}

/// A prefix or address; the empty text is "none given".
enum Given {
    Nothing,
    Cidr(Cidr),
    Unreadable,
}

fn read(text: &str) -> Given {
    match text.parse::<Cidr>() {
        _ if text.is_empty() => Given::Nothing,
        Ok(cidr) => Given::Cidr(cidr),
        Err(_) => Given::Unreadable,
    }
}

/// The networks of a workload are single addresses.
pub(super) fn networks(spec: &Place<'_>, faults: &mut Faults) {
    for item in spec.each("ipNetworks") {
        let text = item.value.as_str().unwrap_or_default();
        match read(text) {
            Given::Cidr(cidr) if cidr.prefix_len() != Cidr::host(cidr.address()).prefix_len() => {
                faults.note(
                    &item.path,
                    format!("{text} is more than one address"),
                    ("IPNetworks", spec.printed_field("ipNetworks")),
                    "IP network contains multiple addresses",
                );
            }
            Given::Cidr(_) | Given::Nothing => {}
            Given::Unreadable => {
                let message = format!("\"{text}\" is not an IP address");
                let value = ("IPNetworks", text.to_owned());
                faults.note(&item.path, message, value, "invalid CIDR");
            }
        }
    }
}

/// The gateways are addresses of their family.
pub(super) fn gateways(spec: &Place<'_>, faults: &mut Faults) {
    let fields = [("ipv4Gateway", "IPv4Gateway", true), ("ipv6Gateway", "IPv6Gateway", false)];
    for (field, name, want_ipv4) in fields {
        let version = if want_ipv4 { "IPv4" } else { "IPv6" };
        let text = spec.text(field);
        let reason = match read(text) {
            Given::Cidr(cidr) if cidr.is_ipv4() != want_ipv4 => {
                format!("invalid {version} gateway address specified")
            }
            Given::Cidr(_) | Given::Nothing => continue,
            Given::Unreadable => "invalid CIDR".to_owned(),
        };
        let message = format!("\"{text}\" is not an {version} address");
        faults.note(spec.path_of(field), message, (name, text.to_owned()), reason);
    }
}

/// NAT leads to addresses that the workload has.
pub(super) fn nats_in_networks(spec: &Place<'_>, faults: &mut Faults) {
    let networks: Vec<Cidr> = spec
        .each("ipNetworks")
        .iter()
        .filter_map(|item| item.value.as_str()?.parse().ok())
        .collect();
    let has = |address: IpAddr| networks.iter().any(|network| network.contains(address));
    for nat in spec.each("ipNATs") {
        let internal = nat.text("internalIP");
        let reason = match read(internal) {
            Given::Cidr(cidr) if has(cidr.network()) => continue,
            Given::Cidr(_) | Given::Nothing => "NAT is not in the endpoint networks",
            Given::Unreadable => "invalid InternalIP CIDR",
        };
        let message = format!("\"{internal}\" is not an address of the endpoint");
        let value = ("IPNATs", spec.printed_field("ipNATs"));
        faults.note(nat.path_of("internalIP"), message, value, reason);
        return;
    }
}

/// NAT stays within an address family.
pub(super) fn nat_families(nat: &Place<'_>, faults: &mut Faults) {
    let mut families = Vec::new();
    for field in ["internalIP", "externalIP"] {
        let text = nat.text(field);
        match read(text) {
            Given::Cidr(cidr) => families.push(Some(cidr.is_ipv4())),
            Given::Nothing => families.push(None),
            Given::Unreadable => {
                let message = format!("\"{text}\" is not an IP address");
                // Calico names the same field for both.
                let value = ("InternalIP", nat.text("externalIP").to_owned());
                faults.note(nat.path_of(field), message, value, "invalid IP address");
            }
        }
    }
    if let [internal, external] = families.as_slice()
        && internal != external
    {
        faults.note(
            nat.path_of("externalIP"),
            "internalIP and externalIP must be of the same IP version",
            ("ExternalIP", nat.text("externalIP").to_owned()),
            "mismatched IP versions",
        );
    }
}

fn has_ports(port: &Place<'_>) -> bool {
    let protocol = port.value.get("protocol").and_then(read_protocol);
    protocol.is_some_and(|protocol| protocol.has_ports())
}

fn protocol_without_ports(port: &Place<'_>, type_name: &str, faults: &mut Faults) {
    faults.note(
        port.path_of("protocol"),
        "a port needs the protocol TCP, UDP or SCTP",
        (&format!("{type_name}.Protocol"), port.printed_field("protocol")),
        format!("{type_name} protocol does not support ports."),
    );
}

/// A port of a host endpoint is one of a protocol that has ports.
pub(super) fn host_port_protocol(port: &Place<'_>, faults: &mut Faults) {
    if !has_ports(port) {
        protocol_without_ports(port, "EndpointPort", faults);
    }
}

/// The same of a workload endpoint, and it has a name or a port on the host.
pub(super) fn workload_port(port: &Place<'_>, faults: &mut Faults) {
    if !has_ports(port) {
        protocol_without_ports(port, "WorkloadEndpointPort", faults);
    }
    if port.text("name").is_empty() && port.number("hostPort") == 0 {
        faults.note(
            port.path_of("name"),
            "a port needs a name or a hostPort",
            ("WorkloadEndpointPort.Name", String::new()),
            "WorkloadEndpointPort name must not be empty if no HostPort is specified",
        );
    }
}

/// A host endpoint is on a node and finds its interface there.
pub(super) fn host_endpoint(spec: &Place<'_>, faults: &mut Faults) {
    if spec.text("interfaceName").is_empty() && !spec.has_items("expectedIPs") {
        let reason = "at least one of interfaceName or expectedIPs must be specified";
        faults.schema(spec, "interfaceName", "give interfaceName or expectedIPs", reason);
    }
    if spec.text("node").is_empty() {
        faults.schema(spec, "node", "node is missing", "node must be specified");
    }
}
