//! The socket for links, addresses, routes and neighbours of one namespace.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::address::{self, Address};
use crate::error::{Errno, Error, Result};
use crate::link::{self, Link, LinkChange, LinkIndex, LinkName, NewLink};
use crate::neighbour::{self, Forwarding, Neighbour};
use crate::netns::Netns;
use crate::operation::Operation;
use crate::route::{self, Family, Route, RouteFilter};
use crate::socket::{ROUTE, Socket};
use crate::wire::{self, CREATE, EXCLUSIVE, Writer};

const GET_NETNS_ID: u16 = 90;
/// Interfaces start under a name with this prefix; one that is found later was left by a crash.
pub const TEMPORARY_NAME_PREFIX: &str = "mgy";

/// Reads and changes links, addresses, routes and neighbours of the namespace it was opened in.
pub struct Netlink {
    socket: Socket,
}

impl fmt::Debug for Netlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Netlink")
    }
}

impl Netlink {
    /// Opens a socket in the namespace of the calling thread.
    pub fn open() -> Result<Self> {
        Ok(Self { socket: Socket::open(ROUTE, None, &[])? })
    }

    /// Opens a socket that lives in `netns`, wherever it is used.
    pub fn in_netns(netns: &Netns) -> Result<Self> {
        Ok(Self { socket: Socket::open(ROUTE, Some(netns), &[])? })
    }

