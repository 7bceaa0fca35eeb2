//! Selectors: what parses, canonical text, unique id, matches, restrictions, prefixes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use model::selector::{Selector, normalise};
use serde_json::{Map, Value, json};

use super::{Outcome, Row, expect, rows};

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let cases = rows(&dir.join("cases.jsonl"))?;
    cases
        .iter()
        .enumerate()
        .map(|(index, case)| {
            let name = format!("cases.jsonl:{}", index + 1);
            let outcome = check(case).with_context(|| name.clone())?;
            Ok(Row { name, outcome })
        })
        .collect()
}

/// Every field of a valid row is recomputed, so that one comparison shows them all.
fn check(case: &Value) -> anyhow::Result<Outcome> {
    let text = case["selector"].as_str().context("no selector")?;
    let parsed = text.parse::<Selector>();
    let mut ours = Map::new();
    ours.insert("ok".into(), parsed.is_ok().into());
    let plain = match &parsed {
        Ok(selector) => {
            describe(selector, case, &mut ours)?;
            selector.canonical()
        }
        Err(_) => text,
    };
    let normalised = normalise(text);
    if normalised != plain {
        ours.insert("normalised".into(), normalised.into());
    }
    let mut recorded = case.as_object().context("not an object")?.clone();
    for given in ["source", "selector", "error", "labels", "prefix"] {
        recorded.remove(given);
    }
    Ok(expect("row", &Value::from(ours), &Value::from(recorded)))
}

fn describe(
    selector: &Selector,
    case: &Value,
    ours: &mut Map<String, Value>,
) -> anyhow::Result<()> {
    ours.insert("canonical".into(), selector.canonical().into());
    ours.insert("uid".into(), selector.unique_id().into());
    let again: Selector = selector.canonical().parse()?;
    if again.canonical() != selector.canonical() {
        ours.insert("recanonical".into(), again.canonical().into());
    }
    let labels: Vec<BTreeMap<String, String>> = serde_json::from_value(case["labels"].clone())?;
    let matches: Vec<bool> = labels.iter().map(|labels| selector.matches_labels(labels)).collect();
    ours.insert("matches".into(), matches.into());
    let restrictions: Map<String, Value> = selector
        .restrictions()
        .into_iter()
        .map(|(label, restriction)| {
            let value = json!({
                "present": restriction.must_be_present,
                "absent": restriction.must_be_absent,
                "one_of": restriction.one_of,
            });
            (label.to_owned(), value)
        })
        .collect();
    ours.insert("restrictions".into(), restrictions.into());
    if let Some(prefix) = case["prefix"].as_str() {
        let prefixed = selector.prefixed(prefix);
        ours.insert("prefixed".into(), prefixed.canonical().into());
        ours.insert("prefixed_uid".into(), prefixed.unique_id().into());
    }
    Ok(())
}
