//! The graph against the slow twin: any changes, in any order, with flushes anywhere.

mod worlds;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::Graph;
use crate::cluster::Cluster;
use crate::intent::{Dirty, Intent, SetChange};
use crate::reference;
use crate::set::{IpSets, SetId};
use worlds::{HERE, Step, removals, step};

/// A graph and the cluster that it should know.
struct Twins {
    graph: Graph,
    cluster: Cluster,
    shown: Intent,
}

impl Twins {
    fn new() -> Self {
        Self { graph: Graph::new(HERE), cluster: Cluster::default(), shown: Intent::default() }
    }

    fn take(&mut self, step: Step) {
        let change = match step {
            Step::Change(change) => Some(change),
            Step::Tweak(tweak) => tweak.of(&self.cluster),
            Step::Flush => return self.flush(),
        };
        let Some(change) = change else { return };
        self.cluster.absorb(change.clone());
        self.graph.absorb(change);
        assert_eq!(*self.graph.intent(), self.shown, "shown before the flush");
    }

    fn flush(&mut self) {
        let dirty = self.graph.flush();
        let wanted = reference::intent(&self.cluster, HERE);
        assert_eq!(*self.graph.intent(), wanted);
        assert_eq!(dirty, difference(&self.shown, &wanted));
        self.shown = wanted;
    }
}

fn difference(old: &Intent, new: &Intent) -> Dirty {
    Dirty {
        workloads: differing(&old.workloads, &new.workloads),
        hosts: differing(&old.hosts, &new.hosts),
        policies: differing(&old.policies, &new.policies),
        profiles: differing(&old.profiles, &new.profiles),
        sets: differing_sets(&old.sets, &new.sets),
    }
}

fn differing<K: Clone + Ord, V: PartialEq>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
) -> BTreeSet<K> {
    let keys = old.keys().chain(new.keys());
    keys.filter(|key| old.get(key) != new.get(key)).cloned().collect()
}

fn differing_sets(old: &IpSets, new: &IpSets) -> BTreeMap<SetId, SetChange> {
    let change = |id: SetId| {
        let members = |sets: &IpSets| sets.get(&id).cloned().unwrap_or_default().members;
        let (old, new) = (members(old), members(new));
        let added = new.difference(&old).cloned().collect();
        let removed = old.difference(&new).cloned().collect();
        (id, SetChange { added, removed })
    };
    differing(old, new).into_iter().map(change).collect()
}

/// Whether nothing of all that came is left in memory.
fn is_empty(graph: &Graph) -> bool {
    let objects = graph.items.is_empty() && graph.locals.is_empty() && graph.policies.is_empty();
    let profiles = &graph.profiles.profiles;
    objects && graph.index.is_empty() && graph.sets.is_empty() && profiles.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_changes_end_where_the_slow_way_does(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut twins = Twins::new();
        steps.into_iter().for_each(|step| twins.take(step));
        twins.flush();
        for change in removals(&twins.cluster) {
            twins.take(Step::Change(change));
        }
        twins.flush();
        prop_assert_eq!(twins.graph.intent(), &Intent::default());
        prop_assert!(is_empty(&twins.graph));
    }
}
