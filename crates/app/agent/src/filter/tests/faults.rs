//! Every operation of a life fails once, or from there on until the attempt is over.

use kernel::Errno;

use super::faulty::How;
use super::*;

/// Reasons that may pass.
const PASSING: [Errno; 5] = [Errno::BUSY, Errno::NOBUFS, Errno::NOMEM, Errno::INTR, Errno::AGAIN];
/// Reasons that do not: a set is full, or something is too large.
const LASTING: [Errno; 4] = [Errno::NFILE, Errno::NOSPC, Errno::MFILE, Errno::TOOBIG];

/// The stations of a life: a workload comes, a policy changes, members change, a workload goes, a
/// host endpoint comes, and goes.
fn life() -> Vec<(Intent, Surroundings)> {
    let mut stations = vec![(Intent::default(), Surroundings::default()), (intent(), around())];
    let mut next = |change: &dyn Fn(&mut Intent, &mut Surroundings)| {
        let (mut intent, mut around) = stations.last().unwrap().clone();
        change(&mut intent, &mut around);
        stations.push((intent, around));
    };
    next(&|intent, _| {
        intent.workloads.insert("w3".to_owned(), workload(3, &["three", "both"]));
        intent.policies.insert(id("three"), rules(83, "s:3"));
        intent.sets.insert("s:3".to_owned(), members(&["10.2.0.0/16"]));
    });
    next(&|intent, _| drop(intent.policies.insert(id("both"), rules(90, "s:3"))));
    next(&|intent, around| {
        intent.sets.insert("s:1".to_owned(), members(&["10.0.0.2/32", "10.0.0.3/32"]));
        intent.sets.insert("s:2".to_owned(), members(&["10.1.0.0/17", "10.0.0.8/32"]));
        around.pools.insert("10.9.0.0/16".parse().unwrap());
    });
    next(&|intent, _| {
        intent.workloads.remove("w1");
        intent.policies.remove(&id("one"));
    });
    next(&|intent, _| drop(intent.hosts.insert("h1".to_owned(), host(&["two", "both"]))));
    next(&|intent, _| drop(intent.hosts.remove("h1")));
    stations
}

/// Lives through it with a fault, and puts right at the end of each station what went wrong, or
/// only at the very end. Returns what stands after each station where that was done.
fn live(filter: &mut FilterTable<Faulty>, is_prompt: bool) -> Vec<Ruleset> {
    let stations = life();
    let mut stood = Vec::new();
    // The interfaces that may be open: those of workloads that are there, or that could not be
    // closed yet.
    let mut known: BTreeSet<String> = BTreeSet::new();
    for at in 1..stations.len() {
        let ((before, _), (after, around)) = (&stations[at - 1], &stations[at]);
        let is_last = at + 1 == stations.len();
        let done = filter.go(before, after, around);
        let is_done = done.is_ok() && filter.refused().is_empty();
        end_fault(&mut filter.kernel);
        let ruleset = stands(&mut filter.kernel.nft);
        known.extend(after.workloads.values().map(|it| it.interface.clone()));
        assert!(open_interfaces(&ruleset).is_subset(&known));
        if is_done || is_prompt || is_last {
            for _ in 0..3 {
                let is_done = filter.again(after, around).is_ok() && filter.refused().is_empty();
                end_fault(&mut filter.kernel);
                if is_done && filter.installed.as_ref().is_some_and(Renderer::is_tidy) {
                    break;
                }
            }
            assert_eq!(filter.refused(), &BTreeMap::new());
            known = after.workloads.values().map(|it| it.interface.clone()).collect();
        }
        stood.push(stands(&mut filter.kernel.nft));
    }
    stood
}

/// A fault lasts as long as the attempt.
fn end_fault(kernel: &mut Faulty) {
    if matches!(kernel.fault, Fault::From { first, .. } if kernel.n_operations >= first) {
        kernel.fault = Fault::Nothing;
    }
}

/// What is in one of two rulesets, or differs.
fn odd(one: &Ruleset, other: &Ruleset) -> String {
    let chains = one.chains.iter().filter(|(key, it)| other.chains.get(*key) != Some(*it));
    let sets = one.sets.iter().filter(|(key, it)| other.sets.get(*key) != Some(*it));
    let missing = other.chains.keys().filter(|key| !one.chains.contains_key(*key));
    let missing = missing.chain(other.sets.keys().filter(|key| !one.sets.contains_key(*key)));
    let missing: Vec<_> = missing.collect();
    format!("{:?} {:?}, without {missing:?}", chains.collect::<Vec<_>>(), sets.collect::<Vec<_>>())
}

/// Lives with a fault from one operation on, with every reason, in a namespace of its own.
fn live_with_fault(netns: &Netns, first: usize, expected: &[Ruleset]) -> usize {
    let mut n_runs = 0;
    let all = PASSING.into_iter().chain(LASTING);
    let once = all.map(|errno| (1, errno, true));
    let lasting = LASTING[first % LASTING.len()];
    let on = [
        (usize::MAX, PASSING[first % PASSING.len()], true),
        (usize::MAX, lasting, true),
        (usize::MAX, lasting, false),
    ];
    for (at, (n, errno, is_prompt)) in once.chain(on).enumerate() {
        let how = if (first + at).is_multiple_of(3) { How::Socket } else { How::Named };
        let mut filter = owned_filter(netns);
        clear(&mut filter.kernel.nft);
        let fault = Fault::From { first, n, errno, how };
        filter.kernel.fault = fault.clone();
        let stood = live(&mut filter, is_prompt);
        let at = stood.iter().zip(expected).position(|(stood, expected)| stood != expected);
        if let Some(at) = at.filter(|at| is_prompt || at + 1 == stood.len()) {
            panic!("station {at}, {fault:?}: {}", odd(&stood[at], &expected[at]));
        }
        n_runs += 1;
    }
    n_runs
}

