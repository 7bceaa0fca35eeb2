//! Addresses and the small scalar types of the domain, read and written as Calico's
//! Go code reads and writes them.
//!
//! Text → value → text; no I/O. Every parser is total. In JSON each type has the form
//! that Calico stores: a number stays a number, a name stays a string.

mod address;
mod as_number;
mod dscp;
mod duration;
mod mac;
mod port;
mod protocol;
#[cfg(test)]
mod tests;
mod wire;

pub use address::{Cidr, NotACidr, parse_ip};
pub use as_number::AsNumber;
pub use dscp::Dscp;
pub use duration::Duration;
pub use mac::MacAddress;
pub use port::Port;
pub use protocol::Protocol;
pub use wire::{NumberOrText, Unreadable, parse_decimal};
