//! One object that the kernel refuses for as long as it has it, among others.

use kernel::Errno;
use policy::render::Renderer;

use super::*;
use crate::finding::Finding;

/// Bytes that only the bad object brings into a transaction.
const BAD_PORT: u16 = 0x7a7a;
const BAD_ADDRESS: &str = "10.122.122.122/32";

fn bad(bytes: &[u8]) -> Fault {
    Fault::Holding(bytes.to_vec(), Errno::NFILE)
}

/// What a fresh kernel holds of an intent.
fn anew(intent: &Intent, around: &Surroundings) -> Ruleset {
    let netns = Netns::create().unwrap();
    let mut filter = filter(&netns);
    filter.go(&Intent::default(), intent, around).unwrap();
    stands(&mut filter.kernel.nft)
}

/// Goes to an intent in which one object is bad: `without` is the same with that object as before.
fn refused(
    netns: &Netns,
    [before, without, after]: [&Intent; 3],
    fault: Fault,
    object: &Refused,
) -> usize {
    let (mut filter, around) = (filter(netns), around());
    clear(&mut filter.kernel.nft);
    filter.go(&Intent::default(), before, &around).unwrap();
    filter.kernel.fault = fault;
    filter.kernel.n_transactions = 0;
    filter.go(before, after, &around).unwrap();
    let n_transactions = filter.kernel.n_transactions;
    let refused: Vec<&Refused> = filter.refused().keys().collect();
    assert_eq!(refused, [object]);
    assert!(filter.refused()[object].starts_with("the kernel refuses it: "));
    assert!(stands(&mut filter.kernel.nft) == anew(without, &around), "{object}");
    // It is not tried with every change, and is when its time has come.
    filter.go(after, after, &around).unwrap();
    assert_eq!(filter.refused().len(), 1);
    filter.again(after, &around).unwrap();
    assert_eq!(filter.refused().len(), 1);
    filter.kernel.fault = Fault::Nothing;
    filter.again(after, &around).unwrap();
    assert_eq!(filter.refused(), &BTreeMap::new());
    // What nothing leads to any more goes when there is time.
    filter.go(after, after, &around).unwrap();
    assert!(stands(&mut filter.kernel.nft) == anew(after, &around), "{object}");
    n_transactions
}

/// Changes something of every sort, so that the bad one is never alone.
fn changed(before: &Intent) -> Intent {
    let mut after = before.clone();
    after.workloads.insert("w3".to_owned(), workload(3, &["one", "both"]));
    after.policies.insert(id("both"), rules(92, "s:2"));
    after.profiles.insert("open".to_owned(), rules(93, "s:1"));
    after.sets.insert("s:1".to_owned(), members(&["10.0.0.2/32", "10.0.0.3/32"]));
    after.hosts.insert("h1".to_owned(), host(&["two"]));
    after
}

#[test]
fn a_policy_stands_as_before_and_the_others_of_its_tier_change() {
    let Some(netns) = world() else { return };
    let before = intent();
    let without = changed(&before);
    let mut after = without.clone();
    after.policies.insert(id("one"), rules(BAD_PORT, "s:2"));
    let object = Refused::Policy(id("one"));
    refused(&netns, [&before, &without, &after], bad(&BAD_PORT.to_be_bytes()), &object);
}

#[test]
fn a_new_policy_is_blamed_for_the_endpoints_that_cannot_have_it() {
    let Some(netns) = world() else { return };
    let (mut filter, around) = (filter(&netns), around());
    clear(&mut filter.kernel.nft);
    let before = intent();
    filter.go(&Intent::default(), &before, &around).unwrap();
    // Others come and change with it; two endpoints get it, and one that is new does not.
    let mut after = changed(&before);
    after.policies.insert(id("new"), rules(BAD_PORT, "s:2"));
    after.workloads.insert("w1".to_owned(), workload(1, &["both", "new"]));
    after.workloads.insert("w4".to_owned(), workload(4, &["new"]));
    filter.kernel.fault = bad(&BAD_PORT.to_be_bytes());
    filter.go(&before, &after, &around).unwrap();
    let blamed = |filter: &FilterTable<Faulty>| {
        let [w1, w4] = ["w1", "w4"].map(|key| (Refused::Workload(key.to_owned()), id("new")));
        assert_eq!(filter.causes(), &BTreeMap::from([w1, w4]));
        let findings = Finding::refused_policies(filter.causes(), filter.refused());
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        let problem = &finding.problem;
        assert!(problem.starts_with("the kernel refuses policy shop/new: "), "{problem}");
        assert!(problem.ends_with("workload endpoint w1 and another one stand as before"));
    };
    blamed(&filter);
    // Tried again, nothing of it is new, and it is to blame still.
    filter.again(&after, &around).unwrap();
    blamed(&filter);
    filter.kernel.fault = Fault::Nothing;
    filter.again(&after, &around).unwrap();
    assert_eq!(filter.causes(), &BTreeMap::new());
    assert!(stands(&mut filter.kernel.nft) == anew(&after, &around));
}

#[test]
fn a_profile_stands_as_before() {
    let Some(netns) = world() else { return };
    let mut before = intent();
    // Whoever has policies is decided about before its profiles.
    before.workloads.insert("w5".to_owned(), Workload { tiers: Vec::new(), ..workload(5, &[]) });
    let mut without = changed(&before);
    without.profiles.clone_from(&before.profiles);
    let mut after = without.clone();
    after.profiles.insert("open".to_owned(), rules(BAD_PORT, "s:2"));
    let object = Refused::Profile("open".to_owned());
    refused(&netns, [&before, &without, &after], bad(&BAD_PORT.to_be_bytes()), &object);
}

