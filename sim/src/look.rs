//! What an agent sees to by itself: it follows the datastore, looks for what is to be done, and
//! joins all witnesses.

use std::collections::{BTreeMap, BTreeSet};

use intent::{Leftover, Restock, Witnesses};
use ipam::{Plan, Read, reserve_handle};
use sandbox::claim::endpoint_key;
use sandbox::life::Record;

use crate::node::{Agent, Job, Node, Surroundings};
use crate::options::Bug;
use crate::store::Store;
use crate::trace::{addresses, short, who};

/// How long a datastore that is back is left alone: what was under way to it arrives first.
pub(crate) const REST_STEPS: usize = 20;

impl Node {
    /// The watch delivers some transactions, or everything if it has to start anew.
    pub(crate) fn deliver(&mut self, around: &mut Surroundings<'_>, transactions_max: usize) {
        let compaction = around.options.compaction;
        let starts_anew = around.happens(compaction);
        let Some(agent) = self.agent.as_ref().filter(|_| !self.is_away) else { return };
        let store = &*around.store;
        let events = store.since(agent.watched).filter(|_| agent.watched > 0 && !starts_anew);
        let Some(events) = events else { return self.read_all(store) };
        let Some(agent) = &mut self.agent else { return };
        // A transaction is delivered as a whole.
        for transaction in events.chunk_by(|a, b| a.revision == b.revision).take(transactions_max) {
            for event in transaction {
                let value = event.value.as_deref();
                agent.learn(&mut self.memory, &event.key, value, event.revision);
                agent.watched = event.revision;
            }
        }
        agent.view.advance("/calico/", agent.watched);
    }

    /// Reads everything: endpoints and blocks may have gone while nobody watched.
    fn read_all(&mut self, store: &Store) {
        let inputs = self.vouched();
        let Some(agent) = &mut self.agent else { return };
        store.read(&mut agent.view, &Read::Prefix("/calico/".to_owned()));
        agent.inputs = inputs;
        agent.ahead.clear();
        self.memory.clear();
        for (key, (value, at)) in store.under("/calico/") {
            agent.learn(&mut self.memory, key, Some(value), *at);
        }
        agent.inputs.complete();
        agent.watched = store.revision;
    }

    /// Whether the datastore has been answering for some time, and everything was read.
    fn is_steady(&self, around: &Surroundings<'_>) -> bool {
        let is_in_sync = self.agent.as_ref().is_some_and(|it| it.inputs.in_sync().is_some());
        is_in_sync && !self.is_away && around.step >= self.answers_since + REST_STEPS
    }

    /// Looks for what is to be done while the datastore answers.
    pub(crate) fn look_around(&mut self, around: &mut Surroundings<'_>) {
        if !self.is_steady(around) {
            return;
        }
        self.retry();
        let Some(agent) = &self.agent else { return };
        let (owed, told): (Vec<&Record>, Vec<&Record>) =
            self.journal.values().filter(|it| self.is_up(it)).partition(|it| it.owed.is_some());
        let names = |it: &Record| (it.identity.clone(), it.workload.clone());
        let settles = owed.into_iter().map(names).map(|(it, of)| Job::Settle(it, of));
        let lacking = told.into_iter().filter(|it| agent.inputs.lacks(&endpoint_key(it)));
        let keeps = lacking.map(names).map(|(it, of)| Job::Keep(it, of, around.fresh()));
        let jobs: Vec<Job> = settles.chain(keeps).collect();
        jobs.into_iter().for_each(|job| self.begin(job));
        self.look_at_stock(around);
    }

    /// Has the reserve filled, one time after the other.
    fn look_at_stock(&mut self, around: &mut Surroundings<'_>) {
        let Some(agent) = &self.agent else { return };
        if agent.works.iter().any(|work| matches!(work.job, Job::Restock(_))) {
            return;
        }
        let handle = reserve_handle(&self.name);
        let taken = self.journal.values().flat_map(|it| &it.wiring.addresses).copied().collect();
        let held = agent.inputs.reserve(&handle, around.options.reserve);
        let restock = Restock::of(&held, &taken);
        // What is given back is not in stock any more, whatever becomes of that.
        self.stock = held.fit.difference(&restock.back).copied().collect();
        if !restock.is_nothing() {
            self.begin(Job::Restock(restock));
        }
    }

