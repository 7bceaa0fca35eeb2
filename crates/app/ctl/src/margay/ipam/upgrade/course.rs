//! The course of the steps: does what `sandbox::upgrade` decides, one step after the other, each
//! with a deadline and a place before and after it where a test ends the process.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use host::fault;
use host::host_local::{Folder, Lock};
use ipam::{Planned, Planner, View};
use sandbox::upgrade::{self, Claim, Endpoints, Found, Given, Journal, Problem, Standing, Step};
use serde_json::Value;
use store::ipam::Driver;

use super::super::super::arguments::{Place, UpgradeArguments};
use super::super::super::failure::Failure;
use super::super::super::session::with_surroundings;
use super::progress::Progress;
use super::surroundings;

/// How often what others let go meanwhile is claimed again.
const ROUNDS_MAX: usize = 5;
/// So many addresses are claimed in one transaction, all of a usual block: each has a handle, and
/// etcd takes 128 keys.
const AT_ONCE: usize = 64;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// The most that one request may take.
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// What came of it.
#[derive(Default)]
pub(super) struct Outcome {
    /// The node; empty where there was nothing to ask that for.
    pub(super) node: String,
    /// What was claimed, or would be.
    pub(super) claimed: Vec<Claim>,
    /// What had been claimed before.
    pub(super) held: Vec<Claim>,
    /// What was claimed before and let go since.
    pub(super) let_go: Vec<Claim>,
    /// What cannot be moved.
    pub(super) problems: Vec<Problem>,
    /// What is held by nobody, because host-local let it go meanwhile.
    pub(super) forsaken: Vec<IpAddr>,
    /// The configuration that still names host-local.
    pub(super) configuration: Option<PathBuf>,
    /// Whether there was a folder at all.
    pub(super) was_there: bool,
    /// Whether nothing of host-local is left.
    pub(super) is_done: bool,
}

/// The way of one folder.
pub(super) struct Course<'a> {
    arguments: &'a UpgradeArguments,
    place: &'a Place,
    /// Whether the host's name will do as the node's.
    takes_host_name: bool,
    folder: Folder,
    progress: Progress,
    timeout: Duration,
    n_claimed: Cell<usize>,
}

/// Everything that was read.
struct Reading {
    claims: Vec<Claim>,
    standings: Vec<Standing>,
    problems: Vec<Problem>,
    marks: Vec<String>,
}

/// The records, and where they are.
struct Records {
    driver: Driver,
    /// For people.
    place: String,
    node: String,
}

impl<'a> Course<'a> {
    pub(super) fn new(
        arguments: &'a UpgradeArguments,
        place: &'a Place,
        takes_host_name: bool,
    ) -> Result<Self, Failure> {
        if !upgrade::is_network(&arguments.network) {
            let told = format!("\"{}\" is not the name of a network, --network", arguments.network);
            return Err(Failure::new(told).fix("letters, digits, underscores, dots and dashes"));
        }
        Ok(Self {
            folder: Folder::of(&arguments.networks_dir, &arguments.network),
            timeout: Duration::from_secs(arguments.timeout),
            progress: Progress::begin(),
            n_claimed: Cell::new(0),
            arguments,
            place,
            takes_host_name,
        })
    }

    /// Goes all the way.
    pub(super) fn run(&self) -> Result<Outcome, Failure> {
        let Some(names) = self.names()? else {
            // The last run ended between its last two steps.
            if !self.arguments.plan {
                self.step(Step::End, || self.files(self.folder.forget()))?;
            }
            return Ok(Outcome { is_done: true, ..Outcome::default() });
        };
        let is_address = |name: &String| {
            let found = upgrade::read("", name, || Ok(b"x".to_vec()));
            !matches!(found, Ok(Found::Mark | Found::Lock))
        };
        if !names.iter().any(is_address) {
            return self.fold_empty(&names);
        }
        let node = surroundings::node(self.arguments, self.takes_host_name)?;
        let records = self.open(node)?;
        if self.arguments.unlock && self.step(Step::Unlock, || self.unlock(&records))? {
            self.progress.say("unlock: ClusterInformation default says datastoreReady: true now");
        }
        let cluster = self.step(Step::Reach, || self.reach(&records))?;
        let lock = match self.arguments.plan {
            true => None,
            false => match self.step(Step::Lock, || self.lock())? {
                Some(lock) => Some(lock),
                // Another run was faster.
                None => return Ok(Outcome { is_done: true, ..Outcome::default() }),
            },
        };
        let earlier = self.files(self.folder.recall())?;
        let mut journal = Journal::resume(earlier, &cluster, &records.node);
        self.go_on(&records, &mut journal, lock)
    }

