//! Changes of links, addresses, routes and neighbours as values: applied one by one or many in
//! one send.

use std::fmt;

use crate::address::{self, Address};
use crate::link::{self, LinkChange, LinkIndex};
use crate::neighbour::{self, Forwarding, Neighbour};
use crate::route::{self, Route};
use crate::wire::{CREATE, EXCLUSIVE, REPLACE, Writer};

/// A change of this host's network. Its text names the object, for errors and logs.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Changes an interface.
    ChangeLink(LinkIndex, LinkChange),
    /// Removes an interface, and with a veth its peer.
    DeleteLink(LinkIndex),
    /// Removes all interfaces of a group in one step.
    DeleteGroup(u32),
    /// Adds an address; an error if the interface has it.
    AddAddress(Address),
    /// Adds an address, or updates its flags.
    ReplaceAddress(Address),
    /// Removes an address.
    DeleteAddress(Address),
    /// Adds a route; an error if one with the same key exists.
    AddRoute(Route),
    /// Adds a route, or takes the place of the one with the same key.
    ReplaceRoute(Route),
    /// Removes the route that agrees in every field.
    DeleteRoute(Route),
    /// Adds or replaces a neighbour.
    ReplaceNeighbour(Neighbour),
    /// Removes a neighbour.
    DeleteNeighbour(Neighbour),
    /// Adds or replaces a forwarding entry of a VXLAN device.
    ReplaceForwarding(Forwarding),
    /// Removes a forwarding entry.
    DeleteForwarding(Forwarding),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChangeLink(index, change) => write!(f, "set {index} {change}"),
            Self::DeleteLink(index) => write!(f, "delete {index}"),
            Self::DeleteGroup(group) => write!(f, "delete the interfaces of group {group}"),
            Self::AddAddress(address) => write!(f, "add {address}"),
            Self::ReplaceAddress(address) => write!(f, "replace {address}"),
            Self::DeleteAddress(address) => write!(f, "delete {address}"),
            Self::AddRoute(route) => write!(f, "add route {route}"),
            Self::ReplaceRoute(route) => write!(f, "replace route {route}"),
            Self::DeleteRoute(route) => write!(f, "delete route {route}"),
            Self::ReplaceNeighbour(neighbour) => write!(f, "replace {neighbour}"),
            Self::DeleteNeighbour(neighbour) => write!(f, "delete {neighbour}"),
            Self::ReplaceForwarding(entry) => write!(f, "replace {entry}"),
            Self::DeleteForwarding(entry) => write!(f, "delete {entry}"),
        }
    }
}

impl Operation {
    /// The message type and its flags.
    pub(crate) fn header(&self) -> (u16, u16) {
        match self {
            Self::ChangeLink(..) => (link::SET, 0),
            Self::DeleteLink(_) | Self::DeleteGroup(_) => (link::DELETE, 0),
            Self::AddAddress(_) => (address::NEW, CREATE | EXCLUSIVE),
            Self::ReplaceAddress(_) => (address::NEW, CREATE | REPLACE),
            Self::DeleteAddress(_) => (address::DELETE, 0),
            Self::AddRoute(_) => (route::NEW, CREATE | EXCLUSIVE),
            Self::ReplaceRoute(_) => (route::NEW, CREATE | REPLACE),
            Self::DeleteRoute(_) => (route::DELETE, 0),
            Self::ReplaceNeighbour(_) | Self::ReplaceForwarding(_) => {
                (neighbour::NEW, CREATE | REPLACE)
            }
            Self::DeleteNeighbour(_) | Self::DeleteForwarding(_) => (neighbour::DELETE, 0),
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        match self {
            Self::ChangeLink(index, change) => link::encode_change(writer, *index, change),
            Self::DeleteLink(index) => link::encode_delete(writer, *index),
            Self::DeleteGroup(group) => link::encode_delete_group(writer, *group),
            Self::AddAddress(address)
            | Self::ReplaceAddress(address)
            | Self::DeleteAddress(address) => address::encode(writer, address),
            Self::AddRoute(route) | Self::ReplaceRoute(route) | Self::DeleteRoute(route) => {
                route::encode(writer, route);
            }
            Self::ReplaceNeighbour(neighbour) | Self::DeleteNeighbour(neighbour) => {
                neighbour::encode(writer, neighbour);
            }
            Self::ReplaceForwarding(entry) | Self::DeleteForwarding(entry) => {
                neighbour::encode_forwarding(writer, entry);
            }
        }
    }
}
