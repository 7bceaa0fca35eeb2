//! The range of keys that start with a prefix.

/// The least string greater than every string that starts with `prefix`, or none if there is no
/// such string. It steps by characters, not bytes, because the embedded store compares text.
pub(crate) fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut end = prefix.to_string();
    while let Some(last) = end.pop() {
        let next = match last {
            // The surrogates in between are no characters.
            '\u{d7ff}' => Some('\u{e000}'),
            _ => u32::from(last).checked_add(1).and_then(char::from_u32),
        };
        if let Some(next) = next {
            end.push(next);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::end_of_prefix;

    #[test]
    fn steps_over_the_last_character_and_the_surrogates() {
        let end = |prefix: &str| end_of_prefix(prefix);
        assert_eq!(end("/calico/"), Some("/calico0".into()));
        assert_eq!(end("a\u{7f}"), Some("a\u{80}".into()));
        assert_eq!(end("a\u{d7ff}"), Some("a\u{e000}".into()));
        assert_eq!(end("a\u{10ffff}"), Some("b".into()));
        assert_eq!(end("\u{10ffff}"), None);
        assert_eq!(end(""), None);
    }
}
