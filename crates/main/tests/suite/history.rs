//! Taking writes back.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use crate::harness::{Done, Place, policy, pool, until};

fn order(place: &Place) -> serde_json::Value {
    place.json("get np web -n shop")["spec"]["order"].clone()
}

#[test]
fn undo_steps_back_write_by_write_to_the_empty_store() {
    for place in Place::both() {
        for n in 1..=3 {
            place.give("apply", &policy("shop", "web", n)).ok();
        }
        place.margay("undo").ok().says(&["✓ write 3 taken back: NetworkPolicy shop/web", "redo: "]);
        assert_eq!(order(&place), 2);
        place.margay("undo").ok().says(&["write 2"]);
        assert_eq!(order(&place), 1);
        place.margay("undo").ok().says(&["write 1"]);
        place.margay("get np web -n shop").refused(&["does not exist"]);
        place.margay("undo").refused(&["there is no write to take back"]);
    }
}

#[test]
fn an_undo_can_be_undone_and_removals_come_back_as_they_were() {
    for place in Place::both() {
        place.give("apply", &(policy("shop", "web", 1) + &policy("shop", "db", 2))).ok();
        let before = place.dump();
        place.margay("delete np web db -n shop --yes").ok().says(&["✓ 2 removed", "undo 2"]);
        place.margay("undo 2").ok().says(&["redo: margay undo 3"]);
        assert_eq!(place.dump(), before);
        place.margay("undo 3").ok();
        place.margay("get np -A").code(0).complains(&["no networkpolicies"]);
    }
}

#[test]
fn undo_never_overwrites_what_somebody_else_changed() {
    for place in Place::both() {
        place.give("apply", &(policy("shop", "web", 1) + &policy("shop", "db", 1))).ok();
        place.give("apply", &(policy("shop", "web", 2) + &policy("shop", "db", 2))).ok();
        let file = place.file("theirs.yaml", &policy("shop", "web", 9));
        place.run(&["calicoctl", "apply", "-f", &file]).code(0);
        let before = place.dump();
        let refused = place.margay("undo").refused(&[
            "somebody changed these objects since; nothing was taken back",
            "NetworkPolicy shop/web: written again",
        ]);
        assert!(!refused.err.contains("shop/db"), "only what is in the way: {refused:?}");
        assert_eq!(place.dump(), before);
    }
}

#[test]
fn an_undo_that_was_killed_half_way_can_be_said_again() {
    for place in Place::both() {
        place.give("apply", &(policy("shop", "web", 1) + &policy("shop", "db", 1))).ok();
        let before = place.dump();
        place.give("apply", &(policy("shop", "web", 2) + &policy("shop", "db", 2))).ok();
        let (key, value) = before.iter().find(|(key, _)| key.contains("web")).unwrap();
        place.put(key, std::str::from_utf8(value).unwrap());
        place.margay("undo").ok().says(&["✓ write 2 taken back: NetworkPolicy shop/db\n"]);
        assert_eq!(place.dump(), before);
        let said = "write 2 was taken back already, by write 3\n";
        place.margay("undo 2").refused(&[said, "help: margay undo 3 makes it again\n"]);
    }
}

#[test]
fn a_write_to_another_store_is_not_taken_back_here() {
    let place = Place::embedded();
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    let elsewhere = place.path("other.db").display().to_string();
    place.run(&["--store", &elsewhere, "undo", "1"]).refused(&["went to", "store.db", "other.db"]);
    place.run(&["--store", &elsewhere, "apply", "-f", "given.yaml"]).ok();
    // The last write of this store is meant, not the last of all.
    place.margay("undo").ok().says(&["write 1"]);
    let absent = place.margay("undo 77").refused(&["there is no write 77", "help: margay history"]);
    assert!(!absent.err.contains(".json"), "no file of ours is at fault: {absent:?}");
}

