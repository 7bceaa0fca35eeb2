//! Protocols of rules: a number or a name.

use crate::wire::number_or_name;

const NAMES: [&str; 6] = ["UDP", "TCP", "ICMP", "ICMPv6", "SCTP", "UDPLite"];

/// An IP protocol, as given: reading neither checks a name nor changes its case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// A protocol number.
    Number(u8),
    /// A protocol name, perhaps one that nobody knows.
    Name(String),
}

impl Protocol {
    /// The name in the spelling of the v3 API; a number or an unknown name as it is.
    pub fn canonical(&self) -> Self {
        match self {
            Self::Name(name) => match NAMES.iter().find(|known| known.eq_ignore_ascii_case(name)) {
                Some(known) => Self::Name((*known).to_owned()),
                None => self.clone(),
            },
            Self::Number(_) => self.clone(),
        }
    }

    /// The name in lower case, as the backend keys and the dataplane want it.
    pub fn to_backend(&self) -> Self {
        match self {
            Self::Name(name) => Self::Name(name.to_lowercase()),
            Self::Number(_) => self.clone(),
        }
    }

    /// Whether the name is one that the v3 API knows, spelled as there.
    pub fn is_known_name(&self) -> bool {
        matches!(self, Self::Name(name) if NAMES.contains(&name.as_str()))
    }

    /// Whether packets of the protocol carry ports.
    pub fn has_ports(&self) -> bool {
        match self {
            Self::Number(number) => matches!(number, 6 | 17 | 132),
            Self::Name(name) => {
                matches!(name.as_str(), "TCP" | "UDP" | "SCTP" | "tcp" | "udp" | "sctp")
            }
        }
    }
}

number_or_name!(Protocol, "protocol number, need 0 to 255");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_spelling_until_made_canonical() {
        let protocol = Protocol::from("udplite");
        assert_eq!(protocol, Protocol::Name("udplite".into()));
        assert_eq!(protocol.canonical(), Protocol::Name("UDPLite".into()));
        assert_eq!(Protocol::from("ICMPv6").to_backend().to_string(), "icmpv6");
        assert_eq!(Protocol::from("gre").canonical().to_string(), "gre");
    }

    #[test]
    fn digits_up_to_255_are_a_number() {
        assert_eq!(Protocol::from("17"), Protocol::Number(17));
        assert_eq!(Protocol::from("256"), Protocol::Name("256".into()));
        assert_eq!(Protocol::from("+6"), Protocol::Name("+6".into()));
        assert_eq!(serde_json::from_str::<Protocol>("132").ok(), Some(Protocol::Number(132)));
        assert_eq!(serde_json::to_string(&Protocol::from("6")).ok(), Some("6".into()));
        assert!(serde_json::from_str::<Protocol>("256").is_err());
    }

    #[test]
    fn only_tcp_udp_and_sctp_have_ports() {
        for (text, has_ports) in [
            ("TCP", true),
            ("sctp", true),
            ("17", true),
            ("Tcp", false),
            ("ICMP", false),
            ("1", false),
        ] {
            assert_eq!(Protocol::from(text).has_ports(), has_ports, "{text}");
        }
    }
}
