//! Packets that rules handed to the listeners of a group (`log group N`).
//!
//! Without a listener the kernel does nothing with them. What comes faster than it is read is
//! dropped by the kernel, and said to be lost.

mod header;

use crate::error::Result;
use crate::link::LinkIndex;
use crate::listen::{self, Listener};
use crate::netns::Netns;
use crate::socket::{NETFILTER, Socket};
use crate::wire::{self, Malformed, Message};

pub use header::{Header, decode_header};

/// The number of packet logs among the parts of netfilter.
const SUBSYSTEM: u16 = 4 << 8;
const PACKET: u16 = SUBSYSTEM;
const CONFIGURE: u16 = SUBSYSTEM | 1;

const FIXED_LEN: usize = 4;
const COMMAND: u16 = 1;
const COMMAND_BIND: u8 = 1;
const MODE: u16 = 2;
const MODE_COPY_PACKET: u8 = 2;
const TIMEOUT: u16 = 4;
const THRESHOLD: u16 = 5;

/// Enough of a packet for its ports, behind a few extension headers.
const COPY_LEN: u32 = 256;
/// How many packets the kernel collects before it sends them …
const PACKETS_AT_ONCE: u32 = 32;
/// … and how long it waits for so many, in hundredths of a second.
const WAIT: u32 = 10;

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// A rule handed over a packet.
    Packet(Logged),
    /// Packets were dropped on the way to the listener, or could not be read.
    Lost,
}

/// A packet that a rule handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// What the rule writes before it.
    pub prefix: String,
    /// The interface it came by.
    pub input: Option<LinkIndex>,
    /// The interface it was to leave by.
    pub output: Option<LinkIndex>,
    /// Its mark.
    pub mark: u32,
    /// What it is; none if it is not of IP, or too little of it was handed over.
    pub header: Option<Header>,
}

/// Listens to one group in one namespace. A group has one listener at a time.
pub type PacketLog = Listener<LogEvent>;

impl PacketLog {
    /// Listens in `netns`, or in the namespace of the calling thread.
    pub fn open(netns: Option<&Netns>, group: u16) -> Result<Self> {
        let mut socket = Socket::open(NETFILTER, netns, &[])?;
        let attempt = format!("listen to packet log {group}");
        // A group is bound before anything else is said about it.
        configure(&mut socket, &attempt, group, |body| body.u8(COMMAND, COMMAND_BIND))?;
        configure(&mut socket, &attempt, group, |body| {
            let mut mode = COPY_LEN.to_be_bytes().to_vec();
            mode.extend([MODE_COPY_PACKET, 0]);
            body.attribute(MODE, &mode);
            body.u32_be(TIMEOUT, WAIT);
            body.u32_be(THRESHOLD, PACKETS_AT_ONCE);
        })?;
        Ok(Self::on(socket, decode_packets, LogEvent::Lost, "listen to a packet log"))
    }
}

fn configure(
    socket: &mut Socket,
    attempt: &str,
    group: u16,
    fill: impl FnOnce(&mut wire::Writer),
) -> Result<()> {
    let [high, low] = group.to_be_bytes();
    let fill = |body: &mut wire::Writer| {
        body.put(&[0, 0, high, low]);
        fill(body);
    };
    socket.request(&attempt, CONFIGURE, 0, fill, |_| Ok(()))
}

/// The packets of one datagram, such as a recorded one; what cannot be read counts as lost.
pub fn decode_packets(datagram: &[u8]) -> Vec<LogEvent> {
    listen::events(datagram, decode_event, &LogEvent::Lost)
}

fn decode_event(message: &Message<'_>) -> Result<Option<LogEvent>, Malformed> {
    if message.kind != PACKET {
        return Ok(None);
    }
    let link = |value| wire::read_u32_be(value).map(|index| Some(LinkIndex(index)));
    let mut logged = Logged::default();
    for attribute in wire::attributes_after(message.body, FIXED_LEN)? {
        match attribute? {
            (2, value) => logged.mark = wire::read_u32_be(value)?,
            (4, value) => logged.input = link(value)?,
            (5, value) => logged.output = link(value)?,
            (9, value) => logged.header = decode_header(value),
            (10, value) => logged.prefix = wire::read_text(value),
            _ => {}
        }
    }
    Ok(Some(LogEvent::Packet(logged)))
}
