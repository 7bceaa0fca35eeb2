//! Input that is out to break the readers.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use serde_json::json;
use text::yaml::{self, Position, Problem, Step};

fn problem(text: &[u8]) -> (Position, Problem) {
    let error = yaml::documents(text).find_map(Result::err).unwrap();
    (error.at, error.problem)
}

#[test]
fn aliases_cannot_blow_up_a_document() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = level - 1;
        let aliases = vec![format!("*a{before}"); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert_eq!(problem(text.as_bytes()).1, Problem::TooManyAliases);

    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 1000].join(", "));
    assert_eq!(problem(long.as_bytes()).1, Problem::TooManyAliases);

    let nested: String = (0..150).map(|level| format!("&a{level} [")).collect();
    let text = format!("{nested}{}{}, *a149]", "x, ".repeat(10_000), "]".repeat(149));
    assert_eq!(problem(text.as_bytes()).1, Problem::TooManyAliases);
}

#[test]
fn aliases_cannot_nest_too_deeply() {
    let mut text = String::from("a0: &a0 [x]\n");
    for level in 1..300 {
        text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert_eq!(problem(text.as_bytes()).1, Problem::TooDeep);
}

#[test]
fn values_are_bounded() {
    let list = |n: usize| format!("[{}]", vec!["1"; n].join(","));
    let most = yaml::limits::VALUES - 1;
    assert!(yaml::parse(list(most).as_bytes()).is_ok());
    assert!(yaml::parse(format!("a: {}", list(most - 1)).as_bytes()).is_ok());
    for text in [list(most + 2), format!("a: {}", list(most + 1))] {
        assert_eq!(problem(text.as_bytes()).1, Problem::TooManyValues);
    }
}

#[test]
fn nesting_is_bounded() {
    for text in [
        "[".repeat(1_000_000),
        "{a: ".repeat(500_000),
        "- ".repeat(500_000),
        "? ".repeat(500_000),
        (0..2000).map(|level| format!("{}a:\n", " ".repeat(level))).collect(),
        "[[".repeat(150) + &"]]".repeat(150),
    ] {
        let found = problem(text.as_bytes()).1;
        let refused = matches!(found, Problem::TooDeep | Problem::Syntax(_) | Problem::KeyKind(_));
        assert!(refused, "{found:?}");
    }
    let deepest = format!("{}{}", "[".repeat(200), "]".repeat(200));
    assert!(yaml::parse(deepest.as_bytes()).is_ok());
}

#[test]
fn bad_bytes_are_refused_with_their_place() {
    for (text, line, column, expected) in [
        (&b"a: b\nc: \xff\n"[..], 2, 4, Problem::NotUtf8),
        (b"a: b\nc: d\0\n", 2, 5, Problem::ControlCharacter(0)),
        ("a: é\u{7f}\n".as_bytes(), 1, 5, Problem::ControlCharacter(0x7f)),
        (b"a: b\n---\nc: d\n---\ne: \x01\n", 5, 4, Problem::ControlCharacter(1)),
    ] {
        assert_eq!(problem(text), (Position { line, column }, expected));
    }
    let (at, tab) = problem(b"a:\n  b: c\n---\nd:\n\te: f\n");
    assert_eq!(at, Position { line: 5, column: 1 });
    assert_eq!(tab.to_string(), "found character that cannot start any token");
}

#[test]
fn broken_tags_are_refused() {
    for text in ["a: !<x", "[!<x, y]", "[[ c: !,s b"] {
        let found = yaml::parse(text.as_bytes());
        assert!(matches!(&found, Err(error) if error.at.line <= 2), "{text}: {found:?}");
    }
    // Commas belong to a tag, as in the Go library.
    assert_eq!(yaml::parse(b"[!!str, a]").unwrap(), json!(["a"]));
}

#[test]
fn a_field_with_the_name_of_a_merge_is_written_as_a_field() {
    let value = json!({"a": {"<<": {"b": 1}}, "c": "<<"});
    assert_eq!(yaml::parse(yaml::to_string(&value).as_bytes()).unwrap(), value);
}

#[test]
fn exclamation_marks_in_texts_are_no_tags() {
    for (text, value) in [
        ("[wow!, b]", json!(["wow!", "b"])),
        ("['wow!', \"so!!, c\"]", json!(["wow!", "so!!, c"])),
        ("[a !b, c]", json!(["a !b", "c"])),
        ("a: x !y, z # [!w, v]", json!({"a": "x !y, z"})),
        ("a: |\n  [!x, y]\n", json!({"a": "[!x, y]\n"})),
        ("[!!str a, !!str 1]", json!(["a", "1"])),
    ] {
        assert_eq!(yaml::parse(text.as_bytes()).unwrap(), value, "{text}");
    }
}

#[test]
fn long_documents_are_read_up_to_the_limit() {
    let line = "key-NNNNNNN: some text that is not very long\n";
    let count = yaml::limits::DOCUMENT_BYTES / line.len();
    let text: String = (0..count).map(|at| line.replace("NNNNNNN", &format!("{at:07}"))).collect();
    let value = yaml::parse(text.as_bytes()).unwrap();
    assert_eq!(value.as_object().unwrap().len(), count);
    let longer = text + &"#".repeat(yaml::limits::DOCUMENT_BYTES);
    assert_eq!(problem(longer.as_bytes()).1, Problem::TooLong);
}

#[test]
fn many_documents_are_read_one_at_a_time() {
    let one = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata:\n  name: a\n";
    let file = vec![one; 100_000].join("---\n");
    let mut count = 0;
    for document in yaml::documents(file.as_bytes()) {
        let document = document.unwrap();
        assert_eq!(document.first_line, 1 + count * 5);
        count += 1;
    }
    assert_eq!(count, 100_000);
}

#[test]
fn separators_at_the_end_lose_nothing() {
    for file in ["a: 1\n---", "a: 1\n--- # end", "a: 1\n---\n", "a: 1\r\n---\r\n", "---\na: 1"] {
        let values: Vec<_> = yaml::documents(file.as_bytes()).map(|d| d.unwrap().value).collect();
        assert_eq!(values, [serde_json::json!({"a": 1})], "{file:?}");
    }
}

#[test]
fn a_broken_document_does_not_hide_the_next() {
    let file = b"a: [\n---\nb: c\n";
    let read: Vec<bool> = yaml::documents(file).map(|document| document.is_ok()).collect();
    assert_eq!(read, [false, true]);
}

#[test]
fn positions_are_those_of_keys_and_items() {
    let file = b"x: 1\n---\nspec:\n  ingress:\n  - action: Allow\n  - {action: Deny}\n  n: *x\n";
    let file = String::from_utf8_lossy(file).replace("  n: *x\n", "  y: 2\n");
    let document = yaml::documents(file.as_bytes()).nth(1).unwrap().unwrap();
    let at = |path: &[Step<'_>]| {
        let Position { line, column } = document.position(path);
        (line, column)
    };
    let [spec, ingress] = [Step::Key("spec"), Step::Key("ingress")];
    assert_eq!(at(&[spec]), (3, 1));
    assert_eq!(at(&[spec, ingress]), (4, 3));
    assert_eq!(at(&[spec, ingress, Step::Index(1)]), (6, 5));
    assert_eq!(at(&[spec, ingress, Step::Index(1), Step::Key("action")]), (6, 6));
    assert_eq!(at(&[spec, Step::Key("true")]), (7, 3));
    assert_eq!(at(&[spec, Step::Key("missing")]), (3, 1));
    let document = yaml::documents(b"{\"a\":\n  {\"b\": [1]}}").next().unwrap().unwrap();
    let path = [Step::Key("a"), Step::Key("b"), Step::Index(0)];
    assert_eq!(document.position(&path), Position { line: 2, column: 10 });
}

#[test]
fn empty_documents_say_in_which_way() {
    use yaml::Emptiness::{Blank, Comments, Markers, NoBytes, Null};
    for (file, expected) in [
        ("", vec![]),
        ("\n\n   \n", vec![Blank]),
        ("# nothing\n", vec![Comments]),
        ("---\n---\n", vec![Markers]),
        ("--- # nothing\n", vec![Markers]),
        ("null\n", vec![Null]),
        ("~", vec![Null]),
        ("# a\n---\n\n---\n", vec![Comments, NoBytes]),
    ] {
        let found: Vec<_> =
            yaml::documents(file.as_bytes()).map(|d| d.unwrap().emptiness.unwrap()).collect();
        assert_eq!(found, expected, "{file:?}");
    }
}
