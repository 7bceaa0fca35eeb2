//! The datastore codec: keys, paths, values, lists and names.

mod convert;
mod names;

use std::path::Path;

use anyhow::Context;
use api::keys::{AffinityType, Key, KeyError, ListOptions, value};
use serde_json::{Value, json};

use self::convert::{Parts, describe, without_empty};
use super::{Outcome, Row, expect, rows};

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    type Check = fn(&Value) -> anyhow::Result<Outcome>;
    const FILES: &[(&str, Check)] = &[
        ("key_to_path", key_to_path),
        ("path_to_key", path_to_key),
        ("values", values),
        ("list_options", list_options),
        ("names", names::check),
        ("helpers", names::check),
    ];
    let mut outcomes = Vec::new();
    for (file, check) in FILES {
        for row in rows(&dir.join(format!("{file}.jsonl")))? {
            let id = row["id"].as_str().context("row without id")?;
            let name = format!("{file}/{id}");
            let outcome = check(&row).with_context(|| name.clone())?;
            outcomes.push(Row { name, outcome });
        }
    }
    Ok(outcomes)
}

/// The recorded fields of these names; one that is missing is null.
fn recorded(row: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| ((*name).to_owned(), row[*name].clone())).collect()
}

fn kind_of(row: &Value) -> &str {
    row["kind"].as_str().unwrap_or_default()
}

fn key_to_path(row: &Value) -> anyhow::Result<Outcome> {
    let Some(key) = Parts(&row["key"]).key(kind_of(row)) else {
        // A key that our types cannot express is refused before there is a key.
        return Ok(expect("path", &Value::Null, &row["path"]));
    };
    let paths = key.delete_parent_paths();
    let mut ours = json!({
        "path": key.path().ok(),
        "error": key.path().err().map(|error| error.to_string()),
        "delete_path": key.delete_path().ok(),
        "delete_error": key.delete_path().err().map(|error| error.to_string()),
        "delete_parent_paths": paths.as_ref().ok().filter(|paths| !paths.is_empty()),
        "delete_parent_error": paths.as_ref().err().map(|error| error.to_string()),
        "string": key.to_string(),
    });
    let mut theirs = recorded(
        row,
        &[
            "path",
            "error",
            "delete_path",
            "delete_error",
            "delete_parent_paths",
            "delete_parent_error",
            "string",
        ],
    );
    for (field, refusal) in [
        ("error", key.path().err()),
        ("delete_error", key.delete_path().err()),
        ("delete_parent_error", paths.err()),
    ] {
        // Calico stops hard or says that it has not got that far; that both refuse is enough.
        if let (Some(KeyError::NotStored(_)), false) = (refusal, theirs[field].is_null()) {
            ours[field] = json!("refused");
            theirs[field] = json!("refused");
        }
    }
    let given = row["key"]["Kind"].as_str().unwrap_or_default();
    let other_case = matches!(&key, Key::Resource(key) if key.kind.name() != given);
    let no_affinity_type =
        matches!(key, Key::BlockAffinity(_)) && Parts(&row["key"]).text("AffinityType").is_empty();
    Ok(match expect("key", &ours, &theirs) {
        Outcome::Failed(_) if other_case => Outcome::Differs("kind-letter-case"),
        Outcome::Failed(_) if no_affinity_type && ours["path"] == theirs["path"] => {
            Outcome::Differs("affinity-type-printed")
        }
        outcome => outcome,
    })
}

