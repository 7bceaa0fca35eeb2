use super::*;

fn first_broken(options: &Options, seeds: u64) -> Option<Box<Broken>> {
    (first()..seeds).find_map(|seed| run(seed, options).err())
}

fn first() -> u64 {
    std::env::var("FIRST").ok().and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|it| it.parse().ok()).unwrap_or(300)
}

#[test]
fn the_laws_hold() {
    if let Some(broken) = first_broken(&Options::default(), seeds()) {
        let from = broken.trace.len().saturating_sub(1200);
        panic!("seed {}: {}\n{}", broken.seed, broken.what, broken.trace[from..].join("\n"));
    }
}

#[test]
fn every_bug_is_found() {
    for bug in Bug::ALL {
        let options = Options { bug: Some(bug), ..Options::default() };
        assert!(first_broken(&options, 1000).is_some(), "{bug:?} is not found");
    }
}
