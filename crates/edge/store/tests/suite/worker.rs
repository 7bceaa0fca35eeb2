//! What other processes do in tests: this very program, started again with a task in its
//! environment.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use store::{Committed, Compare, Op, Store, Txn, sqlite};

use crate::view::{put, write};

const TASK: &str = "STORE_TEST_TASK";
const FILE: &str = "STORE_TEST_FILE";

/// Starts a process that does `task` on the store at `path`.
pub(crate) fn start(task: &str, path: &Path) -> Child {
    start_in(Path::new("."), task, path)
}

/// As [`start`], with a working directory.
pub(crate) fn start_in(directory: &Path, task: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .current_dir(directory)
        .args(["--exact", "worker::does_its_task", "--nocapture"])
        .env(TASK, task)
        .env(FILE, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Does nothing unless it is started by [`start`].
#[test]
fn does_its_task() {
    let Ok(task) = std::env::var(TASK) else { return };
    let path = PathBuf::from(std::env::var_os(FILE).unwrap());
    let store = Store::Sqlite(sqlite::Store::open(path).unwrap());
    match task.as_str() {
        "increment" => (0..100).for_each(|_| increment(&store)),
        "pairs" => loop {
            let (_, revision) = store.get("/left").unwrap();
            let value = format!("{revision}-{}", std::process::id());
            write(&store, vec![put("/left", value.clone()), put("/right", value)]);
        },
        other => panic!("no such task: {other}"),
    }
}

/// Adds one to `/counter` by compare-and-swap.
pub(crate) fn increment(store: &Store) {
    let key = "/counter".to_string();
    loop {
        let (entry, _) = store.get(&key).unwrap();
        let (count, compare) = match entry {
            None => (0, Compare::Absent(key.clone())),
            Some(entry) => {
                let count: u32 = String::from_utf8(entry.value).unwrap().parse().unwrap();
                (count, Compare::ModRevision(key.clone(), entry.mod_revision))
            }
        };
        let op = Op::Put { key: key.clone(), value: (count + 1).to_string().into() };
        let txn = Txn { compares: vec![compare], ops: vec![op] };
        if let Committed::Applied { .. } = store.commit(txn).unwrap() {
            return;
        }
    }
}
