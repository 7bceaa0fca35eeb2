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
    assert!(all.sandboxes > 500 && all.from_reserve > 15, "{all:?}");
    assert!(all.second_interfaces > 50 && all.with_ipv6 > 200, "{all:?}");
}

#[test]
fn every_bug_is_found() {
    for bug in Bug::ALL {
        let options = Options::default().with(bug);
        let broken = (0..1000).find_map(|seed| run(seed, &options).err());
        let broken = broken.unwrap_or_else(|| panic!("{bug:?} is not found"));
        assert!(!broken.history.is_empty(), "{}", broken.what);
    }
}

#[test]
fn a_crowd_is_large() {
    let options = Options { crowd: 100, crowd_every: 1, ..Options::default() };
    let summary = run(1, &options).unwrap_or_else(|broken| panic!("{}", broken.what));
    assert!(summary.nodes > 30 && summary.sandboxes > summary.nodes / 2, "{summary:?}");
}