#[test]
fn the_history_is_listed_bounded_and_private() {
    let place = Place::embedded();
    place.margay("history").code(0).complains(&["no writes yet"]);
    for n in 1..=105 {
        place.give("apply", &pool("p", "10.1.0.0/24").replace("---", &label(n))).ok();
    }
    let list = place.json("history");
    let numbers: Vec<i64> =
        list.as_array().unwrap().iter().map(|entry| entry["number"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (6..=105).rev().collect::<Vec<_>>());
    place.margay("history").ok().says(&[
        "NUMBER",
        "IPPool p",
        "margay apply -f given.yaml",
        "store.db",
    ]);
    let dir = place.path("state/history");
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for entry in dir.read_dir().unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
    }
}

fn label(n: usize) -> String {
    format!("  nodeSelector: n == \"{n}\"")
}

fn tier(name: &str) -> String {
    format!("apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata:\n  name: {name}\n---\n")
}

fn policy_in(tier: &str) -> String {
    policy("shop", &format!("{tier}.web"), 1)
        .replace("spec:\n", &format!("spec:\n  tier: {tier}\n"))
}

#[test]
fn a_write_that_somebody_else_took_back_is_not_the_end_of_the_way() {
    for place in Place::both() {
        place.give("apply", &policy("shop", "web", 1)).ok();
        place.give("apply", &policy("shop", "db", 1)).ok();
        place.run(&["calicoctl", "delete", "np", "db", "-n", "shop"]).code(0);
        let said = "all is as it was before write 2\n";
        let refused = place.margay("undo").refused(&[said, "help: margay undo 1 takes back"]);
        let named = place.margay("undo 2").refused(&[said]);
        assert!(!named.err.contains("undo 1"), "that one was not meant: {named:?}");
        let help = refused.err.lines().find_map(|line| line.strip_prefix("help: margay ")).unwrap();
        let command = help.strip_suffix(" takes back the one before").unwrap();
        place.margay(command).ok().says(&["write 1 taken back: NetworkPolicy shop/web"]);
    }
}

#[test]
fn what_is_to_be_pasted_leads_to_the_datastore_that_flags_chose() {
    let place = Place::embedded();
    place.file("given.yaml", &policy("shop", "web", 1));
    let done = place.margay("--store other.db apply given.yaml").ok();
    assert!(done.out.ends_with("undo: margay --store other.db undo 1\n"), "{done:?}");
    let done = place.margay("--store other.db undo").ok();
    assert!(done.out.ends_with("redo: margay --store other.db undo 2\n"), "{done:?}");
    place.margay("--store other.db undo 2").ok();
    place.margay("label np web -n shop a=b --store other.db").ok();
    let help = "help: margay --store other.db undo 4 && margay --store other.db undo 1\n";
    place.margay("undo 1 --store other.db").refused(&[help]);
    let done = place.run(&["--store", "a b.db", "apply", "given.yaml"]).ok();
    assert!(done.out.ends_with("undo: margay --store 'a b.db' undo 5\n"), "{done:?}");
}

#[test]
fn a_fresh_store_in_the_old_place_is_another_store() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "web", 1)).ok();
    for file in ["store.db", "store.db-wal", "store.db-shm"] {
        let _ = std::fs::remove_file(place.path(file));
    }
    let file = place.file("theirs.yaml", &policy("shop", "web", 9));
    place.run(&["calicoctl", "apply", "-f", &file]).code(0);
    let before = place.dump();
    place.margay("undo 1").refused(&["write 1 went to another cluster that was at", "store.db"]);
    place.margay("undo").refused(&["there is no write to take back"]);
    assert_eq!(place.dump(), before);
}

#[test]
fn an_etcd_that_was_wiped_is_another_store() {
    let Some(mut place) = Place::etcd() else { return };
    place.give("apply", &policy("shop", "web", 1)).ok();
    place.member().etcdctl(&["del", "--prefix", "/"]);
    let file = place.file("theirs.yaml", &policy("shop", "web", 9));
    place.run(&["calicoctl", "apply", "-f", &file]).code(0);
    let before = place.dump();
    place.margay("undo 1").refused(&["write 1 went to another cluster that was at", "http"]);
    place.margay("undo").refused(&["there is no write to take back"]);
    assert_eq!(place.dump(), before);
}

