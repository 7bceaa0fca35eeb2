//! Routes of both address families, in any table.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::link::LinkIndex;
use crate::wire::{self, Malformed, Writer};

pub(crate) const NEW: u16 = 24;
pub(crate) const DELETE: u16 = 25;
pub(crate) const GET: u16 = 26;

const FIXED_LEN: usize = 12;
const DESTINATION: u16 = 1;
const LINK: u16 = 4;
const GATEWAY: u16 = 5;
const METRIC: u16 = 6;
const SOURCE: u16 = 7;
const MULTIPATH: u16 = 9;
const TABLE: u16 = 15;
const VIA: u16 = 18;

const FLAG_ONLINK: u8 = 4;
const FLAG_CLONED: u32 = 0x200;
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;
/// What IPv6 makes of a metric that was not given.
const METRIC_V6_DEFAULT: u32 = 1024;

pub(crate) fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { FAMILY_V4 } else { FAMILY_V6 }
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::V4 => FAMILY_V4,
            Self::V6 => FAMILY_V6,
        }
    }
}

/// The number of a routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(pub u32);

impl Table {
    /// The table that is looked up unless a rule says otherwise.
    pub const MAIN: Self = Self(254);
    /// The table of the addresses of this host.
    pub const LOCAL: Self = Self(255);
}

/// Who made a route: our mark on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteProtocol(pub u8);

impl RouteProtocol {
    /// The kernel itself.
    pub const KERNEL: Self = Self(2);
    /// Set up at boot; what Calico uses for routes to its workloads.
    pub const BOOT: Self = Self(3);
    /// An administrator.
    pub const STATIC: Self = Self(4);
}

/// How far an address or a destination is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Anywhere.
    Universe,
    /// Inside this site.
    Site,
    /// On a link of this host.
    Link,
    /// This host.
    Host,
    /// Nowhere.
    Nowhere,
    /// A number without a name.
    Other(u8),
}

impl Scope {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Universe => 0,
            Self::Site => 200,
            Self::Link => 253,
            Self::Host => 254,
            Self::Nowhere => 255,
            Self::Other(code) => code,
        }
    }

    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Universe,
            200 => Self::Site,
            253 => Self::Link,
            254 => Self::Host,
            255 => Self::Nowhere,
            other => Self::Other(other),
        }
    }
}

/// What happens to packets that a route matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// Sent to a next hop.
    Unicast,
    /// Delivered here.
    Local,
    /// Dropped without a word.
    Blackhole,
    /// Refused with "host unreachable".
    Unreachable,
    /// Refused with "administratively prohibited".
    Prohibit,
    /// The lookup goes on in the next table.
    Throw,
    /// Another sort, by its number.
    Other(u8),
}

impl RouteKind {
    fn code(self) -> u8 {
        match self {
            Self::Unicast => 1,
            Self::Local => 2,
            Self::Blackhole => 6,
            Self::Unreachable => 7,
            Self::Prohibit => 8,
            Self::Throw => 9,
            Self::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Unicast,
            2 => Self::Local,
            6 => Self::Blackhole,
            7 => Self::Unreachable,
            8 => Self::Prohibit,
            9 => Self::Throw,
            other => Self::Other(other),
        }
    }

    /// IPv6 shows these with the loopback interface as a next hop, which nobody asked for.
    fn has_no_next_hop(self) -> bool {
        matches!(self, Self::Blackhole | Self::Unreachable | Self::Prohibit | Self::Throw)
    }
}

/// One way to a destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NextHop {
    /// The interface that packets leave by.
    pub link: Option<LinkIndex>,
    /// The router that they are handed to; none if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The gateway is taken to be on the link although no route says so.
    pub is_onlink: bool,
    /// The share among several next hops: 1 to 256.
    pub weight: u16,
}

impl NextHop {
    /// Destinations on the link itself.
    pub fn on(link: LinkIndex) -> Self {
        Self { link: Some(link), gateway: None, is_onlink: false, weight: 1 }
    }

    /// Through a router.
    pub fn via(gateway: IpAddr, link: Option<LinkIndex>) -> Self {
        Self { link, gateway: Some(gateway), is_onlink: false, weight: 1 }
    }

    fn flags(&self) -> u8 {
        if self.is_onlink { FLAG_ONLINK } else { 0 }
    }
}

/// A route.
///
/// The kernel's key is (table, destination, metric), for IPv6 also the next hop: a replacement
/// takes the place of whatever has that key, whoever made it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The destination; host bits must be zero.
    pub destination: IpNet,
    /// The table.
    pub table: Table,
    /// Lower wins. 0: none for IPv4, the kernel's default 1024 for IPv6.
    pub metric: u32,
    /// Who made it.
    pub protocol: RouteProtocol,
    /// How far the destination is; IPv6 has no scopes and always shows [`Scope::Universe`].
    pub scope: Scope,
    /// What happens to the packets.
    pub kind: RouteKind,
    /// The source address of packets that this host sends there.
    pub source: Option<IpAddr>,
    /// The ways there; none for a blackhole and its like.
    pub next_hops: Vec<NextHop>,
}

