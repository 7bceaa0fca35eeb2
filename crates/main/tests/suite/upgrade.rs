//! Addresses move from host-local's files to Calico's records, whatever happens on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use sandbox::upgrade::Step;
use serde_json::{Value, json};
use store::{Op, Txn};

use crate::harness::{Done, Place};
use crate::member::free_port;

const ROOT: &str = "/calico/resources/v3/projectcalico.org";
const FOLDER: &str = "networks/k8s-pod-network";
/// Three blocks of IPv4, one of IPv6.
const FILES: [(&str, &str); 5] = [
    ("10.0.0.1", "aaa111\r\neth0"),
    ("10.0.0.2", "bbb222\r\neth0"),
    ("10.0.0.9", "ccc333"),
    ("10.0.0.20", "ddd444\neth0\n"),
    ("fd00::7", "aaa111\r\neth0"),
];

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "kind": kind, "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
    })
}

fn put(place: &Place, plural: &str, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    place.put(&format!("{ROOT}/{plural}/{name}"), &object.to_string());
}

fn set_ready(place: &Place, ready: bool) {
    let spec = json!({"clusterGUID": "g", "datastoreReady": ready});
    put(place, "clusterinformations", &object("ClusterInformation", "default", &spec));
}

fn endpoint(place: &Place, pod: &str, container: &str, addresses: &[&str]) {
    let name = format!("n1-k8s-{pod}-eth0");
    let spec = json!({
        "orchestrator": "k8s", "node": "n1", "pod": pod, "containerID": container,
        "endpoint": "eth0", "ipNetworks": addresses, "interfaceName": format!("cali{pod}"),
    });
    let mut object = object("WorkloadEndpoint", &name, &spec);
    object["metadata"]["namespace"] = "shop".into();
    place.put(&format!("{ROOT}/workloadendpoints/shop/{name}"), &object.to_string());
}

/// A node with pools, a pod with both families, a tunnel, and files of host-local. Everything that
/// was there before is gone.
fn fill(place: &Place) {
    let old: BTreeSet<String> = place.dump().into_iter().map(|(key, _)| key).collect();
    let ops: Vec<Op> = old.into_iter().map(|key| Op::Delete { key }).collect();
    if !ops.is_empty() {
        place.store().commit(Txn { compares: vec![], ops }).unwrap();
    }
    for (name, cidr, size) in [("four", "10.0.0.0/24", 29), ("six", "fd00::/120", 125)] {
        let spec = json!({"cidr": cidr, "blockSize": size, "ipipMode": "Never",
            "vxlanMode": "Never"});
        put(place, "ippools", &object("IPPool", name, &spec));
    }
    set_ready(place, true);
    let spec = json!({"bgp": {"ipv4Address": "172.16.0.1/24", "ipv4IPIPTunnelAddr": "10.0.0.16"}});
    put(place, "nodes", &object("Node", "n1", &spec));
    endpoint(place, "web", "aaa111", &["10.0.0.1/32", "fd00::7/128"]);
    endpoint(place, "db", "bbb222", &["10.0.0.2/32"]);
    let _ = std::fs::remove_dir_all(place.path("networks"));
    for (name, contents) in FILES {
        place.file(&format!("{FOLDER}/{name}"), contents);
    }
    place.file(&format!("{FOLDER}/last_reserved_ip.0"), "10.0.0.20");
    place.file(&format!("{FOLDER}/lock"), "");
}

/// The command in these surroundings, by our name.
fn upgrade(place: &Place, words: &[&str]) -> Command {
    let mut command = place.command(&["ipam", "upgrade", "--node", "n1"]);
    command.env("MARGAY_NETWORKS_DIR", place.path("networks"));
    command.arg("--conf-dir").arg(place.path("net.d")).args(words);
    command
}

/// The same by Calico's.
fn named(place: &Place, words: &[&str]) -> Command {
    let mut command = place.command(&["-upgrade"]);
    command.arg0("/opt/cni/bin/calico-ipam").env("KUBERNETES_NODE_NAME", "n1");
    command.env("MARGAY_NETWORKS_DIR", place.path("networks"));
    command.arg("--conf-dir").arg(place.path("net.d")).args(words);
    command
}