fn path_to_key(row: &Value) -> anyhow::Result<Outcome> {
    let path = row["path"].as_str().context("row without path")?;
    let key = Key::parse(path);
    let legacy = matches!(key, Some(Key::LegacyPolicy { .. }));
    let mut ours = json!({"parse_ok": key.is_some(), "kind": null, "key": null, "string": null});
    if let Some(key) = &key {
        let (kind, parts) = describe(key);
        ours["kind"] = kind.into();
        ours["key"] = parts;
        ours["string"] = key.to_string().into();
        match legacy {
            true => {
                let (kind, parts) = describe(&key.clone().upgraded());
                ours["upgraded"] = json!({"kind": kind, "key": parts});
            }
            false => ours["path_again"] = key.path().ok().into(),
        }
    }
    let mut theirs = recorded(row, &["parse_ok", "kind", "key", "string"]);
    if theirs["key"].is_object() {
        theirs["key"] = without_empty(&theirs["key"]);
        match legacy {
            true => {
                theirs["upgraded"] = json!({
                    "kind": row["upgraded"]["kind"],
                    "key": without_empty(&row["upgraded"]["key"]),
                });
                // The corpus has no printed form of these.
                ours["string"] = theirs["string"].clone();
            }
            false => theirs["path_again"] = row["path_again"].clone(),
        }
    }
    // Calico writes these keys but cannot read them back with its general reader.
    let only_written = match &key {
        Some(Key::BlockAffinity(key)) => key.owner_type != AffinityType::Host,
        Some(key) => matches!(
            key,
            Key::IpamConfig
                | Key::IpamHost { .. }
                | Key::BgpNode { .. }
                | Key::OrchestratorRefs { .. }
        ),
        None => false,
    };
    Ok(match expect("path", &ours, &theirs) {
        Outcome::Failed(_) if only_written && row["parse_ok"] == false => {
            Outcome::Differs("reads-what-is-written")
        }
        outcome => outcome,
    })
}

fn values(row: &Value) -> anyhow::Result<Outcome> {
    let raw = row["raw"].as_str().context("row without raw")?;
    let key = Parts(&row["key"]).key(kind_of(row)).context("key that we cannot express")?;
    let read = value::parse_as_calico(&key, raw.as_bytes());
    let written = match &read {
        Ok(stored) => String::from_utf8(value::write(stored))?.into(),
        Err(_) => Value::Null,
    };
    let theirs = &row["value"];
    let outcome = expect("value", &written, theirs);
    let nil_network = theirs.as_str().is_some_and(|text| text.contains("\"\\u003cnil\\u003e\""));
    Ok(match (outcome, read) {
        (Outcome::Failed(_), Err(_)) if nil_network => Outcome::Differs("nil-network"),
        (Outcome::Failed(why), Err(error)) => Outcome::Failed(format!("{why}: {error}")),
        (outcome, _) => outcome,
    })
}

fn list_options(row: &Value) -> anyhow::Result<Outcome> {
    let kind = row["options"].as_str().context("row without options")?;
    let options = Parts(&row["fields"]).options(kind);
    let options = options.context("list options that we cannot express")?;
    if row["op"] == "list_root" {
        let ours = json!({
            "root": options.root(),
            "last_segment_is_prefix": options.root_is_name_prefix(),
        });
        let theirs = recorded(row, &["root", "last_segment_is_prefix"]);
        let broken = theirs["root"].as_str().is_some_and(|root| root.contains("%s"));
        return Ok(match expect("root", &ours, &theirs) {
            Outcome::Failed(_) if broken => Outcome::Differs("broken-list-prefix"),
            outcome => outcome,
        });
    }
    let path = row["path"].as_str().context("row without path")?;
    let ours = match options.read(path).as_ref().map(describe) {
        Some((kind, parts)) => json!({"match": true, "kind": kind, "key": parts}),
        None => json!({"match": false, "kind": null, "key": null}),
    };
    let mut theirs = recorded(row, &["match", "kind", "key"]);
    if theirs["key"].is_object() {
        theirs["key"] = without_empty(&theirs["key"]);
    }
    let outcome = expect("match", &ours, &theirs);
    if let (Outcome::Failed(_), ListOptions::Resource(list)) = (&outcome, &options)
        && list.kind.name() != Parts(&row["fields"]).text("Kind")
    {
        return Ok(Outcome::Differs("kind-letter-case"));
    }
    Ok(outcome)
}
