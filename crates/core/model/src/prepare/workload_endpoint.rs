//! Workload endpoints: a name that says what they are, and labels that say where.

use api::names::{NameError, WorkloadEndpointParts};
use serde_json::{Value, json};

use super::{Refusal, metadata_text, said, section, spec_text, unsaid};

/// The name follows from the spec; it may be left out, but not be another.
pub(super) fn name(object: &mut Value) -> Result<(), Refusal> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let expected = match WorkloadEndpointParts::of_spec(spec).name() {
        Ok(expected) => expected,
        Err(NameError::Part { field, value, reason }) => {
            let calico = match value {
                Some(value) => said(field, value, reason),
                None => unsaid(field, reason),
            };
            let message = "it is a part of the name: not empty, no \"-\" at the ends";
            return Err(Refusal::invalid(&format!("spec.{field}"), message, calico));
        }
        Err(other) => {
            return Err(Refusal::refused("the name cannot be built", other.to_string()));
        }
    };
    let given = metadata_text(object, "name");
    if given.is_empty() {
        section(object, "metadata").insert("name".to_owned(), expected.into());
    } else if given != expected {
        let reason = format!(
            "the WorkloadEndpoint name does not match the primary identifiers assigned in the \
             Spec: expected name {expected}"
        );
        let message = format!("by its spec the name is {expected}");
        return Err(Refusal::invalid("metadata.name", message, said("Name", given, reason)));
    }
    Ok(())
}

/// Selectors can ask for the namespace and the orchestrator.
pub(super) fn label(object: &mut Value) {
    let namespace = metadata_text(object, "namespace").to_owned();
    let orchestrator = spec_text(object, "orchestrator").to_owned();
    let labels = section(object, "metadata").entry("labels").or_insert_with(|| json!({}));
    if let Value::Object(labels) = labels {
        labels.insert("projectcalico.org/namespace".to_owned(), namespace.into());
        labels.insert("projectcalico.org/orchestrator".to_owned(), orchestrator.into());
    }
}
