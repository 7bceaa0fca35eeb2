//! Keys of v3 resources, and the name that a stored policy really has.

use std::fmt;

use serde_json::{Map, Value};

use crate::Kind;

/// A kind that has a place among the v3 resources of a store: those of the API, and a few that
/// pass between Calico's programs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A kind of the v3 API.
    Api(Kind),
    /// The settings of address management, as Calico keeps them in Kubernetes.
    IpamConfig,
    /// A Kubernetes service.
    KubernetesService,
    /// A slice of the endpoints of a Kubernetes service.
    KubernetesEndpointSlice,
    /// A network policy of Kubernetes.
    KubernetesNetworkPolicy,
    /// A cluster-wide network policy of Kubernetes.
    KubernetesClusterNetworkPolicy,
}

const PRIVATE: &[(ResourceKind, &str, &str, bool)] = &[
    (ResourceKind::IpamConfig, "IPAMConfig", "ipamconfigs", false),
    // The only singular among the plurals.
    (ResourceKind::KubernetesService, "KubernetesService", "kubernetesservice", true),
    (
        ResourceKind::KubernetesEndpointSlice,
        "KubernetesEndpointSlice",
        "kubernetesendpointslices",
        true,
    ),
    (
        ResourceKind::KubernetesNetworkPolicy,
        "KubernetesNetworkPolicy",
        "kubernetesnetworkpolicies",
        true,
    ),
    (
        ResourceKind::KubernetesClusterNetworkPolicy,
        "KubernetesClusterNetworkPolicy",
        "kubernetesclusternetworkpolicies",
        false,
    ),
];

impl ResourceKind {
    /// Every kind with a place in a store.
    pub fn all() -> impl Iterator<Item = Self> {
        Kind::all().map(Self::Api).chain(PRIVATE.iter().map(|row| row.0))
    }

    fn row(self) -> (&'static str, &'static str, bool) {
        if let Self::Api(kind) = self {
            return (kind.name(), kind.plural(), kind.is_namespaced());
        }
        let row = PRIVATE.iter().find(|row| row.0 == self);
        row.map(|row| (row.1, row.2, row.3)).expect("every private kind has a row")
    }

    /// The name in documents (`IPPool`).
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The name in paths (`ippools`).
    pub fn plural(self) -> &'static str {
        self.row().1
    }

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(self) -> bool {
        self.row().2
    }

    /// The kind with this name, in any letter case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// The kind with this name in paths.
    pub fn from_plural(plural: &str) -> Option<Self> {
        Self::all().find(|kind| kind.plural() == plural)
    }

    /// Whether a stored object of the kind may bear another name than the user gave it; see
    /// [`settle_policy_name`].
    pub fn is_renamed_policy(self) -> bool {
        matches!(
            self,
            Self::Api(
                Kind::NetworkPolicy
                    | Kind::GlobalNetworkPolicy
                    | Kind::StagedNetworkPolicy
                    | Kind::StagedGlobalNetworkPolicy
            ) | Self::KubernetesNetworkPolicy
                | Self::KubernetesClusterNetworkPolicy
        )
    }
}

impl From<Kind> for ResourceKind {
    fn from(kind: Kind) -> Self {
        Self::Api(kind)
    }
}

/// A v3 resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// Its kind.
    pub kind: ResourceKind,
    /// Its namespace; empty for kinds without.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ResourceKey {
    /// The folder of all objects of a kind.
    pub(super) fn root(kind: ResourceKind) -> String {
        format!("/calico/resources/v3/projectcalico.org/{}", kind.plural())
    }

    /// Where it lies in a store.
    pub fn path(&self) -> String {
        match self.kind.is_namespaced() {
            true => format!("{}/{}/{}", Self::root(self.kind), self.namespace, self.name),
            false => format!("{}/{}", Self::root(self.kind), self.name),
        }
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.is_namespaced() {
            true => write!(to, "{}({}/{})", self.kind.name(), self.namespace, self.name),
            false => write!(to, "{}({})", self.kind.name(), self.name),
        }
    }
}

/// The annotation in which a stored policy keeps the name its user gave it.
const NAME_ANNOTATION: &str = "projectcalico.org/metadata";

/// Gives a stored policy the name that its user knows: the one in the annotation, which goes; or
/// else the stored one, without `default.` in front if it is in the default tier.
///
/// The value is the policy in its canonical form. Fails where the annotation is no JSON object.
pub fn settle_policy_name(policy: &mut Value) -> Result<(), String> {
    let spec = policy.get("spec");
    let tier = spec.and_then(|spec| spec.get("tier")).and_then(Value::as_str).unwrap_or_default();
    let in_default_tier = tier.is_empty() || tier == "default";
    let Some(Value::Object(metadata)) = policy.get_mut("metadata") else { return Ok(()) };
    let kept = match metadata.get_mut("annotations") {
        Some(Value::Object(annotations)) => take_name(annotations)?,
        _ => None,
    };
    let empty = Value::Object(Map::new());
    if metadata.get("annotations") == Some(&empty) {
        metadata.shift_remove("annotations");
    }
    let stored = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
    let name = match kept {
        Some(name) => name,
        None if in_default_tier => stored.strip_prefix("default.").unwrap_or(stored).to_owned(),
        None => return Ok(()),
    };
    if name.is_empty() {
        metadata.shift_remove("name");
    } else if name != stored {
        metadata.insert("name".to_owned(), Value::String(name));
    }
    Ok(())
}

fn take_name(annotations: &mut Map<String, Value>) -> Result<Option<String>, String> {
    let text = match annotations.get(NAME_ANNOTATION).and_then(Value::as_str) {
        None | Some("") => return Ok(None),
        Some(text) => text,
    };
    let kept: Map<String, Value> = serde_json::from_str(text)
        .map_err(|_| format!("annotation \"{NAME_ANNOTATION}\" is not a JSON object"))?;
    let name = kept.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    annotations.shift_remove(NAME_ANNOTATION);
    Ok(Some(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settled(mut policy: Value) -> Value {
        settle_policy_name(&mut policy).unwrap();
        policy
    }

    #[test]
    fn the_annotation_names_the_policy_and_goes() {
        let kept = json!({NAME_ANNOTATION: "{\"name\":\"mine\"}"});
        let stored = json!({"metadata": {"name": "default.mine", "annotations": kept}});
        assert_eq!(settled(stored), json!({"metadata": {"name": "mine"}}));
    }

    #[test]
    fn only_the_default_tier_is_cut_off() {
        let policy =
            |name: &str, tier: &str| json!({"metadata": {"name": name}, "spec": {"tier": tier}});
        assert_eq!(settled(policy("default.p", "default")), policy("p", "default"));
        assert_eq!(settled(policy("default.p", "other")), policy("default.p", "other"));
        assert_eq!(settled(policy("other.p", "default")), policy("other.p", "default"));
    }

    #[test]
    fn an_annotation_that_is_no_object_is_refused() {
        let mut policy = json!({"metadata": {"annotations": {NAME_ANNOTATION: "{bad"}}});
        assert!(settle_policy_name(&mut policy).is_err());
    }
}
