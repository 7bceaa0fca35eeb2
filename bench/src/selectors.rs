//! How fast selectors are read and matched.

use std::hint::black_box;

use anyhow::Context;
use model::selector::Selector;

use crate::process::cpu_seconds;
use crate::report::Figure;
use crate::samples;

const COUNT: usize = 1000;
const REPEAT: usize = 7;

pub(crate) fn measure() -> anyhow::Result<Vec<Figure>> {
    let texts: Vec<String> = (0..COUNT).map(samples::selector).collect();
    let selectors: Vec<Selector> = texts
        .iter()
        .map(|text| text.parse().with_context(|| text.clone()))
        .collect::<anyhow::Result<_>>()?;
    let labels: Vec<_> = (0..COUNT).map(samples::labels).collect();
    let parsing = cpu_seconds(REPEAT, || {
        for text in &texts {
            let _ = black_box(text.parse::<Selector>());
        }
    });
    let mut n_matches = 0;
    let matching = cpu_seconds(REPEAT, || {
        n_matches = 0;
        for selector in &selectors {
            n_matches += labels.iter().filter(|labels| selector.matches_labels(labels)).count();
        }
        black_box(n_matches);
    });
    anyhow::ensure!(n_matches > 0, "no selector matches anything");
    let n_pairs = (COUNT * COUNT) as f64;
    Ok(vec![
        Figure::more("selector parsed", "per CPU s", COUNT as f64 / parsing),
        Figure::more("selector matched against 7 labels", "per CPU s", n_pairs / matching),
    ])
}
