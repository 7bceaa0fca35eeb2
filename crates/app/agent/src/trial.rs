//! Changes of this host's policy are on trial: whatever cuts the node off from its datastore is
//! taken back, held until it changes, and named.
//!
//! What is decided when is [`intent::hold`]'s. Here it meets the file in which the next run finds
//! it, the connections by which it is found out, and the words for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::Kind;
use host::events::Events;
use host::known::Known;
use intent::hold::{Held, Hold, News, Outcome, Saved, Test};
use serde::{Deserialize, Serialize};
use store::Store;
use store::resources::Name;

use crate::finding::{Finding, Severity, spoken};
use crate::node::Node;
use crate::supervisor::say;

/// How long one connection may take.
const TRY: Duration = Duration::from_millis(1500);
/// Between two connections, and where nothing but time is at stake.
const PAUSE: Duration = Duration::from_millis(250);
const LONG_PAUSE: Duration = Duration::from_secs(2);

/// How often, and how many times, the kernel is asked to take something back.
const RETRY: Duration = Duration::from_secs(1);
const RETRIES: usize = 60;

/// How many objects an event names.
const NAMED_MAX: usize = 5;

/// The file is read up to this size; what is longer is not ours.
const BYTES_MAX: u64 = 16 << 20;
const FORMAT: u32 = 1;

/// The trials, and where they are written down.
#[derive(Debug)]
pub(crate) struct Trials {
    hold: Hold,
    path: PathBuf,
    file: File,
    clock: Instant,
    bell: Arc<Bell>,
}

/// Rings when there is something to find out.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

/// What is written down.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct File {
    format: u32,
    node: String,
    /// The datastore whose objects they are.
    place: String,
    objects: BTreeMap<String, Object>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Object {
    good: Option<String>,
    revision: i64,
    is_removal: bool,
    is_held: bool,
}

impl Bell {
    fn ring(&self) {
        *self.has_rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_all();
    }

