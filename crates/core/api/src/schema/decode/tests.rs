use serde_json::json;

use super::*;

static INNER: Object = Object {
    name: "Inner",
    fields: &[
        Field::new("nets", "Nets", Shape::List(&Shape::Text)),
        Field::new("selector", "Selector", Shape::Text),
        Field::new("wait", "Wait", Shape::Duration).keep(Keep::Given),
    ],
};

static OUTER: Object = Object {
    name: "Outer",
    fields: &[
        Field::new("action", "Action", Shape::Text).keep(Keep::Always),
        Field::new("size", "Size", Shape::INT32),
        Field::new("on", "On", Shape::Bool).keep(Keep::Given),
        Field::new("source", "Source", Shape::Object(&INNER)),
        Field::new("labels", "Labels", Shape::Map(&Shape::Text)),
        Field::new("ports", "Ports", Shape::List(&Shape::Port)),
        Field::new("as", "AS", Shape::AsNumber),
        Field::new("order", "Order", Shape::Float).keep(Keep::Given),
        Field::new("since", "Since", Shape::Time).keep(Keep::Always),
    ],
};

fn user(value: Value) -> (String, Vec<String>) {
    let (value, problems) = decode(&OUTER, value, Mode::User);
    (value.to_string(), problems.iter().map(ToString::to_string).collect())
}

fn stored(value: Value) -> (String, Vec<String>) {
    let (value, problems) = decode(&OUTER, value, Mode::Stored);
    (value.to_string(), problems.iter().map(ToString::to_string).collect())
}

#[test]
fn fields_come_out_in_order_and_zeros_are_left_out() {
    let given = json!({"SIZE": 0, "labels": {"b": "1", "a": null}, "on": false, "action": null,
        "source": {"selector": ""}, "ports": [null, "080", "80:80", "1:2", "http"], "as": "1.10"});
    let expected = r#"{"action":"","on":false,"labels":{"a":"","b":"1"},"#.to_owned()
        + r#""ports":[0,80,80,"1:2","http"],"as":65546,"since":null}"#;
    assert_eq!(stored(given), (expected, vec![]));
}

