//! Changes of a host's policy are on trial until the datastore was reached anew under them: one
//! that cuts the node off from it is taken back, and held until its object changes again.
//!
//! A pure machine: it is told what changed, what the kernel was given and whether the datastore was
//! reached, and says which keys are to be read again ([`Hold::over`] has their value then).
//! A datastore that is down for everybody must not cost a policy its good name, so a change is to
//! blame only if the datastore is out of reach with it, within reach without it, and out of reach
//! with it once more. Several changes that are to blame together are taken apart.

mod concern;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use concern::concerns_hosts;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";
const PROFILES: &str = "/calico/resources/v3/projectcalico.org/profiles/";

/// What can change what the endpoints of hosts do.
const KINDS: [&str; 7] = [
    "felixconfigurations",
    "globalnetworkpolicies",
    "globalnetworksets",
    "hostendpoints",
    "networksets",
    "profiles",
    "tiers",
];

/// How long the datastore may be out of reach before a change is suspected.
const PATIENCE: Duration = Duration::from_secs(4);
/// The same where it was out of reach without the change as well: twice as long each time.
const LATER: Duration = Duration::from_secs(30);
const LATER_MAX: Duration = Duration::from_secs(600);

/// So often a change must have cut the node off, and its absence have mended that.
const STRIKES: u8 = 2;

/// The trials of one node.
#[derive(Debug, Default)]
pub struct Hold {
    entries: BTreeMap<String, Entry>,
    phase: Phase,
    /// Not in force; each is tried in its turn.
    queue: VecDeque<Batch>,
    is_on: bool,
    /// Whether nothing is known of an earlier run.
    is_first: bool,
    has_started: bool,
    /// Whether the kernel is to be given something that has a part in a trial.
    is_staged: bool,
    /// How often it was: a test that began earlier says nothing of the last.
    n_commits: u64,
    is_unsaved: bool,
}

/// An object whose stored value is not, or not yet, known to be harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// The last value that was known to be harmless; none if there was no such object.
    good: Option<Vec<u8>>,
    /// The revision of the stored value, or of its removal.
    revision: i64,
    is_removal: bool,
    place: Place,
    /// Whether it was held, and still is stored as it was then.
    is_blamed: bool,
    /// Whether it was held, whatever is stored by now.
    was_held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Read, and not yet given to the kernel.
    Fresh,
    /// In force, on trial.
    InForce,
    /// The same, with another value that the kernel was not yet given.
    Renewed,
    /// Not in force, to be tried.
    Back,
    /// Not in force until it changes.
    Held,
}

/// Changes that are tried together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Batch {
    keys: BTreeSet<String>,
    /// How often it was to blame.
    strikes: u8,
    /// How often nothing could be said of it.
    round: u32,
    /// Whether it is, or is a part of, what was to blame.
    is_suspect: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// A batch is in force since this time; none until the kernel has it.
    With(Batch, Option<Duration>),
    /// It was taken back.
    Without(Batch, Option<Duration>),
}

/// What is written down of one object, for the next run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The last value that was known to be harmless; none if there was no such object.
    pub good: Option<Vec<u8>>,
    /// The revision of the stored value, or of its removal.
    pub revision: i64,
    /// Whether it was removed.
    pub is_removal: bool,
    /// Whether it is held; if not, it is on trial.
    pub is_held: bool,
}

/// An object that is not in force here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    /// Its key.
    pub key: &'a str,
    /// The revision of the stored value, or of its removal.
    pub revision: i64,
    /// Whether it was removed; the value before is in force.
    pub is_removal: bool,
    /// Whether an earlier value is in force; if not, the object is as good as absent.
    pub has_good: bool,
    /// Whether it is known to be to blame; if not, that is being found out.
    pub is_blamed: bool,
}

/// A question to the datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    n_commits: u64,
    /// Whether there is no hurry: nothing is at stake but time.
    pub is_patient: bool,
}

/// What a test has brought about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The keys whose value in force is another now.
    pub retake: BTreeSet<String>,
    /// What is worth telling.
    pub news: Vec<News>,
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The datastore is out of reach with these changes: they are taken back for now.
    TakenBack(BTreeSet<String>),
    /// It is out of reach without them as well: they are in force again.
    NotToBlame(BTreeSet<String>),
    /// This change is to blame: it is held.
    Held(String),
    /// A change that was held does no harm any more: it is in force.
    Released(String),
}

