//! A made-up node: what of it survives a crash of its agent, and the agent itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use intent::{Inputs, Leftover, Live, Restock, Witnesses};
use ipam::{Next, Outcome, Planned, Planner, Pursuit, Read, Release, View, reserve_handle};
use sandbox::claim::{self, CALICO_IPAM, Fresh, Order, Wish, endpoint_key};
use sandbox::course::{Act, Course, Outage, Performed};
use sandbox::failure::{Code, Failure};
use sandbox::identity::{Identity, Workload};
use sandbox::life::{NetnsId, Owed, Phase, Record, Step};
use sandbox::reclaim;
use sandbox::reserve::{self, Unsettled};
use sandbox::wiring::Wiring;

use crate::options::{Bug, Options};
use crate::store::Store;

/// The network that everybody is in.
pub(crate) const NETWORK: &str = "net";

/// An interface of a sandbox on the host.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) identity: Identity,
    pub(crate) addresses: BTreeSet<IpAddr>,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) boot: u64,
    /// On disk.
    pub(crate) journal: BTreeMap<Identity, Record>,
    pub(crate) stock: BTreeSet<IpAddr>,
    pub(crate) memory: BTreeMap<String, Vec<u8>>,
    /// In the kernel.
    pub(crate) interfaces: BTreeMap<String, Interface>,
    /// Containers whose namespace is there.
    pub(crate) namespaces: BTreeSet<String>,
    /// Whether the datastore cannot be reached.
    pub(crate) is_away: bool,
    pub(crate) agent: Option<Agent>,
}

/// What is lost with the process.
#[derive(Debug)]
pub(crate) struct Agent {
    view: View,
    pub(crate) inputs: Inputs,
    /// The revision up to which the watch has delivered.
    pub(crate) watched: i64,
    pub(crate) works: Vec<Work>,
}

/// Something under way. Nothing else is done with an interface of the same name meanwhile.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) interface: String,
    pub(crate) task: Task,
}

#[derive(Debug)]
pub(crate) enum Task {
    Add(Box<Running>, Order),
    Del(Box<Running>),
    Settle(Box<Record>, Pursuit<Result<Record, Unsettled>>),
    Keep(Box<Record>, Pursuit<Result<reclaim::Reclaimed, reclaim::Kept>>),
    Restock(Restock, Pursuit<()>),
    Sweep(Leftover, Pursuit<()>),
}

/// A course, and the transaction that it waits for.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) course: Course,
    claim: Option<Pursuit<Result<Record, Failure>>>,
    release: Option<Pursuit<Result<(), ipam::Error>>>,
}

/// What happened to a work in one step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Advanced {
    /// It goes on.
    On,
    /// An ADD would give its answer: whether somebody takes it has to be told.
    Answers,
    /// It is over.
    Over(Result<(), Failure>),
}

/// How far a transaction came in one step.
enum Progress<T> {
    On,
    Done(T),
    Unreachable,
    Uncertain,
}

/// What a step of a node may use and is subject to.
pub(crate) struct Surroundings<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) chance: &'a mut fastrand::Rng,
    pub(crate) options: &'a Options,
    pub(crate) now: ipam::Moment,
    /// What is worth telling.
    pub(crate) notes: &'a mut Vec<String>,
}

impl Surroundings<'_> {
    fn happens(&mut self, rate: u32) -> bool {
        self.chance.u32(0..1000) < rate
    }

    fn fresh(&mut self) -> Fresh {
        let mut uid = || format!("{:032x}", self.chance.u128(..));
        Fresh { endpoint_uid: uid(), profile_uid: uid() }
    }
}

impl Running {
    fn new(course: Course) -> Self {
        Self { course, claim: None, release: None }
    }
}

impl Node {
    pub(crate) fn new(name: String, boot: u64) -> Self {
        Self {
            name,
            boot,
            journal: BTreeMap::new(),
            stock: BTreeSet::new(),
            memory: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            namespaces: BTreeSet::new(),
            is_away: false,
            agent: None,
        }
    }

