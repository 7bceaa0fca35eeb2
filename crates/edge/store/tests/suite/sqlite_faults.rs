//! The embedded store among several processes, killed ones, full disks and odd files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use store::{Committed, Error, Event, Store, Txn, sqlite};

use crate::view::{View, delete, put, write};
use crate::worker;

fn open(path: &Path) -> Store {
    Store::Sqlite(sqlite::Store::open(path).unwrap())
}

fn refused(path: &Path) -> String {
    let error = sqlite::Store::open(path).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    error
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn killed_writers_leave_whole_transactions_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    for round in 0u64..15 {
        let mut writer = worker::start("pairs", &path);
        std::thread::sleep(Duration::from_millis(20 + round * 7));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let entries = store.list("/").unwrap().entries;
        let values: Vec<_> = entries.iter().map(|entry| &entry.value).collect();
        assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "half a transaction");
        write(&store, vec![put("/left", "x"), put("/right", "x")]);
    }
    let sql = rusqlite::Connection::open(&path).unwrap();
    let check: String = sql.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let n_log: i64 = sql
        .query_row(
            "SELECT count(DISTINCT revision) + (SELECT compacted FROM meta) FROM log",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let revision = store.get("/left").unwrap().1;
    assert!(revision > 16, "the writers wrote something");
    assert!([revision - 1, revision].contains(&n_log), "the log has every revision: {n_log}");
}

#[test]
fn many_processes_write_and_one_watches() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    // The processes also race to create the file.
    let mut writers: Vec<_> = (0..4).map(|_| worker::start("increment", &path)).collect();
    let store = open(&path);
    let mut watch = store.watch("/counter");
    let mut view = View::default();
    view.until(&mut watch, "the last update", |view| {
        view.state.get("/counter").is_some_and(|entry| entry.value == b"400")
    });
    assert!(writers.iter_mut().all(|writer| writer.wait().unwrap().success()));
    let versions: Vec<_> = view.changes();
    let first: i64 = versions[0].rsplit('@').next().unwrap().parse().unwrap();
    let expected: Vec<_> = (first..=401).map(|revision| format!("+/counter@{revision}")).collect();
    assert_eq!(versions, expected);
}

#[test]
fn a_full_disk_is_an_error_and_does_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", directory.path().to_str().unwrap()];
    if !Command::new("mount").args(mount).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: the full disk test, because no tmpfs can be mounted here");
        return;
    }
    let outcome = std::panic::catch_unwind(|| fill(directory.path()));
    assert!(Command::new("umount").arg("-l").arg(directory.path()).status().unwrap().success());
    outcome.unwrap();
}

