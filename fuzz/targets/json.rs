//! JSON: what can be read is written so that it reads the same, plain and indented. YAML reads
//! it as JSON does, but for a few control characters that Go writes plainly and YAML forbids.

#![no_main]

use libfuzzer_sys::fuzz_target;
use text::json;
use text::yaml::{self, Problem};

fuzz_target!(|input: &[u8]| {
    let Ok(value) = json::parse(input) else { return };
    for written in [json::to_string(&value), json::to_string_indented(&value)] {
        let read = json::parse(written.as_bytes()).expect("written JSON can be read");
        assert!(fuzz::same(&read, &value), "{value:?}\n{written}\n{read:?}");
        // YAML wants the colon within 1,024 characters of a key's start, and has more line ends.
        if written.len() > 1_000 || written.contains('\u{85}') {
            continue;
        }
        match yaml::parse(written.as_bytes()) {
            Ok(read) => assert!(fuzz::same(&read, &value), "{value:?}\n{written}\n{read:?}"),
            Err(error) => assert!(matches!(error.problem, Problem::ControlCharacter(_))),
        }
    }
});