#[test]
fn an_empty_list_makes_a_struct_more_than_zero() {
    let (value, _) = stored(json!({"source": {"nets": []}}));
    assert_eq!(value, r#"{"action":"","source":{},"since":null}"#);
}

#[test]
fn scalars_become_text_only_for_people() {
    let given = json!({"action": 1.5, "labels": {"a": true, "b": 1e6}, "size": 3.0});
    let expected = r#"{"action":"1.5","size":3,"labels":{"a":"true","b":"1e+06"},"since":null}"#;
    assert_eq!(user(given.clone()), (expected.to_owned(), vec![]));
    let (_, problems) = stored(given);
    assert_eq!(problems.len(), 4);
    assert_eq!(problems[0], "action: expected text, found 1.5");
}

#[test]
fn all_faults_are_found_and_the_rest_is_read() {
    let (value, problems) = user(json!({"size": "x", "acton": "Allow", "order": 2.0,
        "source": {"nets": ["a", {}], "wait": "5"}, "since": "yesterday"}));
    assert_eq!(
        value,
        r#"{"action":"","order":2,"source":{"nets":["a",""]}}"#.replace(
            r#""order":2,"source":{"nets":["a",""]}"#,
            r#""source":{"nets":["a",""]},"order":2"#,
        )
    );
    let expected = [
        "size: expected a whole number from -2147483648 to 2147483647, found the text \"x\"",
        "acton: unknown field; did you mean action?",
        "source.nets[1]: expected text, found an object",
        "source.wait: \"5\" is not a duration, such as 90s or 1h30m",
        "since: \"yesterday\" is not a time, such as 2006-01-02T15:04:05Z",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn go_words_name_struct_path_and_type() {
    let (_, problems) = decode(&OUTER, json!({"source": {"nets": [{}]}}), Mode::User);
    let reason =
        "json: cannot unmarshal object into Go struct field Inner.source.nets of type string";
    assert_eq!(problems[0].calico.reason, reason);
    let (_, problems) = decode(&OUTER, json!({"size": 1.5}), Mode::User);
    let reason = "json: cannot unmarshal number 1.5 into Go struct field Outer.size of type int32";
    assert_eq!(problems[0].calico.reason, reason);
}

#[test]
fn stored_values_keep_unknown_fields_after_the_known() {
    let (value, problems) =
        stored(json!({"new": {"x": 1}, "source": {"later": 1, "nets": ["a"]}, "action": "Allow"}));
    let expected = r#"{"action":"Allow","source":{"nets":["a"],"later":1},"since":null,"#
        .to_owned()
        + r#""new":{"x":1}}"#;
    assert_eq!((value, problems), (expected, vec![]));
}

#[test]
fn a_value_that_is_no_object_is_a_problem_of_the_whole() {
    let (value, problems) = decode(&OUTER, json!([1]), Mode::Stored);
    assert_eq!(value, json!({}));
    assert_eq!(problems[0].to_string(), "expected an object, found a list");
}

/// What the short way gives, which must be what the long way gives.
fn short(text: &str) -> Option<String> {
    let short = regular::read(&OUTER, text.as_bytes(), None)?;
    let (long, problems) =
        decode(&OUTER, text::json::parse(text.as_bytes()).unwrap(), Mode::Stored);
    assert_eq!((short.to_string(), problems), (long.to_string(), vec![]), "{text}");
    Some(short.to_string())
}

#[test]
fn regular_text_takes_the_short_way() {
    for text in [
        "{}",
        r#"{"action":"a","size":7,"on":false,"source":{},"labels":{"b":"1","a":"2"}}"#,
        r#"{"action":"","size":0,"source":{"nets":["x"],"wait":"90s"},"order":1.5,"since":null}"#,
        r#"{"ports":[1,"080","1:2","http"],"as":"1.10","order":100,"since":"2020-01-02T03:04:05Z"}"#,
        r#" {"action" : "\u0041\n" , "order" : 1e3 } "#,
        r#"{"action":null,"on":null,"labels":{},"ports":[]}"#,
    ] {
        assert!(short(text).is_some(), "{text}");
    }
}

#[test]
fn irregular_text_takes_the_long_way() {
    for text in [
        "",
        "[]",
        "{} {}",
        r#"{"later":1}"#,
        r#"{"Action":"a"}"#,
        r#"{"size":1,"action":"a"}"#,
        r#"{"size":1,"size":2}"#,
        r#"{"size":1.0}"#,
        r#"{"size":"1"}"#,
        r#"{"source":{"selector":""}}"#,
        r#"{"source":{"nets":[]}}"#,
        r#"{"source":[]}"#,
        r#"{"ports":[null]}"#,
        r#"{"ports":{}}"#,
        r#"{"labels":{"a":null}}"#,
        r#"{"since":"0001-01-01T00:00:00Z"}"#,
        r#"{"as":"x"}"#,
    ] {
        assert_eq!(short(text), None, "{text}");
    }
}

#[test]
fn of_a_part_everything_is_judged_but_only_the_named_is_kept() {
    static ROOT: Object = Object {
        name: "Root",
        fields: &[
            Field::new("kind", "Kind", Shape::Text),
            Field::new("spec", "Spec", Shape::Object(&OUTER)),
        ],
    };
    let read = |text: &str| {
        let value = regular::read(&ROOT, text.as_bytes(), Some(&["size"]))?;
        Some(value.to_string())
    };
    let text = r#"{"kind":"k","spec":{"action":"a","size":7,"source":{"nets":["x"]},"ports":[1]}}"#;
    assert_eq!(read(text).unwrap(), r#"{"kind":"k","spec":{"size":7}}"#);
    assert_eq!(read(r#"{"spec":{"action":"a"}}"#).unwrap(), r#"{"spec":{}}"#);
    for bad in [r#"{"nets":[1]}"#, r#"{"nets":[null]}"#, r#"{"later":1}"#, r#"{"wait":"x"}"#] {
        assert_eq!(read(&format!(r#"{{"spec":{{"source":{bad}}}}}"#)), None, "{bad}");
    }
}

#[test]
fn the_texts_of_fields_can_be_told_without_a_value() {
    let heard = |text: &str| {
        let mut heard = Vec::new();
        let is_regular = regular::tell(&OUTER, text.as_bytes(), &mut |parent, field, text| {
            heard.push(format!("{parent}.{field}={text}"));
        });
        is_regular.then_some(heard)
    };
    let text = r#"{"action":"a","size":7,"source":{"nets":["x","y"]},"labels":{"b":"1"}}"#;
    assert_eq!(heard(text).unwrap(), [".action=a", "source.nets=x", "source.nets=y"]);
    for bad in [r#"{"size":1.0}"#, r#"{"later":1}"#, r#"{"labels":{"a":null}}"#, r#"{"as":"x"}"#] {
        assert_eq!(heard(bad), None, "{bad}");
    }
}