impl Route {
    /// A unicast route in the main table.
    pub fn unicast(destination: IpNet, protocol: RouteProtocol, next_hop: NextHop) -> Self {
        let scope = if next_hop.gateway.is_some() { Scope::Universe } else { Scope::Link };
        Self {
            destination,
            table: Table::MAIN,
            metric: 0,
            protocol,
            scope,
            kind: RouteKind::Unicast,
            source: None,
            next_hops: vec![next_hop],
        }
    }

    /// A route in the main table that drops what it matches.
    pub fn blackhole(destination: IpNet, protocol: RouteProtocol) -> Self {
        Self {
            destination,
            table: Table::MAIN,
            metric: 0,
            protocol,
            scope: Scope::Universe,
            kind: RouteKind::Blackhole,
            source: None,
            next_hops: Vec::new(),
        }
    }

    /// The route as the kernel will show it, for comparison with what it lists.
    pub fn as_listed(&self) -> Self {
        let mut listed = self.clone();
        if matches!(self.destination, IpNet::V6(_)) {
            listed.scope = Scope::Universe;
            if listed.metric == 0 {
                listed.metric = METRIC_V6_DEFAULT;
            }
        }
        listed
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RouteKind::Unicast => {}
            RouteKind::Local => f.write_str("local ")?,
            RouteKind::Blackhole => f.write_str("blackhole ")?,
            RouteKind::Unreachable => f.write_str("unreachable ")?,
            RouteKind::Prohibit => f.write_str("prohibit ")?,
            RouteKind::Throw => f.write_str("throw ")?,
            RouteKind::Other(code) => write!(f, "type {code} ")?,
        }
        write!(f, "{}", self.destination)?;
        for hop in &self.next_hops {
            if let Some(gateway) = hop.gateway {
                write!(f, " via {gateway}")?;
            }
            if let Some(link) = hop.link {
                write!(f, " on {link}")?;
            }
        }
        write!(f, " table {}", self.table.0)
    }
}

/// Which routes to list; the kernel does the filtering.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteFilter {
    /// One family, or both.
    pub family: Option<Family>,
    /// One table, or all.
    pub table: Option<Table>,
    /// One protocol, or all.
    pub protocol: Option<RouteProtocol>,
    /// One interface, or all (and routes without one).
    pub link: Option<LinkIndex>,
}

impl RouteFilter {
    /// What the kernel cannot filter: it falls back to all families if it lacks one.
    pub(crate) fn admits(&self, family: Family, route: &Route) -> bool {
        let is_of_family = (family == Family::V4) == route.destination.addr().is_ipv4();
        let has_link =
            self.link.is_none() || route.next_hops.iter().any(|hop| hop.link == self.link);
        is_of_family
            && has_link
            && self.table.is_none_or(|table| table == route.table)
            && self.protocol.is_none_or(|protocol| protocol == route.protocol)
    }
}

pub(crate) fn encode_get(writer: &mut Writer, family: Family, filter: &RouteFilter) {
    let protocol = filter.protocol.map_or(0, |protocol| protocol.0);
    writer.put(&[family.code(), 0, 0, 0, 0, protocol, 0, 0, 0, 0, 0, 0]);
    if let Some(table) = filter.table {
        writer.u32(TABLE, table.0);
    }
    if let Some(link) = filter.link {
        writer.u32(LINK, link.0);
    }
}

pub(crate) fn encode(writer: &mut Writer, route: &Route) {
    let single = match route.next_hops.as_slice() {
        [single] => Some(single),
        _ => None,
    };
    writer.put(&[family_of(route.destination.addr()), route.destination.prefix_len(), 0, 0]);
    // The attribute holds the table, whatever its number.
    writer.put(&[0, route.protocol.0, route.scope.code(), route.kind.code()]);
    writer.put(&u32::from(single.map_or(0, NextHop::flags)).to_ne_bytes());
    writer.u32(TABLE, route.table.0);
    if route.destination.prefix_len() > 0 {
        writer.address(DESTINATION, route.destination.addr());
    }
    if route.metric != 0 {
        writer.u32(METRIC, route.metric);
    }
    if let Some(source) = route.source {
        writer.address(SOURCE, source);
    }
    let family = family_of(route.destination.addr());
    if let Some(hop) = single {
        if let Some(link) = hop.link {
            writer.u32(LINK, link.0);
        }
        put_gateway(writer, family, hop);
    } else if !route.next_hops.is_empty() {
        writer.nest(MULTIPATH, |nest| {
            for hop in &route.next_hops {
                encode_next_hop(nest, family, hop);
            }
        });
    }
}