    /// Starts the agent: what was under way is taken back, what was leaving leaves.
    pub(crate) fn start(&mut self) {
        let mut inputs = Inputs::new(&self.name);
        for record in self.journal.values() {
            if record.phase == Phase::Ready && record.boot == self.boot.to_string() {
                inputs.vouch(&endpoint_key(record), Live::of(record));
            }
        }
        self.agent = Some(Agent { view: View::default(), inputs, watched: 0, works: Vec::new() });
        self.retry();
    }

    /// What was leaving and could not leaves now.
    pub(crate) fn retry(&mut self) {
        let boot = self.boot.to_string();
        let unfinished: Vec<Record> = self
            .journal
            .values()
            .filter(|it| it.phase != Phase::Ready || it.boot != boot)
            .cloned()
            .collect();
        for record in unfinished {
            self.begin_down(record);
        }
    }

    fn begin_down(&mut self, record: Record) {
        let interface = record.wiring.host_interface.clone();
        let task = Task::Del(Box::new(Running::new(Course::down(record, true))));
        self.begin(interface, task);
    }

    /// Begins a work, unless one is under way with the same interface.
    pub(crate) fn begin(&mut self, interface: String, task: Task) -> bool {
        let Some(agent) = &mut self.agent else { return false };
        if agent.works.iter().any(|work| work.interface == interface) {
            return false;
        }
        agent.works.push(Work { interface, task });
        true
    }

    /// A runtime calls ADD.
    pub(crate) fn add(
        &mut self,
        identity: &Identity,
        workload: &Workload,
        around: &mut Surroundings<'_>,
    ) -> bool {
        if let Some(earlier) = self.journal.get(identity).cloned() {
            self.begin_down(earlier);
            return false;
        }
        let usual = workload.host_interface(identity);
        let record = Record {
            endpoint: workload.endpoint_name(&self.name, identity).unwrap_or_default(),
            ..self.blank(identity, workload, usual.clone(), Phase::Claiming)
        };
        let order = Order {
            record: record.clone(),
            wish: Wish { ipv4: true, avoid: self.routed(), ..Wish::default() },
            fresh: around.fresh(),
        };
        let running = Running::new(Course::up(record, true));
        self.begin(usual, Task::Add(Box::new(running), order))
    }

    /// A runtime calls DEL.
    pub(crate) fn del(&mut self, identity: &Identity, workload: &Workload) -> bool {
        let record = match self.journal.get(identity) {
            Some(record) => record.clone(),
            None => {
                let usual = workload.host_interface(identity);
                let endpoint = workload.endpoint_name(&self.name, identity).unwrap_or_default();
                Record { endpoint, ..self.blank(identity, workload, usual, Phase::Leaving) }
            }
        };
        let interface = record.wiring.host_interface.clone();
        let task = Task::Del(Box::new(Running::new(Course::down(record, true))));
        self.begin(interface, task)
    }

    fn blank(
        &self,
        identity: &Identity,
        workload: &Workload,
        host_interface: String,
        phase: Phase,
    ) -> Record {
        Record {
            identity: identity.clone(),
            network: NETWORK.to_owned(),
            workload: workload.clone(),
            node: self.name.clone(),
            boot: self.boot.to_string(),
            netns: NetnsId { device: 0, inode: 0 },
            netns_path: String::new(),
            endpoint: String::new(),
            ipam: CALICO_IPAM.to_owned(),
            addresses: Vec::new(),
            wiring: Wiring {
                host_interface,
                container_interface: identity.interface.clone(),
                mac: [0; 6],
                mtu: None,
                queues: 1,
                addresses: Vec::new(),
                routes: Vec::new(),
                allow_forwarding: false,
            },
            profiles: Some(vec![NETWORK.to_owned()]),
            labels: Vec::new(),
            owed: None,
            phase,
        }
    }