#[test]
fn a_set_that_does_not_fit_keeps_its_members() {
    let Some(netns) = world() else { return };
    let before = intent();
    let without = changed(&before);
    let mut after = without.clone();
    after.sets.insert("s:2".to_owned(), members(&["10.1.0.0/16", BAD_ADDRESS]));
    let object = Refused::Set("s:2".to_owned());
    refused(&netns, [&before, &without, &after], bad(&[10, 122, 122, 122]), &object);
}

#[test]
fn a_workload_that_is_new_stays_closed() {
    let Some(netns) = world() else { return };
    let before = intent();
    let without = changed(&before);
    let mut after = without.clone();
    after.workloads.insert("w9".to_owned(), workload(9, &["one"]));
    let object = Refused::Workload("w9".to_owned());
    refused(&netns, [&before, &without, &after], bad(b"cali9"), &object);
}

#[test]
fn a_host_endpoint_stands_as_before() {
    let Some(netns) = world() else { return };
    let before = intent();
    let mut without = changed(&before);
    without.hosts.clear();
    let mut after = without.clone();
    after.hosts.insert("h1".to_owned(), host(&["two"]));
    let object = Refused::Host("h1".to_owned());
    refused(&netns, [&before, &without, &after], bad(b"host-in"), &object);
}

#[test]
fn pools_and_interfaces_stand_as_before() {
    let Some(netns) = world() else { return };
    let (mut filter, around) = (filter(&netns), around());
    let before = intent();
    filter.go(&Intent::default(), &before, &around).unwrap();
    let mut wider = around.clone();
    wider.pools.insert(BAD_ADDRESS.parse().unwrap());
    filter.kernel.fault = bad(&[10, 122, 122, 122]);
    let after = changed(&before);
    filter.go(&before, &after, &wider).unwrap();
    assert_eq!(filter.refused().keys().collect::<Vec<_>>(), [&Refused::Surroundings]);
    assert!(stands(&mut filter.kernel.nft) == anew(&after, &around));
    filter.kernel.fault = Fault::Nothing;
    filter.again(&after, &wider).unwrap();
    assert_eq!(filter.refused(), &BTreeMap::new());
    assert!(stands(&mut filter.kernel.nft) == anew(&after, &wider));
}

#[test]
fn one_among_a_thousand_is_found_by_halves() {
    let Some(netns) = world() else { return };
    let before = intent();
    let mut without = before.clone();
    for number in 0..1000_u16 {
        let name = format!("p{number:04}");
        let mut workload = workload(4, &[name.as_str()]);
        workload.interface = format!("cali-{number:04}");
        let [high, low] = number.to_be_bytes();
        workload.addresses = vec![Cidr::host([10, 7, high, low].into())];
        without.workloads.insert(format!("w{number:04}"), workload);
        without.policies.insert(id(&name), rules(1000 + number, "s:1"));
    }
    let bad_one = without.workloads.remove("w0500").unwrap();
    let mut after = without.clone();
    after.workloads.insert("w0500".to_owned(), bad_one);
    let object = Refused::Workload("w0500".to_owned());
    let n = refused(&netns, [&before, &without, &after], bad(b"cali-0500"), &object);
    // Each halving is a half that fails and one that is carried out in up to three transactions.
    assert!(n < 60, "{n}");
}

/// Everything is made anew although one object is bad: what was in force stays so until then, and
/// the rest is in force afterwards.
#[test]
fn nothing_is_closed_while_the_bad_one_is_looked_for() {
    let Some(netns) = world() else { return };
    let (mut filter, around) = (filter(&netns), around());
    let before = intent();
    filter.go(&Intent::default(), &before, &around).unwrap();
    let mut after = before.clone();
    after.workloads.insert("w9".to_owned(), workload(9, &["one"]));
    filter.kernel.fault = bad(b"cali9");
    filter.kernel.is_open = Some(["cali1".to_owned(), "cali2".to_owned()].into());
    filter.doubt(true);
    filter.go(&before, &after, &around).unwrap();
    assert!(filter.take_repaired());
    assert_eq!(filter.refused().keys().collect::<Vec<_>>(), [&Refused::Workload("w9".to_owned())]);
    assert!(stands(&mut filter.kernel.nft) == anew(&before, &around));
    let renderer = Renderer::new(Settings::default());
    let present = filter.kernel.nft.tables().unwrap();
    assert_eq!(renderer.standing(&present).meanwhile, None);
}

#[test]
fn where_nothing_is_in_force_everything_is_closed_first() {
    let Some(netns) = world() else { return };
    let (mut filter, around) = (filter(&netns), around());
    let before = intent();
    let mut after = before.clone();
    after.workloads.insert("w9".to_owned(), workload(9, &["one"]));
    filter.kernel.fault = bad(b"cali9");
    filter.go(&Intent::default(), &after, &around).unwrap();
    assert_eq!(filter.refused().keys().collect::<Vec<_>>(), [&Refused::Workload("w9".to_owned())]);
    assert!(stands(&mut filter.kernel.nft) == anew(&before, &around));
}
