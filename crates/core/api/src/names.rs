//! How names are built: workload endpoints, status files, blocks and tiers.
//!
//! A v3 workload endpoint is named after what it is: `NODE-ORCHESTRATOR-WORKLOAD-ENDPOINT`, where
//! a dash inside a part is doubled. No part may begin or end with a dash.

use std::fmt::{self, Write};

use net::Cidr;
use serde_json::Value;

use crate::keys::WorkloadEndpointKey;

/// What a workload endpoint is named after. Empty parts are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadEndpointParts {
    /// The node it runs on; always needed.
    pub node: String,
    /// Who made it; decides which of the following names the workload.
    pub orchestrator: String,
    /// The interface inside the workload.
    pub endpoint: String,
    /// The workload, for orchestrators without a name of their own for it.
    pub workload: String,
    /// The pod, for `k8s`.
    pub pod: String,
    /// The container, for `cni`.
    pub container_id: String,
}

/// Why a name cannot be built or read, in Calico's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// A part is missing or badly formed.
    Part {
        /// The field of the endpoint's spec.
        field: &'static str,
        /// What it holds; not said where it must not be empty in any case.
        value: Option<String>,
        /// What would be right.
        reason: &'static str,
    },
    /// The name is empty.
    Empty,
    /// The name has too many parts.
    TooManyParts(String),
    /// The name or namespace lacks parts that an old style key needs.
    NotEnoughParts,
}

impl fmt::Display for NameError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part { field, value: Some(value), reason } => {
                write!(to, "error with field {field} = '{value}' ({reason})")
            }
            Self::Part { field, value: None, reason } => {
                write!(to, "error with field {field} ({reason})")
            }
            Self::Empty => to.write_str("Cannot parse empty string"),
            Self::TooManyParts(name) => {
                write!(to, "Error parsing {name}, verify that WorkloadEndpoint name is correct")
            }
            Self::NotEnoughParts => {
                to.write_str("not enough information provided to create v1 Workload Endpoint Key")
            }
        }
    }
}

impl std::error::Error for NameError {}

impl WorkloadEndpointParts {
    fn segments(&self) -> Result<[(&'static str, &str); 4], NameError> {
        if self.node.is_empty() {
            let reason = "field should be assigned";
            return Err(NameError::Part { field: "node", value: None, reason });
        }
        let workload = match self.orchestrator.as_str() {
            "k8s" => ("pod", self.pod.as_str()),
            "cni" => ("containerID", self.container_id.as_str()),
            "libnetwork" => ("orchestrator", self.orchestrator.as_str()),
            _ => ("workload", self.workload.as_str()),
        };
        Ok([
            ("node", &self.node),
            ("orchestrator", &self.orchestrator),
            workload,
            ("endpoint", &self.endpoint),
        ])
    }

    /// The full name; every part must be known.
    pub fn name(&self) -> Result<String, NameError> {
        let mut escaped = Vec::new();
        for (field, value) in self.segments()? {
            if value.is_empty() {
                let reason = "field should be assigned";
                return Err(NameError::Part { field, value: Some(String::new()), reason });
            }
            escaped.push(double_dashes(field, value)?);
        }
        Ok(escaped.join("-"))
    }

    /// The beginning of the names of all endpoints with the known parts, up to the first that is
    /// not known; the whole name if all are. A listing by it finds others too
    /// (`node1-k8s-pod-` also begins `node1-k8s-pod--1-eth0`): check with [`Self::matches`].
    pub fn name_prefix(&self) -> Result<String, NameError> {
        let mut prefix = String::new();
        for (index, (field, value)) in self.segments()?.into_iter().enumerate() {
            if index > 0 {
                prefix.push('-');
            }
            if value.is_empty() {
                break;
            }
            prefix.push_str(&double_dashes(field, value)?);
        }
        Ok(prefix)
    }

    /// Whether the name is that of an endpoint with the known parts.
    pub fn matches(&self, name: &str) -> Result<bool, NameError> {
        let segments = self.segments()?;
        let Some(parts) = split_name(name, segments.len()) else { return Ok(false) };
        let known = segments.iter().zip(&parts).filter(|((_, value), _)| !value.is_empty());
        Ok(known.into_iter().all(|((_, value), part)| value == part))
    }

    /// Reads the parts of a name; it may end early, as a prefix does.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let mut parts = split_dashes(name).into_iter();
        let mut read = Self { node: parts.next().unwrap_or_default(), ..Self::default() };
        read.orchestrator = parts.next().unwrap_or_default();
        if let Some(workload) = parts.next() {
            let field = match read.orchestrator.as_str() {
                "k8s" => &mut read.pod,
                "cni" => &mut read.container_id,
                "libnetwork" => &mut read.orchestrator,
                _ => &mut read.workload,
            };
            *field = workload;
        }
        read.endpoint = parts.next().unwrap_or_default();
        match parts.next() {
            Some(_) => Err(NameError::TooManyParts(name.to_owned())),
            None => Ok(read),
        }
    }

    /// The parts that the spec of a v3 workload endpoint gives.
    pub fn of_spec(spec: &Value) -> Self {
        let text =
            |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            node: text("node"),
            orchestrator: text("orchestrator"),
            endpoint: text("endpoint"),
            workload: text("workload"),
            pod: text("pod"),
            container_id: text("containerID"),
        }
    }
}

fn double_dashes(field: &'static str, value: &str) -> Result<String, NameError> {
    let reason = match (value.starts_with('-'), value.ends_with('-')) {
        (true, _) => "field must not begin with a '-'",
        (_, true) => "field must not end with a '-'",
        _ => return Ok(value.replace('-', "--")),
    };
    Err(NameError::Part { field, value: Some(value.to_owned()), reason })
}

