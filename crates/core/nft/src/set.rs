//! Sets and maps, and their elements.
//!
//! A range is written in the two ways that the kernel knows: as a start and an end of its own
//! where the key is one field, as one element with two keys where it is a concatenation.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use crate::expression::{self, Value, Verdict};
use crate::table::{LIST_ELEMENT, TableFamily, TableId};
use crate::user_data;
use crate::wire::{self, Malformed, Writer};

const FLAG_CONSTANT: u32 = 0x2;
const FLAG_ANONYMOUS: u32 = 0x1;
const FLAG_INTERVAL: u32 = 0x4;
const FLAG_MAP: u32 = 0x8;
const FLAG_TIMEOUT: u32 = 0x10;
const FLAG_DYNAMIC: u32 = 0x20;
const FLAG_CONCATENATION: u32 = 0x80;
const DATA_TYPE_VERDICT: u32 = 0xffff_ff00;
const ELEMENT_INTERVAL_END: u32 = 1;
const ELEMENT_CATCH_ALL: u32 = 2;

/// The sort of a value, for its length and for how `nft` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataType {
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// An Ethernet address.
    Mac,
    /// A transport protocol, 1 byte.
    Protocol,
    /// A port.
    Port,
    /// A mark.
    Mark,
    /// The number of an interface.
    LinkIndex,
    /// The name of an interface, 16 bytes filled up with zeros.
    LinkName,
    /// Bytes of that many.
    Integer(u32),
    /// Bytes of the transport header that `nft` has no name for.
    Transport {
        /// How many bytes of it come before.
        offset: u32,
        /// How many they are.
        n_bytes: u32,
    },
}

/// The number by which `nft` knows a type, and its length in bytes.
const DATA_TYPES: [(DataType, u32, u32); 8] = [
    (DataType::Ipv4, 7, 4),
    (DataType::Ipv6, 8, 16),
    (DataType::Mac, 9, 6),
    (DataType::Protocol, 12, 1),
    (DataType::Port, 13, 2),
    (DataType::Mark, 19, 4),
    (DataType::LinkIndex, 20, 4),
    (DataType::LinkName, 41, 16),
];
/// `nft` puts the types of a concatenation into one number, 6 bits each.
const TYPE_BITS: u32 = 6;

impl DataType {
    fn code(self) -> u32 {
        const INTEGER: u32 = 4;
        DATA_TYPES.iter().find(|(one, _, _)| *one == self).map_or(INTEGER, |(_, code, _)| *code)
    }

    /// Its length in bytes.
    pub fn n_bytes(self) -> u32 {
        match self {
            Self::Integer(len) | Self::Transport { n_bytes: len, .. } => len,
            _ => DATA_TYPES.iter().find(|(one, _, _)| *one == self).map_or(0, |(_, _, len)| *len),
        }
    }

    /// Its length in a concatenation, where every field fills whole registers.
    fn padded_len(self) -> u32 {
        self.n_bytes().next_multiple_of(4)
    }

    fn from_code(code: u32, len: u32) -> Self {
        let found = DATA_TYPES.iter().find(|(_, one, _)| *one == code);
        found.map_or(Self::Integer(len), |(one, _, _)| *one)
    }

    fn is_host_order(self) -> bool {
        matches!(self, Self::Mark | Self::LinkIndex | Self::LinkName)
    }
}

/// What a set keeps for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// Nothing: the key is a member or not.
    Members,
    /// A verdict.
    Verdicts,
    /// A value.
    Values(DataType),
}

/// A set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// The fields of a key; more than one make a concatenation.
    pub key: Vec<DataType>,
    /// What it keeps for a key.
    pub kind: SetKind,
    /// Whether keys can be ranges.
    pub has_ranges: bool,
    /// Whether elements can expire.
    pub has_timeouts: bool,
    /// Elements of this set that say nothing of their own expire after that time.
    pub timeout: Option<Duration>,
    /// Whether packets put elements into it: what is in it is nobody's intent.
    pub is_dynamic: bool,
    /// How many elements it can hold; no limit if absent.
    pub n_elements_max: Option<u32>,
    /// A word of ours.
    pub comment: Option<String>,
}

