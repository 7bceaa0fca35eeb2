//! The bytes under a key: what they say, and how Calico writes them.

use std::fmt;

use serde_json::{Map, Value};

use super::{Key, ResourceKind, scalars, settle_policy_name, tables};
use crate::schema::{self, Mode, Object, Shape};
use crate::{Kind, Problem};

/// What lies under a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    /// A JSON value.
    Json(Value),
    /// Plain text: settings of Felix and BGP.
    Text(String),
    /// `true` or anything else.
    Flag(bool),
}

/// Why the bytes under a key say nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// They are no text.
    NotText,
    /// They are no JSON.
    NotJson(String),
    /// Some fields cannot be read.
    Fields(Vec<Problem>),
    /// The policy's own name is kept in an annotation that cannot be read.
    PolicyName(String),
}

impl fmt::Display for ValueError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotText => to.write_str("the value is not UTF-8 text"),
            Self::NotJson(why) => write!(to, "the value is not JSON: {why}"),
            Self::Fields(problems) => {
                for (index, problem) in problems.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(to, "{comma}{problem}")?;
                }
                Ok(())
            }
            Self::PolicyName(why) => to.write_str(why),
        }
    }
}

impl std::error::Error for ValueError {}

/// The name of the only field of values that are no objects.
pub(super) const ONLY: &str = "value";

