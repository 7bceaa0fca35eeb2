//! This node's kernel, by netlink, in process: nothing is ever executed.
//!
//! - [`Netns`]: network namespaces, entered on threads of their own.
//! - [`Netlink`]: links, addresses, routes and neighbours; changes are [`Operation`] values,
//!   applied one by one or many in one send. [`Monitor`] tells what others change; [`Removals`]
//!   takes interfaces away without waiting for the kernel's own tidying up.
//! - [`nft`]: the ruleset of nf_tables, changed in transactions.
//! - [`conntrack`]: connections, listed and forgotten.
//! - [`nflog`]: packets that rules hand over.
//! - [`sysctl`]: settings below `/proc/sys/net`.
//!
//! Calls block, with a deadline. An [`Error`] names the object and carries the kernel's own words.
//! Who decides what the kernel should hold is elsewhere.

mod address;
pub mod conntrack;
mod error;
mod link;
mod listen;
mod monitor;
mod neighbour;
mod netlink;
mod netns;
pub mod nflog;
pub mod nft;
mod operation;
mod removal;
mod route;
mod socket;
pub mod sysctl;

use ::nft::wire;
pub use address::Address;
pub use error::{Errno, Error, Failure, Refusal, Remedy, Result};
pub use link::{Link, LinkChange, LinkIndex, LinkName, Mac, NewLink, NewLinkKind, VethPeer, Vxlan};
pub use listen::Listener;
pub use monitor::{Event, Monitor, Topic, decode_events};
pub use neighbour::{Forwarding, Neighbour, NeighbourKind};
pub use netlink::{Netlink, TEMPORARY_NAME_PREFIX};
pub use netns::{Netns, NetnsId, VisibleNetns};
pub use operation::Operation;
pub use removal::Removals;
pub use route::{Family, NextHop, Route, RouteFilter, RouteKind, RouteProtocol, Scope, Table};
pub use wire::Malformed;
