//! The filter against a real kernel, which may be made to refuse.

mod audit;
mod bad_objects;
mod faults;
mod faulty;
mod owner;
mod partly;
#[expect(dead_code, reason = "the tests of the renderer need more of it")]
#[path = "../../../../core/policy/src/render/tests/random.rs"]
mod random;

use std::collections::BTreeSet;
use std::sync::Arc;

use intent::{InSync, Inputs};
use kernel::nft::{Batch, ElementValue, Nft, TableFamily, Verdict};
use kernel::{Errno, Netns};
use model::resource::Action;
use net::{Cidr, Protocol};
use policy::input::{PolicyId, PolicyKind};
use policy::intent::{Directions, Dirty, Host, Intent, SetChange, TierInForce, Workload};
use policy::render::{DISPATCH, Ruleset, Surroundings};
use policy::{End, IpSet, Member, Rule};

use super::audit::read;
use super::*;
use faulty::{Fault, Faulty};

/// A fresh namespace, or `None` with the reason on standard error where this user may not have one.
fn world() -> Option<Netns> {
    match Netns::create() {
        Ok(netns) => Some(netns),
        Err(error) => {
            assert!(!rustix::process::geteuid().is_root(), "{error}");
            eprintln!("skipped: needs root on Linux: {error}");
            None
        }
    }
}

fn proof() -> InSync {
    let mut inputs = Inputs::new("n1");
    inputs.complete();
    inputs.in_sync().unwrap()
}

fn filter(netns: &Netns) -> FilterTable<Faulty> {
    FilterTable::over(Faulty::new(Nft::in_netns(netns).unwrap()), Settings::default())
}

/// The same with tables of its own.
fn owned_filter(netns: &Netns) -> FilterTable<Faulty> {
    let mut filter = filter(netns);
    filter.set(Settings { is_owned: true, ..Settings::default() });
    filter
}

impl FilterTable<Faulty> {
    /// Makes the filter the wanted one, coming from another.
    fn go(&mut self, from: &Intent, to: &Intent, around: &Surroundings) -> Result<()> {
        let dirty = difference(from, to);
        self.apply(proof(), Wanted { intent: to, dirty: &dirty, around })
    }

    /// Tries again at once what would be tried again later.
    fn again(&mut self, intent: &Intent, around: &Surroundings) -> Result<()> {
        self.is_owing = true;
        self.go(intent, intent, around)
    }
}

/// What differs between two intents.
fn difference(before: &Intent, after: &Intent) -> Dirty {
    fn keys<K: Ord + Clone, V: PartialEq>(
        before: &std::collections::BTreeMap<K, V>,
        after: &std::collections::BTreeMap<K, V>,
    ) -> BTreeSet<K> {
        let all = before.keys().chain(after.keys());
        all.filter(|key| before.get(*key) != after.get(*key)).cloned().collect()
    }
    let none = IpSet::default();
    let change = |id: &String| {
        let (old, new) =
            (before.sets.get(id).unwrap_or(&none), after.sets.get(id).unwrap_or(&none));
        SetChange {
            added: new.members.difference(&old.members).cloned().collect(),
            removed: old.members.difference(&new.members).cloned().collect(),
        }
    };
    Dirty {
        workloads: keys(&before.workloads, &after.workloads),
        hosts: keys(&before.hosts, &after.hosts),
        policies: keys(&before.policies, &after.policies),
        profiles: keys(&before.profiles, &after.profiles),
        sets: keys(&before.sets, &after.sets)
            .into_iter()
            .map(|id| (id.clone(), change(&id)))
            .collect(),
    }
}

fn id(name: &str) -> PolicyId {
    let kind = PolicyKind::NetworkPolicy;
    PolicyId { kind, namespace: "shop".to_owned(), name: name.to_owned() }
}

/// Rules that let a port in from a set.
fn rules(port: u16, set: &str) -> Arc<Directions> {
    let mut rule = Rule::all(Action::Allow);
    rule.protocol = Some(Protocol::Number(6));
    rule.destination.ports.ranges.push((port, port));
    rule.source.sets.push(set.to_owned());
    Arc::new(Directions { ingress: vec![rule], egress: vec![Rule::all(Action::Allow)] })
}

