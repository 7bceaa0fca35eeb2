//! Netlink messages as bytes: writing headers and attributes, reading them back.
//!
//! Reading is total: what does not fit is [`Malformed`], never a panic. Numbers are in the byte
//! order of the machine unless a name says big endian.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the header of a message.
pub const HEADER_LEN: usize = 16;
/// Attributes and messages start at multiples of this.
const ALIGNMENT: usize = 4;
/// The two highest bits of an attribute's type are flags (nested, big endian).
const ATTRIBUTE_TYPE_MASK: u16 = 0x3fff;
const ATTRIBUTE_NESTED: u16 = 0x8000;

/// On every request.
pub const REQUEST: u16 = 0x1;
/// Asks for an answer in any case.
pub const ACK: u16 = 0x4;
/// Asks for all objects.
pub const DUMP: u16 = 0x300;
/// Replaces what is there.
pub const REPLACE: u16 = 0x100;
/// Refused if it is there.
pub const EXCLUSIVE: u16 = 0x200;
/// Creates it if it is not there.
pub const CREATE: u16 = 0x400;
/// At the end of the list.
pub const APPEND: u16 = 0x800;
/// On an answer: the table changed while it was being dumped.
pub const DUMP_INTERRUPTED: u16 = 0x10;
/// On an error: the request is not repeated in full.
pub const CAPPED: u16 = 0x100;
/// On an error: attributes follow that explain it.
pub const ACK_ATTRIBUTES: u16 = 0x200;

/// Message types below this are netlink's own.
pub const KIND_ERROR: u16 = 2;
/// The end of a dump.
pub const KIND_DONE: u16 = 3;

/// The number that ties an answer to its request.
pub type Sequence = u32;

/// Bytes that do not follow the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unreadable netlink message: {0}")]
pub struct Malformed(pub &'static str);

/// A growing buffer of messages.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    is_oversized: bool,
}

impl Writer {
    /// Everything written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much was written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether an attribute grew beyond what its length field can say; such bytes are not sent.
    pub fn is_oversized(&self) -> bool {
        self.is_oversized
    }

    /// Writes one message: its header, the fixed part and the attributes that `fill` adds.
    pub fn message(
        &mut self,
        kind: u16,
        flags: u16,
        sequence: Sequence,
        fill: impl FnOnce(&mut Self),
    ) {
        let start = self.bytes.len();
        self.put(&[0; 4]);
        self.put(&kind.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&sequence.to_ne_bytes());
        self.put(&[0; 4]);
        fill(self);
        let Ok(length) = u32::try_from(self.bytes.len() - start) else {
            self.is_oversized = true;
            return;
        };
        self.overwrite(start, &length.to_ne_bytes());
        self.align();
    }

    /// Appends plain bytes, such as the fixed part of a message.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.open(kind, |writer| writer.put(value));
    }

    /// An attribute that holds others.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        self.open(kind | ATTRIBUTE_NESTED, fill);
    }

    fn open(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.put(&[0; 2]);
        self.put(&kind.to_ne_bytes());
        fill(self);
        match u16::try_from(self.bytes.len() - start) {
            Ok(length) => self.overwrite(start, &length.to_ne_bytes()),
            Err(_) => self.is_oversized = true,
        }
        self.align();
    }

    /// An attribute of one byte.
    pub fn u8(&mut self, kind: u16, value: u8) {
        self.attribute(kind, &[value]);
    }

    /// An attribute of two bytes, big endian.
    pub fn u16_be(&mut self, kind: u16, value: u16) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// An attribute of four bytes.
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// An attribute of four bytes, big endian.
    pub fn u32_be(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// An attribute of eight bytes, big endian.
    pub fn u64_be(&mut self, kind: u16, value: u64) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// A string with the NUL that the kernel expects.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.open(kind, |writer| {
            writer.put(value.as_bytes());
            writer.put(&[0]);
        });
    }

    /// An attribute that is an address.
    pub fn address(&mut self, kind: u16, value: IpAddr) {
        match value {
            IpAddr::V4(v4) => self.attribute(kind, &v4.octets()),
            IpAddr::V6(v6) => self.attribute(kind, &v6.octets()),
        }
    }

    /// Appends the messages of another buffer.
    pub fn append(&mut self, other: &Self) {
        self.is_oversized |= other.is_oversized;
        self.put(&other.bytes);
    }

    /// Numbers the message that starts at `at`.
    pub fn set_sequence(&mut self, at: usize, sequence: Sequence) {
        self.overwrite(at + 8, &sequence.to_ne_bytes());
    }

    /// Adds flags to the message that starts at `at`.
    pub fn add_flags(&mut self, at: usize, flags: u16) {
        let present = u16_at(&self.bytes, at + 6).unwrap_or(0);
        self.overwrite(at + 6, &(present | flags).to_ne_bytes());
    }

    fn align(&mut self) {
        let length = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(length, 0);
    }

    fn overwrite(&mut self, at: usize, value: &[u8]) {
        if let Some(target) = self.bytes.get_mut(at..at + value.len()) {
            target.copy_from_slice(value);
        }
    }
}

/// One received message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// What it is about.
    pub kind: u16,
    /// Its flags.
    pub flags: u16,
    /// Which request it belongs to.
    pub sequence: Sequence,
    /// What follows the header.
    pub body: &'a [u8],
}

