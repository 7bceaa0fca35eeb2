//! Network interfaces: what the kernel tells of them, and what can be asked for.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use crate::error::{Error, Result};
use crate::netns::Netns;
use crate::wire::{self, Malformed, Writer};

pub(crate) const NEW: u16 = 16;
pub(crate) const DELETE: u16 = 17;
pub(crate) const GET: u16 = 18;
pub(crate) const SET: u16 = 19;

const FIXED_LEN: usize = 16;
const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LINK: u16 = 5;
const MASTER: u16 = 10;
const LINK_DETAILS: u16 = 18;
const ALIAS: u16 = 20;
const GROUP: u16 = 27;
const NETNS_FD: u16 = 28;
const EXTENT_MASK: u16 = 29;
const TX_QUEUES: u16 = 31;
const RX_QUEUES: u16 = 32;
const LINK_NETNS_ID: u16 = 37;
const DETAIL_KIND: u16 = 1;
const DETAIL_VALUES: u16 = 2;
const VETH_PEER: u16 = 1;
/// Leaves the counters out of an answer: they are most of its bytes.
const SKIP_STATISTICS: u32 = 8;

const FLAG_UP: u32 = 0x1;
const FLAG_LOOPBACK: u32 = 0x8;
const FLAG_RUNNING: u32 = 0x40;

/// The longest name that an interface can have, in bytes.
const NAME_LEN_MAX: usize = 15;

/// The number of an interface, which is its identity inside a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkIndex(pub u32);

impl fmt::Display for LinkIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interface {}", self.0)
    }
}

/// The name of an interface: a label for people, and unique only at one moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName(String);

impl LinkName {
    /// Takes what the kernel takes: 1 to 15 bytes, no `/`, `:`, `%` or white space, not `.`, `..`.
    pub fn new(name: &str) -> Result<Self> {
        let is_bad = |byte: u8| {
            b"/:%".contains(&byte) || byte.is_ascii_whitespace() || byte == 0 || byte == 0x0b
        };
        let is_good = (1..=NAME_LEN_MAX).contains(&name.len())
            && !name.bytes().any(is_bad)
            && !matches!(name, "." | "..");
        if !is_good {
            return Err(Error::Invalid(format!(
                "{name:?} cannot be the name of an interface: 1 to {NAME_LEN_MAX} bytes without \
                 slash, colon, percent sign and white space"
            )));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl TryFrom<&[u8]> for Mac {
    type Error = Error;

    fn try_from(bytes: &[u8]) -> Result<Self> {
        let octets = bytes.try_into();
        octets.map(Self).map_err(|_| Error::Invalid("an Ethernet address has 6 bytes".into()))
    }
}

/// An interface as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: LinkIndex,
    /// Its name.
    pub name: LinkName,
    /// Its sort (`veth`, `bridge`, `vxlan`, …); a physical interface has none.
    pub kind: Option<String>,
    /// The alias, in which we write whom the interface belongs to.
    pub alias: Option<String>,
    /// The Ethernet address, where it has one.
    pub mac: Option<Mac>,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it is on and the other side is there.
    pub is_running: bool,
    /// Whether it is the loopback interface.
    pub is_loopback: bool,
    /// The bridge (or other device) that it is a port of.
    pub master: Option<LinkIndex>,
    /// The other end of a veth, or the device below; it may be in another namespace.
    pub peer: Option<LinkIndex>,
    /// The namespace of `peer` when it is another one, as [`crate::Netlink::netns_id`] numbers it.
    pub peer_netns_id: Option<u32>,
    /// Transmit queues.
    pub n_tx_queues: u32,
}

/// An interface to be made.
#[derive(Clone, Debug)]
pub struct NewLink {
    /// Its name; an interface of that name makes the call fail with `already_exists`.
    pub name: LinkName,
    /// What it is.
    pub kind: NewLinkKind,
    /// The alias. The interface never carries its name without it.
    pub alias: Option<String>,
    /// The Ethernet address; the kernel draws one if absent.
    pub mac: Option<Mac>,
    /// The largest packet; the kernel's default if absent.
    pub mtu: Option<u32>,
    /// Transmit and receive queues; the kernel's default if absent.
    pub n_queues: Option<u32>,
    /// Whether it is switched on at once.
    pub is_up: bool,
}

impl NewLink {
    /// An interface with the kernel's defaults, switched off.
    pub fn new(name: LinkName, kind: NewLinkKind) -> Self {
        Self { name, kind, alias: None, mac: None, mtu: None, n_queues: None, is_up: false }
    }
}

/// The sorts of interface that can be made.
#[derive(Clone, Debug)]
pub enum NewLinkKind {
    /// A pair of interfaces, each the cable of the other.
    Veth(VethPeer),
    /// An Ethernet switch.
    Bridge,
    /// A VXLAN device with static forwarding.
    Vxlan(Vxlan),
}

/// The other end of a veth.
#[derive(Clone, Debug)]
pub struct VethPeer {
    /// Its name.
    pub name: LinkName,
    /// The namespace that it is born in; the same one if absent.
    pub netns: Option<Netns>,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// Its largest packet.
    pub mtu: Option<u32>,
    /// Its queues.
    pub n_queues: Option<u32>,
}

impl VethPeer {
    /// A peer with the kernel's defaults.
    pub fn new(name: LinkName, netns: Option<Netns>) -> Self {
        Self { name, netns, mac: None, mtu: None, n_queues: None }
    }
}

/// What a VXLAN device needs. Nothing is learned from traffic.
#[derive(Clone, Debug)]
pub struct Vxlan {
    /// The network identifier.
    pub vni: u32,
    /// The UDP port.
    pub port: u16,
    /// The address that packets are sent from.
    pub local: IpAddr,
    /// The device that they leave by.
    pub device: Option<LinkIndex>,
}

/// What is to change on an interface; what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct LinkChange {
    /// A new name. The interface must be off, or be switched off before.
    pub name: Option<LinkName>,
    /// A new alias; empty removes it.
    pub alias: Option<String>,
    /// A new Ethernet address.
    pub mac: Option<Mac>,
    /// A new largest packet.
    pub mtu: Option<u32>,
    /// The bridge to join, or none to leave it.
    pub master: Option<Option<LinkIndex>>,
    /// The number of the group to belong to.
    pub group: Option<u32>,
    /// On or off.
    pub is_up: Option<bool>,
    /// The namespace to move to.
    pub netns: Option<Netns>,
}

impl LinkChange {
    /// Switches the interface on.
    pub fn up() -> Self {
        Self { is_up: Some(true), ..Self::default() }
    }
}

impl fmt::Display for LinkChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.name.as_ref().map(|name| format!("name {name}")));
        parts.extend(self.alias.as_ref().map(|alias| format!("alias {alias:?}")));
        parts.extend(self.mac.map(|mac| format!("address {mac}")));
        parts.extend(self.mtu.map(|mtu| format!("mtu {mtu}")));
        parts.extend(self.master.map(|master| match master {
            Some(master) => format!("master {}", master.0),
            None => "no master".to_owned(),
        }));
        parts.extend(self.group.map(|group| format!("group {group}")));
        parts.extend(self.is_up.map(|up| if up { "up".to_owned() } else { "down".to_owned() }));
        parts.extend(self.netns.as_ref().map(|netns| format!("namespace {}", netns.id())));
        f.write_str(&parts.join(", "))
    }
}

