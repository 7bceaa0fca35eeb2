//! Go templates within their budget: the template, NUL, the data.

#![no_main]

use libfuzzer_sys::fuzz_target;
use text::template::{Context, Template};

fuzz_target!(|input: &[u8]| {
    let (template, data) = fuzz::halves(input);
    let Ok(template) = std::str::from_utf8(template) else { return };
    let data = text::json::parse(data).unwrap_or_default();
    let parsed = Template::parse("t", template, &["join", "joinAndTruncate"]);
    let Ok(template) = parsed.map_err(|error| error.to_string()) else { return };
    let _ = template.execute(&data, &Context::default());
});
