//! The same on a real etcd, where there is one.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::free_port::free_port;
use super::*;

const ETCD: &str = "/usr/bin/etcd";

struct Server {
    process: Child,
    endpoint: String,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn server() -> Option<Server> {
    if !std::path::Path::new(ETCD).exists() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let peer = format!("http://127.0.0.1:{}", free_port());
    let process = Command::new(ETCD)
        .args(["--name", "n", "--data-dir"])
        .arg(folder.path())
        .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("n={peer}"), "--log-level", "error"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Some(Server { process, endpoint, _folder: folder })
}

fn client(server: &Server) -> Resources {
    let config =
        crate::etcd::Config { endpoints: vec![server.endpoint.clone()], ..Default::default() };
    let store = Store::Etcd(crate::etcd::Store::new(config).unwrap());
    let client = Resources::new(store, Manner::default());
    let until = Instant::now() + Duration::from_secs(30);
    while let Err(error) = client.initialise() {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
    client
}

#[test]
fn every_kind_lives_on_etcd_too() {
    let Some(server) = server() else { return };
    life_of_every_kind(&client(&server));
}

#[test]
fn many_objects_fit_into_etcds_transactions() {
    let Some(server) = server() else { return };
    let client = client(&server);
    let objects: Vec<Value> = (0..1000).map(|it| decoded(&policy(&format!("p{it}")))).collect();
    let outcomes = client.write_all(Verb::Apply, &objects, Together::AllOrNothing);
    let written: Vec<Written> = outcomes.into_iter().map(Result::unwrap).collect();
    let revisions: BTreeSet<i64> = written.iter().map(|it| it.revision).collect();
    assert_eq!(revisions.len(), 10);
    assert_eq!(client.list(Kind::NetworkPolicy, None).unwrap().objects.len(), 1000);
}

#[test]
fn concurrent_writers_do_not_break_what_each_has_checked() {
    let Some(server) = server() else { return };
    let client = client(&server);
    one_pool_wins(&client);
    no_policy_loses_its_tier(&client);
}
