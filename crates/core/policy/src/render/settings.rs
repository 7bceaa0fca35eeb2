//! What the ruleset depends on beside policy.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use net::Cidr;
use nft::Expression;

use crate::interfaces::Interfaces;

/// What the operator has set; the default is Calico's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The table's name, in each family.
    pub table: String,
    /// Whether nobody else may change the tables once they are made.
    pub is_owned: bool,
    /// What the names of workloads' interfaces begin with.
    pub interface_prefixes: Vec<String>,
    /// What becomes of a workload's packets to this host that its policies allow.
    pub endpoint_to_host: EndpointToHost,
    /// How a denied packet is refused.
    pub deny_action: DenyAction,
    /// Whether packets that connection tracking cannot make sense of are dropped.
    pub drops_invalid: bool,
    /// Whether workloads may use the sources that they are allowed beside their own.
    pub may_spoof: bool,
    /// Whether workloads may send IPIP packets.
    pub may_send_ipip: bool,
    /// Whether workloads may send VXLAN packets.
    pub may_send_vxlan: bool,
    /// The UDP port of VXLAN.
    pub vxlan_port: u16,
    /// What is counted.
    pub counters: Counters,
    /// Hands denied packets to listeners of a group.
    pub denials: Option<Listeners>,
    /// What the kernel's log says before a packet that a rule logs.
    pub log_prefix: String,
    /// How many packets rules log.
    pub log_rate: Option<Rate>,
    /// The bits of the packet's mark that are ours.
    pub mark_mask: u32,
    /// What always reaches this host.
    pub failsafe_inbound: Vec<Failsafe>,
    /// What this host always reaches.
    pub failsafe_outbound: Vec<Failsafe>,
    /// What becomes of packets to addresses of services that nobody has.
    pub service_loops: ServiceLoops,
    /// The source of packets that leave the pools, in the place of the interface's address.
    pub nat_address: Option<Ipv4Addr>,
    /// The source ports of such packets.
    pub nat_ports: Option<(u16, u16)>,
    /// The interface by which they leave; `eth+` for all that begin so. Any if there is none.
    pub nat_interface: Option<String>,
    /// Whether packets to other hosts of the cluster keep their source.
    pub nat_spares_hosts: bool,
    /// Whether nodes send each other IPIP packets, if not as the pools say.
    pub ipip: Option<bool>,
    /// Whether they send each other VXLAN packets over IPv4, if not as the pools say.
    pub vxlan: Option<bool>,
    /// The port of WireGuard over IPv4, if it is in use.
    pub wireguard_v4: Option<u16>,
    /// The port of WireGuard over IPv6, if it is in use.
    pub wireguard_v6: Option<u16>,
    /// Hosts that count as nodes although the cluster does not know them.
    pub external_nodes: Vec<Cidr>,
}

impl Default for Settings {
    fn default() -> Self {
        let (tcp, udp) = (6, 17);
        let both = [179, 2379, 2380, 5473, 6443, 6666, 6667].map(|port| Failsafe::new(tcp, port));
        let with = |own: [Failsafe; 2]| own.into_iter().chain(both.clone()).collect();
        Self {
            table: "margay".to_owned(),
            is_owned: false,
            interface_prefixes: vec!["cali".to_owned()],
            endpoint_to_host: EndpointToHost::Drop,
            deny_action: DenyAction::Drop,
            drops_invalid: true,
            may_spoof: false,
            may_send_ipip: false,
            may_send_vxlan: false,
            vxlan_port: 4789,
            counters: Counters::Denials,
            denials: None,
            log_prefix: "calico-packet".to_owned(),
            log_rate: None,
            mark_mask: 0xffff_0000,
            failsafe_inbound: with([Failsafe::new(tcp, 22), Failsafe::new(udp, 68)]),
            failsafe_outbound: with([Failsafe::new(udp, 53), Failsafe::new(udp, 67)]),
            service_loops: ServiceLoops::Drop,
            nat_address: None,
            nat_ports: None,
            nat_interface: None,
            nat_spares_hosts: false,
            ipip: None,
            vxlan: None,
            wireguard_v4: None,
            wireguard_v6: None,
            external_nodes: Vec::new(),
        }
    }
}