#[test]
fn the_settings_of_address_management_are_taken_back() {
    for place in Place::both() {
        place.give("apply", &policy("shop", "web", 1)).ok();
        let before = place.dump();
        let first = place.margay("ipam configure --strictaffinity=true").ok();
        first.says(&["strict affinity", "undo: margay undo 2"]);
        let once = place.dump();
        place.margay("ipam configure --max-blocks-per-host=7").ok().says(&["undo 3"]);
        // What changes nothing leaves no trace.
        let same = place.margay("ipam configure --max-blocks-per-host=7").ok();
        assert!(!same.out.contains("undo"), "{same:?}");
        assert_eq!(place.json("history")[0]["objects"], serde_json::json!(["IPAM settings"]));
        place.margay("undo 2").refused(&["IPAM settings: write 3 changed it later"]);
        place.margay("undo").ok().says(&["write 3 taken back: IPAM settings\n"]);
        assert_eq!(place.dump(), once);
        place.margay("undo").ok();
        assert_eq!(place.dump(), before);
    }
}

#[test]
fn a_store_is_the_same_by_whatever_path() {
    let place = Place::embedded();
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    place.run(&["--store", "./store.db", "undo"]).ok().says(&["write 1"]);
}

#[test]
fn the_same_revision_with_other_bytes_is_not_what_was_written() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "other", 1)).ok();
    for file in ["store.db", "store.db-wal", "store.db-shm"] {
        let _ = std::fs::copy(place.path(file), place.path(&format!("backup-{file}")));
    }
    place.give("apply", &policy("shop", "web", 1)).ok();
    for file in ["store.db", "store.db-wal", "store.db-shm"] {
        let _ = std::fs::remove_file(place.path(file));
        let _ = std::fs::copy(place.path(&format!("backup-{file}")), place.path(file));
    }
    let file = place.file("theirs.yaml", &policy("shop", "web", 9));
    place.run(&["calicoctl", "apply", "-f", &file]).code(0);
    let before = place.dump();
    place
        .margay("undo 2")
        .refused(&["NetworkPolicy shop/web: other contents at the same revision"]);
    assert_eq!(place.dump(), before);
}

#[test]
fn an_object_named_twice_in_a_file_is_one_change() {
    for place in Place::both() {
        place.give("apply", &policy("shop", "web", 7)).ok();
        let before = place.dump();
        let others = (0..8).map(|n| policy("shop", &format!("p{n}"), n)).collect::<String>();
        let file = policy("shop", "web", 1) + &others + &policy("shop", "web", 2);
        place.give("apply", &file).ok();
        assert_eq!(order(&place), 2);
        place.margay("undo 2").ok().says(&["9 objects"]);
        assert_eq!(place.dump(), before);
    }
}

#[test]
fn an_object_given_twice_that_ends_as_it_was_is_no_change() {
    for place in Place::both() {
        place.give("apply", &policy("shop", "web", 7)).ok();
        let before = place.dump();
        let twice = policy("shop", "web", 1) + &policy("shop", "web", 7);
        let note = "note: NetworkPolicy shop/web is given more than once; the last one counts\n";
        let said = place.give("apply", &twice).ok().says(&["✓ 1 unchanged", note]);
        assert!(!said.out.contains("undo"), "{said:?}");
        assert_eq!(place.dump(), before);
        place.give("diff", &twice).ok();
        // In different transactions it is written twice, and that is in nobody's way.
        let others = (0..120).map(|n| policy("shop", &format!("p{n:03}"), n)).collect::<String>();
        place.give("apply", &others).ok();
        let far = policy("shop", "web", 1) + &others + &policy("shop", "web", 7);
        place.give("apply", &far).ok().says(&["✓ 1 changed, 120 unchanged", note]);
        assert_eq!(order(&place), 7);
        let refused = place.margay("undo 3").refused(&["all is as it was before write 3"]);
        assert!(!refused.err.contains("undo 2"), "that one was not meant: {refused:?}");
        place.margay("undo").ok().says(&["write 2 taken back: 120 objects"]);
        place.margay("undo").ok().says(&["write 1 taken back: NetworkPolicy shop/web"]);
        place.margay("get np web -n shop").refused(&["does not exist"]);
    }
}

