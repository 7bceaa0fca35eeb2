//! The lab: a cluster in a box, with the agents and the plugin of this very binary.
//!
//! These tests need root on Linux; elsewhere they are skipped, aloud.

mod incidents;
mod interrupted;
mod remedies;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Done, Running, until};
use crate::member;

/// An ordinary user.
const NOBODY: u32 = 65_534;

/// A folder for labs that nothing else uses. Dropping it removes the labs in it.
struct Labs {
    dir: TempDir,
    binary: PathBuf,
    user: Option<u32>,
}

impl Labs {
    /// Of root; none, said aloud, where this user is somebody else.
    fn of_root() -> Option<Labs> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root on Linux");
            return None;
        }
        let binary = env!("CARGO_BIN_EXE_margay").into();
        Some(Labs { dir: tempfile::tempdir().unwrap(), binary, user: None })
    }

    /// Of an ordinary user, who gets a copy of the program: the original may lie out of reach.
    fn of_nobody() -> Option<Labs> {
        let mut labs = Labs::of_root()?;
        let copy = labs.dir.path().join("margay");
        fs::copy(&labs.binary, &copy).unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&copy, open.clone()).unwrap();
        fs::set_permissions(labs.dir.path(), open).unwrap();
        fs::create_dir(labs.folder()).unwrap();
        std::os::unix::fs::chown(labs.folder(), Some(NOBODY), Some(NOBODY)).unwrap();
        (labs.binary, labs.user) = (copy, Some(NOBODY));
        Some(labs)
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("labs")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("lab").args(words).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.dir.path()).env("MARGAY_LAB_DIR", self.folder());
        command.current_dir("/");
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// What is said while something takes long is left out: a busy machine is no fault.
    fn run(&self, words: &[&str]) -> Done {
        let mut done = Done::from(self.command(words).output().unwrap());
        let is_progress = |line: &&str| line.contains(" (up to ") && line.ends_with(" s)\n");
        done.err = done.err.split_inclusive('\n').filter(|line| !is_progress(line)).collect();
        done
    }

    /// Runs `margay lab` with words that are separated by blanks.
    fn lab(&self, words: &str) -> Done {
        self.run(&words.split_whitespace().collect::<Vec<_>>())
    }

    fn json(&self, words: &str) -> (i32, Value) {
        let done = self.lab(&format!("{words} -o json"));
        let value = serde_json::from_str(&done.out);
        (done.code, value.unwrap_or_else(|error| panic!("{error}: {done:?}")))
    }

    /// Processes that carry the mark of a lab.
    fn processes(&self, lab: &str) -> Vec<i32> {
        let mark = format!("MARGAY_LAB={}", self.folder().join(lab).display());
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_marked = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        pids.filter(is_marked).collect()
    }

    /// Those of them that are the agent of a node.
    fn agent(&self, node: &str) -> Vec<i32> {
        let part = format!("MARGAY_LAB_PART=agent/{node}");
        let is_part = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == part.as_bytes())
        };
        self.processes("default").into_iter().filter(is_part).collect()
    }

    /// Ends the test if anything of a lab is left.
    #[track_caller]
    fn is_clean(&self, lab: &str) {
        assert_eq!(self.processes(lab), Vec::<i32>::new());
        let folder = self.folder().join(lab);
        assert!(!folder.exists());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&folder.display().to_string()), "{mounts}");
    }
}

impl Drop for Labs {
    fn drop(&mut self) {
        let _ = self.command(&["down", "--all"]).output();
    }
}

fn kill(pid: i32) {
    signal(pid, Signal::KILL);
}

fn signal(pid: i32, signal: Signal) {
    // One that ended by itself is as dead as it should be.
    let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal);
}

fn namespace_of_this_process() -> PathBuf {
    fs::read_link(Path::new("/proc/self/ns/net")).unwrap()
}

