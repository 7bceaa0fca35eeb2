//! Facts that hold on both backends.

use std::ops::ControlFlow;
use std::time::Duration;

use store::{Committed, Compare, Error, Event, KeyValue, Store, Txn, sqlite};

use crate::member::{self, Member};
use crate::view::{View, delete, put, write};

/// Runs a test on a fresh store of each kind.
pub(crate) fn on_both(test: impl Fn(&Store)) {
    let directory = tempfile::tempdir().unwrap();
    test(&Store::Sqlite(sqlite::Store::open(directory.path().join("store.db")).unwrap()));
    if member::is_installed() {
        test(&Member::start().store());
    }
}

fn entry(key: &str, value: &str, (create, modified, version): (i64, i64, i64)) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: value.into(),
        create_revision: create,
        mod_revision: modified,
        version,
        lease: 0,
    }
}

fn keys(store: &Store, prefix: &str) -> Vec<String> {
    store.list(prefix).unwrap().entries.into_iter().map(|entry| entry.key).collect()
}

#[test]
fn revisions_and_versions_follow_etcds_rules() {
    on_both(|store| {
        assert_eq!(store.get("/a").unwrap(), (None, 1));
        assert_eq!(write(store, vec![put("/a", "1")]), 2);
        assert_eq!(write(store, vec![put("/a", "2"), put("/b", "2")]), 3);
        assert_eq!(store.get("/a").unwrap(), (Some(entry("/a", "2", (2, 3, 2))), 3));
        assert_eq!(store.get("/b").unwrap(), (Some(entry("/b", "2", (3, 3, 1))), 3));
        assert_eq!(write(store, vec![delete("/a")]), 4);
        assert_eq!(write(store, vec![delete("/a")]), 4, "deleting an absent key changes nothing");
        assert_eq!(write(store, vec![]), 4);
        assert_eq!(write(store, vec![put("/a", "5")]), 5);
        assert_eq!(store.get("/a").unwrap(), (Some(entry("/a", "5", (5, 5, 1))), 5));
    });
}

#[test]
fn a_failed_condition_changes_nothing_and_shows_what_is_there() {
    on_both(|store| {
        write(store, vec![put("/a", "1")]);
        let txn = Txn {
            compares: vec![Compare::Absent("/b".into()), Compare::ModRevision("/a".into(), 9)],
            ops: vec![put("/a", "2"), delete("/b")],
        };
        let current = vec![None, Some(entry("/a", "1", (2, 2, 1)))];
        assert_eq!(store.commit(txn).unwrap(), Committed::Conflict { revision: 2, current });
        assert_eq!(store.get("/a").unwrap().1, 2);
    });
}

#[test]
fn each_condition_holds_when_it_should() {
    on_both(|store| {
        write(store, vec![put("/a", "1")]);
        let holds = |compare: Compare| {
            let txn = Txn { compares: vec![compare], ops: vec![] };
            matches!(store.commit(txn).unwrap(), Committed::Applied { revision: 2 })
        };
        let (a, b) = (|| "/a".to_string(), || "/b".to_string());
        assert!(holds(Compare::Exists(a())) && !holds(Compare::Exists(b())));
        assert!(holds(Compare::Absent(b())) && !holds(Compare::Absent(a())));
        assert!(holds(Compare::ModRevision(a(), 2)) && !holds(Compare::ModRevision(a(), 3)));
        assert!(holds(Compare::ModRevision(b(), 0)) && !holds(Compare::ModRevision(a(), 0)));
    });
}

#[test]
fn nothing_is_newer_until_something_under_the_prefix_is_written() {
    on_both(|store| {
        write(store, vec![put("/a/1", "1"), put("/b", "1")]);
        write(store, vec![put("/a/2", "1")]);
        let holds = |prefix: &str, revision: i64| {
            let compare = Compare::NothingNewer { prefix: prefix.into(), revision };
            let txn = Txn { compares: vec![compare], ops: vec![] };
            matches!(store.commit(txn).unwrap(), Committed::Applied { .. })
        };
        assert!(holds("/a/", 3) && holds("/a/", i64::MAX) && !holds("/a/", 2));
        assert!(holds("/b", 2) && !holds("/b", 1) && !holds("/b", -1));
        assert!(holds("", 3) && !holds("", 2));
        assert!(holds("/c", 0) && holds("/c", -1), "nothing is there");
        write(store, vec![delete("/a/2")]);
        assert!(holds("/a/", 3), "removals do not count");
        write(store, vec![put("/a/1", "2"), put("/a0", "1")]);
        assert!(!holds("/a/", 4) && holds("/a/", 5));
        let newer = Compare::NothingNewer { prefix: "/a/".into(), revision: 4 };
        let compares = vec![newer, Compare::Exists("/b".into())];
        let current = vec![None, Some(entry("/b", "1", (2, 2, 1)))];
        let conflict = store.commit(Txn { compares, ops: vec![put("/b", "2")] }).unwrap();
        assert_eq!(conflict, Committed::Conflict { revision: 5, current });
    });
}

