//! Runs of the real calicoctl, against our binary under that name and a real etcd.
//!
//! A row is a step of a scenario; one more row per scenario compares what is stored at its end.
//! A step that belongs to a command of a later version waits, and so does what differs after it
//! in the same scenario.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use serde_json::Value;

use super::live::{Answer, Etcd, Masks, Program, finish};
use super::{Outcome, Row};

/// Commands that calicoctl has and ours does not have yet.
const LATER: &str = "the commands node, cluster and datastore, and services of Kubernetes";

/// What is said where services of Kubernetes would be needed.
const SERVICES: &str = "the services of Kubernetes cannot be read by this version";

/// etcd waits for its disk more than for a processor.
const AT_A_TIME: usize = 4;

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let folder = dir.join("scenarios");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut files: Vec<_> = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    files.sort();
    let masks = Masks::read(&dir.join("masks.json"))?;
    let program = Program::build()?;
    let mut rows = commands(dir, &program)?;
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = scenario(file, &program, &masks)
                        .with_context(|| format!("in {}", file.display()));
                    done.lock().expect("no thread panics with the lock").push((file, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics with the lock");
    done.sort_by_key(|(file, _)| *file);
    for (_, result) in done {
        rows.extend(result?);
    }
    Ok(rows)
}

/// The help of every command of calicoctl: it is there, and names every flag.
fn commands(dir: &Path, program: &Program) -> anyhow::Result<Vec<Row>> {
    let file = dir.join("commands.json");
    if !file.exists() {
        return Ok(Vec::new());
    }
    let commands: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let folder = tempfile::tempdir()?;
    commands
        .iter()
        .map(|command| {
            let name = text(command, "command");
            let mut run = program.command(folder.path(), "http://127.0.0.1:1");
            run.args(name.split(' ').skip(1)).arg("--help");
            let answer = finish(&mut run, "")?;
            let exit = command.get("help_exit").and_then(Value::as_i64);
            let flags = command.get("flags").and_then(Value::as_array).into_iter().flatten();
            let missing = flags.map(|flag| format!("--{}", text(flag, "long")));
            let missing: Vec<String> =
                missing.filter(|flag| !answer.stdout.contains(flag)).collect();
            let outcome = if answer.exit != exit {
                Outcome::Failed(format!("exit {:?}, recorded {exit:?}", answer.exit))
            } else if missing.is_empty() {
                Outcome::Passed
            } else {
                Outcome::Failed(format!("--help does not name {}", missing.join(" ")))
            };
            Ok(Row { name: format!("commands.json/{name}"), outcome })
        })
        .collect()
}

fn scenario(file: &Path, program: &Program, masks: &Masks) -> anyhow::Result<Vec<Row>> {
    let scenario: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let etcd = Etcd::start()?;
    let folder = tempfile::tempdir()?;
    for pair in items(&scenario, "store") {
        etcd.put(text(pair, "key"), text(pair, "value"))?;
    }
    for (name, content) in fields(&scenario, "files") {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        let content = content.as_str().unwrap_or_default();
        std::fs::write(path, content.replace("{{ETCD}}", &etcd.endpoint))?;
    }
    let name = text(&scenario, "scenario");
    let mut rows = Vec::new();
    let mut aftermath = Aftermath::default();
    for step in items(&scenario, "steps") {
        let answer = perform(step, program, &etcd, folder.path())?;
        let outcome = judge(step, &answer, masks, has_unusable_values(&scenario));
        let outcome = aftermath.of_step(step, &answer, outcome);
        rows.push(Row { name: format!("{name}/{}", step_name(step)), outcome });
    }
    let outcome = aftermath.of(stored(&scenario, &etcd.dump()?, masks));
    rows.push(Row { name: format!("{name}/store_after"), outcome });
    Ok(rows)
}

/// What earlier steps of a scenario excuse in later ones, because these work on other data.
#[derive(Default)]
struct Aftermath {
    waits: bool,
    differs: Option<&'static str>,
}

impl Aftermath {
    fn of_step(&mut self, step: &Value, answer: &Answer, outcome: Outcome) -> Outcome {
        if answer.stderr.contains(SERVICES) && matches!(outcome, Outcome::Failed(_)) {
            return Outcome::Waits(LATER);
        }
        self.waits |= is_later(step);
        let refused = step.get("exit").and_then(Value::as_i64) != Some(0);
        if let (Outcome::Differs(class), Some(0), true) = (&outcome, answer.exit, refused) {
            self.differs = Some(class);
        }
        self.of(outcome)
    }

    fn of(&self, outcome: Outcome) -> Outcome {
        match (outcome, self.waits, self.differs) {
            (Outcome::Failed(_), true, _) => Outcome::Waits(LATER),
            (Outcome::Failed(_), false, Some(class)) => Outcome::Differs(class),
            (outcome, ..) => outcome,
        }
    }
}

/// Whether the scenario starts with stored values that are no JSON or of another kind than
/// their key says.
fn has_unusable_values(scenario: &Value) -> bool {
    items(scenario, "store").iter().any(|pair| {
        let mut parts = text(pair, "key").split('/').skip(2);
        let plural = match (parts.next(), parts.nth(2)) {
            (Some("resources"), Some(plural)) => plural,
            _ => return false,
        };
        let value = serde_json::from_str::<Value>(text(pair, "value")).unwrap_or_default();
        let kind: Option<api::Kind> = text(&value, "kind").parse().ok();
        kind.is_none_or(|kind| kind.plural() != plural)
    })
}

fn step_name(step: &Value) -> String {
    let id = step.get("id").map(|id| id.to_string().trim_matches('"').to_owned());
    let words: Vec<&str> = items(step, "argv").iter().filter_map(Value::as_str).collect();
    format!("{} ({})", id.unwrap_or_default(), words.join(" "))
}

fn perform(step: &Value, program: &Program, etcd: &Etcd, folder: &Path) -> anyhow::Result<Answer> {
    let mut command = program.command(folder, &etcd.endpoint);
    command.args(items(step, "argv").iter().filter_map(Value::as_str));
    for (name, value) in fields(step, "env") {
        match value.as_str() {
            Some(value) => command.env(name, value.replace("{{ETCD}}", &etcd.endpoint)),
            None => command.env_remove(name),
        };
    }
    let mut answer = finish(&mut command, text(step, "stdin"))?;
    answer.stdout = answer.stdout.replace(&etcd.endpoint, "{{ETCD}}");
    answer.stderr = answer.stderr.replace(&etcd.endpoint, "{{ETCD}}");
    Ok(answer)
}

/// Whether the step calls a command that waits.
fn is_later(step: &Value) -> bool {
    let words: Vec<&str> = items(step, "argv").iter().filter_map(Value::as_str).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.starts_with('-')).collect();
    matches!(words.as_slice(), ["node" | "cluster" | "datastore", _, ..])
}