#[test]
fn every_pod_reaches_every_other_and_down_leaves_nothing() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --ipv6").ok().says(&["3 nodes", "6 pods", "15/15 pairs", "v4, v6", "is up in"]);
    let (code, tested) = labs.json("test");
    assert_eq!((code, &tested["pairs"]["answering"]), (0, &Value::from(15)));
    // Both ways, three protocols, two families.
    assert_eq!(tested["checks"].as_array().unwrap().len(), 15 * 2 * 3 * 2);
    labs.lab("up").ok().says(&["is up already: 3 nodes, 6 pods"]);
    labs.lab("status").ok().says(&["15/15 pairs answer", "172.30.0.13"]);
    labs.lab("list").ok().says(&["default"]);
    labs.lab("down").ok().says(&["nothing is left"]);
    labs.is_clean("default");
    assert_eq!(fs::read_dir(labs.dir.path()).unwrap().count(), 0);
    labs.lab("down").ok().says(&["there is no lab"]);
}

#[test]
fn commands_run_inside_with_the_names_of_the_lab() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 2 --pods 1").ok();
    let done = labs.run(&["exec", "n1-web", "--", "sh", "-c", "hostname; cat /etc/hosts; exit 7"]);
    done.code(7).says(&["n1-web\n127.0.0.1 localhost", "172.30.0.12 n2", " n2-web"]);
    // The lab's own ping, which hosts without one get.
    let ping = labs.folder().join("default/bin/ping").display().to_string();
    labs.run(&["exec", "n1-web", "--", &ping, "-c1", "n2-web"]).ok().says(&["1 sent, 1 answered"]);
    labs.lab("exec n1 -- margay get nodes").ok().says(&["n1", "n2"]);
    let other = labs.lab("exec n2 -- readlink /proc/self/ns/net").ok().out;
    assert_ne!(Path::new(other.trim()), namespace_of_this_process());
    labs.lab("exec n9 -- true").refused(&["there is no n9", "n1 n2"]);
    labs.lab("exec n1-web -- no-such-program").refused(&["no-such-program cannot be run"]);
}

/// The names and labels of the lab's pods are those that policies and explanations are about, and
/// what the first pod's agent wrote by itself is in the kernels.
#[test]
fn policies_of_a_lab_are_about_its_pods() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 2 --pods 2").ok();
    labs.lab("exec n1 -- margay wait profile/lab --timeout 2m").ok();
    let policy = labs.dir.path().join("only-web.yaml");
    let text = "kind: GlobalNetworkPolicy\napiVersion: projectcalico.org/v3\n\
                metadata: {name: only-web}\nspec: {selector: app == 'db', types: [Ingress], \
                ingress: [{action: Allow, protocol: TCP, destination: {ports: [80]}}]}\n";
    fs::write(&policy, text).unwrap();
    labs.run(&["exec", "n1", "--", "margay", "apply", "-f", policy.to_str().unwrap()]).ok();
    labs.lab("exec n1 -- margay wait gnp/only-web --timeout 2m").ok();
    let allowed = "allowed: tcp 80 from default/";
    labs.lab("exec n2 -- margay explain n1-web n2-db --port 80").ok().says(&[allowed]);
    let denied = labs.lab("exec n2 -- margay explain n1-web n2-db --port 81").code(1);
    denied.says(&["denied at ingress of", "-n2-db by tier default", "in the kernel of n2"]);
    labs.lab("exec n2 -- margay explain n1-db n2-web --port 81").ok();
    // What policy denies is no failure, and is said to be denied. Of six pairs only the webs are
    // not about a database.
    let denied = "1/6 pairs answer, 5 are denied by policy";
    let by = "denied by end of tier default (policies only-web): 6 ways, such as n1-db → n2-db";
    labs.lab("test").ok().says(&[denied, by]);
    labs.lab("test n1-web n2-db").ok().says(&["(ICMP, UDP)"]);
    labs.lab("status").ok().says(&[denied]);
    labs.lab("break agent-killed n1").ok();
    labs.lab("heal").ok().says(&[denied]);
}

