//! The node's ruleset: what the renderer makes of an intent, committed in the node's namespace.

use std::collections::{BTreeMap, BTreeSet};

use kernel::Netns;
use kernel::nft::Nft;
use nft::{TableFamily, TableId};
use policy::IpSet;
use policy::guards::Guards;
use policy::intent::{Dirty, Intent, SetChange};
use policy::render::{EndpointToHost, Renderer, Settings, Surroundings};

use crate::gates::Gates;
use crate::trace::Step;

/// What stands in the kernel.
pub(crate) struct Dataplane {
    nft: Nft,
    renderer: Renderer,
    pub(crate) surroundings: Surroundings,
    /// What the kernel carries out.
    pub(crate) intent: Intent,
    /// Whether IPVS leads to services.
    pub(crate) has_ipvs: bool,
    /// The comments of our rules.
    comments: BTreeMap<u64, String>,
}

/// Policy alone decides about packets to the node.
pub(crate) fn settings() -> Settings {
    Settings { endpoint_to_host: EndpointToHost::Accept, ..Settings::default() }
}

impl Dataplane {
    pub(crate) fn new(node: &Netns, settings: Settings) -> Self {
        Self {
            nft: Nft::in_netns(node).unwrap(),
            renderer: Renderer::new(settings),
            surroundings: Surroundings::default(),
            intent: Intent::default(),
            has_ipvs: false,
            comments: BTreeMap::new(),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        self.renderer.settings()
    }

    /// What should become of packets.
    pub(crate) fn gates(&self) -> Gates<'_> {
        let guards = Guards { settings: self.settings(), around: &self.surroundings };
        Gates { intent: &self.intent, guards, has_ipvs: self.has_ipvs }
    }

    /// With other settings, everything anew.
    pub(crate) fn set(&mut self, settings: Settings, intent: Intent) {
        self.renderer = Renderer::new(settings);
        self.install(intent);
    }

    /// Everything anew.
    pub(crate) fn install(&mut self, intent: Intent) {
        let change = self.renderer.install(&intent, &self.surroundings);
        self.commit(change, intent);
    }

    /// Everything anew, by a renderer that knows nothing of what stands.
    pub(crate) fn start_anew(&mut self, intent: Intent) {
        self.renderer = Renderer::new(self.renderer.settings().clone());
        let present = self.nft.tables().unwrap();
        let change = self.renderer.replace(&intent, &self.surroundings, &present);
        self.commit(change, intent);
    }

    /// From what stands to another intent.
    pub(crate) fn update(&mut self, intent: Intent, dirty: &Dirty) {
        let change = self.renderer.update(&intent, dirty, &self.surroundings);
        self.commit(change, intent);
    }

    fn commit(&mut self, change: policy::render::Change, intent: Intent) {
        assert!(change.refused.is_empty(), "{:?}", change.refused);
        for step in &change.steps {
            if step.waits {
                kernel::nft::await_packets();
            }
            self.nft.commit(&step.batch).unwrap_or_else(|error| panic!("{error}"));
        }
        self.renderer.committed(change);
        self.intent = intent;
        self.comments.clear();
    }

    /// The names of the rules that a packet met, each once in a row.
    pub(crate) fn names(&mut self, trace: &[Step]) -> Vec<String> {
        self.met(trace).into_iter().filter(|it| !is_guard(it)).collect()
    }

    /// The names of what dropped a packet before policy had a say.
    pub(crate) fn guards(&mut self, trace: &[Step]) -> Vec<String> {
        self.met(trace).into_iter().filter(|it| is_guard(it)).collect()
    }

    fn met(&mut self, trace: &[Step]) -> Vec<String> {
        let table = TableId::new(TableFamily::Inet, "margay");
        if self.comments.is_empty() {
            for listed in self.nft.rules(Some(&table)).unwrap() {
                self.comments.extend(listed.rule.comment.map(|it| (listed.handle, it)));
            }
        }
        let ours = trace.iter().filter(|step| step.table == table.name);
        let comments = ours.filter_map(|step| self.comments.get(&step.rule?));
        let is_name = |it: &&String| it.starts_with("i:") || it.starts_with("e:");
        let mut names: Vec<String> = comments.filter(is_name).cloned().collect();
        names.dedup();
        names
    }
}

fn is_guard(name: &str) -> bool {
    name.contains(":guard:")
}

/// What differs between two intents.
pub(crate) fn difference(old: &Intent, new: &Intent) -> Dirty {
    let mut sets = BTreeMap::new();
    for id in keys(&old.sets, &new.sets) {
        let none = IpSet::default();
        let before = &old.sets.get(&id).unwrap_or(&none).members;
        let after = &new.sets.get(&id).unwrap_or(&none).members;
        let change = SetChange {
            added: after.difference(before).cloned().collect(),
            removed: before.difference(after).cloned().collect(),
        };
        sets.insert(id, change);
    }
    Dirty {
        workloads: keys(&old.workloads, &new.workloads),
        hosts: keys(&old.hosts, &new.hosts),
        policies: keys(&old.policies, &new.policies),
        profiles: keys(&old.profiles, &new.profiles),
        sets,
    }
}

/// The keys whose values differ.
fn keys<K: Ord + Clone, V: PartialEq>(old: &BTreeMap<K, V>, new: &BTreeMap<K, V>) -> BTreeSet<K> {
    let all = old.keys().chain(new.keys());
    all.filter(|key| old.get(key) != new.get(key)).cloned().collect()
}
