//! What happens to an object between a user's hands and the datastore.
//!
//! [`prepare_create`] and [`prepare_update`] take a decoded object, fill in what Calico's client
//! fills in, ask every rule, and return the object to store. They are pure: time and identity
//! come in a [`Context`], and what other objects have to say comes in [`Neighbours`], which the
//! caller fetches after asking [`needs`].

use std::borrow::Cow;
use std::collections::BTreeSet;

use api::keys::ResourceKind;
use api::schema::{self, Mode};
use api::{CalicoError, Kind, Problem};
use net::Cidr;
use serde_json::{Map, Value};

use crate::validate;

mod config;
mod delete;
mod ip_pool;
mod policy;
mod workload_endpoint;

pub(crate) use config::fill_tier as fill_stored_tier;
pub use delete::{check_delete, delete_needs_policies};
pub(crate) use ip_pool::fill_stored as fill_stored_pool;
pub(crate) use policy::TIER_LABEL;

/// What only the outside world knows.
#[derive(Clone, Debug)]
pub struct Context {
    /// A fresh identifier.
    pub uid: String,
    /// The time now, in RFC 3339.
    pub now: String,
    /// Where objects without a namespace go.
    pub default_namespace: String,
}

/// Something about other objects that a rule asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Whether this tier exists.
    Tier(String),
    /// All address pools.
    IpPools,
    /// The prefixes of all address blocks.
    Blocks,
    /// The names of all BGP filters.
    BgpFilters,
}

/// The answers to [`Need`]s; whatever was not asked for can stay empty.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    /// Whether the tier exists.
    pub tier_exists: bool,
    /// All address pools.
    pub ip_pools: Vec<Value>,
    /// The prefixes of all address blocks.
    pub blocks: Vec<Cidr>,
    /// The names of all BGP filters.
    pub bgp_filters: BTreeSet<String>,
}

/// Why an object is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It breaks rules.
    Invalid(Vec<Problem>),
    /// It needs another object that is not there.
    Missing {
        /// The kind of the other object.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// It is built in and always there.
    BuiltIn,
    /// The request makes no sense for it.
    Refused {
        /// Why, in our words.
        reason: String,
        /// The whole sentence of Calico's tools.
        calico: String,
    },
}

impl Refusal {
    fn refused(reason: impl Into<String>, calico: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into(), calico: calico.into() }
    }

    /// One fault that Calico's client reports as `field` with `reason`.
    fn invalid(path: &str, message: impl Into<String>, calico: CalicoError) -> Self {
        Self::Invalid(vec![Problem::invalid(path, message, calico)])
    }
}

fn unsaid(field: &str, reason: impl Into<String>) -> CalicoError {
    CalicoError { field: field.to_owned(), value: None, reason: reason.into() }
}

fn said(field: &str, value: impl Into<String>, reason: impl Into<String>) -> CalicoError {
    CalicoError { field: field.to_owned(), value: Some(value.into()), reason: reason.into() }
}

/// What [`prepare_create`] and [`prepare_update`] will ask about other objects.
pub fn needs(kind: Kind, object: &Value) -> Vec<Need> {
    match kind {
        Kind::IpPool => vec![Need::IpPools, Need::Blocks],
        Kind::BgpPeer if has_items(object, "filters") => vec![Need::BgpFilters],
        kind if is_named_policy(kind) => {
            vec![Need::Tier(api::names::tier_or_default(spec_text(object, "tier")).to_owned())]
        }
        _ => Vec::new(),
    }
}

/// The object to store for one that a user wants to exist.
pub fn prepare_create(
    kind: Kind,
    object: Value,
    context: &Context,
    neighbours: &Neighbours,
) -> Result<Value, Refusal> {
    if kind == Kind::ClusterInformation {
        return Err(Refusal::refused(
            "the cluster information is made by Calico itself",
            "operation create or apply is not supported on ClusterInformation",
        ));
    }
    let mut object = in_namespace(kind, object, &context.default_namespace)?;
    let resource_version = metadata_text(&object, "resourceVersion").to_owned();
    fill(kind, None, &mut object, neighbours)?;
    let mut object = accepted(kind, object)?;
    after_validation(kind, None, &mut object, neighbours)?;
    if !resource_version.is_empty() {
        let reason = "field must not be set for a Create request";
        let calico = said("Metadata.ResourceVersion", resource_version, reason);
        let message = "a new object has no resourceVersion; remove it";
        return Err(Refusal::invalid("metadata.resourceVersion", message, calico));
    }
    let identity = [("uid", &context.uid), ("creationTimestamp", &context.now)];
    Ok(for_storage(kind, object, identity))
}

/// The object to store in place of `old`, which is as users see it.
pub fn prepare_update(
    kind: Kind,
    old: &Value,
    new: Value,
    context: &Context,
    neighbours: &Neighbours,
) -> Result<Value, Refusal> {
    let mut object = in_namespace(kind, new, &context.default_namespace)?;
    fill(kind, Some(old), &mut object, neighbours)?;
    let mut object = accepted(kind, object)?;
    after_validation(kind, Some(old), &mut object, neighbours)?;
    let uid = metadata_text(old, "uid").to_owned();
    let created = metadata_text(old, "creationTimestamp").to_owned();
    Ok(for_storage(kind, object, [("uid", &uid), ("creationTimestamp", &created)]))
}