#[test]
fn pods_come_and_go() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 2 --pods 1").ok();
    labs.lab("pod add n2").ok().says(&["n2-db has 10.65."]);
    labs.lab("pod add n1 zebra").ok().says(&["n1-zebra"]);
    labs.lab("pod add n1 zebra").refused(&["there is a pod n1-zebra already"]);
    labs.lab("pod add n7").refused(&["there is no n7"]);
    labs.lab("test").ok().says(&["6/6 pairs"]);
    labs.lab("pod rm n1-zebra").ok().says(&["n1-zebra is gone"]);
    labs.lab("test").ok().says(&["3/3 pairs"]);
    labs.lab("pod rm n1-zebra").refused(&["there is no n1-zebra"]);
}

#[test]
fn down_finds_everything_after_everything_was_killed() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up").ok();
    labs.processes("default").into_iter().for_each(kill);
    until("the processes to end", || labs.processes("default").is_empty());
    // A process on its way out has no environment any more, but its socket still.
    let is_missed = || labs.lab("status").out.matches("its agent does not run").count() == 3;
    until("the agents to be missed", is_missed);
    labs.lab("status").code(2).says(&["its process does not run"]);
    fs::write(labs.folder().join("default/state.json"), "nonsense").unwrap();
    labs.lab("status").refused(&["cannot be read", "margay lab down"]);
    labs.lab("down").ok().says(&["0 processes ended, 10 namespaces", "nothing is left"]);
    labs.is_clean("default");
}

#[test]
fn an_unfinished_lab_is_built_anew() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 1").ok();
    let state = labs.folder().join("default/state.json");
    let unfinished =
        fs::read_to_string(&state).unwrap().replace("\"is_built\": true", "\"is_built\": false");
    fs::write(&state, unfinished).unwrap();
    let before = labs.processes("default");
    labs.lab("test").refused(&["was never finished", "margay lab up"]);
    labs.lab("up --nodes 2").ok().says(&["2 nodes", "6/6 pairs"]);
    assert!(before.iter().all(|pid| !labs.processes("default").contains(pid)));
}

#[test]
fn labs_live_side_by_side() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 2 --pods 1 --name red").ok();
    labs.lab("up --nodes 2 --pods 1 --name blue").ok();
    labs.lab("list").ok().says(&["red", "blue"]);
    labs.lab("test --name red").ok().says(&["1/1 pairs"]);
    labs.lab("down --name red").ok();
    labs.is_clean("red");
    labs.lab("test --name blue").ok().says(&["1/1 pairs"]);
    labs.lab("down --all").ok().says(&["blue"]);
    labs.is_clean("blue");
}

#[test]
fn what_is_broken_shows_and_heals() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 2").ok();
    labs.lab("break agent-killed").ok().says(&["the agent of n2 is killed", "margay lab heal"]);
    labs.lab("status").code(1).says(&["n2: its agent does not run", "6/6 pairs answer"]);
    labs.lab("heal").ok().says(&["the agent of n2 runs again"]);
    labs.lab("break link-down n1").ok();
    labs.lab("status").code(2).says(&["n1: its cable is pulled", "2/6 pairs answer"]);
    labs.lab("test").code(2).says(&["n1-web → n2-db: "]);
    let own = || labs.lab("exec n1 -- margay status");
    until("the agent to miss it", || own().out.contains("MG-LINK-001"));
    own().code(2).says(&["eth0, which leads to other nodes, has no carrier"]);
    labs.lab("heal").ok();
    until("the agent to see it", || own().code == 0);
    labs.lab("break interface-deleted n1-web").ok();
    labs.lab("status").code(2).says(&["n1-web: its interface cali"]);
    labs.lab("heal").ok().says(&["n1-web is connected again"]);
    labs.lab("status").ok();
    labs.lab("heal").ok().says(&["nothing is broken on purpose"]);
    let pod = "n1-web is a pod; agent-killed wants a node";
    labs.lab("break agent-killed n1-web").refused(&[pod, "help: the nodes are n1 n2"]);
    labs.lab("break interface-deleted n1").refused(&["n1 is a node", "wants a pod", "n1-web"]);
    labs.lab("test n1").refused(&["n1 is a node; test wants a pod", "n1-web n1-db"]);
    labs.lab("pod rm n1").refused(&["n1 is a node; pod rm wants a pod"]);
}

