//! Calls of the real CNI plugin and address manager, against our binary under their names.
//!
//! A chain of calls has a host of its own: a network and a mount namespace in which this program
//! runs once more (`chain`), with a real etcd inside. It reports what it saw, one line a call;
//! [`judge`] compares that with the recording.

mod chain;
mod classes;
mod judge;
mod ledger;
mod state;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::live::{self, Program};
use super::{Outcome, Row};

pub(crate) use chain::command as chain_command;

/// What the hidden command is called that runs one chain in namespaces of its own.
pub(crate) const CHAIN: &str = "cni-chain";

/// More than processors: etcd and the kernel are waited for.
const AT_A_TIME: usize = 4;

/// Where Debian keeps the plugins that are not ours.
const OTHER_PLUGINS: &str = "/usr/lib/cni";

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let file = dir.join("invocations.jsonl");
    let rows = super::rows(&file)?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(why) = unable() {
        println!("cni: skipped, {why}");
        return Ok(Vec::new());
    }
    let program = Program::build()?;
    let mut chains: Vec<&str> = rows.iter().map(|row| text(row, "chain")).collect();
    chains.dedup();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(name) = chains.get(at) else { break };
                    let recorded: Vec<&Value> =
                        rows.iter().filter(|row| text(row, "chain") == *name).collect();
                    let result = one_chain(&file, name, &recorded, &program)
                        .with_context(|| format!("in the chain {name}"));
                    done.lock().expect("no thread panics with the lock").push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics with the lock");
    done.sort_by_key(|(at, _)| *at);
    let mut judged = Vec::new();
    for (_, result) in done {
        judged.extend(result?);
    }
    Ok(judged)
}

/// Why the calls cannot be made here.
fn unable() -> Option<String> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    if !is_root {
        return Some("namespaces need root".to_owned());
    }
    let plugin = Path::new(OTHER_PLUGINS).join("host-local");
    if !plugin.is_file() {
        return Some(format!("no {} (containernetworking-plugins)", plugin.display()));
    }
    ["etcd", "etcdctl", "ip", "unshare"]
        .into_iter()
        .find(|program| !crate::verify::is_installed(program))
        .map(|program| format!("no {program}"))
}

fn one_chain(
    file: &Path,
    name: &str,
    recorded: &[&Value],
    program: &Program,
) -> anyhow::Result<Vec<Row>> {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--propagation", "private", "--"]);
    command.arg(std::env::current_exe()?).arg(CHAIN).arg(file).arg(name);
    command.arg(program.binary()?).stdin(Stdio::null());
    let output = live::finish(&mut command, "")?;
    ensure!(output.exit == Some(0), "{}", output.stderr);
    let seen: Vec<Value> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).context("what a chain reports"))
        .collect::<anyhow::Result<_>>()?;
    ensure!(seen.len() == recorded.len(), "{} calls reported: {}", seen.len(), output.stderr);
    let mut aftermath: Option<&'static str> = None;
    let mut ledger = ledger::Ledger::new(recorded[0]);
    let rows = recorded.iter().zip(&seen).enumerate().map(|(at, (row, seen))| {
        let wrong = ledger.enter(row, seen);
        let outcome = match judge::judge(row, seen, &recorded[..at], aftermath) {
            judge::Verdict { outcome, leaves_other_state: Some(class) } => {
                aftermath = aftermath.or(Some(class));
                outcome
            }
            verdict => verdict.outcome,
        };
        // What is as recorded is right by that; what is not must be right by itself.
        let outcome = match outcome {
            Outcome::Differs(class) if !wrong.is_empty() => {
                Outcome::Failed(format!("differs as {class}, but {}", wrong.join("; ")))
            }
            other => other,
        };
        Row { name: text(row, "id").to_owned(), outcome }
    });
    Ok(rows.collect())
}

/// A text field; empty when it is missing.
fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list; none when it is missing.
fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
