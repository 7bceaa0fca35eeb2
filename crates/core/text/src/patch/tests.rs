//! Patches on small documents.

use serde_json::{Value, json};

use super::*;

fn merged(target: Value, patch: Value) -> Value {
    strategic(&target, &patch).unwrap()
}

#[test]
fn strategic_merges_maps_and_replaces_lists() {
    let target = json!({"spec": {"a": 1, "list": [1, 2], "keep": true}});
    let patch = json!({"spec": {"a": null, "list": [3], "new": {"x": null, "y": 1}}});
    let expected = json!({"spec": {"list": [3], "keep": true, "new": {"y": 1}}});
    assert_eq!(merged(target, patch), expected);
}

#[test]
fn strategic_obeys_directives() {
    let target = || json!({"spec": {"a": 1, "b": 2}, "l": ["x", "y", "z"]});
    let patch = json!({"spec": {"$patch": "replace", "c": 3}});
    assert_eq!(merged(target(), patch)["spec"], json!({"c": 3}));
    let patch = json!({"spec": {"$patch": "delete"}});
    assert_eq!(merged(target(), patch)["spec"], json!({}));
    let patch = json!({"spec": {"$patch": "merge", "c": 3}});
    assert_eq!(merged(target(), patch)["spec"], json!({"a": 1, "b": 2, "c": 3}));
    let patch = json!({"spec": {"$retainKeys": ["a"], "a": 5}});
    assert_eq!(merged(target(), patch)["spec"], json!({"a": 5}));
    let patch = json!({"$deleteFromPrimitiveList/l": ["y"]});
    assert_eq!(merged(target(), patch)["l"], json!(["x", "z"]));
    let patch = json!({"$setElementOrder/l": ["z", "x"]});
    assert_eq!(merged(target(), patch)["l"], json!(["y", "z", "x"]));
    let patch = json!({"spec": {"$patch": "what"}});
    assert!(matches!(strategic(&target(), &patch), Err(Error::Directive(_))));
}

#[test]
fn strategic_merges_the_tagged_lists_of_metadata() {
    let target = json!({"metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "1"}]}});
    let patch = json!({"metadata": {"finalizers": ["b", "a"],
        "ownerReferences": [{"uid": "1", "kind": "K"}, {"uid": "2"}]}});
    let expected = json!({"metadata": {"finalizers": ["a", "b"],
        "ownerReferences": [{"uid": "1", "kind": "K"}, {"uid": "2"}]}});
    assert_eq!(merged(target, patch), expected);
}

#[test]
fn patches_that_are_no_objects_are_refused() {
    assert_eq!(strategic(&json!({}), &json!([])), Err(Error::Document));
    for text in ["", "not json", "spec:\n  a: 1\n"] {
        assert_eq!(parse(text.as_bytes()), Err(Error::Document), "{text}");
    }
    assert_eq!(Error::Document.to_string(), "invalid JSON document");
}

#[test]
fn merge_patch_follows_the_rfc() {
    let mut target = json!({"a": "b", "c": {"d": "e", "f": "g"}});
    merge(&mut target, &json!({"a": "z", "c": {"f": null}, "n": {"x": null, "y": 1}}));
    assert_eq!(target, json!({"a": "z", "c": {"d": "e"}, "n": {"y": 1}}));
    let mut target = json!(["a"]);
    merge(&mut target, &json!({"b": 1}));
    assert_eq!(target, json!({"b": 1}));
}

#[test]
fn operations_change_values_in_order() {
    let target = json!({"a": [1, 2], "b": {"x/y": 1, "m~n": 2}});
    let patch = json!([
        {"op": "test", "path": "/a/0", "value": 1.0},
        {"op": "add", "path": "/a/1", "value": 9},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "replace", "path": "/b/x~1y", "value": "new"},
        {"op": "copy", "from": "/a/0", "path": "/c"},
        {"op": "move", "from": "/b/m~0n", "path": "/d"},
        {"op": "remove", "path": "/a/0"},
    ]);
    let expected = json!({"a": [9, 2, 3], "b": {"x/y": "new"}, "c": 1, "d": 2});
    assert_eq!(operations(&target, &patch).unwrap(), expected);
}

#[test]
fn operations_that_fail_say_which_and_why() {
    for (patch, message) in [
        (
            json!([{"op": "remove", "path": "/a"}, {"op": "replace", "path": "/x/y", "value": 1}]),
            "operation 1 (replace /x/y): there is no \"x\" on the path",
        ),
        (
            json!([{"op": "test", "path": "/a", "value": 2}]),
            "operation 0 (test /a): the value is 1, not 2",
        ),
        (
            json!([{"op": "add", "path": "a", "value": 2}]),
            "operation 0 (add a): the path a must start with /",
        ),
        (
            json!([{"op": "add", "path": "/l/3", "value": 2}]),
            "operation 0 (add /l/3): \"3\" is no place in a list of 1",
        ),
    ] {
        let error = operations(&json!({"a": 1, "l": [0]}), &patch).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn operations_cannot_nest_a_document_without_bound() {
    let step = "/a".repeat(20);
    let deep = (0..20).fold(json!({}), |inner, _| json!({"a": inner}));
    let patch: Vec<Value> = (0..20)
        .map(|n| json!({"op": "replace", "path": step.repeat(n), "value": deep.clone()}))
        .collect();
    let refused = operations(&json!({}), &Value::Array(patch)).unwrap_err().to_string();
    assert!(refused.contains("nested more than 200 levels deep"), "{refused}");
}