    /// Changes how long an answer is waited for: 10 seconds at first.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.socket.set_deadline(deadline);
    }

    /// All interfaces.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        self.socket.dump(
            &"list the interfaces",
            link::GET,
            |writer| link::encode_get(writer, 0, None),
            |message| link::decode(message.body).map(Some),
        )
    }

    /// The interface of that name now.
    pub fn link_by_name(&mut self, name: &LinkName) -> Result<Option<Link>> {
        self.one_link(&format!("look at the interface {name}"), 0, Some(name))
    }

    /// The interface of that number.
    pub fn link_by_index(&mut self, index: LinkIndex) -> Result<Option<Link>> {
        self.one_link(&format!("look at {index}"), index.0, None)
    }

    fn one_link(
        &mut self,
        attempt: &str,
        index: u32,
        name: Option<&LinkName>,
    ) -> Result<Option<Link>> {
        let mut found = None;
        let asked = self.socket.request(
            &attempt,
            link::GET,
            0,
            |writer| link::encode_get(writer, index, name),
            |message| {
                found = Some(link::decode(message.body)?);
                Ok(())
            },
        );
        match asked {
            Ok(()) => Ok(found),
            Err(error) if error.errno() == Some(Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes an interface.
    ///
    /// It is made under a temporary name, gets its alias, and only then its own name and state: no
    /// list and no event ever shows the name without the alias. If that fails, it is removed again.
    pub fn create(&mut self, link: &NewLink) -> Result<Link> {
        let temporary = temporary_name()?;
        let attempt = format!("make the interface {}", link.name);
        let create = |writer: &mut Writer| link::encode_new(writer, link, &temporary);
        self.socket.request(&attempt, link::NEW, CREATE | EXCLUSIVE, create, |_| Ok(()))?;
        let finished = self.finish(link, &temporary, &attempt);
        if finished.is_err()
            && let Ok(Some(left)) = self.link_by_name(&temporary)
        {
            let _ = self.apply(&Operation::DeleteLink(left.index));
        }
        finished
    }

    fn finish(&mut self, link: &NewLink, temporary: &LinkName, attempt: &str) -> Result<Link> {
        if let Some(alias) = &link.alias {
            let set = |writer: &mut Writer| link::encode_alias(writer, temporary, alias);
            self.socket.request(&attempt, link::SET, 0, set, |_| Ok(()))?;
        }
        let vanished = || Error::System {
            attempt: attempt.to_owned(),
            source: std::io::Error::from_raw_os_error(Errno::NODEV.raw_os_error()),
        };
        let made = self.link_by_name(temporary)?.ok_or_else(vanished)?;
        let change = LinkChange {
            name: Some(link.name.clone()),
            is_up: link.is_up.then_some(true),
            ..LinkChange::default()
        };
        let rename = |writer: &mut Writer| link::encode_change(writer, made.index, &change);
        self.socket.request(&attempt, link::SET, 0, rename, |_| Ok(()))?;
        Ok(Link { name: link.name.clone(), is_up: link.is_up, ..made })
    }

    /// Addresses of one interface, or of all.
    pub fn addresses(&mut self, link: Option<LinkIndex>) -> Result<Vec<Address>> {
        let found = self.socket.dump(
            &"list the addresses",
            address::GET,
            |writer| address::encode_get(writer, link),
            |message| address::decode(message.body).map(Some),
        );
        let found = or_empty(found, link.is_some())?;
        Ok(found.into_iter().filter(|one| link.is_none_or(|link| link == one.link)).collect())
    }

    /// Routes that pass the filter. A table or an interface that does not exist has none.
    pub fn routes(&mut self, filter: &RouteFilter) -> Result<Vec<Route>> {
        let mut found = Vec::new();
        for family in [Family::V4, Family::V6] {
            if filter.family.is_some_and(|wanted| wanted != family) {
                continue;
            }
            let of_family = self.socket.dump(
                &"list the routes",
                route::GET,
                |writer| route::encode_get(writer, family, filter),
                |message| {
                    Ok(route::decode(message.body)?.filter(|route| filter.admits(family, route)))
                },
            );
            found.extend(or_empty(of_family, true)?);
        }
        Ok(found)
    }

    /// Neighbours of one interface, or of all, proxies included.
    pub fn neighbours(&mut self, link: Option<LinkIndex>) -> Result<Vec<Neighbour>> {
        let mut found = Vec::new();
        for is_proxy in [false, true] {
            let some = self.socket.dump(
                &"list the neighbours",
                neighbour::GET,
                |writer| neighbour::encode_get(writer, link, is_proxy),
                |message| neighbour::decode(message.body),
            );
            found.extend(or_empty(some, link.is_some())?);
        }
        found.retain(|one| link.is_none_or(|link| link == one.link));
        Ok(found)
    }

    /// Forwarding entries of a VXLAN device.
    pub fn forwarding(&mut self, link: LinkIndex) -> Result<Vec<Forwarding>> {
        let found = self.socket.dump(
            &format!("list the forwarding entries of {link}"),
            neighbour::GET,
            |writer| neighbour::encode_get_forwarding(writer, link),
            |message| neighbour::decode_forwarding(message.body),
        );
        let found = or_empty(found, true)?;
        Ok(found.into_iter().filter(|entry| entry.link == link).collect())
    }

    /// The number by which this namespace knows `other`, which is what
    /// [`Link::peer_netns_id`] holds. `None`: it has none, so no link leads there.
    pub fn netns_id(&mut self, other: &Netns) -> Result<Option<u32>> {
        const ID: u16 = 1;
        const DESCRIPTOR: u16 = 3;
        let mut found = None;
        self.socket.request(
            &format!("look up the namespace {}", other.id()),
            GET_NETNS_ID,
            0,
            |writer| {
                writer.put(&[0; 4]);
                writer.attribute(DESCRIPTOR, &other.as_fd().as_raw_fd().to_ne_bytes());
            },
            |message| {
                for attribute in wire::attributes_after(message.body, 4)? {
                    if let (ID, value) = attribute? {
                        found = Some(wire::read_u32(value)?);
                    }
                }
                Ok(())
            },
        )?;
        Ok(found.filter(|id| *id <= i32::MAX.cast_unsigned()))
    }

    /// Carries out one change.
    pub fn apply(&mut self, operation: &Operation) -> Result<()> {
        let (kind, flags) = operation.header();
        let fill = |writer: &mut Writer| operation.encode(writer);
        self.socket.request(operation, kind, flags, fill, |_| Ok(()))
    }

    /// Carries out many changes in order, with a result each; one that fails stops none of the
    /// others. This is not a transaction.
    pub fn apply_all(&mut self, operations: &[Operation]) -> Vec<Result<()>> {
        self.socket.exchange_all(operations, Operation::header, Operation::encode)
    }
}

/// A filter on what does not exist finds nothing.
fn or_empty<T>(listed: Result<Vec<T>>, is_filtered: bool) -> Result<Vec<T>> {
    match listed {
        Err(error) if is_filtered && error.is_not_found() => Ok(Vec::new()),
        listed => listed,
    }
}

fn temporary_name() -> Result<LinkName> {
    let mut random = [0u8; 6];
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::system("draw a name", errno))?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    LinkName::new(&format!("{TEMPORARY_NAME_PREFIX}{text}"))
}