fn judge(step: &Value, answer: &Answer, masks: &Masks, unusable: bool) -> Outcome {
    let is = |field: &str| step.get(field).is_some_and(|value| value != &Value::Bool(false));
    let exit = step.get("exit").and_then(Value::as_i64);
    let crashed = answer.exit.is_none() || answer.stderr.contains("panicked at");
    if is("panic") {
        return match crashed {
            false => Outcome::Differs("go-crash"),
            true => Outcome::Failed(format!("it crashes: {}", answer.stderr)),
        };
    }
    if answer.exit != exit {
        let Answer { exit: ours, stdout, stderr } = answer;
        let text = format!("exit {ours:?}, recorded {exit:?}: {stdout:?} {stderr:?}");
        return classified(step, answer, unusable).unwrap_or(Outcome::Failed(text));
    }
    if is("help") {
        return match answer.stdout.contains("Usage: calicoctl") {
            true => Outcome::Passed,
            false => Outcome::Failed(format!("no help: {:?}", answer.stdout)),
        };
    }
    let unstable = step.get("unstable");
    if unstable == Some(&Value::Bool(true)) {
        return Outcome::Passed;
    }
    let form = |text: &str| match unstable {
        Some(_) => words_in_order(&masks.apply(text)),
        None => masks.apply(text),
    };
    let recorded = text(step, "stderr");
    let once = halved(recorded).unwrap_or(recorded);
    let same_out = form(&answer.stdout) == form(text(step, "stdout"));
    if !same_out || form(&answer.stderr) != form(once) {
        let what = difference(step, answer, &form, once);
        return classified(step, answer, unusable).unwrap_or(Outcome::Failed(what));
    }
    match once.len() == recorded.len() {
        true => Outcome::Passed,
        false => Outcome::Differs("error-printed-twice"),
    }
}