#[test]
fn a_reader_who_leaves_does_not_stop_the_building() {
    let Some(labs) = Labs::of_root() else { return };
    let mut up = labs.command(&["up", "--nodes", "2", "--pods", "1"]);
    let mut up = up.stdout(Stdio::piped()).spawn().unwrap();
    drop(up.stdout.take());
    assert_eq!(up.wait().unwrap().code(), Some(0));
    labs.lab("test").ok().says(&["1/1 pairs"]);
}

#[test]
fn a_lab_is_not_rebuilt_by_asking_for_another() {
    let Some(labs) = Labs::of_root() else { return };
    // A folder that was there before is not ours to remove.
    fs::create_dir(labs.folder()).unwrap();
    labs.lab("up --nodes 1 --pods 0 --name x").ok();
    labs.lab("up --name x").ok().says(&["is up already: 1 node, 0 pods"]);
    let other = labs.lab("up --name x --nodes 2 --ipv6").code(1);
    other.says(&["--nodes 2 (it has 1)", "--ipv6", "fix: margay lab down --name x"]);
    let (_, list) = labs.json("list");
    assert_eq!((&list["labs"][0]["name"], &list["labs"][0]["nodes"]), (&"x".into(), &1.into()));
    let (_, status) = labs.json("status --name x");
    assert_eq!((&status["status"], &status["findings"]), (&"fine".into(), &Value::Array(vec![])));
    for since in [&list["labs"][0]["since"], &status["since"]] {
        let since = since.as_str().unwrap();
        assert!(since.starts_with("20") && since.ends_with('Z'), "{since}");
    }
    let hint = labs.lab("break --name x interface-deleted");
    hint.refused(&["the lab has no pods", "help: margay lab pod add --name x n1"]);
    labs.lab("upp").refused(&["unrecognized subcommand", "help: "]);
    labs.lab("down --all").ok();
    assert_eq!(fs::read_dir(labs.folder()).unwrap().count(), 0);
}

#[test]
fn faults_of_a_pod_go_with_it() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 2 --pods 1").ok();
    let records = || {
        let done = labs.lab("exec n1 -- margay get wep -A -o json").code(0);
        serde_json::from_str::<Value>(&done.out).unwrap()["items"].as_array().unwrap().len()
    };
    labs.lab("break endpoint-deleted n2-web").ok();
    labs.lab("break interface-deleted n2-web").ok();
    labs.lab("heal").ok().says(&["n2-web is connected again"]);
    assert_eq!(records(), 2, "the record of the sandbox that is gone does not come back");
    labs.lab("break duplicate-address n1-web").ok();
    labs.lab("break endpoint-deleted n1-web").ok();
    labs.lab("break interface-deleted n1-web").ok();
    labs.lab("pod rm n1-web").ok();
    labs.lab("heal").ok().says(&["nothing is broken on purpose"]);
    assert_eq!(records(), 1);
}

