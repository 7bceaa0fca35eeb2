//! Every spoilt field is mended or said to be left, and nothing that lives is let go.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::check::tests::{Store, inventory, reach, sample, spoilt_stores, used};
use crate::check::{Class, Problem, address_at};

fn plan(store: &Store) -> RepairPlan {
    let mut read = |key: &str| {
        let value = store.get(key).map(|it| (it.clone().into_bytes(), 1));
        Ok::<_, Infallible>(value)
    };
    inventory(store).repair(reach(), &mut read).unwrap()
}

fn notes(plan: &RepairPlan) -> String {
    plan.units.iter().map(|unit| unit.notes.join("; ")).collect::<Vec<_>>().join("; ")
}

fn perform(store: &mut Store, units: &[Unit]) {
    for change in units.iter().flat_map(|unit| &unit.changes) {
        match &change.after {
            Some(value) => {
                store.insert(change.key.clone(), String::from_utf8(value.clone()).unwrap());
            }
            None => drop(store.remove(&change.key)),
        }
    }
}

/// The addresses that a node could be given: free in every block that they lie in, or in none.
fn free(store: &Store) -> BTreeSet<IpAddr> {
    let inventory = inventory(store);
    let held: BTreeSet<IpAddr> = inventory
        .blocks
        .values()
        .flat_map(|stock| stock.slots.iter().map(|(at, _)| address_at(stock.cidr, *at)))
        .flatten()
        .collect();
    let lost = |address: &IpAddr| {
        inventory.blocks.values().any(|it| it.is_lost && it.cidr.contains(*address))
    };
    used().into_iter().filter(|it| !held.contains(it) && !lost(it)).collect()
}

#[test]
fn a_store_in_order_needs_nothing() {
    assert_eq!(plan(&sample()).units, []);
}

/// Carries a plan out, and says what is wrong with it: nothing that lives may be let go, nothing
/// may be left to do, and what stays wrong must have a reason.
fn faults_of_repair(key: &str, store: &mut Store) -> Vec<String> {
    let mut faults = Vec::new();
    let before = free(store);
    let first = plan(store);
    perform(store, &first.units);
    for address in free(store).difference(&before) {
        faults.push(format!("{address} lives and was let go by {}", notes(&first)));
    }
    let again = notes(&plan(store));
    if !again.is_empty() {
        faults.push(format!("after {} there is more: {again}", notes(&first)));
    }
    let left = inventory(store).check(reach());
    if left != first.left {
        faults.push(format!("{left:?} is left, not {:?}", first.left));
    }
    // What is wrong with an endpoint is not for address management to write. What nobody can tell
    // of a block that is lost as a whole is held, and named.
    let may_stay = |it: &&Problem| {
        let is_endpoint = key.contains("/workloadendpoints/");
        it.kept.is_some() && (is_endpoint || it.text.starts_with("held by nobody that is named"))
    };
    let stays = left.problems.iter().filter(|it| !may_stay(it));
    faults.extend(stays.map(|it| format!("{it:?} stays after {}", notes(&first))));
    faults
}

#[test]
fn every_spoilt_field_is_mended_and_nothing_that_lives_is_let_go() {
    let mut all = Vec::new();
    for (key, path, mut store) in spoilt_stores() {
        let faults = faults_of_repair(&key, &mut store);
        all.extend(faults.into_iter().map(|fault| format!("{key}{path}: {fault}")));
    }
    assert_eq!(all, [] as [String; 0]);
}

#[test]
fn what_a_spoilt_endpoint_held_is_kept() {
    let key = "/calico/resources/v3/projectcalico.org/workloadendpoints/shop/n1-k8s-web-eth0";
    let mut store = sample();
    store.insert(key.to_owned(), "{".to_owned());
    let cni = "/calico/resources/v3/projectcalico.org/workloadendpoints/default/n1-cni-c1-eth0";
    store.remove(cni);
    let plan = plan(&store);
    assert_eq!(plan.units, [], "two are gone, and one of them cannot be read: neither is let go");
    let leaks = plan.left.problems.iter().filter(|it| it.class == Class::Leak);
    let kept: Vec<_> = leaks.filter_map(|it| it.kept.as_deref()).collect();
    assert_eq!(kept, ["an endpoint of its node cannot be read"; 2]);
}

#[test]
fn a_repair_may_stop_anywhere() {
    let mut all = Vec::new();
    for (key, path, store) in spoilt_stores().into_iter().step_by(3) {
        let units = plan(&store).units;
        for n_done in 1..units.len() {
            let mut store = store.clone();
            perform(&mut store, &units[..n_done]);
            let faults = faults_of_repair(&key, &mut store);
            all.extend(faults.into_iter().map(|it| format!("{key}{path} after {n_done}: {it}")));
        }
    }
    assert_eq!(all, [] as [String; 0]);
}

/// Made once: there are more than a thousand.
static ALL: LazyLock<Vec<(String, String, Store)>> = LazyLock::new(spoilt_stores);

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Several spoilt records at once, which may leave more than one witness wrong: no panic, and
    /// a plan that is carried out leaves nothing that it would do again.
    #[test]
    fn many_spoilt_records_end_in_rest(
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        let mut store = sample();
        for pick in picks {
            let (key, _, spoilt) = pick.get(&ALL);
            store.insert(key.clone(), spoilt[key].clone());
        }
        for _ in 0..4 {
            let plan = plan(&store);
            perform(&mut store, &plan.units);
        }
        prop_assert_eq!(plan(&store).units, []);
    }
}
