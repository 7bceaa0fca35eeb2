//! An engine that comes to grief: no object should be able to bring that about.
//!
//! One that panics while it absorbs an object, or while what it says is carried out, is built anew
//! from everything but the object to blame, which is put aside for good; of one that protects
//! something, the value before stays in force. Which one it is, is known while it is absorbed;
//! otherwise it is one of those that were absorbed since the kernel was last brought up to date:
//! they come last then, one by one, each tried on paper.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::{Duration, Instant};

use intent::{Changed, Inputs, Read};
use policy::intent::Dirty;
use policy::render::Renderer;

use crate::poison::Poison;
use crate::supervisor::say;

use super::{Dataplane, Error, Node, current, inputs_of};

/// So many objects may break the engine of a plugin that acts alone before it gives up.
const GRIEF_MAX: usize = 8;
/// How long a change of the kernel waits for an engine that is built anew.
const REBUILD_PATIENCE: Duration = Duration::from_secs(20);

/// A wait that is longer is said.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// What is known of objects that the engine cannot bear.
#[derive(Debug)]
pub(super) struct Grief {
    poison: Poison,
    /// Why the engine has to be built anew.
    broken: Option<String>,
    /// Whether that is under way: everything is being read again.
    is_rebuilding: bool,
    /// What was absorbed since the kernel was brought up to date.
    recent: BTreeSet<String>,
    /// Of these, one broke the engine.
    suspects: BTreeSet<String>,
    /// Their values, while everything else is read.
    withheld: BTreeMap<String, Vec<u8>>,
}

impl Grief {
    pub(super) fn new(state: &Path) -> Self {
        Self {
            poison: Poison::read(state),
            broken: None,
            is_rebuilding: false,
            recent: BTreeSet::new(),
            suspects: BTreeSet::new(),
            withheld: BTreeMap::new(),
        }
    }

    /// Why the kernel cannot be brought up to date.
    pub(super) fn error(&self) -> Option<kernel::Error> {
        let why = match (&self.broken, self.is_rebuilding) {
            (Some(why), _) => why.as_str(),
            (None, true) => "it is being built anew",
            (None, false) => return None,
        };
        Some(kernel::Error::System {
            attempt: "the engine of policies".to_owned(),
            source: io::Error::other(why.to_owned()),
        })
    }

    /// The kernel was brought up to date: whatever was absorbed can be borne.
    pub(super) fn is_over(&mut self) {
        self.recent.clear();
        self.suspects.clear();
    }
}

/// A place where a test has the engine come to grief over a policy that is carried out.
pub(super) fn rehearse(dirty: &Dirty) {
    dirty.policies.iter().for_each(|id| host::fault::grief_over("flush", &id.to_string()));
}

/// What a panic said.
fn words(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason")
}

/// Endpoints before policies: it is these that rules are made from, and whoever brings rules into
/// being is not to blame for them.
fn rank(key: &str) -> u8 {
    u8::from(key.contains("policies/")) + u8::from(!key.contains("endpoints/"))
}

impl Node {
    /// Reads everything once; for a plugin that acts alone.
    pub(crate) fn load(&self) -> Result<(), Error> {
        let known = self.read_known();
        // Each time round, what broke the engine is put aside.
        for _ in 0..GRIEF_MAX {
            let mut dataplane = self.dataplane();
            dataplane.memory.learn(&known);
            for prefix in Inputs::prefixes() {
                for entry in self.store.list(prefix)?.entries {
                    dataplane.take_in(&entry.key, Some(&entry.value), entry.mod_revision, None);
                }
            }
            dataplane.complete();
            if dataplane.grief.broken.is_none() {
                return Ok(());
            }
            drop(dataplane);
            self.start_anew();
        }
        Err(io::Error::other("too many objects of the datastore cannot be borne").into())
    }

    /// Whether the engine came to grief: everything has to be read again.
    pub(crate) fn is_broken(&self) -> bool {
        self.dataplane().grief.broken.is_some()
    }

    /// Builds the engine anew, from nothing: everything has to be read again. The kernel stays as
    /// it is meanwhile.
    pub(crate) fn start_anew(&self) {
        let records = current(&self.here, self.journal.all());
        let mut dataplane = self.dataplane();
        dataplane.inputs = inputs_of(&self.name, &records, &self.boot);
        dataplane.ahead.clear();
        dataplane.changed = Changed { routes: true, filter: true, settings: true };
        dataplane.filter.doubt(false);
        let grief = &mut dataplane.grief;
        grief.broken = None;
        grief.is_rebuilding = true;
        grief.withheld.clear();
    }

    /// Waits for an engine that is built anew.
    pub(super) fn await_rebuilding(&self) {
        let began = Instant::now();
        let is_waiting = || {
            let dataplane = self.dataplane();
            let is_broken = self.has_agent() && dataplane.grief.broken.is_some();
            is_broken || dataplane.grief.is_rebuilding
        };
        let mut is_said = false;
        while began.elapsed() < REBUILD_PATIENCE && is_waiting() {
            std::thread::sleep(Duration::from_millis(2));
            if !is_said && began.elapsed() > SILENCE_MAX {
                let seconds = REBUILD_PATIENCE.as_secs();
                say(&format!("waiting for the engine to be built anew, {seconds} s at most"));
                is_said = true;
            }
        }
    }
}

