use std::collections::BTreeMap;

use ipam::{AssignIp, Moment, Planned, Planner, Pursuit, View, reserve_handle};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const FOLDER: &str = "/var/lib/cni/networks/k8s-pod-network";

/// A datastore in memory.
#[derive(Default)]
struct Records {
    entries: BTreeMap<String, (Vec<u8>, i64)>,
    revision: i64,
}

impl Records {
    /// With a pool of each family.
    fn new() -> Self {
        let mut records = Self { revision: 1, ..Self::default() };
        for (name, cidr) in [("four", "10.0.0.0/24"), ("six", "fd00::/120")] {
            let pool = json!({
                "kind": "IPPool", "apiVersion": "projectcalico.org/v3", "metadata": {"name": name},
                "spec": {"cidr": cidr, "blockSize": if name == "four" { 26 } else { 122 }},
            });
            let key = format!("/calico/resources/v3/projectcalico.org/ippools/{name}");
            records.put(&key, pool.to_string());
        }
        records
    }

    fn put(&mut self, key: &str, value: String) {
        self.revision += 1;
        self.entries.insert(key.to_owned(), (value.into_bytes(), self.revision));
    }

    fn run<T>(&mut self, mut operation: impl FnMut(&mut Planner<'_>) -> Planned<T>) -> T {
        let mut long = View::default();
        let mut pursuit = Pursuit::new(&long);
        loop {
            let now = Moment::from_nanoseconds(1);
            match pursuit.next(&mut long, now, &mut operation) {
                ipam::Next::Read(reads) => {
                    for read in reads {
                        let view = pursuit.view(&mut long);
                        match read {
                            ipam::Read::Key(key) => {
                                view.observe(&key, self.entries.get(&key).cloned(), self.revision);
                            }
                            ipam::Read::Prefix(prefix) => {
                                let under = self.entries.iter();
                                let under = under.filter(|(key, _)| key.starts_with(&prefix));
                                let all = under.map(|(key, it)| (key.clone(), it.0.clone(), it.1));
                                view.observe_prefix(
                                    &prefix,
                                    all.collect::<Vec<_>>(),
                                    self.revision,
                                );
                            }
                        }
                    }
                }
                ipam::Next::Commit(plan) => {
                    self.revision += 1;
                    for change in &plan.changes {
                        match &change.value {
                            Some(value) => {
                                let entry = (value.clone(), self.revision);
                                self.entries.insert(change.key.clone(), entry);
                            }
                            None => drop(self.entries.remove(&change.key)),
                        }
                    }
                    let revision = self.revision;
                    pursuit.committed(&mut long, ipam::Outcome::Applied(revision));
                }
                ipam::Next::Done(done) => return done.answer,
                _ => panic!("nobody disturbs"),
            }
        }
    }

    fn assign(&mut self, address: &str, handle: &str) {
        let request = AssignIp {
            node: "n1".to_owned(),
            address: address.parse().unwrap(),
            handle: Some(handle.to_owned()),
            attributes: BTreeMap::new(),
            purpose: String::new(),
            max_per_handle: 0,
            reserved: None,
        };
        self.run(|planner| planner.assign_ip(&request)).unwrap();
    }
}

fn given(address: &str, container: &str) -> Given {
    match read(FOLDER, address, || Ok(format!("{container}\r\neth0").into_bytes())) {
        Ok(Found::Given(given)) => given,
        other => panic!("{other:?}"),
    }
}

fn endpoint(node: &str, pod: &str, container: &str, address: &str) -> Vec<u8> {
    json!({
        "metadata": {"namespace": "shop", "name": "x"},
        "spec": {"node": node, "pod": pod, "containerID": container, "ipNetworks": [address]},
    })
    .to_string()
    .into_bytes()
}

fn claims(files: &[Given]) -> Vec<Claim> {
    let (claims, problems) = intend("n1", "net", files, &Endpoints::default(), None);
    assert_eq!(problems, []);
    claims
}

#[test]
fn files_are_read_by_name_and_first_line() {
    let all = |name: &str, contents: &str| read(FOLDER, name, || Ok(contents.into()));
    assert_eq!(all("lock", ""), Ok(Found::Lock));
    assert_eq!(all("last_reserved_ip.0", "10.0.0.9"), Ok(Found::Mark));
    for contents in ["abc", "abc\n", "abc\r\neth0", "abc\r\neth0\r\n", " abc \nx"] {
        let Ok(Found::Given(given)) = all("fd00::1", contents) else { panic!("{contents:?}") };
        assert_eq!((given.container.as_str(), given.address), ("abc", "fd00::1".parse().unwrap()));
    }
    for (name, contents, what) in [
        ("10.0.0.1", "", "names no container"),
        ("10.0.0.1", "\r\neth0", "names no container"),
        ("10.0.0.1", "a b", "\"a b\" is not the id of a container"),
        ("10.0.0.1", "../x", "is not the id"),
        ("notes.txt", "abc", "the name is not an IP address"),
        ("10.0.0.1~", "abc", "the name is not an IP address"),
    ] {
        let problem = all(name, contents).unwrap_err();
        assert!(problem.what.contains(what), "{problem:?}");
        assert!(problem.fix.contains(&format!("{FOLDER}/{name}")), "{problem:?}");
    }
    let problem = read(FOLDER, "10.0.0.1", || Err("no permission".to_owned())).unwrap_err();
    assert_eq!(problem.what, "cannot be read: no permission");
}

proptest! {
    #[test]
    fn any_file_is_understood_or_named(name in ".*", contents: Vec<u8>) {
        match read(FOLDER, &name, || Ok(contents)) {
            Ok(Found::Given(given)) => {
                prop_assert!(!given.container.contains(['/', ' ', '\n', '\r']));
                prop_assert!(net::parse_ip(&name).is_some());
            }
            Ok(_) => {}
            Err(problem) => prop_assert!(!problem.what.is_empty() && !problem.fix.is_empty()),
        }
    }
}

#[test]
fn endpoints_say_whose_an_address_is() {
    let mut endpoints = Endpoints::default();
    endpoints.add(b"{");
    endpoints.add(&endpoint("n1", "web", "ABC", "10.0.0.1/32"));
    endpoints.add(&endpoint("n2", "db", "d", "10.0.0.2/32"));
    endpoints.add(&endpoint("n1", "new", "e", "10.0.0.3/32"));
    let files = [("10.0.0.1", "abc"), ("10.0.0.2", "old"), ("10.0.0.3", "old"), ("10.0.0.4", "x")];
    let files = files.map(|(address, container)| given(address, container));
    let (claims, problems) = intend("n1", "net", &files, &endpoints, None);
    assert_eq!(claims.len(), 2);
    assert_eq!((claims[0].handle.as_str(), claims[0].is_confirmed), ("net.abc", true));
    assert_eq!(claims[0].attributes["pod"], "web");
    assert_eq!(claims[0].attributes["namespace"], "shop");
    assert_eq!(claims[1].attributes, BTreeMap::from([("node".to_owned(), "n1".to_owned())]));
    let told: Vec<&str> = problems.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(
        told,
        [
            "shop/db on node n2 (d) has 10.0.0.2, not container old",
            "shop/new on node n1 (e) has 10.0.0.3, not container old"
        ]
    );
}

#[test]
fn two_files_for_one_address_are_named_and_tunnels_are_claimed() {
    let object = json!({"spec": {"bgp": {"ipv4IPIPTunnelAddr": "10.0.0.1"},
        "ipv6VXLANTunnelAddr": "fd00::1", "wireguard": {"interfaceIPv4Address": 7}}});
    let files = [given("fd00::2", "a"), given("fd00:0::2", "b")];
    let (claims, problems) = intend("n1", "net", &files, &Endpoints::default(), Some(&object));
    assert_eq!(problems.len(), 1);
    assert!(problems[0].what.contains("has another file"), "{problems:?}");
    let handles: Vec<&str> = claims.iter().map(|it| it.handle.as_str()).collect();
    assert_eq!(handles, ["ipip-tunnel-addr-n1", "vxlan-v6-tunnel-addr-n1", "net.a"]);
    assert_eq!(claims[0].attributes["type"], "ipipTunnelAddress");
}

#[test]
fn every_claim_is_held_after_it_and_a_second_one_changes_nothing() {
    let mut records = Records::new();
    let files =
        ["10.0.0.1", "10.0.0.200", "fd00::9"].map(|it| given(it, &format!("c{}", it.len())));
    let (claims, journal) = (claims(&files), Journal::default());
    let before = records.run(|planner| survey(planner, "n1", &journal, &claims));
    assert!(before.iter().all(|it| matches!(it, Standing::Free(_))), "{before:?}");
    let done = records.run(|planner| claim(planner, "n1", &journal, &claims)).unwrap();
    assert_eq!(done, [Standing::Held, Standing::Held, Standing::Held]);
    let after = records.entries.clone();
    let again = records.run(|planner| claim(planner, "n1", &journal, &claims)).unwrap();
    assert_eq!(again, done);
    assert_eq!(records.entries, after);
    let blocks = after.keys().filter(|key| key.contains("/assignment/")).count();
    assert_eq!(blocks, 3);
    let holder = records.run(|planner| planner.get_attributes(files[0].address)).unwrap();
    assert_eq!(holder.handle.as_deref(), Some("net.c8"));
    assert_eq!(holder.active_owner, BTreeMap::from([("node".to_owned(), "n1".to_owned())]));
}

#[test]
fn what_cannot_be_claimed_is_named_and_the_rest_is_claimed() {
    let mut records = Records::new();
    records.assign("10.0.0.2", "net.other");
    let files = [("10.0.0.1", "a"), ("10.0.0.2", "b"), ("192.0.2.1", "c")];
    let claims = claims(&files.map(|(address, container)| given(address, container)));
    let journal = Journal::default();
    let done = records.run(|planner| claim(planner, "n1", &journal, &claims)).unwrap();
    assert_eq!(done[0], Standing::Held);
    let told = |standing: &Standing| match standing {
        Standing::Refused(problem) => problem.what.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&done[1]), "10.0.0.2 is in use by net.other");
    assert_eq!(told(&done[2]), "192.0.2.1 lies in no enabled IP pool");
}