impl Set {
    /// A set whose elements stay until they are removed.
    pub fn new(name: &str, key: &[DataType]) -> Self {
        Self {
            name: name.to_owned(),
            key: key.to_vec(),
            kind: SetKind::Members,
            has_ranges: false,
            has_timeouts: false,
            timeout: None,
            is_dynamic: false,
            n_elements_max: None,
            comment: None,
        }
    }

    /// The same with ranges as keys.
    #[must_use]
    pub fn with_ranges(mut self) -> Self {
        self.has_ranges = true;
        self
    }

    /// The same as a map to verdicts.
    #[must_use]
    pub fn to_verdicts(mut self) -> Self {
        self.kind = SetKind::Verdicts;
        self
    }

    /// The same as a map to values.
    #[must_use]
    pub fn to_values(mut self, value: DataType) -> Self {
        self.kind = SetKind::Values(value);
        self
    }

    /// The same filled by packets, with keys that stay that long and are no more than so many.
    #[must_use]
    pub fn dynamic(mut self, timeout: Duration, n_elements_max: u32) -> Self {
        self.is_dynamic = true;
        self.has_timeouts = true;
        self.timeout = Some(timeout);
        self.n_elements_max = Some(n_elements_max);
        self
    }

    fn is_concatenation(&self) -> bool {
        self.key.len() > 1
    }

    /// Whether a range is two elements, a start and an end.
    fn has_split_ranges(&self) -> bool {
        self.has_ranges && !self.is_concatenation()
    }

    fn key_len(&self) -> u32 {
        match self.key.as_slice() {
            [single] => single.n_bytes(),
            fields => fields.iter().map(|field| field.padded_len()).sum(),
        }
    }

    fn flags(&self) -> u32 {
        let mut flags = 0;
        if self.has_ranges {
            flags |= FLAG_INTERVAL;
            if self.is_concatenation() {
                flags |= FLAG_CONCATENATION;
            }
        }
        if self.kind != SetKind::Members {
            flags |= FLAG_MAP;
        }
        if self.has_timeouts || self.timeout.is_some() {
            flags |= FLAG_TIMEOUT;
        }
        if self.is_dynamic {
            flags |= FLAG_DYNAMIC;
        }
        flags
    }

    /// Writes its definition.
    pub fn encode(&self, table: &TableId, id: u32, writer: &mut Writer) {
        let key_type = self.key.iter().fold(0u32, |all, field| (all << TYPE_BITS) | field.code());
        writer.text(1, &table.name);
        writer.text(2, &self.name);
        writer.u32_be(3, self.flags());
        writer.u32_be(4, key_type);
        writer.u32_be(5, self.key_len());
        match self.kind {
            SetKind::Members => {}
            SetKind::Verdicts => writer.u32_be(6, DATA_TYPE_VERDICT),
            SetKind::Values(value) => {
                writer.u32_be(6, value.code());
                writer.u32_be(7, value.n_bytes());
            }
        }
        let has_fields = self.has_ranges && self.is_concatenation();
        if has_fields || self.n_elements_max.is_some() {
            writer.nest(9, |description| {
                if let Some(max) = self.n_elements_max {
                    description.u32_be(1, max);
                }
                if has_fields {
                    description.nest(2, |fields| {
                        for field in &self.key {
                            fields.nest(LIST_ELEMENT, |one| one.u32_be(1, field.n_bytes()));
                        }
                    });
                }
            });
        }
        writer.u32_be(10, id);
        if let Some(timeout) = self.timeout {
            writer.u64_be(11, millis(timeout));
        }
        let is_host_order = matches!(self.key.as_slice(), [only] if only.is_host_order());
        writer.attribute(13, &user_data::set(&self.key, is_host_order, self.comment.as_deref()));
    }

    /// The set and its table; `None` for sets inside rules.
    pub fn decode(family: u8, attributes: &[u8]) -> Result<Option<(TableId, Self)>, Malformed> {
        let (table, set, is_inside) = Self::decode_any(family, attributes)?;
        Ok((!is_inside).then_some((table, set)))
    }