#[test]
fn an_agent_is_killed_whoever_started_it() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 1 --pods 1").ok();
    labs.lab("break agent-killed").ok();
    labs.lab("break agent-killed").refused(&["no agent runs on n1", "help: margay lab heal"]);
    // Nobody waits for one that does not run.
    let refused = labs.lab("pod add n1").refused(&["the agent of n1 does not run"]);
    refused.complains(&["help: margay lab heal"]);
    let words = ["exec", "n1", "--", "margay", "agent", "--address", "172.30.0.11/24"];
    let agent = Running::start(labs.command(&words));
    agent.until_complains("serves node n1: address 172.30.0.11/24, store /");
    let second = Running::start(labs.command(&words));
    second.until_complains("another agent holds ");
    drop(second);
    labs.lab("break agent-killed").ok().says(&["the agent of n1 is killed (2 processes)"]);
    labs.lab("heal").ok().says(&["the agent of n1 runs again"]);
    // What an interrupted command left is no obstacle.
    fs::write(labs.folder().join("default/netns/n1-db"), "").unwrap();
    labs.lab("pod add n1").ok().says(&["n1-db has 10.65."]);
    let log = fs::read_to_string(labs.folder().join("default/nodes/n1/log/agent.log")).unwrap();
    assert!(!log.contains("was not served") && !log.contains("NOTIFY_SOCKET"), "{log}");
    assert!(log.lines().all(|line| line.starts_with("20")), "{log}");
}

#[test]
fn what_belongs_to_others_is_said_to() {
    let Some(labs) = Labs::of_nobody() else { return };
    std::os::unix::fs::chown(labs.folder(), Some(0), Some(0)).unwrap();
    let denied = labs.lab("up").refused(&["lab \"default\" is not yours, of the user 0"]);
    denied.complains(&["why: permission denied", "help: ", "MARGAY_LAB_DIR=DIR"]);
    let store = labs.dir.path().join("store.db");
    let get = |user: u32| {
        let mut command = Command::new(&labs.binary);
        command.args(["get", "nodes", "--store"]).arg(&store).env_clear().env("HOME", "/");
        Done::from(command.uid(user).current_dir("/").output().unwrap())
    };
    let mut apply = Command::new(&labs.binary);
    apply.args(["ipam", "configure", "--strictaffinity=true", "--store"]).arg(&store);
    apply.env("MARGAY_STATE_DIR", labs.dir.path().join("state"));
    Done::from(apply.output().unwrap()).code(0);
    get(0).code(0);
    let denied = get(NOBODY).refused(&["store.db: permission denied: it is the user 0's"]);
    denied.complains(&["help: run it as the user whose store it is"]);
}

#[test]
fn the_agent_puts_right_what_others_do_to_its_kernel() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 2").ok();
    labs.lab("break route-deleted").ok().says(&["1 route to other nodes' pods deleted on n2"]);
    labs.lab("break table-flushed n1").ok().says(&["flushed on n1"]);
    let is_over = |done: &Done| done.out.matches(", put right by the agent\n").count() == 2;
    until("the agents to put it right", || is_over(&labs.lab("status")));
    labs.lab("status").ok().says(&["✓ n2: route-deleted, put right by the agent"]);
    let (code, status) = labs.json("status");
    assert_eq!((code, &status["brokenOnPurpose"]), (0, &Value::Array(vec![])));
    assert_eq!(status["putRight"][0]["scenario"], "route-deleted");
    let healed = labs.lab("heal").ok();
    assert_eq!(healed.out.matches("restored by the agent").count(), 2, "{healed:?}");
    labs.lab("status").ok();
}

