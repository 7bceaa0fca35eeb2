//! The same documents leave the same keys and bytes in both stores.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Place, policy, pool};

/// A folder of what real programs stored, where the recordings are; said aloud if they are not.
fn recorded(folder: &str) -> Option<PathBuf> {
    let beside = ["../../../shared/corpora", "../../../../shared/corpora"];
    let beside = beside.map(|path| Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
    let folders = match std::env::var_os("MARGAY_CORPORA") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => beside.to_vec(),
    };
    let all = folders.iter().map(|path| path.join("etcd-dump").join(folder));
    let found = all.into_iter().find(|path| path.is_dir());
    if found.is_none() {
        eprintln!("SKIPPED: no recordings at {folders:?}; set MARGAY_CORPORA");
    }
    found
}

const VARYING: [(&str, &str); 3] =
    [("metadata", "uid"), ("metadata", "creationTimestamp"), ("spec", "clusterGUID")];

fn documents() -> String {
    match recorded("objects") {
        Some(folder) => std::fs::read_to_string(folder.join("input.yaml")).unwrap(),
        None => policy("shop", "web", 1) + &pool("p4", "10.1.0.0/24") + &pool("p6", "fd00:1::/64"),
    }
}

/// The bytes with what differs from run to run struck out, in place.
fn masked(bytes: &[u8]) -> String {
    let mut text = String::from_utf8(bytes.to_vec()).unwrap();
    let value: Value = serde_json::from_slice(bytes).unwrap();
    for (part, field) in VARYING {
        if let Some(varying) = value[part][field].as_str() {
            text = text.replace(&format!("\"{varying}\""), "\"*\"");
        }
    }
    text
}

fn dump(place: &Place) -> Vec<(String, String)> {
    place.dump().iter().map(|(key, value)| (key.clone(), masked(value))).collect()
}

#[test]
fn both_stores_hold_the_same_after_the_same_commands() {
    let Some(etcd) = Place::etcd() else { return };
    let embedded = Place::embedded();
    let all = documents();
    for place in [&etcd, &embedded] {
        place.give("create", &all).ok();
    }
    let first = dump(&embedded);
    assert!(first.len() > 5, "{first:?}");
    assert_same(&first, &dump(&etcd));
    for place in [&etcd, &embedded] {
        place.give("apply", &all).ok().says(&["unchanged"]);
        place.give("apply", &pool("extra", "10.99.0.0/24")).ok();
        place.margay("label ippool extra a=b").ok();
        place.run(&["patch", "ippool", "extra", "-p", r#"{"spec":{"natOutgoing":true}}"#]).ok();
        place.margay("ipam configure --strictaffinity=true").ok();
        place.give("apply", &pool("gone", "10.98.0.0/24")).ok();
        place.margay("delete ippool gone --yes").ok();
    }
    assert_same(&dump(&embedded), &dump(&etcd));
    assert_eq!(embedded.store().get("/").unwrap().1, etcd.store().get("/").unwrap().1);
}

fn assert_same(left: &[(String, String)], right: &[(String, String)]) {
    for (left, right) in left.iter().zip(right) {
        assert_eq!(left, right);
    }
    assert_eq!(left.len(), right.len());
}

#[test]
fn whatever_calico_stored_is_served_without_complaint() {
    for folder in ["objects", "full", "policies", "init-only"] {
        let Some(folder) = recorded(folder) else { return };
        let text = std::fs::read_to_string(folder.join("dump.jsonl")).unwrap();
        let place = Place::embedded();
        let mut kinds = BTreeSet::new();
        for line in text.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let key = row["key"].as_str().unwrap();
            place.put(key, row["value"].as_str().unwrap());
            let rest = key.strip_prefix("/calico/resources/v3/projectcalico.org/");
            kinds.extend(rest.and_then(|rest| rest.split('/').next().map(str::to_owned)));
        }
        assert!(kinds.contains("tiers"), "{kinds:?}");
        for kind in kinds {
            place.margay(&format!("get {kind} -A -o yaml")).ok();
        }
    }
}
