//! Edits by others that no event told of are found, and nothing else is.

use std::process::Command;

use super::super::audit::Audit;
use super::*;

fn nft(netns: &Netns, words: &str) {
    let output = netns.enter(|| Command::new("nft").arg(words).output()).unwrap().unwrap();
    let problem = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}: {problem}");
}

/// What an audit says: first whether it looks at all.
fn audit(filter: &mut FilterTable<Faulty>, intent: &Intent) -> Audit {
    let dump = read(&mut filter.kernel.nft).unwrap();
    filter.audit(intent, &dump).unwrap()
}

fn handle(netns: &Netns, chain: &str, text: &str) -> String {
    let words = format!("-a list chain inet {TABLE} {chain}");
    let words: Vec<&str> = words.split(' ').collect();
    let output = netns.enter(|| Command::new("nft").args(words).output()).unwrap().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let line = listed.lines().find(|line| line.contains(text) && line.contains("# handle"));
    line.unwrap_or_else(|| panic!("{text} in {listed}")).rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn every_sort_of_edit_is_found_and_mended() {
    let Some(netns) = world() else { return };
    let (mut filter, around) = (filter(&netns), around());
    let mut intent = intent();
    intent.hosts.insert("h1".to_owned(), host(&["two", "both"]));
    filter.go(&Intent::default(), &intent, &around).unwrap();
    assert!(!filter.is_vouched(), "what was installed is looked at once");
    let edits: [(&str, &str); 12] = [
        ("delete rule inet margay forward handle (established)", "chain forward"),
        ("insert rule inet margay forward accept", "chain forward"),
        ("replace rule inet margay forward handle (to-workload) accept", "chain forward"),
        ("add rule inet margay from-pod accept", "chain from-pod"),
        ("delete element inet margay to4 { \"cali1\" }", "set to4"),
        ("add element inet margay from4 { \"cali9\" : accept }", "set from4"),
        ("add element inet margay r4-s.2 { 10.77.0.0/16 }", "set r4-s.2"),
        ("flush set inet margay source4", "set source4"),
        ("add chain inet margay forward { policy drop ; }", "chain forward"),
        ("add table inet margay { flags dormant ; }", "sees no packets"),
        ("add chain inet margay mine", "mine"),
        ("flush chain arp margay neighbours", "chain neighbours"),
    ];
    let stood = stands(&mut filter.kernel.nft);
    for (words, place) in edits {
        let words = match (words.split_once('('), words.split_once(')')) {
            (Some((start, _)), Some((_, end))) => {
                let text = &words[start.len() + 1..words.len() - end.len() - 1];
                format!("{start}{}{end}", handle(&netns, "forward", text))
            }
            _ => words.to_owned(),
        };
        assert_eq!(audit(&mut filter, &intent), Audit::Same, "before: {words}");
        assert!(filter.is_vouched());
        nft(&netns, &words);
        assert!(!filter.is_vouched(), "{words}");
        match audit(&mut filter, &intent) {
            Audit::Drift(told) => assert!(told.contains(place), "{words}: {told}"),
            other => panic!("{words}: {other:?}"),
        }
        filter.kernel.was_in_force = false;
        filter.doubt(true);
        filter.go(&intent, &intent, &around).unwrap();
        assert!(filter.take_repaired());
        assert!(stands(&mut filter.kernel.nft) == stood, "{words}");
    }
}

/// A change that does not fit what others have left puts everything right, and no object is blamed.
#[test]
fn a_change_that_meets_an_edit_mends_it() {
    let Some(netns) = world() else { return };
    let around = around();
    let before = intent();
    let mut after = before.clone();
    after.workloads.remove("w1");
    let edits = [
        "flush ruleset",
        "delete element inet margay to4 { \"cali1\" }",
        "delete table arp margay",
        "flush set inet margay source4",
    ];
    for words in edits {
        let mut filter = filter(&netns);
        filter.go(&Intent::default(), &before, &around).unwrap();
        nft(&netns, words);
        filter.kernel.was_in_force = false;
        filter.go(&before, &after, &around).unwrap();
        assert_eq!(filter.refused(), &BTreeMap::new(), "{words}");
        assert!(filter.take_repaired(), "{words}");
        assert_eq!(audit(&mut filter, &after), Audit::Same, "{words}");
    }
}

#[test]
fn what_others_do_elsewhere_is_no_drift() {
    let Some(netns) = world() else { return };
    let (mut filter, around, intent) = (filter(&netns), around(), intent());
    filter.go(&Intent::default(), &intent, &around).unwrap();
    assert_eq!(audit(&mut filter, &intent), Audit::Same);
    nft(&netns, "add table inet theirs");
    assert!(!filter.is_vouched());
    let dump = read(&mut filter.kernel.nft).unwrap();
    nft(&netns, "add table inet others");
    assert_eq!(filter.audit(&intent, &dump).unwrap(), Audit::Moved);
    assert_eq!(audit(&mut filter, &intent), Audit::Same);
    // What packets put into a set is nobody's intent.
    nft(&netns, "add element inet margay told4 { 10.0.0.1 . 0x7 }");
    assert_eq!(audit(&mut filter, &intent), Audit::Same);
    // Our own changes keep what is known.
    let mut after = intent.clone();
    after.policies.insert(id("both"), rules(90, "s:2"));
    filter.go(&intent, &after, &around).unwrap();
    assert!(filter.is_vouched());
}

#[test]
fn two_hundred_changes_at_random_raise_no_alarm() {
    let Some(netns) = world() else { return };
    let around = Surroundings { pools: around().pools, ..random::surroundings() };
    let mut n_changes = 0;
    for seed in 0..10 {
        let mut dice = random::Dice::new(4000 + seed);
        let mut filter = filter(&netns);
        let mut intent = random::intent(&mut dice);
        filter.go(&Intent::default(), &intent, &around).unwrap();
        for _ in 0..20 {
            let (after, dirty) = random::changed(&intent, &mut dice);
            let wanted = Wanted { intent: &after, dirty: &dirty, around: &around };
            filter.apply(proof(), wanted).unwrap();
            intent = after;
            assert_eq!(audit(&mut filter, &intent), Audit::Same, "seed {seed}");
            n_changes += 1;
        }
    }
    assert_eq!(n_changes, 200);
}
