//! A node that knows only its own part adds it to what stands, and takes its own away.

use kernel::nft::Key;
use policy::Peer;

use super::super::partly::Absent;
use super::*;

fn apply_partly(filter: &mut FilterTable<Faulty>, intent: &Intent, absent: &Absent) {
    let (dirty, around) = (Dirty::default(), around());
    filter.apply_partly(Wanted { intent, dirty: &dirty, around: &around }, absent).unwrap();
}

#[test]
fn its_own_part_is_added_and_everything_else_stays() {
    let Some(netns) = world() else { return };
    let whole = intent();
    let mut before = filter(&netns);
    before.go(&Intent::default(), &whole, &around()).unwrap();
    let stood = stands(&mut before.kernel.nft);
    // The next run knows of one new workload with a policy that looks at a set that stands.
    let mut known = Intent::default();
    known.workloads.insert("w3".to_owned(), workload(3, &["one"]));
    known.policies.insert(id("one"), rules(80, "s:1"));
    known.profiles.insert("open".to_owned(), rules(443, "s:2"));
    let mut filter = filter(&netns);
    apply_partly(&mut filter, &known, &Absent::default());
    let now = stands(&mut filter.kernel.nft);
    let all = ["cali1", "cali2", "cali3"].map(str::to_owned);
    assert_eq!(open_interfaces(&now), all.clone().into());
    assert_eq!(filter.count(), 3);
    for (place, (chain, rules)) in &stood.chains {
        assert_eq!(now.chains.get(place), Some(&(chain.clone(), rules.clone())), "{place:?}");
    }
    for name in ["h4-s.1", "r4-s.2"] {
        let place = (TableFamily::Inet, name.to_owned());
        assert_eq!(now.sets[&place], stood.sets[&place], "members are not its own");
    }
    // Twice is once.
    apply_partly(&mut filter, &known, &Absent::default());
    assert!(stands(&mut filter.kernel.nft) == now);
}

#[test]
fn what_would_look_at_a_set_that_is_not_there_stays_closed() {
    let Some(netns) = world() else { return };
    let mut filter = filter(&netns);
    filter.go(&Intent::default(), &intent(), &around()).unwrap();
    let mut known = Intent::default();
    known.workloads.insert("w3".to_owned(), workload(3, &["three"]));
    known.policies.insert(id("three"), rules(83, "s:3"));
    known.profiles.insert("open".to_owned(), rules(443, "s:2"));
    apply_partly(&mut filter, &known, &Absent::default());
    let now = stands(&mut filter.kernel.nft);
    assert!(!now.sets.contains_key(&(TableFamily::Inet, "h4-s.3".to_owned())));
    // Without rules for what comes in it is open in no direction but the one that looks at no set.
    let to4 = &now.sets[&(TableFamily::Inet, "to4".to_owned())];
    assert!(!to4.elements.contains_key(&Key::link_name("cali3")));
}

#[test]
fn whoever_is_gone_is_taken_out_with_its_addresses() {
    let Some(netns) = world() else { return };
    let mut filter = filter(&netns);
    let mut before = intent();
    // A port of its own, by name.
    let named = Rule {
        source: Peer { port_sets: vec!["n:1".to_owned()], ..Peer::default() },
        ..Rule::all(Action::Allow)
    };
    let named = Directions { ingress: vec![named], egress: Vec::new() };
    before.policies.insert(id("both"), Arc::new(named));
    let port = Member::Port { address: [10, 0, 0, 1].into(), protocol: 6, port: 80 };
    before.sets.insert("n:1".to_owned(), IpSet { members: [port].into() });
    filter.go(&Intent::default(), &before, &around()).unwrap();
    let stood = stands(&mut filter.kernel.nft);
    let is_port = |(_, name): &(TableFamily, String)| name.starts_with("p4-");
    assert!(stood.sets.iter().any(|(key, it)| is_port(key) && !it.elements.is_empty()));
    let absent = Absent {
        interfaces: ["cali1".to_owned()].into(),
        addresses: ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()].into(),
        are_hosts_in_doubt: false,
    };
    apply_partly(&mut filter, &Intent::default(), &absent);
    let now = stands(&mut filter.kernel.nft);
    assert_eq!(open_interfaces(&now), ["cali2".to_owned()].into());
    let gone = Key::link_name("cali1");
    let is_its_address =
        |key: &Key| matches!(key, Key::One(bytes) if bytes.starts_with(&[10, 0, 0, 1]));
    for ((_, name), filled) in &now.sets {
        assert!(!filled.elements.keys().any(is_its_address), "{name}");
        assert!(!filled.elements.contains_key(&gone), "{name}");
    }
    assert_eq!(filter.count(), 1);
}

#[test]
fn where_nothing_stands_its_own_part_is_installed() {
    let Some(netns) = world() else { return };
    let mut filter = filter(&netns);
    let mut known = intent();
    known.workloads.remove("w2");
    apply_partly(&mut filter, &known, &Absent::default());
    let now = stands(&mut filter.kernel.nft);
    assert_eq!(open_interfaces(&now), ["cali1".to_owned()].into());
}
