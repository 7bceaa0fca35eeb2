//! Taking writes back.

use std::os::unix::fs::PermissionsExt;

use crate::harness::{Place, policy, pool};

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
        place.margay("undo 2").refused(&["all is as it was before write 2"]);
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
    place.margay("undo 77").refused(&["there is no write 77"]);
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
        let note = "note: the blocks of IPPool p were taken from their nodes and are not restored";
        place.margay("undo 8").ok().says(&["IPPool p", note]);
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

#[test]
fn the_addresses_of_a_node_are_said_to_be_gone() {
    let place = Place::embedded();
    let node = "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata:\n  name: n1\n";
    place.give("apply", node).ok();
    place.margay("delete node n1 --yes").ok();
    let note = "note: the addresses of Node n1 were released and are not restored\n";
    place.margay("undo").ok().says(&["write 2 taken back: Node n1\n", note]);
}

#[test]
fn later_writes_of_our_own_are_named_and_taken_back_first() {
    let place = Place::embedded();
    for n in 1..=3 {
        place.give("apply", &policy("shop", "web", n)).ok();
    }
    let line = "NetworkPolicy shop/web: write 3 changed it later; margay undo 3 first";
    place.margay("undo 1").refused(&["later writes changed these objects", line]);
    place.margay("undo 3").ok();
    place.margay("undo 2").ok();
    place.margay("undo 1").ok();
    place.margay("get np web -n shop").refused(&["does not exist"]);
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