#[test]
fn what_apply_and_delete_refuse_is_not_done_by_undo() {
    for place in Place::both() {
        place.give("apply", &tier("t")).ok();
        place.give("apply", &policy_in("t")).ok();
        place.margay("undo 1").refused(&["write 1 cannot be taken back", "there are policies in"]);
        place.margay("delete np t.web -n shop --yes").ok();
        place.margay("delete tier t --yes").ok();
        place.margay("undo 3").refused(&["write 3 cannot be taken back", "Tier t"]);
        place.margay("undo 4").ok();
        place.margay("undo 3").ok();

        place.give("apply", &pool("p", "10.1.0.0/24")).ok();
        place.margay("delete ippool p --yes").ok();
        place.give("apply", &pool("q", "10.1.0.0/16")).ok();
        place.margay("undo 8").refused(&["write 8 cannot be taken back", "overlaps"]);
        place.margay("delete ippool q --yes").ok();
        place.margay("undo 8").ok().says(&["IPPool p"]);
    }
}

#[test]
fn a_tier_and_its_policies_of_one_write_go_and_come_together() {
    for place in Place::both() {
        place.give("apply", &(tier("t") + &policy_in("t"))).ok();
        let before = place.dump();
        place.margay("undo 1").ok();
        place.margay("undo 2").ok();
        assert_eq!(place.dump(), before);
    }
}

const NODE: &str = "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata:\n  name: n1\n---\n";

