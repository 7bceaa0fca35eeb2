//! What the packet filter takes from Felix's parameters.

use std::net::IpAddr;

use host::marks::{DENIALS_AT_ONCE, DENIALS_GROUP};
use model::felix::{Config, FailsafePort, Value};
use net::{Port, Protocol};
use policy::protocol_number;
use policy::render::{
    DenyAction, EndpointToHost, Failsafe, Listeners, Rate, ServiceLoops, Settings,
};
use sandbox::identity::HOST_INTERFACE_PREFIX;

/// How many denied packets each rule tells of: enough to see what is wrong, too few to be felt.
const DENIALS: Listeners = Listeners {
    group: DENIALS_GROUP,
    n_bytes: 128,
    rate: Rate { n_packets: 5, per_seconds: 1, burst: DENIALS_AT_ONCE },
};

/// The settings of the filter.
pub(crate) fn settings(config: &Config) -> Settings {
    let ours = [HOST_INTERFACE_PREFIX];
    let mut prefixes: Vec<String> = ours
        .into_iter()
        .chain(config.interface_prefixes())
        .filter(|prefix| !prefix.is_empty())
        .map(str::to_owned)
        .collect();
    prefixes.sort();
    prefixes.dedup();
    Settings {
        table: super::TABLE.to_owned(),
        interface_prefixes: prefixes,
        endpoint_to_host: match config.text("DefaultEndpointToHostAction") {
            "ACCEPT" => EndpointToHost::Accept,
            "RETURN" => EndpointToHost::Return,
            _ => EndpointToHost::Drop,
        },
        deny_action: match config.text("NftablesFilterDenyAction") {
            "REJECT" => DenyAction::Reject,
            _ => DenyAction::Drop,
        },
        drops_invalid: !config.is_on("DisableConntrackInvalidCheck"),
        may_spoof: config.text("WorkloadSourceSpoofing") == "Any",
        may_send_ipip: config.is_on("AllowIPIPPacketsFromWorkloads"),
        may_send_vxlan: config.is_on("AllowVXLANPacketsFromWorkloads"),
        vxlan_port: u16::try_from(config.int("VXLANPort")).unwrap_or(4789),
        denials: Some(DENIALS),
        log_prefix: config.text("LogPrefix").to_owned(),
        log_rate: log_rate(config),
        mark_mask: mark_mask(config),
        failsafe_inbound: failsafes(config, "FailsafeInboundHostPorts"),
        failsafe_outbound: failsafes(config, "FailsafeOutboundHostPorts"),
        service_loops: match config.text("ServiceLoopPrevention") {
            "Reject" => ServiceLoops::Reject,
            "Disabled" => ServiceLoops::Allow,
            _ => ServiceLoops::Drop,
        },
        nat_address: match config.get("NATOutgoingAddress") {
            Some(Value::Address(IpAddr::V4(address))) => Some(*address),
            _ => None,
        },
        nat_ports: nat_ports(config),
        nat_interface: Some(config.text("IptablesNATOutgoingInterfaceFilter"))
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
        nat_spares_hosts: config.text("NATOutgoingExclusions") == "IPPoolsAndHostIPs",
        ipip: config.get("IpInIpEnabled").and_then(Value::as_bool),
        vxlan: config.get("VXLANEnabled").and_then(Value::as_bool),
        wireguard_v4: wireguard_port(config, ["WireguardEnabled", "WireguardListeningPort"]),
        wireguard_v6: wireguard_port(config, ["WireguardEnabledV6", "WireguardListeningPortV6"]),
        external_nodes: match config.get("ExternalNodesCIDRList") {
            Some(Value::Cidrs(nodes)) => nodes.clone(),
            _ => Vec::new(),
        },
        ..Settings::default()
    }
}

fn wireguard_port(config: &Config, [enabled, port]: [&str; 2]) -> Option<u16> {
    u16::try_from(config.int(port)).ok().filter(|_| config.is_on(enabled))
}

/// A mask without enough bits was refused when it was read; none at all is the default.
fn mark_mask(config: &Config) -> u32 {
    match u32::try_from(config.int("NftablesMarkMask")) {
        Ok(0) | Err(_) => Settings::default().mark_mask,
        Ok(mask) => mask,
    }
}

/// `10/second` with its burst.
fn log_rate(config: &Config) -> Option<Rate> {
    let (n_packets, unit) = config.text("LogActionRateLimit").split_once('/')?;
    let per_seconds = match unit {
        "second" => 1,
        "minute" => 60,
        "hour" => 3600,
        "day" => 86_400,
        _ => return None,
    };
    let burst = u32::try_from(config.int("LogActionRateLimitBurst")).unwrap_or(5);
    Some(Rate { n_packets: n_packets.parse().ok()?, per_seconds, burst })
}

fn nat_ports(config: &Config) -> Option<(u16, u16)> {
    match config.get("NATPortRange")? {
        Value::Port(Port::Numbers { first, last }) if *last > 0 => Some((*first, *last)),
        _ => None,
    }
}

fn failsafes(config: &Config, name: &str) -> Vec<Failsafe> {
    let Some(Value::FailsafePorts(ports)) = config.get(name) else { return Vec::new() };
    let failsafe = |port: &FailsafePort| {
        let protocol = protocol_number(&Protocol::from(port.protocol))?;
        Some(Failsafe { protocol, port: port.port, net: port.net })
    };
    ports.iter().filter_map(failsafe).collect()
}