    fn routed(&self) -> BTreeSet<IpAddr> {
        self.interfaces.values().flat_map(|it| &it.addresses).copied().collect()
    }

    /// The watch delivers one event, or everything if it has to start anew.
    pub(crate) fn deliver(&mut self, around: &mut Surroundings<'_>) {
        let compaction = around.options.compaction;
        let starts_anew = around.happens(compaction);
        let Some(agent) = self.agent.as_mut().filter(|_| !self.is_away) else { return };
        let store = &*around.store;
        match store.since(agent.watched).filter(|_| agent.watched > 0 && !starts_anew) {
            Some(events) => {
                // A transaction is delivered as a whole.
                let Some(at) = events.first().map(|event| event.revision) else { return };
                for event in events.iter().take_while(|event| event.revision == at) {
                    agent.learn(&mut self.memory, &event.key, event.value.as_deref(), at);
                }
                agent.view.advance("/calico/", at);
                agent.watched = at;
            }
            None => {
                let all = Read::Prefix("/calico/".to_owned());
                store.read(&mut agent.view, &all);
                // Endpoints and blocks that went while nobody watched.
                let mut fresh = Inputs::new(&self.name);
                for record in self.journal.values() {
                    if record.phase == Phase::Ready && record.boot == self.boot.to_string() {
                        fresh.vouch(&endpoint_key(record), Live::of(record));
                    }
                }
                agent.inputs = fresh;
                self.memory.clear();
                for (key, (value, at)) in store.under("/calico/") {
                    agent.learn(&mut self.memory, key, Some(value), *at);
                }
                agent.inputs.complete();
                agent.watched = store.revision;
            }
        }
    }

    /// One step of one work.
    pub(crate) fn advance(&mut self, index: usize, around: &mut Surroundings<'_>) -> Advanced {
        let Some(mut agent) = self.agent.take() else { return Advanced::On };
        let mut work = agent.works.swap_remove(index);
        let advanced = match &mut work.task {
            Task::Add(running, order) => {
                self.advance_course(&mut agent, running, Some(order), around)
            }
            Task::Del(running) => self.advance_course(&mut agent, running, None, around),
            Task::Settle(record, pursuit) => self.settle(&mut agent, record, pursuit, around),
            Task::Keep(record, pursuit) => self.keep(&mut agent, record, pursuit, around),
            Task::Restock(restock, pursuit) => self.restock(&mut agent, restock, pursuit, around),
            Task::Sweep(leftover, pursuit) => self.sweep(&mut agent, leftover, pursuit, around),
        };
        if !matches!(advanced, Advanced::Over(_)) {
            agent.works.push(work);
        }
        self.agent = Some(agent);
        advanced
    }

    /// Tells the ADD that was about to answer whether anybody listens.
    pub(crate) fn answered(&mut self, identity: &Identity, is_taken: bool) {
        let works = self.agent.iter_mut().flat_map(|agent| &mut agent.works);
        for work in works {
            if let Task::Add(running, _) = &mut work.task
                && running.course.record().identity == *identity
                && running.course.next() == Act::Answer
            {
                running.course.answered(is_taken);
            }
        }
    }