/// Gives the node a claim on a block and so many workloads with an address each.
fn inhabit(place: &Place, n_workloads: usize) {
    let claim = "/calico/ipam/v2/host/n1/ipv4/block/10.1.0.0-26";
    place.put(claim, r#"{"state":"confirmed","deleted":false}"#);
    let joined = |parts: Vec<String>| parts.join(",");
    let held = |n: usize| if n < n_workloads { n.to_string() } else { "null".to_owned() };
    let attribute =
        |n: usize| format!(r#"{{"handle_id":"h{n}","secondary":{{"node":"n1","pod":"w{n}"}}}}"#);
    let block = format!(
        r#"{{"cidr":"10.1.0.0/26","affinity":"host:n1","allocations":[{}],"unallocated":[{}],"attributes":[{}],"deleted":false}}"#,
        joined((0..64).map(held).collect()),
        joined((n_workloads..64).map(|n| n.to_string()).collect()),
        joined((0..n_workloads).map(attribute).collect()),
    );
    place.put("/calico/ipam/v2/assignment/ipv4/block/10.1.0.0-26", &block);
    for n in 0..n_workloads {
        let handle = format!("/calico/ipam/v2/handle/h{n}");
        place.put(&handle, r#"{"block":{"10.1.0.0/26":1},"deleted":false}"#);
        let key = format!(
            "/calico/resources/v3/projectcalico.org/workloadendpoints/shop/n1-k8s-w{n}-eth0"
        );
        let endpoint = format!(
            r#"{{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{{"name":"n1-k8s-w{n}-eth0","namespace":"shop","uid":"u{n}","creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"orchestrator":"k8s","node":"n1","pod":"w{n}","endpoint":"eth0","ipNetworks":["10.1.0.{n}/32"],"profiles":["kns.shop"],"interfaceName":"cali{n}"}}}}"#
        );
        place.put(&key, &endpoint);
    }
}

/// What there is of a node besides itself.
fn belongings(place: &Place) -> Vec<String> {
    let keys = place.dump().into_iter().map(|(key, _)| key);
    let is_its = |key: &String| {
        ["/ipam/v2/host/", "/ipam/v2/handle/", "/ipam/v2/assignment/", "workloadendpoints"]
            .iter()
            .any(|part| key.contains(part))
    };
    keys.filter(is_its).collect()
}

#[test]
fn addresses_that_do_not_come_back_with_a_node_are_named() {
    for place in Place::both() {
        place.give("apply", &(pool("p", "10.1.0.0/24") + NODE)).ok();
        inhabit(&place, 3);
        place.margay("delete node n1 --yes").ok();
        assert_eq!(belongings(&place), Vec::<String>::new());
        let note = "note: released addresses do not come back, and may be given to others: \
                    10.1.0.0, 10.1.0.1 and 1 more; start what uses them again\n";
        place.margay("undo").ok().says(&["write 2 taken back: 4 objects\n", note]);
    }
}

#[test]
fn a_node_that_had_no_addresses_comes_back_without_a_note() {
    let place = Place::embedded();
    place.give("apply", NODE).ok();
    place.margay("delete node n1 --yes").ok();
    let said = place.margay("undo").ok().says(&["write 2 taken back: Node n1\n"]);
    assert!(!said.out.contains("note"), "{said:?}");
}

#[test]
fn an_undo_that_is_killed_leaves_the_node_until_all_of_it_is_gone() {
    for place in Place::both() {
        let (mut n_midway, mut n_named) = (0, 0);
        for round in 0..10 {
            let before = place.dump();
            place.give("apply", NODE).ok();
            let written = place.json("history")[0]["number"].as_i64().unwrap();
            inhabit(&place, 30);
            let revision = place.store().get("/").unwrap().1;
            let mut child = place.command(&["undo"]).stdout(Stdio::null()).spawn().unwrap();
            until("the first change", || {
                place.store().get("/").unwrap().1 > revision || child.try_wait().unwrap().is_some()
            });
            std::thread::sleep(Duration::from_micros(round * 400));
            let _ = child.kill();
            child.wait().unwrap();
            if place.margay("get node n1").code == 0 {
                n_midway += 1;
                let listed = place.margay("history").ok();
                n_named += usize::from(listed.out.contains(&format!("margay undo {written} goes")));
                let said = place.margay("undo").ok();
                said.says(&[&format!("write {written} taken back")]);
            }
            assert_eq!(belongings(&place), Vec::<String>::new(), "round {round}");
            let now = place.dump();
            if !before.is_empty() {
                assert_eq!(now, before, "round {round}");
            }
        }
        eprintln!("{n_midway} of 10 were killed midway");
        assert_eq!(n_named, n_midway, "each is named with the way on");
    }
}

/// Does what the advice of a refusal says, word by word.
fn follow_advice(place: &Place, refused: &Done) {
    let help = refused.err.lines().find_map(|line| line.strip_prefix("help: ")).unwrap();
    for command in help.split(" && ") {
        place.margay(command.strip_prefix("margay ").unwrap()).ok();
    }
}

#[test]
fn later_writes_of_our_own_are_named_and_the_advice_leads_to_the_end() {
    for place in Place::both() {
        for n in 1..=3 {
            place.give("apply", &policy("shop", "web", n)).ok();
        }
        let line = "NetworkPolicy shop/web: writes 3, 2 changed it later\n";
        let help = "help: margay undo 3 && margay undo 2 && margay undo 1\n";
        let refused = place.margay("undo 1").refused(&["later writes changed these", line, help]);
        // A taking back is not in the way: what it left is what was there before.
        place.margay("undo 3").ok();
        place.margay("undo 1").refused(&["help: margay undo 2 && margay undo 1\n"]);
        place.margay("undo 4").ok();
        follow_advice(&place, &refused);
        place.margay("get np web -n shop").refused(&["does not exist"]);
        place.margay("undo 2").refused(&["write 2 was taken back already, by write 7"]);
    }
}

#[test]
fn the_advice_knows_what_is_in_the_way_of_other_objects() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "a", 1)).ok();
    place.give("apply", &(policy("shop", "a", 2) + &policy("shop", "b", 2))).ok();
    place.give("apply", &policy("shop", "b", 3)).ok();
    place.margay("delete np b -n shop --yes").ok();
    place.give("apply", &policy("shop", "b", 5)).ok();
    let help = "help: margay undo 5 && margay undo 4 && margay undo 3 && margay undo 2 && \
                margay undo 1\n";
    let refused = place.margay("undo 1").refused(&["shop/a: write 2 changed it later\n", help]);
    follow_advice(&place, &refused);
    place.margay("get np -A").code(0).complains(&["no networkpolicies"]);
}

