//! What the agent remembers of how it goes: the connection to the datastore, the last change of
//! the kernel, and how often what happened. What changes is noted as an event, once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use host::events::{Event, Events, Wanted};
use intent::Dispute;
use net::Cidr;

use crate::disk::Unwritable;
use crate::finding::{Finding, Severity, spoken};
use crate::repairs::Repairs;

/// The sorts of events by which one knows whether the datastore is lost, and how the text of the
/// first begins.
const LOST: &str = "lost";
const BACK: &str = "back";
const LOST_STORE: &str = "the datastore at ";

/// How many routes an event names.
const NAMED_MAX: usize = 5;

/// The memory.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) started: SystemTime,
    vitals: Mutex<Vitals>,
}

/// All of it at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Vitals {
    pub(crate) is_connected: bool,
    /// Since when it is, or is not.
    pub(crate) connection_since: SystemTime,
    pub(crate) store_problem: Option<String>,
    /// When an earlier run of the agent noted that the datastore is lost, if it has not been back
    /// since.
    lost_before: Option<String>,
    /// Whether the watch stands: everything was read, and changes arrive.
    is_watching: bool,
    /// Why the node is not in the datastore yet.
    pub(crate) registration: Registration,
    pub(crate) revision: i64,
    /// How often everything was in sync, after the start or after an outage.
    pub(crate) n_syncs: u64,
    /// Whether calls are served.
    pub(crate) is_serving: bool,
    pub(crate) kernel_problem: Option<String>,
    pub(crate) n_flushes: u64,
    pub(crate) n_failures: u64,
    pub(crate) flush_time: Duration,
    pub(crate) routes_repaired: u64,
    pub(crate) filter_repaired: u64,
    filter_repairs: Repairs,
    pub(crate) http_problem: Option<String>,
    /// What of the node's own files cannot be written.
    pub(crate) unwritable: Option<Unwritable>,
    quarantined: BTreeMap<String, Vec<String>>,
    disputes: Vec<Dispute>,
}

/// Whether the datastore knows the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Registration {
    /// It was not told yet.
    #[default]
    Waiting,
    /// It could not be told.
    Refused(String),
    /// It knows.
    Done,
}

/// When the datastore was lost, if the events say that it has not been back since.
pub(crate) fn lost_before(events: &Events) -> Option<String> {
    let all = events.read(&Wanted::default());
    let is_lost = |event: &Event| event.sort == LOST && event.text.starts_with(LOST_STORE);
    let last = all.into_iter().rev().find(|event| event.sort == BACK || is_lost(event));
    last.filter(is_lost).map(|event| event.time)
}

/// How a change of the kernel went.
#[derive(Debug)]
pub(crate) struct Flushed<'a> {
    pub(crate) problem: Option<String>,
    pub(crate) took: Duration,
    /// Routes that had been taken away.
    pub(crate) routes: Vec<Cidr>,
    /// Whether our tables had been.
    pub(crate) filter: bool,
    /// What of it was not as it was made, where that is known.
    pub(crate) damage: Option<String>,
    /// What cannot be used now.
    pub(crate) quarantined: &'a BTreeMap<String, Vec<String>>,
    /// Addresses of ours that others hold.
    pub(crate) disputes: Vec<Dispute>,
}

impl Health {
    /// Nothing has happened yet.
    pub(crate) fn new(lost_before: Option<String>) -> Self {
        let started = SystemTime::now();
        let vitals = Vitals {
            is_connected: false,
            connection_since: started,
            store_problem: None,
            lost_before,
            is_watching: false,
            registration: Registration::Waiting,
            revision: 0,
            n_syncs: 0,
            is_serving: false,
            kernel_problem: None,
            n_flushes: 0,
            n_failures: 0,
            flush_time: Duration::ZERO,
            routes_repaired: 0,
            filter_repaired: 0,
            filter_repairs: Repairs::default(),
            http_problem: None,
            unwritable: None,
            quarantined: BTreeMap::new(),
            disputes: Vec::new(),
        };
        Self { started, vitals: Mutex::new(vitals) }
    }