/// Splits at single dashes. A dash at the very beginning separates nothing.
fn dashed(name: &str) -> impl Iterator<Item = &str> {
    let bytes = name.as_bytes();
    let (mut start, mut at) = (Some(0), 1);
    std::iter::from_fn(move || {
        let from = start?;
        while at < bytes.len() {
            if bytes[at] != b'-' {
                at += 1;
            } else if bytes.get(at + 1) == Some(&b'-') {
                at += 2;
            } else {
                at += 1;
                start = Some(at);
                return Some(&name[from..at - 1]);
            }
        }
        start = None;
        Some(&name[from..])
    })
}

fn split_dashes(name: &str) -> Vec<String> {
    dashed(name).map(single_dashes).collect()
}

/// A part without what was doubled in it, which little is.
fn single_dashes(part: &str) -> String {
    if part.contains("--") { part.replace("--", "-") } else { part.to_owned() }
}

/// The parts of a name if it has exactly so many.
pub fn split_name(name: &str, count: usize) -> Option<Vec<String>> {
    has_parts(name, count).then(|| split_dashes(name))
}

fn has_parts(name: &str, count: usize) -> bool {
    // A name of that many parts has at least a letter in each and the dashes between them.
    name.len() + 1 >= count.saturating_mul(2) && dashed(name).count() == count
}

/// The node of the v3 workload endpoint with this name; none if it is not the name of one.
pub fn node_of_workload_endpoint(namespace: &str, name: &str) -> Option<String> {
    let is_one = !namespace.is_empty() && has_parts(name, 4);
    dashed(name).next().filter(|_| is_one).map(single_dashes)
}

/// The old style key of the v3 workload endpoint with this name.
pub fn old_workload_endpoint(
    namespace: &str,
    name: &str,
) -> Result<WorkloadEndpointKey, NameError> {
    let parts: Option<[String; 4]> = split_name(name, 4).and_then(|parts| parts.try_into().ok());
    match parts {
        Some([host, orchestrator, workload, endpoint]) if !namespace.is_empty() => {
            let workload = format!("{namespace}/{workload}");
            Ok(WorkloadEndpointKey { host, orchestrator, workload, endpoint })
        }
        _ => Err(NameError::NotEnoughParts),
    }
}

/// The old style key of a v3 workload endpoint, named or not yet.
pub fn old_key_of(workload_endpoint: &Value) -> Result<WorkloadEndpointKey, NameError> {
    let text = |pointer: &str| {
        workload_endpoint.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    };
    let namespace = text("/metadata/namespace");
    match text("/metadata/name") {
        "" => {
            let spec = workload_endpoint.get("spec").unwrap_or(&Value::Null);
            old_workload_endpoint(namespace, &WorkloadEndpointParts::of_spec(spec).name()?)
        }
        name => old_workload_endpoint(namespace, name),
    }
}

/// The file in which Felix tells the CNI plugin that an endpoint is ready.
pub fn status_file_name(key: &WorkloadEndpointKey) -> String {
    [&key.orchestrator, &key.workload, &key.endpoint].map(|part| escape_segment(part)).join(" ")
}

/// Percent-escapes as for one segment of a URL path.
fn escape_segment(part: &str) -> String {
    let mut escaped = String::new();
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => escaped.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b':' | b'=' | b'@' => {
                escaped.push(char::from(byte));
            }
            _ => write!(escaped, "%{byte:02X}").expect("writing to a string does not fail"),
        }
    }
    escaped
}

/// The name of the resource that stands for a block or pool: `10-65-0-0-26`.
pub fn cidr_to_name(cidr: Cidr) -> String {
    cidr.masked().to_string().replace(['.', ':', '/'], "-")
}

/// The tier of policies that name none.
pub const DEFAULT_TIER: &str = "default";

/// The tier, or the default one if none is named.
pub fn tier_or_default(tier: &str) -> &str {
    if tier.is_empty() { DEFAULT_TIER } else { tier }
}

/// Whether the tier always exists and cannot be deleted.
pub fn is_protected_tier(tier: &str) -> bool {
    matches!(tier, DEFAULT_TIER | "kube-admin" | "kube-baseline")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_unknown_pod_ends_the_prefix() {
        let parts = WorkloadEndpointParts {
            node: "node-1".to_owned(),
            orchestrator: "k8s".to_owned(),
            endpoint: "eth0".to_owned(),
            ..WorkloadEndpointParts::default()
        };
        assert_eq!(parts.name_prefix().as_deref(), Ok("node--1-k8s-"));
        assert_eq!(parts.matches("node--1-k8s-pod-eth0"), Ok(true));
        assert_eq!(parts.matches("node--1-k8s-pod-eth1"), Ok(false));
        assert!(parts.name().is_err());
    }

    proptest! {
        #[test]
        fn a_built_name_is_read_back(
            node in "[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?",
            pod in "[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?",
        ) {
            let parts = WorkloadEndpointParts {
                node,
                pod,
                orchestrator: "k8s".to_owned(),
                endpoint: "eth0".to_owned(),
                ..WorkloadEndpointParts::default()
            };
            let name = parts.name().unwrap();
            prop_assert_eq!(parts.matches(&name), Ok(true));
            prop_assert_eq!(WorkloadEndpointParts::parse(&name), Ok(parts));
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>(), count in 0usize..6) {
            let _ = WorkloadEndpointParts::parse(&text);
            let _ = split_name(&text, count);
            let _ = old_workload_endpoint("ns", &text);
        }
    }
}