#[test]
fn what_somebody_else_did_in_between_is_said_at_once() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "web", 1)).ok();
    let file = place.file("theirs.yaml", &policy("shop", "web", 9));
    place.run(&["calicoctl", "apply", "-f", &file]).code(0);
    place.give("apply", &policy("shop", "web", 2)).ok();
    place.margay("undo 1").refused(&["somebody changed these objects", "shop/web: written again"]);
}

#[test]
fn the_history_says_what_was_taken_back_and_quotes_what_was_typed() {
    let place = Place::embedded();
    let three = ["a", "b", "c"].map(|name| policy("shop", name, 1)).concat();
    let file = place.file("it's;here.yaml", &three);
    place.run(&["apply", "-f", &file]).ok();
    place.margay("undo").ok();
    let list = place.json("history");
    assert_eq!(list[1]["takenBackBy"], 2);
    assert_eq!(list[0]["undoes"], 1);
    let typed = list[1]["command"].as_str().unwrap();
    assert_eq!(typed, format!("margay apply -f '{}'", file.replace('\'', "'\\''")));
    let shown = place.margay("history").ok();
    shown.says(&["taken back by 2", "NetworkPolicy shop/a, NetworkPolicy shop/b and 1 more"]);
    // What was redone is in force again, and the last write.
    place.margay("undo 2").ok();
    assert!(place.json("history")[2]["takenBackBy"].is_null());
    place.margay("undo").ok().says(&["write 1 taken back"]);
}