fn fill(directory: &Path) {
    let path = directory.join("store.db");
    let store = open(&path);
    let mut last = 0;
    let error = loop {
        let ops = vec![put("/one", vec![1; 20_000]), put("/two", vec![last; 20_000])];
        match store.commit(Txn { compares: vec![], ops }) {
            Ok(_) => last += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::DiskFull(_)), "{error:?}");
    assert_eq!(error.to_string(), format!("{}: disk full", path.display()));
    let (entry, revision) = store.get("/two").unwrap();
    assert_eq!(entry.unwrap().value, vec![last - 1; 20_000]);
    assert_eq!(revision, i64::from(last) + 1);
    // With room again everything goes on.
    assert!(
        Command::new("mount")
            .args(["-o", "remount,size=8m"])
            .arg(directory)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(write(&store, vec![delete("/one")]), revision + 1);
    let sql = rusqlite::Connection::open(&path).unwrap();
    let check: String = sql.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

#[test]
fn files_are_for_their_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let parent = directory.path().join("var/lib");
    let path = parent.join("store.db");
    let store = open(&path);
    write(&store, vec![put("/a", "1")]);
    assert_eq!(mode(&parent), 0o700);
    assert_eq!(mode(&directory.path().join("var")), 0o700);
    let files: Vec<_> = fs::read_dir(&parent).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    drop(store);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    open(&path);
    assert_eq!(mode(&path), 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    assert!(refused(&path).contains("mode 0620 lets other users write"));
}

#[test]
fn damaged_foreign_and_newer_files_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("text"), "not a database, but long enough to look at".repeat(100)).unwrap();
    fs::set_permissions(path("text"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(refused(&path("text")).contains("nor any SQLite database"));

    let foreign = rusqlite::Connection::open(path("foreign")).unwrap();
    foreign.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(foreign);
    assert!(refused(&path("foreign")).contains("another program's database"));

    drop(open(&path("newer")));
    let newer = rusqlite::Connection::open(path("newer")).unwrap();
    newer.execute_batch("PRAGMA user_version = 2").unwrap();
    drop(newer);
    assert!(refused(&path("newer")).contains("store format 2 is newer than 1"));

    fs::create_dir(path("directory")).unwrap();
    assert!(refused(&path("directory")).contains("not a regular file"));

    let store = open(&path("torn"));
    (0..200).for_each(|index| {
        write(&store, vec![put(&format!("/{index}"), vec![7; 500])]);
    });
    drop(store);
    let whole = fs::read(path("torn")).unwrap();
    let torn: Vec<u8> =
        whole.iter().enumerate().map(|(at, byte)| if at < 4096 { *byte } else { 0x5a }).collect();
    fs::write(path("torn"), torn).unwrap();
    let outcome =
        sqlite::Store::open(path("torn")).and_then(|store| Store::Sqlite(store).list("/"));
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
}

#[test]
fn leftovers_of_a_creator_that_was_killed_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    for name in ["store.db", "store.db-wal", "store.db-new", "store.db-new-wal"] {
        fs::write(directory.path().join(name), if name == "store.db" { "" } else { "x" }).unwrap();
    }
    assert_eq!(write(&open(&path), vec![put("/a", "1")]), 2);
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn processes_that_create_the_store_at_once_share_it() {
    for _ in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/store.db");
        std::thread::scope(|scope| {
            for index in 0..8 {
                let path = &path;
                scope.spawn(move || write(&open(path), vec![put(&format!("/{index}"), "1")]));
            }
        });
        let snapshot = open(&path).list("/").unwrap();
        assert_eq!((snapshot.revision, snapshot.entries.len()), (9, 8));
    }
}

#[test]
fn a_replaced_file_is_noticed_by_calls_and_watches() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("store.db"), directory.path().join("other.db"));
    let store = open(&path);
    write(&store, vec![put("/a", "old"), put("/only-old", "1")]);
    let mut watch = store.watch("/");
    let mut events = Vec::new();
    let mut until = |is_last: &dyn Fn(&Event) -> bool| loop {
        let event = watch.next(Duration::from_secs(120)).expect("an event");
        events.push(crate::view::shown(&event));
        if is_last(&event) {
            return std::mem::take(&mut events);
        }
    };
    until(&|event| matches!(event, Event::InSync(_)));
    write(&open(&other), vec![put("/a", "new")]);
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{suffix}", path.display()));
    }
    let gone = until(&|event| matches!(event, Event::Disconnected { .. }));
    assert!(gone[0].contains("No such file"), "{gone:?}");
    fs::rename(&other, &path).unwrap();
    assert_eq!(store.get("/a").unwrap().0.unwrap().value, b"new");
    let after = until(&|event| matches!(event, Event::InSync(_)));
    assert_eq!(after, ["+/a@2", "-/only-old@2", "in-sync@2"]);
}

