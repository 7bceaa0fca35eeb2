//! Names of chains and sets: the same for the same thing, legible where they can be, and short, as
//! the kernel looks for sets in a list, name by name.

use nft::{Key, Set};
use sha1::{Digest, Sha1};

/// The longest id that is a name as it is.
const ID_LEN_MAX: usize = 12;
/// What digests are written with; a dash comes before them.
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// So many of them have room for 64 bits.
const DIGEST_LEN: usize = 11;

/// A digest of parts; no two lists of parts run into each other.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha1::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    written(&hash.finalize())
}

/// A digest of bytes.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    written(&Sha1::digest(bytes))
}

/// The first 64 bits.
fn written(bytes: &[u8]) -> String {
    let mut rest = bytes.iter().take(8).fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
    let letter = |_| {
        let letter = LETTERS[(rest % 62) as usize];
        rest /= 62;
        char::from(letter)
    };
    (0..DIGEST_LEN).map(letter).collect()
}

/// The id of an IP set as part of a name: its `:` becomes a dot, which no digest has.
pub(super) fn of_set(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == ':';
    match id.len() <= ID_LEN_MAX && id.contains(':') && id.chars().all(is_plain) {
        true => id.replace(':', "."),
        false => digest([id]),
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
        let (long, longer) = ("x".repeat(300), "x".repeat(301));
        assert_ne!(of_set(&long), of_set(&longer));
        for digested in ["é", "plain", &long, "s:0123456789012345678901234567890123456"] {
            let name = of_set(digested);
            assert!(name.len() == DIGEST_LEN && !name.contains(['.', '-']), "{name}");
        }
    }
}