    fn advance_course(
        &mut self,
        agent: &mut Agent,
        running: &mut Running,
        order: Option<&Order>,
        around: &mut Surroundings<'_>,
    ) -> Advanced {
        match running.course.next() {
            Act::Write => {
                let record = running.course.record().clone();
                self.write(agent, record);
                running.course.written(Ok(()));
            }
            Act::Perform(Step::Claim) => {
                let order = order.expect("only an ADD claims");
                let order = named(order, around.options.bug);
                let pursuit = running.claim.get_or_insert_with(|| Pursuit::new(&agent.view));
                let claim = |planner: &mut Planner<'_>| claim::claim(planner, &order);
                let outage = |was_tried| {
                    let failure = Failure::new(Code::TryAgainLater, "away");
                    Ok(Performed::Away(Outage { failure, was_tried }))
                };
                let performed = match self.pursue(agent, pursuit, around, claim) {
                    Progress::On => return Advanced::On,
                    Progress::Done(claimed) => claimed.map(|it| {
                        let record =
                            Record { identity: running.course.record().identity.clone(), ..it };
                        Performed::Made(Box::new(record))
                    }),
                    Progress::Unreachable => outage(false),
                    Progress::Uncertain => outage(true),
                };
                running.course.performed(performed);
            }
            Act::Perform(Step::Take) => {
                let order = order.expect("only an ADD takes");
                let was_tried = running.course.outage().is_some_and(|it| it.was_tried);
                let taken = self.take(order, was_tried, around);
                if let Ok(Performed::Made(record)) = &taken {
                    self.write(agent, (**record).clone());
                }
                running.course.performed(taken);
            }
            Act::Perform(Step::Release) => {
                let record = running.course.record().clone();
                let record = released(record, around.options.bug);
                let pursuit = running.release.get_or_insert_with(|| Pursuit::new(&agent.view));
                let others = BTreeSet::new();
                let release = |planner: &mut Planner<'_>| match record.owed {
                    Some(_) => reserve::release(planner, &record, &others),
                    None => claim::release(planner, &record, &others),
                };
                let performed = match self.pursue(agent, pursuit, around, release) {
                    Progress::On => return Advanced::On,
                    Progress::Done(_) => Ok(Performed::Done),
                    Progress::Unreachable | Progress::Uncertain => {
                        Err(Failure::new(Code::TryAgainLater, "away"))
                    }
                };
                running.course.performed(performed);
            }
            Act::Perform(step) => {
                let performed = self.in_the_kernel(step, running.course.record(), around);
                running.course.performed(performed.map(|()| Performed::Done));
            }
            Act::Answer => return Advanced::Answers,
            Act::Forget => {
                self.journal.remove(&running.course.record().identity);
                running.course.forgotten(Ok(()));
            }
            Act::End(result) => return Advanced::Over(result),
        }
        Advanced::On
    }

    fn write(&mut self, agent: &mut Agent, record: Record) {
        let key = endpoint_key(&record);
        match record.phase {
            Phase::Ready => drop(agent.inputs.vouch(&key, Live::of(&record))),
            Phase::Leaving => drop(agent.inputs.withdraw(&key)),
            _ => {}
        }
        self.journal.insert(record.identity.clone(), record);
    }

    fn in_the_kernel(
        &mut self,
        step: Step,
        record: &Record,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Failure> {
        let name = &record.wiring.host_interface;
        match step {
            Step::Wire => {
                if !self.namespaces.contains(&record.identity.container) {
                    return Err(Failure::plugin("the namespace is gone"));
                }
                let addresses = record.wiring.addresses.iter().copied().collect();
                let interface = Interface { identity: record.identity.clone(), addresses };
                self.interfaces.insert(name.clone(), interface);
            }
            Step::Unwire => {
                let is_own = |it: &Interface| it.identity == record.identity;
                let takes_any = around.options.bug == Some(Bug::DelByInterfaceName);
                if self.interfaces.get(name).is_some_and(|it| takes_any || is_own(it))
                    && let Some(gone) = self.interfaces.remove(name)
                    && gone.identity != record.identity
                {
                    let gone = gone.identity;
                    around.notes.push(format!("the interface of {gone} went with another's"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Gives addresses of the reserve, on the strength of what is remembered.
    fn take(
        &mut self,
        order: &Order,
        was_tried: bool,
        around: &Surroundings<'_>,
    ) -> Result<Performed, Failure> {
        let mut view = View::default();
        for (key, value) in &self.memory {
            view.observe(key, Some((value.clone(), 1)), 1);
        }
        view.complete("/calico/resources/v3/projectcalico.org/ippools/", 1);
        view.observe(&endpoint_key(&order.record), None, 1);
        let taken: BTreeSet<IpAddr> = match around.options.bug {
            Some(Bug::ReserveTwice) => BTreeSet::new(),
            _ => self.journal.values().flat_map(|it| &it.wiring.addresses).copied().collect(),
        };
        let free = self.stock.difference(&taken).copied().collect();
        let take = |planner: &mut Planner<'_>| reserve::take(planner, order, &free);
        match ipam::plan(&view, around.now, take) {
            ipam::Step::Done(Ok(mut record), _) => {
                record.phase = Phase::Claimed;
                record.owed = record.owed.map(|owed| Owed { was_tried, ..owed });
                Ok(Performed::Made(Box::new(record)))
            }
            ipam::Step::Done(Err(failure), _) => Err(failure),
            _ => Err(Failure::new(Code::TryAgainLater, "not known here")),
        }
    }

    /// Looks for what is to be done while the datastore answers.
    pub(crate) fn look_around(&mut self, around: &Surroundings<'_>) {
        self.retry();
        let Some(agent) = &self.agent else { return };
        if agent.inputs.in_sync().is_none() || self.is_away {
            return;
        }
        let handle = reserve_handle(&self.name);
        let taken = self.journal.values().flat_map(|it| &it.wiring.addresses).copied().collect();
        let held = agent.inputs.reserve(&handle, around.options.reserve);
        let restock = Restock::of(&held, &taken);
        let kept = held.fit.difference(&restock.back).copied().collect();
        let is_up =
            |record: &&Record| record.phase == Phase::Ready && record.boot == self.boot.to_string();
        let (owed, told): (Vec<Record>, Vec<Record>) =
            self.journal.values().filter(is_up).cloned().partition(|it| it.owed.is_some());
        let lacking: Vec<Record> =
            told.into_iter().filter(|it| agent.inputs.lacks(&endpoint_key(it))).collect();
        let view = &agent.view;
        let settles: Vec<_> =
            owed.into_iter().map(|it| Task::Settle(Box::new(it), Pursuit::new(view))).collect();
        let keeps: Vec<_> =
            lacking.into_iter().map(|it| Task::Keep(Box::new(it), Pursuit::new(view))).collect();
        let restocks = Task::Restock(restock, Pursuit::new(view));
        self.stock = kept;
        for task in settles.into_iter().chain(keeps) {
            let (Task::Settle(record, _) | Task::Keep(record, _)) = &task else { continue };
            let interface = record.wiring.host_interface.clone();
            self.begin(interface, task);
        }
        if let Task::Restock(restock, _) = &restocks
            && !restock.is_nothing()
        {
            self.begin("the reserve".to_owned(), restocks);
        }
    }

    /// The join: what is left over goes.
    pub(crate) fn join(&mut self, bug: Option<Bug>) {
        let Some(agent) = &self.agent else { return };
        let early = bug == Some(Bug::ReleaseBeforeInSync);
        let mut premature = Inputs::new(&self.name);
        premature.complete();
        let proof = agent.inputs.in_sync().or_else(|| premature.in_sync().filter(|_| early));
        let Some(proof) = proof else { return };
        let boot = self.boot.to_string();
        let living = self.journal.values().filter(|record| {
            record.boot == boot && self.namespaces.contains(&record.identity.container)
        });
        let mut seen = Witnesses {
            journal: self.journal.values().cloned().collect(),
            interfaces: self
                .interfaces
                .iter()
                .map(|(name, it)| (name.clone(), Some(it.identity.clone())))
                .collect(),
            routed: self.routed(),
            living: living.map(|record| record.identity.clone()).collect(),
        };
        if early && agent.inputs.in_sync().is_none() {
            // What the datastore has not confirmed yet is taken for dead.
            seen.living.clear();
        }
        let leftovers = agent.inputs.leftovers(proof, &seen);
        let view = agent.view.clone();
        for leftover in leftovers {
            match leftover {
                Leftover::Sandbox(record) => self.begin_down(*record),
                Leftover::Interface { name, .. } => drop(self.interfaces.remove(&name)),
                Leftover::Endpoint { ref interface, .. } => {
                    let interface = interface.clone();
                    self.begin(interface, Task::Sweep(leftover, Pursuit::new(&view)));
                }
                Leftover::Addresses { ref handle, .. } => {
                    let handle = handle.clone();
                    self.begin(handle, Task::Sweep(leftover, Pursuit::new(&view)));
                }
            }
        }
    }

    fn settle(
        &mut self,
        agent: &mut Agent,
        record: &mut Record,
        pursuit: &mut Pursuit<Result<Record, Unsettled>>,
        around: &mut Surroundings<'_>,
    ) -> Advanced {
        if let Some(owed) = record.owed.as_mut().filter(|owed| !owed.was_tried) {
            owed.was_tried = true;
            self.write(agent, record.clone());
            return Advanced::On;
        }
        let holder = self.interfaces.get(&record.wiring.host_interface);
        let is_current = holder.is_some_and(|it| it.identity == record.identity);
        let others = BTreeSet::new();
        let settle =
            |planner: &mut Planner<'_>| reserve::settle(planner, record, &others, is_current);
        match self.pursue(agent, pursuit, around, settle) {
            Progress::On => Advanced::On,
            Progress::Done(Ok(settled)) => {
                for address in &settled.wiring.addresses {
                    self.stock.remove(address);
                }
                self.write(agent, settled);
                Advanced::Over(Ok(()))
            }
            _ => Advanced::Over(Ok(())),
        }
    }

    fn keep(
        &mut self,
        agent: &mut Agent,
        record: &Record,
        pursuit: &mut Pursuit<Result<reclaim::Reclaimed, reclaim::Kept>>,
        around: &mut Surroundings<'_>,
    ) -> Advanced {
        let holder = self.interfaces.get(&record.wiring.host_interface);
        if holder.is_none_or(|it| it.identity != record.identity) {
            return Advanced::Over(Ok(()));
        }
        let fresh = around.fresh();
        let keep = |planner: &mut Planner<'_>| reclaim::reclaim(planner, record, &fresh);
        match self.pursue(agent, pursuit, around, keep) {
            Progress::On => Advanced::On,
            Progress::Done(Ok(reclaimed)) => {
                self.write(agent, reclaimed.record);
                Advanced::Over(Ok(()))
            }
            _ => Advanced::Over(Ok(())),
        }
    }

    fn restock(
        &mut self,
        agent: &mut Agent,
        restock: &Restock,
        pursuit: &mut Pursuit<()>,
        around: &mut Surroundings<'_>,
    ) -> Advanced {
        let name = self.name.clone();
        let plan = |planner: &mut Planner<'_>| restock.plan(planner, &name);
        match self.pursue(agent, pursuit, around, plan) {
            Progress::On => Advanced::On,
            _ => Advanced::Over(Ok(())),
        }
    }

    fn sweep(
        &mut self,
        agent: &mut Agent,
        leftover: &Leftover,
        pursuit: &mut Pursuit<()>,
        around: &mut Surroundings<'_>,
    ) -> Advanced {
        let plan = |planner: &mut Planner<'_>| -> Planned<()> {
            match leftover {
                Leftover::Endpoint { key, .. } => planner.delete(key),
                Leftover::Addresses { handle, addresses } => {
                    let release = |(address, sequence): (&IpAddr, &Option<u64>)| Release {
                        address: address.to_string(),
                        handle: handle.clone(),
                        sequence: *sequence,
                    };
                    let releases: Vec<Release> = addresses.iter().map(release).collect();
                    planner.release_ips(&releases).map(drop)
                }
                Leftover::Sandbox(_) | Leftover::Interface { .. } => Ok(()),
            }
        };
        match self.pursue(agent, pursuit, around, plan) {
            Progress::On => Advanced::On,
            _ => Advanced::Over(Ok(())),
        }
    }

    /// One step of a transaction.
    fn pursue<T>(
        &mut self,
        agent: &mut Agent,
        pursuit: &mut Pursuit<T>,
        around: &mut Surroundings<'_>,
        operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Progress<T> {
        let lost_answer = around.options.lost_answer;
        let view = &mut agent.view;
        match pursuit.next(view, around.now, operations) {
            Next::Read(_) if self.is_away => return Progress::Unreachable,
            Next::Read(reads) => {
                let view = pursuit.view(view);
                reads.iter().for_each(|read| around.store.read(view, read));
            }
            Next::Commit(_) if self.is_away => return Progress::Unreachable,
            Next::Commit(plan) => {
                let is_blind = around.options.bug == Some(Bug::WithoutCompareAndSwap);
                let is_lost = around.chance.u32(0..1000) < lost_answer;
                // The answer was lost on the way back, or the request on the way there.
                let arrives = !is_lost || around.chance.bool();
                let is_allowed = is_blind || around.store.allows(plan);
                let applied = (arrives && is_allowed).then(|| around.store.apply(plan));
                around.notes.push(told(plan, applied, is_lost));
                let outcome = match applied {
                    _ if is_lost => Outcome::Lost,
                    Some(revision) => Outcome::Applied(revision),
                    None => {
                        let current = around.store.current(plan);
                        Outcome::Conflict(current, around.store.revision)
                    }
                };
                pursuit.committed(view, outcome);
            }
            Next::Look(_) if self.is_away => return Progress::Uncertain,
            Next::Look(plan) => {
                let current: Vec<ipam::Entry> =
                    plan.changes.iter().map(|change| around.store.get(&change.key)).collect();
                pursuit.looked(view, &current, around.store.revision);
            }
            Next::Wait(_) => {}
            Next::Done(done) => {
                let revision = done.revision.unwrap_or_default();
                for change in &done.plan.changes {
                    let value = change.value.as_deref();
                    agent.learn(&mut self.memory, &change.key, value, revision);
                }
                return Progress::Done(done.answer);
            }
            Next::GiveUp => return Progress::Unreachable,
        }
        Progress::On
    }
}

impl Agent {
    fn learn(
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

/// A transaction, in words.
fn told(plan: &ipam::Plan, applied: Option<i64>, is_lost: bool) -> String {
    let short = |key: &str| {
        let rest = key
            .strip_prefix("/calico/ipam/v2/")
            .or_else(|| key.strip_prefix("/calico/resources/v3/projectcalico.org/"));
        rest.unwrap_or(key).to_owned()
    };
    let changes = plan.changes.iter().map(|change| {
        let sign = if change.value.is_some() { '+' } else { '-' };
        format!("{sign}{}", short(&change.key))
    });
    let changes: Vec<String> = changes.collect();
    let how = match (applied, is_lost) {
        (Some(revision), false) => format!("applied at {revision}"),
        (Some(revision), true) => format!("applied at {revision}, and the answer is lost"),
        (None, true) => "lost".to_owned(),
        (None, false) => "refused".to_owned(),
    };
    format!("{how}: {}", changes.join(" "))
}

fn named(order: &Order, bug: Option<Bug>) -> Order {
    let mut order = order.clone();
    if let (Some(Bug::NameKeyedHandle), Workload::Pod { name, .. }) = (bug, &order.record.workload)
    {
        order.record.identity.container.clone_from(name);
    }
    order
}

fn released(mut record: Record, bug: Option<Bug>) -> Record {
    match (bug, &record.workload) {
        (Some(Bug::NameKeyedHandle), Workload::Pod { name, .. }) => {
            record.identity.container = name.clone();
            record.addresses.clear();
        }
        (Some(Bug::ReleaseWithoutSequence), _) => {
            record.addresses.iter_mut().for_each(|held| held.sequence = None);
        }
        _ => {}
    }
    record
}