    fn go_on(
        &self,
        records: &Records,
        journal: &mut Journal,
        lock: Option<Lock>,
    ) -> Result<Outcome, Failure> {
        let node = records.node.clone();
        let mut outcome = Outcome { was_there: true, node, ..Outcome::default() };
        let mut reading = self.step(Step::Read, || self.read(Step::Read, records, journal))?;
        outcome.forsaken = journal.forsaken(&reading.claims);
        let before = reading.standing(|it| *it == Standing::Held);
        if self.arguments.plan {
            outcome.claimed = reading.standing(|it| matches!(it, Standing::Free(_)));
            outcome.held = before;
        } else {
            journal.is_clearing = false;
            let before: BTreeMap<_, _> = before.iter().map(of_journal).collect();
            journal.claimed.extend(before.clone());
            reading = self.claim_all(records, journal, reading)?;
            let held = reading.standing(|it| *it == Standing::Held).into_iter();
            (outcome.held, outcome.claimed) = held.partition(|it| before.contains_key(&it.address));
        }
        outcome.let_go = reading.standing(|it| *it == Standing::LetGo);
        outcome.problems = reading.take_problems();
        outcome.configuration = surroundings::configuration(self.arguments);
        let may_clear = outcome.problems.is_empty() && outcome.configuration.is_none();
        if let Some(lock) = lock.filter(|_| may_clear) {
            self.clear(journal, &reading, lock)?;
            outcome.is_done = true;
        }
        Ok(outcome)
    }

    /// Claims until everything that can be is held, by what was read back.
    fn claim_all(
        &self,
        records: &Records,
        journal: &mut Journal,
        mut reading: Reading,
    ) -> Result<Reading, Failure> {
        let mut refused = BTreeMap::new();
        for _ in 0..ROUNDS_MAX {
            if !reading.is_open() {
                return Ok(reading);
            }
            self.claim(records, journal, &reading, &mut refused)?;
            reading = self.step(Step::Verify, || self.read(Step::Verify, records, journal))?;
            reading.refuse(&refused);
        }
        match reading.is_open() {
            false => Ok(reading),
            true => Err(Failure::new("addresses are let go as fast as they are claimed")
                .fix("margay ipam upgrade      # when less is going on")
                .after(&self.circumstances(Step::Verify))),
        }
    }

    /// One step, with its places for tests.
    fn step<T>(&self, step: Step, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        fault::point("before", step.name());
        let done =
            work().map_err(|failure| failure.said_as_fix().after(&self.circumstances(step)))?;
        self.progress.done();
        fault::point("after", step.name());
        Ok(done)
    }

    fn circumstances(&self, step: Step) -> String {
        let step = step.name();
        match self.n_claimed.get() {
            0 => format!("nothing was changed (step {step})"),
            n => format!("{n} claimed so far, the next run goes on (step {step})"),
        }
    }

    fn names(&self) -> Result<Option<Vec<String>>, Failure> {
        self.files(self.folder.names())
    }

    fn files<T>(&self, done: io::Result<T>) -> Result<T, Failure> {
        done.map_err(|error| {
            let path = self.folder.path().display();
            let why = text::plain_reason(&error);
            Failure::new(format!("{path} cannot be moved: {why}"))
                .fix(format!("ls -la {path}      # and put it right"))
        })
    }

    /// A folder without an address in it just goes: no datastore has a part in that.
    fn fold_empty(&self, names: &[String]) -> Result<Outcome, Failure> {
        let done = Outcome { was_there: true, is_done: true, ..Outcome::default() };
        if self.arguments.plan {
            return Ok(Outcome { is_done: false, ..done });
        }
        let Some(_lock) = self.step(Step::Lock, || self.lock())? else { return Ok(done) };
        for name in names.iter().filter(|name| *name != "lock") {
            self.step(Step::Remove, || self.files(self.folder.remove(name)))?;
        }
        self.step(Step::Fold, || self.files(self.folder.fold()))?;
        self.step(Step::End, || self.files(self.folder.forget()))?;
        Ok(done)
    }

    fn open(&self, node: String) -> Result<Records, Failure> {
        let timeout = self.timeout.min(REQUEST_MAX);
        let store = with_surroundings(self.place, |surroundings| {
            let choice =
                surroundings.choose().map_err(|error| Failure::from(error).said_as_fix())?;
            let opened = choice.datastore.open_with(None, |config| config.timeout = timeout);
            opened.map_err(|error| Failure::from(error).said_as_fix())
        });
        let store = store.map_err(|failure| failure.after("nothing was changed"))?;
        let place = store.describe();
        Ok(Records { driver: Driver::new(store), place, node })
    }

