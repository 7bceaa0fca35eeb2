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
        let open = self.history().settle_leftovers(Some(&self.store), |_| true);
        let entries = self.history().after(0).unwrap().into_iter();
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
        recorder.intend(vec![intended(Some((b"before".to_vec(), before)))]);
    };
    leave();
    assert_eq!(home.settled(), (vec![], 0), "it was never made");
    leave();
    let revision = put(&home, b"after");
    assert_eq!(home.settled(), (vec![vec!["/calico/k".to_owned()]], 0));
    assert_eq!(home.history().read(1).unwrap().changes[0].revision, Some(revision));
    leave();
    put(&home, b"somebody else's");
    assert_eq!(home.settled().1, 1, "nobody can know");
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
