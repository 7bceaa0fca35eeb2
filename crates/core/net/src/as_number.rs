//! Autonomous system numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::wire::{NumberOrText, Unreadable, deserialize_number_or_text, parse_decimal};

/// An AS number of four bytes; printed as a plain decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AsNumber(pub u32);

/// Reads a decimal, or the dotted form `high.low` of two 16-bit halves.
impl FromStr for AsNumber {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        if let Some(number) = parse_decimal(text) {
            return Ok(Self(number));
        }
        let halves = text.split_once('.').and_then(|(high, low)| {
            Some((parse_decimal::<u16>(high)?, parse_decimal::<u16>(low)?))
        });
        match halves {
            Some((high, low)) => Ok(Self((u32::from(high) << 16) | u32::from(low))),
            None => Err(Unreadable(format!("invalid AS Number format ({text})"))),
        }
    }
}

impl fmt::Display for AsNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl TryFrom<NumberOrText> for AsNumber {
    type Error = Unreadable;

    fn try_from(value: NumberOrText) -> Result<Self, Unreadable> {
        match value {
            NumberOrText::Number(number) => {
                NumberOrText::number(number, "AS Number, need 0 to 4294967295").map(Self)
            }
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

deserialize_number_or_text!(AsNumber);

impl Serialize for AsNumber {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.serialize_u32(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_dotted_forms_are_the_same_number() {
        let parse = |text: &str| text.parse::<AsNumber>().ok().map(|number| number.0);
        assert_eq!(parse("64512"), Some(64512));
        assert_eq!(parse("1.10"), Some(65546));
        assert_eq!(parse("65535.65535"), Some(u32::MAX));
        for bad in ["", ".", "1.", "1.2.3", "65536.0", "4294967296", "-1", "+1", "1_0"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn json_is_written_as_a_number() {
        let number: Option<AsNumber> = serde_json::from_str("\"1.0\"").ok();
        assert_eq!(number, Some(AsNumber(65536)));
        assert_eq!(serde_json::to_string(&AsNumber(65536)).ok(), Some("65536".into()));
        assert!(serde_json::from_str::<AsNumber>("-1").is_err());
    }
}
