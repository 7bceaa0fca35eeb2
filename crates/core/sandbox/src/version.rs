//! Versions of the CNI protocol.

use serde_json::{Value, json};

/// A version of the protocol that we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.1.0: one address per family, no interfaces.
    V0_1_0,
    /// 0.2.0, which is also meant by a configuration that names none.
    V0_2_0,
    /// 0.3.0: interfaces and lists of addresses.
    V0_3_0,
    /// 0.3.1.
    V0_3_1,
    /// 0.4.0: CHECK.
    V0_4_0,
    /// 1.0.0: addresses without a version field.
    V1_0_0,
    /// 1.1.0: GC and STATUS.
    V1_1_0,
}

impl Version {
    /// All of them, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// As configurations write it.
    pub fn text(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// The version that a configuration names; an empty text means 0.2.0.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::V0_2_0);
        }
        Self::ALL.into_iter().find(|version| version.text() == text)
    }

    /// The answer to VERSION.
    pub fn report() -> Value {
        json!({
            "cniVersion": Self::V1_1_0.text(),
            "supportedVersions": Self::ALL.map(Self::text),
        })
    }
}
