//! Felix's parameters, and what the packet filter takes from them.

use std::net::IpAddr;

use model::felix::{Config, FailsafePort, Host, Problem, Sources, Value};
use net::{Port, Protocol};
use policy::protocol_number;
use policy::render::{DenyAction, EndpointToHost, Failsafe, Rate, ServiceLoops, Settings};
use sandbox::identity::HOST_INTERFACE_PREFIX;

/// The parameters that a node has by these sources, and what is wrong with them.
pub fn resolve(sources: &Sources, host: &Host<'_>) -> (Config, Vec<Problem>) {
    // The agent has its own datastore settings, which are not Felix's.
    let mut sources = sources.clone();
    for texts in sources.values_mut() {
        texts.retain(|name, _| !is_of_datastore(name));
    }
    Config::resolve(&sources, host)
}

/// Whether a parameter only tells where the datastore is.
fn is_of_datastore(name: &str) -> bool {
    let name = name.to_lowercase();
    name.starts_with("etcd") || name.starts_with("typha") || name == "datastoretype"
}

/// The settings of the filter; who listens to denied packets is not known here.
pub fn filter_settings(config: &Config) -> Settings {
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
