//! Patches of all three sorts on any object: the object, NUL, the patch.

#![no_main]

use libfuzzer_sys::fuzz_target;
use text::patch;

fuzz_target!(|input: &[u8]| {
    let (target, change) = fuzz::halves(input);
    let Ok(target) = text::json::parse(target) else { return };
    let Ok(change) = patch::parse(change) else { return };
    let _ = patch::strategic(&target, &change).map_err(|error| error.to_string());
    let _ = patch::operations(&target, &change).map_err(|error| error.to_string());
    let mut once = target;
    patch::merge(&mut once, &change);
    let mut twice = once.clone();
    patch::merge(&mut twice, &change);
    assert_eq!(once, twice, "a merge that was done changes nothing");
});
