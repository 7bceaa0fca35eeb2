//! What each action does with one object.

use api::Kind;
use serde_json::Value;
use store::resources::{Error, Name, Resources, Stored, Verb};

use super::arguments::Parsed;
use super::resources::{Action, Refusal, client_verb};
use super::session::warn;
use super::targets::Target;
use crate::documents::{Calico, Documents};
use crate::output::Shown;

/// Policies that stand for those of Kubernetes have names like this in etcd.
const KUBERNETES_POLICY: &str = "knp.default.";

/// Does the action; gives what was read, if the action reads.
pub(crate) fn act(
    client: &Resources,
    target: &Target,
    action: Action,
    parsed: &Parsed,
) -> Result<Option<Shown>, Refusal> {
    match action {
        Action::Get => get_or_list(client, target).map(Some),
        Action::Apply | Action::Create | Action::Replace => {
            client.write(client_verb(action), &target.object)?;
            Ok(None)
        }
        Action::Delete => {
            delete(client, target)?;
            Ok(None)
        }
        Action::Patch => {
            patch(client, target, parsed.text("patch").unwrap_or_default())?;
            Ok(None)
        }
        Action::Validate => validate(target).map(|()| None),
    }
}

/// Looks at an object without a datastore.
pub(crate) fn validate(target: &Target) -> Result<(), Refusal> {
    let problems = model::validate::validate(target.kind, &target.object);
    match problems.as_slice() {
        [] => Ok(()),
        problems => Err(Refusal::Words(store::resources::calico_fields(problems))),
    }
}

fn get_or_list(client: &Resources, target: &Target) -> Result<Shown, Refusal> {
    let kind = target.kind;
    let name = target.name();
    if name.name.is_empty() {
        let listing = client.list(kind, namespace(&name))?;
        for quarantined in &listing.quarantined {
            // Where nobody reads warnings, the list is all there is.
            let _ = warn(quarantined);
        }
        let mut objects: Vec<Value> =
            listing.objects.into_iter().map(|stored| stored.object).collect();
        if kind == Kind::Tier {
            sort_by_order(&mut objects);
        }
        return Ok(Shown::List(kind, objects, listing.revision));
    }
    if kind.is_namespaced() && name.namespace.is_empty() {
        let words = "cannot use --all-namespace flag for getting a single resource";
        return Err(Refusal::Words(words.to_owned()));
    }
    Ok(Shown::Object(kind, client.get(&name)?.object))
}

/// The namespace to list; `None` for all of them.
pub(crate) fn namespace(name: &Name) -> Option<&str> {
    Some(name.namespace.as_str()).filter(|namespace| !namespace.is_empty())
}

/// Tiers are listed in the order in which they apply; those without an order come last.
fn sort_by_order(tiers: &mut [Value]) {
    let order = |tier: &Value| tier.pointer("/spec/order").and_then(Value::as_f64);
    tiers.sort_by(|a, b| match (order(a), order(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => std::cmp::Ordering::Equal,
    });
}

/// Whether calicoctl leaves the object to others: the node writes the cluster's information, and
/// Kubernetes writes its own policies.
fn belongs_to_others(name: &Name) -> Option<&'static str> {
    match name.kind {
        Kind::ClusterInformation => Some(""),
        Kind::NetworkPolicy if name.name.starts_with(KUBERNETES_POLICY) => {
            Some(": kubernetes network policies must be managed through the kubernetes API")
        }
        _ => None,
    }
}

fn unsupported(operation: &str, name: &Name, why: &str) -> Refusal {
    let what = match name.kind {
        Kind::ClusterInformation => "ClusterInformation".to_owned(),
        _ => name.to_string(),
    };
    Refusal::Words(format!("operation {operation} is not supported on {what}{why}"))
}

/// Why calicoctl does not write the object, if so.
pub(crate) fn refused(client: &Resources, target: &Target, action: Action) -> Option<Refusal> {
    let name = target.name();
    let why = belongs_to_others(&name)?;
    Some(match action {
        Action::Apply if name.kind == Kind::ClusterInformation => {
            unsupported("apply", &name, ": resource is readonly")
        }
        Action::Create => unsupported("create or apply", &name, why),
        _ => match client.get(&name) {
            Ok(_) => unsupported("apply or replace", &name, why),
            Err(error) => error.into(),
        },
    })
}

fn delete(client: &Resources, target: &Target) -> Result<(), Refusal> {
    let name = target.name();
    if let Some(why) = belongs_to_others(&name) {
        return Err(unsupported("delete", &name, why));
    }
    if name.name.is_empty() {
        let field = if name.kind == Kind::Node { "node" } else { "name" };
        return Err(Refusal::Words(format!("error with field {field} (field should be assigned)")));
    }
    let revision = target.object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let revision = match revision.filter(|revision| !revision.is_empty()) {
        None => None,
        Some(revision) => {
            // What is no revision is not the revision of the object.
            let revision = revision.parse().map_err(|_| Error::Conflict(name.clone()))?;
            Some(revision)
        }
    };
    client.delete(&name, revision)?;
    Ok(())
}

fn patch(client: &Resources, target: &Target, patch: &str) -> Result<(), Refusal> {
    let name = target.name();
    let stored = client.get(&name)?;
    let patched = text::patch::parse(patch.as_bytes())
        .and_then(|patch| text::patch::strategic(&stored.object, &patch))
        .map_err(|error| format!("performing strategic merge patch: {error}"))?;
    let text = text::json::to_string(&patched);
    let documents = Documents::from_text("-", text.as_bytes());
    if let Some(fault) = documents.faults.first() {
        let (Calico::Unreadable(words) | Calico::Empty(words)) = &fault.calico;
        return Err(Refusal::Words(format!("creating resource from patched data: {words}")));
    }
    let patched = documents.objects.into_iter().next();
    let patched = patched.ok_or_else(|| "invalid number of patched resources: 0".to_owned())?;
    let updating = |refusal: Refusal| {
        Refusal::Words(format!("updating existing resource: {}", refusal.words()))
    };
    if let Some(why) = belongs_to_others(&Name::of(patched.kind, &patched.object)) {
        return Err(updating(unsupported("apply or replace", &name, why)));
    }
    client.write(Verb::Update, &patched.object).map_err(|error| updating(error.into()))?;
    Ok(())
}

/// Writes back an object that was read and changed.
pub(crate) fn write_back(client: &Resources, stored: &Stored) -> Result<(), Refusal> {
    if let Some(why) = belongs_to_others(&stored.name) {
        return Err(unsupported("apply or replace", &stored.name, why));
    }
    client.write(Verb::Update, &stored.object)?;
    Ok(())
}