#[test]
fn an_address_of_the_nodes_own_reserve_is_handed_over() {
    let mut records = Records::new();
    records.assign("10.0.0.1", &reserve_handle("n1"));
    records.assign("10.0.0.2", &reserve_handle("n2"));
    let claims = claims(&[given("10.0.0.1", "a"), given("10.0.0.2", "b")]);
    let journal = Journal::default();
    let done = records.run(|planner| claim(planner, "n1", &journal, &claims)).unwrap();
    assert_eq!(done[0], Standing::Held);
    assert!(matches!(done[1], Standing::Refused(_)), "{done:?}");
    assert!(!records.entries.keys().any(|key| key.ends_with("margay-reserve.n1")));
}

#[test]
fn what_was_claimed_and_let_go_is_not_claimed_again() {
    let mut records = Records::new();
    let claims = claims(&[given("10.0.0.1", "a"), given("10.0.0.2", "b")]);
    let mut journal = Journal::resume(None, "guid", "n1");
    journal.claimed = claims.iter().map(|it| (it.address, it.handle.clone())).collect();
    records.assign("10.0.0.2", "net.later");
    let stands = records.run(|planner| survey(planner, "n1", &journal, &claims));
    assert_eq!(stands, [Standing::LetGo, Standing::LetGo]);
    // What was claimed elsewhere says nothing here; an endpoint that lives says more.
    let other = Journal::resume(Some(journal.clone()), "another", "n1");
    let stands = records.run(|planner| survey(planner, "n1", &other, &claims));
    assert!(matches!(stands[..], [Standing::Free(_), Standing::Refused(_)]), "{stands:?}");
    let alive = [Claim { is_confirmed: true, ..claims[0].clone() }];
    let stands = records.run(|planner| survey(planner, "n1", &journal, &alive));
    assert!(matches!(stands[..], [Standing::Free(_)]), "{stands:?}");
    assert_eq!(journal.forsaken(&claims[..1]), [claims[1].address]);
    journal.is_clearing = true;
    assert_eq!(journal.forsaken(&claims[..1]), Vec::<IpAddr>::new());
}

#[test]
fn locked_records_are_not_changed() {
    let mut records = Records::new();
    let claims = claims(&[given("10.0.0.1", "a")]);
    let locked = json!({"spec": {"clusterGUID": "g", "datastoreReady": false}}).to_string();
    records.put(&crate::claim::lock_key(), locked);
    let before = records.entries.clone();
    let journal = Journal::default();
    assert_eq!(records.run(|planner| claim(planner, "n1", &journal, &claims)), None);
    assert_eq!(records.run(|planner| cluster(planner)), ("g".to_owned(), false));
    assert_eq!(records.entries, before);
    assert!(records.run(unlock));
    assert_eq!(records.run(|planner| cluster(planner)), ("g".to_owned(), true));
    assert!(!records.run(unlock), "there is nothing to unlock");
}

#[test]
fn configurations_name_their_address_manager() {
    let list =
        json!({"name": "net", "plugins": [{"type": "calico", "ipam": {"type": "host-local"}}]});
    let one = json!({"name": "net", "type": "calico", "ipam": {"type": "calico-ipam"}});
    assert!(names_host_local("net", &list) && !names_host_local("other", &list));
    assert!(!names_host_local("net", &one) && !names_host_local("net", &json!([])));
}