#[test]
fn empty_and_repeated_keys_are_refused() {
    on_both(|store| {
        for ops in [vec![put("", "x")], vec![delete("")], vec![put("/a", "1"), delete("/a")]] {
            let refused = store.commit(Txn { compares: vec![], ops });
            assert!(matches!(refused, Err(Error::Rejected(_))), "{refused:?}");
        }
        assert!(matches!(store.get(""), Err(Error::Rejected(_))));
    });
}

#[test]
fn a_listing_is_ordered_and_exact_at_the_edges_of_the_prefix() {
    on_both(|store| {
        let all =
            ["/", "/a", "/a/", "/a/b", "/a/\u{10ffff}", "/a0", "/a\u{ff}", "/b", "\u{10ffff}x"];
        for key in all.iter().rev() {
            write(store, vec![put(key, *key)]);
        }
        assert_eq!(keys(store, ""), all);
        assert_eq!(keys(store, "/"), all[..8]);
        assert_eq!(keys(store, "/a"), all[1..7]);
        assert_eq!(keys(store, "/a/"), all[2..5]);
        assert_eq!(keys(store, "/a/\u{10ffff}"), ["/a/\u{10ffff}"]);
        assert_eq!(keys(store, "\u{10ffff}"), ["\u{10ffff}x"]);
        assert_eq!(keys(store, "/c"), [""; 0]);
        assert_eq!(store.list("/c").unwrap().revision, 10);
    });
}

#[test]
fn values_of_a_mebibyte_are_stored_listed_and_watched() {
    on_both(|store| {
        let value = vec![0xa5; 1024 * 1024];
        for index in 0..80 {
            write(store, vec![put(&format!("/{index:02}"), value.clone())]);
        }
        let snapshot = store.list("/").unwrap();
        assert_eq!(snapshot.entries.len(), 80);
        assert!(snapshot.entries.iter().all(|entry| entry.value == value));
        let mut watch = store.watch("/");
        let mut view = View::default();
        view.until_in_sync(&mut watch);
        assert_eq!(view.state.len(), 80);
    });
}