    /// The set, its table, and whether it is inside a rule.
    pub fn decode_any(family: u8, attributes: &[u8]) -> Result<(TableId, Self, bool), Malformed> {
        let mut table = TableId::new(TableFamily::from_code(family), "");
        let mut set = Self::new("", &[]);
        let (mut flags, mut key_type, mut key_len) = (0, 0, 0);
        let (mut data_type, mut data_len) = (0, 0);
        let mut transports = Vec::new();
        for attribute in wire::attributes(attributes) {
            match attribute? {
                (1, value) => table.name = wire::read_text(value),
                (2, value) => set.name = wire::read_text(value),
                (3, value) => flags = wire::read_u32_be(value)?,
                (4, value) => key_type = wire::read_u32_be(value)?,
                (5, value) => key_len = wire::read_u32_be(value)?,
                (6, value) => data_type = wire::read_u32_be(value)?,
                (7, value) => data_len = wire::read_u32_be(value)?,
                (9, value) => set.n_elements_max = decode_size(value)?,
                (11, value) => set.timeout = Some(Duration::from_millis(wire::read_u64_be(value)?)),
                (13, value) => {
                    set.comment = user_data::read_set_comment(value);
                    transports = user_data::read_transports(value);
                }
                _ => {}
            }
        }
        let inside = FLAG_ANONYMOUS | FLAG_CONSTANT;
        set.has_ranges = flags & FLAG_INTERVAL != 0;
        set.has_timeouts = flags & FLAG_TIMEOUT != 0;
        set.is_dynamic = flags & FLAG_DYNAMIC != 0;
        set.key = decode_key_type(key_type, key_len);
        for (field, transport) in set.key.iter_mut().zip(transports) {
            *field = transport.unwrap_or(*field);
        }
        set.kind = match (flags & FLAG_MAP, data_type) {
            (0, _) => SetKind::Members,
            (_, DATA_TYPE_VERDICT) => SetKind::Verdicts,
            (_, code) => SetKind::Values(DataType::from_code(code, data_len)),
        };
        Ok((table, set, flags & inside == inside))
    }
}

fn decode_size(attributes: &[u8]) -> Result<Option<u32>, Malformed> {
    for attribute in wire::attributes(attributes) {
        if let (1, value) = attribute? {
            return wire::read_u32_be(value).map(Some);
        }
    }
    Ok(None)
}

fn decode_key_type(mut code: u32, key_len: u32) -> Vec<DataType> {
    let mut fields = Vec::new();
    while code >> TYPE_BITS != 0 {
        fields.push(DataType::from_code(code & ((1 << TYPE_BITS) - 1), 4));
        code >>= TYPE_BITS;
    }
    let len = if fields.is_empty() { key_len } else { 4 };
    fields.push(DataType::from_code(code, len));
    fields.reverse();
    fields
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A key or a range of keys, both ends inside. Numbers are big endian unless their type says
/// otherwise; fields of a concatenation are filled up to multiples of 4 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// One key.
    One(Vec<u8>),
    /// All keys from the first to the last; in a concatenation, field by field. Made by
    /// [`Key::range`], so that the ends differ.
    Range(Vec<u8>, Vec<u8>),
    /// What no other element covers.
    Rest,
}

impl Key {
    /// The name of an interface.
    pub fn link_name(name: &str) -> Self {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(16, 0);
        Self::One(bytes)
    }

    /// One address.
    pub fn address(address: IpAddr) -> Self {
        Self::One(octets(address))
    }

    /// All keys from the first to the last, which is one key if they are the same.
    pub fn range(first: Vec<u8>, last: Vec<u8>) -> Self {
        if first == last { Self::One(first) } else { Self::Range(first, last) }
    }

    /// The addresses of a prefix.
    pub fn prefix(prefix: IpNet) -> Self {
        Self::range(octets(prefix.network()), octets(prefix.broadcast()))
    }