/// The object in its namespace: kinds without namespaces have none, the others get `default`
/// if they name none.
pub fn in_namespace(kind: Kind, mut object: Value, default: &str) -> Result<Value, Refusal> {
    let namespace = metadata_text(&object, "namespace");
    if kind.is_namespaced() {
        if namespace.is_empty() {
            section(&mut object, "metadata").insert("namespace".to_owned(), default.into());
        }
    } else if !namespace.is_empty() {
        return Err(Refusal::refused(
            format!("a {kind} has no namespace; remove metadata.namespace"),
            format!(
                "namespace should not be specified for a non-namespaced resource. {kind} is not \
                 a namespaced resource"
            ),
        ));
    }
    Ok(object)
}

/// What Calico's client sets and asks before its validator runs.
fn fill(
    kind: Kind,
    old: Option<&Value>,
    object: &mut Value,
    neighbours: &Neighbours,
) -> Result<(), Refusal> {
    match kind {
        Kind::IpPool => ip_pool::fill(old, object, neighbours),
        Kind::FelixConfiguration => {
            config::fill_felix(object);
            Ok(())
        }
        Kind::KubeControllersConfiguration => config::fill_controllers(object),
        Kind::Tier => {
            config::fill_tier(object);
            Ok(())
        }
        Kind::BgpPeer => config::filters_exist(object, neighbours),
        Kind::Profile => config::profile_is_not_built_in(old.is_some(), object),
        Kind::WorkloadEndpoint => workload_endpoint::name(object),
        kind if is_named_policy(kind) => policy::fill(kind, old.is_none(), object, neighbours),
        _ => Ok(()),
    }
}

/// The object with the defaults of its schema, if no rule speaks against it.
fn accepted(kind: Kind, object: Value) -> Result<Value, Refusal> {
    let mut object = Cow::Owned(object);
    let problems = validate::validate_with_defaults(kind, &mut object);
    match problems.is_empty() {
        true => Ok(object.into_owned()),
        false => Err(Refusal::Invalid(problems)),
    }
}

/// What Calico's client sets and asks after its validator has run.
fn after_validation(
    kind: Kind,
    old: Option<&Value>,
    object: &mut Value,
    neighbours: &Neighbours,
) -> Result<(), Refusal> {
    match kind {
        Kind::BgpConfiguration => config::only_default_has(object),
        Kind::IpamConfiguration => config::only_default(object, "an IPAMConfiguration"),
        Kind::KubeControllersConfiguration if old.is_none() => {
            config::only_default(object, "a Kube Controllers Configuration")
        }
        Kind::IpPool if old.is_none() => ip_pool::blocks_agree(object, neighbours),
        Kind::WorkloadEndpoint => {
            workload_endpoint::label(object);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The object with the metadata that is stored, and in the form in which it is stored.
fn for_storage(kind: Kind, mut object: Value, identity: [(&str, &String); 2]) -> Value {
    let given = std::mem::take(section(&mut object, "metadata"));
    let mut metadata = Map::new();
    for (field, value) in given {
        let kept = ["name", "namespace", "labels", "annotations"];
        if kept.contains(&field.as_str()) {
            metadata.insert(field, value);
        }
    }
    for (field, value) in identity {
        metadata.insert(field.to_owned(), value.as_str().into());
    }
    *section(&mut object, "metadata") = metadata;
    if is_named_policy(kind) {
        policy::note_name(&mut object);
    }
    if let Value::Object(fields) = &mut object {
        fields.insert("kind".to_owned(), kind.name().into());
        fields.insert("apiVersion".to_owned(), "projectcalico.org/v3".into());
    }
    // Only to put the fields in their order: what was decoded once decodes again.
    schema::decode(schema::object_for(kind), object, Mode::Stored).0
}

/// Policies of Calico's own rules: they are in tiers, and an annotation keeps their name.
pub(crate) fn is_named_policy(kind: Kind) -> bool {
    ResourceKind::from(kind).is_renamed_policy()
}

/// An object field, made if it is not there.
fn section<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let fields = object.as_object_mut().expect("made an object above");
    let inner = fields.entry(name).or_insert(Value::Null);
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    inner.as_object_mut().expect("made an object above")
}

fn metadata_text<'a>(object: &'a Value, field: &str) -> &'a str {
    let metadata = object.get("metadata");
    metadata.and_then(|it| it.get(field)).and_then(Value::as_str).unwrap_or_default()
}

fn spec_text<'a>(object: &'a Value, field: &str) -> &'a str {
    let spec = object.get("spec");
    spec.and_then(|it| it.get(field)).and_then(Value::as_str).unwrap_or_default()
}

fn has_items(object: &Value, field: &str) -> bool {
    let list = object.get("spec").and_then(|spec| spec.get(field)).and_then(Value::as_array);
    list.is_some_and(|items| !items.is_empty())
}

/// Sets a field of an object that has none or an empty one.
fn set_if_empty(fields: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    let is_empty = match fields.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(_) => false,
    };
    if is_empty {
        fields.insert(name.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests;
