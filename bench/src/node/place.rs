//! Where calls are made: a network namespace that stands for a node, with the datastore and the
//! agent that the way of calling needs, all on files and ports of their own.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use kernel::{LinkChange, LinkName, Netlink, Netns, Operation};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::process::ms;

/// Where Debian has the reference plugins.
const REFERENCE: &str = "/usr/lib/cni";
/// Inside the namespace, which nobody else is in.
const ETCD: &str = "127.0.0.1:2379";
const ETCD_PEER: &str = "http://127.0.0.1:2380";
const START_WAIT: Duration = Duration::from_secs(30);

/// A way of calling.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// Debian's ptp with host-local.
    Reference,
    /// Ours, this program.
    Ours {
        margay: PathBuf,
        is_on_etcd: bool,
        has_agent: bool,
        /// How often the agent looks for what is left over, if not as by default.
        join_every: Option<u64>,
    },
}

/// A node.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) netns: Netns,
    folder: PathBuf,
    plugin: PathBuf,
    configuration: Value,
    agent: Option<Child>,
    etcd: Option<Child>,
}

/// A container: a namespace, under a path by which others can open it.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) path: String,
    _netns: Netns,
}

impl Pod {
    pub(crate) fn new() -> anyhow::Result<Self> {
        use std::os::fd::{AsFd as _, AsRawFd as _};
        let netns = Netns::create()?;
        let number = netns.as_fd().as_raw_fd();
        Ok(Self { path: format!("/proc/{}/fd/{number}", std::process::id()), _netns: netns })
    }
}

/// A container's id as runtimes make them: hexadecimal, and different from the beginning on.
pub(crate) fn container_id(of: &str) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    let half = hasher.finish();
    format!("{half:016x}{:016x}", half.rotate_left(32))
}

impl Place {
    /// Makes the node in a folder of its own below `parent`.
    pub(crate) fn new(way: &Way, parent: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir_in(parent)?.keep();
        let netns = Netns::create()?;
        switch_on(&netns, "lo")?;
        let mut place = Self {
            netns,
            configuration: Value::Null,
            plugin: folder.join("calico"),
            agent: None,
            etcd: None,
            folder,
        };
        match way {
            Way::Reference => {
                place.plugin = Path::new(REFERENCE).join("ptp");
                let is_there = place.plugin.exists();
                ensure!(is_there, "{REFERENCE}/ptp: apt-get install containernetworking-plugins");
                place.configuration = place.reference();
            }
            Way::Ours { margay, is_on_etcd, has_agent, join_every } => {
                std::os::unix::fs::symlink(margay, &place.plugin)?;
                std::os::unix::fs::symlink(margay, place.folder.join("margay"))?;
                place.set_up(*is_on_etcd)?;
                if *has_agent {
                    place.start_agent(*join_every)?;
                }
            }
        }
        Ok(place)
    }

    fn reference(&self) -> Value {
        json!({
            "cniVersion": "0.4.0", "name": "bench", "type": "ptp",
            "ipam": {
                "type": "host-local", "dataDir": self.folder.join("host-local"),
                "ranges": [[{ "subnet": "10.99.0.0/16" }]], "routes": [{ "dst": "0.0.0.0/0" }],
            },
        })
    }

