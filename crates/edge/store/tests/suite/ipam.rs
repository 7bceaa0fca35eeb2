//! Address management on real stores: many at once, and what one assignment costs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::keys::ipam::{Block, Handle};
use ipam::{AutoAssign, View, holders};
use serde_json::{Value, json};
use store::ipam::Driver;
use store::{Op, Store, Txn};

use crate::conformance::on_both;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

fn put(store: &Store, key: &str, value: &Value) {
    let op = Op::Put { key: key.to_owned(), value: value.to_string().into_bytes() };
    store.commit(Txn { compares: Vec::new(), ops: vec![op] }).unwrap();
}

/// A small pool of each family and some nodes.
fn prepare(store: &Store) {
    let pools = [("p1", "10.0.0.0/26", 29), ("p2", "fd00::/122", 125)];
    for (name, cidr, size) in pools {
        let pool = json!({"spec": {"cidr": cidr, "blockSize": size}});
        put(store, &format!("{RESOURCES}/ippools/{name}"), &pool);
    }
    for node in 0..4 {
        put(store, &format!("{RESOURCES}/nodes/n{node}"), &json!({"metadata": {}}));
    }
}

fn request(node: usize, handle: &str) -> AutoAssign {
    AutoAssign {
        node: format!("n{node}"),
        num4: 1,
        num6: 1,
        handle: Some(handle.to_owned()),
        purpose: "Workload".to_owned(),
        ..AutoAssign::default()
    }
}

/// No address is held twice, lists fit together, and handles count what they hold.
fn check(store: &Store) -> usize {
    let json = |value: &[u8]| serde_json::from_slice::<Value>(value).unwrap();
    let mut held: BTreeMap<(String, String), i64> = BTreeMap::new();
    let mut seen: BTreeSet<IpAddr> = BTreeSet::new();
    for entry in store.list("/calico/ipam/v2/assignment/").unwrap().entries {
        let block = Block::decode(&json(&entry.value)).unwrap();
        assert_eq!(block.check(), [], "{}", entry.key);
        for (address, holder) in holders(&block) {
            assert!(seen.insert(address), "{address} is held twice");
            let key = (holder.handle.clone().unwrap(), block.cidr.to_string());
            *held.entry(key).or_default() += 1;
        }
    }
    let mut counted = BTreeMap::new();
    for entry in store.list("/calico/ipam/v2/handle/").unwrap().entries {
        let id = entry.key.rsplit('/').next().unwrap().to_owned();
        let blocks = Handle::decode(&json(&entry.value)).unwrap().blocks;
        counted.extend(blocks.into_iter().map(|(cidr, count)| ((id.clone(), cidr), count)));
    }
    assert_eq!(counted, held);
    seen.len()
}

#[test]
fn many_at_once_never_get_one_address() {
    const THREADS: usize = 16;
    const ROUNDS: usize = 12;
    on_both(|store| {
        prepare(store);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let driver = Driver::new(store.clone());
                scope.spawn(move || {
                    // Half of them keep what they know, which is mostly out of date.
                    let mut view = View::default();
                    for round in 0..ROUNDS {
                        let handle = format!("h{thread}-{round}");
                        let wanted = request(thread % 4, &handle);
                        let given = driver.run(&mut view, |planner| planner.auto_assign(&wanted));
                        let given = given.unwrap().answer;
                        assert_eq!(given.error, None);
                        assert_eq!(given.addresses().count(), 2, "{given:?}");
                        if round % 4 != 0 {
                            let release = |planner: &mut ipam::Planner<'_>| {
                                planner.release_by_handle(&handle)
                            };
                            driver.run(&mut view, release).unwrap().answer.unwrap();
                        }
                        if thread % 2 == 0 {
                            view = View::default();
                        }
                    }
                });
            }
        });
        assert_eq!(check(store), THREADS * 2 * ROUNDS.div_ceil(4));
    });
}