fn put_fixed(writer: &mut Writer, index: u32, flags: u32, change: u32) {
    writer.put(&[0; 4]);
    writer.put(&index.to_ne_bytes());
    writer.put(&flags.to_ne_bytes());
    writer.put(&change.to_ne_bytes());
}

/// Asks for one interface, or for all when neither is given.
pub(crate) fn encode_get(writer: &mut Writer, index: u32, name: Option<&LinkName>) {
    put_fixed(writer, index, 0, 0);
    if let Some(name) = name {
        writer.text(NAME, name.as_str());
    }
    writer.u32(EXTENT_MASK, SKIP_STATISTICS);
}

pub(crate) fn encode_delete(writer: &mut Writer, index: LinkIndex) {
    put_fixed(writer, index.0, 0, 0);
}

pub(crate) fn encode_delete_group(writer: &mut Writer, group: u32) {
    put_fixed(writer, 0, 0, 0);
    writer.u32(GROUP, group);
}

/// Sets the alias of the interface that has this name now.
pub(crate) fn encode_alias(writer: &mut Writer, name: &LinkName, alias: &str) {
    put_fixed(writer, 0, 0, 0);
    writer.text(NAME, name.as_str());
    writer.attribute(ALIAS, alias.as_bytes());
}

pub(crate) fn encode_change(writer: &mut Writer, index: LinkIndex, change: &LinkChange) {
    let (flags, mask) = match change.is_up {
        Some(true) => (FLAG_UP, FLAG_UP),
        Some(false) => (0, FLAG_UP),
        None => (0, 0),
    };
    put_fixed(writer, index.0, flags, mask);
    if let Some(name) = &change.name {
        writer.text(NAME, name.as_str());
    }
    if let Some(alias) = &change.alias {
        writer.attribute(ALIAS, alias.as_bytes());
    }
    if let Some(mac) = change.mac {
        writer.attribute(ADDRESS, &mac.0);
    }
    if let Some(mtu) = change.mtu {
        writer.u32(MTU, mtu);
    }
    if let Some(master) = change.master {
        writer.u32(MASTER, master.map_or(0, |master| master.0));
    }
    if let Some(group) = change.group {
        writer.u32(GROUP, group);
    }
    if let Some(netns) = &change.netns {
        put_netns(writer, netns);
    }
}

