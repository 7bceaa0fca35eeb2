//! What the node keeps on disk cannot be written, or something else stands in its place.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use rustix::fs::{CWD, Mode};
use serde_json::{Value, json};

use crate::node::{Node, may_run, until};
use crate::outage::{codes, events, refusal, status};

fn finding(node: &Node, code: &str) -> Value {
    let status = status(node);
    let mut findings = status["findings"].as_array().into_iter().flatten();
    findings.find(|it| it["code"] == code).cloned().unwrap_or_default()
}

/// A process that must come to an end.
fn ended(mut child: Child, what: &str) -> Output {
    let ends = std::cell::RefCell::new(&mut child);
    until(what, || ends.borrow_mut().try_wait().unwrap().is_some());
    child.wait_with_output().unwrap()
}

/// What an agent says that cannot start.
fn refused_agent(node: &Node) -> String {
    let mut agent = node.margay(&["agent", "--node", "n1"]);
    let agent = agent.stderr(Stdio::piped()).spawn().unwrap();
    let refused = ended(agent, "an agent is refused");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    String::from_utf8(refused.stderr).unwrap()
}

fn pipe(path: &Path) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    rustix::fs::mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
    path.to_owned()
}

fn link_to_itself(path: &Path) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(path, path).unwrap();
    path.to_owned()
}

fn full_folder(path: &Path) -> PathBuf {
    fs::create_dir_all(path.join("x")).unwrap();
    path.to_owned()
}

#[test]
fn a_disk_that_is_full_or_read_only_is_a_finding_until_it_is_mended() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    let state = node.path("state");
    let place = state.display();
    node.start_agent_after(&format!(
        "mkdir -p {place}; mount -t tmpfs -o size=1m,nr_inodes=100 tmpfs {place};"
    ));
    until("the agent answers", || status(&node)["status"] == "fine");
    // The agent has mounts of its own.
    let seen = PathBuf::from(format!("/proc/{}/root{place}", node.supervisor()));
    let within = |words: &[&str]| {
        let target = format!("--target={}", node.supervisor());
        let done = node.inside("host", "nsenter", &[&[&target, "--mount"], words].concat());
        let done = { done }.output().unwrap();
        assert!(done.status.success(), "{words:?}: {done:?}");
    };

    let mut filler = fs::File::create(seen.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    until("the finding", || codes(&node).contains("MG-STATE-002"));
    let said = finding(&node, "MG-STATE-002");
    assert_eq!(said["severity"], "broken");
    let problem = said["problem"].as_str().unwrap();
    assert!(problem.contains("state/sandboxes cannot be written to: no space left"), "{said}");
    assert!(said["fix"].as_str().unwrap().starts_with("df -h "), "{said}");
    let refused = refusal(node.call("ADD", "first", 0, ""));
    assert!(refused["msg"].as_str().unwrap().contains("No space left"), "{refused}");
    let refused = refusal(node.call("STATUS", "first", 0, ""));
    assert_eq!(refused["code"], 50, "{refused}");
    // What happens meanwhile is not forgotten.
    assert!(events(&node, "failed").contains("no space left"), "{}", events(&node, "n1"));
    drop(filler);
    fs::remove_file(seen.join("filler")).unwrap();
    until("it is over", || status(&node)["status"] == "fine");
    let told = events(&node, "mended");
    assert!(told.contains("it is over that ") && told.contains("no space left"), "{told}");
    let written = fs::read_to_string(seen.join("events.jsonl")).unwrap();
    assert!(written.contains("No space left"), "{written}");
    node.must("STATUS", "first", 0);
    node.must("ADD", "first", 0);

    let path = state.to_str().unwrap();
    within(&["mount", "-o", "remount,ro", path]);
    until("the finding", || {
        finding(&node, "MG-STATE-002")["problem"].to_string().contains("read-only")
    });
    let said = finding(&node, "MG-STATE-002");
    assert!(said["fix"].as_str().unwrap().starts_with("mount -o remount,rw "), "{said}");
    within(&["mount", "-o", "remount,rw", path]);
    until("it is over", || status(&node)["status"] == "fine");

    // Whoever removes the folder takes nothing away that the agent knows.
    fs::remove_dir_all(seen.join("sandboxes")).unwrap();
    until("the folder is back", || seen.join("sandboxes").is_dir());
    until("its records too", || fs::read_dir(seen.join("sandboxes")).unwrap().count() == 1);
    assert!(events(&node, "repaired").contains("its records are written anew"));
    node.must("DEL", "first", 0);
    node.assert_empty();
}

