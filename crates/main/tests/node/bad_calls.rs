//! Calls that are wrong, and folders that cannot be written: refused in words, and nothing is left.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::node::{Node, may_run};

/// A call in all its parts.
struct Call<'a> {
    command: &'a str,
    id: &'a str,
    interface: &'a str,
    netns: &'a Path,
    /// A script that prepares the place before it turns into the plugin, `$0`.
    before: &'a str,
    ipam: Value,
}

impl Call<'_> {
    fn run(&self, node: &Node) -> Output {
        let configuration = json!({
            "cniVersion": "1.0.0", "name": "net1", "type": "calico",
            "nodename": "n1", "nodename_file_optional": true,
            "ipam": self.ipam, "store": node.path("store.db"),
        });
        let script = format!("set -e; {} exec \"$0\"", self.before);
        let plugin = node.path("calico");
        let words = ["--mount", "--propagation", "private", "sh", "-c", &script];
        let mut process = node.inside("host", "unshare", &words);
        process.arg(plugin).env("CNI_COMMAND", self.command).env("CNI_CONTAINERID", self.id);
        process.env("CNI_NETNS", self.netns).env("CNI_IFNAME", self.interface);
        process.env("CNI_PATH", "/none");
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = process.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(configuration.to_string().as_bytes()).unwrap();
        drop(input);
        child.wait_with_output().unwrap()
    }

    /// The error that it must end with.
    fn refused(&self, node: &Node) -> Value {
        let done = self.run(node);
        assert_eq!(done.status.code(), Some(1), "{} {:?}: {done:?}", self.id, self.interface);
        let error: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert!(!error["msg"].as_str().unwrap().is_empty());
        error
    }
}

fn add<'a>(id: &'a str, netns: &'a Path) -> Call<'a> {
    let ipam = json!({ "type": "calico-ipam" });
    Call { command: "ADD", id, interface: "eth0", netns, before: "", ipam }
}

#[test]
fn odd_names_are_refused_and_leave_nothing() {
    if !may_run() {
        return;
    }
    let node = Node::new(1);
    let netns = node.path("netns/c0");
    let long = "x".repeat(400);
    for id in ["..", "a b", "a/b", "ä", "-a", "a;b", "a\nb", "Upper_Case", &long] {
        add(id, &netns).refused(&node);
    }
    for interface in
        [".", "..", "a/b", "eth0:1", "a b", "sixteen-letters!", "a\tb", "\u{7f}", "ä ö"]
    {
        Call { interface, ..add("good", &netns) }.refused(&node);
    }
    node.assert_empty();
}

#[test]
fn a_namespace_that_is_none_is_refused_and_leaves_nothing() {
    if !may_run() {
        return;
    }
    let node = Node::new(1);
    let (store, folder) = (node.path("store.db"), node.path("netns"));
    for netns in [node.path("netns/gone"), store, folder, "/proc/self/ns/mnt".into()] {
        let error = add("first", &netns).refused(&node);
        assert!(error["msg"].as_str().unwrap().contains("CNI_NETNS"), "{error}");
    }
    // Its default routes would take the host's place.
    let error = add("first", &node.path("netns/host")).refused(&node);
    assert!(error["msg"].as_str().unwrap().contains("the host's own"), "{error}");
    node.assert_empty();
}

#[test]
fn another_sandboxs_namespace_stays_as_it_is() {
    if !may_run() {
        return;
    }
    let node = Node::new(1);
    node.must("ADD", "first", 0);
    add("second", &node.path("netns/c0")).refused(&node);
    node.must("CHECK", "first", 0);
    node.must("DEL", "second", 0);
    node.must("CHECK", "first", 0);
    node.must("DEL", "first", 0);
    node.assert_empty();
}

#[test]
fn a_full_pool_is_said_and_the_next_free_address_is_given() {
    if !may_run() {
        return;
    }
    let node = Node::new(2);
    let pool = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "IPPool",
        "metadata": { "name": "small" }, "spec": { "cidr": "10.66.0.0/32", "blockSize": 32 },
    });
    let file = node.path("small.yaml");
    std::fs::write(&file, pool.to_string()).unwrap();
    let binary = env!("CARGO_BIN_EXE_margay");
    let applied = node.inside("host", binary, &["apply", "-f", file.to_str().unwrap()]).output();
    assert!(applied.as_ref().unwrap().status.success(), "{applied:?}");
    let ipam = json!({ "type": "calico-ipam", "ipv4_pools": ["small"] });
    let (here, there) = (node.path("netns/c0"), node.path("netns/c1"));
    let first = Call { ipam: ipam.clone(), ..add("first", &here) };
    let second = Call { ipam, ..add("second", &there) };
    assert!(first.run(&node).status.success());
    let error = second.refused(&node);
    assert!(error["msg"].as_str().unwrap().contains("10.66.0.0/32"), "{error}");
    assert!(Call { command: "DEL", ..first }.run(&node).status.success());
    assert!(second.run(&node).status.success());
    assert_eq!(node.allocated(), [("10.66.0.0/32+0".to_owned(), "net1.second".to_owned())]);
}