fn members(nets: &[&str]) -> IpSet {
    IpSet { members: nets.iter().map(|net| Member::Net(net.parse().unwrap())).collect() }
}

fn tier(policies: &[&str]) -> Vec<TierInForce> {
    let ids: Vec<PolicyId> = policies.iter().map(|name| id(name)).collect();
    let (ingress, egress) = (ids.clone(), ids);
    vec![TierInForce { name: "default".to_owned(), end: End::Deny, ingress, egress }]
}

fn workload(number: u8, policies: &[&str]) -> Workload {
    let addresses = [format!("10.0.0.{number}/32"), format!("fd00::{number}/128")];
    Workload {
        interface: format!("cali{number}"),
        addresses: addresses.iter().map(|it| it.parse::<Cidr>().unwrap()).collect(),
        allowed_sources: Vec::new(),
        tiers: tier(policies),
        profiles: vec!["open".to_owned()],
    }
}

fn host(policies: &[&str]) -> Host {
    Host {
        interface: "eth0".to_owned(),
        tiers: tier(policies),
        untracked: tier(policies),
        pre_dnat: tier(policies),
        ..Host::default()
    }
}

fn around() -> Surroundings {
    Surroundings {
        pools: ["10.0.0.0/16".parse().unwrap(), "fd00::/64".parse().unwrap()].into(),
        interfaces: [("eth0".to_owned(), [[192, 0, 2, 1].into()].into())].into(),
        ..Surroundings::default()
    }
}

/// Two workloads with a policy each and one for both, a profile and two sets.
fn intent() -> Intent {
    let mut intent = Intent::default();
    intent.workloads.insert("w1".to_owned(), workload(1, &["one", "both"]));
    intent.workloads.insert("w2".to_owned(), workload(2, &["two", "both"]));
    for (name, port, set) in [("one", 80, "s:1"), ("two", 81, "s:2"), ("both", 82, "s:1")] {
        intent.policies.insert(id(name), rules(port, set));
    }
    intent.profiles.insert("open".to_owned(), rules(443, "s:2"));
    intent.sets.insert("s:1".to_owned(), members(&["10.0.0.1/32", "10.0.0.2/32", "fd00::1/128"]));
    intent.sets.insert("s:2".to_owned(), members(&["10.1.0.0/16", "10.0.0.9/32"]));
    intent
}

/// Empties a namespace.
fn clear(nft: &mut Nft) {
    let mut batch = Batch::new();
    nft.tables().unwrap().iter().for_each(|table| batch.delete_table(&table.id));
    // A process that is being started has a copy of every socket for a moment, an owner's too.
    while let Err(error) = nft.commit(&batch) {
        assert_eq!(error.errno(), Some(Errno::PERM), "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What stands, without what is counted.
fn stands(nft: &mut Nft) -> Ruleset {
    read(nft).unwrap().ruleset
}

/// The interfaces that are let through in some direction. Wherever they lead there are rules.
fn open_interfaces(ruleset: &Ruleset) -> BTreeSet<String> {
    let mut open = BTreeSet::new();
    for name in DISPATCH {
        let Some(filled) = ruleset.sets.get(&(TableFamily::Inet, name.to_owned())) else {
            continue;
        };
        for element in filled.elements.values() {
            let Some(ElementValue::Verdict(Verdict::Goto(chain))) = &element.value else {
                panic!("{element:?} leads nowhere");
            };
            let (_, rules) = &ruleset.chains[&(TableFamily::Inet, chain.clone())];
            assert!(!rules.is_empty(), "{chain} is empty");
            let kernel::nft::Key::One(name) = &element.key else { panic!("{element:?}") };
            let name = String::from_utf8(name.clone()).unwrap();
            open.insert(name.trim_end_matches('\0').to_owned());
        }
    }
    open
}
