//! A host of its own: namespaces for mounts, processes and the network, with layers over the
//! folders that are written to. Ending its first process ends everything in it.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use store::{Store, sqlite};
use tempfile::TempDir;

/// Long enough for a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folders that setting up and runtimes write to.
const LAYERED: [&str; 5] = ["/etc", "/opt", "/var/lib", "/usr/local", "/usr/lib/cni"];

/// What runs first. `$1` is the folder of this host, visible on both sides; what is below `layers`
/// is seen only inside, and what is removed is missing only there. The neighbour `out` is another
/// machine of the same subnet.
const FIRST: &str = r#"
set -e
mount -t tmpfs tmpfs "$1/layers"
for folder in $2; do
  name=$(echo "$folder" | tr / _)
  mkdir "$1/layers/$name" "$1/layers/$name.work"
  mount -t overlay overlay \
    -o "lowerdir=$folder,upperdir=$1/layers/$name,workdir=$1/layers/$name.work" "$folder"
done
rm -rf /var/lib/margay /etc/margay /etc/calico /etc/cni /opt/cni
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
hostname h1
ip link set lo up
ip netns add out
ip -n out link set lo up
ip link add eth0 type veth peer name eth0 netns out
ip addr add 172.30.0.1/24 dev eth0
ip -n out addr add 172.30.0.2/24 dev eth0
ip link set eth0 up
ip -n out link set eth0 up
ip route add default via 172.30.0.2
touch "$1/ready"
exec sleep infinity
"#;

/// A host.
pub(crate) struct World {
    folder: TempDir,
    holder: Child,
    /// Its first process, as seen from here.
    init: u32,
}

/// What a finished program left.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Whether all of these are installed; says which are not.
pub(crate) fn has(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(["/usr/sbin".into()]).collect();
    let is_missing = |it: &&&str| !folders.iter().any(|folder| folder.join(it).is_file());
    let missing: Vec<&&str> = programs.iter().filter(is_missing).collect();
    if !missing.is_empty() {
        eprintln!("skipped: not installed: {missing:?} (cargo xtask verify installs them)");
    }
    missing.is_empty()
}