    fn unlock(&self, records: &Records) -> Result<bool, Failure> {
        self.ask(records, upgrade::unlock)
    }

    /// The name of the cluster, once its records may be changed.
    fn reach(&self, records: &Records) -> Result<String, Failure> {
        self.progress.say(&format!("reach: {}", records.place));
        let until = Instant::now() + self.timeout;
        loop {
            let (cluster, is_ready) = self.ask(records, |planner| upgrade::cluster(planner))?;
            if is_ready || self.arguments.plan {
                // A cluster without a name is known by where it is.
                let unnamed = cluster.is_empty();
                return Ok(if unnamed { records.place.clone() } else { cluster });
            }
            if Instant::now() > until {
                return Err(surroundings::locked(self.arguments));
            }
            let what = format!("datastoreReady: true in {}", records.place);
            self.progress.wait(&what, until.saturating_duration_since(Instant::now()));
            self.progress.because("ClusterInformation default says datastoreReady: false");
            self.pause_until_changed(records, until)?;
        }
    }

    /// Looks again and again, without starting the telling of the wait anew each time.
    fn pause_until_changed(&self, records: &Records, until: Instant) -> Result<(), Failure> {
        loop {
            std::thread::sleep(PAUSE);
            let look = self.run_once(records, until, &mut |planner| upgrade::cluster(planner));
            match look {
                Ok(Some((_, false))) if Instant::now() <= until => {}
                // Whoever asks next says what is wrong.
                _ => return Ok(()),
            }
        }
    }

