//! `margay apply` killed at any moment.

use std::process::Stdio;
use std::time::Duration;

use crate::harness::{Place, policy, until};

/// More than fit into one transaction.
const N_OBJECTS: usize = 250;

fn documents(order: i64) -> String {
    (0..N_OBJECTS).map(|n| policy("shop", &format!("p{n:03}"), order)).collect()
}

/// The orders of the objects in the store, by name.
fn orders(place: &Place) -> Vec<i64> {
    let list = place.json("get np -n shop");
    let items = list["items"].as_array().unwrap();
    items.iter().map(|one| one["spec"]["order"].as_i64().unwrap()).collect()
}

#[test]
fn a_killed_apply_leaves_whole_transactions_and_can_be_said_again() {
    for place in Place::both() {
        place.give("apply", &documents(0)).ok().says(&["✓ 250 created"]);
        let (_, mut revision) = place.store().get("/").unwrap();
        let mut n_midway = 0;
        // Killed at the first change seen, and later and later after it.
        for round in 1..=8 {
            let file = place.file("round.yaml", &documents(round));
            let mut command = place.command(&["apply", "-f", &file]);
            let mut child = command.stdout(Stdio::null()).spawn().unwrap();
            let moved = || place.store().get("/").unwrap().1 > revision;
            let mut is_over = false;
            until("the first transaction", || {
                is_over = child.try_wait().unwrap().is_some();
                moved() || is_over
            });
            std::thread::sleep(Duration::from_micros(u64::try_from(round).unwrap() * 700));
            let _ = child.kill();
            child.wait().unwrap();
            let after = orders(&place);
            assert_eq!(after.len(), N_OBJECTS);
            let n_written = after.iter().filter(|order| **order == round).count();
            // A transaction takes 100 objects, and they are written in the order given.
            assert!([0, 100, 200, 250].contains(&n_written), "{n_written}");
            assert!(after[..n_written].iter().all(|order| *order == round));
            n_midway += usize::from(n_written < N_OBJECTS);
            place.margay(&format!("apply -f {file}")).ok();
            assert_eq!(orders(&place), [round; N_OBJECTS]);
            revision = place.store().get("/").unwrap().1;
        }
        eprintln!("{n_midway} of 8 rounds were killed midway");
        place.margay("history").ok();
        place.give("apply", &policy("shop", "p000", 99)).ok();
        place.margay("undo").ok();
        assert_eq!(orders(&place), [8; N_OBJECTS]);
    }
}

#[test]
fn a_killed_write_is_in_the_history_exactly_if_it_was_made() {
    for place in Place::both() {
        place.give("apply", &documents(0)).ok();
        let (before, mut numbers) = (place.dump(), vec![1]);
        let mut n_made = 0;
        for round in 1..=12 {
            let file = place.file("round.yaml", &documents(round));
            let revision = place.store().get("/").unwrap().1;
            let mut command = place.command(&["apply", "-f", &file]);
            let mut child = command.stdout(Stdio::null()).spawn().unwrap();
            // Half of the rounds end before the first change, or just with it.
            if round % 2 == 0 {
                until("the first transaction", || {
                    place.store().get("/").unwrap().1 > revision
                        || child.try_wait().unwrap().is_some()
                });
            } else {
                std::thread::sleep(Duration::from_millis(u64::try_from(round).unwrap() * 4));
            }
            let _ = child.kill();
            child.wait().unwrap();
            let is_made = place.dump() != before;
            n_made += usize::from(is_made);
            let list = place.json("history");
            let newest = list[0]["number"].as_i64().unwrap();
            assert_eq!(!numbers.contains(&newest), is_made, "round {round}: {list:#}");
            if is_made {
                place.margay("undo").ok().says(&[&format!("write {newest} taken back")]);
                numbers.extend([newest, newest + 1]);
            }
            assert_eq!(place.dump(), before, "round {round}");
        }
        assert!(n_made >= 6, "{n_made}");
    }
}

#[test]
fn a_killed_first_write_leaves_a_store_that_opens() {
    for delay in 0..12 {
        let place = Place::embedded();
        place.file("given.yaml", &documents(1));
        let mut command = place.command(&["apply", "-f", "given.yaml"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay * 4));
        let _ = child.kill();
        child.wait().unwrap();
        place.margay("apply -f given.yaml").ok();
        assert_eq!(orders(&place), [1; N_OBJECTS]);
    }
}
