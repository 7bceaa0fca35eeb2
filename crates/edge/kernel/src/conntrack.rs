//! Connection tracking: the connections of a namespace, listed and forgotten.
//!
//! An address that moves to another pod must not inherit the connections of the one before.

use std::fmt;
use std::net::IpAddr;

use crate::error::{Errno, Error, Result};
use crate::netns::Netns;
use crate::route::Family;
use crate::socket::{NETFILTER, Socket};
use crate::wire::{self, Malformed, Writer};

/// The number of connection tracking among the parts of netfilter.
const SUBSYSTEM: u16 = 1 << 8;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;
const GET_STATISTICS: u16 = SUBSYSTEM | 5;

const FIXED_LEN: usize = 4;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const MARK: u16 = 8;
const ID: u16 = 12;
const ZONE: u16 = 18;
const STATISTICS_ENTRIES: u16 = 1;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// Who sends.
    pub source: IpAddr,
    /// Who receives.
    pub destination: IpAddr,
    /// The port of the sender; 0 for protocols without ports.
    pub source_port: u16,
    /// The port of the receiver.
    pub destination_port: u16,
}

/// A tracked connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The transport protocol.
    pub protocol: u8,
    /// As its first packet went.
    pub original: Tuple,
    /// As answers come, which differs where addresses are translated.
    pub reply: Tuple,
    /// The mark.
    pub mark: u32,
    family: u8,
    key: Vec<u8>,
    id: Option<u32>,
    zone: Option<u16>,
}

impl Connection {
    /// Whether an address takes part, before or after translation.
    pub fn involves(&self, address: IpAddr) -> bool {
        [self.original, self.reply]
            .iter()
            .any(|tuple| tuple.source == address || tuple.destination == address)
    }

    fn encode_delete(&self, body: &mut Writer) {
        body.put(&[self.family, 0, 0, 0]);
        body.nest(TUPLE_ORIGINAL, |tuple| tuple.put(&self.key));
        // Another connection may have taken the place of the one that was listed.
        if let Some(id) = self.id {
            body.u32(ID, id);
        }
        if let Some(zone) = self.zone {
            body.u16_be(ZONE, zone);
        }
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tuple { source, destination, source_port, destination_port } = self.original;
        write!(f, "connection {source} port {source_port} to {destination} port {destination_port}")
    }
}

/// The connections of the namespace it was opened in.
pub struct Conntrack {
    socket: Socket,
}

impl fmt::Debug for Conntrack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Conntrack")
    }
}

impl Conntrack {
    /// Opens a socket in the namespace of the calling thread.
    pub fn open() -> Result<Self> {
        Ok(Self { socket: Socket::open(NETFILTER, None, &[])? })
    }

    /// Opens a socket that lives in `netns`, wherever it is used.
    pub fn in_netns(netns: &Netns) -> Result<Self> {
        Ok(Self { socket: Socket::open(NETFILTER, Some(netns), &[])? })
    }

    /// How many connections the namespace has.
    pub fn count(&mut self) -> Result<u32> {
        let mut n = None;
        self.socket.request(
            &"count the connections",
            GET_STATISTICS,
            0,
            |body| body.put(&[0; FIXED_LEN]),
            |message| {
                for attribute in wire::attributes_after(message.body, FIXED_LEN)? {
                    if let (STATISTICS_ENTRIES, value) = attribute? {
                        n = Some(wire::read_u32_be(value)?);
                    }
                }
                Ok(())
            },
        )?;
        n.ok_or_else(|| Error::Malformed {
            attempt: "count the connections".to_owned(),
            source: Malformed("the count is missing"),
        })
    }

    /// The connections of one family, or of both.
    pub fn connections(&mut self, family: Option<Family>) -> Result<Vec<Connection>> {
        self.connections_where(family, |_| true)
    }