#[test]
fn whatever_fails_is_made_up_for_and_never_opens_anything() {
    const N_WORLDS: usize = 4;
    let Some(netns) = world() else { return };
    let mut healthy = owned_filter(&netns);
    let expected = live(&mut healthy, true);
    let n_operations = healthy.kernel.n_operations;
    assert!(n_operations > 30, "{n_operations}");
    let n_runs: usize = std::thread::scope(|scope| {
        let worlds: Vec<_> = (1..=N_WORLDS)
            .map(|start| {
                let expected = &expected;
                scope.spawn(move || {
                    let netns = world().unwrap();
                    let operations = (start..=n_operations).step_by(N_WORLDS);
                    operations.map(|first| live_with_fault(&netns, first, expected)).sum::<usize>()
                })
            })
            .collect();
        worlds.into_iter().map(|world| world.join().unwrap()).sum()
    });
    assert_eq!(n_runs, n_operations * 12);
}

#[test]
fn what_passes_is_waited_for_and_nobody_is_blamed() {
    let Some(netns) = world() else { return };
    for errno in PASSING {
        for how in [How::Named, How::Socket] {
            let (mut filter, around) = (filter(&netns), around());
            filter.go(&Intent::default(), &intent(), &around).unwrap();
            let mut after = intent();
            after.policies.insert(id("both"), rules(90, "s:2"));
            filter.kernel.fault = Fault::Next { n: 3, errno, how };
            filter.go(&intent(), &after, &around).unwrap();
            assert_eq!(filter.refused(), &BTreeMap::new(), "{errno}");
            // What lasts is no longer waited for.
            filter.kernel.fault = Fault::Next { n: 100, errno, how };
            filter.go(&after, &intent(), &around).unwrap();
            assert_eq!(filter.refused().keys().collect::<Vec<_>>(), [&Refused::Policy(id("both"))]);
            clear(&mut filter.kernel.nft);
        }
    }
}

/// While the kernel takes nothing at all, no object is to blame, and nothing is forgotten.
#[test]
fn a_kernel_that_takes_nothing_is_asked_again() {
    let Some(netns) = world() else { return };
    let (mut filter, around) = (filter(&netns), around());
    let before = intent();
    filter.go(&Intent::default(), &before, &around).unwrap();
    let stood = stands(&mut filter.kernel.nft);
    let mut after = before.clone();
    for number in 10..40 {
        after.workloads.insert(format!("w{number}"), workload(number, &["both"]));
    }
    let errno = Errno::NOMEM;
    filter.kernel.fault = Fault::From { first: 0, n: usize::MAX, errno, how: How::Named };
    filter.kernel.n_transactions = 0;
    assert!(filter.go(&before, &after, &around).is_err());
    assert_eq!(filter.refused(), &BTreeMap::new());
    assert!(filter.kernel.n_transactions < 60, "{}", filter.kernel.n_transactions);
    assert!(filter.is_due());
    filter.kernel.fault = Fault::Nothing;
    assert_eq!(stands(&mut filter.kernel.nft), stood);
    filter.go(&after, &after, &around).unwrap();
    assert_eq!(open_interfaces(&stands(&mut filter.kernel.nft)).len(), after.workloads.len());
}

/// Whatever fails on the way, the picture of the kernel is right or known to be wrong, and in the
/// end everything is as if nothing had failed.
#[test]
fn changes_at_random_survive_faults_at_random() {
    let (Some(netns), Some(other)) = (world(), world()) else { return };
    let around = Surroundings { pools: around().pools, ..random::surroundings() };
    let errnos: Vec<Errno> = PASSING.into_iter().chain(LASTING).collect();
    for seed in 0..5 {
        let mut dice = random::Dice::new(7000 + seed);
        let mut pick = |n: usize| usize::try_from(dice.below(n as u64)).unwrap();
        let mut faulty = owned_filter(&netns);
        clear(&mut faulty.kernel.nft);
        let mut before = random::intent(&mut random::Dice::new(8000 + seed));
        let _ = faulty.go(&Intent::default(), &before, &around);
        for step in 0..8 {
            let mut changes = random::Dice::new(seed * 100 + step);
            let (after, dirty) = random::changed(&before, &mut changes);
            let first = faulty.kernel.n_operations + 1 + pick(12);
            let (n, errno) = ([1, 4, usize::MAX][pick(3)], errnos[pick(errnos.len())]);
            let how = [How::Named, How::Socket][pick(2)];
            faulty.kernel.fault = Fault::From { first, n, errno, how };
            let wanted = Wanted { intent: &after, dirty: &dirty, around: &around };
            let done = faulty.apply(proof(), wanted);
            faulty.kernel.fault = Fault::Nothing;
            let dump = read(&mut faulty.kernel.nft).unwrap();
            if let Some(renderer) = &faulty.installed {
                let drift = renderer.drift(&after, &dump.ruleset);
                assert_eq!(drift, None, "seed {seed}, step {step}, {done:?}");
            }
            before = after;
        }
        for _ in 0..3 {
            faulty.again(&before, &around).unwrap();
        }
        let mut healthy = filter(&other);
        clear(&mut healthy.kernel.nft);
        healthy.go(&Intent::default(), &before, &around).unwrap();
        assert_eq!(faulty.refused(), healthy.refused(), "seed {seed}");
        let (stood, expected) = (stands(&mut faulty.kernel.nft), stands(&mut healthy.kernel.nft));
        assert!(stood == expected, "seed {seed}: {}", odd(&stood, &expected));
    }
}
