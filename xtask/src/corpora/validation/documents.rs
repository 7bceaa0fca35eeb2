//! Whole documents through `validate -f -`.

use std::path::Path;

use anyhow::Context;
use api::schema::{self, Mode};
use api::{CalicoError, Kind, Problem, Stage};
use model::prepare::{Refusal, in_namespace};
use model::resource::Resource;
use model::validate::validate;
use serde_json::Value;

use super::super::{Outcome, Row, rows};
use super::{Blame, blame, compare};

/// What a whole sentence of the real program blames.
const NO_FIELD: &str = "";

/// Where the real program dies.
const GO_CRASH: &str = "go-crash";

pub(super) fn run(path: &Path) -> anyhow::Result<Vec<Row>> {
    let cases = rows(path)?;
    cases
        .iter()
        .enumerate()
        .map(|(index, case)| {
            let text = |field: &str| case[field].as_str().unwrap_or_default();
            let what = [text("kind"), text("path"), text("change")].join(" ");
            let name = format!("ctl-validate.jsonl:{} {what}", index + 1);
            let outcome = check(case).with_context(|| name.clone())?;
            Ok(Row { name, outcome })
        })
        .collect()
}

fn check(case: &Value) -> anyhow::Result<Outcome> {
    let yaml = case["yaml"].as_str().context("no yaml")?;
    let ok = case["ok"].as_bool().context("no verdict")?;
    let recorded = case["error"].as_str().unwrap_or_default();
    let ours = read(yaml.as_bytes());
    if case["crash"] == true {
        return Ok(match ours {
            Ok(problems) if !problems.is_empty() => Outcome::Differs(GO_CRASH),
            _ => Outcome::Failed("the real program dies, we accept".to_owned()),
        });
    }
    let is_fine = matches!(&ours, Ok(problems) if problems.is_empty());
    if ok != is_fine {
        return Ok(Outcome::Failed(format!("recorded ok {ok} ({recorded}), ours {ours:?}")));
    }
    Ok(match ours {
        Ok(problems) => blamed_alike(&problems, recorded),
        // Nothing of the document could be used, and no field is to blame.
        Err(_) => Outcome::Passed,
    })
}

fn blamed_alike(problems: &[Problem], recorded: &str) -> Outcome {
    let decoding = "failed to execute command: error unmarshaling JSON: while decoding JSON: ";
    if let Some(unknown) =
        recorded.strip_prefix("field in document is not recognized or is in the wrong location: ")
    {
        let is_same = |problem: &Problem| {
            problem.stage == Stage::UnknownField && problem.calico.field == unknown
        };
        return match problems.iter().any(is_same) {
            true => Outcome::Passed,
            false => Outcome::Failed(format!("{unknown} is not blamed: {problems:?}")),
        };
    }
    if let Some(reason) = recorded.strip_prefix(decoding) {
        let is_blamed = |problem: &Problem| match reason.split_once("Go struct field ") {
            Some((_, field)) => {
                let field = field.split(' ').next().unwrap_or_default();
                let field = field.split_once('.').map_or(field, |(_, path)| path);
                // Go names the struct that is embedded there.
                let field = field.replace(".LocalObjectReference", "");
                problem.stage == Stage::Decode && problem.calico.field == field
            }
            None => problem.stage == Stage::Decode,
        };
        return match problems.iter().any(is_blamed) {
            true => Outcome::Passed,
            false => Outcome::Failed(format!("other fields than in {reason}: {problems:?}")),
        };
    }
    compare(problems, &recorded_blame(recorded))
}

/// Every fault of the objects in a file; `Err` when it has no usable objects.
fn read(file: &[u8]) -> Result<Vec<Problem>, String> {
    let mut objects = Vec::new();
    for document in text::yaml::documents(file) {
        let document = document.map_err(|error| error.to_string())?;
        if document.text().is_empty() {
            continue;
        }
        match document.value {
            Value::Array(items) => {
                for item in items {
                    let kind = kind_of(&item)?;
                    objects.push((kind, item));
                }
            }
            value => objects.extend(of_document(value)?),
        }
    }
    if objects.is_empty() {
        return Err("no resources".to_owned());
    }
    let faults = objects.into_iter().flat_map(|(kind, object)| faults(kind, object));
    Ok(faults.collect())
}

fn of_document(mut value: Value) -> Result<Vec<(Kind, Value)>, String> {
    let name = value["kind"].as_str().unwrap_or_default().to_owned();
    let item_kind = name.strip_suffix("List").and_then(|name| name.parse::<Kind>().ok());
    match item_kind.filter(|_| value["apiVersion"] == "projectcalico.org/v3") {
        None => Ok(vec![(kind_of(&value)?, value)]),
        Some(kind) => match value["items"].take() {
            Value::Array(items) => Ok(items.into_iter().map(|item| (kind, item)).collect()),
            _ => Err("items is not a list".to_owned()),
        },
    }
}

fn kind_of(value: &Value) -> Result<Kind, String> {
    let name = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let known = name.parse::<Kind>().ok().filter(|_| version == "projectcalico.org/v3");
    known.ok_or_else(|| format!("unknown resource type ({name}) and/or version ({version})"))
}

/// Kinds in which Calico accepts values that no program can use: an empty network, a rule with an
/// unknown action. They are accepted here too; reading them into types names the field.
fn is_lax(kind: Kind) -> bool {
    !schema::has_crd(kind) || kind == Kind::NetworkSet
}

fn faults(kind: Kind, object: Value) -> Vec<Problem> {
    let (decoded, problems) = schema::decode(schema::object_for(kind), object, Mode::User);
    if !problems.is_empty() {
        return problems;
    }
    match in_namespace(kind, decoded, "default") {
        Ok(object) => match validate(kind, &object) {
            // What Calico accepts must also fit our types.
            problems if problems.is_empty() && !is_lax(kind) => {
                Resource::read(kind, &object).err().unwrap_or_default()
            }
            problems => problems,
        },
        Err(Refusal::Invalid(problems)) => problems,
        // A sentence without fields; the verdict is what can be compared.
        Err(_) => vec![Problem::invalid(
            "metadata.namespace",
            "this kind has no namespace",
            CalicoError { field: NO_FIELD.to_owned(), value: None, reason: String::new() },
        )],
    }
}

/// The entries of `error with field F = 'V' (R)` or of the list of several.
fn recorded_blame(message: &str) -> Blame {
    let mut blames = Blame::new();
    if message.contains("[namespace should not be specified") {
        blames.insert(blame(NO_FIELD, None, ""));
    }
    for part in message.split("[error with ").skip(1) {
        let entries: Vec<&str> = match part.strip_prefix("field ") {
            Some(only) => vec![only],
            None => part.split("\n-  ").skip(1).collect(),
        };
        blames.extend(entries.into_iter().filter_map(entry));
    }
    blames
}

fn entry(text: &str) -> Option<(String, Option<String>)> {
    let end = text.rfind(')')?;
    let text = &text[..end];
    let (field, value, reason) = match text.split_once(" = '") {
        Some((field, rest)) if field.len() < 60 && !field.contains(" (") || is_labelled(field) => {
            let (value, reason) = rest.split_once("' (")?;
            (field, Some(value), reason)
        }
        _ => {
            let (field, reason) = text.split_once(" (")?;
            (field, None, reason)
        }
    };
    Some(blame(field, value, reason))
}

/// Names such as `Metadata.Labels (value)`.
fn is_labelled(field: &str) -> bool {
    field.starts_with("Metadata.") && field.ends_with(')')
}