fn put_gateway(writer: &mut Writer, family: u8, hop: &NextHop) {
    match hop.gateway {
        Some(gateway) if family_of(gateway) == family => writer.address(GATEWAY, gateway),
        Some(gateway) => {
            let mut via = u16::from(family_of(gateway)).to_ne_bytes().to_vec();
            match gateway {
                IpAddr::V4(v4) => via.extend(v4.octets()),
                IpAddr::V6(v6) => via.extend(v6.octets()),
            }
            writer.attribute(VIA, &via);
        }
        None => {}
    }
}

fn encode_next_hop(writer: &mut Writer, family: u8, hop: &NextHop) {
    let mut inner = Writer::default();
    put_gateway(&mut inner, family, hop);
    let len = u16::try_from(8 + inner.len()).unwrap_or(u16::MAX);
    let hops = u8::try_from(hop.weight.saturating_sub(1)).unwrap_or(u8::MAX);
    writer.put(&len.to_ne_bytes());
    writer.put(&[hop.flags(), hops]);
    writer.put(&hop.link.map_or(0, |link| link.0).to_ne_bytes());
    writer.put(inner.bytes());
}

/// A route, or `None` for what is not one of ours to see: other families and cache entries.
pub(crate) fn decode(body: &[u8]) -> Result<Option<Route>, Malformed> {
    const SHORT: Malformed = Malformed("a route is cut off");
    let [family, prefix_len, _, _, table, protocol, scope, kind] =
        body.first_chunk().copied().ok_or(SHORT)?;
    let flags = wire::u32_at(body, 8).ok_or(SHORT)?;
    let mut destination = match family {
        FAMILY_V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        FAMILY_V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return Ok(None),
    };
    if flags & FLAG_CLONED != 0 {
        return Ok(None);
    }
    let is_onlink = flags & u32::from(FLAG_ONLINK) != 0;
    let mut hop = NextHop { link: None, gateway: None, is_onlink, weight: 1 };
    let mut next_hops = Vec::new();
    let (mut table, mut metric, mut source) = (u32::from(table), 0, None);
    for attribute in wire::attributes_after(body, FIXED_LEN)? {
        let (attribute, value) = attribute?;
        match attribute {
            DESTINATION => destination = wire::read_address(value)?,
            TABLE => table = wire::read_u32(value)?,
            METRIC => metric = wire::read_u32(value)?,
            SOURCE => source = Some(wire::read_address(value)?),
            LINK => hop.link = Some(LinkIndex(wire::read_u32(value)?)),
            GATEWAY => hop.gateway = Some(wire::read_address(value)?),
            VIA => hop.gateway = Some(read_via(value)?),
            MULTIPATH => next_hops = decode_next_hops(value)?,
            _ => {}
        }
    }
    let kind = RouteKind::from_code(kind);
    if kind.has_no_next_hop() {
        next_hops.clear();
    } else if next_hops.is_empty() && (hop.link.is_some() || hop.gateway.is_some()) {
        next_hops.push(hop);
    }
    let destination =
        IpNet::new(destination, prefix_len).map_err(|_| Malformed("a prefix is too long"))?;
    Ok(Some(Route {
        destination,
        table: Table(table),
        metric,
        protocol: RouteProtocol(protocol),
        scope: Scope::from_code(scope),
        kind,
        source,
        next_hops,
    }))
}

fn read_via(value: &[u8]) -> Result<IpAddr, Malformed> {
    wire::read_address(value.get(2..).ok_or(Malformed("a gateway is cut off"))?)
}

fn decode_next_hops(mut rest: &[u8]) -> Result<Vec<NextHop>, Malformed> {
    const SHORT: Malformed = Malformed("a next hop is cut off");
    let mut found = Vec::new();
    while !rest.is_empty() {
        let len = usize::from(wire::u16_at(rest, 0).ok_or(SHORT)?);
        let whole = rest.get(..len).ok_or(SHORT)?;
        let [_, _, flags, hops] = whole.first_chunk().copied().ok_or(SHORT)?;
        let index = wire::u32_at(whole, 4).ok_or(SHORT)?;
        let mut hop = NextHop {
            link: Some(LinkIndex(index)).filter(|_| index != 0),
            gateway: None,
            is_onlink: flags & FLAG_ONLINK != 0,
            weight: u16::from(hops) + 1,
        };
        for attribute in wire::attributes_after(whole, 8)? {
            match attribute? {
                (GATEWAY, value) => hop.gateway = Some(wire::read_address(value)?),
                (VIA, value) => hop.gateway = Some(read_via(value)?),
                _ => {}
            }
        }
        found.push(hop);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(found)
}