    /// Several fields side by side.
    pub fn concatenation(fields: &[Self]) -> Self {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for field in fields {
            let (low, high) = match field {
                Self::One(key) => (key, key),
                Self::Range(low, high) => (low, high),
                Self::Rest => return Self::Rest,
            };
            for (into, bytes) in [(&mut first, low), (&mut last, high)] {
                into.extend_from_slice(bytes);
                into.resize(into.len().next_multiple_of(4), 0);
            }
        }
        Self::range(first, last)
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The fewest ranges that cover the same addresses of one family: the kernel refuses overlaps, and
/// neighbours are one range.
pub fn merged(prefixes: impl IntoIterator<Item = IpNet>) -> Vec<Key> {
    let bounds = |prefix: IpNet| (octets(prefix.network()), octets(prefix.broadcast()));
    let mut ranges: Vec<_> = prefixes.into_iter().map(bounds).collect();
    ranges.sort();
    let mut kept: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (first, last) in ranges {
        match kept.last_mut() {
            // What follows directly on the last address of all cannot exist.
            Some((_, end)) if successor(end).is_none_or(|next| first <= next) => {
                if last > *end {
                    *end = last;
                }
            }
            _ => kept.push((first, last)),
        }
    }
    kept.into_iter().map(|(first, last)| Key::range(first, last)).collect()
}

/// The number after this one, or `None` after the highest.
fn successor(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut next = bytes.to_vec();
    for byte in next.iter_mut().rev() {
        let (sum, has_overflown) = byte.overflowing_add(1);
        *byte = sum;
        if !has_overflown {
            return Some(next);
        }
    }
    None
}

/// The number before this one.
fn predecessor(bytes: &[u8]) -> Vec<u8> {
    let mut previous = bytes.to_vec();
    for byte in previous.iter_mut().rev() {
        let (difference, has_overflown) = byte.overflowing_sub(1);
        *byte = difference;
        if !has_overflown {
            break;
        }
    }
    previous
}

/// What a map keeps for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementValue {
    /// A verdict.
    Verdict(Verdict),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its key.
    pub key: Key,
    /// What a map keeps for it.
    pub value: Option<ElementValue>,
    /// After which time it goes by itself; the set's time if absent.
    pub timeout: Option<Duration>,
    /// A word of ours. Deleting ignores it.
    pub comment: Option<String>,
}

impl Element {
    /// A member of a set.
    pub fn member(key: Key) -> Self {
        Self { key, value: None, timeout: None, comment: None }
    }

    /// An entry of a verdict map.
    pub fn verdict(key: Key, verdict: Verdict) -> Self {
        let value = Some(ElementValue::Verdict(verdict));
        Self { value, ..Self::member(key) }
    }