impl Hold {
    /// What an earlier run wrote down. What it had on trial is not in force, and is tried later.
    pub fn new(saved: BTreeMap<String, Saved>) -> Self {
        let mut hold = Self::default();
        let mut batch = Batch::default();
        for (key, Saved { good, revision, is_removal, is_held }) in saved {
            let place = if is_held { Place::Held } else { Place::Back };
            if !is_held {
                batch.keys.insert(key.clone());
            }
            let entry =
                Entry { good, revision, is_removal, place, is_blamed: is_held, was_held: is_held };
            hold.entries.insert(key, entry);
        }
        if !batch.keys.is_empty() {
            hold.queue.push_back(batch);
        }
        hold
    }

    /// Changes are on trial from now on. What an earlier run knew counts as harmless, but for what
    /// it wrote down; where not all of it is known, endpoints of hosts are what may be taken back.
    pub fn begin<'a>(&mut self, known: Option<impl Iterator<Item = (&'a str, &'a [u8])>>) {
        self.is_on = true;
        self.is_first = known.is_none();
        for (key, value) in known.into_iter().flatten().filter(|(key, _)| counts(key)) {
            // As if it had been removed, until it is read.
            self.entries.entry(key.to_owned()).or_insert_with(|| Entry {
                good: Some(value.to_vec()),
                revision: 0,
                is_removal: true,
                place: Place::Fresh,
                is_blamed: false,
                was_held: false,
            });
        }
    }

    /// The value of a key that is in force, given the stored one.
    pub fn over<'a>(&'a self, key: &str, stored: Option<&'a [u8]>) -> Option<&'a [u8]> {
        match self.entries.get(key) {
            Some(entry) if matches!(entry.place, Place::Back | Place::Held) => {
                entry.good.as_deref()
            }
            _ => stored,
        }
    }

    /// The datastore has another value for a key.
    pub fn changed(&mut self, key: &str, before: Option<&[u8]>, now: Option<&[u8]>, revision: i64) {
        if !counts(key) {
            return;
        }
        let is_sifting = self.is_sifting();
        let Some(entry) = self.entries.get_mut(key) else {
            // A profile that is new is some sandbox's, which would have to wait for it.
            let is_new_profile = before.is_none() && key.starts_with(PROFILES);
            if self.is_on && before != now && !is_new_profile {
                let good = before.map(<[u8]>::to_vec);
                self.add(key, Entry::fresh(good, revision, now.is_none()), is_sifting);
            }
            return;
        };
        if entry.revision == revision {
            return;
        }
        (entry.revision, entry.is_removal, entry.is_blamed) = (revision, now.is_none(), false);
        self.is_unsaved |= entry.place != Place::Fresh;
        match entry.place {
            Place::InForce | Place::Renewed => entry.place = Place::Renewed,
            _ if entry.good.as_deref() == now || !self.is_on => self.forget(key),
            Place::Fresh => {}
            // Another value deserves a trial of its own.
            Place::Back => {
                if let Some(batch) = self.batches().find(|batch| batch.keys.contains(key)) {
                    batch.strikes = 0;
                }
            }
            Place::Held => {
                let fresh = Entry::fresh(entry.good.take(), revision, now.is_none());
                self.add(key, Entry { was_held: true, ..fresh }, is_sifting);
            }
        }
    }

    /// Everything was read for the first time, or again. The keys that have a value here although
    /// the datastore has none.
    pub fn settle(&mut self, is_stored: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let absent = |(key, entry): (&String, &Entry)| {
            (entry.place != Place::Fresh && !is_stored(key)).then(|| key.clone())
        };
        let absent: BTreeSet<String> = self.entries.iter().filter_map(absent).collect();
        for key in &absent {
            // Whoever was held for its value, and is gone by now, is not held any more.
            if self.entries.get(key).is_some_and(|entry| !entry.is_removal) {
                self.changed(key, None, None, 0);
            }
        }
        absent.into_iter().filter(|key| self.over(key, None).is_some()).collect()
    }

    /// The kernel is about to be given what was read: whether that concerns endpoints of hosts, and
    /// the keys of those of this node. What does not concern them is harmless.
    pub fn stage(&mut self, concerns_hosts: bool, hosts: &BTreeSet<String>) {
        if !self.is_on {
            return;
        }
        self.has_started = true;
        let is_first = std::mem::take(&mut self.is_first);
        let (mut fresh, mut is_renewed) = (BTreeSet::new(), false);
        self.entries.retain(|key, entry| {
            let is_meant = concerns_hosts && (!is_first || hosts.contains(key));
            if entry.place == Place::Fresh && is_meant {
                entry.place = Place::InForce;
                fresh.insert(key.clone());
            }
            if entry.place == Place::Renewed {
                entry.place = Place::InForce;
                is_renewed = true;
            }
            entry.place != Place::Fresh
        });
        self.is_staged |= is_renewed || !fresh.is_empty();
        if fresh.is_empty() {
            return;
        }
        self.is_unsaved = true;
        match &mut self.phase {
            // Without one nothing is fresh.
            Phase::With(batch, _) | Phase::Without(batch, _) => batch.keys.extend(fresh),
            phase @ Phase::Idle => {
                *phase = Phase::With(Batch { keys: fresh, ..Batch::default() }, None)
            }
        }
    }

    /// The kernel has it.
    pub fn committed(&mut self, now: Duration) {
        self.n_commits += u64::from(std::mem::take(&mut self.is_staged));
        if let Phase::With(_, since @ None) | Phase::Without(_, since @ None) = &mut self.phase {
            *since = Some(now);
        }
    }

    /// What is to be asked now: whether the datastore can be reached by a new connection.
    pub fn test(&self) -> Option<Test> {
        let is_patient = match &self.phase {
            Phase::With(batch, Some(_)) => batch.round > 0,
            Phase::Without(batch, Some(_)) => batch.is_suspect,
            Phase::Idle if self.is_on && self.has_started && !self.queue.is_empty() => true,
            _ => return None,
        };
        Some(Test { n_commits: self.n_commits, is_patient })
    }

    /// The datastore was reached, or was not.
    pub fn tried(&mut self, test: Test, is_reached: bool, now: Duration) -> Outcome {
        let mut outcome = Outcome::default();
        let is_renewed = self.entries.values().any(|entry| entry.place == Place::Renewed);
        if is_reached && (test.n_commits != self.n_commits || is_renewed) {
            return outcome;
        }
        match std::mem::take(&mut self.phase) {
            Phase::Idle if is_reached => self.next(&mut outcome),
            Phase::With(batch, _) | Phase::Without(batch, _) if batch.keys.is_empty() => {
                self.next(&mut outcome);
            }
            Phase::With(batch, Some(_)) if is_reached => {
                self.accept(&batch, &mut outcome);
                self.next(&mut outcome);
            }
            Phase::Without(batch, Some(_)) if is_reached => {
                self.blame(batch, &mut outcome);
                self.next(&mut outcome);
            }
            Phase::With(batch, Some(since)) if now.saturating_sub(since) >= batch.patience() => {
                self.put(&batch, Place::Back, &mut outcome);
                self.defer(&mut outcome);
                // How the guilty one is found, or an outage waited out, is told once.
                if !batch.is_suspect && batch.round == 0 {
                    outcome.news.push(News::TakenBack(batch.keys.clone()));
                }
                self.phase = Phase::Without(batch, None);
            }
            Phase::Without(mut batch, Some(since))
                if !batch.is_suspect && now.saturating_sub(since) >= PATIENCE =>
            {
                if batch.round == 0 {
                    outcome.news.push(News::NotToBlame(batch.keys.clone()));
                }
                batch.round += 1;
                self.put(&batch, Place::InForce, &mut outcome);
                self.phase = Phase::With(batch, None);
            }
            phase => self.phase = phase,
        }
        outcome
    }

    /// What is not in force here.
    pub fn held(&self) -> impl Iterator<Item = Held<'_>> {
        let back = self.entries.iter().filter(|(_, entry)| {
            matches!(entry.place, Place::Back | Place::Held) || entry.is_blamed
        });
        back.map(|(key, entry)| Held {
            key,
            revision: entry.revision,
            is_removal: entry.is_removal,
            has_good: entry.good.is_some(),
            is_blamed: entry.is_blamed,
        })
    }

    /// What is to be written down, if that is something else than before. It must be before the
    /// kernel is changed.
    pub fn take_unsaved(&mut self) -> Option<BTreeMap<String, Saved>> {
        if !std::mem::take(&mut self.is_unsaved) {
            return None;
        }
        let worth = self.entries.iter().filter(|(_, entry)| entry.place != Place::Fresh);
        let saved = worth.map(|(key, entry)| {
            let Entry { good, revision, is_removal, .. } = entry.clone();
            let is_held = entry.is_blamed;
            (key.clone(), Saved { good, revision, is_removal, is_held })
        });
        Some(saved.collect())
    }

    /// Puts the values that are known to be harmless in the place of those that may not be, among
    /// what is remembered of the datastore.
    pub fn amend(&self, remembered: &mut BTreeMap<String, String>) {
        for (key, entry) in &self.entries {
            match entry.good.as_deref().map(std::str::from_utf8) {
                Some(Ok(good)) => drop(remembered.insert(key.clone(), good.to_owned())),
                _ => drop(remembered.remove(key)),
            }
        }
    }

    /// Whether it is being found out which of several changes is to blame: no other one may come
    /// into force meanwhile.
    fn is_sifting(&self) -> bool {
        let is_suspect = match &self.phase {
            Phase::Idle => false,
            Phase::With(batch, _) => batch.is_suspect,
            Phase::Without(..) => true,
        };
        self.has_started && (is_suspect || !self.queue.is_empty())
    }

    fn add(&mut self, key: &str, mut entry: Entry, waits: bool) {
        if waits {
            entry.place = Place::Back;
            self.is_unsaved = true;
            if self.queue.back().is_none_or(|last| last.is_suspect) {
                self.queue.push_back(Batch::default());
            }
            let last = self.queue.back_mut().expect("it was put there just now");
            last.keys.insert(key.to_owned());
        }
        self.entries.insert(key.to_owned(), entry);
    }

    fn forget(&mut self, key: &str) {
        self.entries.remove(key);
        for batch in self.batches() {
            batch.keys.remove(key);
        }
    }

    fn batches(&mut self) -> impl Iterator<Item = &mut Batch> {
        let current = match &mut self.phase {
            Phase::Idle => None,
            Phase::With(batch, _) | Phase::Without(batch, _) => Some(batch),
        };
        self.queue.iter_mut().chain(current)
    }

    fn put(&mut self, batch: &Batch, place: Place, outcome: &mut Outcome) {
        (self.is_unsaved, self.is_staged) = (true, true);
        for key in &batch.keys {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.place = place;
                outcome.retake.insert(key.clone());
            }
        }
    }

    /// The next batch comes into force.
    fn next(&mut self, outcome: &mut Outcome) {
        self.queue.retain(|batch| !batch.keys.is_empty());
        let Some(batch) = self.queue.pop_front() else { return };
        self.put(&batch, Place::InForce, outcome);
        self.phase = Phase::With(batch, None);
    }

    /// What was read and not yet given to the kernel waits for its turn.
    fn defer(&mut self, outcome: &mut Outcome) {
        let fresh = self.entries.iter().filter(|(_, entry)| entry.place == Place::Fresh);
        let keys: BTreeSet<String> = fresh.map(|(key, _)| key.clone()).collect();
        if !keys.is_empty() {
            let batch = Batch { keys, ..Batch::default() };
            self.put(&batch, Place::Back, outcome);
            self.queue.push_back(batch);
        }
    }

    fn accept(&mut self, batch: &Batch, outcome: &mut Outcome) {
        self.is_unsaved = true;
        for key in &batch.keys {
            if self.entries.remove(key).is_some_and(|entry| entry.was_held) {
                outcome.news.push(News::Released(key.clone()));
            }
        }
        if batch.is_suspect {
            return;
        }
        // Something else may have mended what is held.
        for (key, entry) in self.entries.iter_mut().filter(|it| it.1.place == Place::Held) {
            entry.place = Place::Back;
            let keys = BTreeSet::from([key.clone()]);
            let batch = Batch { keys, strikes: STRIKES - 1, is_suspect: true, ..Batch::default() };
            self.queue.push_back(batch);
        }
    }

    /// The datastore is within reach without this batch.
    fn blame(&mut self, mut batch: Batch, outcome: &mut Outcome) {
        self.is_unsaved = true;
        batch.is_suspect = true;
        if batch.keys.len() > 1 {
            let middle = batch.keys.iter().nth(batch.keys.len() / 2).cloned().unwrap_or_default();
            let keys = batch.keys.split_off(&middle);
            batch.strikes = 0;
            self.queue.push_front(Batch { keys, ..batch.clone() });
            self.queue.push_front(batch);
            return;
        }
        batch.strikes += 1;
        if batch.strikes < STRIKES {
            self.queue.push_front(batch);
            return;
        }
        for key in batch.keys {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            (entry.place, entry.was_held) = (Place::Held, true);
            if !std::mem::replace(&mut entry.is_blamed, true) {
                outcome.news.push(News::Held(key));
            }
        }
    }
}

impl Entry {
    fn fresh(good: Option<Vec<u8>>, revision: i64, is_removal: bool) -> Self {
        let place = Place::Fresh;
        Self { good, revision, is_removal, place, is_blamed: false, was_held: false }
    }
}

impl Batch {
    fn patience(&self) -> Duration {
        match self.round {
            0 => PATIENCE,
            round => (LATER * 2_u32.saturating_pow(round - 1)).min(LATER_MAX),
        }
    }
}

/// Whether an object can change what the endpoints of hosts do.
fn counts(key: &str) -> bool {
    let rest = key.strip_prefix(RESOURCES);
    let kind = rest.and_then(|rest| rest.split('/').next());
    kind.is_some_and(|kind| KINDS.contains(&kind))
}

#[cfg(test)]
mod tests;
