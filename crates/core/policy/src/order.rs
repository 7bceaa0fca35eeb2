//! The order in which tiers and policies decide.

use std::cmp::Ordering;

use crate::input::{PolicyId, Tier};

/// The place of a tier. A tier that only policies speak of comes after all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TierOrder {
    is_missing: bool,
    place: Place,
    name: String,
}

impl TierOrder {
    /// The place of the tier of this name; none where there is no such object.
    pub fn new(name: &str, tier: Option<&Tier>) -> Self {
        Self {
            is_missing: tier.is_none(),
            place: Place::new(tier.and_then(|tier| tier.order)),
            name: name.to_owned(),
        }
    }

    /// The name of the tier.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The place of a policy in its tier.
#[derive(Clone, Debug)]
pub struct PolicyOrder {
    place: Place,
    /// The text `name/namespace/kind`, which Calico compares byte by byte: `a-b` comes before `a`.
    tie: Box<str>,
    id: PolicyId,
}

impl PolicyOrder {
    /// The place of a policy with this `order`.
    pub fn new(order: Option<f64>, id: PolicyId) -> Self {
        let tie = [&id.name, "/", &id.namespace, "/", id.kind.name()].concat();
        Self { place: Place::new(order), tie: tie.into(), id }
    }

    /// Which policy.
    pub fn id(&self) -> &PolicyId {
        &self.id
    }
}

impl Ord for PolicyOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place.cmp(&other.place).then_with(|| self.tie.cmp(&other.tie))
    }
}

impl PartialEq for PolicyOrder {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PolicyOrder {}

impl PartialOrd for PolicyOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A number, or the place after all numbers.
#[derive(Clone, Copy, Debug)]
struct Place(Option<f64>);

impl Place {
    fn new(order: Option<f64>) -> Self {
        // Both zeros are one place.
        Self(order.map(|order| order + 0.0))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0, other.0) {
            (Some(ours), Some(theirs)) => ours.total_cmp(&theirs),
            (ours, theirs) => ours.is_none().cmp(&theirs.is_none()),
        }
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Place {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::PolicyKind;
    use crate::verdict::End;

    fn sorted(mut policies: Vec<(Option<f64>, &str)>) -> Vec<&str> {
        policies.sort_by_key(|(order, name)| {
            let (kind, name) = (PolicyKind::GlobalNetworkPolicy, (*name).to_owned());
            PolicyOrder::new(*order, PolicyId { kind, namespace: String::new(), name })
        });
        policies.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn policies_without_order_come_last() {
        let policies = vec![(None, "a"), (Some(1e9), "b"), (Some(-1.5), "c")];
        assert_eq!(sorted(policies), ["c", "b", "a"]);
    }

    #[test]
    fn ties_go_by_the_text_with_slashes() {
        let policies = vec![(None, "foo0"), (None, "foo"), (None, "foo.bar"), (None, "foo-bar")];
        assert_eq!(sorted(policies), ["foo-bar", "foo.bar", "foo", "foo0"]);
        assert_eq!(
            sorted(vec![(Some(0.0), "b"), (Some(-0.0), "c"), (Some(0.0), "a")]),
            ["a", "b", "c"]
        );
    }

    #[test]
    fn tiers_that_nobody_wrote_come_after_those_without_order() {
        let tier = |order| Tier { order, end: End::Deny };
        let mut tiers = [
            TierOrder::new("a", None),
            TierOrder::new("b", Some(&tier(None))),
            TierOrder::new("d", Some(&tier(Some(1.0)))),
            TierOrder::new("c-1", Some(&tier(Some(1.0)))),
            TierOrder::new("c", Some(&tier(Some(1.0)))),
        ];
        tiers.sort();
        let names = tiers.iter().map(TierOrder::name).collect::<Vec<_>>();
        assert_eq!(names, ["c", "c-1", "d", "b", "a"]);
    }
}
