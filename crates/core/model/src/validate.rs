//! What makes an object acceptable, beyond having the right types.
//!
//! [`validate`] asks in Calico's order: the checks on single fields and the rules across fields
//! of its validator, then (with the schema's defaults filled in) the limits of the schema and
//! the rules that the CRDs carry. All faults are collected.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::schema::{self, Object};
use api::{Kind, Problem};
use serde_json::Value;

pub mod fields;
pub mod limits;
mod path;
pub mod rules;

/// Everything that speaks against a decoded object.
pub fn validate(kind: Kind, object: &Value) -> Vec<Problem> {
    validate_with_defaults(kind, &mut Cow::Borrowed(object))
}

/// The lists of a spec whose items each pass or fail by themselves: what is asked of one depends on
/// the kind and on the list it stands in, and on nothing else in the object.
pub fn lists_judged_singly(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::NetworkPolicy
        | Kind::GlobalNetworkPolicy
        | Kind::StagedNetworkPolicy
        | Kind::StagedGlobalNetworkPolicy => &["ingress", "egress"],
        _ => &[],
    }
}

/// Everything that speaks against a decoded object; it gets the defaults of its schema. Few
/// objects lack one, so few borrowed objects are copied.
pub(crate) fn validate_with_defaults(kind: Kind, object: &mut Cow<'_, Value>) -> Vec<Problem> {
    let table = schema::object_for(kind);
    let mut problems = validate_part(table, object);
    if schema::has_crd(kind) {
        if schema::lacks_default(table, object) {
            schema::apply_defaults(table, object.to_mut());
        }
        problems.extend(limits::check_limits(kind, object));
        problems.extend(rules::check_schema_rules(table, object));
    }
    without_repeats(problems)
}

/// Everything that Calico's own validator has against a decoded object or a part of one.
pub fn validate_part(table: &'static Object, value: &Value) -> Vec<Problem> {
    let mut problems = fields::check_fields(table, value);
    problems.extend(rules::check_rules(table, value));
    without_repeats(problems)
}

/// Calico's validator and its schema may name one fault in two ways; both ways stay.
fn without_repeats(problems: Vec<Problem>) -> Vec<Problem> {
    let mut distinct: Vec<Problem> = Vec::with_capacity(problems.len());
    // By path, because a long list may have a problem for each of its items.
    let mut seen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for problem in problems {
        let at_path = seen.entry(problem.path.clone()).or_default();
        let is_same = |at: &usize| {
            let known = &distinct[*at];
            known.message == problem.message && known.calico == problem.calico
        };
        if !at_path.iter().any(is_same) {
            at_path.push(distinct.len());
            distinct.push(problem);
        }
    }
    distinct
}

#[cfg(test)]
mod tests;
