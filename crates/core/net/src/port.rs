//! Ports of rules: a number, a range of numbers, or the name of a port.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::wire::{NumberOrText, Unreadable, deserialize_number_or_text, parse_decimal};

const NAME_LENGTH_MAX: usize = 128;

/// A port as a rule names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// The numbers from `first` to `last`, both included; one number when they are equal.
    Numbers {
        /// The lowest number.
        first: u16,
        /// The highest number, not below `first`.
        last: u16,
    },
    /// The name of a port of an endpoint.
    Name(String),
}

impl Port {
    /// The one number.
    pub fn single(number: u16) -> Self {
        Self::Numbers { first: number, last: number }
    }

    /// The numbers from `first` to `last`, which must not be below `first`.
    pub fn range(first: u16, last: u16) -> Result<Self, Unreadable> {
        if first > last {
            return Err(Unreadable(format!(
                "minimum port number ({first}) is greater than maximum port number ({last}) in \
                 port range"
            )));
        }
        Ok(Self::Numbers { first, last })
    }

    /// A name of 1 to 128 letters, digits, `_`, `.` and `-`.
    pub fn named(name: &str) -> Result<Self, Unreadable> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if name.is_empty() || name.len() > NAME_LENGTH_MAX || !name.bytes().all(is_allowed) {
            return Err(Unreadable(format!("invalid name for named port ({name})")));
        }
        Ok(Self::Name(name.to_owned()))
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl FromStr for Port {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        if is_digits(text) {
            return match parse_decimal(text) {
                Some(number) => Ok(Self::single(number)),
                None => Err(Unreadable(format!("invalid port format ({text})"))),
            };
        }
        match text.split_once(':') {
            Some((first, last)) if is_digits(first) && is_digits(last) => {
                let bound = |digits: &str, which: &str| {
                    parse_decimal(digits).ok_or_else(|| {
                        Unreadable(format!("invalid {which} port number in range ({text})"))
                    })
                };
                Self::range(bound(first, "minimum")?, bound(last, "maximum")?)
            }
            _ => Self::named(text),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Numbers { first, last } if first == last => write!(formatter, "{first}"),
            Self::Numbers { first, last } => write!(formatter, "{first}:{last}"),
        }
    }
}

impl TryFrom<NumberOrText> for Port {
    type Error = Unreadable;

    fn try_from(value: NumberOrText) -> Result<Self, Unreadable> {
        match value {
            NumberOrText::Number(number) => {
                NumberOrText::number(number, "port number, need 0 to 65535").map(Self::single)
            }
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

deserialize_number_or_text!(Port);

impl Serialize for Port {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Numbers { first, last } if first == last => sink.serialize_u16(*first),
            _ => sink.collect_str(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Port, String> {
        text.parse().map_err(|error: Unreadable| error.to_string())
    }

    #[test]
    fn digits_are_a_number_and_anything_else_a_name() {
        assert_eq!(parse("080"), Ok(Port::single(80)));
        assert_eq!(parse("0"), Ok(Port::single(0)));
        assert_eq!(parse("1:65535"), Port::range(1, 65535).map_err(|error| error.to_string()));
        assert_eq!(parse("http-alt"), Ok(Port::Name("http-alt".into())));
        assert_eq!(parse("65536"), Err("invalid port format (65536)".into()));
        assert_eq!(parse("1:70000"), Err("invalid maximum port number in range (1:70000)".into()));
        for name in ["", ":", "1:", "+1", "a b", "é", &"a".repeat(129)] {
            assert_eq!(parse(name), Err(format!("invalid name for named port ({name})")));
        }
    }

    #[test]
    fn a_range_must_not_run_backwards() {
        assert!(parse("2:1").unwrap_err().starts_with("minimum port number (2) is greater"));
        assert_eq!(parse("5:5").map(|port| port.to_string()), Ok("5".into()));
    }

    #[test]
    fn json_keeps_numbers_as_numbers() {
        let rewritten = |json: &str| {
            let port: Port = serde_json::from_str(json).ok()?;
            serde_json::to_string(&port).ok()
        };
        assert_eq!(rewritten("80"), Some("80".into()));
        assert_eq!(rewritten("\"80\""), Some("80".into()));
        assert_eq!(rewritten("\"1:5\""), Some("\"1:5\"".into()));
        assert_eq!(rewritten("\"dns\""), Some("\"dns\"".into()));
        for bad in ["-1", "65536", "1.0", "null", "true", "[]", "\"\""] {
            assert_eq!(rewritten(bad), None, "{bad}");
        }
    }
}
