//! Changes of links, addresses, routes and neighbours as they happen, whoever makes them.

use crate::address::{self, Address};
use crate::error::Result;
use crate::link::{self, Link};
use crate::listen::{self, Listener};
use crate::neighbour::{self, Neighbour};
use crate::netns::Netns;
use crate::route::{self, Route};
use crate::socket::{ROUTE, Socket};
use crate::wire::{Malformed, Message};

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

/// Listens for changes in one namespace.
pub type Monitor = Listener<Event>;

impl Monitor {
    /// Listens in `netns`, or in the namespace of the calling thread.
    pub fn open(netns: Option<&Netns>, topics: &[Topic]) -> Result<Self> {
        let groups: Vec<u32> = topics.iter().flat_map(|topic| topic.groups()).copied().collect();
        let socket = Socket::open(ROUTE, netns, &groups)?;
        Ok(Self::on(socket, decode_events, Event::Lost, "listen for changes"))
    }
}

/// The events of one datagram, such as a recorded one; what cannot be read counts as lost.
pub fn decode_events(datagram: &[u8]) -> Vec<Event> {
    listen::events(datagram, decode_event, &Event::Lost)
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