#[test]
fn a_state_folder_that_cannot_be_written_is_named_and_nothing_is_left() {
    if !may_run() {
        return;
    }
    let node = Node::new(1);
    let netns = node.path("netns/c0");
    let state = node.path("state").display().to_string();
    for options in ["ro", "nr_inodes=2", "size=4k,nr_inodes=5"] {
        let fill =
            if options.starts_with("size") { "echo > \"$MARGAY_STATE_DIR/full\"; " } else { "" };
        let before = format!("mkdir -p {state}; mount -t tmpfs -o {options} tmpfs {state}; {fill}");
        let error = Call { before: &before, ..add("first", &netns) }.refused(&node);
        assert!(error.to_string().contains(&state), "{options}: {error}");
    }
    node.assert_empty();
    std::fs::remove_dir_all(node.path("state")).unwrap();
    node.must("ADD", "first", 0);
}

/// Starts an agent that cannot serve, and returns once it has complained in all of these words.
fn complains(mut agent: Command, words: &[&str]) {
    let mut child = agent.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut told = Vec::new();
    let is_said = lines.any(|line| {
        let is_it = words.iter().all(|word| line.contains(word));
        told.push(line);
        is_it
    });
    let _ = child.kill();
    child.wait().unwrap();
    assert!(is_said, "{words:?} is not said: {told:#?}");
}

#[test]
fn an_agent_whose_folders_cannot_be_used_says_which_and_what_to_type() {
    if !may_run() {
        return;
    }
    let node = Node::new(0);
    let text = |name: &str| node.path(name).display().to_string();
    let (run, state) = (text("run2"), text("state"));
    let agent = |run: &str, state: &str, before: &str| {
        let binary = env!("CARGO_BIN_EXE_margay");
        let script = format!(
            "set -e; {before} exec {binary} agent --node n1 --run-dir {run} --state-dir {state}"
        );
        node.inside(
            "host",
            "unshare",
            &["--mount", "--propagation", "private", "sh", "-c", &script],
        )
    };
    let long = text(&"x".repeat(120));
    complains(agent(&long, &state, ""), &["error: the folder", &long, "107", "--run-dir"]);
    let below = text("store.db/run");
    complains(agent(&below, &state, ""), &["error: the folder", &below, "--run-dir"]);
    std::fs::create_dir_all(&state).unwrap();
    let read_only = format!("mount -t tmpfs -o ro tmpfs {state};");
    let said = ["error: the journal of sandboxes in", &state, "Read-only", "--state-dir"];
    complains(agent(&run, &state, &read_only), &said);
    // The plugin does not wait for an agent that cannot be there.
    let mut configuration = node.configuration();
    configuration["agent_socket"] = format!("{long}/agent.sock").into();
    let node = Node::new(1);
    let done = node.call_with("ADD", "first", 0, &configuration).wait_with_output().unwrap();
    let error: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(error["code"], 7, "{error}");
    assert!(error["details"].as_str().unwrap().contains("--run-dir"), "{error}");
}

#[test]
fn a_disk_that_fills_up_under_a_running_agent_refuses_adds_and_still_lets_go() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(2);
    let state = node.path("state");
    std::fs::create_dir_all(&state).unwrap();
    node.start_agent_after(&format!("mount -t tmpfs -o size=64k tmpfs {};", state.display()));
    node.must("ADD", "first", 0);
    let fill = format!("/proc/{}/root{}/full", node.supervisor(), state.display());
    let mut file = std::fs::File::create(&fill).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let refused = node.called("ADD", "second", 1);
    let error: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(error["code"], 5, "{error}");
    assert!(
        error["msg"].as_str().unwrap().starts_with("second eth0: write the journal"),
        "{error}"
    );
    assert!(error["details"].as_str().unwrap().contains(state.to_str().unwrap()), "{error}");
    assert_eq!(node.interfaces().len(), 1, "nothing is half done");
    assert_eq!(node.allocated().len(), 2, "one address a family, of the first");
    node.must("DEL", "first", 0);
    assert_eq!((node.allocated(), node.interfaces()), (vec![], vec![]));
    drop(file);
    std::fs::remove_file(&fill).unwrap();
    node.must("ADD", "second", 1);
    node.must("DEL", "second", 1);
    assert_eq!(node.allocated(), []);
}
