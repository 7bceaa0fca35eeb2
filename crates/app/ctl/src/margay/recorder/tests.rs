//! Commands that end between a commit and its record, in either order.

use std::sync::Arc;

use api::Kind;
use serde_json::json;
use store::resources::Verb;
use store::{Op, Txn, sqlite};

use super::*;

struct Home {
    folder: tempfile::TempDir,
    store: Store,
}

fn home() -> Home {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::Sqlite(sqlite::Store::open(folder.path().join("store.db")).unwrap());
    Resources::new(store.clone(), Manner::default()).initialise().unwrap();
    Home { folder, store }
}

impl Home {
    fn history(&self) -> History {
        History::below(Some(self.folder.path().join("state")))
    }

    /// A command that has not ended.
    fn command(&self) -> (Arc<Recorder>, Resources) {
        let store = self.store.clone();
        let recorder = Arc::new(Recorder::new(self.history(), store.clone(), String::new()));
        let resources = Resources::new(store, Manner::default());
        (recorder.clone(), resources.with_journal(recorder))
    }

    /// The keys of the entries, once leftovers are settled; and those that cannot be.
    fn settled(&self) -> (Vec<Vec<String>>, usize) {
        let open = self.history().settle_leftovers(Ok(&self.store), |_| true);
        let entries = self.history().kept().unwrap().entries.into_iter();
        let entries = entries.filter(|(_, entry)| !entry.under_way);
        let keys = |entry: Entry| entry.changes.into_iter().map(|change| change.key).collect();
        (entries.map(|(_, entry)| keys(entry)).collect(), open.len())
    }
}

fn tier(order: i64) -> serde_json::Value {
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "Tier",
        "metadata": {"name": "t"}, "spec": {"order": order}
    })
}

fn intended(before: Option<(Vec<u8>, i64)>) -> resources::Change {
    let digest = Some(resources::digest(b"after"));
    resources::Change { key: "/calico/k".to_owned(), before, digest }
}

fn put(home: &Home, value: &[u8]) -> i64 {
    let op = Op::Put { key: "/calico/k".to_owned(), value: value.to_vec() };
    home.store.commit(Txn { compares: vec![], ops: vec![op] }).unwrap();
    home.store.get("/calico/k").unwrap().1
}

#[test]
fn a_write_that_was_made_and_not_recorded_is_in_the_history() {
    let home = home();
    let (recorder, resources) = home.command();
    resources.write(Verb::Apply, &tier(1)).unwrap();
    resources.write(Verb::Apply, &tier(2)).unwrap();
    assert_eq!(home.settled(), (vec![], 0), "it is still under way");
    drop((recorder, resources));
    let key = Name::cluster(Kind::Tier, "t").key();
    assert_eq!(home.settled(), (vec![vec![key]], 0));
    assert_eq!(home.settled().0.len(), 1, "settled once");
}

#[test]
fn the_store_tells_what_the_last_transaction_did() {
    let home = home();
    let before = put(&home, b"before");
    let leave = || {
        let (recorder, _) = home.command();
        recorder.intend(vec![intended(Some((b"before".to_vec(), before)))]).unwrap();
    };
    leave();
    assert_eq!(home.settled(), (vec![], 0), "it was never made");
    leave();
    let revision = put(&home, b"after");
    assert_eq!(home.settled(), (vec![vec!["/calico/k".to_owned()]], 0));
    assert_eq!(home.history().read(1).unwrap().changes[0].revision, Some(revision));
    assert!(home.history().read(1).unwrap().uncertain.is_some(), "others may have done it");
}

#[test]
fn what_nobody_can_know_is_kept_once_and_said_to_be_not_certain() {
    let home = home();
    let before = put(&home, b"before");
    let (recorder, _) = home.command();
    recorder.intend(vec![intended(Some((b"before".to_vec(), before)))]).unwrap();
    drop(recorder);
    put(&home, b"somebody else's");
    for _ in 0..2 {
        assert_eq!(home.settled(), (vec![vec!["/calico/k".to_owned()]], 0));
        let entry = home.history().read(1).unwrap();
        assert!(entry.uncertain.unwrap().contains("0 of 1 objects"));
        assert_eq!(entry.changes[0].revision, None);
    }
    assert_eq!(
        home.history().newest(u64::MAX, |_| true, &[]).unwrap(),
        None,
        "nothing to take back"
    );
}

