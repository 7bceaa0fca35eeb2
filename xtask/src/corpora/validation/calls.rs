//! Calls of the validator with whole resources and with parts of them.

use std::path::Path;

use anyhow::Context;
use api::schema::{self, Field, Keep, Mode, Object, Shape};
use api::{Kind, Problem};
use model::validate::{validate, validate_part};
use serde_json::{Value, json};

use super::super::{Outcome, Row, expect, rows};
use super::{Blame, blame, compare};

pub(super) fn run(path: &Path) -> anyhow::Result<Vec<Row>> {
    let cases = rows(path)?;
    cases
        .iter()
        .enumerate()
        .map(|(index, case)| {
            let name = format!(
                "validator-calls.jsonl:{} {} {}",
                index + 1,
                case["type"].as_str().unwrap_or_default(),
                case["name"].as_str().unwrap_or_default()
            );
            let outcome = check(case).with_context(|| name.clone())?;
            Ok(Row { name, outcome })
        })
        .collect()
}

fn check(case: &Value) -> anyhow::Result<Outcome> {
    let type_name = case["type"].as_str().context("no type")?;
    let part = type_name.split_once('.').map_or(type_name, |(_, part)| part);
    let value = unpacked(&case["object"]);
    let is_whole = case["schema_checked"] == true;
    let (table, value) = match part {
        "Protocol" => (&PROTOCOL_HOLDER, json!({ "protocol": value })),
        part => (find_table(part).context("no table for the type")?, value),
    };
    let (decoded, mut problems) = schema::decode(table, value, Mode::User);
    if case.get("decode_error").is_some() {
        return Ok(expect("refused while decoding", &!problems.is_empty(), &true));
    }
    let found = match part.parse::<Kind>() {
        Ok(kind) if is_whole => validate(kind, &decoded),
        _ => validate_part(table, &decoded),
    };
    problems.extend(found);
    verdict(case, &problems)
}

fn verdict(case: &Value, problems: &[Problem]) -> anyhow::Result<Outcome> {
    let ok = case["ok"].as_bool().context("no verdict")?;
    if ok != problems.is_empty() {
        let ours: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Ok(Outcome::Failed(format!(
            "recorded ok {ok} ({}), ours {ours:?}",
            case["errors"]
        )));
    }
    let errors = case["errors"].as_array().map_or(&[][..], Vec::as_slice);
    let recorded: Blame = errors
        .iter()
        .map(|error| {
            let error = unpacked(error);
            let text = |field: &str| error[field].as_str().unwrap_or_default();
            blame(text("field"), error["value"].as_str(), text("reason"))
        })
        .collect();
    Ok(compare(problems, &recorded))
}

static PROTOCOL_HOLDER: Object = Object {
    name: "Holder",
    fields: &[Field::new("protocol", "Protocol", Shape::Protocol).keep(Keep::Given)],
};

/// `@@x*N@@` stands for N letters x.
fn unpacked(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let mut parts = text.splitn(3, "@@");
            match (
                parts.next(),
                parts.next().and_then(|packed| packed.split_once('*')),
                parts.next(),
            ) {
                (Some(before), Some((letter, count)), Some(after)) => {
                    let letters = letter.repeat(count.parse().unwrap_or_default());
                    format!("{before}{letters}{after}").into()
                }
                _ => value.clone(),
            }
        }
        Value::Array(items) => items.iter().map(unpacked).collect(),
        Value::Object(fields) => {
            let unpacked = fields.iter().map(|(name, value)| (name.clone(), unpacked(value)));
            Value::Object(unpacked.collect())
        }
        other => other.clone(),
    }
}

/// The table of a kind, or of a part that some kind holds.
fn find_table(name: &str) -> Option<&'static Object> {
    Kind::all().find_map(|kind| find_within(schema::object_for(kind), name, 0))
}

fn find_within(table: &'static Object, name: &str, depth: usize) -> Option<&'static Object> {
    if table.name == name {
        return Some(table);
    }
    if depth > 16 {
        return None;
    }
    table.fields.iter().find_map(|field| find_within(field.shape.object()?, name, depth + 1))
}
