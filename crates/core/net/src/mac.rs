//! Hardware addresses with the reading rules of Go's `net.ParseMAC`.

use std::fmt;
use std::str::FromStr;

use crate::wire::{Unreadable, serde_as_text};

/// A hardware address of 6, 8 or 20 bytes; printed in lower case with colons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(Vec<u8>);

impl MacAddress {
    /// The bytes: 6, 8 or 20 of them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<[u8; 6]> for MacAddress {
    fn from(bytes: [u8; 6]) -> Self {
        Self(bytes.to_vec())
    }
}

/// Splits hex digits into groups of `digits` with one separator between; `None` if it does not fit.
fn grouped(text: &str, separator: char, digits: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for group in text.split(separator) {
        if group.len() != digits || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for pair in group.as_bytes().chunks(2) {
            bytes.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
        }
    }
    Some(bytes)
}

/// Reads pairs of hex digits joined by `:` or `-`, or groups of four joined by `.`.
impl FromStr for MacAddress {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        [(':', 2), ('-', 2), ('.', 4)]
            .into_iter()
            .find_map(|(separator, digits)| grouped(text, separator, digits))
            .filter(|bytes| matches!(bytes.len(), 6 | 8 | 20))
            .map(Self)
            .ok_or_else(|| Unreadable(format!("invalid MAC address ({text})")))
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(formatter, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

serde_as_text!(MacAddress);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_spellings_of_one_address() {
        for text in ["00:00:5e:00:53:0A", "00-00-5E-00-53-0a", "0000.5e00.530a"] {
            let mac = text.parse::<MacAddress>().map(|mac| mac.to_string());
            assert_eq!(mac, Ok("00:00:5e:00:53:0a".into()), "{text}");
        }
        let long = "02:00:5e:10:00:00:00:01".parse::<MacAddress>();
        assert_eq!(long.map(|mac| mac.bytes().len()), Ok(8));
    }

    #[test]
    fn other_lengths_and_mixed_separators_are_refused() {
        for text in [
            "",
            "00",
            "00:00:5e:00:53",
            "00:00-5e:00:53:01",
            "0:0:5e:0:53:1",
            "00:00:5e:00:53:0g",
            "00005e005301",
            "+0:00:5e:00:53:01",
        ] {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
    }
}
