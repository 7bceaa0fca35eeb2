//! Reading where there is nothing yet, where nothing can be written, and where others write.

use std::process::Command;

use crate::harness::{Done, Place, Running, policy, until};

#[test]
fn a_store_that_is_not_there_is_empty_and_is_not_made() {
    let place = Place::embedded();
    let path = place.path("below/store.db").display().to_string();
    let run = |words: &[&str]| {
        Done::from(place.command(words).env("MARGAY_STORE", &path).output().unwrap())
    };
    let there_is_none = format!("there is no store yet at {path}");
    run(&["get", "np", "-A"]).code(0).complains(&[&there_is_none, "no networkpolicies"]);
    let list = run(&["get", "np", "-A", "-o", "json"]).ok();
    assert!(list.out.contains("\"items\": []"), "{list:?}");
    run(&["get", "np", "web", "-o", "yaml"]).refused(&["does not exist"]);
    run(&["ipam", "show"]).code(0);
    run(&["undo"]).refused(&["there is no write"]);
    let mut command = place.command(&["calicoctl", "get", "np", "-A"]);
    let theirs = Done::from(command.env("MARGAY_STORE", &path).output().unwrap()).code(0);
    assert!(!theirs.err.contains("no store"), "{theirs:?}");
    assert!(!place.path("below").exists());
    place.file("given.yaml", &policy("shop", "web", 1));
    run(&["apply", "-f", "given.yaml"]).ok();
    run(&["get", "np", "web", "-n", "shop"]).ok();
}

/// Runs the program where the folder of the store cannot be written to, by anybody.
fn read_only(place: &Place, words: &[&str]) -> Option<Done> {
    let folder = place.path("");
    let program = place.command(words);
    let script = "mount --bind . . && mount -o remount,ro,bind . && cd \"$PWD\" || exit 99; \
                  exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(program.get_program());
    command.args(program.get_args()).current_dir(folder).env_clear();
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = Done::from(command.output().unwrap());
    if done.code == 99 || done.err.starts_with("unshare") {
        eprintln!("SKIPPED: reading from a read-only mount, because nothing can be mounted here");
        return None;
    }
    Some(done)
}

#[test]
fn a_store_on_a_read_only_mount_is_read() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "web", 1)).ok();
    let Some(shown) = read_only(&place, &["get", "np", "-n", "shop"]) else { return };
    shown.ok().says(&["web"]);
    place.file("given.yaml", &policy("shop", "web", 2));
    let refused = read_only(&place, &["apply", "-f", "given.yaml"]).unwrap();
    refused.code(2).complains(&["store.db", "readonly"]);
    // A log that is still there belongs to what is read.
    let held = place.store();
    place.give("apply", &policy("shop", "late", 2)).ok();
    read_only(&place, &["get", "np", "-n", "shop"]).unwrap().ok().says(&["web", "late"]);
    drop(held);
}

#[test]
fn a_wait_for_a_lock_is_said_with_its_end() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "web", 1)).ok();
    let path = place.path("store.db");
    let lock = rusqlite::Connection::open(&path).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    place.file("given.yaml", &policy("shop", "web", 2));
    let mut writer = Running::start(place.command(&["apply", "-f", "given.yaml"]));
    let path = path.display();
    writer.until_complains(&format!("waiting for {path} (locked by another process, 1 s of 10 s)"));
    lock.execute_batch("ROLLBACK").unwrap();
    until("the writer to end", || writer.child.try_wait().unwrap().is_some());
    assert!(writer.child.wait().unwrap().success());
}
