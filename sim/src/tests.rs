use super::*;

#[test]
fn the_laws_hold_and_much_happens() {
    let mut all = Summary::default();
    for seed in 0..100 {
        match run(seed, &Options::default()) {
            Ok(summary) => all = all + summary,
            Err(broken) => panic!("seed {seed}: {}; cargo xtask sim --seed {seed}", broken.what),
        }
    }
    assert!(all.sandboxes > 300 && all.from_reserve > 5, "{all:?}");
}

#[test]
fn every_bug_is_found() {
    for bug in Bug::ALL {
        let options = Options { bug: Some(bug), ..Options::default() };
        let broken = (0..1000).find_map(|seed| run(seed, &options).err());
        let broken = broken.unwrap_or_else(|| panic!("{bug:?} is not found"));
        assert!(!broken.trace.is_empty());
    }
}