    fn lock(&self) -> Result<Option<Lock>, Failure> {
        let path = self.folder.path().join("lock");
        let until = Instant::now() + self.timeout;
        self.progress.wait(&path.display().to_string(), self.timeout);
        self.progress.because("another process holds it");
        loop {
            if let Some(lock) = self.files(self.folder.try_lock())? {
                return Ok(Some(lock));
            }
            if self.names()?.is_none() {
                return Ok(None);
            }
            if Instant::now() > until {
                let (path, limit) = (path.display(), self.timeout.as_secs());
                let told = format!("another process has held {path} for {limit} s");
                return Err(Failure::new(told).fix(format!("fuser -v {path}      # who it is")));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn read(&self, step: Step, records: &Records, journal: &Journal) -> Result<Reading, Failure> {
        let folder = self.folder.path().display().to_string();
        let names = self.names()?.unwrap_or_default();
        let (mut files, mut marks, mut problems) = (Vec::<Given>::new(), Vec::new(), Vec::new());
        for name in names {
            let contents = || self.folder.read(&name).map_err(|error| text::plain_reason(&error));
            match upgrade::read(&folder, &name, contents) {
                Ok(Found::Given(given)) => files.push(given),
                Ok(Found::Mark) => marks.push(name),
                Ok(Found::Lock) => {}
                Err(problem) => problems.push(problem),
            }
        }
        let n = text::words::count(files.len() + problems.len(), "file");
        let (step, place) = (step.name(), &records.place);
        self.progress.say(&format!("{step}: {n} in {folder}, records in {place}"));
        let (endpoints, object) = self.insist(records, |_| surveyed(records))?;
        let (node, network) = (&records.node, &self.arguments.network);
        let (claims, more) = upgrade::intend(node, network, &files, &endpoints, object.as_ref());
        problems.extend(more);
        let standings =
            self.ask(records, |planner| upgrade::survey(planner, node, journal, &claims))?;
        Ok(Reading { claims, standings, problems, marks })
    }

    /// Claims what is free, block by block; notes what turned out not to be.
    fn claim(
        &self,
        records: &Records,
        journal: &mut Journal,
        reading: &Reading,
        refused: &mut BTreeMap<IpAddr, Standing>,
    ) -> Result<(), Failure> {
        let mut blocks: BTreeMap<_, Vec<Claim>> = BTreeMap::new();
        for (claim, standing) in reading.claims.iter().zip(&reading.standings) {
            if let Standing::Free(block) = standing {
                blocks.entry(*block).or_default().push(claim.clone());
            }
        }
        self.step(Step::Begin, || self.files(self.folder.note(journal)))?;
        let n_blocks = blocks.len();
        for (n, (block, claims)) in (1..).zip(blocks) {
            let n_claims = text::words::count(claims.len(), "address");
            self.progress.say(&format!("claim: {n_claims} in {block} ({n} of {n_blocks} blocks)"));
            for some in claims.chunks(AT_ONCE) {
                let node = &records.node;
                let standings = self.step(Step::Claim, || {
                    self.ask(records, |planner| upgrade::claim(planner, node, journal, some))?
                        .ok_or_else(|| surroundings::locked(self.arguments))
                })?;
                for (claim, standing) in some.iter().zip(standings) {
                    match standing {
                        Standing::Held => {
                            self.n_claimed.set(self.n_claimed.get() + 1);
                            journal.claimed.extend([of_journal(claim)]);
                        }
                        other => drop(refused.insert(claim.address, other)),
                    }
                }
                self.step(Step::Note, || self.files(self.folder.note(journal)))?;
            }
        }
        Ok(())
    }

    /// Everything is claimed and was read back: the files go.
    fn clear(&self, journal: &mut Journal, reading: &Reading, _lock: Lock) -> Result<(), Failure> {
        journal.is_clearing = true;
        self.step(Step::Turn, || self.files(self.folder.note(journal)))?;
        let files = reading.claims.iter().filter_map(|claim| claim.file.as_deref());
        let names = files.filter_map(|file| file.rsplit('/').next());
        let names: Vec<&str> = names.chain(reading.marks.iter().map(String::as_str)).collect();
        self.progress.say(&format!("remove: {}", text::words::count(names.len(), "file")));
        for name in names {
            self.step(Step::Remove, || self.files(self.folder.remove(name)))?;
        }
        self.step(Step::Fold, || self.files(self.folder.fold()))?;
        self.step(Step::End, || self.files(self.folder.forget()))
    }

    /// Plans and commits, within the deadline of a step.
    fn ask<T>(
        &self,
        records: &Records,
        mut operation: impl FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Result<T, Failure> {
        let answer = self.insist(records, |until| self.run_once(records, until, &mut operation))?;
        answer.ok_or_else(|| {
            let limit = self.timeout.as_secs();
            Failure::new(format!("{} took more than {limit} s", records.place))
                .fix(format!("--timeout {}      # or look why it is slow", limit * 4))
        })
    }

    /// None when the time is over: a store that answers, but slowly, is left between two requests.
    fn run_once<T>(
        &self,
        records: &Records,
        until: Instant,
        operation: &mut dyn FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Result<Option<T>, store::ipam::Error> {
        let done =
            records.driver.run(&mut View::default(), |planner| match Instant::now() > until {
                true => Ok(None),
                false => operation(planner).map(Some),
            })?;
        Ok(done.answer)
    }

    /// Asks again until there is an answer, or the time of a step is over.
    fn insist<T>(
        &self,
        records: &Records,
        mut ask: impl FnMut(Instant) -> Result<T, store::ipam::Error>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + self.timeout;
        self.progress.wait(&records.place, self.timeout);
        loop {
            let began = Instant::now();
            let error = match ask(until) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.progress.because(&error.to_string());
            let next = Instant::now() + PAUSE + began.elapsed();
            if !surroundings::may_pass(&error) || next > until {
                return Err(surroundings::unanswered(error));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Reading {
    fn standing(&self, is_it: impl Fn(&Standing) -> bool) -> Vec<Claim> {
        let all = self.claims.iter().zip(&self.standings);
        all.filter(|(_, standing)| is_it(standing)).map(|(claim, _)| claim.clone()).collect()
    }

    fn is_open(&self) -> bool {
        self.standings.iter().any(|it| matches!(it, Standing::Free(_)))
    }

    /// What a transaction found out about addresses that nobody holds.
    fn refuse(&mut self, refused: &BTreeMap<IpAddr, Standing>) {
        for (claim, standing) in self.claims.iter().zip(&mut self.standings) {
            match refused.get(&claim.address) {
                Some(found) if matches!(standing, Standing::Free(_)) => *standing = found.clone(),
                _ => {}
            }
        }
    }

    fn take_problems(&mut self) -> Vec<Problem> {
        let refused = self.standings.iter().filter_map(|it| match it {
            Standing::Refused(problem) => Some(problem.clone()),
            _ => None,
        });
        let mut all: Vec<Problem> = refused.chain(self.problems.drain(..)).collect();
        all.sort_by(|one, other| one.file.cmp(&other.file));
        all
    }
}

fn of_journal(claim: &Claim) -> (IpAddr, String) {
    (claim.address, claim.handle.clone())
}

/// What endpoints and the node's object say.
fn surveyed(records: &Records) -> Result<(Endpoints, Option<Value>), store::ipam::Error> {
    let mut endpoints = Endpoints::default();
    let store = records.driver.store();
    store.list_each(&upgrade::endpoints_prefix(), |entry| {
        endpoints.add(&entry.value);
        ControlFlow::Continue(())
    })?;
    let stored = match upgrade::node_key(&records.node) {
        Some(key) => store.get(&key)?.0,
        None => None,
    };
    Ok((endpoints, stored.and_then(|entry| text::json::parse(&entry.value).ok())))
}