fn done(mut command: Command) -> Done {
    Done::from(command.output().unwrap())
}

/// Who holds which address: the handle, and what stands beside it.
fn held(place: &Place) -> BTreeMap<String, (String, Value)> {
    let mut held = BTreeMap::new();
    for (_, bytes) in
        place.dump().into_iter().filter(|(key, _)| key.starts_with("/calico/ipam/v2/assignment/"))
    {
        let block: Value = serde_json::from_slice(&bytes).unwrap();
        let cidr = block["cidr"].as_str().unwrap();
        assert_eq!(block["affinity"], "host:n1", "{block}");
        let first = cidr.split('/').next().unwrap();
        for (n, index) in block["allocations"].as_array().unwrap().iter().enumerate() {
            let Some(index) = index.as_u64() else { continue };
            let holder = &block["attributes"][usize::try_from(index).unwrap()];
            let address = match first.rsplit_once(['.', ':']).unwrap() {
                (start, last) if first.contains('.') => {
                    format!("{start}.{}", last.parse::<usize>().unwrap() + n)
                }
                (start, _) => format!("{start}:{n:x}"),
            };
            let handle = holder["handle_id"].as_str().unwrap().to_owned();
            held.insert(address, (handle, holder["secondary"].clone()));
        }
    }
    held
}

/// What must be held in the end.
fn wanted() -> BTreeMap<String, (String, Value)> {
    let pod = |pod: &str| json!({"namespace": "shop", "node": "n1", "pod": pod});
    let alone = json!({"node": "n1"});
    let of = |container: &str| format!("k8s-pod-network.{container}");
    let tunnel = json!({"node": "n1", "type": "ipipTunnelAddress"});
    let all = [
        ("10.0.0.1", of("aaa111"), pod("web")),
        ("10.0.0.2", of("bbb222"), pod("db")),
        ("10.0.0.9", of("ccc333"), alone.clone()),
        ("10.0.0.16", "ipip-tunnel-addr-n1".to_owned(), tunnel),
        ("10.0.0.20", of("ddd444"), alone),
        ("fd00::7", of("aaa111"), pod("web")),
    ];
    all.map(|(address, handle, beside)| (address.to_owned(), (handle, beside))).into()
}

fn files(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path("networks")).into_iter().flatten().flatten();
    let inner = std::fs::read_dir(place.path(FOLDER)).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.chain(inner).map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn is_ready(place: &Place) -> bool {
    let stored = place.stored(&format!("{ROOT}/clusterinformations/default"));
    stored["spec"]["datastoreReady"] == true
}

#[test]
fn with_nothing_on_disk_nobody_is_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let place = Place::at(&format!("http://{}", listener.local_addr().unwrap()));
    for by in [upgrade, named] {
        let nothing = ["nothing to move: there is no ", "networks/k8s-pod-network"];
        done(by(&place, &[])).ok().says(&nothing);
        let mut elsewhere = by(&place, &[]);
        elsewhere.env("DATASTORE_TYPE", "kubernetes").env_remove("KUBERNETES_NODE_NAME");
        done(elsewhere).ok().says(&nothing);
        done(by(&place, &["--plan"])).ok().says(&["nothing to move"]);
        place.file(&format!("{FOLDER}/lock"), "");
        place.file(&format!("{FOLDER}/last_reserved_ip.0"), "10.0.0.1");
        done(by(&place, &[])).ok().says(&["nothing to move", "was empty"]);
        assert_eq!(files(&place), Vec::<String>::new());
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "it was asked");
}

#[test]
fn what_is_on_disk_needs_a_node_and_a_datastore_that_there_is() {
    let place = Place::embedded();
    fill(&place);
    let (before, on_disk) = (place.dump(), files(&place));
    let mut kubernetes = named(&place, &[]);
    kubernetes.env("DATASTORE_TYPE", "kubernetes");
    let said = ["Kubernetes datastore is not part of this version", "nothing was changed", "fix: "];
    done(kubernetes).code(2).complains(&said);
    if !std::path::Path::new("/var/lib/calico/nodename").exists() {
        let mut unnamed = named(&place, &[]);
        unnamed.env_remove("KUBERNETES_NODE_NAME");
        done(unnamed).code(2).complains(&["which node this is", "fix: KUBERNETES_NODE_NAME=NODE"]);
    }
    done(upgrade(&place, &["--network", "../x"])).code(2).complains(&["not the name of a network"]);
    assert_eq!((place.dump(), files(&place)), (before, on_disk));
}

