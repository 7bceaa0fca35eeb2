//! How a node gets along when its datastore does not answer: what it remembers of it, and how it
//! finds out that it is back.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use api::Kind;
use host::known::Known;
use sandbox::claim::{endpoint_key, resource_key};
use store::Store;

use crate::memory::Memory;
use crate::node::{Node, Recalled};
use crate::supervisor::say;

/// How often it is noted that what was written down is still true.
const CONFIRM_PAUSE: Duration = Duration::from_secs(600);

impl Node {
    /// Takes up what an earlier run knew: the datastore does not answer.
    pub(crate) fn recall(&self, known: &Known) {
        let memory = Memory::recall(&self.name, known);
        let mut dataplane = self.dataplane();
        if dataplane.is_complete() {
            return;
        }
        let inputs = memory.inputs(&self.name);
        let as_of = Known::as_of(&self.memory_file).filter(|_| !known.objects.is_empty());
        dataplane.recalled = Some(Recalled { memory, inputs, as_of });
        for record in self.journal.all() {
            dataplane.retake(&endpoint_key(&record));
        }
        let may_be_cut_off = dataplane.trials.is_any_back();
        drop(dataplane);
        if may_be_cut_off {
            self.flush_or_say();
        }
    }

    /// What was written down, taken up where the datastore does not say it better.
    pub(crate) fn known(&self) -> Known {
        let known = self.read_known();
        self.stock.restore(&known.reserve);
        self.dataplane().memory.learn(&known);
        known
    }

    /// What was written down; what cannot be used is put aside and said.
    pub(crate) fn read_known(&self) -> Known {
        let place = self.store().describe();
        let (known, unreadable) = Known::read(&self.memory_file, &self.name, &place);
        if let Some(file) = unreadable {
            let (place, why) = (file.path.display(), file.why);
            self.events.note("quarantine", &format!("memory put aside: {place}: {why}"));
        }
        known
    }

    /// Writes down what changed of what is worth remembering.
    pub(crate) fn remember(&self) {
        let mut dataplane = self.dataplane();
        if !dataplane.is_complete() {
            return;
        }
        let is_changed = dataplane.memory.take_changed();
        drop(dataplane);
        match is_changed {
            true => self.write_memory(&self.stock.addresses()),
            false => self.confirm_memory(),
        }
    }

    /// Writes down at once what stands in for objects that cannot be used: nobody else knows it.
    pub(crate) fn remember_kept(&self) {
        let mut guard = self.dataplane();
        let dataplane = &mut *guard;
        let is_due = dataplane.memory.take_kept(&dataplane.inputs);
        drop(guard);
        if is_due {
            self.remember();
        }
    }

    /// What was written down is still true, or was until the datastore fell silent: the next run
    /// will say so, should it have to start from it.
    fn confirm_memory(&self) {
        let Some(as_of) = Known::as_of(&self.memory_file) else { return };
        let vitals = self.health.vitals();
        let (until, slack) = match vitals.is_connected {
            true => (SystemTime::now(), CONFIRM_PAUSE),
            false => (vitals.connection_since, Duration::from_secs(1)),
        };
        if until.duration_since(as_of).is_ok_and(|age| age > slack) {
            // Whoever cannot write here is told so elsewhere.
            let _ = Known::confirm(&self.memory_file, until);
        }
    }

    /// Writes down what is worth remembering, and what is in the reserve.
    pub(crate) fn write_memory(&self, reserve: &BTreeSet<IpAddr>) {
        let dataplane = self.dataplane();
        let endpoints = dataplane.inputs.local_endpoints();
        let used: BTreeSet<String> =
            endpoints.flat_map(|(_, endpoint)| endpoint.spec.profiles.iter().cloned()).collect();
        let mut known = Known::new(&self.name, self.store().describe());
        dataplane.memory.write(&used, &mut known, |objects| dataplane.trials.amend(objects));
        drop(dataplane);
        known.reserve.clone_from(reserve);
        if let Err(error) = known.write(&self.memory_file) {
            say(&format!("{}: {error}", self.memory_file.display()));
            self.dataplane().memory.doubt();
        }
    }

    /// Asks a datastore that did not answer, unless the watch is about to find out.
    pub(crate) fn ask_again(&self) {
        if self.outage().is_none() {
            return;
        }
        let key = resource_key(Kind::ClusterInformation, "", "default");
        if self.store().get(&key).is_ok() {
            self.health.answered(&self.events);
        }
    }

    /// Whether the datastore has been answering for some time.
    pub(crate) fn is_steady(&self, rest: Duration) -> bool {
        match self.store() {
            Store::Sqlite(_) => true,
            Store::Etcd(_) => self.health.connected_for().is_some_and(|it| it >= rest),
        }
    }
}