    fn wait(&self) {
        let mut has_rung = self.has_rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !std::mem::take(&mut *has_rung) {
            has_rung = self.rings.wait(has_rung).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Trials {
    /// What an earlier run wrote down of the same node and datastore. A file that cannot be used is
    /// put aside and named.
    pub(crate) fn read(state: &Path, node: &str, place: &str, events: &Events) -> Self {
        let path = state.join("held.json");
        let empty = File {
            format: FORMAT,
            node: node.to_owned(),
            place: place.to_owned(),
            objects: BTreeMap::new(),
        };
        let file = match read_file(&path) {
            Ok(Some(file)) if file.node == node && file.place == place => file,
            Ok(_) => empty,
            Err(why) => {
                let aside = host::file::put_aside(&path);
                let text = format!("list of held objects put aside: {}: {why}", aside.display());
                events.note("quarantine", &text);
                empty
            }
        };
        let saved = file.objects.clone().into_iter().map(|(key, object)| {
            let Object { good, revision, is_removal, is_held } = object;
            (key, Saved { good: good.map(String::into_bytes), revision, is_removal, is_held })
        });
        let hold = Hold::new(saved.collect());
        Self { hold, path, file, clock: Instant::now(), bell: Arc::default() }
    }

    /// The value of a key that is in force, given the stored one.
    pub(crate) fn over<'a>(&'a self, key: &str, stored: Option<&'a [u8]>) -> Option<&'a [u8]> {
        self.hold.over(key, stored)
    }

    /// The datastore has another value for a key.
    pub(crate) fn changed(
        &mut self,
        key: &str,
        before: Option<&[u8]>,
        now: Option<&[u8]>,
        revision: i64,
    ) {
        self.hold.changed(key, before, now, revision);
    }

    /// Everything was read: the keys that have a value here although the datastore has none.
    pub(crate) fn settle(&mut self, is_stored: impl Fn(&str) -> bool) -> BTreeSet<String> {
        self.hold.settle(is_stored)
    }

    /// The kernel is about to be changed. True if what is remembered has to be written anew.
    pub(crate) fn stage(&mut self, concerns_hosts: bool, hosts: &BTreeSet<String>) -> bool {
        self.hold.stage(concerns_hosts, hosts);
        self.write()
    }

    /// The kernel was changed.
    pub(crate) fn committed(&mut self) {
        self.hold.committed(self.clock.elapsed());
        if self.hold.test().is_some() {
            self.bell.ring();
        }
    }

    /// Whether something is not in force that the datastore has.
    pub(crate) fn is_any_back(&self) -> bool {
        self.hold.held().next().is_some()
    }

    /// Puts harmless values in the place of those that may not be.
    pub(crate) fn amend(&self, remembered: &mut BTreeMap<String, String>) {
        self.hold.amend(remembered);
    }

    /// What is not in force here, by key, and why.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (String, String)> {
        self.hold.held().map(|held| (held.key.to_owned(), self.reason(&held)))
    }

    /// What is as good as not there, by key.
    pub(crate) fn absent(&self) -> BTreeSet<String> {
        let absent = self.hold.held().filter(|held| !held.is_removal && !held.has_good);
        absent.map(|held| held.key.to_owned()).collect()
    }

    /// How many objects are held.
    pub(crate) fn n_held(&self) -> usize {
        self.hold.held().filter(|held| held.is_blamed).count()
    }

    /// Objects that are held.
    pub(crate) fn findings(&self) -> impl Iterator<Item = Finding> {
        self.hold.held().filter(|held| held.is_blamed).map(|held| {
            let fix = fix(held.key, &self.file.place);
            let problem = self.problem(&held);
            Finding::new("MG-HOST-001", Severity::Broken, "FILTER", problem, fix)
        })
    }

    /// Why an object is not in force, for those who name it themselves.
    fn reason(&self, held: &Held<'_>) -> String {
        let what = if held.is_blamed { "held" } else { "taken back for now" };
        let what = if held.is_removal { format!("its removal is {what}") } else { what.to_owned() };
        format!("{what}: it {}", self.harm(held))
    }

    fn problem(&self, held: &Held<'_>) -> String {
        let object = spoken(held.key);
        let what = match held.is_removal {
            true => format!("the removal of {object} (revision {})", held.revision),
            false => format!("{object} (revision {})", held.revision),
        };
        format!("{what} {}", self.harm(held))
    }

    /// What it does to the node, and what is done about it.
    fn harm(&self, held: &Held<'_>) -> String {
        let File { node, place, .. } = &self.file;
        let instead = match (held.is_removal, held.has_good) {
            (true, _) => "it is still in force here",
            (false, true) => "its previous version is in force here",
            (false, false) => "it is not in force here",
        };
        match held.is_blamed {
            true => format!("cuts {node} off from {place}; {instead}"),
            false => format!("may cut {node} off from {place}; {instead}"),
        }
    }

    fn note(&self, events: &Events, news: &News) {
        let place = &self.file.place;
        let all = |keys: &BTreeSet<String>| {
            let named: Vec<String> = keys.iter().take(NAMED_MAX).map(|key| spoken(key)).collect();
            match keys.len().saturating_sub(NAMED_MAX) {
                0 => named.join(", "),
                more => format!("{} and {more} more", named.join(", ")),
            }
        };
        let (sort, text) = match news {
            News::TakenBack(keys) => {
                let text = format!("{place} cannot be reached with the last change of");
                ("rolled-back", format!("{text} {}: taken back", all(keys)))
            }
            News::NotToBlame(keys) => {
                let text = format!("{place} cannot be reached without the last change of");
                ("restored", format!("{text} {} either: in force again", all(keys)))
            }
            News::Held(key) => {
                let held = self.hold.held().find(|held| held.key == key);
                let Some(held) = held else { return };
                ("held", self.problem(&held))
            }
            News::Released(key) => {
                ("released", format!("{} is in force: {place} can be reached", spoken(key)))
            }
        };
        events.note(sort, &text);
    }

    /// Writes down what changed; whether anything did.
    fn write(&mut self) -> bool {
        let Some(saved) = self.hold.take_unsaved() else { return false };
        let object = |(key, saved): (String, Saved)| {
            let Saved { good, revision, is_removal, is_held } = saved;
            let good = good.map(|good| String::from_utf8_lossy(&good).into_owned());
            (key, Object { good, revision, is_removal, is_held })
        };
        self.file.objects = saved.into_iter().map(object).collect();
        let written = serde_json::to_vec(&self.file).map_err(io::Error::other).and_then(|text| {
            host::file::replace(&self.path, &self.path.with_extension("new"), &text)
        });
        if let Err(error) = written {
            say(&format!("{}: {error}", self.path.display()));
        }
        true
    }
}

fn read_file(path: &Path) -> Result<Option<File>, String> {
    let bytes = match host::file::read(path, BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let file: File = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    match file.format {
        FORMAT => Ok(Some(file)),
        other => Err(format!("form {other} is not known, {FORMAT} is")),
    }
}

impl Node {
    /// Changes of host policy are on trial from now on, unless the datastore is a file of this
    /// host.
    pub(crate) fn begin_trials(&self, known: &Known) {
        if !matches!(self.store(), Store::Etcd(_)) {
            return;
        }
        let objects = known.objects.iter().map(|(key, value)| (key.as_str(), value.as_bytes()));
        self.dataplane().trials.hold.begin(known.is_whole.then_some(objects));
    }

    fn test(&self) -> Option<Test> {
        self.dataplane().trials.hold.test()
    }

    /// The datastore was reached by a new connection, or was not.
    fn tried(&self, test: Test, is_reached: bool) {
        let mut dataplane = self.dataplane();
        let now = dataplane.trials.clock.elapsed();
        let outcome = dataplane.trials.hold.tried(test, is_reached, now);
        for news in &outcome.news {
            dataplane.trials.note(&self.events, news);
        }
        if dataplane.trials.write() {
            dataplane.memory.doubt();
        }
        for key in &outcome.retake {
            dataplane.retake(key);
        }
        // Who is held is told to others by the same way as what is in force.
        dataplane.changed.filter |= !outcome.news.is_empty();
        drop(dataplane);
        if outcome == Outcome::default() {
            return;
        }
        for _ in 0..RETRIES {
            let Err(error) = self.flush() else { return };
            say(&format!("the kernel could not be brought up to date: {error}"));
            std::thread::sleep(RETRY);
        }
    }
}

/// Starts to find out whether the datastore can be reached whenever something is on trial.
pub(crate) fn start(node: &Arc<Node>) -> io::Result<()> {
    let node = Arc::clone(node);
    let bell = Arc::clone(&node.dataplane().trials.bell);
    std::thread::Builder::new().name("trial".into()).spawn(move || {
        loop {
            bell.wait();
            while let Some(test) = node.test() {
                let is_reached = node.store().reach(TRY).is_ok();
                node.tried(test, is_reached);
                if !is_reached {
                    std::thread::sleep(if test.is_patient { LONG_PAUSE } else { PAUSE });
                }
            }
        }
    })?;
    Ok(())
}

/// What to do about an object that cuts the node off.
fn fix(key: &str, place: &str) -> String {
    let endpoints = place.strip_prefix("etcd ").unwrap_or(place).split(',');
    let ends = endpoints.filter_map(|it| it.split_once("://")?.1.rsplit_once(':'));
    let ends: Vec<(&str, &str)> = ends.collect();
    let ports: BTreeSet<&str> = ends.iter().map(|(_, port)| *port).collect();
    let hosts: BTreeSet<&str> = ends.iter().map(|(host, _)| *host).collect();
    let joined = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<&str>>().join(", ");
    let way = match ends.is_empty() {
        true => "the way to the datastore".to_owned(),
        false => format!("tcp {} to {}", joined(ports), joined(hosts)),
    };
    let setting = "FelixConfiguration failsafeOutboundHostPorts";
    match Name::at_key(key).is_some_and(|name| name.kind == Kind::FelixConfiguration) {
        true => format!("put {way} into failsafeOutboundHostPorts, or allow it in a policy"),
        false => format!("allow {way} in it, or add that to {setting}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/deny-all";

    fn events(folder: &Path) -> Events {
        Events::open(folder.join("events.jsonl"))
    }

    fn trials(folder: &Path) -> Trials {
        Trials::read(folder, "n1", "etcd http://10.0.0.5:2379", &events(folder))
    }

    /// A policy that cuts the node off.
    fn cut(trials: &mut Trials) {
        trials.hold.begin(Some(std::iter::empty()));
        trials.changed(KEY, None, Some(b"deny"), 812);
        trials.stage(true, &BTreeSet::new());
        let mut now = Duration::ZERO;
        let mut is_in_force = true;
        while trials.n_held() == 0 {
            trials.hold.committed(now);
            now += Duration::from_secs(10);
            let test = trials.hold.test().unwrap();
            trials.hold.tried(test, !is_in_force, now);
            is_in_force = trials.over(KEY, Some(b"deny")).is_some();
        }
        trials.write();
    }

    #[test]
    fn who_is_held_is_named_and_the_next_run_knows() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = trials(folder.path());
        cut(&mut first);
        let again = trials(folder.path());
        for trials in [first, again] {
            let finding = trials.findings().next().unwrap();
            assert_eq!(
                finding.problem,
                "GlobalNetworkPolicy deny-all (revision 812) cuts n1 off from etcd \
                 http://10.0.0.5:2379; it is not in force here"
            );
            assert_eq!(
                finding.fix,
                "allow tcp 2379 to 10.0.0.5 in it, or add that to FelixConfiguration \
                 failsafeOutboundHostPorts"
            );
            assert_eq!(trials.over(KEY, Some(b"deny")), None);
            assert_eq!(
                trials.refused().collect::<Vec<_>>(),
                [(
                    KEY.to_owned(),
                    "held: it cuts n1 off from etcd http://10.0.0.5:2379; it is not in force here"
                        .to_owned()
                )]
            );
            assert_eq!(trials.absent(), BTreeSet::from([KEY.to_owned()]));
        }
        let elsewhere =
            Trials::read(folder.path(), "n1", "etcd http://other:1", &events(folder.path()));
        assert_eq!(elsewhere.n_held(), 0);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_put_aside_and_named() {
        for bad in
            ["", "{\"format\":1", "{\"format\":9,\"node\":\"\",\"place\":\"\",\"objects\":{}}"]
        {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("held.json"), bad).unwrap();
            assert_eq!(trials(folder.path()).n_held(), 0);
            let noted = std::fs::read_to_string(folder.path().join("events.jsonl")).unwrap();
            assert!(noted.contains("held.unreadable"), "{noted}");
            assert!(!folder.path().join("held.json").exists());
        }
    }
}
