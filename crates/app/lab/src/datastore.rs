//! The lab's datastore: the embedded store, or a real etcd in the fabric.

use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use store::etcd::Config;
use store::{Store, etcd, sqlite};

use crate::arguments::DatastoreKind;
use crate::failure::Failure;
use crate::lab::{FABRIC, Lab};
use crate::processes;

/// Where etcd listens.
pub(crate) const ENDPOINT: &str = "http://172.30.0.1:2379";
/// The part of the lab that etcd is.
pub(crate) const PART: &str = "etcd";
const PEER_ENDPOINT: &str = "http://127.0.0.1:2380";
const START_WAIT: Duration = Duration::from_secs(20);
const APPLY_WAIT: Duration = Duration::from_secs(20);

/// Says how to get an etcd where there is none.
pub(crate) fn check_etcd() -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join("etcd").is_file());
    if is_there {
        return Ok(());
    }
    Err(Failure::new("etcd is not installed: no etcd in PATH").help(
        "apt-get install etcd-server, or dnf install etcd, or a release from \
         github.com/etcd-io/etcd/releases; without --datastore none is needed",
    ))
}

/// Starts etcd in the fabric and waits until it answers.
pub(crate) fn start_etcd(lab: &Lab) -> Result<(), Failure> {
    let folder = lab.place.folder.join("etcd");
    lab.place.make(&folder)?;
    let log = folder.join("etcd.log");
    let log_failed = |error| Failure::new(format!("{}: {error}", log.display()));
    let out = File::options().create(true).append(true).open(&log).map_err(log_failed)?;
    let mut command = processes::command(&lab.place, "etcd", PART);
    lab.surround(&mut command);
    // These variables are etcd's own settings as well, and flags beside them are an error.
    command.env_remove("ETCD_ENDPOINTS");
    command.args(["--name", "lab", "--data-dir"]).arg(folder.join("data"));
    command.args(["--listen-client-urls", ENDPOINT, "--advertise-client-urls", ENDPOINT]);
    command.args(["--listen-peer-urls", PEER_ENDPOINT]);
    command.args(["--initial-advertise-peer-urls", PEER_ENDPOINT]);
    command.arg("--initial-cluster").arg(format!("lab={PEER_ENDPOINT}"));
    command.stdin(Stdio::null()).stderr(out.try_clone().map_err(log_failed)?).stdout(out);
    let mut child = processes::spawn_in(&lab.netns(FABRIC)?, &mut command)?;
    let began = Instant::now();
    loop {
        let why = match with_store(lab, |store| store.get("/calico/").map(|_| ())) {
            Ok(()) => return Ok(()),
            Err(failure) => failure.what(),
        };
        let failed =
            || Failure::new("etcd does not start").detail(format!("log: {}", log.display()));
        if let Ok(Some(status)) = child.try_wait() {
            return Err(failed().why(status));
        }
        if began.elapsed() > START_WAIT {
            return Err(failed().why(format!("{why}; waited {} s", START_WAIT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Does something with the lab's store, from where it can be reached.
pub(crate) fn with_store<T: Send>(
    lab: &Lab,
    work: impl FnOnce(&Store) -> Result<T, store::Error> + Send,
) -> Result<T, Failure> {
    let done = match lab.state.datastore {
        DatastoreKind::Sqlite => work(&Store::Sqlite(sqlite::Store::open(lab.place.store())?)),
        DatastoreKind::Etcd => lab.netns(FABRIC)?.enter(|| {
            let config = Config {
                endpoints: vec![ENDPOINT.to_owned()],
                timeout: Duration::from_secs(2),
                ..Config::default()
            };
            // The connection is made by a thread that starts here, and so in the fabric.
            work(&Store::Etcd(etcd::Store::new(config)?))
        })?,
    };
    Ok(done?)
}

/// Writes the pools that pods get their addresses from, as a user would.
pub(crate) fn apply_pools(lab: &Lab) -> Result<(), Failure> {
    let pool = |name: &str, cidr: &str, block: u8| {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\n\
             spec: {{cidr: \"{cidr}\", blockSize: {block}, natOutgoing: true}}\n---\n"
        )
    };
    let mut documents = pool("lab-ipv4", "10.65.0.0/16", 26);
    if lab.state.ipv6 {
        documents += &pool("lab-ipv6", "fd65::/112", 122);
    }
    let mut command = lab.margay(&["apply", "-f", "-"], "apply")?;
    // Named on the command line, nothing that this host is set up for goes before it.
    match lab.state.datastore {
        DatastoreKind::Sqlite => {
            command.arg("--store").arg(lab.place.store());
        }
        DatastoreKind::Etcd => {
            let config = lab.place.folder.join("calicoctl.cfg");
            let text = format!(
                "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata: {{}}\n\
                 spec: {{datastoreType: etcdv3, etcdEndpoints: \"{ENDPOINT}\"}}\n"
            );
            let written = std::fs::write(&config, text);
            written.map_err(|error| Failure::new(format!("{}: {error}", config.display())))?;
            command.arg("--config").arg(config);
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let failed = |why: String| Failure::new("the pools of the lab cannot be written").why(why);
    let mut child = processes::spawn_in(&lab.netns(FABRIC)?, &mut command)?;
    let given = child.stdin.take().map(|mut input| input.write_all(documents.as_bytes()));
    let ended = processes::wait(&mut child, APPLY_WAIT);
    match (given, ended) {
        (_, Ok(Some(status))) if status.success() => Ok(()),
        (_, Ok(Some(_))) => Err(failed(processes::complaint(&mut child))),
        (_, Ok(None)) => Err(failed(format!("no answer within {} s", APPLY_WAIT.as_secs()))),
        (_, Err(error)) => Err(failed(error.to_string())),
    }
}
