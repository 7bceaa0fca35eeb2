//! The bytes that the kernel keeps for user space, in the form that `nft` reads.

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
pub(crate) fn set(key_is_host_order: bool, text: Option<&str>) -> Vec<u8> {
    const KEY_ORDER: u8 = 0;
    const DATA_ORDER: u8 = 1;
    const COMMENT: u8 = 7;
    let order: u32 = if key_is_host_order { 1 } else { 2 };
    let mut into = Vec::new();
    put(&mut into, KEY_ORDER, &order.to_ne_bytes());
    put(&mut into, DATA_ORDER, &2u32.to_ne_bytes());
    if let Some(text) = text {
        into.extend(comment(COMMENT, text));
    }
    into
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
