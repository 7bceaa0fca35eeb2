//! Damaged stores of addresses: what the real calicoctl says about them, and ours.
//!
//! A row is a run on one store. What the real program prints in random order is sorted on both
//! sides. After its runs each store is judged once more by `margay`: what is wrong is named, and
//! repairing it lets nothing go that an endpoint has.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use serde_json::Value;

use super::live::{Answer, Etcd, Program, finish};
use super::{Outcome, Row, rows};

const AT_A_TIME: usize = 4;
/// A file that is there; nothing is read from it while no load balancers are configured.
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\n";

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let stores = rows(&dir.join("stores.jsonl"))?;
    if stores.is_empty() {
        return Ok(Vec::new());
    }
    let program = Program::build()?;
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(store) = stores.get(at) else { break };
                    let result = all_runs(store, &program).with_context(|| id(store).to_owned());
                    done.lock().expect("no thread panics with the lock").insert(at, result);
                }
            });
        }
    });
    let done = done.into_inner().expect("no thread panics with the lock");
    let all: Vec<Vec<Row>> = done.into_values().collect::<anyhow::Result<_>>()?;
    Ok(all.into_iter().flatten().collect())
}

fn id(store: &Value) -> &str {
    store["id"].as_str().unwrap_or_default()
}

fn all_runs(store: &Value, program: &Program) -> anyhow::Result<Vec<Row>> {
    let etcd = Etcd::start()?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("kubeconfig"), KUBECONFIG)?;
    for pair in store["store"].as_array().into_iter().flatten() {
        etcd.put(text(&pair[0]), text(&pair[1]))?;
    }
    let mut all = Vec::new();
    let ours = by_margay(store, program, &etcd, folder.path())?;
    all.push(Row { name: format!("{} (margay ipam check)", id(store)), outcome: ours });
    // Once we differ in what we let go, everything after it works on other data.
    let mut differs = None;
    for run in store["runs"].as_array().into_iter().flatten() {
        let words: Vec<&str> = run["args"].as_array().into_iter().flatten().map(text).collect();
        let before = etcd.dump()?;
        let mut command = program.command(folder.path(), &etcd.endpoint);
        command.env("KUBECONFIG", "kubeconfig").args(&words).arg("--allow-version-mismatch");
        let answer = finish(&mut command, "")?;
        let report = std::fs::read_to_string(folder.path().join("report.json")).ok();
        let after = etcd.dump()?;
        let mut outcome = judge(store, run, &answer, report.as_deref());
        if matches!(outcome, Outcome::Passed) && words.contains(&"release") {
            outcome = changes(run, &before, &after);
        }
        if let Outcome::Differs(class) = outcome {
            differs = differs.or(Some(class).filter(|it| *it != "error-printed-twice"));
        }
        let outcome = match (outcome, differs) {
            (Outcome::Failed(_), Some(class)) if words.contains(&"release") => {
                Outcome::Differs(class)
            }
            (outcome, _) => outcome,
        };
        all.push(Row { name: format!("{} ({})", id(store), words.join(" ")), outcome });
    }
    Ok(all)
}

/// What is wrong has a name, and mending it frees no address that an endpoint has.
fn by_margay(
    store: &Value,
    program: &Program,
    etcd: &Etcd,
    folder: &Path,
) -> anyhow::Result<Outcome> {
    let mut command = program.command(folder, &etcd.endpoint);
    let binary = program.binary()?;
    let mut ours = std::process::Command::new(binary);
    ours.current_dir(folder).env_clear();
    for (name, value) in command.get_envs() {
        ours.env(name, value.unwrap_or_default());
    }
    command.env_clear();
    ours.env("MARGAY_STATE_DIR", folder.join("state"));
    ours.args(["ipam", "check", "-o", "json"]);
    let answer = finish(&mut ours, "")?;
    let found: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
    let problems = found["problems"].as_array().map_or(0, Vec::len);
    // A datastore that is locked, or that nobody has set up, is no matter of addresses; an address
    // lent to another node is in order, and so is what Windows keeps.
    let is_sound = ["bad-healthy", "bad-windows-reserved"].contains(&id(store))
        || id(store) == "bad-no-cluster-information";
    let crashed = answer.exit.is_none() || answer.stderr.contains("panicked");
    Ok(match (is_sound, problems, answer.exit) {
        _ if crashed => Outcome::Failed(format!("it crashes: {}", answer.stderr)),
        (true, 0, Some(0)) | (false, 1.., Some(1 | 2)) => Outcome::Passed,
        (_, n, exit) => Outcome::Failed(format!(
            "{n} problems, exit {exit:?}: {} {}",
            answer.stdout, answer.stderr
        )),
    })
}