impl Dataplane {
    /// Has the engine absorb a value, which may have been read already. One at which it comes to
    /// grief is put aside for good, and the engine is built anew.
    pub(super) fn absorb(&mut self, key: &str, stored: Option<&[u8]>, read: Option<Read>) {
        let value = self.overlay.over(key, self.trials.over(key, stored));
        let read = read.filter(|_| value == stored);
        if let Some(value) = value
            && let Some(why) = self.grief.poison.why(key, value)
        {
            let (inputs, memory) = (&mut self.inputs, &self.memory);
            let told = AssertUnwindSafe(|| memory.tell_aside(inputs, key, value, why));
            if let Ok(changed) = std::panic::catch_unwind(told) {
                self.changed |= changed;
                return;
            }
            self.memory.forget_earlier(key);
            self.grief.broken = Some(format!("{key}: an earlier value cannot be borne either"));
            return;
        }
        self.grief.poison.forgive(key);
        self.grief.recent.insert(key.to_owned());
        let is_suspect = self.grief.is_rebuilding && self.grief.suspects.contains(key);
        if is_suspect && let Some(value) = value {
            self.grief.withheld.insert(key.to_owned(), value.to_vec());
            return;
        }
        self.grief.withheld.remove(key);
        let (inputs, memory) = (&mut self.inputs, &self.memory);
        let absorbed = std::panic::catch_unwind(AssertUnwindSafe(|| {
            host::fault::grief(key);
            memory.tell(inputs, key, value, read)
        }));
        match absorbed {
            Ok(changed) => self.changed |= changed,
            Err(payload) => {
                let value = value.unwrap_or_default().to_vec();
                self.put_aside(key, &value, words(payload.as_ref()));
            }
        }
    }

    /// Puts an object aside at which the engine came to grief.
    fn put_aside(&mut self, key: &str, value: &[u8], words: &str) {
        let why = format!("the engine cannot bear it: {words}");
        if let Err(error) = self.grief.poison.add(key, value, &why) {
            say(&format!("{key}: {why}; it could not be written down: {error}"));
        }
        self.grief.broken = Some(why);
    }

    /// Everything was read. Objects of which one broke the engine come last; if another one does,
    /// nothing is complete.
    pub(super) fn complete(&mut self) {
        if self.grief.is_rebuilding || !self.is_complete() {
            self.settle();
        }
        let withheld = std::mem::take(&mut self.grief.withheld);
        if !withheld.is_empty() && self.grief.broken.is_none() {
            self.try_out(withheld);
        }
        if self.grief.broken.is_none() {
            self.inputs.complete();
            self.grief.is_rebuilding = false;
        }
    }

    /// Absorbs objects one by one, and renders on paper what each of them makes different: the one
    /// at which that comes to grief is to blame.
    fn try_out(&mut self, withheld: BTreeMap<String, Vec<u8>>) {
        let mut order: Vec<(String, Vec<u8>)> = withheld.into_iter().collect();
        order.sort_by_key(|(key, _)| rank(key));
        let mut paper = Renderer::new(self.filter.settings().clone());
        let (inputs, grief) = (&mut self.inputs, &mut self.grief);
        let rest = std::panic::catch_unwind(AssertUnwindSafe(|| {
            inputs.flush_policy();
            let change = paper.install(inputs.policy(), &inputs.surroundings());
            paper.committed(change);
        }));
        if let Err(payload) = rest {
            // It is none of them, or not one alone: all are suspected, and so is what stands in
            // for others that were.
            grief.poison.keys().for_each(|key| self.memory.forget_earlier(key));
            grief.suspects.extend(std::mem::take(&mut grief.recent));
            grief.broken = Some(words(payload.as_ref()).to_owned());
            return;
        }
        for (key, value) in order {
            let (inputs, memory) = (&mut self.inputs, &self.memory);
            let tried = std::panic::catch_unwind(AssertUnwindSafe(|| {
                host::fault::grief(&key);
                let changed = memory.tell(inputs, &key, Some(&value), None);
                let dirty = inputs.flush_policy();
                rehearse(&dirty);
                let change = paper.update(inputs.policy(), &dirty, &inputs.surroundings());
                paper.committed(change);
                changed
            }));
            match tried {
                Ok(changed) => self.changed |= changed,
                Err(payload) => return self.put_aside(&key, &value, words(payload.as_ref())),
            }
        }
    }

    /// Brings the kernel up to date. What comes to grief on the way has changed nothing that will
    /// not be done again, and nobody is told that it was done.
    pub(super) fn guarded(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), kernel::Error>,
    ) -> Result<(), kernel::Error> {
        let payload = match std::panic::catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(done) => return done,
            Err(payload) => payload,
        };
        let why = format!("it came to grief: {}", words(payload.as_ref()));
        self.filter.doubt(false);
        let grief = &mut self.grief;
        if self.recalled.is_none() {
            grief.suspects.extend(std::mem::take(&mut grief.recent));
            grief.broken = Some(why.clone());
        }
        Err(kernel::Error::System {
            attempt: "the engine of policies".to_owned(),
            source: io::Error::other(why),
        })
    }
}