fn set(name: &str) -> String {
    Name::cluster(Kind::GlobalNetworkSet, name).key()
}

/// Makes changes, and ends before it sees that they were made: the key, the bytes before with
/// their revision, the bytes after.
type Killed<'a> = (&'a str, Option<(&'a [u8], i64)>, Option<&'a [u8]>);

fn commit_killed(home: &Home, changes: &[Killed<'_>]) -> i64 {
    let (recorder, _) = home.command();
    let told = changes.iter().map(|(name, before, after)| resources::Change {
        key: set(name),
        before: before.map(|(value, revision)| (value.to_vec(), revision)),
        digest: after.map(resources::digest),
    });
    recorder.intend(told.collect()).unwrap();
    commit(home, changes.iter().map(|(name, _, after)| (*name, *after)))
}

fn commit<'a>(home: &Home, puts: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>) -> i64 {
    let ops = puts.map(|(name, value)| match value {
        Some(value) => Op::Put { key: set(name), value: value.to_vec() },
        None => Op::Delete { key: set(name) },
    });
    let ops = ops.collect();
    home.store.commit(Txn { compares: vec![], ops }).unwrap();
    home.store.get("/").unwrap().1
}

#[test]
fn what_others_did_to_one_key_does_not_hide_the_write() {
    let home = home();
    let new: &[Killed<'_>] = &[("a", None, Some(b"a1")), ("b", None, Some(b"b1"))];
    let revision = commit_killed(&home, new);
    commit(&home, [("a", None)].into_iter());
    assert_eq!(home.settled().0, [[set("a"), set("b")]]);
    let entry = home.history().read(1).unwrap();
    assert_eq!(entry.uncertain, None, "b is there with an identifier of its own");
    assert_eq!(
        entry.changes.iter().map(|it| it.revision).collect::<Vec<_>>(),
        [Some(revision), Some(revision)]
    );
}

#[test]
fn all_keys_gone_again_is_not_certain() {
    let home = home();
    commit_killed(&home, &[("a", None, Some(b"a1"))]);
    commit(&home, [("a", None)].into_iter());
    assert_eq!(home.settled(), (vec![vec![set("a")]], 0));
    assert!(home.history().read(1).unwrap().uncertain.is_some());
    // Where nothing was written since, there is no doubt.
    let (recorder, _) = home.command();
    let change = resources::Change { key: set("c"), before: None, digest: Some("d".to_owned()) };
    recorder.intend(vec![change]).unwrap();
    drop(recorder);
    assert_eq!(home.settled().0.len(), 1);
}

#[test]
fn each_key_of_a_killed_write_has_its_revision() {
    let home = home();
    let b = commit(&home, [("a", Some(&b"a1"[..])), ("b", Some(&b"b1"[..]))].into_iter());
    let mixed: &[Killed<'_>] =
        &[("a", Some((b"a1", b)), None), ("b", Some((b"b1", b)), Some(b"b2"))];
    let revision = commit_killed(&home, mixed);
    home.settled();
    let changes = home.history().read(1).unwrap().changes;
    assert_eq!((changes[0].revision, changes[1].revision), (None, Some(revision)));
}

#[test]
fn only_the_store_at_its_place_tells_what_became_of_a_write() {
    let home = home();
    let new: &[Killed<'_>] = &[("a", None, Some(b"a1"))];
    commit_killed(&home, new);
    let copy = home.folder.path().join("copy.db");
    let copy = Store::Sqlite(sqlite::Store::open(copy).unwrap());
    let entry = home.history().read(1).unwrap();
    let (here, cluster) = (place(&copy), entry.cluster.clone());
    let is_here = |entry: &Entry| entry.is_told_by(&here, cluster.as_deref());
    let open = home.history().settle_leftovers(Ok(&copy), is_here);
    assert_eq!(open.len(), 1);
    assert!(entry.is_told_by(&place(&home.store), cluster.as_deref()));
    assert!(!entry.is_told_by(&place(&home.store), Some("another")));
    assert_eq!(home.settled().0.len(), 1);
}

#[test]
fn a_killed_undo_of_a_part_is_gone_on_with() {
    let home = home();
    let (recorder, resources) = home.command();
    let tiers = [
        tier(1),
        json!({
            "apiVersion": "projectcalico.org/v3", "kind": "Tier",
            "metadata": {"name": "u"}, "spec": {"order": 2}
        }),
    ];
    let together = store::resources::Together::AllOrNothing;
    resources.write_all(Verb::Apply, &tiers, together).into_iter().for_each(|it| drop(it.unwrap()));
    recorder.finish(true);
    let entry = home.history().read(1).unwrap();
    let undo = |n: usize| {
        let (restored, _) =
            super::super::history::take_back::to_restore(&home.store, &home.history(), 1, &entry)
                .unwrap();
        let (recorder, resources) = home.command();
        recorder.expect_undo(1, &entry, restored.len());
        resources.restore(&restored[..n]).unwrap();
        drop((recorder, resources));
        home.settled();
        restored.len()
    };
    assert_eq!(undo(1), 2);
    assert!(home.history().read(2).unwrap().is_part);
    assert_eq!(home.history().newest(u64::MAX, |_| true, &[]).unwrap(), Some(1), "the same again");
    assert_eq!(undo(1), 1, "the rest");
    assert_eq!(home.history().newest(u64::MAX, |_| true, &[]).unwrap(), None);
}

#[test]
fn a_killed_undo_that_was_made_counts_as_one() {
    let home = home();
    let (recorder, resources) = home.command();
    resources.write(Verb::Apply, &tier(1)).unwrap();
    recorder.finish(true);
    let entry = home.history().read(1).unwrap();
    let (recorder, _) = home.command();
    recorder.expect_undo(1, &entry, 1);
    let change = entry.changes[0].clone();
    let now = home.store.get(&change.key).unwrap().0.unwrap();
    let before = Some((now.value, now.mod_revision));
    let key = change.key.clone();
    recorder.intend(vec![resources::Change { key, before, digest: None }]).unwrap();
    home.store.commit(Txn { compares: vec![], ops: vec![Op::Delete { key: change.key }] }).unwrap();
    drop(recorder);
    home.settled();
    assert_eq!(home.history().newest(u64::MAX, |_| true, &[]).unwrap(), None);
}

#[test]
fn a_write_stops_before_a_part_that_cannot_be_kept() {
    let home = home();
    let (recorder, resources) = home.command();
    resources.write(Verb::Apply, &tier(1)).unwrap();
    recorder.state().under_way.as_mut().unwrap().fill_disk();
    let refused = resources.write(Verb::Apply, &tier(2)).unwrap_err().to_string();
    assert!(refused.contains("stopped before") && refused.contains("No space left"), "{refused}");
    let stored = resources.get(&Name::cluster(Kind::Tier, "t")).unwrap();
    assert_eq!(stored.object["spec"]["order"], 1);
    assert_eq!(recorder.finish(true).0.number(), Some(1));
    assert_eq!(home.history().read(1).unwrap().changes.len(), 1);
}

#[test]
fn what_is_known_to_its_last_line_can_be_taken_back_from_its_lines() {
    let home = home();
    let (recorder, resources) = home.command();
    resources.write(Verb::Apply, &tier(1)).unwrap();
    assert!(home.history().read(1).unwrap().under_way, "its writer lives");
    drop((recorder, resources));
    let entry = home.history().read(1).unwrap();
    assert!(!entry.under_way);
    assert_eq!(entry.changes.len(), 1);
    let (recorder, _) = home.command();
    recorder.intend(vec![intended(None)]).unwrap();
    drop(recorder);
    assert!(home.history().read(2).unwrap().under_way, "nobody knows its end");
}

#[test]
fn a_line_that_was_cut_off_was_never_acted_on() {
    let home = home();
    let (recorder, resources) = home.command();
    resources.write(Verb::Apply, &tier(1)).unwrap();
    drop((recorder, resources));
    let path = home.folder.path().join("state/history/000001.json");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"Intended\":[{\"na");
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(home.settled().0.len(), 1);
}
