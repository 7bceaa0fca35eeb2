use super::*;

fn tier(name: &str, order: f64) -> Value {
    json!({
        "kind": "Tier",
        "apiVersion": API_VERSION,
        "metadata": {"name": name, "uid": "1"},
        "spec": {"order": order},
    })
}

fn printed(format: &str, results: &[Shown]) -> String {
    let format = Format::parse(format, false).unwrap();
    let mut out = Vec::new();
    print(&format, results, &mut || "64512".to_owned(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_list_printed_piece_by_piece_is_the_list_printed_at_once() {
    for count in [0, 1, 3] {
        let tiers: Vec<Value> = (0..count).map(|n| tier(&format!("t{n}"), 1e6)).collect();
        for format in ["yaml", "json", "ps", "wide", "custom-columns=ORDER,NAME"] {
            let parsed = Format::parse(format, false).unwrap();
            let mut out = Vec::new();
            let mut list = ListWriter::new(&parsed, Kind::Tier, &mut out).unwrap().unwrap();
            for tier in &tiers {
                list.item(tier.clone(), &mut String::new).unwrap();
            }
            list.finish(7).unwrap();
            let at_once = printed(format, &[Shown::List(Kind::Tier, tiers.clone(), 7)]);
            assert_eq!(String::from_utf8(out).unwrap(), at_once, "{format} of {count}");
        }
    }
}

#[test]
fn several_objects_are_a_list_and_one_is_itself() {
    let one = Shown::Object(Kind::Tier, tier("a", 1.0));
    assert_eq!(printed("yaml", &[]), "null\n");
    assert!(printed("yaml", std::slice::from_ref(&one)).starts_with("apiVersion:"));
    assert!(printed("yaml", &[one.clone(), one.clone()]).starts_with("- apiVersion:"));
    assert_eq!(printed("ps", &[one.clone(), one]).matches("NAME").count(), 2);
}

#[test]
fn formats_that_are_not_complete_are_refused() {
    for (text, words) in [
        ("nope", "unrecognized output format 'nope'"),
        ("custom-columns", "need to specify at least one column"),
        ("custom-columns=", "need to specify at least one column"),
        ("go-template", "need to specify a template"),
        ("go-template-file=", "need to specify a template file"),
    ] {
        assert_eq!(Format::parse(text, false).unwrap_err(), words);
    }
}
