//! Topic `defaults`: what is filled in when a resource is stored.

mod create;

use std::path::Path;

use anyhow::Context;
use api::Kind;
use api::schema::{Mode, apply_defaults, decode, object_for};
use serde_json::Value;

use super::{Outcome, Row, expect, rows};

type File = (&'static str, fn(&Value) -> anyhow::Result<Outcome>);

const FILES: &[File] = &[
    ("schema.jsonl", schema),
    ("create.jsonl", create::create),
    ("yaml-scalars.jsonl", create::create_from_yaml),
];

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let mut outcomes = Vec::new();
    for (file, judge) in FILES {
        for (index, row) in rows(&dir.join(file))?.iter().enumerate() {
            let name = format!("{file}:{}", index + 1);
            let outcome = judge(row).with_context(|| name.clone())?;
            outcomes.push(Row { name, outcome });
        }
    }
    Ok(outcomes)
}

/// The defaults of the schema alone.
fn schema(row: &Value) -> anyhow::Result<Outcome> {
    let kind: Kind = row["kind"].as_str().context("a row without a kind")?.parse()?;
    let object = object_for(kind);
    let (mut value, problems) = decode(object, row["in"].clone(), Mode::Stored);
    if let Some(problem) = problems.first() {
        return Ok(Outcome::Failed(problem.to_string()));
    }
    apply_defaults(object, &mut value);
    Ok(expect("defaulted", &text::json::to_string(&value), &text::json::to_string(&row["out"])))
}