#[test]
fn ten_thousand_keys_are_listed_at_one_revision_in_pages() {
    on_both(|store| {
        for batch in 0..100 {
            let key = |index: i32| format!("/k/{:05}", batch * 100 + index);
            write(store, (0..100).map(|index| put(&key(index), "v")).collect());
        }
        let snapshot = store.list("/k/").unwrap();
        assert_eq!((snapshot.revision, snapshot.entries.len()), (101, 10_000));
        assert!(snapshot.entries.is_sorted_by(|one, next| one.key < next.key));
        let mut n_seen = 0;
        let revision = store.list_each("/k/", |_| {
            n_seen += 1;
            if n_seen < 2500 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        assert_eq!((revision.unwrap(), n_seen), (101, 2500));
        let mut watch = store.watch("/k/");
        let mut view = View::default();
        view.until_in_sync(&mut watch);
        assert_eq!(view.state, View::of(snapshot.entries).state);
        assert_eq!(view.events.last(), Some(&Event::InSync(101)));
    });
}

#[test]
fn a_watch_gives_the_snapshot_and_then_every_change_in_order() {
    on_both(|store| {
        write(store, vec![put("/w/a", "1"), put("/w/b", "1"), put("/x", "1")]);
        let mut watch = store.watch("/w/");
        let mut view = View::default();
        view.until_in_sync(&mut watch);
        assert_eq!(view.changes(), ["+/w/a@2", "+/w/b@2"]);
        assert_eq!(view.events.last(), Some(&Event::InSync(2)));
        write(store, vec![put("/w/c", "3"), delete("/w/a"), put("/x", "3")]);
        write(store, vec![put("/x", "4")]);
        write(store, vec![put("/w/a", "5")]);
        write(store, vec![put("/w/a", "6")]);
        write(store, vec![delete("/w/a")]);
        view.until(&mut watch, "the last delete", |view| view.events.len() == 8);
        let later = ["+/w/c@3", "-/w/a@3", "+/w/a@5", "+/w/a@6", "-/w/a@7"];
        assert_eq!(view.changes()[2..], later);
        assert_eq!(watch.next(Duration::from_millis(50)), None);
    });
}

#[test]
fn a_watch_on_nothing_is_in_sync_at_once() {
    on_both(|store| {
        let mut watch = store.watch("/nothing/");
        assert_eq!(watch.next(Duration::from_secs(120)), Some(Event::InSync(1)));
    });
}

#[test]
fn a_resumed_watch_gives_each_change_since() {
    on_both(|store| {
        write(store, vec![put("/a", "1"), put("/b", "1")]);
        let snapshot = store.list("/").unwrap();
        write(store, vec![put("/a", "2")]);
        write(store, vec![put("/c", "3")]);
        write(store, vec![delete("/c"), delete("/b")]);
        let known: Vec<_> =
            snapshot.entries.iter().map(|entry| (entry.key.clone(), entry.mod_revision)).collect();
        let mut watch = store.watch_from("/", snapshot.revision, known.clone());
        let mut view = View::of(snapshot.entries.clone());
        view.until(&mut watch, "the last delete", |view| view.changes().len() == 4);
        view.until(&mut watch, "in-sync", |view| view.n_in_sync() == 1);
        assert_eq!(view.changes(), ["+/a@3", "+/c@4", "-/c@5", "-/b@5"]);

        store.compact(5).unwrap();
        let mut watch = store.watch_from("/", snapshot.revision, known);
        let mut view = View::of(snapshot.entries);
        view.until_in_sync(&mut watch);
        assert_eq!(view.changes(), ["+/a@3", "-/b@5"], "what is left of compacted changes");
    });
}

#[test]
fn a_watch_resumed_from_the_present_is_in_sync_without_events() {
    on_both(|store| {
        write(store, vec![put("/a", "1")]);
        write(store, vec![put("/other", "1")]);
        let mut watch = store.watch_from("/a", 2, [("/a".to_string(), 2)]);
        assert_eq!(watch.next(Duration::from_secs(120)), Some(Event::InSync(3)));
    });
}

#[test]
fn compaction_has_its_limits() {
    on_both(|store| {
        for index in 0..5 {
            write(store, vec![put("/a", format!("{index}"))]);
        }
        store.compact(4).unwrap();
        for revision in [3, 4] {
            let refused = store.compact(revision);
            let is_right =
                matches!(refused, Err(Error::Compacted { revision: r }) if r == revision);
            assert!(is_right, "{refused:?}");
        }
        assert!(matches!(store.compact(7), Err(Error::Rejected(_))));
        assert_eq!(store.get("/a").unwrap(), (Some(entry("/a", "4", (2, 6, 5))), 6));
    });
}

#[test]
fn a_consumer_that_sleeps_through_a_compaction_misses_nothing() {
    on_both(|store| {
        write(store, vec![put("/gone", "1"), put("/kept", "1")]);
        let mut watch = store.watch("/");
        let mut view = View::default();
        view.until_in_sync(&mut watch);
        // Far more than all buffers on the way hold.
        const N_WRITES: usize = 1500;
        let value = vec![7; 16 * 1024];
        for round in 0..N_WRITES {
            write(store, vec![put(&format!("/big/{}", round % 7), value.clone())]);
        }
        write(store, vec![delete("/gone"), delete("/big/3")]);
        let last = write(store, vec![put("/last", "1")]);
        store.compact(last).unwrap();
        view.until_equal(&mut watch, store, "/");
        assert_eq!(view.state.len(), 8);
        assert!(view.changes().len() < N_WRITES, "nothing was compacted before it was read");
    });
}

#[test]
fn concurrent_writers_lose_no_update_and_watchers_see_each() {
    const N_WRITERS: usize = 6;
    const N_UPDATES: usize = 25;
    on_both(|store| {
        let mut watch = store.watch("/counter");
        std::thread::scope(|scope| {
            for _ in 0..N_WRITERS {
                scope.spawn(|| (0..N_UPDATES).for_each(|_| crate::worker::increment(store)));
            }
        });
        let total = N_WRITERS * N_UPDATES;
        let mut view = View::default();
        view.until(&mut watch, "the last update", |view| {
            view.state
                .get("/counter")
                .is_some_and(|entry| usize::try_from(entry.version) == Ok(total))
        });
        let value = |event: &Event| match event {
            Event::Put(entry) => Some(String::from_utf8(entry.value.clone()).unwrap()),
            _ => None,
        };
        let seen: Vec<_> = view.events.iter().filter_map(value).collect();
        // The snapshot may have come when some updates were already made.
        let first: usize = seen[0].parse().unwrap();
        let expected: Vec<_> = (first..=total).map(|count| count.to_string()).collect();
        assert_eq!(seen, expected);
    });
}

#[test]
fn a_delete_at_the_very_revision_that_was_compacted_is_not_lost() {
    on_both(|store| {
        write(store, vec![put("/a", "1")]);
        let delivered = write(store, vec![put("/b", "1")]);
        let deleted = write(store, vec![delete("/a")]);
        write(store, vec![put("/c", "1")]);
        store.compact(deleted).unwrap();
        let known = [("/a".to_owned(), delivered - 1), ("/b".to_owned(), delivered)];
        let mut watch = store.watch_from("/", delivered, known);
        let mut gone = false;
        loop {
            match watch.next(Duration::from_secs(120)).expect("an event") {
                Event::Delete { key, .. } => gone |= key == "/a",
                Event::InSync(_) => break,
                _ => {}
            }
        }
        assert!(gone, "{}: the delete of /a was never told", store.describe());
    });
}