#[test]
fn records_are_broken_and_healed() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("up --nodes 2 --pods 1").ok();
    let n_records = || labs.lab("exec n1 -- margay get wep -A").code(0).out.lines().count();
    let before = n_records();
    labs.lab("break ghost-endpoint").ok();
    labs.lab("break duplicate-address n1-web").ok().says(&["the address of n1-web, on n2"]);
    assert_eq!(n_records(), before + 2);
    // Both say what the agents of the nodes say: which two contradict each other.
    let twins = ["MG-IPAM-002", "is also that of n2-cni-twin-eth0 on n2"];
    until("the finding", || labs.lab("exec n1 -- margay status").out.contains(twins[0]));
    labs.lab("status").says(&twins).says(&["MG-ROUTE-001", "calighost is missing"]);
    labs.lab("status").says(&["no sandbox is known to endpoint", "-- margay reconcile "]);
    labs.lab("heal").ok().says(&["1/1 pairs answer"]);
    assert_eq!(n_records(), before);
    labs.lab("break endpoint-deleted").ok().says(&["the record of n2-web is deleted"]);
    until("the agent to claim the record back", || n_records() == before);
    labs.lab("exec n2 -- margay events repaired").ok().says(&["somebody removed the endpoint"]);
    labs.lab("status").ok().says(&["n2-web: endpoint-deleted, put right by the agent"]);
    labs.lab("heal").ok().says(&["restored by the agent", "1/1 pairs answer"]);
    labs.lab("status").ok();
}

#[test]
fn the_lab_runs_on_a_real_etcd() {
    let Some(labs) = Labs::of_root() else { return };
    if !member::is_installed() {
        return;
    }
    labs.lab("up --nodes 2 --datastore etcd").ok().says(&["etcd", "6/6 pairs"]);
    labs.lab("exec n1 -- margay get nodes").ok().says(&["n1", "n2"]);
    labs.lab("down").ok();
    labs.is_clean("default");
}

#[test]
fn an_ordinary_user_has_labs_too() {
    let Some(labs) = Labs::of_nobody() else { return };
    let up = labs.lab("up --nodes 2 --ipv6");
    if up.err.contains("unprivileged user namespaces") {
        eprintln!("skipped: {}", up.err);
        return;
    }
    up.ok().says(&["6/6 pairs"]);
    labs.lab("exec n1-web -- id -u").ok().says(&["0"]);
    // Root sees its files, but is nobody in it.
    let mut root = Command::new(&labs.binary);
    root.args(["lab", "status"]).env("MARGAY_LAB_DIR", labs.folder());
    let refused = Done::from(root.output().unwrap());
    refused
        .refused(&["lab \"default\" is of the user 65534", "help: run the command as that user"]);
    labs.lab("pod add n1").ok();
    labs.lab("break agent-killed").ok();
    labs.lab("heal").ok();
    labs.lab("status").ok().says(&["10/10 pairs answer"]);
    // The holder is not needed as long as anything else is left to enter by.
    let holder = labs.processes("default").into_iter().find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"lab-hold")
    });
    kill(holder.unwrap());
    labs.lab("test").ok().says(&["10/10 pairs"]);
    labs.processes("default").into_iter().for_each(kill);
    until("the processes to end", || labs.processes("default").is_empty());
    labs.lab("status").refused(&["are gone", "margay lab down"]);
    labs.lab("down").ok().says(&["nothing is left"]);
    labs.is_clean("default");
}

#[test]
fn what_is_not_there_is_said() {
    let Some(labs) = Labs::of_root() else { return };
    labs.lab("down").ok().says(&["there is no lab"]);
    labs.lab("down --all").ok().says(&["there is no lab"]);
    labs.lab("list").ok().says(&["there is no lab"]);
    for words in ["status", "test", "heal", "break link-down", "pod add n1", "exec n1 -- true"] {
        labs.lab(words).refused(&["there is no lab \"default\"", "help: margay lab up"]);
    }
    labs.lab("up --name ../x").refused(&["cannot be the name of a lab"]);
    labs.lab("up --nodes 201").code(2);
    let mut deep = labs.command(&["up"]);
    deep.env("MARGAY_LAB_DIR", labs.dir.path().join("x".repeat(90)));
    let refused =
        Done::from(deep.output().unwrap()).refused(&["is too long for the sockets in it"]);
    refused.complains(&["why: by ", "help: MARGAY_LAB_DIR=DIR"]);
    assert_eq!(fs::read_dir(labs.dir.path()).unwrap().count(), 0);
}