#[test]
fn with_everything_known_an_assignment_is_one_request() {
    on_both(|store| {
        prepare(store);
        let driver = Driver::new(store.clone());
        let mut view = View::default();
        driver.run(&mut view, |planner| planner.auto_assign(&request(0, "h1"))).unwrap();
        let handles = ipam::Read::Prefix("/calico/ipam/v2/handle/".to_owned());
        driver.read(&mut view, &[handles]).unwrap();
        let step = ipam::plan(&view, store::ipam::now(), |planner| {
            let first = planner.auto_assign(&request(0, "h2"))?;
            Ok((first, planner.auto_assign(&request(0, "h3"))?))
        });
        assert!(matches!(step, ipam::Step::Done(..)), "{step:?}");
        let done = driver
            .run(&mut view, |planner| {
                let first = planner.auto_assign(&request(0, "h2"))?;
                Ok((first, planner.auto_assign(&request(0, "h3"))?))
            })
            .unwrap();
        assert_eq!(done.commits, 1);
        assert_eq!(check(store), 6);
    });
}

#[test]
fn an_old_view_never_answers_that_there_is_nothing() {
    on_both(|store| {
        prepare(store);
        let driver = Driver::new(store.clone());
        let mut old = View::default();
        let ask = |view: &mut View| driver.run(view, |planner| planner.ips_by_handle("h1"));
        ask(&mut old).unwrap().answer.unwrap_err();
        let wanted = request(2, "h1");
        driver.run(&mut View::default(), |planner| planner.auto_assign(&wanted)).unwrap();
        assert_eq!(ask(&mut old).unwrap().answer.unwrap().len(), 2);
        let release = |planner: &mut ipam::Planner<'_>| planner.release_by_handle("h1");
        driver.run(&mut old, release).unwrap().answer.unwrap();
        assert_eq!(check(store), 0);
    });
}

#[test]
fn many_blocks_go_in_several_transactions() {
    on_both(|store| {
        let pool = json!({"spec": {"cidr": "10.0.0.0/23", "blockSize": 30}});
        put(store, &format!("{RESOURCES}/ippools/p1"), &pool);
        let driver = Driver::new(store.clone());
        let owner = ipam::Owner::node("n1");
        let cidr = "10.0.0.0/23".parse().unwrap();
        let claim = |planner: &mut ipam::Planner<'_>| planner.claim_affinity(cidr, &owner);
        let done = driver.run(&mut View::default(), claim).unwrap();
        assert_eq!(done.answer.unwrap().claimed.len(), 128);
        assert_eq!(store.list("/calico/ipam/v2/host/n1/").unwrap().entries.len(), 128);
        let release =
            |planner: &mut ipam::Planner<'_>| planner.release_host_affinities(&owner, true);
        driver.run(&mut View::default(), release).unwrap().answer.unwrap();
        assert_eq!(store.list("/calico/ipam/v2/").unwrap().entries.len(), 0);
    });
}

#[test]
fn an_answer_that_must_be_looked_up_does_not_cost_what_a_watch_has_told() {
    on_both(|store| {
        prepare(store);
        let driver = Driver::new(store.clone());
        let mut view = View::default();
        let everything = ipam::Read::Prefix("/calico/".to_owned());
        driver.read(&mut view, &[everything]).unwrap();
        let nothing = driver.run(&mut view, |planner| planner.ips_by_handle("nobody")).unwrap();
        assert!(nothing.answer.is_err() && nothing.plan.is_doubtful);
        let key = "/calico/ipam/v2/handle/somebody";
        let step = ipam::plan(&view, store::ipam::now(), |planner| planner.get(key));
        assert!(matches!(step, ipam::Step::Done(None, _)), "{step:?}");
        // Somebody else writes; the view does not know it yet.
        put(store, key, &json!({"handleID": "somebody", "block": {}}));
        let found = driver.run(&mut view, |planner| planner.get(key)).unwrap().answer;
        assert!(found.is_some());
        let step = ipam::plan(&view, store::ipam::now(), |planner| planner.get(key));
        assert!(matches!(step, ipam::Step::Done(Some(_), _)), "{step:?}");
    });
}
