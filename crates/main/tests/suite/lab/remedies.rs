//! What puts a lab right: lines that can be pasted, and agents that do not answer.

use std::process::Command;

use rustix::process::Signal;

use super::{Labs, signal};
use crate::harness::{Done, Running, until};

/// Gives a shell the line of `lab status` that says how to put something right, as it stands there.
/// Nobody can be asked: `answer` is what a person would say.
fn run_as_printed(labs: &Labs, lab: &str, what: &str, answer: &str) -> Done {
    let printed = labs.lab(&format!("status --name {lab}")).out;
    let mut fixes = printed.lines().filter_map(|line| line.strip_prefix("fix: "));
    let fix = fixes.find(|fix| fix.contains(what));
    let fix = fix.unwrap_or_else(|| panic!("no fix does {what}: {printed}"));
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{fix} {answer}")).env_clear().current_dir("/");
    for (name, value) in labs.command(&[]).get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    // The program is found as users find it, by its name.
    let programs = labs.folder().join(lab).join("bin");
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(programs).chain(std::env::split_paths(&usual));
    shell.env("PATH", std::env::join_paths(path).unwrap());
    Done::from(shell.output().unwrap())
}

#[test]
fn what_an_agent_advises_is_run_as_it_is_printed() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 2 --pods 1 --name other").ok();
    labs.lab("break ghost-endpoint --name other").ok();
    labs.lab("break duplicate-address n1-web --name other").ok();
    let status = || labs.lab("status --name other");
    let is_found = |text: &str| status().out.contains(text);
    until("the findings", || is_found("MG-ROUTE-001") && is_found("MG-IPAM-002"));
    run_as_printed(&labs, "other", "get wep -A -o wide", "").ok().says(&["n2-cni-twin-eth0"]);
    run_as_printed(&labs, "other", "margay reconcile", "").code(0);
    let over = "n2: ghost-endpoint, put right since";
    until("the ghost to go", || is_found(over) && !is_found("calighost is missing"));
    // The twin is no sandbox of that node either.
    until("the twin to go", || is_found("duplicate-address, put right since"));
    labs.lab("heal --name other").code(0).says(&["1/1 pairs answer"]);
    status().ok();
}

#[test]
fn who_waits_for_a_stopped_agent_says_so() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 1 --pods 2").ok();
    let stopped = labs.agent("n1");
    stopped.iter().for_each(|pid| signal(*pid, Signal::STOP));
    let refused = labs.lab("pod add n1");
    refused.refused(&["the agent of n1 is stopped (process ", "help: margay lab heal"]);
    labs.lab("status").code(1).says(&["n1: its agent is stopped", "fix: margay lab heal\n"]);
    let removing = Running::start(labs.command(&["pod", "rm", "n1-db"]));
    removing.until_says("the agent of n1 is stopped");
    removing.until_complains("CNI DEL of n1-db, waiting for the agent of n1 (up to ");
    stopped.iter().for_each(|pid| signal(*pid, Signal::CONT));
    removing.until_says("n1-db is gone");
    labs.agent("n1").iter().for_each(|pid| signal(*pid, Signal::STOP));
    labs.lab("heal").ok().says(&["the agent of n1 runs again"]);
    assert!(labs.agent("n1").iter().all(|pid| !stopped.contains(pid)));
    labs.lab("pod add n1").ok().says(&["n1-db has 10.65."]);
}

#[test]
fn a_command_that_is_stopped_is_named_to_those_who_wait_for_it() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 1 --pods 1").ok();
    let stopped = labs.agent("n1");
    stopped.iter().for_each(|pid| signal(*pid, Signal::STOP));
    let removing = Running::start(labs.command(&["pod", "rm", "n1-web"]));
    removing.until_says("the agent of n1 is stopped");
    let pid = i32::try_from(removing.child.id()).unwrap();
    signal(pid, Signal::STOP);
    let why = format!("why: process {pid} is stopped, and holds the lab");
    labs.lab("down").refused(&["another command is at work on lab", &why, "help: kill -CONT"]);
    drop(removing);
    labs.lab("down").ok().says(&["nothing is left"]);
    labs.is_clean("default");
}

#[test]
fn every_command_answers_programs() {
    let Some(labs) = Labs::of_root() else { return };
    labs.json("up --nodes 2 --pods 1");
    let (_, added) = labs.json("pod add n2");
    assert_eq!((&added["name"], &added["node"]), (&"n2-db".into(), &"n2".into()));
    assert_eq!(labs.json("test").1["pairs"]["all"], 3);
    let (_, broken) = labs.json("break link-down");
    assert_eq!((&broken["scenario"], &broken["target"]), (&"link-down".into(), &"n2".into()));
    labs.lab("break link-down").refused(&["n2 is broken so already", "help: margay lab heal"]);
    let (code, healed) = labs.json("heal");
    assert_eq!((code, &healed["pairs"]["answering"]), (0, &3.into()), "{healed}");
    assert_eq!(healed["steps"][0]["what"], "the cable of n2 is plugged in");
    assert_eq!(labs.json("heal").1["steps"], serde_json::json!([]));
    assert_eq!(labs.json("pod rm n2-db").1["removed"]["name"], "n2-db");
    labs.lab("test n1-web n1-web").refused(&["test wants two pods, and n1-web is one"]);
    labs.lab("status --name=-x").refused(&["cannot be the name of a lab", "does not begin with"]);
    let (_, down) = labs.json("down");
    let removed = &down["removed"][0];
    assert_eq!((&removed["name"], &removed["namespaces"]), (&"default".into(), &5.into()));
    assert_eq!(labs.json("down").1["removed"], serde_json::json!([]));
}

#[test]
fn a_lab_is_not_made_where_nobody_outside_would_see_it() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 1 --pods 0").ok();
    let inner = labs.lab("exec n1 -- margay lab up --name inner");
    inner.refused(&["cannot be made from inside of another lab", "labs/default", "help: leave it"]);
    // Its namespace, by the name that everybody finds it by.
    let namespace = labs.folder().join("default/netns/n1");
    assert!(Command::new("umount").arg("-l").arg(namespace).status().unwrap().success());
    let again = "fix: margay lab down && margay lab up\n";
    labs.lab("status").code(2).says(&["n1: its network namespace cannot be entered", again]);
    labs.lab("down").ok().says(&["nothing is left"]);
    labs.is_clean("default");
}

#[test]
fn what_somebody_deleted_by_hand_is_healed_too() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 1 --pods 2").ok();
    let (_, status) = labs.json("status");
    let interface = status["pods"][0]["interface"].as_str().unwrap();
    labs.lab(&format!("exec n1 -- ip link del {interface}")).ok();
    labs.lab("status").code(2).says(&["n1-web: its interface cali", "fix: margay lab heal"]);
    labs.lab("break agent-killed").ok();
    // The agent first: without it nothing could be connected.
    let healed = labs.lab("heal").ok().says(&["n1-web is connected again", "1/1 pairs answer"]);
    assert!(healed.out.starts_with("✓ the agent of n1 runs again\n"), "{healed:?}");
    labs.lab("status").ok();
}
