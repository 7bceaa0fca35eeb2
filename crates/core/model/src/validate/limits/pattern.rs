//! The regular expressions of the schemas, each compiled when it is first needed.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use api::Kind;
use api::schema::{Limit, Object, object_for};
use regex::bytes::{Regex, RegexBuilder};

/// Whether the pattern is found in the text. Bytes are enough: Go's classes are ASCII.
pub(super) fn matches(pattern: &'static str, text: &str) -> bool {
    static COMPILED: OnceLock<BTreeMap<&'static str, OnceLock<Option<Regex>>>> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        all_patterns().into_iter().map(|pattern| (pattern, OnceLock::new())).collect()
    });
    let Some(slot) = compiled.get(pattern) else { return true };
    let regex = slot.get_or_init(|| RegexBuilder::new(pattern).unicode(false).build().ok());
    regex.as_ref().is_none_or(|regex| regex.is_match(text.as_bytes()))
}

/// The words of a pattern that only lists words, so that a message can list them too.
pub(super) fn words(pattern: &str) -> Option<Vec<&str>> {
    let list = pattern.strip_prefix("^(?i)(")?.strip_suffix(")?$")?;
    Some(list.split('|').collect())
}

fn all_patterns() -> Vec<&'static str> {
    let mut found = Vec::new();
    for kind in Kind::all() {
        in_object(object_for(kind), 16, &mut found);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn in_object(object: &'static Object, depth: usize, found: &mut Vec<&'static str>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    for field in object.fields {
        in_limits(field.limits, found);
        if let Some(inner) = field.shape.object() {
            in_object(inner, depth, found);
        }
    }
}

fn in_limits(limits: &'static [Limit], found: &mut Vec<&'static str>) {
    for limit in limits {
        match limit {
            Limit::Pattern(pattern) => found.push(pattern),
            Limit::Each(inner) | Limit::AllOf(inner) => in_limits(inner, found),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        let patterns = all_patterns();
        assert!(patterns.len() > 15);
        for pattern in patterns {
            let compiled = RegexBuilder::new(pattern).unicode(false).build();
            assert!(compiled.is_ok(), "{pattern}: {compiled:?}");
        }
    }

    #[test]
    fn letter_case_counts_only_where_the_pattern_says_so() {
        let actions = "^(?i)(Accept|Return)?$";
        assert!(matches(actions, "ACCEPT") && matches(actions, "") && !matches(actions, "Drop"));
        assert_eq!(words(actions), Some(vec!["Accept", "Return"]));
    }
}
