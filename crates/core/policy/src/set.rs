//! Sets of addresses that rules name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::str::FromStr;

use net::{Cidr, Protocol};

use crate::packet::protocol_number;

/// The name of a set.
pub type SetId = String;

/// All sets, by name.
pub type IpSets = BTreeMap<SetId, IpSet>;

/// One set. A set that is not there is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpSet {
    /// Its members.
    pub members: BTreeSet<Member>,
}

/// A member of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// The addresses of a network.
    Net(Cidr),
    /// A port of an address.
    Port {
        /// The address.
        address: IpAddr,
        /// The protocol's number.
        protocol: u8,
        /// The port.
        port: u16,
    },
}

impl IpSet {
    /// Whether an address is in it.
    pub fn has(&self, address: IpAddr) -> bool {
        let holds = |member: &Member| matches!(member, Member::Net(net) if net.contains(address));
        self.members.iter().any(holds)
    }

    /// Whether a port of an address is in it.
    pub fn has_port(&self, address: IpAddr, protocol: u8, port: u16) -> bool {
        self.members.contains(&Member::Port { address, protocol, port })
    }
}

impl FromStr for Member {
    type Err = String;

    /// `10.0.0.0/8`, or `10.0.0.1,tcp:80`, also with the length of a single address.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is neither a network nor address,protocol:port");
        let Some((address, rest)) = text.split_once(',') else {
            return text.parse().map(Self::Net).map_err(|_| bad());
        };
        let (protocol, port) = rest.split_once(':').ok_or_else(bad)?;
        Ok(Self::Port {
            address: address.split('/').next().unwrap_or(address).parse().map_err(|_| bad())?,
            protocol: protocol_number(&Protocol::from(protocol)).ok_or_else(bad)?,
            port: port.parse().map_err(|_| bad())?,
        })
    }
}
