//! How few comparisons the index makes. That it is right is shown with the whole graph.

use super::*;

fn labels(list: &[(&str, &str)]) -> Labels {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn selector(text: &str) -> Selector {
    text.parse().unwrap()
}

/// A hundred items of ten apps in two namespaces.
fn sample() -> LabelIndex {
    let mut index = LabelIndex::default();
    for item in 0..100 {
        let app = format!("app-{}", item % 10);
        let namespace = if item < 50 { "n" } else { "m" };
        index.put(item, &labels(&[("app", &app), ("namespace", namespace)]), &["p".to_owned()]);
    }
    index
}

#[test]
fn items_with_the_same_labels_are_compared_once() {
    let mut index = sample();
    assert_eq!(index.groups().count(), 20);
    let groups = index.add_selector(7, selector("app == 'app-3'"));
    let mut items: Vec<_> = groups.iter().flat_map(|group| index.items(*group)).collect();
    items.sort_unstable();
    assert_eq!(items, (0..100).filter(|item| item % 10 == 3).collect::<Vec<_>>());
    for item in 0..100 {
        index.remove(item);
    }
    assert!(index.remove_selector(7).is_empty());
    assert!(index.is_empty());
}

#[test]
fn a_selector_meets_only_groups_that_have_what_it_demands() {
    let mut index = sample();
    let n_met = |index: &mut LabelIndex, text: &str| {
        let selector = selector(text);
        index.add_selector(0, selector.clone());
        let n_met = index.groups.candidates(&selector, &index.texts).len();
        index.remove_selector(0);
        n_met
    };
    assert_eq!(n_met(&mut index, "app == 'app-3'"), 2);
    assert_eq!(n_met(&mut index, "app in {'app-3', 'app-4'} && namespace == 'n'"), 4);
    assert_eq!(n_met(&mut index, "namespace == 'n' && app starts with 'x'"), 10);
    assert_eq!(n_met(&mut index, "app == 'none' && has(namespace)"), 0);
    assert_eq!(n_met(&mut index, "has(inherited)"), 0);
    index.set_profile("p", &labels(&[("inherited", "x")]));
    assert_eq!(n_met(&mut index, "has(inherited)"), 20);
    assert_eq!(n_met(&mut index, "app != 'app-3'"), 20);
}

#[test]
fn a_group_meets_only_selectors_that_demand_what_it_has() {
    let mut index = sample();
    for app in 0..100 {
        // Spread over the apps, although all demand the namespace, too.
        index.add_selector(app, selector(&format!("namespace == 'n' && app == 'app-{app}'")));
    }
    index.add_selector(100, selector("has(app)"));
    index.add_selector(101, selector("app != 'app-1'"));
    let group = index.groups.of(3).unwrap();
    let labels = index.groups.labels(group);
    let met: BTreeSet<_> = labels.flat_map(|label| index.demands.candidates(label)).collect();
    assert!(met.is_superset(&BTreeSet::from([3, 100])));
    assert!(met.len() <= 4, "{met:?}");
    assert_eq!(index.demands.free().collect::<Vec<_>>(), [101]);
    assert_eq!(index.matches(3), [3, 100, 101]);
}

#[test]
fn profiles_shift_only_what_their_labels_decide() {
    let mut index = sample();
    index.add_selector(0, selector("inherited == 'x' && app == 'app-3'"));
    index.add_selector(1, selector("app == 'app-3' && !has(inherited)"));
    let shifts = index.set_profile("p", &labels(&[("inherited", "x"), ("app", "own wins")]));
    assert_eq!(shifts.len(), 2);
    assert!(shifts.iter().all(|shift| shift.started == [0] && shift.stopped == [1]));
    assert_eq!(index.set_profile("p", &labels(&[("app", "y"), ("inherited", "x")])), []);
    assert_eq!(index.set_profile("p", &Labels::new()).len(), 2);
    assert_eq!(index.matches(3), [1]);
}