    fn set_up(&mut self, is_on_etcd: bool) -> anyhow::Result<()> {
        if is_on_etcd {
            self.start_etcd()?;
        }
        let pool = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "IPPool",
            "metadata": { "name": "bench" }, "spec": { "cidr": "10.65.0.0/16" },
        });
        let node = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "Node",
            "metadata": { "name": "n1" }, "spec": {},
        });
        let file = self.folder.join("objects.yaml");
        fs::write(&file, format!("{pool}\n---\n{node}\n"))?;
        let mut apply = self.margay(&["apply", "-f"]);
        let done = self.netns.enter(|| apply.arg(&file).output())??;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut configuration = json!({
            "cniVersion": "1.0.0", "name": "bench", "type": "calico",
            "nodename": "n1", "nodename_file_optional": true, "ipam": { "type": "calico-ipam" },
        });
        match is_on_etcd {
            true => configuration["etcd_endpoints"] = format!("http://{ETCD}").into(),
            false => configuration["store"] = json!(self.folder.join("store.db")),
        }
        self.configuration = configuration;
        Ok(())
    }

    /// A command of ours, on the datastore of this node.
    pub(crate) fn margay(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.folder.join("margay"));
        command.args(words).env_clear().env("MARGAY_STATE_DIR", self.folder.join("state"));
        match self.etcd.is_some() {
            true => command
                .env("DATASTORE_TYPE", "etcdv3")
                .env("ETCD_ENDPOINTS", format!("http://{ETCD}")),
            false => command
                .env("DATASTORE_TYPE", "embedded")
                .env("MARGAY_STORE", self.folder.join("store.db")),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start_etcd(&mut self) -> anyhow::Result<()> {
        let url = format!("http://{ETCD}");
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(self.folder.join("etcd"));
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", ETCD_PEER]);
        command.args(["--initial-advertise-peer-urls", ETCD_PEER]);
        command.args(["--initial-cluster", &format!("default={ETCD_PEER}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = self.netns.enter(|| command.spawn())?.context("etcd must be in PATH")?;
        self.etcd = Some(child);
        until("etcd serves", || self.etcd_says("/health").is_ok_and(|said| said.contains("true")))
    }

    fn start_agent(&mut self, join_every: Option<u64>) -> anyhow::Result<()> {
        self.spawn_agent(join_every)?;
        until("the agent serves", || UnixStream::connect(self.socket()).is_ok())
    }

    /// Starts the agent, and waits for nothing.
    pub(crate) fn spawn_agent(&mut self, join_every: Option<u64>) -> anyhow::Result<()> {
        self.configuration["agent_socket"] = json!(self.socket());
        let mut command = self.margay(&["agent", "--node", "n1", "--address", "172.30.0.1/24"]);
        command.args(join_every.map(|seconds| format!("--join-every={seconds}")));
        command.arg("--run-dir").arg(self.folder.join("run"));
        let log = File::create(self.folder.join("log"))?;
        command.stdout(Stdio::null()).stderr(log);
        self.agent = Some(self.netns.enter(|| command.spawn())??);
        Ok(())
    }

    /// Ends the agent as a crash would: what it has made stays.
    pub(crate) fn kill_agent(&mut self) {
        // The supervisor first: it would start its child again.
        let processes = self.agent_processes();
        for process in processes.iter().filter_map(|process| i32::try_from(*process).ok()) {
            let _ = nix::sys::signal::kill(Pid::from_raw(process), nix::sys::signal::SIGKILL);
        }
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        // Its successor needs what it held, and finds out what it held by asking for it.
        let _ = until("the agent is gone", || processes.iter().all(|it| is_over(*it)));
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("run/agent.sock")
    }

    /// A page of etcd.
    fn etcd_says(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = self.netns.enter(|| TcpStream::connect(ETCD))??;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    }

    /// How many requests for keys etcd has handled.
    pub(crate) fn requests(&self) -> anyhow::Result<f64> {
        let said = self.etcd_says("/metrics")?;
        let counts = said
            .lines()
            .filter(|line| line.starts_with("grpc_server_handled_total"))
            .filter(|line| line.contains("grpc_service=\"etcdserverpb.KV\""))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.sum())
    }

    /// The processes of the agent: the supervisor, and what it started.
    pub(crate) fn agent_processes(&self) -> Vec<u32> {
        let Some(agent) = &self.agent else { return Vec::new() };
        let supervisor = agent.id();
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
        let children = children.unwrap_or_default();
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        std::iter::once(supervisor).chain(children).collect()
    }

    /// Processor time that finished plugins and the agent have used, in milliseconds.
    pub(crate) fn cpu_ms(&self) -> anyhow::Result<f64> {
        let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let plugins = used.user_time().num_microseconds() + used.system_time().num_microseconds();
        Ok(plugins as f64 / 1000.0 + self.agent_cpu_ms()?)
    }

    /// Processor time that the agent has used, in milliseconds.
    pub(crate) fn agent_cpu_ms(&self) -> anyhow::Result<f64> {
        let mut all = 0.0;
        for process in self.agent_processes() {
            let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(i32::try_from(process)?))?;
            let used: TimeSpec = clock_gettime(clock)?;
            all += used.num_nanoseconds() as f64 / 1e6;
        }
        Ok(all)
    }

    /// Calls the plugin for containers, all at once; what each call took, in milliseconds.
    pub(crate) fn call(&self, verb: &str, calls: &[(String, &Pod)]) -> anyhow::Result<Vec<f64>> {
        let start = std::sync::Barrier::new(calls.len());
        let times: Vec<anyhow::Result<f64>> = self.netns.enter(|| {
            std::thread::scope(|scope| {
                let begun: Vec<_> = calls
                    .iter()
                    .map(|(id, pod)| {
                        let start = &start;
                        scope.spawn(move || {
                            start.wait();
                            self.one(verb, id, &pod.path)
                        })
                    })
                    .collect();
                let ended = begun.into_iter().map(|call| call.join());
                ended.map(|time| time.unwrap_or_else(|_| bail!("a call panicked"))).collect()
            })
        })?;
        times.into_iter().collect()
    }

    /// One call, from a thread in the node's namespace.
    fn one(&self, verb: &str, id: &str, netns: &str) -> anyhow::Result<f64> {
        let mut command = Command::new(&self.plugin);
        command.env_clear().env("CNI_COMMAND", verb).env("CNI_CONTAINERID", id);
        command.env("CNI_NETNS", netns).env("CNI_IFNAME", "eth0").env("CNI_PATH", REFERENCE);
        command.env("MARGAY_STATE_DIR", self.folder.join("state"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let configuration = self.configuration.to_string();
        let began = Instant::now();
        let mut child = command.spawn()?;
        let mut input = child.stdin.take().context("the plugin has an input")?;
        input.write_all(configuration.as_bytes())?;
        drop(input);
        let output = child.wait_with_output()?;
        let took = began.elapsed();
        let said = || String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{verb} {id}: {}", said());
        Ok(ms(took))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.kill_agent();
        if let Some(child) = &mut self.etcd {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether a process has ended, whoever is to be told of it.
fn is_over(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.map_or(true, |status| status.contains("State:\tZ"))
}

fn switch_on(netns: &Netns, link: &str) -> anyhow::Result<()> {
    let mut netlink = Netlink::in_netns(netns)?;
    let found = netlink.link_by_name(&LinkName::new(link)?)?.context("every namespace has lo")?;
    Ok(netlink.apply(&Operation::ChangeLink(found.index, LinkChange::up()))?)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_so() {
        ensure!(began.elapsed() < START_WAIT, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