#[test]
fn addresses_of_both_families_move_once() {
    for (place, by) in Place::both().into_iter().zip([upgrade, named]) {
        fill(&place);
        let (before, on_disk) = (place.dump(), files(&place));
        let plan = done(upgrade(&place, &["--plan"])).code(1);
        plan.says(&[
            "claim: 10.0.0.1 for k8s-pod-network.aaa111 (shop/web)",
            "claim: fd00::7 for k8s-pod-network.aaa111 (shop/web)",
            "claim: 10.0.0.9 for k8s-pod-network.ccc333",
        ]);
        assert_eq!((place.dump(), files(&place)), (before, on_disk), "a plan changes nothing");

        let moved = done(by(&place, &[])).code(0);
        moved
            .complains(&["claim: 2 addresses in 10.0.0.0/29", "verify: 5 files in "])
            .says(&["✓ 6 addresses moved"]);
        assert_eq!(held(&place), wanted());
        assert_eq!(files(&place), Vec::<String>::new());
        let handle = place.stored("/calico/ipam/v2/handle/k8s-pod-network.aaa111");
        assert_eq!(handle["block"], json!({"10.0.0.0/29": 1, "fd00::/125": 1}));
        let claims = place.store().list("/calico/ipam/v2/host/n1/").unwrap().entries;
        assert_eq!(claims.len(), 4);

        let after = place.dump();
        done(by(&place, &[])).ok().says(&["nothing to move"]);
        // Files that come back, as from a backup, are found to be moved already.
        for (name, contents) in FILES {
            place.file(&format!("{FOLDER}/{name}"), contents);
        }
        let again = done(by(&place, &["-o", "json"])).code(0);
        let answer: Value = serde_json::from_str(&again.out).unwrap();
        assert_eq!(answer["claimed"], json!([]), "{answer}");
        assert_eq!(answer["heldBefore"].as_array().unwrap().len(), 6, "{answer}");
        assert_eq!(answer["done"], true);
        assert_eq!(place.dump(), after);
    }
}

#[test]
fn a_run_that_ends_at_any_step_is_finished_by_the_next() {
    for place in Place::both() {
        for step in Step::ALL {
            for when in ["before", "after"] {
                let point = format!("{when}-{}", step.name());
                eprintln!("{point}");
                fill(&place);
                let words: &[&str] = match step {
                    Step::Unlock => &["--unlock"],
                    _ => &[],
                };
                set_ready(&place, step != Step::Unlock);
                let ended = done({
                    let mut command = upgrade(&place, words);
                    command.env("MARGAY_FAULT", &point);
                    command
                });
                assert_eq!(ended.code, -1, "{point} was not met: {ended:#?}");
                assert!(step == Step::Unlock || is_ready(&place), "{point}");
                let partly = held(&place);
                assert!(partly.iter().all(|(at, it)| wanted().get(at) == Some(it)), "{point}");
                done(upgrade(&place, words)).code(0);
                assert_eq!(held(&place), wanted(), "{point}");
                assert_eq!(files(&place), Vec::<String>::new(), "{point}");
                assert!(is_ready(&place), "{point}");
            }
        }
    }
}

#[test]
fn whatever_is_changed_is_a_step_and_every_step_can_be_ended_at() {
    let course = include_str!("../../../app/ctl/src/margay/ipam/upgrade/course.rs");
    let changes = ["folder.note(", "folder.remove(", "folder.fold(", "folder.forget("];
    let calls = course.lines().filter(|line| changes.iter().any(|it| line.contains(it)));
    let outside: Vec<&str> = calls.filter(|line| !line.contains("self.step(Step::")).collect();
    assert_eq!(outside, Vec::<&str>::new());
    let taken = course.split("self.step(Step::").skip(1);
    let taken = taken.filter_map(|rest| rest.split(',').next()).map(str::to_lowercase);
    let points: BTreeSet<String> = Step::ALL.iter().map(|step| step.name().to_owned()).collect();
    assert_eq!(taken.collect::<BTreeSet<_>>(), points);
}

