//! Policies in tiers: what follows from their rules, and the name they are stored with.

use api::Kind;
use api::names::tier_or_default;
use serde_json::{Value, json};

use super::{Neighbours, Refusal, has_items, metadata_text, section, spec_text};

/// The label that tells the tier of a policy.
pub(crate) const TIER_LABEL: &str = "projectcalico.org/tier";
/// The annotation that holds the name of a policy as users know it.
const NAME_ANNOTATION: &str = "projectcalico.org/metadata";
/// The beginning of the names under which policies of Kubernetes appear.
const KUBERNETES_PREFIX: &str = "knp.default.";

/// The policy's tier exists; its types and its tier label follow from its spec.
pub(super) fn fill(
    kind: Kind,
    is_new: bool,
    object: &mut Value,
    neighbours: &Neighbours,
) -> Result<(), Refusal> {
    if kind == Kind::NetworkPolicy && metadata_text(object, "name").starts_with(KUBERNETES_PREFIX) {
        let operation = if is_new { "create or apply" } else { "apply or replace" };
        return Err(kubernetes_owns_it(operation, object));
    }
    let tier = tier_or_default(spec_text(object, "tier")).to_owned();
    if is_new && !neighbours.tier_exists {
        return Err(Refusal::Missing { kind: Kind::Tier, name: tier });
    }
    let is_deletion = spec_text(object, "stagedAction") == "Delete"
        && matches!(kind, Kind::StagedNetworkPolicy | Kind::StagedGlobalNetworkPolicy);
    if is_deletion {
        section(object, "spec").shift_remove("types");
    } else if !has_items(object, "types") {
        let types = match (has_items(object, "ingress"), has_items(object, "egress")) {
            (_, false) => json!(["Ingress"]),
            (false, true) => json!(["Egress"]),
            (true, true) => json!(["Ingress", "Egress"]),
        };
        section(object, "spec").insert("types".to_owned(), types);
    }
    let labels = section(object, "metadata").entry("labels").or_insert_with(|| json!({}));
    if let Value::Object(labels) = labels {
        labels.insert(TIER_LABEL.to_owned(), tier.into());
    }
    Ok(())
}

/// The names of Kubernetes' policies are not free.
pub(super) fn kubernetes_owns_it(operation: &str, object: &Value) -> Refusal {
    let name = metadata_text(object, "name");
    Refusal::refused(
        format!("{name} is a policy of Kubernetes; change it there"),
        format!(
            "operation {operation} is not supported on {name}: kubernetes network policies must \
             be managed through the kubernetes API"
        ),
    )
}

/// Keeps the name in an annotation, from which reading takes it back.
pub(super) fn note_name(object: &mut Value) {
    let note = json!({ "name": metadata_text(object, "name") }).to_string();
    let annotations = section(object, "metadata").entry("annotations").or_insert_with(|| json!({}));
    if let Value::Object(annotations) = annotations {
        annotations.insert(NAME_ANNOTATION.to_owned(), note.into());
    }
}