    /// Everything now.
    pub(crate) fn vitals(&self) -> Vitals {
        self.lock().clone()
    }

    /// Calls are served.
    pub(crate) fn serving(&self) {
        self.lock().is_serving = true;
    }

    /// Everything up to a revision has been seen.
    pub(crate) fn seen(&self, revision: i64) {
        let mut vitals = self.lock();
        vitals.revision = vitals.revision.max(revision);
    }

    /// Changes arrive.
    pub(crate) fn connected(&self, events: &Events, revision: i64) {
        let mut vitals = self.lock();
        vitals.revision = vitals.revision.max(revision);
        vitals.is_watching = true;
        if vitals.is_connected {
            return;
        }
        vitals.n_syncs += 1;
        vitals.back(events);
    }

    /// Changes do not arrive any more.
    pub(crate) fn disconnected(&self, events: &Events, place: &str, error: &str) {
        let mut vitals = self.lock();
        vitals.is_watching = false;
        vitals.lost(events, place, error);
    }

    /// A request was not answered. The watch may find out much later, or never.
    pub(crate) fn unanswered(&self, events: &Events, place: &str, error: &str) {
        self.lock().lost(events, place, error);
    }

    /// A request was answered.
    pub(crate) fn answered(&self, events: &Events) {
        let mut vitals = self.lock();
        if vitals.is_watching && !vitals.is_connected {
            vitals.back(events);
        }
    }

    /// Why the datastore need not be asked now, if so.
    pub(crate) fn outage(&self) -> Option<String> {
        let vitals = self.lock();
        match (&vitals.store_problem, vitals.is_connected) {
            (_, true) => None,
            (Some(problem), false) => Some(problem.clone()),
            (None, false) => Some("it is being read for the first time".to_owned()),
        }
    }

    /// For how long the datastore has been answering.
    pub(crate) fn connected_for(&self) -> Option<Duration> {
        let vitals = self.lock();
        vitals.is_connected.then(|| vitals.connection_since.elapsed().unwrap_or_default())
    }

    /// The datastore knows the node, or refuses it.
    pub(crate) fn registered(&self, events: &Events, registration: Registration) {
        let mut vitals = self.lock();
        if vitals.registration == registration {
            return;
        }
        if let Registration::Refused(why) = &registration {
            events.note("failed", &format!("the node is not in the datastore: {why}"));
        }
        vitals.registration = registration;
    }

    /// The address for health and metrics cannot be had, or can.
    pub(crate) fn http(&self, events: &Events, problem: Option<String>) {
        let mut vitals = self.lock();
        if let Some(problem) = &problem
            && vitals.http_problem.is_none()
        {
            events.note("failed", problem);
        }
        vitals.http_problem = problem;
    }

    /// The node's own files can be written, or cannot.
    pub(crate) fn written(&self, events: &Events, trouble: Option<Unwritable>) {
        let mut vitals = self.lock();
        let before = vitals.unwritable.take();
        match (&before, &trouble) {
            (None, Some(trouble)) => events.note("failed", &trouble.spoken()),
            (Some(before), None) => {
                events.note("mended", &format!("it is over that {}", before.spoken()));
            }
            _ => {}
        }
        vitals.unwritable = match before {
            Some(before) => trouble.map(|trouble| trouble.since(&before)),
            None => trouble,
        };
    }