fn judge(store: &Value, run: &Value, answer: &Answer, report: Option<&str>) -> Outcome {
    let stderr = text(&run["stderr"]);
    let crashed = answer.exit.is_none() || answer.stderr.contains("panicked at");
    if stderr.contains("(stack left out)") {
        return match crashed {
            false => Outcome::Differs("go-crash"),
            true => Outcome::Failed(format!("it crashes: {}", answer.stderr)),
        };
    }
    let class = class_of(store, run, answer);
    let differs = |what: String| class.map_or(Outcome::Failed(what), Outcome::Differs);
    let (ours, theirs) = (sorted(&answer.stdout), sorted(text(&run["stdout"])));
    if answer.exit != run["exit"].as_i64() || ours != theirs {
        let exits = format!("exit {:?}, recorded {}", answer.exit, run["exit"]);
        return differs(format!("{exits}: {}", first_difference(&ours, &theirs)));
    }
    let words: Vec<&str> = run["args"].as_array().into_iter().flatten().map(text).collect();
    if let (Some(theirs), true) = (run["report"].as_str(), words.contains(&"-o")) {
        let (ours, theirs) = (masked_report(report.unwrap_or_default()), masked_report(theirs));
        if ours != theirs {
            return differs(format!("the report: ours {ours}, recorded {theirs}"));
        }
    }
    let warned = answer.stderr.lines().filter(|line| !line.starts_with("warning: /calico/"));
    let once = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.dedup();
        lines
    };
    let ours: Vec<String> = warned.map(str::to_owned).collect();
    match (ours == once(stderr), stderr.lines().count() == ours.len()) {
        (true, true) => Outcome::Passed,
        (true, false) => Outcome::Differs("error-printed-twice"),
        (false, _) => differs(format!("stderr: ours {:?}, recorded {stderr:?}", answer.stderr)),
    }
}

/// The class of deliberate differences that a run belongs to, if any.
fn class_of(store: &Value, run: &Value, answer: &Answer) -> Option<&'static str> {
    let words: Vec<&str> = run["args"].as_array().into_iter().flatten().map(text).collect();
    let blocks = store["store"].as_array().into_iter().flatten();
    let blocks: Vec<&str> = blocks
        .filter(|pair| text(&pair[0]).contains("/assignment/"))
        .map(|pair| text(&pair[1]))
        .collect();
    let is_strange = |block: &&str| {
        let block: Value = serde_json::from_str(block).unwrap_or_default();
        let handles = block["attributes"].as_array().into_iter().flatten();
        let mut handles = handles.filter_map(|it| it["handle_id"].as_str());
        handles.any(|it| it.contains('\r') || it.chars().any(char::is_uppercase))
    };
    let has_windows = blocks.iter().any(|block| block.contains("windows-reserved"));
    if words.contains(&"show") && answer.stderr.contains("is left out") {
        Some("damaged-block")
    } else if answer.stderr.contains("is left out") {
        Some("unusable-value")
    } else if blocks.iter().any(is_strange) || has_windows {
        Some("live-is-not-leaked")
    } else {
        None
    }
}

/// What a release changed.
fn changes(run: &Value, before: &[(String, String)], after: &[(String, String)]) -> Outcome {
    let changed = after.iter().filter(|pair| !before.contains(pair));
    let ours = changed.map(|(key, value)| (key.clone(), Some(value.clone())));
    let is_gone = |key: &String| !after.iter().any(|(other, _)| other == key);
    let gone = before.iter().filter(|(key, _)| is_gone(key)).map(|(key, _)| (key.clone(), None));
    let mask = |value: &Option<String>| {
        let mut value: Value = serde_json::from_str(value.as_deref()?).ok()?;
        value["sequenceNumber"] = Value::Null;
        value["sequenceNumberForAllocation"] = Value::Null;
        Some(value)
    };
    let ours: BTreeMap<String, _> = ours.chain(gone).map(|(key, it)| (key, mask(&it))).collect();
    let theirs: BTreeMap<String, _> = run["store_changes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|pair| (text(&pair[0]).to_owned(), mask(&pair[1].as_str().map(str::to_owned))))
        .collect();
    super::expect("changes of the store", &ours, &theirs)
}

/// Lines that come in random order (those that are indented, one after the other) in order.
fn sorted(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let is_listed = |line: &&str| line.starts_with("  ");
    let mut all = Vec::new();
    for run in lines.chunk_by(|one, two| is_listed(one) && is_listed(two)) {
        let mut run: Vec<String> = run.iter().map(|line| (*line).to_owned()).collect();
        run.sort();
        all.extend(run);
    }
    all
}

fn first_difference(ours: &[String], theirs: &[String]) -> String {
    let pairs = ours.iter().zip(theirs).find(|(one, two)| one != two);
    match pairs {
        Some((one, two)) => format!("ours {one:?}, recorded {two:?}"),
        None => format!("ours has {} lines, recorded {}", ours.len(), theirs.len()),
    }
}

fn masked_report(text: &str) -> Value {
    let mut report: Value = serde_json::from_str(text).unwrap_or_default();
    if report.is_object() {
        report["version"] = Value::Null;
        report["clusterInformationRevision"] = Value::Null;
    }
    if let Some(handles) = report["leakedHandles"].as_array_mut() {
        for handle in handles.iter_mut() {
            handle["Revision"] = Value::Null;
        }
        handles.sort_by_key(|handle| handle["ID"].to_string());
    }
    report
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
