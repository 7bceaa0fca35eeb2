//! What the scalar types share: plain decimal numbers, the JSON form "number or string",
//! and the error of a text that cannot be read.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// The text is not a value of the type; the message says which type and what was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(pub(crate) String);

impl fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// Reads decimal digits and nothing else: no sign, no white space, no `_`.
pub fn parse_decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    // Rust would accept a leading plus sign; Go does not.
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

/// A JSON value that is an integer or a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumberOrText {
    /// An integer of the document.
    Number(i128),
    /// A string of the document.
    Text(String),
}

impl NumberOrText {
    /// The number as a `T`, or a message that says the range.
    pub(crate) fn number<T: TryFrom<i128>>(number: i128, what: &str) -> Result<T, Unreadable> {
        T::try_from(number).map_err(|_| Unreadable(format!("invalid {what} ({number})")))
    }
}

impl<'de> Deserialize<'de> for NumberOrText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = NumberOrText;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an integer or a string")
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<NumberOrText, E> {
                Ok(NumberOrText::Number(number.into()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<NumberOrText, E> {
                Ok(NumberOrText::Number(number.into()))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<NumberOrText, E> {
                Ok(NumberOrText::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Reads the JSON form through `TryFrom<NumberOrText>`.
macro_rules! deserialize_number_or_text {
    ($type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                let value = $crate::NumberOrText::deserialize(source)?;
                Self::try_from(value).map_err(serde::de::Error::custom)
            }
        }
    };
}

/// The text and JSON forms of an enum of `Number(u8)` and `Name(String)`: digits are the number,
/// anything else is a name, and each is written as it was given.
macro_rules! number_or_name {
    ($type:ty, $what:literal) => {
        impl From<&str> for $type {
            fn from(text: &str) -> Self {
                $crate::wire::parse_decimal(text)
                    .map_or_else(|| Self::Name(text.to_owned()), Self::Number)
            }
        }

        impl std::str::FromStr for $type {
            type Err = std::convert::Infallible;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Ok(Self::from(text))
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    Self::Number(number) => write!(formatter, "{number}"),
                    Self::Name(name) => formatter.write_str(name),
                }
            }
        }

        impl TryFrom<$crate::NumberOrText> for $type {
            type Error = $crate::wire::Unreadable;

            fn try_from(value: $crate::NumberOrText) -> Result<Self, Self::Error> {
                match value {
                    $crate::NumberOrText::Number(number) => {
                        $crate::NumberOrText::number(number, $what).map(Self::Number)
                    }
                    $crate::NumberOrText::Text(text) => Ok(Self::from(text.as_str())),
                }
            }
        }

        $crate::wire::deserialize_number_or_text!($type);

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
                match self {
                    Self::Number(number) => sink.serialize_u8(*number),
                    Self::Name(name) => sink.serialize_str(name),
                }
            }
        }
    };
}

/// Reads and writes the JSON form as the text of `FromStr` and `Display`.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(source)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
                sink.collect_str(self)
            }
        }
    };
}

pub(crate) use {deserialize_number_or_text, number_or_name, serde_as_text};
