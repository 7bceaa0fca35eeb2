//! A node of its own: a namespace for the host, namespaces for containers, a datastore.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use host::protocol::Question;
use kernel::Netns;
use rustix::process::Signal;
use serde_json::{Value, json};
use store::{Op, Store, Txn, sqlite};
use tempfile::TempDir;

use crate::etcd::{self, Etcd};

/// A node. Everything of it goes away with it.
pub(crate) struct Node {
    folder: TempDir,
    containers: Vec<String>,
    agent: Option<Child>,
    /// The network of its calls.
    pub(crate) network: &'static str,
    /// A step at which the agent ends.
    pub(crate) fault: &'static str,
    /// The datastore; none means the embedded one.
    pub(crate) etcd: Option<Etcd>,
}

/// Whether this process may make namespaces; says so if not.
pub(crate) fn may_run() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        eprintln!("skipped: needs root for network namespaces");
    }
    may
}

impl Node {
    /// A node with so many containers, and a pool.
    pub(crate) fn new(n_containers: usize) -> Node {
        let node = Node::bare(n_containers);
        node.furnish();
        node
    }

    /// The same with an etcd of its own; none, said aloud, where that cannot be.
    pub(crate) fn with_etcd(n_containers: usize) -> Option<Node> {
        if !may_run() || !etcd::is_installed() {
            return None;
        }
        let mut node = Node::bare(n_containers);
        node.etcd = Some(Etcd::start("127.0.0.1", node.netns("host"), node.path("etcd")));
        node.until_etcd_serves();
        node.furnish();
        Some(node)
    }

    /// The same with the etcd in the namespace of the first container, which has the address
    /// 172.30.0.9 on the host's network.
    pub(crate) fn with_etcd_beyond(n_containers: usize) -> Option<Node> {
        if !may_run() || !etcd::is_installed() {
            return None;
        }
        let mut node = Node::bare(n_containers);
        let beyond = node.netns("c0");
        let there = beyond.to_str().unwrap();
        let pair = ["link", "add", "far", "type", "veth", "peer", "name", "near", "netns", there];
        node.ip(&pair);
        node.ip(&["link", "set", "far", "master", "eth0", "up"]);
        for words in ["link set lo up", "addr add 172.30.0.9/24 dev near", "link set near up"] {
            let words: Vec<&str> = words.split(' ').collect();
            let done = node.inside("c0", "ip", &words).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        }
        node.etcd = Some(Etcd::start("172.30.0.9", beyond, node.path("etcd")));
        node.until_etcd_serves();
        node.furnish();
        Some(node)
    }

    /// Waits until etcd answers.
    pub(crate) fn until_etcd_serves(&self) {
        until("etcd serves", || {
            let at = format!("--endpoints={}", self.etcd.as_ref().unwrap().endpoint);
            let words = [&at, "--command-timeout=1s", "endpoint", "health"];
            self.inside("host", "etcdctl", &words).output().unwrap().status.success()
        });
    }

    fn bare(n_containers: usize) -> Node {
        let folder = tempfile::Builder::new().prefix("nodetest").tempdir().unwrap();
        let names = folder.path().join("netns");
        std::fs::create_dir(&names).unwrap();
        let containers: Vec<String> = (0..n_containers).map(|n| format!("c{n}")).collect();
        for name in containers.iter().map(String::as_str).chain(["host"]) {
            Netns::create_named(&names, name).unwrap();
        }
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_margay"), folder.path().join("calico"))
            .unwrap();
        let node = Node { folder, containers, agent: None, network: "net1", fault: "", etcd: None };
        node.ip(&["link", "set", "lo", "up"]);
        // Without a default route the host does not answer for the gateway.
        node.ip(&["link", "add", "eth0", "type", "bridge"]);
        node.ip(&["addr", "add", "172.30.0.1/24", "dev", "eth0"]);
        node.ip(&["addr", "add", "fd30::1/64", "dev", "eth0", "nodad"]);
        node.ip(&["link", "set", "eth0", "up"]);
        node.ip(&["route", "add", "default", "via", "172.30.0.2"]);
        node
    }