impl Settings {
    /// The bit that says that a host's policy has allowed a packet already: the lowest of ours.
    pub(super) fn accept_mark(&self) -> u32 {
        self.mark_mask & self.mark_mask.wrapping_neg()
    }

    /// The bit that says that a packet of this host is judged after routing: the next one.
    pub(super) fn translated_mark(&self) -> u32 {
        let rest = self.mark_mask & !self.accept_mark();
        rest & rest.wrapping_neg()
    }

    /// The bit that says that a packet to a service came from a workload: the third. If there is
    /// none it is that of the second, which rows of tiers take away.
    pub(super) fn workload_mark(&self) -> u32 {
        let rest = self.mark_mask & !self.accept_mark() & !self.translated_mark();
        if rest == 0 { self.translated_mark() } else { rest & rest.wrapping_neg() }
    }

    /// The bits that say by which interface of the host it came: all others.
    pub(super) fn arrival_mask(&self) -> u32 {
        self.mark_mask & !self.accept_mark() & !self.translated_mark() & !self.workload_mark()
    }

    /// The bit that says that a row of tiers has not decided about a packet. It can be the same: no
    /// packet has that one while it is judged.
    pub(super) fn undecided_mark(&self) -> u32 {
        self.translated_mark()
    }
}

/// What becomes of a workload's packets to this host that its policies allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointToHost {
    /// They are dropped.
    Drop,
    /// Other tables decide.
    Return,
    /// They are accepted, as far as one table can.
    Accept,
}

/// How a denied packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyAction {
    /// In silence.
    Drop,
    /// With a message to its sender.
    Reject,
}

/// Which rules count what they match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// None.
    None,
    /// Those that drop.
    Denials,
    /// Also those that allow and pass.
    All,
}

/// Where denied packets are handed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listeners {
    /// The group.
    pub group: u16,
    /// How many bytes of a packet they get.
    pub n_bytes: u32,
    /// How many packets of each rule and source: who sends many hides nobody else's.
    pub rate: Rate,
    /// How many packets of each rule, from whomever.
    pub rate_of_all: Rate,
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// That often …
    pub n_packets: u64,
    /// … in that many seconds.
    pub per_seconds: u64,
    /// How many may come at once.
    pub burst: u32,
}

impl Rate {
    /// Goes on while it is not exceeded.
    pub(super) fn expression(self) -> Expression {
        self.limit(false)
    }

    /// Goes on once it is exceeded.
    pub(super) fn excess(self) -> Expression {
        self.limit(true)
    }

    fn limit(self, is_inverted: bool) -> Expression {
        let Self { n_packets: rate, per_seconds, burst } = self;
        Expression::Limit { rate, per_seconds, burst, is_inverted }
    }
}

/// A port of this host, or of another, that no policy of the host closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failsafe {
    /// The protocol's number.
    pub protocol: u8,
    /// The port.
    pub port: u16,
    /// The other end; anybody if there is none.
    pub net: Option<Cidr>,
}

impl Failsafe {
    /// A port, for anybody.
    pub fn new(protocol: u8, port: u16) -> Self {
        Self { protocol, port, net: None }
    }
}

/// What becomes of packets to addresses of services that nobody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceLoops {
    /// They are dropped.
    Drop,
    /// They are refused with a message.
    Reject,
    /// They are passed on.
    Allow,
}

/// What is around the endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The pools of the cluster.
    pub pools: BTreeSet<Cidr>,
    /// Those whose packets get another source when they leave the pools.
    pub nat_outgoing: BTreeSet<Cidr>,
    /// How nodes send each other the packets of workloads.
    pub tunnels: Tunnels,
    /// The addresses of all hosts of the cluster.
    pub host_addresses: BTreeSet<IpAddr>,
    /// The networks of services' addresses.
    pub service_networks: BTreeSet<Cidr>,
    /// The interfaces of this host with their addresses.
    pub interfaces: Interfaces,
}

/// Which tunnels the pools ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunnels {
    /// IPIP.
    pub ipip: bool,
    /// VXLAN over IPv4.
    pub vxlan_v4: bool,
    /// VXLAN over IPv6.
    pub vxlan_v6: bool,
}