#[test]
fn nothing_that_stands_in_the_place_of_a_file_holds_the_agent_up() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    pipe(&node.path("state/known.json"));
    pipe(&node.path("state/known.new"));
    pipe(&node.path("state/sandboxes/a.json"));
    link_to_itself(&node.path("state/sandboxes/b.json"));
    full_folder(&node.path("state/sandboxes/c.json"));
    pipe(&node.path("run/tickets/d.json"));
    let events_file = pipe(&node.path("state/events.jsonl"));
    for path in ["run/supervisor.lock", "run/dataplane.lock", "run/agent.sock"] {
        let path = full_folder(&node.path(path));
        let told = refused_agent(&node);
        let said = format!("{}: a folder stands there instead of a file", path.display());
        assert!(told.contains(&said), "{told}");
        fs::remove_dir_all(&path).unwrap();
    }
    fs::remove_file(node.path("run/supervisor.lock")).unwrap();
    let lock = pipe(&node.path("run/supervisor.lock"));
    let told = refused_agent(&node);
    assert!(told.contains("supervisor.lock: a named pipe stands there"), "{told}");
    fs::remove_file(lock).unwrap();
    pipe(&node.path("run/agent.sock"));

    node.start_agent();
    until("the agent says what is wrong", || codes(&node).contains("MG-STATE-002"));
    let said = finding(&node, "MG-STATE-002")["problem"].to_string();
    assert!(
        said.contains("events.jsonl cannot be written to: a named pipe stands there"),
        "{said}"
    );
    let told = status(&node)["findings"].to_string();
    for aside in ["known", "sandboxes/a", "sandboxes/b", "sandboxes/c", "tickets/d"] {
        let aside = node.path(if aside.starts_with('t') { "run" } else { "state" }).join(aside);
        let aside = aside.with_extension("unreadable");
        assert!(told.contains(&format!("{}: ", aside.display())), "{aside:?}: {told}");
        assert!(fs::symlink_metadata(&aside).is_ok(), "{aside:?}");
        let _ = fs::remove_file(&aside).or_else(|_| fs::remove_dir_all(&aside));
    }
    assert_eq!(status(&node)["status"], "degraded");
    node.must("STATUS", "first", 0);
    node.must("ADD", "first", 0);
    fs::remove_file(&events_file).unwrap();
    until("nothing is wrong any more", || status(&node)["status"] == "fine");
    assert!(events(&node, "added").contains("first eth0"), "it was kept until it could be written");
    assert!(events_file.is_file());
    node.must("DEL", "first", 0);
    node.assert_empty();
}

#[test]
fn nothing_that_stands_in_the_place_of_a_file_holds_a_plugin_up() {
    if !may_run() {
        return;
    }
    let node = Node::new(1);
    let lock = pipe(&node.path("state/lock"));
    let refused = ended(node.call("ADD", "first", 0, ""), "a pipe in place of the lock");
    let told: Value = serde_json::from_slice(&refused.stdout).unwrap();
    let said = format!("{}: a named pipe stands there instead of a file", lock.display());
    assert!(told["msg"].as_str().unwrap().contains(&said), "{told}");
    fs::remove_file(&lock).unwrap();
    let name = pipe(&node.path("nodename"));
    let mut configuration = node.configuration();
    configuration["nodename_file"] = json!(name);
    configuration["nodename_file_optional"] = json!(false);
    let call = node.call_with("ADD", "first", 0, &configuration);
    let refused = ended(call, "a pipe in place of the node's name");
    let told = String::from_utf8(refused.stdout).unwrap();
    assert!(
        told.contains(&format!("stat {}: a named pipe stands there", name.display())),
        "{told}"
    );
    pipe(&node.path("state/events.jsonl"));
    pipe(&node.path("state/sandboxes/a.json"));
    link_to_itself(&node.path("state/sandboxes/b.json"));
    let added = ended(node.call("ADD", "first", 0, ""), "an ADD");
    assert!(added.status.success(), "{added:?}");
    node.must("DEL", "first", 0);
    node.assert_empty();
}

#[test]
fn callers_that_say_nothing_hold_nobody_up() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent();
    node.must("STATUS", "first", 0);
    let socket = node.path("run/agent.sock");
    let silent: Vec<UnixStream> = (0..600).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    node.must("ADD", "first", 0);
    until("they are let go", || {
        let log = fs::read_to_string(node.path("log")).unwrap();
        log.contains(" said nothing and were let go")
    });
    drop(silent);
    node.must("DEL", "first", 0);
    node.assert_empty();
}
