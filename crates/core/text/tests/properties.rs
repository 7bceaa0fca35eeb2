//! What must hold for any input.

use proptest::prelude::*;
use serde_json::{Map, Number, Value};
use text::{json, patch, template, yaml};

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        any::<i64>().prop_map(Number::from),
        any::<u64>().prop_map(Number::from),
        // A whole float reads back as an integer, as it does in Go.
        any::<f64>().prop_filter_map("finite and not whole", |float| {
            Number::from_f64(float).filter(|_| float.fract() != 0.0 || float.abs() >= 1e21)
        }),
    ]
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ -~\\n\\t]{0,200}",
        "[yYnNtTfF~0-9.:_+eExob-]{1,8}",
        "([a-z]{1,9}[ ]{1,2}){0,40}",
        "[a\\n #:'\"\\-?,\u{2028}\u{85}\r\u{feff}]{0,12}",
        "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}[Tt ]?[0-9:.Z+-]{0,12}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number().prop_map(Value::Number),
        words().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((words(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn yaml_survives_a_round_trip(value in value()) {
        let written = yaml::to_string(&value);
        let read = yaml::parse(written.as_bytes());
        prop_assert_eq!(read, Ok(value), "{}", written);
    }

    #[test]
    fn json_survives_a_round_trip(value in value()) {
        prop_assert_eq!(json::parse(json::to_string(&value).as_bytes()), Ok(value.clone()));
        prop_assert_eq!(json::parse(json::to_string_indented(&value).as_bytes()), Ok(value));
    }

    #[test]
    fn json_reads_the_same_as_yaml(value in value()) {
        let value = Value::Array(vec![value]);
        let text = json::to_string(&value);
        // Control characters that JSON takes bare are refused in documents.
        match yaml::parse(text.as_bytes()) {
            Ok(read) => prop_assert_eq!(read, value),
            Err(error) => {
                let refused = matches!(error.problem, yaml::Problem::ControlCharacter(_));
                prop_assert!(refused, "{}", error);
            }
        }
    }

    #[test]
    fn readers_stand_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for document in yaml::documents(&bytes).flatten() {
            document.position(&[yaml::Step::Key("a"), yaml::Step::Index(0)]);
        }
        let _ = json::parse(&bytes);
        let _ = patch::parse(&bytes);
    }

    #[test]
    fn readers_stand_anything_like_yaml(text in "[a-c0-1 \\n\\t:\\-?,\\[\\]{}&*!|>'\"%@`#~<.\\\\\r]{0,60}") {
        for document in yaml::documents(text.as_bytes()).flatten() {
            document.position(&[yaml::Step::Key("a")]);
        }
    }

    #[test]
    fn templates_stand_anything(text in "(\\{\\{|\\}\\}|[a-c.$| ()\"',:=0-9%-]|if |range |end|else|with |define |printf ){0,30}") {
        if let Ok(template) = template::Template::parse("t", &text, &[]) {
            let _ = template.execute(&Value::Null, &template::Context::default());
        }
    }

    #[test]
    fn patches_stand_anything(target in value(), change in value()) {
        let _ = patch::strategic(&target, &change);
        let _ = patch::operations(&target, &change);
        let mut merged = target;
        patch::merge(&mut merged, &change);
    }
}