/// The messages of one datagram, in order.
pub fn messages(bytes: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Malformed>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let taken = split_message(rest);
        rest = taken.as_ref().map_or(&[], |(_, after)| *after);
        Some(taken.map(|(message, _)| message))
    })
}

fn split_message(bytes: &[u8]) -> Result<(Message<'_>, &[u8]), Malformed> {
    const SHORT: Malformed = Malformed("a header is cut off");
    let length = u32_at(bytes, 0).ok_or(SHORT)? as usize;
    let whole = bytes.get(..length).ok_or(Malformed("a message is cut off"))?;
    let message = Message {
        kind: u16_at(whole, 4).ok_or(SHORT)?,
        flags: u16_at(whole, 6).ok_or(SHORT)?,
        sequence: u32_at(whole, 8).ok_or(SHORT)?,
        body: whole.get(HEADER_LEN..).ok_or(SHORT)?,
    };
    Ok((message, bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or(&[])))
}

/// The attributes in a body or a nest, in order.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), Malformed>> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let taken = split_attribute(rest);
        rest = taken.as_ref().map_or(&[], |(_, after)| *after);
        Some(taken.map(|(attribute, _)| attribute))
    })
}

type Attribute<'a> = (u16, &'a [u8]);

fn split_attribute(bytes: &[u8]) -> Result<(Attribute<'_>, &[u8]), Malformed> {
    const SHORT: Malformed = Malformed("an attribute is cut off");
    let length = usize::from(u16_at(bytes, 0).ok_or(SHORT)?);
    let kind = u16_at(bytes, 2).ok_or(SHORT)? & ATTRIBUTE_TYPE_MASK;
    let value = bytes.get(4..length).ok_or(SHORT)?;
    let after = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or(&[]);
    Ok(((kind, value), after))
}

/// The attributes after a fixed part of `fixed` bytes.
pub fn attributes_after(
    body: &[u8],
    fixed: usize,
) -> Result<impl Iterator<Item = Result<Attribute<'_>, Malformed>> + '_, Malformed> {
    Ok(attributes(body.get(fixed..).ok_or(Malformed("a fixed part is cut off"))?))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.get(..N)?.try_into().ok()
}

/// Two bytes at a place.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_ne_bytes)
}

/// Four bytes at a place.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_ne_bytes)
}

/// A value that fills an attribute exactly.
fn whole<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value.try_into().map_err(|_| Malformed("a number has the wrong length"))
}

/// One byte.
pub fn read_u8(value: &[u8]) -> Result<u8, Malformed> {
    whole(value).map(|[byte]| byte)
}

/// Two bytes, big endian.
pub fn read_u16_be(value: &[u8]) -> Result<u16, Malformed> {
    whole(value).map(u16::from_be_bytes)
}

/// Four bytes.
pub fn read_u32(value: &[u8]) -> Result<u32, Malformed> {
    whole(value).map(u32::from_ne_bytes)
}

/// Four bytes, big endian.
pub fn read_u32_be(value: &[u8]) -> Result<u32, Malformed> {
    whole(value).map(u32::from_be_bytes)
}

/// Eight bytes, big endian.
pub fn read_u64_be(value: &[u8]) -> Result<u64, Malformed> {
    whole(value).map(u64::from_be_bytes)
}

/// A string up to its first NUL. Names are bytes to the kernel: what is not UTF-8 is replaced.
pub fn read_text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or(&[])).into_owned()
}

/// An address, of the family that its length tells.
pub fn read_address(value: &[u8]) -> Result<IpAddr, Malformed> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Ok(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(value);
    octets.map(|octets| Ipv6Addr::from(octets).into()).map_err(|_| Malformed("not an address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = Writer::default();
        writer.message(16, REQUEST, 7, |body| {
            body.put(&[1, 2, 3, 4]);
            body.text(3, "eth0");
            body.nest(18, |nest| nest.u32(1, 9));
        });
        let message = messages(writer.bytes()).next().unwrap().unwrap();
        assert_eq!((message.kind, message.flags, message.sequence), (16, REQUEST, 7));
        let read: Vec<_> = attributes_after(message.body, 4).unwrap().map(Result::unwrap).collect();
        assert_eq!(read_text(read[0].1), "eth0");
        let nested = attributes(read[1].1).next().unwrap().unwrap();
        assert_eq!((nested.0, read_u32(nested.1)), (1, Ok(9)));
    }

    #[test]
    fn an_attribute_of_more_than_64_kib_is_not_cut_silently() {
        let mut writer = Writer::default();
        writer.message(1, 0, 0, |body| body.attribute(1, &[0; 70_000]));
        assert!(writer.is_oversized());
    }

    #[test]
    fn every_cut_of_a_message_is_an_error_or_nothing() {
        let mut writer = Writer::default();
        writer.message(16, 0, 0, |body| body.u32(1, 9));
        for end in 1..writer.len() {
            assert!(messages(&writer.bytes()[..end]).next().unwrap().is_err(), "{end}");
        }
        assert_eq!(
            attributes(&[3, 0, 1, 0]).next(),
            Some(Err(Malformed("an attribute is cut off")))
        );
    }
}