    /// Writes the element: as one, or as the start and the end of a range.
    pub fn encode(&self, set: &Set, writer: &mut Writer) {
        let split = set.has_split_ranges();
        let end = match &self.key {
            Key::One(key) | Key::Range(_, key) if split => successor(key),
            _ => None,
        };
        writer.nest(LIST_ELEMENT, |one| {
            match &self.key {
                Key::One(key) => expression::put_value(one, 1, key),
                Key::Range(first, last) => {
                    expression::put_value(one, 1, first);
                    if !split {
                        expression::put_value(one, 10, last);
                    }
                }
                Key::Rest => one.u32_be(3, ELEMENT_CATCH_ALL),
            }
            if let (Key::One(key), true) = (&self.key, set.has_ranges && !split) {
                expression::put_value(one, 10, key);
            }
            match &self.value {
                Some(ElementValue::Verdict(verdict)) => verdict.encode(2, one),
                Some(ElementValue::Bytes(bytes)) => expression::put_value(one, 2, bytes),
                None => {}
            }
            if let Some(timeout) = self.timeout {
                one.u64_be(4, millis(timeout));
            }
            if let Some(comment) = &self.comment {
                one.attribute(6, &user_data::comment(0, comment));
            }
        });
        if let Some(end) = end {
            writer.nest(LIST_ELEMENT, |one| {
                expression::put_value(one, 1, &end);
                one.u32_be(3, ELEMENT_INTERVAL_END);
            });
        }
    }
}

/// An element as it stands in a message: of a split range, only one side.
pub struct RawElement {
    element: Element,
    is_end: bool,
}

/// The elements in one message of a dump.
pub fn decode_elements(attributes: &[u8]) -> Result<Vec<RawElement>, Malformed> {
    let mut found = Vec::new();
    for attribute in wire::attributes(attributes) {
        if let (3, list) = attribute? {
            for one in wire::attributes(list) {
                found.push(decode_element(one?.1)?);
            }
        }
    }
    Ok(found)
}

fn decode_element(attributes: &[u8]) -> Result<RawElement, Malformed> {
    let (mut first, mut last, mut flags) = (None, None, 0);
    let mut element = Element::member(Key::Rest);
    for attribute in wire::attributes(attributes) {
        match attribute? {
            (1, value) => first = Some(decode_key(value)?),
            (2, value) => {
                element.value = Some(match expression::decode_value(value)? {
                    Value::Verdict(verdict) => ElementValue::Verdict(verdict),
                    Value::Bytes(bytes) => ElementValue::Bytes(bytes),
                });
            }
            (3, value) => flags = wire::read_u32_be(value)?,
            (4, value) => element.timeout = Some(Duration::from_millis(wire::read_u64_be(value)?)),
            (6, value) => element.comment = user_data::read_comment(0, value),
            (10, value) => last = Some(decode_key(value)?),
            _ => {}
        }
    }
    element.key = match (first, last) {
        (Some(first), Some(last)) => Key::range(first, last),
        (Some(first), None) => Key::One(first),
        (None, _) if flags & ELEMENT_CATCH_ALL != 0 => Key::Rest,
        (None, _) => return Err(Malformed("an element without a key")),
    };
    Ok(RawElement { element, is_end: flags & ELEMENT_INTERVAL_END != 0 })
}

fn decode_key(attributes: &[u8]) -> Result<Vec<u8>, Malformed> {
    match expression::decode_value(attributes)? {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Verdict(_) => Err(Malformed("a verdict where a key belongs")),
    }
}

/// Puts starts and ends of ranges together; a start without an end reaches to the highest key.
pub fn join(set: &Set, raw: Vec<RawElement>) -> Vec<Element> {
    if !set.has_split_ranges() {
        return raw.into_iter().map(|one| one.element).collect();
    }
    let mut sorted = raw;
    // Where one range ends and the next starts, the end comes first.
    sorted.sort_by(|a, b| (&a.element.key, !a.is_end).cmp(&(&b.element.key, !b.is_end)));
    let mut found: Vec<Element> = Vec::new();
    let mut rest = sorted.into_iter().peekable();
    while let Some(RawElement { element, is_end }) = rest.next() {
        let first = match &element.key {
            Key::One(first) if !is_end => first.clone(),
            // An end without a start is how `nft` marks what is not covered.
            _ if is_end => continue,
            _ => {
                found.push(element);
                continue;
            }
        };
        let last = match rest.peek().map(|next| &next.element.key) {
            Some(Key::One(next)) => predecessor(next),
            _ => vec![0xff; first.len()],
        };
        found.push(Element { key: Key::range(first, last), ..element });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(prefixes: &[&str]) -> Vec<String> {
        let text = |bytes: &[u8]| wire::read_address(bytes).unwrap().to_string();
        let shown = |key: Key| match key {
            Key::Range(first, last) => format!("{}-{}", text(&first), text(&last)),
            Key::One(only) => text(&only),
            Key::Rest => unreachable!(),
        };
        merged(prefixes.iter().map(|one| one.parse().unwrap())).into_iter().map(shown).collect()
    }

    #[test]
    fn overlaps_and_neighbours_are_one_range() {
        assert_eq!(
            ranges(&["10.0.1.0/24", "10.0.0.0/24", "10.0.0.128/25"]),
            ["10.0.0.0-10.0.1.255"]
        );
        assert_eq!(ranges(&["10.0.0.1/32", "10.0.0.3/32"]), ["10.0.0.1", "10.0.0.3"]);
        assert_eq!(ranges(&["0.0.0.0/0", "10.0.0.0/8"]), ["0.0.0.0-255.255.255.255"]);
        assert_eq!(
            ranges(&["255.255.255.255/32", "255.255.255.254/32"]),
            ["255.255.255.254-255.255.255.255"]
        );
        assert_eq!(ranges(&["::/0", "fd00::/8"]), ["::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]);
    }
}
