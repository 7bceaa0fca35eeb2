//! Changes of links, addresses, routes and neighbours as they happen, whoever makes them.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::address::{self, Address};
use crate::error::{Errno, Error, Result};
use crate::link::{self, Link};
use crate::neighbour::{self, Neighbour};
use crate::netns::Netns;
use crate::route::{self, Route};
use crate::socket::{ROUTE, Socket};
use crate::wire::{self, Malformed, Message};

/// What to listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Interfaces.
    Links,
    /// Addresses.
    Addresses,
    /// Routes.
    Routes,
    /// Neighbours.
    Neighbours,
}

impl Topic {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::Links, Self::Addresses, Self::Routes, Self::Neighbours];

    fn groups(self) -> &'static [u32] {
        match self {
            Self::Links => &[1],
            Self::Neighbours => &[3],
            Self::Addresses => &[5, 9],
            Self::Routes => &[7, 11],
        }
    }
}

/// A change that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An interface is new or changed.
    Link(Link),
    /// An interface is gone.
    LinkGone(Link),
    /// An address is new or changed.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A route is new or changed.
    Route(Route),
    /// A route is gone. IPv4 does not say so for routes that go with their interface.
    RouteGone(Route),
    /// A neighbour is new or changed.
    Neighbour(Neighbour),
    /// A neighbour is gone.
    NeighbourGone(Neighbour),
    /// Events were dropped: everything has to be read again.
    Lost,
}

/// Listens in one namespace. Open it before reading the state, so that nothing falls between.
pub struct Monitor {
    socket: Socket,
    pending: VecDeque<Event>,
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Monitor({} pending)", self.pending.len())
    }
}

/// Readable when there may be an event; call [`Monitor::next`] until it returns `None`.
impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Monitor {
    /// Listens in `netns`, or in the namespace of the calling thread.
    pub fn open(netns: Option<&Netns>, topics: &[Topic]) -> Result<Self> {
        let groups: Vec<u32> = topics.iter().flat_map(|topic| topic.groups()).copied().collect();
        Ok(Self { socket: Socket::open(ROUTE, netns, &groups)?, pending: VecDeque::new() })
    }

    /// The next event, or `None` if none came within `at_most`.
    pub fn next(&mut self, at_most: Duration) -> Result<Option<Event>> {
        let until = Instant::now() + at_most;
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            match self.socket.receive(until) {
                Ok(Some(datagram)) => self.pending.extend(decode_events(datagram)),
                Ok(None) => return Ok(None),
                Err(Errno::NOBUFS) => return Ok(Some(Event::Lost)),
                Err(errno) => return Err(Error::system("listen for changes", errno)),
            }
        }
    }
}

/// The events of one datagram, such as a recorded one; what cannot be read counts as lost.
pub fn decode_events(datagram: &[u8]) -> Vec<Event> {
    let decode = |message: Result<Message<'_>, Malformed>| {
        message.and_then(|message| decode_event(&message)).unwrap_or(Some(Event::Lost))
    };
    wire::messages(datagram).filter_map(decode).collect()
}

fn decode_event(message: &Message<'_>) -> Result<Option<Event>, Malformed> {
    let body = message.body;
    Ok(match message.kind {
        link::NEW => Some(Event::Link(link::decode(body)?)),
        link::DELETE => Some(Event::LinkGone(link::decode(body)?)),
        address::NEW => Some(Event::Address(address::decode(body)?)),
        address::DELETE => Some(Event::AddressGone(address::decode(body)?)),
        route::NEW => route::decode(body)?.map(Event::Route),
        route::DELETE => route::decode(body)?.map(Event::RouteGone),
        neighbour::NEW => neighbour::decode(body)?.map(Event::Neighbour),
        neighbour::DELETE => neighbour::decode(body)?.map(Event::NeighbourGone),
        _ => None,
    })
}
