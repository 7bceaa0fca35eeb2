//! Differentiated services code points: a number from 0 to 63 or a well-known name.

use crate::wire::{Unreadable, number_or_name};

const HIGHEST: u8 = 63;

const NAMES: [(&str, u8); 21] = [
    ("DF", 0),
    ("EF", 46),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS0", 0),
    ("CS1", 8),
    ("CS2", 16),
    ("CS3", 24),
    ("CS4", 32),
    ("CS5", 40),
    ("CS6", 48),
];

/// A code point as given: reading checks neither the range nor the name; see [`Dscp::value`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dscp {
    /// A number, valid up to 63.
    Number(u8),
    /// A name such as `AF11`, valid in any case.
    Name(String),
}

impl Dscp {
    /// The code point, or a message that says why there is none.
    pub fn value(&self) -> Result<u8, Unreadable> {
        match self {
            Self::Number(number) if *number > HIGHEST => {
                Err(Unreadable("DSCP must be between 0 and 63".into()))
            }
            Self::Number(number) => Ok(*number),
            Self::Name(name) => NAMES
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name.trim()))
                .map(|(_, value)| *value)
                .ok_or_else(|| Unreadable(format!("{name} is not a valid DSCP value"))),
        }
    }

    /// The name in upper case if it is known; anything else as it is.
    pub fn canonical(&self) -> Self {
        let Self::Name(name) = self else { return self.clone() };
        match NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((known, _)) => Self::Name((*known).to_owned()),
            None => self.clone(),
        }
    }
}

number_or_name!(Dscp, "DSCP, need 0 to 63");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        assert_eq!(Dscp::from("af11").value(), Ok(10));
        assert_eq!(Dscp::from(" EF ").value(), Ok(46));
        assert_eq!(Dscp::from("cs6").canonical().to_string(), "CS6");
        assert!(Dscp::from("CS7").value().is_err());
        assert!(Dscp::from("").value().is_err());
    }

    #[test]
    fn numbers_go_up_to_63() {
        assert_eq!(Dscp::from("63").value(), Ok(63));
        assert!(Dscp::from("64").value().is_err());
        assert!(serde_json::from_str::<Dscp>("300").is_err());
        assert_eq!(serde_json::to_string(&Dscp::from("20")).ok(), Some("20".into()));
    }
}
