//! YAML documents: what can be read is written so that it reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use text::yaml::{self, Step, limits::DOCUMENT_BYTES};

fuzz_target!(|input: &[u8]| {
    for document in yaml::documents(input) {
        let document = match document {
            Ok(document) => document,
            Err(error) => {
                let _ = (error.to_string(), error.go_message());
                continue;
            }
        };
        let step = match &document.value {
            Value::Object(fields) => fields.keys().next_back().map(|name| Step::Key(name)),
            Value::Array(items) => items.len().checked_sub(1).map(Step::Index),
            _ => None,
        };
        let _ = document.position(step.as_slice());
        let written = yaml::to_string(&document.value);
        if written.len() <= DOCUMENT_BYTES {
            let read = yaml::parse(written.as_bytes());
            let is_same = read.as_ref().is_ok_and(|read| fuzz::same(read, &document.value));
            assert!(is_same, "{:?}\n{written}\n{read:?}", document.value);
        }
    }
});
