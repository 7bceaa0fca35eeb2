//! Writes that are taken back unless somebody confirms them.

use crate::harness::{Place, Running, policy, until};

fn exists(place: &Place) -> bool {
    place.run(&["get", "np", "web", "-n", "shop"]).code == 0
}

fn applying(place: &Place, within: &str) -> Running {
    let file = place.file("given.yaml", &policy("shop", "web", 1));
    Running::start(place.command(&["apply", "-f", &file, "--confirm-within", within]))
}

#[test]
fn a_write_that_nobody_confirms_is_taken_back() {
    for place in Place::both() {
        let file = place.file("given.yaml", &policy("shop", "web", 1));
        place
            .run(&["apply", "-f", &file, "--confirm-within", "300ms"])
            .code(1)
            .says(&[
                "✓ 1 created",
                "✗ not confirmed within 300 ms: write 1 is taken back",
                "redo: ",
            ])
            .complains(&["waiting for margay confirm 1; it is taken back in 300 ms"]);
        assert!(!exists(&place));
        place.margay("confirm 1").refused(&["write 1 was taken back, by write 2"]);
        place.margay("confirm").refused(&["no write is to be confirmed"]);
    }
}

#[test]
fn a_write_that_is_confirmed_stays() {
    let place = Place::embedded();
    let apply = applying(&place, "1h");
    apply.until_complains("margay confirm 1");
    place.margay("history").ok().says(&["to be confirmed until", "margay confirm 1"]);
    place.margay("confirm").ok().says(&["✓ write 1 confirmed: it stays"]);
    apply.until_says("✓ write 1 confirmed: it stays");
    assert!(exists(&place));
    let history = place.margay("history").ok();
    assert!(!history.out.contains("to be confirmed"), "{}", history.out);
    place.margay("confirm 1").refused(&["write 1 is not to be confirmed"]);
}

/// The one who made the write is cut off by it, or killed: it is taken back all the same.
#[test]
fn a_write_is_taken_back_though_its_maker_is_gone() {
    let place = Place::embedded();
    let apply = applying(&place, "2s");
    apply.until_complains("margay confirm 1");
    drop(apply);
    assert!(exists(&place));
    until("the write is taken back", || !exists(&place));
}

#[test]
fn a_removal_and_a_patch_are_taken_back_too() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "web", 1)).ok();
    let before = place.dump();
    place.margay("delete np web -n shop --yes --confirm-within 100ms").code(1);
    assert_eq!(place.dump(), before);
    let patch = r#"{"spec":{"order":7}}"#;
    let words = ["patch", "np", "web", "-n", "shop", "-p", patch, "--confirm-within", "100ms"];
    place.run(&words).code(1);
    assert_eq!(place.json("get np web -n shop")["spec"]["order"], 1);
}

/// What a program reads from standard output is one document, however it ends.
#[test]
fn the_answer_for_programs_is_one_document() {
    let place = Place::embedded();
    let file = place.file("given.yaml", &policy("shop", "web", 1));
    let words = ["apply", "-f", &file, "--confirm-within", "300ms", "-o", "json"];
    let taken_back = place.run(&words).code(1);
    let said: serde_json::Value = serde_json::from_str(&taken_back.out).unwrap();
    assert_eq!(said["created"], 1, "{taken_back:?}");
    taken_back.complains(&["✗ not confirmed within 300 ms: write 1 is taken back", "redo: "]);

    let words = ["apply", "-f", &file, "--confirm-within", "1h", "-o", "json"];
    let apply = Running::start(place.command(&words));
    apply.until_complains("margay confirm 3");
    let kept = place.json("confirm");
    assert_eq!((&kept["write"], &kept["isKept"]), (&3.into(), &true.into()));
    apply.until_complains("✓ write 3 confirmed: it stays");
}

#[test]
fn no_time_is_no_time_to_confirm() {
    let place = Place::embedded();
    let file = place.file("given.yaml", &policy("shop", "web", 1));
    for none in ["0s", "0"] {
        let refused = place.run(&["apply", "-f", &file, "--confirm-within", none]);
        refused.refused(&["that is no time to confirm anything"]);
        assert!(!exists(&place));
    }
}

#[test]
fn labels_and_patches_need_not_wait_for_nodes() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "web", 1)).ok();
    place.margay("label np web app=web -n shop --no-wait").ok().says(&["1 changed"]);
    let patch = r#"{"spec":{"order":7}}"#;
    place.run(&["patch", "np", "web", "-n", "shop", "-p", patch, "--no-wait"]).ok();
}

/// A write that changes nothing has nothing to confirm.
#[test]
fn nothing_to_do_is_nothing_to_confirm() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "web", 1)).ok();
    let file = place.file("given.yaml", &policy("shop", "web", 1));
    place.run(&["apply", "-f", &file, "--confirm-within", "1h"]).ok().says(&["1 unchanged"]);
}
