//! Patches: strategic merge, JSON merge (RFC 7386) and JSON patch (RFC 6902).
//!
//! The strategic merge is that of types without merge tags, which all of Calico's are: maps
//! merge, lists are replaced, null deletes. Only the two lists in `metadata` that Kubernetes
//! tags merge: `finalizers`, and `ownerReferences` by `uid`. Directives: `$patch` (`replace`,
//! `delete`, `merge`), `$retainKeys`, `$deleteFromPrimitiveList/NAME` and, for lists of plain
//! values, `$setElementOrder/NAME`.

mod operations;
mod strategic;

pub use operations::operations;
pub use strategic::strategic;

use serde_json::Value;

/// Why a patch could not be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch is not JSON, or not an object where one is needed.
    #[error("invalid JSON document")]
    Document,
    /// A directive with a value that means nothing.
    #[error("{0}")]
    Directive(String),
    /// An operation of a JSON patch, counted from 0.
    #[error("operation {index} ({operation} {path}): {reason}")]
    Operation {
        /// Its place in the list.
        index: usize,
        /// Its name, or `?`.
        operation: String,
        /// The path it is about.
        path: String,
        /// Why it failed.
        reason: String,
    },
}

/// Reads the text of a patch.
pub fn parse(text: &[u8]) -> Result<Value, Error> {
    crate::json::parse(text).map_err(|_| Error::Document)
}

/// Applies a JSON merge patch: maps merge, null deletes, anything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.shift_remove(name);
        } else {
            merge(fields.entry(name.as_str()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests;