    /// The join: what is left over goes.
    pub(crate) fn join(&mut self, around: &mut Surroundings<'_>) {
        let Some(agent) = &self.agent else { return };
        let Some(proof) = agent.inputs.in_sync() else {
            if around.has(Bug::ReleaseBeforeInSync) {
                self.remove_unread(around);
            }
            return;
        };
        if !self.is_steady(around) {
            return;
        }
        let living = self.journal.values().filter(|record| self.lives(record));
        let interfaces = self.interfaces.iter();
        let seen = Witnesses {
            journal: self.journal.values().cloned().collect(),
            interfaces: interfaces
                .map(|(name, it)| (name.clone(), Some(it.identity.clone())))
                .collect(),
            routed: self.routed(),
            living: living.map(|record| record.identity.clone()).collect(),
        };
        for leftover in agent.inputs.leftovers(proof, &seen) {
            around.note(|| format!("the join finds {}", named(&leftover)));
            match leftover {
                Leftover::Sandbox(record) => self.begin(Job::Dead(record)),
                _ => self.begin(Job::Sweep(leftover)),
            }
        }
    }

    fn remove_unread(&mut self, around: &mut Surroundings<'_>) {
        let Some(agent) = &self.agent else { return };
        let unknown = self.journal.values().filter(|it| agent.inputs.lacks(&endpoint_key(it)));
        let names = unknown.map(|it| it.wiring.host_interface.clone());
        let names: BTreeSet<String> = names.collect();
        for name in names {
            if let Some(gone) = self.interfaces.remove(&name) {
                around.note(|| format!("removes {name} of {}, not read", who(&gone.identity)));
            }
        }
    }
}

fn named(leftover: &Leftover) -> String {
    match leftover {
        Leftover::Sandbox(record) => format!("{} dead", who(&record.identity)),
        Leftover::Endpoint { key, container, .. } => {
            format!("the endpoint {} of {container} a ghost", short(key))
        }
        Leftover::Addresses { handle, addresses: found } => {
            format!("{handle} without use for{}", addresses(found.keys()))
        }
    }
}

impl Agent {
    /// The watch tells of a change. What it tells before our own write of a key is out of date.
    fn learn(
        &mut self,
        memory: &mut BTreeMap<String, Vec<u8>>,
        key: &str,
        value: Option<&[u8]>,
        revision: i64,
    ) {
        match self.ahead.get(key) {
            Some(ahead) if *ahead >= revision => return,
            _ => drop(self.ahead.remove(key)),
        }
        self.take_in(memory, key, value, revision);
    }

    /// Takes a change of our own, unless the watch was faster: it may know better by now.
    pub(crate) fn absorb(
        &mut self,
        memory: &mut BTreeMap<String, Vec<u8>>,
        plan: &Plan,
        revision: i64,
    ) {
        if revision <= self.watched {
            return;
        }
        for change in &plan.changes {
            self.take_in(memory, &change.key, change.value.as_deref(), revision);
            self.ahead.insert(change.key.clone(), revision);
        }
    }

    fn take_in(
        &mut self,
        memory: &mut BTreeMap<String, Vec<u8>>,
        key: &str,
        value: Option<&[u8]>,
        revision: i64,
    ) {
        self.view.observe(key, value.map(|value| (value.to_vec(), revision)), revision);
        self.inputs.absorb(key, value);
        let is_kept = ["/clusterinformations/", "/ippools/", "/profiles/"]
            .iter()
            .any(|kind| key.contains(kind));
        match value {
            Some(value) if is_kept => drop(memory.insert(key.to_owned(), value.to_vec())),
            _ => drop(memory.remove(key)),
        }
    }
}
