//! Names of chains and sets: short, readable where they can be, and the same for the same thing.

use std::fmt::Write;

use nft::{Key, Set};
use sha1::{Digest, Sha1};

/// The longest id that is a name as it is.
const ID_LEN_MAX: usize = 24;
/// How much of a longer one is legible.
const ID_LEGIBLE: usize = 6;

/// A digest of parts; no two lists of parts run into each other.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha1::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

/// A digest of bytes.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    hex(&Sha1::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(16);
    for byte in bytes.iter().take(8) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The id of an IP set as part of a name: its `:` becomes a dot, as `nft` reads names. Of a long
/// one the beginning is legible; the kernel looks for sets in a list, name by name.
pub(super) fn of_set(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == ':';
    if !id.chars().all(is_plain) || id.starts_with("id:") {
        return format!("id.{}", digest([id]));
    }
    let name = id.replace(':', ".");
    match id.get(..ID_LEGIBLE) {
        Some(_) if id.len() > ID_LEN_MAX => format!("{}.{}", &name[..ID_LEGIBLE], digest([id])),
        _ => name,
    }
}

/// The name of a set of that sort that holds these keys, and no others ever.
pub(super) fn of_keys<'a>(prefix: &str, sort: &Set, keys: impl Iterator<Item = &'a Key>) -> String {
    let keys: Vec<&Key> = keys.collect();
    let text = format!("{:?}{}{keys:?}", sort.key, sort.has_ranges);
    format!("{prefix}-{}", digest([text.as_str()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_parts_have_other_digests_and_other_ids_other_names() {
        assert_ne!(digest(["ab", "c"]), digest(["a", "bc"]));
        assert_eq!(of_set("s:a_b-C"), "s.a_b-C");
        assert_ne!(of_set("s.a"), of_set("s:a"), "a dot of its own is not plain");
        assert!(of_set("é").starts_with("id."));
        let (long, longer) = ("x".repeat(300), "x".repeat(301));
        assert!(of_set(&long).len() <= ID_LEN_MAX && of_set(&long) != of_set(&longer));
        assert!(of_set("s:0123456789012345678901234567890123456").starts_with("s.0123."));
    }
}
