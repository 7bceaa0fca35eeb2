//! The bytes that the kernel keeps for user space, in the form that `nft` reads.

use crate::set::DataType;

/// The longest value: the kernel keeps 256 bytes, two of which are the type and the length.
const VALUE_LEN_MAX: usize = 253;

fn put(into: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let value = value.get(..VALUE_LEN_MAX).unwrap_or(value);
    into.push(kind);
    into.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
    into.extend_from_slice(value);
}

/// A comment under the type that it has on this sort of object.
pub(crate) fn comment(kind: u8, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().get(..VALUE_LEN_MAX - 1).unwrap_or(text.as_bytes()).to_vec();
    bytes.push(0);
    let mut into = Vec::new();
    put(&mut into, kind, &bytes);
    into
}

/// What `nft` needs to know of a set to print its elements.
pub(crate) fn set(key: &[DataType], key_is_host_order: bool, text: Option<&str>) -> Vec<u8> {
    const KEY_ORDER: u8 = 0;
    const DATA_ORDER: u8 = 1;
    const COMMENT: u8 = 7;
    let order: u32 = if key_is_host_order { 1 } else { 2 };
    let mut into = Vec::new();
    put(&mut into, KEY_ORDER, &order.to_ne_bytes());
    put(&mut into, DATA_ORDER, &2u32.to_ne_bytes());
    if let Some(origin) = origin(key) {
        put(&mut into, KEY_ORIGIN, &origin);
    }
    if let Some(text) = text {
        into.extend(comment(COMMENT, text));
    }
    into
}

/// What a key is read from, and the numbers by which `nft` knows the sorts of that.
const KEY_ORIGIN: u8 = 3;
const SORT: u8 = 0;
const DETAILS: u8 = 1;
const SORT_PAYLOAD: u32 = 7;
const SORT_META: u32 = 9;
const SORT_CONCATENATION: u32 = 13;
const BASE: u8 = 2;
const OFFSET: u8 = 3;
const LENGTH: u8 = 4;
const BASE_TRANSPORT: u32 = 3;

/// What the fields of a concatenation are read from, where one of them has no type that `nft` could
/// name: by that it lists such a set so that it can load it again. None if types are enough.
fn origin(key: &[DataType]) -> Option<Vec<u8>> {
    const INPUT_NAME: u32 = 6;
    if !key.iter().any(|field| matches!(field, DataType::Transport { .. })) {
        return None;
    }
    let mut fields = Vec::new();
    for (at, field) in (0..).zip(key) {
        let mut details = Vec::new();
        let mut detail = |kind, value: u32| put(&mut details, kind, &value.to_ne_bytes());
        let sort = match field {
            DataType::Transport { offset, n_bytes } => {
                let all = [0, 0, BASE_TRANSPORT, offset * 8, n_bytes * 8];
                (0..).zip(all).for_each(|(kind, value)| detail(kind, value));
                SORT_PAYLOAD
            }
            DataType::LinkName => {
                detail(0, INPUT_NAME);
                SORT_META
            }
            _ => return None,
        };
        put(&mut fields, at, &sorted(sort, &details));
    }
    Some(sorted(SORT_CONCATENATION, &fields))
}

fn sorted(sort: u32, details: &[u8]) -> Vec<u8> {
    let mut into = Vec::new();
    put(&mut into, SORT, &sort.to_ne_bytes());
    put(&mut into, DETAILS, details);
    into
}

/// For each field of a set's key: the part of the transport header that it is, if it is one.
pub(crate) fn read_transports(bytes: &[u8]) -> Vec<Option<DataType>> {
    let fields = read(KEY_ORIGIN, bytes).and_then(|origin| read(DETAILS, origin)).unwrap_or(&[]);
    let field = |at| read(at, fields);
    (0..u8::MAX).map_while(field).map(read_transport).collect()
}

fn read_transport(field: &[u8]) -> Option<DataType> {
    let number = |kind, bytes| read(kind, bytes)?.try_into().map(u32::from_ne_bytes).ok();
    let details = read(DETAILS, field)?;
    let is_it = number(SORT, field)? == SORT_PAYLOAD && number(BASE, details)? == BASE_TRANSPORT;
    let (offset, n_bytes) = (number(OFFSET, details)? / 8, number(LENGTH, details)? / 8);
    is_it.then_some(DataType::Transport { offset, n_bytes })
}

/// The value of a type.
fn read(kind: u8, mut bytes: &[u8]) -> Option<&[u8]> {
    while let [found, len, rest @ ..] = bytes {
        let value = rest.get(..usize::from(*len))?;
        if *found == kind {
            return Some(value);
        }
        bytes = rest.get(usize::from(*len)..)?;
    }
    None
}

pub(crate) fn read_comment(kind: u8, bytes: &[u8]) -> Option<String> {
    read(kind, bytes).map(crate::wire::read_text)
}

/// The comment of a set.
pub(crate) fn read_set_comment(bytes: &[u8]) -> Option<String> {
    read_comment(7, bytes)
}
