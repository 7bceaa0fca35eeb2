//! Whole stores made by our own `create`, and what our own `get` shows of them.

use std::path::Path;

use serde_json::Value;

use super::ctl::compare_stores;
use super::live::{Etcd, Masks, Program, finish};
use super::{Outcome, Row, rows};

/// The kinds whose `get` needs a word on namespaces.
const NAMESPACED: &[&str] = &[
    "networkpolicy",
    "networkset",
    "stagedkubernetesnetworkpolicy",
    "stagednetworkpolicy",
    "workloadendpoint",
];

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let folder = entry?.path();
        if folder.join("input.yaml").exists() && folder.join("get").is_dir() {
            folders.push(folder);
        }
    }
    folders.sort();
    if folders.is_empty() {
        return Ok(Vec::new());
    }
    let masks = Masks::read(&dir.join("../ctl/masks.json"))?;
    let program = Program::build()?;
    let mut all = Vec::new();
    for folder in folders {
        all.extend(one(&folder, &program, &masks)?);
    }
    Ok(all)
}

fn one(folder: &Path, program: &Program, masks: &Masks) -> anyhow::Result<Vec<Row>> {
    let etcd = Etcd::start()?;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let here = tempfile::tempdir()?;
    let input = folder.canonicalize()?.join("input.yaml");
    let mut create = program.command(here.path(), &etcd.endpoint);
    let made = finish(create.args(["create", "-f"]).arg(&input), "")?;
    let theirs = rows(&folder.join("dump.jsonl"))?;
    let field = |pair: &Value, name: &str| {
        masks.apply(pair.get(name).and_then(Value::as_str).unwrap_or_default())
    };
    let theirs: Vec<_> =
        theirs.iter().map(|pair| (field(pair, "key"), field(pair, "value"))).collect();
    let ours = etcd.dump()?;
    let ours: Vec<_> =
        ours.iter().map(|(key, value)| (masks.apply(key), masks.apply(value))).collect();
    let outcome = match compare_stores(&ours, &theirs) {
        Outcome::Failed(what) => Outcome::Failed(format!("{what} ({})", made.stderr)),
        outcome => outcome,
    };
    let mut all = vec![Row { name: format!("{name}/create"), outcome }];
    let mut shown: Vec<_> = std::fs::read_dir(folder.join("get"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    shown.sort();
    for file in shown {
        let kind = file.file_stem().map(|kind| kind.to_string_lossy().into_owned());
        let kind = kind.unwrap_or_default();
        let mut get = program.command(here.path(), &etcd.endpoint);
        get.args(["get", &kind, "-o", "yaml"]);
        if NAMESPACED.contains(&kind.as_str()) {
            get.arg("-A");
        }
        let answer = finish(&mut get, "")?;
        let (ours, theirs) = (answer.stdout, std::fs::read_to_string(&file)?);
        let outcome = super::expect("get", &masks.apply(&ours), &masks.apply(&theirs));
        all.push(Row { name: format!("{name}/get/{kind}"), outcome });
    }
    Ok(all)
}