#[test]
fn a_watcher_that_falls_behind_the_trimmed_log_misses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    write(&store, vec![put("/gone", "1"), put("/kept", "1")]);
    let mut watch = store.watch("/");
    let mut view = View::default();
    view.until_in_sync(&mut watch);
    write(&store, vec![delete("/gone")]);
    const N_WRITES: usize = 120;
    for _ in 0..N_WRITES {
        write(&store, vec![put("/big", vec![1; 1024 * 1024])]);
    }
    view.until_equal(&mut watch, &store, "/");
    assert!(view.changes().len() < N_WRITES, "nothing was trimmed");
    let compacted = rusqlite::Connection::open(&path).unwrap();
    let compacted: i64 =
        compacted.query_row("SELECT compacted FROM meta", [], |row| row.get(0)).unwrap();
    assert!(compacted > 40, "{compacted}");
}

#[test]
fn a_writer_without_a_bell_is_still_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    let mut watch = store.watch("/");
    let mut view = View::default();
    view.until_in_sync(&mut watch);
    fs::remove_file(format!("{}-bell", path.display())).unwrap();
    // A process of its own has a bell of its own, which nobody hears.
    write(&open(&path), vec![put("/a", "1")]);
    view.until(&mut watch, "the change", |view| view.changes() == ["+/a@2"]);
    let committed = store.commit(Txn::default()).unwrap();
    assert_eq!(committed, Committed::Applied { revision: 2 });
}

#[test]
fn files_of_others_keep_their_modes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("passwd");
    fs::write(&path, "root:x:0:0:root:/root:/bin/sh\n".repeat(100)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(&path).contains("not a margay store"));
    assert_eq!(mode(&path), 0o644);
    let path = directory.path().join("other.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(&path).contains("another program's database"));
    assert_eq!(mode(&path), 0o644);
}

#[test]
fn a_link_to_nowhere_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    std::os::unix::fs::symlink("/nowhere/store.db", &path).unwrap();
    assert!(refused(&path).contains("/nowhere/store.db"));
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
}

#[test]
fn a_key_that_is_no_text_does_not_hide_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    write(&store, vec![put("/a", "1"), put("/z", "1")]);
    let sql = rusqlite::Connection::open(&path).unwrap();
    for table in [
        "kv (key, value, create_revision, mod_revision, version) VALUES (",
        "log (revision, seq, at, key, value, create_revision, version) VALUES (3, 0, 0, ",
    ] {
        let rest = if table.starts_with("kv") { "x'31', 3, 3, 1" } else { "x'31', 3, 1" };
        sql.execute_batch(&format!("INSERT INTO {table} CAST(x'2f62ff' AS TEXT), {rest})"))
            .unwrap();
    }
    let watched_from = store.watch_from("/", 2, [("/a".to_string(), 2), ("/z".to_string(), 2)]);
    sql.execute_batch("UPDATE meta SET revision = 3").unwrap();
    let keys: Vec<_> = store.list("/").unwrap().entries.into_iter().map(|it| it.key).collect();
    assert_eq!(keys, ["/a", "/z"]);
    for mut watch in [store.watch("/"), watched_from] {
        let mut view = View::default();
        view.until_in_sync(&mut watch);
        assert!(!view.events.iter().any(|event| matches!(event, Event::Disconnected { .. })));
    }
}

#[test]
fn a_store_at_the_last_revision_refuses_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    let sql = rusqlite::Connection::open(&path).unwrap();
    sql.execute("UPDATE meta SET revision = ?1", [i64::MAX]).unwrap();
    let refused = store.commit(Txn { compares: vec![], ops: vec![put("/a", "1")] });
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert_eq!(store.get("/a").unwrap(), (None, i64::MAX));
}

#[test]
fn names_that_mean_something_to_sqlite_are_those_of_files() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["file:store.db?mode=memory", ":memory:"] {
        let mut worker = worker::start_in(directory.path(), "increment", Path::new(name));
        assert!(worker.wait().unwrap().success(), "{name}");
        let value = open(&directory.path().join(name)).get("/counter").unwrap().0.unwrap().value;
        assert_eq!(value, b"100", "{name}");
    }
    assert!(!directory.path().join("store.db").exists());
}