fn difference(
    step: &Value,
    answer: &Answer,
    form: &dyn Fn(&str) -> String,
    stderr: &str,
) -> String {
    let mut text_of_it = String::new();
    for (name, ours, theirs) in [
        ("stdout", answer.stdout.as_str(), text(step, "stdout")),
        ("stderr", answer.stderr.as_str(), stderr),
    ] {
        let (ours, theirs) = (form(ours), form(theirs));
        if ours != theirs {
            text_of_it.push_str(&format!("{name}: ours {ours:?}, recorded {theirs:?} "));
        }
    }
    text_of_it
}

/// The class of deliberate differences that a step belongs to, if any.
fn classified(step: &Value, answer: &Answer, unusable: bool) -> Option<Outcome> {
    let (stdout, stderr) = (text(step, "stdout"), text(step, "stderr"));
    let once = halved(stderr).unwrap_or(stderr);
    let same_exit = answer.exit == step.get("exit").and_then(Value::as_i64);
    let class = if same_exit && is_our_version(answer, stdout, once) {
        "our-version"
    } else if same_exit && stdout.contains("(0x") {
        "memory-address"
    } else if same_exit && (once.contains("&{{") || once.contains("{0x")) {
        "go-struct-in-message"
    } else if same_exit
        && (library_words(&answer.stderr, once) || library_words(&answer.stdout, stdout))
    {
        "go-library-words"
    } else if once.contains("ApplyInjectionDetection") {
        "template-injection-check"
    } else if once.contains("found invalid Unicode character escape code") {
        "surrogate-pairs"
    } else if stdout.contains("no configuration has been provided") {
        "embedded-store-by-default"
    } else if unusable && names_unusable_value(answer) {
        "unusable-value"
    } else {
        return None;
    };
    Some(Outcome::Differs(class))
}

fn is_our_version(answer: &Answer, stdout: &str, stderr: &str) -> bool {
    let without_version = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("Git commit:"));
        lines.map(|line| line.split("Client Version:").next().unwrap_or(line).to_owned()).collect()
    };
    [stdout, stderr].iter().any(|text| text.contains("Client Version:"))
        && without_version(&answer.stdout) == without_version(stdout)
        && without_version(&answer.stderr) == without_version(stderr)
}

/// Whether both say the same up to the point where a Go library begins to speak.
fn library_words(ours: &str, theirs: &str) -> bool {
    ["error converting YAML to JSON: yaml: ", "invalid character '"].iter().any(|library| {
        theirs.find(library).is_some_and(|at| at > 0 && ours.get(..at) == theirs.get(..at))
    })
}

fn names_unusable_value(answer: &Answer) -> bool {
    answer.stderr.contains("warning: /calico/")
        || answer.stderr.contains("failed to parse datastore entry key=/calico/")
}

fn words_in_order(text: &str) -> String {
    let mut words: Vec<&str> =
        text.split([' ', ',', '\n']).filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    words.join(" ")
}

/// One half of a text that says everything twice.
fn halved(text: &str) -> Option<&str> {
    let (first, second) = text.split_at_checked(text.len() / 2)?;
    (!first.is_empty() && first == second).then_some(first)
}

fn stored(scenario: &Value, ours: &[(String, String)], masks: &Masks) -> Outcome {
    let stable = scenario.get("store_after_stable").and_then(Value::as_bool).unwrap_or(true);
    let form = |key: &str, value: &str| {
        let value = if stable { masks.apply(value) } else { String::new() };
        (masks.apply(key), value)
    };
    let ours: Vec<_> = ours.iter().map(|(key, value)| form(key, value)).collect();
    let theirs = items(scenario, "store_after").iter();
    let theirs: Vec<_> = theirs.map(|pair| form(text(pair, "key"), text(pair, "value"))).collect();
    compare_stores(&ours, &theirs)
}

/// Names the first keys that differ.
pub(crate) fn compare_stores(ours: &[(String, String)], theirs: &[(String, String)]) -> Outcome {
    if ours == theirs {
        return Outcome::Passed;
    }
    let mut what = Vec::new();
    for (key, value) in ours {
        match theirs.iter().find(|(other, _)| other == key) {
            None => what.push(format!("{key} is ours only: {value}")),
            Some((_, other)) if other != value => {
                what.push(format!("{key}: ours {value}, recorded {other}"));
            }
            Some(_) => {}
        }
    }
    for (key, _) in theirs {
        if !ours.iter().any(|(other, _)| other == key) {
            what.push(format!("{key} is missing"));
        }
    }
    Outcome::Failed(what.join("; "))
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn fields<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    value.get(field).and_then(Value::as_object).into_iter().flatten()
}