    fn connections_where(
        &mut self,
        family: Option<Family>,
        mut is_meant: impl FnMut(&Connection) -> bool,
    ) -> Result<Vec<Connection>> {
        self.socket.dump(
            &"list the connections",
            GET,
            |body| body.put(&[family.map_or(0, Family::code), 0, 0, 0]),
            |message| Ok(decode(message.body)?.filter(&mut is_meant)),
        )
    }

    /// Forgets every connection that `is_meant` picks and returns how many there were. One that
    /// ends meanwhile is no error.
    pub fn delete_where(&mut self, is_meant: impl FnMut(&Connection) -> bool) -> Result<usize> {
        // A list costs the kernel a walk over its whole table, however few there are: 9 ms for
        // the 262,144 places of a host with 24 GB.
        if self.count()? == 0 {
            return Ok(0);
        }
        let meant = self.connections_where(None, is_meant)?;
        let answers = self.socket.exchange_all(
            &meant,
            |_| (DELETE, 0),
            |connection, body| connection.encode_delete(body),
        );
        let mut n_deleted = 0;
        for answer in answers {
            match answer {
                Ok(()) => n_deleted += 1,
                Err(Error::Refused { refusal, .. }) if refusal.errno == Errno::NOENT => {}
                Err(error) => return Err(error),
            }
        }
        Ok(n_deleted)
    }

    /// Forgets the connections of these addresses.
    pub fn delete_addresses(&mut self, addresses: &[IpAddr]) -> Result<usize> {
        self.delete_where(|connection| {
            addresses.iter().any(|address| connection.involves(*address))
        })
    }
}

/// Reads the connections of one datagram, such as a recorded one.
pub fn decode_connections(datagram: &[u8]) -> Result<Vec<Connection>, Malformed> {
    let mut found = Vec::new();
    for message in wire::messages(datagram) {
        found.extend(decode(message?.body)?);
    }
    Ok(found)
}

/// A connection; `None` for what is not of IP.
fn decode(body: &[u8]) -> Result<Option<Connection>, Malformed> {
    let family = *body.first().ok_or(Malformed("a connection is cut off"))?;
    let (mut original, mut reply, mut key): (_, _, &[u8]) = (None, None, &[]);
    let (mut mark, mut id, mut zone) = (0, None, None);
    for attribute in wire::attributes_after(body, FIXED_LEN)? {
        match attribute? {
            (TUPLE_ORIGINAL, value) => {
                key = value;
                original = decode_tuple(value)?;
            }
            (TUPLE_REPLY, value) => reply = decode_tuple(value)?,
            (MARK, value) => mark = wire::read_u32_be(value)?,
            (ID, value) => id = Some(wire::read_u32(value)?),
            (ZONE, value) => zone = Some(wire::read_u16_be(value)?),
            _ => {}
        }
    }
    let (Some((protocol, original)), Some((_, reply))) = (original, reply) else {
        return Ok(None);
    };
    let key = key.to_vec();
    Ok(Some(Connection { protocol, original, reply, mark, family, key, id, zone }))
}

fn decode_tuple(attributes: &[u8]) -> Result<Option<(u8, Tuple)>, Malformed> {
    let (mut source, mut destination) = (None, None);
    let (mut protocol, mut source_port, mut destination_port) = (0, 0, 0);
    for attribute in wire::attributes(attributes) {
        let (part, nest) = attribute?;
        for inner in wire::attributes(nest).filter(|_| matches!(part, 1 | 2)) {
            match (part, inner?) {
                (1, (1 | 3, value)) => source = Some(wire::read_address(value)?),
                (1, (2 | 4, value)) => destination = Some(wire::read_address(value)?),
                (2, (1, value)) => protocol = wire::read_u8(value)?,
                (2, (2, value)) => source_port = wire::read_u16_be(value)?,
                (2, (3, value)) => destination_port = wire::read_u16_be(value)?,
                _ => {}
            }
        }
    }
    let tuple = source.zip(destination).map(|(source, destination)| Tuple {
        source,
        destination,
        source_port,
        destination_port,
    });
    Ok(tuple.map(|tuple| (protocol, tuple)))
}