#[test]
fn with_a_node_or_pool_that_is_taken_back_goes_what_a_delete_takes() {
    for place in Place::both() {
        let node = "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata:\n  name: n1\n---\n";
        for document in [node.to_owned(), pool("p", "10.1.0.0/24")] {
            place.give("apply", &document).ok();
            let claim = "/calico/ipam/v2/host/n1/ipv4/block/10.1.0.0-26";
            place.put(claim, r#"{"state":"confirmed","deleted":false}"#);
            let said = "note: block 10.1.0.0/26 was taken from n1\n";
            place.margay("undo").ok().says(&["taken back: ", said]);
            assert_eq!(place.store().get(claim).unwrap().0, None);
        }
    }
}

/// Makes the entry of a write look as if its writer had been killed before the end.
fn as_if_killed(place: &Place, number: usize) {
    let path = place.path(&format!("state/history/{number:06}.json"));
    let mut head: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut changes = head["changes"].take();
    for change in changes.as_array_mut().unwrap() {
        change["revision"] = serde_json::Value::Null;
    }
    head["changes"] = serde_json::json!([]);
    let head = head.to_string();
    let intent = serde_json::json!({"Intended": {"store_revision": 1, "changes": changes}});
    let text = format!("{{\"under_way\":true,{}\n{intent}\n", &head[1..]);
    std::fs::write(&path, text).unwrap();
}

#[test]
fn a_killed_write_that_is_not_certain_says_so_and_is_taken_back_key_by_key() {
    for place in Place::both() {
        place.give("apply", &(policy("shop", "web", 1) + &policy("shop", "db", 1))).ok();
        place.give("apply", &(policy("shop", "web", 2) + &policy("shop", "db", 2))).ok();
        as_if_killed(&place, 2);
        let file = place.file("theirs.yaml", &policy("shop", "db", 9));
        place.run(&["calicoctl", "apply", "-f", &file]).code(0);
        let said = "1 of 2 objects are as it would have left them";
        for _ in 0..2 {
            place.margay("history").ok().says(&["not certain: ", said]);
        }
        assert!(place.json("history")[0]["notCertain"].as_str().unwrap().contains(said));
        place.margay("undo").ok().says(&[
            "✓ write 2 taken back: NetworkPolicy shop/web\n",
            "note: write 2 is not certain: ",
            "note: left alone: NetworkPolicy shop/db: not as the write would have left it",
        ]);
        assert_eq!(order(&place), 1);
        assert_eq!(place.json("get np db -n shop")["spec"]["order"], 9);
        place.margay("undo 2").refused(&["write 2 was taken back already, by write 3"]);
    }
}

#[test]
fn a_copy_of_the_store_does_not_tell_what_became_of_a_killed_write() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "web", 1)).ok();
    let copy = place.path("copy.db").display().to_string();
    for end in ["", "-wal", "-shm"] {
        let from = place.path(&format!("store.db{end}"));
        let _ = std::fs::copy(from, place.path(&format!("copy.db{end}")));
    }
    place.give("apply", &policy("shop", "other", 2)).ok();
    as_if_killed(&place, 2);
    let store = place.path("store.db").display().to_string();
    let listed = place.run(&["--store", &copy, "history"]).ok();
    listed.says(&["not certain: it went to", &store]);
    for words in [&["--store", &copy, "undo"][..], &["--store", &copy, "undo", "2"]] {
        place.run(words).refused(&["write 2 was cut short, and may have been made", &store]);
    }
    place.margay("undo").ok().says(&["write 2 taken back: NetworkPolicy shop/other"]);
}

#[test]
fn a_record_that_cannot_be_read_is_named() {
    let place = Place::embedded();
    for n in 1..=2 {
        place.give("apply", &policy("shop", "web", n)).ok();
    }
    place.file("state/history/000002.json", "");
    let named = ["the record of write 2 cannot be read", "000002.json"];
    place.margay("history").code(1).says(&["NetworkPolicy shop/web"]).complains(&named);
    place.margay("undo").refused(&named).complains(&["margay undo 1 passes over it"]);
    place.margay("undo 2").refused(&named);
}

#[test]
fn a_write_whose_answer_cannot_be_printed_is_said_to_be_made() {
    let place = Place::embedded();
    place.file("given.yaml", &policy("shop", "web", 1));
    for (words, made) in [("apply -f given.yaml", "1 created"), ("undo", "write 1 taken back")] {
        let mut command = place.command(&words.split(' ').collect::<Vec<_>>());
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let done = crate::harness::Done::from(command.stdout(full).output().unwrap());
        done.refused(&["the write was made", made, "the output cannot be written", "margay undo"]);
    }
}

#[test]
fn a_store_of_another_user_can_be_read() {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nobody else's store to read");
        return;
    }
    let place = Place::embedded();
    place.give("apply", &policy("shop", "web", 1)).ok();
    let open = |path: &str, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.path(path), mode).unwrap();
    };
    open("", 0o755);
    open("store.db", 0o644);
    // The program itself must be within reach of that user.
    let program = place.path("margay");
    std::fs::copy(env!("CARGO_BIN_EXE_margay"), &program).unwrap();
    let mut command = std::process::Command::new(&program);
    command.args(["get", "np", "-n", "shop"]).env_clear().uid(65534).gid(65534);
    command.env("MARGAY_STORE", place.path("store.db")).current_dir(place.path(""));
    let done = crate::harness::Done::from(command.output().unwrap());
    done.ok().says(&["web"]);
    assert_eq!(place.path("store.db").metadata().unwrap().permissions().mode() & 0o777, 0o644);
}
