//! Stored bytes as a file of the history keeps them: readable where they are text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// The stored bytes of an object, whatever they are.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) struct KeptBytes(pub(crate) Vec<u8>);

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Binary { base64: String },
}

impl From<KeptBytes> for Written {
    fn from(KeptBytes(bytes): KeptBytes) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Binary { base64: STANDARD.encode(error.as_bytes()) },
        }
    }
}

impl TryFrom<Written> for KeptBytes {
    type Error = base64::DecodeError;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        Ok(Self(match written {
            Written::Text(text) => text.into_bytes(),
            Written::Binary { base64 } => STANDARD.decode(base64)?,
        }))
    }
}
