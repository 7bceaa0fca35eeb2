//! Tables that are the filter's own: nobody else changes them, and they outlive it.

use std::process::{Command, Output};

use kernel::Errno;

use super::*;

/// Runs `nft` as another program would.
fn nft(netns: &Netns, words: &str) -> Output {
    let run = || Command::new("nft").args(words.split(' ')).output().unwrap();
    netns.enter(run).unwrap()
}

fn tables_of(filter: &mut FilterTable<Faulty>) -> Vec<Table> {
    filter.kernel.nft.tables().unwrap()
}

#[test]
fn nobody_else_changes_or_flushes_them() {
    let Some(netns) = world() else { return };
    let mut filter = owned_filter(&netns);
    let (nothing, whole) = (Intent::default(), intent());
    filter.go(&nothing, &whole, &around()).unwrap();
    let stood = stands(&mut filter.kernel.nft);
    for refused in [
        "delete table inet margay",
        "flush table inet margay",
        "flush chain inet margay forward",
        "insert rule inet margay forward accept",
        "delete element inet margay to4 { \"cali1\" }",
        "delete table arp margay",
    ] {
        assert!(!nft(&netns, refused).status.success(), "{refused}");
    }
    assert!(nft(&netns, "flush ruleset").status.success(), "others may have theirs");
    assert_eq!(stands(&mut filter.kernel.nft), stood);
    // We may.
    filter.go(&whole, &nothing, &around()).unwrap();
    assert_eq!(open_interfaces(&stands(&mut filter.kernel.nft)), BTreeSet::new());
}

#[test]
fn they_stay_when_their_owner_goes_and_the_next_one_has_them() {
    let Some(netns) = world() else { return };
    let mut before = owned_filter(&netns);
    let whole = intent();
    before.go(&Intent::default(), &whole, &around()).unwrap();
    let stood = stands(&mut before.kernel.nft);
    drop(before);
    let mut filter = owned_filter(&netns);
    assert_eq!(stands(&mut filter.kernel.nft), stood);
    assert!(tables_of(&mut filter).iter().all(|it| !it.is_owned && it.is_persistent));
    filter.kernel.was_in_force = true;
    filter.kernel.is_open = Some(["cali1", "cali2"].map(str::to_owned).into());
    filter.go(&Intent::default(), &whole, &around()).unwrap();
    assert!(tables_of(&mut filter).iter().all(|it| it.is_owned));
    // Everything anew for other settings, and to be everybody's again, without a gap.
    let settings = Settings { drops_invalid: false, ..filter.settings().clone() };
    filter.set(settings.clone());
    filter.go(&whole, &whole, &around()).unwrap();
    assert!(tables_of(&mut filter).iter().all(|it| it.is_owned));
    filter.set(Settings { is_owned: false, ..settings });
    filter.go(&whole, &whole, &around()).unwrap();
    assert_eq!(tables_of(&mut filter), tables());
    assert!(nft(&netns, "flush ruleset").status.success());
    assert_eq!(tables_of(&mut filter), []);
}

/// A kernel that knows no such flag has tables that are everybody's.
#[test]
fn a_kernel_without_owners_has_tables_without() {
    // The name of a table and its flags.
    const DORMANT_AND_PERSISTENT: &[u8] = b"margay\0\0\x08\0\x02\0\0\0\0\x05";
    const OWNED: &[u8] = b"margay\0\0\x08\0\x02\0\0\0\0\x06";
    for errno in [Errno::INVAL, Errno::OPNOTSUPP] {
        let Some(netns) = world() else { return };
        let mut filter = owned_filter(&netns);
        filter.kernel.fault = Fault::Holding(DORMANT_AND_PERSISTENT.to_vec(), errno);
        filter.go(&Intent::default(), &intent(), &around()).unwrap();
        assert_eq!(tables_of(&mut filter), tables());
        assert_eq!(filter.refused(), &BTreeMap::new());
    }
    // Who may not have them has them as everybody else's.
    let Some(netns) = world() else { return };
    let mut filter = owned_filter(&netns);
    filter.kernel.fault = Fault::Holding(OWNED.to_vec(), Errno::PERM);
    filter.go(&Intent::default(), &intent(), &around()).unwrap();
    assert!(tables_of(&mut filter).iter().all(|it| !it.is_owned && !it.is_dormant));
    filter.go(&intent(), &Intent::default(), &around()).unwrap();
}
