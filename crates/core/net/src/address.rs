//! IP addresses and prefixes with the reading rules of Go's `net` package.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::wire::serde_as_text;

/// Reads an address as Go's `net.ParseIP` does; a v4 address mapped into v6 is a v4 address.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    Some(unmapped(address))
}

fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// A prefix whose host bits are kept as given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr(IpNet);

impl Cidr {
    /// The address and the prefix length, or `None` where the length is too long for the family.
    pub fn new(address: IpAddr, prefix_len: u8) -> Option<Self> {
        IpNet::new(address, prefix_len).ok().map(Self)
    }

    /// The one address as a prefix of full length.
    pub fn host(address: IpAddr) -> Self {
        Self(IpNet::from(address))
    }

    /// Reads `address/length` only, as Go's `net.ParseCIDR` does.
    pub fn parse_strict(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let prefix_len: u8 = length.parse().ok()?;
        let raw: IpAddr = address.parse().ok()?;
        match (raw, unmapped(raw)) {
            // Go counts the length of a mapped address from the 128-bit form.
            (IpAddr::V6(_), IpAddr::V4(v4)) => {
                Self::new(IpAddr::V4(v4), prefix_len.checked_sub(96).filter(|len| *len <= 32)?)
            }
            (_, address) => Self::new(address, prefix_len),
        }
    }

    /// The prefix with its host bits cleared.
    pub fn masked(self) -> Self {
        Self(self.0.trunc())
    }

    /// The address as it was given.
    pub fn address(self) -> IpAddr {
        self.0.addr()
    }

    /// The first address of the prefix.
    pub fn network(self) -> IpAddr {
        self.0.network()
    }

    /// The last address of the prefix.
    pub fn last(self) -> IpAddr {
        self.0.broadcast()
    }

    /// The number of leading bits that are fixed.
    pub fn prefix_len(self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether the prefix is of IPv4.
    pub fn is_ipv4(self) -> bool {
        matches!(self.0, IpNet::V4(_))
    }

    /// Whether the address lies in the prefix.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Whether the two prefixes share an address.
    pub fn overlaps(self, other: Self) -> bool {
        self.0.contains(&other.0.network()) || other.0.contains(&self.0.network())
    }
}

impl From<IpNet> for Cidr {
    fn from(network: IpNet) -> Self {
        Self(network)
    }
}

impl From<Cidr> for IpNet {
    fn from(network: Cidr) -> Self {
        network.0
    }
}

/// Reads `address/length`, or a bare address as a prefix of full length.
impl FromStr for Cidr {
    type Err = NotACidr;

    fn from_str(text: &str) -> Result<Self, NotACidr> {
        match text.contains('/') {
            true => Self::parse_strict(text).ok_or(NotACidr),
            false => parse_ip(text).map(Self::host).ok_or(NotACidr),
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address(), self.prefix_len())
    }
}

/// The text is neither an address nor a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotACidr;

impl fmt::Display for NotACidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("not an IP address or CIDR")
    }
}

impl std::error::Error for NotACidr {}

serde_as_text!(Cidr);
