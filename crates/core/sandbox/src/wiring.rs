//! How a sandbox is wired: the pair of interfaces, addresses, routes and kernel settings on both
//! sides. What ADD makes and what CHECK looks for are the same lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use net::Cidr;
use serde::{Deserialize, Serialize};

/// The hardware address of every host's end: the gateway of all pods.
pub const HOST_MAC: [u8; 6] = [0xee; 6];
/// The next hop inside, for IPv4; the host answers for it by proxy ARP.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The next hop inside, for IPv6: the link-local address that [`HOST_MAC`] gives.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xecee, 0xeeff, 0xfeee, 0xeeee);

/// The wiring of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wiring {
    /// The host's end.
    pub host_interface: String,
    /// The end inside.
    pub container_interface: String,
    /// The hardware address inside.
    pub mac: [u8; 6],
    /// The MTU of both ends; none leaves it to the kernel.
    pub mtu: Option<u32>,
    /// Queues of both ends.
    pub queues: u32,
    /// The addresses inside, single ones.
    pub addresses: Vec<IpAddr>,
    /// Where the gateway leads to, besides itself.
    pub routes: Vec<Cidr>,
    /// Whether the container may forward packets.
    pub allow_forwarding: bool,
}

/// A kernel setting of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Whether it is one of IPv6.
    pub is_ipv6: bool,
    /// What it is a setting of.
    pub place: Place,
    /// Its name there.
    pub name: &'static str,
    /// The value.
    pub value: &'static str,
    /// Whether it matters enough to fail for.
    pub is_required: bool,
}

/// What a kernel setting is a setting of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The whole family.
    Family,
    /// All interfaces at once.
    All,
    /// Interfaces yet to come.
    Default,
    /// One interface.
    Interface(String),
    /// The neighbours on one interface.
    Neighbours(String),
}

fn v4(place: Place, name: &'static str, value: &'static str) -> Setting {
    Setting { is_ipv6: false, place, name, value, is_required: true }
}

fn v6(place: Place, name: &'static str, value: &'static str) -> Setting {
    Setting { is_ipv6: true, place, name, value, is_required: true }
}

impl Setting {
    fn wished(self) -> Self {
        Self { is_required: false, ..self }
    }
}

impl Wiring {
    /// Whether there is an IPv4 address.
    pub fn has_ipv4(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv4)
    }

    /// Whether there is an IPv6 address.
    pub fn has_ipv6(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv6)
    }

    /// Settings of the host's end that must stand before it comes up.
    pub fn host_settings(&self) -> Vec<Setting> {
        let interface = || Place::Interface(self.host_interface.clone());
        let mut settings = Vec::new();
        if self.has_ipv4() {
            let neighbours = Place::Neighbours(self.host_interface.clone());
            settings.push(v4(interface(), "route_localnet", "1"));
            settings.push(v4(neighbours, "proxy_delay", "0").wished());
            settings.push(v4(interface(), "proxy_arp", "1"));
            settings.push(v4(interface(), "forwarding", "1"));
        }
        if self.has_ipv6() {
            settings.push(v6(interface(), "disable_ipv6", "0"));
            settings.push(v6(interface(), "accept_dad", "0"));
            settings.push(v6(interface(), "proxy_ndp", "1"));
            settings.push(v6(interface(), "forwarding", "1"));
        }
        // A pod must never become the host's router.
        settings.push(v6(interface(), "accept_ra", "0").wished());
        settings
    }

    /// Settings inside the container, before its interface comes up.
    pub fn container_settings(&self) -> Vec<Setting> {
        let forwarding = if self.allow_forwarding { "1" } else { "0" };
        let mut settings = Vec::new();
        if self.has_ipv4() {
            settings.push(v4(Place::Family, "ip_forward", forwarding));
        }
        if self.has_ipv6() {
            settings.push(v6(Place::All, "disable_ipv6", "0"));
            settings.push(v6(Place::Default, "disable_ipv6", "0"));
            settings.push(v6(Place::Interface("lo".into()), "disable_ipv6", "0"));
            let interface = Place::Interface(self.container_interface.clone());
            settings.push(v6(interface, "accept_dad", "0"));
            settings.push(v6(Place::All, "forwarding", forwarding));
        }
        settings
    }
}

/// The routes of a container whose address manager named none.
pub fn default_routes() -> Vec<Cidr> {
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)]
        .into_iter()
        .filter_map(|address| Cidr::new(address, 0))
        .collect()
}

/// The hardware address made of six random bytes: one station's, and locally given.
pub fn mac_from(random: [u8; 6]) -> [u8; 6] {
    let mut mac = random;
    mac[0] = (mac[0] & 0xfc) | 0x02;
    mac
}

/// A hardware address as everybody writes it.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