    /// Writes the pools and the node.
    fn furnish(&self) {
        let own = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "Node",
            "metadata": { "name": "n1" }, "spec": {},
        });
        let documents = [pool("v4", "10.65.0.0/24"), pool("v6", "fd65::/120"), own];
        let file = self.path("objects.yaml");
        std::fs::write(&file, documents.map(|it| it.to_string()).join("\n---\n")).unwrap();
        let applied = self.margay(&["apply", "-f", file.to_str().unwrap()]).output().unwrap();
        assert!(applied.status.success(), "{applied:?}");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn netns(&self, name: &str) -> PathBuf {
        self.path("netns").join(name)
    }

    /// The command line on the host.
    pub(crate) fn margay(&self, words: &[&str]) -> Command {
        self.inside("host", env!("CARGO_BIN_EXE_margay"), words)
    }

    fn surround(&self, command: &mut Command) {
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("MARGAY_STATE_DIR", self.path("state"));
        command.env("MARGAY_NETWORKS_DIR", self.path("networks"));
        command.env("MARGAY_RUN_DIR", self.path("run")).stdin(Stdio::null());
        match &self.etcd {
            Some(etcd) => command.env("ETCD_ENDPOINTS", &etcd.endpoint),
            None => command.env("MARGAY_STORE", self.path("store.db")),
        };
    }

    /// A program in a namespace of the node.
    pub(crate) fn inside(&self, netns: &str, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.netns(netns).display())).arg(program).args(words);
        self.surround(&mut command);
        command
    }

    /// `ip` on the host.
    pub(crate) fn ip(&self, words: &[&str]) -> String {
        let done = self.inside("host", "ip", words).output().unwrap();
        assert!(done.status.success(), "ip {words:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// Starts the agent, and waits until it serves.
    pub(crate) fn start_agent(&mut self) {
        self.start("", &[]);
    }

    /// The same with more arguments.
    pub(crate) fn start_agent_with(&mut self, more: &[&str]) {
        self.start("", more);
    }

    /// The same, after a script in a mount namespace of its own.
    pub(crate) fn start_agent_after(&mut self, before: &str) {
        self.start(before, &[]);
    }

    fn start(&mut self, before: &str, more: &[&str]) {
        let binary = env!("CARGO_BIN_EXE_margay");
        let (run, state) = (self.path("run"), self.path("state"));
        let script = format!(
            "set -e; {before} exec {binary} agent --node n1 --address 172.30.0.1/24 \
             --address fd30::1/64 --run-dir {} --state-dir {} {}",
            run.display(),
            state.display(),
            more.join(" ")
        );
        let words = ["--mount", "--propagation", "private", "sh", "-c", &script];
        let log = std::fs::File::options().create(true).append(true).open(self.path("log"));
        let mut command = self.inside("host", "unshare", &words);
        command.env("MARGAY_FAULT", self.fault);
        self.agent = Some(command.stderr(log.unwrap()).process_group(0).spawn().unwrap());
        until("the agent serves", || self.path("run/agent.sock").exists());
    }

    /// The process of the agent's supervisor.
    pub(crate) fn supervisor(&self) -> u32 {
        self.agent.as_ref().unwrap().id()
    }

    /// Kills the agent's processes: all of them, or the dataplane only.
    pub(crate) fn kill_agent(&mut self, with_supervisor: bool) {
        let agent = self.agent.as_mut().unwrap();
        let supervisor = i32::try_from(agent.id()).unwrap();
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        for child in children.split_whitespace() {
            kill(child.parse().unwrap());
        }
        if with_supervisor {
            kill(supervisor);
            agent.wait().unwrap();
            self.agent = None;
        }
    }

    /// Stops the dataplane where it is, or lets it go on.
    pub(crate) fn pause_dataplane(&self, pause: bool) {
        let supervisor = self.agent.as_ref().unwrap().id();
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        for child in std::fs::read_to_string(children).unwrap().split_whitespace() {
            let process = rustix::process::Pid::from_raw(child.parse().unwrap()).unwrap();
            rustix::process::kill_process(process, signal).unwrap();
        }
    }

    /// A call of the plugin, not yet finished. `fault` names a step at which the process that
    /// serves it ends; without an agent that is the plugin itself.
    pub(crate) fn call(&self, command: &str, id: &str, container: usize, fault: &str) -> Child {
        let mut environment = self.environment(command, id, container);
        environment.insert("MARGAY_FAULT".to_owned(), fault.to_owned());
        self.start_call(&environment, &self.configuration())
    }

    /// A call of the plugin that has not begun, with its configuration in a file.
    pub(crate) fn prepared(&self, command: &str, id: &str, container: usize) -> Command {
        let file = self.path("configuration.json");
        std::fs::write(&file, self.configuration().to_string()).unwrap();
        let plugin = self.path("calico");
        let mut process = self.inside("host", plugin.to_str().unwrap(), &[]);
        process.envs(self.environment(command, id, container));
        process.stdin(std::fs::File::open(&file).unwrap());
        process
    }

    /// A call with another network configuration, not yet finished.
    pub(crate) fn call_with(
        &self,
        command: &str,
        id: &str,
        container: usize,
        configuration: &Value,
    ) -> Child {
        self.start_call(&self.environment(command, id, container), configuration)
    }

    /// A call with other variables, not yet finished.
    pub(crate) fn call_as(
        &self,
        command: &str,
        id: &str,
        container: usize,
        variables: &[(&str, &str)],
    ) -> Child {
        let mut environment = self.environment(command, id, container);
        let variables = variables.iter().map(|(name, value)| (*name, *value));
        environment.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
        self.start_call(&environment, &self.configuration())
    }

    /// A call that no agent hears, with a journal of its own, as another program would make it; no
    /// interface bears its mark afterwards.
    pub(crate) fn call_beside(
        &self,
        command: &str,
        id: &str,
        container: usize,
        variables: &[(&str, &str)],
    ) -> Value {
        let mut environment = self.environment(command, id, container);
        let variables = variables.iter().map(|(name, value)| (*name, *value));
        environment.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let mut configuration = self.configuration();
        configuration.as_object_mut().unwrap().remove("agent_socket");
        configuration["state_dir"] = json!(self.path("beside"));
        let done = self.start_call(&environment, &configuration).wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
        for interface in self.interfaces() {
            let link: Value =
                serde_json::from_str(&self.ip(&["-j", "link", "show", &interface])).unwrap();
            if link[0]["ifalias"].as_str().is_some_and(|alias| alias.contains(id)) {
                self.ip(&["link", "set", &interface, "alias", ""]);
            }
        }
        serde_json::from_slice(&done.stdout).unwrap_or_default()
    }

    fn start_call(&self, environment: &BTreeMap<String, String>, configuration: &Value) -> Child {
        let plugin = self.path("calico");
        let mut process = self.inside("host", plugin.to_str().unwrap(), &[]);
        process.envs(environment);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = process.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // A plugin that was killed meanwhile reads nothing.
        let _ = input.write_all(configuration.to_string().as_bytes());
        child
    }

    /// Says to the agent what a plugin says that is killed right after.
    pub(crate) fn ask_and_hang_up(&self, command: &str, id: &str, container: usize) {
        let agent = UnixStream::connect(self.path("run/agent.sock")).unwrap();
        let environment = self.environment(command, id, container);
        let netns = std::fs::File::open(&environment["CNI_NETNS"]).unwrap();
        let question = Question {
            plugin: "calico".to_owned(),
            environment,
            input: self.configuration().to_string(),
            delegated: None,
        };
        host::protocol::ask(&agent, &question, Some(&netns.into())).unwrap();
    }

    fn environment(&self, command: &str, id: &str, container: usize) -> BTreeMap<String, String> {
        let netns = self.netns(&self.containers[container]).display().to_string();
        let variables = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", id),
            ("CNI_NETNS", &netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/none"),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    pub(crate) fn configuration(&self) -> Value {
        let mut configuration = json!({
            "cniVersion": "1.1.0", "name": self.network, "type": "calico",
            "nodename": "n1", "nodename_file_optional": true,
            "ipam": { "type": "calico-ipam", "assign_ipv6": "true" },
            "store": self.path("store.db"),
        });
        // Once set up, an agent is asked even while it does not run.
        if self.path("run").exists() {
            configuration["agent_socket"] = json!(self.path("run/agent.sock"));
        }
        configuration
    }

    /// A call of the plugin to its end.
    pub(crate) fn called(&self, command: &str, id: &str, container: usize) -> Output {
        self.call(command, id, container, "").wait_with_output().unwrap()
    }

    /// The same, which must go well; the answer.
    pub(crate) fn must(&self, command: &str, id: &str, container: usize) -> Value {
        let done = self.called(command, id, container);
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        assert!(done.status.success(), "{command} {id}: {done:?}\n{log}");
        serde_json::from_slice(&done.stdout).unwrap_or_default()
    }

    pub(crate) fn store(&self) -> Store {
        Store::Sqlite(sqlite::Store::open(self.path("store.db")).unwrap())
    }

    /// Removes a key, as somebody might who does not ask anybody.
    pub(crate) fn delete_key(&self, key: &str) {
        let ops = vec![Op::Delete { key: key.to_owned() }];
        self.store().commit(Txn { compares: Vec::new(), ops }).unwrap();
    }

    /// Every key below one of these, with its value.
    pub(crate) fn stored(&self, prefix: &str) -> Vec<(String, Value)> {
        if self.etcd.is_some() {
            return self.stored_in_etcd(prefix);
        }
        let listed = self.store().list(prefix).unwrap();
        let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap();
        listed.entries.iter().map(|entry| (entry.key.clone(), read(&entry.value))).collect()
    }

    fn stored_in_etcd(&self, prefix: &str) -> Vec<(String, Value)> {
        let listed = self.inside("host", "etcdctl", &["get", "--prefix", prefix]).output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        // A line with the key, a line with the value: there are no line feeds in ours.
        let text = String::from_utf8(listed.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.chunks(2);
        pairs.map(|it| (it[0].to_owned(), serde_json::from_str(it[1]).unwrap())).collect()
    }

    /// The addresses that the records say are in use, with their handles.
    pub(crate) fn allocated(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (_, block) in self.stored("/calico/ipam/v2/assignment/") {
            let cidr = block["cidr"].as_str().unwrap().to_owned();
            for (ordinal, attribute) in block["allocations"].as_array().unwrap().iter().enumerate()
            {
                if let Some(index) = attribute.as_u64() {
                    let attributes = &block["attributes"][usize::try_from(index).unwrap()];
                    let handle = attributes["handle_id"].as_str().unwrap_or_default();
                    all.push((format!("{cidr}+{ordinal}"), handle.to_owned()));
                }
            }
        }
        all
    }

    /// The host's interfaces of sandboxes.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        let links: Value = serde_json::from_str(&self.ip(&["-j", "link"])).unwrap();
        let names = links.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap());
        names.filter(|name| name.starts_with("cali")).map(str::to_owned).collect()
    }

    /// The files of the journal.
    pub(crate) fn journal(&self) -> Vec<Value> {
        let Ok(files) = std::fs::read_dir(self.path("state/sandboxes")) else { return Vec::new() };
        let files = files.map(|file| file.unwrap().path());
        let records = files.filter(|path| path.extension().is_some_and(|it| it == "json"));
        records.filter_map(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok()).collect()
    }

    /// Nothing is held by anybody: no address, handle, endpoint, interface, route or record.
    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.allocated(), []);
        assert_eq!(self.stored("/calico/ipam/v2/handle/"), []);
        let endpoints = "/calico/resources/v3/projectcalico.org/workloadendpoints/";
        assert_eq!(self.stored(endpoints), []);
        assert_eq!(self.interfaces(), Vec::<String>::new());
        assert_eq!(self.journal(), Vec::<Value>::new());
        assert!(!self.ip(&["route"]).contains("dev cali"), "{}", self.ip(&["route"]));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.agent.is_some() {
            self.kill_agent(true);
        }
        let names = self.path("netns");
        for name in self.containers.iter().map(String::as_str).chain(["host"]) {
            let _ = Netns::delete_named(&names, name);
        }
    }
}

fn pool(name: &str, cidr: &str) -> Value {
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "IPPool",
        "metadata": { "name": name }, "spec": { "cidr": cidr, "natOutgoing": true },
    })
}

pub(crate) fn kill(process: i32) {
    if let Some(process) = rustix::process::Pid::from_raw(process) {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
}

/// Waits for something that must come.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(120), "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