#[test]
fn what_was_let_go_between_two_runs_is_not_taken_again() {
    let place = Place::embedded();
    fill(&place);
    let mut command = upgrade(&place, &[]);
    done({
        command.env("MARGAY_FAULT", "before-turn");
        command
    })
    .code(-1);
    assert_eq!(held(&place), wanted());
    place.margay("ipam release --ip 10.0.0.9 --yes --force").ok();
    let moved = done(upgrade(&place, &[])).code(0);
    moved.says(&["5 addresses moved", "1 let go since"]);
    assert!(!held(&place).contains_key("10.0.0.9"));
    assert_eq!(files(&place), Vec::<String>::new());
}

#[test]
fn a_datastore_that_does_not_answer_is_named_and_nothing_is_changed() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let urls = [format!("127.0.0.1:{}", free_port()), silent.local_addr().unwrap().to_string()];
    let places = urls.map(|at| Place::at(&format!("http://{at}")));
    let running = places.each_ref().map(|place| {
        for (name, contents) in FILES {
            place.file(&format!("{FOLDER}/{name}"), contents);
        }
        let mut command = named(place, &["--timeout", "12"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for (child, place) in running.into_iter().zip(&places) {
        let url = place.endpoints().to_owned();
        let ended = Done::from(child.wait_with_output().unwrap()).code(2);
        assert_eq!(ended.out, "");
        ended.complains(&[
            &format!("waiting for etcd {url}, "),
            " s of 12 s: ",
            "error: etcd does not answer: ",
            "nothing was changed (step reach)\n",
            "fix: start etcd",
        ]);
        assert_eq!(files(place).len(), FILES.len() + 1);
    }
}

#[test]
fn files_that_cannot_be_moved_are_named_and_the_others_are_held() {
    for place in Place::both() {
        fill(&place);
        endpoint(&place, "other", "zzz999", &["10.0.0.20/32"]);
        place.file(&format!("{FOLDER}/10.0.0.3"), "");
        place.file(&format!("{FOLDER}/10.0.0.4"), "two words");
        place.file(&format!("{FOLDER}/192.0.2.1"), "eee555\r\neth0");
        place.file(&format!("{FOLDER}/notes.txt"), "call me");
        std::fs::create_dir(place.path(&format!("{FOLDER}/10.0.0.5"))).unwrap();
        let on_disk = files(&place);
        let ended = done(upgrade(&place, &[])).code(1);
        let said = ["5 addresses held by calico-ipam", "the files stay", "put 6 files right"];
        let ended = ended.says(&said);
        for (name, what) in [
            ("10.0.0.3", "names no container: host-local was interrupted; fix: rm "),
            ("10.0.0.4", "\"two words\" is not the id of a container; fix: rm "),
            ("10.0.0.5", "a folder stands there instead of a file"),
            ("10.0.0.20", "shop/other on node n1 (zzz999) has 10.0.0.20, not container ddd444"),
            ("192.0.2.1", "192.0.2.1 lies in no enabled IP pool; fix: "),
            ("notes.txt", "the name is not an IP address"),
        ] {
            let lines: Vec<&str> =
                ended.err.lines().filter(|it| it.contains(&format!("/{name}: "))).collect();
            assert!(lines.len() == 1 && lines[0].contains(what), "{name}: {lines:?}\n{ended:#?}");
        }
        let mut all = wanted();
        all.remove("10.0.0.20");
        assert_eq!(held(&place), all);
        assert_eq!(files(&place).len(), on_disk.len() + 1, "and the journal");

        for name in ["10.0.0.3", "10.0.0.4", "192.0.2.1", "notes.txt", "10.0.0.20"] {
            std::fs::remove_file(place.path(&format!("{FOLDER}/{name}"))).unwrap();
        }
        std::fs::remove_dir(place.path(&format!("{FOLDER}/10.0.0.5"))).unwrap();
        done(upgrade(&place, &[])).code(0).says(&["5 addresses moved"]);
        assert_eq!(files(&place), Vec::<String>::new());
    }
}

#[test]
fn an_address_that_somebody_else_has_is_left_to_them() {
    let place = Place::embedded();
    fill(&place);
    done(upgrade(&place, &[])).code(0);
    place.file(&format!("{FOLDER}/10.0.0.9"), "fff666\r\neth0");
    let ended = done(upgrade(&place, &[])).code(1);
    ended.complains(&["/10.0.0.9: 10.0.0.9 is in use by k8s-pod-network.ccc333; fix: delete"]);
    assert_eq!(held(&place), wanted());
}

#[test]
fn a_block_that_may_not_be_borrowed_from_is_named() {
    let place = Place::embedded();
    fill(&place);
    place.margay("ipam configure --strictaffinity=true").code(0);
    let block = json!({
        "cidr": "10.0.0.8/29", "affinity": "host:n2", "allocations": [null, null, null, null, null,
        null, null, null], "unallocated": [0, 1, 2, 3, 4, 5, 6, 7], "attributes": [],
        "sequenceNumber": 1, "sequenceNumberForAllocation": {}, "deleted": false,
    });
    place.put("/calico/ipam/v2/assignment/ipv4/block/10.0.0.8-29", &block.to_string());
    let ended = done(upgrade(&place, &[])).code(1).says(&["5 addresses held by calico-ipam"]);
    ended.complains(&["/10.0.0.9: the block belongs to host:n2", "--strictaffinity=false"]);
    place.margay("ipam configure --strictaffinity=false").code(0);
    done(upgrade(&place, &[])).code(0).says(&["6 addresses moved", "5 held before"]);
}

#[test]
fn several_at_once_move_every_address_once() {
    for place in Place::both() {
        fill(&place);
        let running: Vec<_> = [upgrade, named, upgrade]
            .into_iter()
            .map(|by| {
                let mut command = by(&place, &[]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for child in running {
            Done::from(child.wait_with_output().unwrap()).code(0);
        }
        assert_eq!(held(&place), wanted());
        assert_eq!(files(&place), Vec::<String>::new());
    }
}

#[test]
fn files_stay_while_the_network_is_still_host_locals() {
    let place = Place::embedded();
    fill(&place);
    let conflist = |ipam: &str| {
        json!({"name": "k8s-pod-network", "cniVersion": "0.3.1",
            "plugins": [{"type": "calico", "ipam": {"type": ipam}}]})
        .to_string()
    };
    place.file("net.d/10-calico.conflist", &conflist("host-local"));
    let on_disk = files(&place).len();
    let ended = done(upgrade(&place, &[])).code(1);
    ended.says(&["the files stay", "net.d/10-calico.conflist names host-local"]);
    assert_eq!(held(&place), wanted());
    assert_eq!(files(&place).len(), on_disk + 1);
    // A container leaves, and its address with it.
    std::fs::remove_file(place.path(&format!("{FOLDER}/10.0.0.9"))).unwrap();
    place.file("net.d/10-calico.conflist", &conflist("calico-ipam"));
    let ended = done(upgrade(&place, &[])).code(0);
    ended.says(&["5 addresses moved", "host-local let 1 address go meanwhile"]);
    assert_eq!(files(&place), Vec::<String>::new());
}

#[test]
fn a_lock_that_calico_left_is_named_and_taken_off_when_asked_to() {
    let place = Place::embedded();
    fill(&place);
    set_ready(&place, false);
    std::fs::create_dir(place.path("bin")).unwrap();
    let (before, on_disk) = (place.dump(), files(&place));
    let ended = done(upgrade(&place, &["--timeout", "1", "--bin-dir", "bin"])).code(2);
    ended.complains(&[
        "error: the datastore is locked (ClusterInformation default: datastoreReady false)",
        "Calico's own upgrade was ended here after it had removed calico and host-local from bin",
        "fix: margay ipam upgrade --unlock",
    ]);
    place.file("bin/host-local", "");
    let ended = done(upgrade(&place, &["--timeout", "1", "--bin-dir", "bin"])).code(2);
    ended.complains(&["by Calico's own upgrade or by calicoctl datastore migrate"]);
    assert_eq!((place.dump(), files(&place)), (before, on_disk));
    done(upgrade(&place, &["--unlock"])).code(0).says(&["6 addresses moved"]);
    assert!(is_ready(&place));
    let stored = place.stored(&format!("{ROOT}/clusterinformations/default"));
    assert_eq!(stored["spec"]["clusterGUID"], "g");
}
