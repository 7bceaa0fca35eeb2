//! What the cluster as a whole says, where columns need it.

use api::Kind;
use serde_json::Value;
use store::resources::{Name, Resources};

/// The AS number of a cluster that sets none.
const DEFAULT_AS_NUMBER: &str = "64512";

/// The AS number that nodes without one of their own have; `unknown` while the store does not
/// tell.
pub(crate) fn as_number(resources: &Resources) -> String {
    match resources.get(&Name::cluster(Kind::BgpConfiguration, "default")) {
        Ok(stored) => match stored.object.pointer("/spec/asNumber") {
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::String(text)) => text.clone(),
            _ => DEFAULT_AS_NUMBER.to_owned(),
        },
        Err(error) if error.is_not_found() => DEFAULT_AS_NUMBER.to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}
