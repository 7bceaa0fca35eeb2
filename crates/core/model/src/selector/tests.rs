//! Facts about the language that the recorded rows do not cover, and properties.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Selector, String> {
    let read: Result<Selector, SyntaxError> = text.parse();
    assert_eq!(check(text), read.clone().map(|_| ()), "{text}");
    read.map_err(|error| error.to_string())
}

#[test]
fn errors_say_where_and_what_was_expected() {
    let check = |text: &str, error: &str| assert_eq!(parse(text), Err(error.to_owned()), "{text}");
    check(
        "a = 'x'",
        "expected ==, !=, in, not in, contains, starts with or ends with after the label \"a\" \
         but found '=' at position 3",
    );
    check("a == x", "expected a value in quotes but found 'x' at position 6");
    check("a in x", "expected a set in braces but found 'x' at position 6");
    check("a == 'x", "the string that starts with ' has no end at position 6");
    check("a in {'x' 'y'}", "expected a comma or } but found '\\'' at position 11");
    check(
        "has(a",
        "expected the ) that closes has( but found the end of the selector at position 6",
    );
    check(
        "a == 'x' &&",
        "expected a label, has(), all(), global(), ! or ( but found the end of the selector at \
         position 12",
    );
    check(
        "x && (a == 'x'",
        "expected ==, !=, in, not in, contains, starts with or ends with after the label \"x\" \
         but found '&' at position 3",
    );
    check(
        "all() && (a == 'x'",
        "expected &&, || or the ) that closes the parenthesis at position 10 but found the end of \
         the selector at position 19",
    );
    check("all())", "expected &&, || or the end of the selector but found ')' at position 6");
}

#[test]
fn hostile_nesting_is_refused_or_read_without_recursion() {
    for text in ["(".repeat(1 << 20), "!(".repeat(1 << 19), "((all()||".repeat(1 << 17)] {
        assert!(parse(&text).unwrap_err().contains("more than 2000 parentheses are open"));
    }
    let negations = format!("{}all()", "!".repeat(1 << 20));
    assert_eq!(parse(&negations), Ok(Selector::all()));
    let deep = |n: usize| format!("{}all(){}", "!(".repeat(n), ")".repeat(n));
    assert!(parse(&deep(DEPTH_MAX)).unwrap_err().contains("nested more than 1000 levels"));
    let deepest = parse(&deep(DEPTH_MAX - 1)).unwrap();
    assert!(!deepest.matches(|_| None));
    let wide = vec!["a == 'x'"; 1 << 16].join(" || ");
    assert_eq!(parse(&wide).unwrap().restrictions().len(), 1);
}

#[test]
fn the_canonical_text_of_the_deepest_selector_can_be_read() {
    let n = DEPTH_MAX / 2 - 1;
    let text = format!("{}all(){}", "(has(a) || has(b) && ".repeat(n), ")".repeat(n));
    let selector = parse(&text).unwrap();
    assert_eq!(parse(selector.canonical()), Ok(selector));
}

#[test]
fn global_is_found_wherever_it_stands() {
    let check = |text: &str, is_global: bool, has_global: bool| {
        let selector = parse(text).unwrap();
        assert_eq!(
            (selector.is_global(), selector.has_global()),
            (is_global, has_global),
            "{text}"
        );
    };
    check("global()", true, true);
    check("( global( ) )", true, true);
    check("!global()", false, true);
    check("has(a) && (b == 'x' || global())", false, true);
    check("a == 'global()'", false, false);
    check("all()", false, false);
}

#[test]
fn contradictions_are_seen_in_the_restrictions() {
    let selector = parse("a == 'x' && a in {'y', 'z'} && has(b) && !has(b)").unwrap();
    let restrictions = selector.restrictions();
    assert!(!restrictions["a"].is_satisfiable());
    assert!(!restrictions["b"].is_satisfiable());
}

/// A well-formed selector with labels and values from a small stock, so that some match.
fn any_selector() -> impl Strategy<Value = String> {
    let label = "[ab]";
    let value = prop_oneof!["'[xy]{0,2}'", "\"[xy']{0,2}\""];
    let comparison = prop_oneof![
        Just("=="),
        Just("!="),
        Just(" contains "),
        Just(" startswith "),
        Just(" ends  with")
    ];
    let leaf = prop_oneof![
        (label, comparison, value.clone()).prop_map(|(l, o, v)| format!("{l}{o}{v}")),
        (label, prop::collection::vec(value, 0..3), any::<bool>()).prop_map(|(l, v, is_in)| {
            format!("{l} {} {{{}}}", if is_in { "in" } else { "not in" }, v.join(", "))
        }),
        label.prop_map(|l| format!("has( {l} )")),
        Just("all()".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|s| format!("!({s})")),
            inner.clone().prop_map(|s| format!("!{s}")),
            (inner.clone(), inner.clone()).prop_map(|(l, r)| format!("({l} && {r})")),
            (inner.clone(), inner).prop_map(|(l, r)| format!("({l})||{r}")),
        ]
    })
}

fn any_labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("[abc]", "[xy']{0,3}", 0..4)
}

fn satisfies(restriction: &Restriction<'_>, value: Option<&str>) -> bool {
    match value {
        None => !restriction.must_be_present,
        Some(value) => {
            let is_listed = restriction.one_of.as_ref().is_none_or(|values| values.contains(value));
            !restriction.must_be_absent && is_listed
        }
    }
}

proptest! {
    #[test]
    fn canonical_text_means_the_same(text in any_selector(), labels in any_labels()) {
        let selector = parse(&text).unwrap();
        let again = parse(selector.canonical()).unwrap();
        prop_assert_eq!(selector.matches_labels(&labels), again.matches_labels(&labels));
    }

    #[test]
    fn labels_that_match_satisfy_every_restriction(
        text in any_selector(),
        labels in any_labels(),
    ) {
        let selector = parse(&text).unwrap();
        if selector.matches_labels(&labels) {
            for (name, restriction) in selector.restrictions() {
                prop_assert!(satisfies(&restriction, labels.get(name).map(String::as_str)));
            }
        }
    }

    #[test]
    fn prefixing_moves_the_labels_with_the_selector(
        text in any_selector(),
        labels in any_labels(),
    ) {
        let selector = parse(&text).unwrap();
        let moved = labels.iter().map(|(k, v)| (format!("pcns.{k}"), v.clone())).collect();
        prop_assert_eq!(
            selector.matches_labels(&labels),
            selector.prefixed("pcns.").matches_labels(&moved)
        );
    }

    #[test]
    fn any_text_is_read_or_refused_at_a_character(
        text in "([a(){}'\"!=&|, \té]|has\\(|all\\(\\)|in|not|starts){0,24}|\\PC{0,16}",
    ) {
        let read = text.parse::<Selector>();
        prop_assert_eq!(check(&text), read.clone().map(|_| ()));
        if let Err(error) = read {
            prop_assert!(text.is_char_boundary(error.offset));
        }
    }
}