enum Form {
    Text,
    Flag,
    /// An object.
    Json(&'static Object),
    /// The only field of one.
    Only(&'static Object),
}

fn form(key: &Key) -> Form {
    use tables as of;
    Form::Json(match key {
        Key::GlobalConfig { .. }
        | Key::HostConfig { .. }
        | Key::GlobalBgpConfig { .. }
        | Key::NodeBgpConfig { .. } => return Form::Text,
        Key::ReadyFlag => return Form::Flag,
        Key::ProfileLabels { .. } => return Form::Only(&of::LABELS_ONLY),
        Key::OrchestratorRefs { .. } => return Form::Only(&of::ORCHESTRATOR_REFS),
        Key::Resource(key) => resource_table(key.kind),
        Key::WorkloadEndpoint(_) => &of::WORKLOAD_ENDPOINT,
        Key::HostEndpoint(_) => &of::HOST_ENDPOINT,
        Key::Policy(_) | Key::LegacyPolicy { .. } => &of::POLICY,
        Key::Profile { .. } => &of::PROFILE,
        Key::ProfileRules { .. } => &of::PROFILE_RULES,
        Key::Tier { .. } => &of::TIER,
        Key::NetworkSet { .. } => &of::NETWORK_SET,
        Key::IpPool { .. } => &of::IP_POOL,
        Key::HostMetadata { .. } | Key::BgpNode { .. } | Key::IpamHost { .. } => &of::EMPTY,
        Key::Wireguard { .. } => &of::WIREGUARD,
        Key::GlobalBgpPeer(_) | Key::NodeBgpPeer { .. } => &of::BGP_PEER,
        Key::Block { .. } => &of::BLOCK,
        Key::BlockAffinity(_) => &of::AFFINITY,
        Key::IpamHandle { .. } => &of::HANDLE,
        Key::IpamConfig => &of::IPAM_CONFIG,
        Key::HostEndpointStatus(_) | Key::WorkloadEndpointStatus { .. } => &of::ENDPOINT_STATUS,
        Key::ActiveStatusReport { .. } | Key::LastStatusReport { .. } => &of::STATUS_REPORT,
    })
}

fn resource_table(kind: ResourceKind) -> &'static Object {
    match kind {
        ResourceKind::Api(Kind::BlockAffinity) => &tables::BLOCK_AFFINITY_RESOURCE,
        ResourceKind::Api(kind) => schema::object_for(kind),
        ResourceKind::KubernetesNetworkPolicy => schema::object_for(Kind::NetworkPolicy),
        ResourceKind::KubernetesClusterNetworkPolicy => {
            schema::object_for(Kind::GlobalNetworkPolicy)
        }
        ResourceKind::IpamConfig => &tables::IPAM_CONFIG_RESOURCE,
        ResourceKind::KubernetesService => &tables::SERVICE,
        ResourceKind::KubernetesEndpointSlice => &tables::ENDPOINT_SLICE,
    }
}

/// Reads the bytes under a key in the form in which they are stored: fields we do not know stay,
/// and policies keep the names under which they are stored.
pub fn parse(key: &Key, raw: &[u8]) -> Result<Stored, ValueError> {
    let text = std::str::from_utf8(raw).map_err(|_| ValueError::NotText)?;
    let (table, value) = match form(key) {
        Form::Text => return Ok(Stored::Text(text.to_owned())),
        Form::Flag => return Ok(Stored::Flag(text == "true")),
        // Very old versions stored affinities without any value.
        Form::Json(table) if text.is_empty() && matches!(key, Key::BlockAffinity(_)) => {
            (table, Value::Object(Map::new()))
        }
        Form::Json(table) => (table, json(text)?),
        Form::Only(table) => (table, Map::from_iter([(ONLY.to_owned(), json(text)?)]).into()),
    };
    let mut value = settled(table, value)?;
    match (key, form(key)) {
        (_, Form::Only(_)) => {
            Ok(Stored::Json(value.get_mut(ONLY).map(Value::take).unwrap_or_default()))
        }
        (Key::LegacyPolicy { tier, .. }, _) => Ok(Stored::Json(with_tier(value, tier))),
        _ => Ok(Stored::Json(value)),
    }
}

/// Reads bytes in the form in which they are stored, by their table.
pub(super) fn parse_by(table: &'static Object, raw: &[u8]) -> Result<Value, ValueError> {
    let text = std::str::from_utf8(raw).map_err(|_| ValueError::NotText)?;
    settled(table, json(text)?)
}

fn settled(table: &'static Object, value: Value) -> Result<Value, ValueError> {
    let (mut value, mut problems) = schema::decode(table, value, Mode::Stored);
    problems.extend(scalars::settle(table, &mut value));
    if problems.is_empty() { Ok(value) } else { Err(ValueError::Fields(problems)) }
}

/// Reads the bytes under a key as Calico reads them: fields it does not know are gone, and
/// policies have the names that their users gave them.
pub fn parse_as_calico(key: &Key, raw: &[u8]) -> Result<Stored, ValueError> {
    let mut stored = parse(key, raw)?;
    if let (Stored::Json(value), Form::Json(table)) = (&mut stored, form(key)) {
        drop_unknown(table, value);
    }
    if let (Stored::Json(value), Key::Resource(key)) = (&mut stored, key)
        && key.kind.is_renamed_policy()
    {
        settle_policy_name(value).map_err(ValueError::PolicyName)?;
    }
    Ok(stored)
}

/// The bytes of a value.
pub fn write(stored: &Stored) -> Vec<u8> {
    match stored {
        Stored::Json(value) => text::json::to_string(value).into_bytes(),
        Stored::Text(text) => text.clone().into_bytes(),
        Stored::Flag(set) => set.to_string().into_bytes(),
    }
}

fn json(raw: &str) -> Result<Value, ValueError> {
    text::json::parse(raw.as_bytes()).map_err(|error| ValueError::NotJson(error.to_string()))
}

/// Older programs have the tier of a policy in its key only.
fn with_tier(value: Value, tier: &str) -> Value {
    let Value::Object(mut given) = value else { return value };
    given.insert("tier".to_owned(), tier.into());
    schema::decode(&tables::POLICY, Value::Object(given), Mode::Stored).0
}

/// Leaves only the fields of the table.
pub fn drop_unknown(table: &'static Object, value: &mut Value) {
    let Value::Object(fields) = value else { return };
    fields.retain(|name, _| table.fields.iter().any(|field| field.name == name));
    for field in table.fields {
        let Some(value) = fields.get_mut(field.name) else { continue };
        match (field.shape, value) {
            (Shape::Object(inner), value) => drop_unknown(inner, value),
            (Shape::List(&Shape::Object(inner)), Value::Array(items)) => {
                items.iter_mut().for_each(|item| drop_unknown(inner, item));
            }
            (Shape::Map(&Shape::Object(inner)), Value::Object(entries)) => {
                entries.values_mut().for_each(|item| drop_unknown(inner, item));
            }
            _ => {}
        }
    }
}