impl World {
    /// A host; none, said aloud, where that is not possible.
    pub(crate) fn new() -> Option<World> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root on Linux");
            return None;
        }
        let kinds = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        if !kinds.contains("overlay") {
            eprintln!("skipped: this kernel has no overlayfs");
            return None;
        }
        if !has(&["ip", "nft", "nsenter", "unshare", "/usr/lib/cni/loopback"]) {
            return None;
        }
        let folder = tempfile::Builder::new().prefix("runtimes").tempdir().unwrap();
        std::fs::create_dir(folder.path().join("layers")).unwrap();
        let mut holder = Command::new("unshare");
        holder.args(["--mount", "--net", "--pid", "--uts", "--fork", "--kill-child=KILL"]);
        holder.args(["--mount-proc", "--propagation", "private", "sh", "-c", FIRST, "first"]);
        holder.arg(folder.path()).arg(LAYERED.join(" "));
        holder.stdin(Stdio::null()).process_group(0);
        let mut holder = holder.spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", holder.id());
        until("the host is there", || {
            assert_eq!(holder.try_wait().unwrap(), None, "the host cannot be made");
            folder.path().join("ready").exists()
        });
        let init = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
        Some(World { folder, holder, init })
    }

    /// A path on both sides.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A file of the host, as seen from here.
    pub(crate) fn seen(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    /// A program on the host.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.init)).args(["--mount", "--net", "--pid", "--uts"]);
        command.args(["--wd=/", "--"]).args(words).env_clear().stdin(Stdio::null());
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", self.path("layers")).env("LC_ALL", "C.UTF-8");
        command.env("CONTAINERS_CONF", self.path("containers.conf"));
        command
    }

    /// Runs a program on the host to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Done {
        Done::from(self.command(words).output().unwrap())
    }

    /// The same, which must go well; what it printed.
    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let done = self.run(words);
        assert_eq!(done.code, 0, "{words:?}: {done:#?}\n{}", self.log());
        done.out.trim_end().to_owned()
    }

    /// This program on the host; the words are separated by blanks.
    pub(crate) fn margay(&self, words: &str) -> Done {
        let program = env!("CARGO_BIN_EXE_margay");
        self.run(&std::iter::once(program).chain(words.split_whitespace()).collect::<Vec<_>>())
    }

    /// The words of a shell.
    #[track_caller]
    pub(crate) fn shell(&self, script: &str) -> String {
        self.ok(&["sh", "-ec", script])
    }

    /// Starts a daemon on the host; its log is the host's.
    pub(crate) fn start(&self, command: &mut Command) {
        let log = std::fs::File::options().create(true).append(true).open(self.path("log"));
        let log = log.unwrap();
        let mut child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        // It ends with the host; until then nobody waits for it.
        std::thread::spawn(move || child.wait());
    }

    /// What daemons said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Starts the agent as its unit says: with that command, environment, and no more rights.
    pub(crate) fn start_agent(&self) {
        let unit = self.ok(&["cat", "/etc/systemd/system/margay.service"]);
        let setting = |name: &str| {
            let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_else(|| panic!("{name} in {unit}")).to_owned()
        };
        let rights = setting("CapabilityBoundingSet").to_lowercase().replace("cap_", "+");
        let rights = format!("--bounding-set=-all,{}", rights.replace(' ', ","));
        let command = setting("ExecStart");
        let mut words = vec!["setpriv", "--no-new-privs", &rights];
        words.extend(command.split(' '));
        let mut agent = self.command(&words);
        for line in unit.lines().filter_map(|line| line.strip_prefix("Environment=\"")) {
            let (name, value) = line.trim_end_matches('"').split_once('=').unwrap();
            agent.env(name, value);
        }
        self.start(&mut agent);
        until("the agent serves", || self.margay("sandboxes").code == 0);
    }

    /// Ends the agent: its supervisor, and with it the rest.
    pub(crate) fn stop_agent(&self) {
        let refused = self.margay("remove --yes");
        let named = refused.err.split_once("the agent runs (process ");
        let named = named.and_then(|(_, rest)| rest.split_once(')'));
        let (process, _) = named.unwrap_or_else(|| panic!("{refused:?}"));
        self.ok(&["kill", process]);
        until("the agent is gone", || self.margay("sandboxes").code != 0);
    }

    /// A copy of the host's datastore. SQLite takes the link to the root of another process for its
    /// own root, so that it would open a file of this host.
    fn copied_store(&self, folder: &Path) -> Store {
        for (suffix, must_be) in [("", true), ("-wal", false)] {
            let from = self.seen(&format!("/var/lib/margay/store.db{suffix}"));
            let done = std::fs::copy(from, folder.join(format!("store.db{suffix}")));
            assert!(done.is_ok() || !must_be, "{done:?}");
        }
        Store::Sqlite(sqlite::Store::open(folder.join("store.db")).unwrap())
    }

    /// Nothing is held by any container: no address, endpoint, interface, or record of one.
    #[track_caller]
    pub(crate) fn assert_no_container(&self) {
        let links = self.ok(&["ip", "-br", "link"]);
        assert!(!links.contains("cali"), "{links}");
        let routes = self.ok(&["ip", "route"]);
        assert!(!routes.contains("dev cali"), "{routes}");
        let copy = tempfile::tempdir().unwrap();
        let store = self.copied_store(copy.path());
        let keys = |prefix: &str| {
            let entries = store.list(prefix).unwrap().entries;
            let keys = entries.into_iter().map(|entry| entry.key);
            // Addresses that the agent keeps for hard times belong to no container.
            keys.filter(|key| !key.contains("margay-reserve")).collect::<Vec<_>>()
        };
        assert_eq!(keys("/calico/ipam/v2/handle/"), Vec::<String>::new());
        let endpoints = "/calico/resources/v3/projectcalico.org/workloadendpoints/";
        assert_eq!(keys(endpoints), Vec::<String>::new());
        assert_eq!(self.shell("find /var/lib/margay -path '*/sandboxes/*.json'"), "");
    }

    /// Nothing of ours is anywhere: the kernel, the folders.
    #[track_caller]
    pub(crate) fn assert_nothing_of_ours(&self) {
        assert_eq!(self.ok(&["ip", "route", "show", "table", "all", "proto", "77"]), "");
        let tables = self.ok(&["nft", "list", "tables"]);
        assert!(!tables.contains("margay"), "{tables}");
        // Runtimes remember there what they were told of the containers that they still have.
        let but_theirs = "-path /var/lib/cni -prune -o -name '*margay*' -print";
        let find = format!("find {} -xdev {but_theirs}", LAYERED.join(" "));
        assert_eq!(self.shell(&find), "");
        assert_eq!(self.shell("find /usr/lib/cni /opt /etc -xdev -name 'calico*'"), "");
        assert_eq!(self.shell("find /run -xdev -name '*margay*'"), "");
    }

    /// An answer in JSON.
    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let text = self.ok(words);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Asks a web server on port 80 or another, from a place given as the words before.
    #[track_caller]
    pub(crate) fn fetch(&self, from: &[&str], address: &str, port: u16) -> String {
        let port = port.to_string();
        // Its `nc` ends when the server does.
        let script = r#"printf 'GET / HTTP/1.0\r\n\r\n' | busybox nc -w 20 "$0" "$1""#;
        let words = ["busybox", "sh", "-c", script, address, &port];
        self.ok(&from.iter().copied().chain(words).collect::<Vec<_>>())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Done {
        Done {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Done {
    /// Ends the test unless the exit code is this one and all of these are said.
    #[track_caller]
    pub(crate) fn says(self, code: i32, said: &[&str]) -> Done {
        assert_eq!(self.code, code, "{self:#?}");
        let all = format!("{}{}", self.out, self.err);
        for text in said {
            assert!(all.contains(text), "{text:?} is not said: {self:#?}");
        }
        self
    }
}

/// Waits for something that must come.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
