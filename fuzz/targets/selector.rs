//! Selectors: the canonical text is a selector of the same meaning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use model::selector::{Selector, normalise};

const LABELS: [&[(&str, &str)]; 4] = [
    &[],
    &[("a", "b")],
    &[("a", "bb"), ("role", "")],
    &[("projectcalico.org/namespace", "default"), ("role", "web")],
];

fuzz_target!(|input: &str| {
    let _ = normalise(input);
    let Ok(selector) = input.parse::<Selector>() else { return };
    let again: Selector = selector.canonical().parse().expect("canonical text is a selector");
    // `!(!a)` is printed as `!!a`, which reads as `a`, in Calico too.
    assert_eq!(again.canonical().parse(), Ok(again.clone()));
    let _ = (selector.unique_id(), selector.restrictions(), again.restrictions());
    let _ = selector.prefixed("pcns.").canonical();
    for labels in LABELS {
        let get = |name: &str| labels.iter().find(|(known, _)| *known == name).map(|(_, v)| *v);
        assert_eq!(selector.matches(get), again.matches(get));
    }
});