    /// The kernel was changed, or could not be.
    pub(crate) fn flushed(&self, events: &Events, flushed: &Flushed<'_>) {
        let mut vitals = self.lock();
        vitals.n_flushes += 1;
        vitals.flush_time += flushed.took;
        vitals.n_failures += u64::from(flushed.problem.is_some());
        if let Some(problem) = &flushed.problem
            && vitals.kernel_problem.is_none()
        {
            let text = format!("the kernel could not be brought up to date: {problem}");
            events.note("failed", &text);
        }
        vitals.kernel_problem.clone_from(&flushed.problem);
        if !flushed.routes.is_empty() {
            vitals.routes_repaired += u64::try_from(flushed.routes.len()).unwrap_or(u64::MAX);
            events.note("repaired", &spoken_routes(&flushed.routes));
        }
        if flushed.filter {
            vitals.filter_repaired += 1;
            let damage = flushed.damage.as_deref();
            if let Some(text) = vitals.filter_repairs.add(Instant::now(), damage) {
                events.note("repaired", &text);
            }
        }
        vitals.note_quarantine(events, flushed.quarantined);
        vitals.note_disputes(events, &flushed.disputes);
    }

    fn lock(&self) -> MutexGuard<'_, Vitals> {
        self.vitals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vitals {
    /// What is wrong, as far as this memory knows; `place` is the datastore.
    pub(crate) fn findings(&self, place: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(problem) = &self.store_problem {
            findings.push(Finding::store_lost(place, problem, self));
        }
        if let Registration::Refused(why) = &self.registration {
            findings.push(Finding::not_registered(why));
        }
        if let Some(problem) = &self.kernel_problem {
            findings.push(Finding::kernel_refuses(problem));
        }
        findings.extend(self.filter_repairs.finding(Instant::now()));
        findings.extend(self.unwritable.as_ref().map(Unwritable::finding));
        if let Some(problem) = &self.http_problem {
            findings.push(Finding::http_taken(problem));
        }
        findings
    }

    /// How many objects cannot be used.
    pub(crate) fn n_quarantined(&self) -> usize {
        self.quarantined.len()
    }

    fn lost(&mut self, events: &Events, place: &str, error: &str) {
        if self.is_connected {
            self.connection_since = SystemTime::now();
        }
        // One outage is one event, however often the agent starts meanwhile.
        if self.store_problem.is_none() && self.lost_before.is_none() {
            events.note(LOST, &format!("{LOST_STORE}{place} does not answer: {error}"));
        }
        self.is_connected = false;
        self.store_problem = Some(error.to_owned());
    }

    fn back(&mut self, events: &Events) {
        if let Some(time) = self.lost_before.take() {
            let text = format!("the datastore answers again; it was lost at {time}");
            events.note(BACK, &text);
        } else if self.store_problem.is_some() {
            let away = self.connection_since.elapsed().unwrap_or_default().as_secs();
            events.note(BACK, &format!("the datastore answers again after {away} s"));
        }
        self.is_connected = true;
        self.store_problem = None;
        self.connection_since = SystemTime::now();
    }

    fn note_disputes(&mut self, events: &Events, now: &[Dispute]) {
        for dispute in now.iter().filter(|it| !self.disputes.contains(it)) {
            events.note("closed", &Finding::disputed(dispute).problem);
        }
        for Dispute { address, interface, .. } in
            self.disputes.iter().filter(|it| !now.contains(it))
        {
            let text = format!("{address} is not held by another any more; {interface} is open");
            events.note("opened", &text);
        }
        self.disputes = now.to_vec();
    }

    fn note_quarantine(&mut self, events: &Events, now: &BTreeMap<String, Vec<String>>) {
        if self.quarantined == *now {
            return;
        }
        for (key, problems) in now {
            if self.quarantined.get(key) != Some(problems) {
                let (object, problems) = (spoken(key), problems.join("; "));
                let text = format!("{object} cannot be used as it is: {problems}");
                events.note("quarantine", &text);
            }
        }
        for key in self.quarantined.keys().filter(|key| !now.contains_key(*key)) {
            events.note("released", &format!("{} was put right or deleted", spoken(key)));
        }
        self.quarantined.clone_from(now);
    }
}

fn spoken_routes(routes: &[Cidr]) -> String {
    let named: Vec<String> = routes.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = match routes.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (word, were) = if routes.len() == 1 { ("route", "was") } else { ("routes", "were") };
    let named = named.join(", ");
    format!("{word} {named}{more} {were} removed or changed by another program; restored")
}

/// Findings about the agent itself.
impl Finding {
    fn store_lost(place: &str, problem: &str, vitals: &Vitals) -> Self {
        let waiting = vitals.connection_since.elapsed().unwrap_or_default().as_secs();
        let left = match vitals.n_syncs {
            0 => "nothing was read since the start, so the kernel is left as it is",
            _ => "what runs goes on",
        };
        let problem = format!("{place} does not answer for {waiting} s: {problem}; {left}");
        let fix = "margay version      # does it answer to you? the agent tries again by itself";
        Self::new("MG-STORE-001", Severity::Degraded, "STORE", problem, fix.to_owned())
    }

