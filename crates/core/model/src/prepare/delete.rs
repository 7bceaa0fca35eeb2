//! What may not be deleted.

use api::Kind;
use api::names::is_protected_tier;
use serde_json::Value;

use super::config::{built_in_profile, is_built_in_profile};
use super::{Refusal, spec_text};

/// Whether [`check_delete`] wants to see all policies in tiers.
pub fn delete_needs_policies(kind: Kind, name: &str) -> bool {
    kind == Kind::Tier && !is_protected_tier(name)
}

/// Whether an object may go. `policies` are all policies in tiers, for a tier only.
pub fn check_delete(kind: Kind, name: &str, policies: &[Value]) -> Result<(), Refusal> {
    match kind {
        Kind::Tier if is_protected_tier(name) => Err(Refusal::refused(
            format!("the tier {name} is built in"),
            format!("operation Delete is not supported on {name}: Cannot delete {name} tier"),
        )),
        Kind::Tier if policies.iter().any(|policy| spec_text(policy, "tier") == name) => {
            Err(Refusal::refused(
                format!("there are policies in the tier {name}; delete them first"),
                format!(
                    "operation delete is not supported on {name}: Cannot delete a non-empty tier"
                ),
            ))
        }
        Kind::Profile if is_built_in_profile(name) => Err(built_in_profile("Delete", "deleted")),
        Kind::NetworkPolicy if name.starts_with("knp.default.") => {
            let object = serde_json::json!({ "metadata": { "name": name } });
            Err(super::policy::kubernetes_owns_it("delete", &object))
        }
        _ => Ok(()),
    }
}
