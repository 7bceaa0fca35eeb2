//! What real programs put into a store, against what our client puts into one.
//!
//! Each input is given to the client on an empty embedded store; then the stores are compared key
//! by key and value by value, byte for byte, after masking what differs from run to run.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use api::Kind;
use api::schema::{Mode, decode, object_for};
use serde_json::Value;
use store::Store;
use store::resources::{Manner, Resources, Verb};

use super::{Outcome, Row, expect, rows};

type Contents = BTreeMap<String, String>;

/// Topic `etcd-dump`: whole stores.
pub(crate) fn dumps(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let mut outcomes = Vec::new();
    for folder in ["objects", "full", "policies", "singletons", "init-only"] {
        let recorded = dump_of(&dir.join(folder))?;
        if recorded.is_empty() {
            continue;
        }
        let fresh = Fresh::new()?;
        fresh.client.initialise()?;
        let input = dir.join(folder).join("input.yaml");
        if input.exists() {
            for object in objects_in(&std::fs::read(&input)?)? {
                let name = format!("client:{folder}/input.yaml");
                if let Err(why) = fresh.give(Verb::Create, &object) {
                    let object = &object["metadata"]["name"];
                    let outcome = Outcome::Failed(format!("{object} was refused: {why}"));
                    outcomes.push(Row { name, outcome });
                }
            }
        }
        for (index, row) in rows(&dir.join(folder).join("input.jsonl"))?.iter().enumerate() {
            let name = format!("client:{folder}/input.jsonl:{}", index + 1);
            outcomes.push(Row { name, outcome: fresh.answer(row)? });
        }
        outcomes.extend(compare(folder, &fresh.contents()?, &recorded));
    }
    Ok(outcomes)
}

/// Topic `defaults`: one object at a time.
pub(crate) fn creates(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let mut outcomes = Vec::new();
    for (index, row) in rows(&dir.join("create.jsonl"))?.iter().enumerate() {
        let name = format!("client:create.jsonl:{}", index + 1);
        let outcome = create(row).with_context(|| name.clone())?;
        outcomes.push(Row { name, outcome });
    }
    Ok(outcomes)
}

fn create(row: &Value) -> anyhow::Result<Outcome> {
    let fresh = Fresh::new()?;
    if row["action"] == "initialise" {
        fresh.client.initialise()?;
        return Ok(same(&masked_values(&fresh.contents()?)?, row));
    }
    fresh.client.initialise()?;
    for object in row["setup"].as_array().into_iter().flatten() {
        if let Err(why) = fresh.give(Verb::Create, object) {
            return Ok(Outcome::Failed(format!("setup was refused: {why}")));
        }
    }
    let before = fresh.contents()?;
    let verb = if row["action"] == "apply" { Verb::Apply } else { Verb::Create };
    let result = fresh.give(verb, &row["in"]);
    match (result, row["ok"] == true) {
        (Ok(()), true) => {
            let mut after = fresh.contents()?;
            after.retain(|key, value| before.get(key) != Some(value));
            Ok(same(&masked_values(&after)?, row))
        }
        (Err(_), false) => Ok(Outcome::Passed),
        (Ok(()), false) => Ok(Outcome::Failed(format!("accepted; recorded {}", row["error"]))),
        (Err(why), true) => Ok(Outcome::Failed(format!("refused: {why}"))),
    }
}

fn same(ours: &BTreeMap<String, Value>, row: &Value) -> Outcome {
    let theirs: BTreeMap<String, Value> = row["stored"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    expect("stored", ours, &theirs)
}

fn masked_values(contents: &Contents) -> anyhow::Result<BTreeMap<String, Value>> {
    let parse = |text: &String| serde_json::from_str(&mask(text)).context("stored JSON");
    contents.iter().map(|(key, text)| Ok((key.clone(), parse(text)?))).collect()
}

/// A client on a store of its own.
struct Fresh {
    client: Resources,
    _folder: tempfile::TempDir,
}

impl Fresh {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = Store::Sqlite(store::sqlite::Store::open(folder.path().join("store"))?);
        let manner = Manner { rewrite_unchanged: true, ..Manner::default() };
        Ok(Self { client: Resources::new(store, manner), _folder: folder })
    }

    fn give(&self, verb: Verb, object: &Value) -> Result<(), String> {
        let kind: Kind = object["kind"]
            .as_str()
            .unwrap_or_default()
            .parse()
            .map_err(|error: api::UnknownKind| error.to_string())?;
        let (object, problems) = decode(object_for(kind), object.clone(), Mode::User);
        if let Some(problem) = problems.first() {
            return Err(problem.to_string());
        }
        self.client.write(verb, &object).map(drop).map_err(|error| error.calico())
    }

    fn answer(&self, row: &Value) -> anyhow::Result<Outcome> {
        let verb = match row["verb"].as_str() {
            Some("create") => Verb::Create,
            Some("replace") => Verb::Update,
            _ => Verb::Apply,
        };
        let is_accepted = row["exit"] == 0;
        Ok(match self.give(verb, &row["object"]) {
            Ok(()) if is_accepted => Outcome::Passed,
            Ok(()) => Outcome::Failed(format!("accepted; recorded {}", row["stderr"])),
            Err(why) if is_accepted => Outcome::Failed(format!("refused: {why}")),
            Err(why) => {
                let told = row["stderr"].as_str().unwrap_or_default();
                match told.contains(&why) {
                    true => Outcome::Passed,
                    false => Outcome::Failed(format!("ours {why}, recorded {told}")),
                }
            }
        })
    }

    fn contents(&self) -> anyhow::Result<Contents> {
        let entries = self.client.store().list("/calico/")?.entries;
        entries.into_iter().map(|it| Ok((it.key, String::from_utf8(it.value)?))).collect()
    }
}

fn objects_in(file: &[u8]) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in text::yaml::documents(file) {
        let document = document.map_err(|error| anyhow::anyhow!("{error}"))?;
        if document.emptiness.is_none() {
            objects.push(document.value);
        }
    }
    Ok(objects)
}

fn dump_of(folder: &Path) -> anyhow::Result<Contents> {
    let text = |row: &Value, field: &str| row[field].as_str().map(str::to_owned);
    rows(&folder.join("dump.jsonl"))?
        .iter()
        .map(|row| Ok((text(row, "key").context("key")?, text(row, "value").context("value")?)))
        .collect()
}

fn compare(folder: &str, ours: &Contents, theirs: &Contents) -> Vec<Row> {
    let keys: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let row = |key: &&String| Row {
        name: format!("client:{folder}{key}"),
        outcome: match (ours.get(*key), theirs.get(*key)) {
            (Some(ours), Some(theirs)) => expect("value", &mask(ours), &mask(theirs)),
            (Some(_), None) => Outcome::Failed("only in our store".to_owned()),
            _ => Outcome::Failed("missing in our store".to_owned()),
        },
    };
    keys.iter().map(row).collect()
}

/// Hides what differs from run to run and nothing else.
fn mask(text: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    let marks = [
        ("/metadata/uid", "<uid>"),
        ("/metadata/creationTimestamp", "<time>"),
        ("/spec/clusterGUID", "<guid>"),
    ];
    marks.iter().fold(text.to_owned(), |text, (path, mark)| {
        match value.pointer(path).and_then(Value::as_str) {
            Some(found) if !found.is_empty() => {
                text.replace(&format!("\"{found}\""), &format!("\"{mark}\""))
            }
            _ => text,
        }
    })
}