fn put_netns(writer: &mut Writer, netns: &Netns) {
    writer.attribute(NETNS_FD, &netns.as_fd().as_raw_fd().to_ne_bytes());
}

/// Makes `link` under the name `name`, switched off.
pub(crate) fn encode_new(writer: &mut Writer, link: &NewLink, name: &LinkName) {
    put_fixed(writer, 0, 0, 0);
    writer.text(NAME, name.as_str());
    put_shape(writer, link.mac, link.mtu, link.n_queues);
    writer.nest(LINK_DETAILS, |details| match &link.kind {
        NewLinkKind::Bridge => details.text(DETAIL_KIND, "bridge"),
        NewLinkKind::Veth(peer) => {
            details.text(DETAIL_KIND, "veth");
            details.nest(DETAIL_VALUES, |values| {
                values.nest(VETH_PEER, |inner| encode_peer(inner, peer));
            });
        }
        NewLinkKind::Vxlan(vxlan) => {
            details.text(DETAIL_KIND, "vxlan");
            details.nest(DETAIL_VALUES, |values| encode_vxlan(values, vxlan));
        }
    });
}

fn put_shape(writer: &mut Writer, mac: Option<Mac>, mtu: Option<u32>, n_queues: Option<u32>) {
    if let Some(mac) = mac {
        writer.attribute(ADDRESS, &mac.0);
    }
    if let Some(mtu) = mtu {
        writer.u32(MTU, mtu);
    }
    if let Some(n_queues) = n_queues {
        writer.u32(TX_QUEUES, n_queues);
        writer.u32(RX_QUEUES, n_queues);
    }
}

fn encode_peer(writer: &mut Writer, peer: &VethPeer) {
    put_fixed(writer, 0, 0, 0);
    writer.text(NAME, peer.name.as_str());
    put_shape(writer, peer.mac, peer.mtu, peer.n_queues);
    if let Some(netns) = &peer.netns {
        put_netns(writer, netns);
    }
}

fn encode_vxlan(writer: &mut Writer, vxlan: &Vxlan) {
    const ID: u16 = 1;
    const DEVICE: u16 = 3;
    const LOCAL: u16 = 4;
    const LEARNING: u16 = 7;
    const PORT: u16 = 15;
    const LOCAL6: u16 = 17;
    writer.u32(ID, vxlan.vni);
    if let Some(device) = vxlan.device {
        writer.u32(DEVICE, device.0);
    }
    writer.address(if vxlan.local.is_ipv4() { LOCAL } else { LOCAL6 }, vxlan.local);
    writer.u8(LEARNING, 0);
    writer.u16_be(PORT, vxlan.port);
}

pub(crate) fn decode(body: &[u8]) -> Result<Link, Malformed> {
    const SHORT: Malformed = Malformed("an interface is cut off");
    let flags = wire::u32_at(body, 8).ok_or(SHORT)?;
    let mut link = Link {
        index: LinkIndex(wire::u32_at(body, 4).ok_or(SHORT)?),
        name: LinkName(String::new()),
        kind: None,
        alias: None,
        mac: None,
        mtu: 0,
        is_up: flags & FLAG_UP != 0,
        is_running: flags & FLAG_RUNNING != 0,
        is_loopback: flags & FLAG_LOOPBACK != 0,
        master: None,
        peer: None,
        peer_netns_id: None,
        n_tx_queues: 0,
    };
    for attribute in wire::attributes_after(body, FIXED_LEN)? {
        let (kind, value) = attribute?;
        match kind {
            NAME => link.name = LinkName(wire::read_text(value)),
            ADDRESS => link.mac = value.try_into().ok().map(Mac),
            MTU => link.mtu = wire::read_u32(value)?,
            LINK => link.peer = Some(LinkIndex(wire::read_u32(value)?)),
            MASTER => link.master = Some(LinkIndex(wire::read_u32(value)?)),
            ALIAS => link.alias = Some(wire::read_text(value)),
            TX_QUEUES => link.n_tx_queues = wire::read_u32(value)?,
            LINK_NETNS_ID => {
                // A negative number says that the namespace has none.
                link.peer_netns_id =
                    Some(wire::read_u32(value)?).filter(|id| *id <= i32::MAX as u32);
            }
            LINK_DETAILS => {
                for detail in wire::attributes(value) {
                    if let (DETAIL_KIND, text) = detail? {
                        link.kind = Some(wire::read_text(text));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(link)
}