    fn not_registered(why: &str) -> Self {
        let problem = format!("the node is not in the datastore: {why}");
        let fix = "margay get nodes      # the agent tries again by itself".to_owned();
        Self::new("MG-NODE-001", Severity::Broken, "STORE", problem, fix)
    }

    fn kernel_refuses(problem: &str) -> Self {
        let problem = format!("the kernel is not up to date: {problem}");
        Self::new("MG-KERNEL-001", Severity::Broken, "KERNEL", problem, String::new())
    }

    fn http_taken(problem: &str) -> Self {
        let fix = "ss -ltnp      # who has it? Or another one: margay agent --http ADDRESS:PORT";
        let (problem, fix) = (problem.to_owned(), fix.to_owned());
        Self::new("MG-HTTP-001", Severity::Degraded, "AGENT", problem, fix)
    }

    /// Sandboxes that are gone, and whose addresses are not free yet.
    pub(crate) fn release_waits(n: usize) -> Self {
        let gone = text::words::count(n, "sandbox");
        let problem = format!("{gone} left without it; their addresses are freed when it is back");
        Self::new("MG-STORE-002", Severity::Degraded, "STORE", problem, String::new())
    }
}

#[cfg(test)]
mod tests {
    use host::events::read;

    use super::*;

    #[test]
    fn what_stays_is_noted_once_and_what_ends_is_noted_too() {
        let folder = tempfile::tempdir().unwrap();
        let events = Events::open(folder.path().join("events.jsonl"));
        let health = Health::new(None);
        let bad = BTreeMap::from([("/calico/x".to_owned(), vec!["spec: wrong".to_owned()])]);
        let flush = |problem: Option<&str>, quarantined: &BTreeMap<String, Vec<String>>| {
            let (routes, problem) = (Vec::new(), problem.map(str::to_owned));
            let (took, disputes) = (Duration::ZERO, Vec::new());
            let flushed = Flushed {
                problem,
                took,
                routes,
                filter: false,
                damage: None,
                quarantined,
                disputes,
            };
            health.flushed(&events, &flushed);
        };
        flush(Some("no memory"), &bad);
        flush(Some("no memory"), &bad);
        flush(None, &BTreeMap::new());
        health.connected(&events, 7);
        for _ in 0..3 {
            health.disconnected(&events, "etcd", "refused");
        }
        health.connected(&events, 9);
        health.connected(&events, 10);
        let sorts: Vec<String> =
            read(events.path(), &Wanted::default()).into_iter().map(|event| event.sort).collect();
        assert_eq!(sorts, ["failed", "quarantine", "released", "lost", "back"]);
        let vitals = health.vitals();
        assert_eq!((vitals.n_failures, vitals.n_syncs, vitals.revision), (2, 2, 10));
        assert_eq!(vitals.findings("etcd"), []);
    }

    #[test]
    fn many_routes_are_counted_and_some_are_named() {
        let routes: Vec<Cidr> = (0..8).map(|n| format!("10.0.0.{n}/32").parse().unwrap()).collect();
        assert!(spoken_routes(&routes[..1]).starts_with("route 10.0.0.0/32 was removed"));
        assert!(spoken_routes(&routes).contains("10.0.0.4/32 and 3 more were removed"));
    }
}
