//! Answers and stored values in a form that can be compared.

use ipam::Error;
use serde_json::{Value, json};

/// What a step answered: a result, and an error with its class.
#[derive(Debug, Default)]
pub(super) struct Answer {
    result: Value,
    error: Option<String>,
    class: Option<String>,
}

impl Answer {
    pub(super) fn recorded(step: &Value) -> Self {
        let text = |field: &str| step[field].as_str().map(str::to_owned);
        Self { result: step["result"].clone(), error: text("error"), class: text("error_kind") }
    }

    pub(super) fn of(result: Value, error: Option<&Error>) -> Self {
        Self {
            result,
            error: error.map(Error::to_string),
            class: error.map(|error| class(error).to_owned()),
        }
    }

    pub(super) fn result(result: Value) -> Self {
        Self::of(result, None)
    }

    pub(super) fn nothing(result: Result<(), Error>) -> Self {
        Self::of(Value::Null, result.err().as_ref())
    }

    pub(super) fn refused(error: String) -> Self {
        Self { result: Value::Null, error: Some(error), class: Some("Validation".to_owned()) }
    }

    /// The error, if it was one.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The addresses that were given, of both families.
    pub(super) fn addresses(&self) -> Vec<String> {
        let families = ["/v4/ips", "/v6/ips"].into_iter();
        let lists = families.filter_map(|path| self.result.pointer(path)?.as_array());
        let texts = lists.flatten().filter_map(Value::as_str);
        texts.filter_map(|it| Some(it.split('/').next()?.to_owned())).collect()
    }

    /// What is compared. Where the order of addresses varies from run to run, they are sorted.
    pub(super) fn settled(&self, varies: bool) -> Value {
        let mut result = self.result.clone();
        if let Some(ips) = result.pointer_mut("/v4/ips").and_then(Value::as_array_mut)
            && varies
        {
            ips.sort_by_key(|ip| ip.to_string());
        }
        json!({"result": sorted(&result), "error": self.error, "class": self.class})
    }
}

/// The same value with its fields sorted, so that texts can be compared.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().map(|(k, v)| (k.clone(), sorted(v))).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

fn class(error: &Error) -> &'static str {
    match error {
        Error::UseRequired => "UseRequired",
        Error::NoQualifiedPool { .. } => "NoQualifiedPool",
        Error::BlockLimit { .. } => "BlockLimit",
        Error::NoSuchNode { .. }
        | Error::NoPoolOfAddress { .. }
        | Error::NoSuchHandle { .. }
        | Error::NoSuchBlock { .. }
        | Error::Unassigned { .. } => "ResourceDoesNotExist",
        Error::AlreadyAssigned { .. } => "ResourceAlreadyExists",
        Error::OtherSequence { .. } | Error::OtherHandle { .. } | Error::OtherOwner { .. } => {
            "ResourceUpdateConflict"
        }
        Error::InCooldown { .. } => "IPInCooldown",
        Error::Unreadable { .. } => "ErrorParsingDatastoreEntry",
        Error::NotEmpty { .. } => "errBlockNotEmpty",
        Error::CidrTooSmall { .. } => "invalidSizeError",
        _ => "Other",
    }
}

/// A [key, value] pair as text, with what differs from run to run hidden: times, identities, and
/// the count of writes of blocks that the client made, which starts at the clock.
pub(super) fn masked(entry: &Value) -> String {
    let key = entry[0].as_str().unwrap_or_default();
    let text = entry[1].as_str();
    let Some(mut value) = text.and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return format!("{key} {text:?}");
    };
    for path in ["/affinity_claim_time", "/metadata/uid", "/metadata/creationTimestamp"] {
        if let Some(found) = value.pointer_mut(path) {
            *found = "<masked>".into();
        }
    }
    let attributes = value.get_mut("attributes").and_then(Value::as_array_mut);
    for attribute in attributes.into_iter().flatten() {
        if let Some(time) = attribute.get_mut("releasedAt") {
            *time = "<masked>".into();
        }
    }
    let count = value["sequenceNumber"].as_u64().unwrap_or_default();
    if count > 1_000_000_000_000_000 {
        value["sequenceNumber"] = "<masked>".into();
        let sequences = value["sequenceNumberForAllocation"].as_object_mut();
        for (_, sequence) in sequences.into_iter().flatten() {
            let behind = count.wrapping_sub(sequence.as_u64().unwrap_or_default());
            *sequence = format!("-{behind}").into();
        }
    }
    format!("{key} {value}")
}
