//! From what is stored to what users see.

use api::Kind;
use api::keys::settle_policy_name;
use api::names::tier_or_default;
use serde_json::{Map, Value};

use crate::prepare::{TIER_LABEL, fill_stored_pool, fill_stored_tier, is_named_policy};

/// A stored object as users see it. An unreadable note of a policy's name is an error, because the
/// object would appear under a wrong one.
pub fn present(kind: Kind, mut object: Value) -> Result<Value, UnreadableName> {
    if is_named_policy(kind) {
        settle_policy_name(&mut object).map_err(UnreadableName)?;
        label_tier(&mut object);
    }
    match kind {
        Kind::IpPool => fill_stored_pool(&mut object),
        Kind::Tier => fill_stored_tier(&mut object),
        _ => {}
    }
    Ok(object)
}

/// Why the name of a stored policy cannot be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableName(pub String);

impl std::fmt::Display for UnreadableName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for UnreadableName {}

/// Policies written before there were tier labels get theirs.
fn label_tier(policy: &mut Value) {
    let spec = policy.get("spec");
    let tier = spec.and_then(|spec| spec.get("tier")).and_then(Value::as_str).unwrap_or_default();
    let tier = tier_or_default(tier).to_owned();
    let Some(metadata) = policy.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(labels) = labels {
        labels.entry(TIER_LABEL).or_insert(tier.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_appears_under_its_noted_name() {
        let note = r#"{"name":"b"}"#;
        let metadata =
            json!({"name": "default.a", "annotations": {"projectcalico.org/metadata": note}});
        let seen = present(Kind::NetworkPolicy, json!({ "metadata": metadata })).unwrap();
        let metadata = json!({"name": "b", "labels": {"projectcalico.org/tier": "default"}});
        assert_eq!(seen, json!({ "metadata": metadata }));
    }

    #[test]
    fn a_note_that_is_no_name_is_refused() {
        let metadata = json!({"name": "a", "annotations": {"projectcalico.org/metadata": "b"}});
        assert!(present(Kind::NetworkPolicy, json!({ "metadata": metadata })).is_err());
    }

    #[test]
    fn an_old_pool_shows_what_its_missing_fields_stand_for() {
        let stored = json!({"metadata": {"name": "p"}, "spec": {"cidr": "fd00::/64"}});
        let seen = present(Kind::IpPool, stored).unwrap();
        assert_eq!(seen["spec"]["blockSize"], 122);
        assert_eq!(seen["spec"]["vxlanMode"], "Never");
    }
}
