//! A made-up node: what of it survives a crash of its agent, and the agent itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use intent::{Inputs, Leftover, Live, Restock, Witnesses};
use ipam::{Pursuit, Read, View, reserve_handle};
use sandbox::claim::{CALICO_IPAM, Fresh, Order, Wish, endpoint_key};
use sandbox::course::Course;
use sandbox::failure::Failure;
use sandbox::identity::{Identity, Workload};
use sandbox::life::{NetnsId, Phase, Record};
use sandbox::reclaim;
use sandbox::reserve::Unsettled;
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
    pub(crate) view: View,
    pub(crate) inputs: Inputs,
    /// The revision up to which the watch has delivered.
    pub(crate) watched: i64,
    pub(crate) works: Vec<Work>,
}

/// Something under way, or waiting for its turn: of those that want an interface of the same name
/// the first one goes on.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) turn: String,
    pub(crate) job: Job,
    /// Once its turn has come.
    pub(crate) task: Option<Task>,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Add(Identity, Workload, Fresh),
    Del(Identity, Workload),
    /// Take down what the join found dead, or what could not leave.
    Down(Identity, Workload),
    Settle(Identity, Workload),
    Keep(Identity, Workload, Fresh),
    Restock(Restock),
    Sweep(Leftover),
}

#[derive(Debug)]
pub(crate) enum Task {
    Add(Box<Running>, Order),
    Del(Box<Running>),
    Settle(Box<Record>, Pursuit<Result<Record, Unsettled>>),
    Keep(Box<Record>, Fresh, Pursuit<Result<reclaim::Reclaimed, reclaim::Kept>>),
    Restock(Restock, Pursuit<()>),
    Sweep(Leftover, Pursuit<()>),
}

impl Job {
    /// Whose it is.
    pub(crate) fn sandbox(&self) -> Option<(&Identity, &Workload)> {
        match self {
            Self::Add(identity, workload, _)
            | Self::Del(identity, workload)
            | Self::Down(identity, workload)
            | Self::Settle(identity, workload)
            | Self::Keep(identity, workload, _) => Some((identity, workload)),
            Self::Restock(_) | Self::Sweep(_) => None,
        }
    }

    fn turn(&self) -> String {
        match self {
            Self::Restock(_) => "the reserve".to_owned(),
            Self::Sweep(Leftover::Endpoint { interface, .. }) => interface.clone(),
            Self::Sweep(leftover) => format!("{leftover:?}"),
            _ => {
                let (identity, workload) = self.sandbox().expect("all others have one");
                workload.host_interface(identity)
            }
        }
    }
}

/// A course, and the transaction that it waits for.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) course: Course,
    pub(crate) claim: Option<Pursuit<Result<Record, Failure>>>,
    pub(crate) release: Option<Pursuit<Result<(), ipam::Error>>>,
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

    pub(crate) fn fresh(&mut self) -> Fresh {
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
        vouch(&mut inputs, &self.journal, &self.interfaces, self.boot);
        self.agent = Some(Agent { view: View::default(), inputs, watched: 0, works: Vec::new() });
        self.retry();
    }

    /// What was leaving and could not leaves now.
    pub(crate) fn retry(&mut self) {
        let boot = self.boot.to_string();
        let unfinished = self.journal.values();
        let unfinished = unfinished.filter(|it| it.phase != Phase::Ready || it.boot != boot);
        let downs: Vec<Job> =
            unfinished.map(|it| Job::Down(it.identity.clone(), it.workload.clone())).collect();
        downs.into_iter().for_each(|job| self.begin(job));
    }

    /// Begins a job when its turn comes; once is enough for what the agent does by itself.
    pub(crate) fn begin(&mut self, job: Job) {
        let Some(agent) = &mut self.agent else { return };
        let turn = job.turn();
        let is_call = matches!(job, Job::Add(..) | Job::Del(..));
        let is_busy = agent.works.iter().any(|work| {
            let same = work.job.sandbox().map(|it| it.0) == job.sandbox().map(|it| it.0);
            work.turn == turn && same
        });
        if is_call || !is_busy {
            agent.works.push(Work { turn, job, task: None });
        }
    }

    /// The turn of a job has come: what it is about may have changed meanwhile.
    pub(crate) fn open(&self, agent: &Agent, job: &Job) -> Option<Task> {
        let known = job.sandbox().and_then(|(identity, _)| self.journal.get(identity)).cloned();
        let boot = self.boot.to_string();
        let is_up = |it: &Record| it.phase == Phase::Ready && it.boot == boot;
        let down = |record| Task::Del(Box::new(Running::new(Course::down(record, true))));
        match job {
            // An earlier attempt makes room first; the runtime asks again.
            Job::Add(..) if known.is_some() => known.map(down),
            Job::Add(identity, workload, fresh) => {
                let usual = workload.host_interface(identity);
                let record = self.blank(identity, workload, usual, Phase::Claiming);
                let order = Order {
                    record: record.clone(),
                    wish: Wish { ipv4: true, avoid: self.routed(), ..Wish::default() },
                    fresh: fresh.clone(),
                };
                Some(Task::Add(Box::new(Running::new(Course::up(record, true))), order))
            }
            Job::Del(identity, workload) => {
                let usual = workload.host_interface(identity);
                let stranger = || self.blank(identity, workload, usual, Phase::Leaving);
                Some(down(known.unwrap_or_else(stranger)))
            }
            Job::Down(..) => {
                let is_dead = |it: &Record| !self.namespaces.contains(&it.identity.container);
                known.filter(|it| !is_up(it) || is_dead(it)).map(down)
            }
            Job::Settle(..) => known
                .filter(|it| is_up(it) && it.owed.is_some())
                .map(|it| Task::Settle(Box::new(it), Pursuit::new(&agent.view))),
            Job::Keep(_, _, fresh) => known
                .filter(|it| is_up(it) && it.owed.is_none())
                .map(|it| Task::Keep(Box::new(it), fresh.clone(), Pursuit::new(&agent.view))),
            Job::Restock(restock) => {
                Some(Task::Restock(restock.clone(), Pursuit::new(&agent.view)))
            }
            // A later sandbox may have come to that name.
            Job::Sweep(Leftover::Endpoint { key, .. })
                if self.journal.values().any(|it| endpoint_key(it) == *key) =>
            {
                None
            }
            Job::Sweep(leftover) => Some(Task::Sweep(leftover.clone(), Pursuit::new(&agent.view))),
        }
    }

    fn blank(
        &self,
        identity: &Identity,
        workload: &Workload,
        host_interface: String,
        phase: Phase,
    ) -> Record {
        Record {
            endpoint: workload.endpoint_name(&self.name, identity).unwrap_or_default(),
            identity: identity.clone(),
            network: NETWORK.to_owned(),
            workload: workload.clone(),
            node: self.name.clone(),
            boot: self.boot.to_string(),
            netns: NetnsId { device: 0, inode: 0 },
            netns_path: String::new(),
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

    /// Whether the interface of a sandbox is there and its own.
    pub(crate) fn stands(&self, record: &Record) -> bool {
        let interface = self.interfaces.get(&record.wiring.host_interface);
        interface.is_some_and(|it| it.identity == record.identity)
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
                agent.inputs = Inputs::new(&self.name);
                vouch(&mut agent.inputs, &self.journal, &self.interfaces, self.boot);
                self.memory.clear();
                for (key, (value, at)) in store.under("/calico/") {
                    agent.learn(&mut self.memory, key, Some(value), *at);
                }
                agent.inputs.complete();
                agent.watched = store.revision;
            }
        }
    }

    /// Looks for what is to be done while the datastore answers.
    pub(crate) fn look_around(&mut self, around: &mut Surroundings<'_>) {
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
        let (owed, told): (Vec<&Record>, Vec<&Record>) =
            self.journal.values().filter(is_up).partition(|it| it.owed.is_some());
        let names = |it: &Record| (it.identity.clone(), it.workload.clone());
        let settles = owed.into_iter().map(names).map(|(it, of)| Job::Settle(it, of));
        let lacking = told.into_iter().filter(|it| agent.inputs.lacks(&endpoint_key(it)));
        let keeps = lacking.map(names).map(|(it, of)| Job::Keep(it, of, around.fresh()));
        let mut jobs: Vec<Job> = settles.chain(keeps).collect();
        jobs.extend(Some(restock).filter(|it| !it.is_nothing()).map(Job::Restock));
        self.stock = kept;
        jobs.into_iter().for_each(|job| self.begin(job));
    }

    /// The join: what is left over goes.
    pub(crate) fn join(&mut self, bug: Option<Bug>) {
        let Some(agent) = &self.agent else { return };
        let Some(proof) = agent.inputs.in_sync() else {
            if bug == Some(Bug::ReleaseBeforeInSync) {
                let unknown =
                    self.journal.values().filter(|it| agent.inputs.lacks(&endpoint_key(it)));
                let names = unknown.map(|it| it.wiring.host_interface.clone());
                let names: BTreeSet<String> = names.collect();
                self.interfaces.retain(|name, _| !names.contains(name));
            }
            return;
        };
        let boot = self.boot.to_string();
        let living = self.journal.values().filter(|record| {
            record.boot == boot && self.namespaces.contains(&record.identity.container)
        });
        let seen = Witnesses {
            journal: self.journal.values().cloned().collect(),
            interfaces: self.interfaces.keys().cloned().collect(),
            routed: self.routed(),
            living: living.map(|record| record.identity.clone()).collect(),
        };
        let leftovers = agent.inputs.leftovers(proof, &seen);
        for leftover in leftovers {
            match leftover {
                Leftover::Sandbox(it) => self.begin(Job::Down(it.identity, it.workload)),
                _ => self.begin(Job::Sweep(leftover)),
            }
        }
    }
}

/// The journal vouches for what is up; of several sandboxes of one pod, for the one that has the
/// interface.
fn vouch(
    inputs: &mut Inputs,
    journal: &BTreeMap<Identity, Record>,
    interfaces: &BTreeMap<String, Interface>,
    boot: u64,
) {
    let up = |it: &&Record| it.phase == Phase::Ready && it.boot == boot.to_string();
    for record in journal.values().filter(up) {
        let key = endpoint_key(record);
        let interface = interfaces.get(&record.wiring.host_interface);
        let stands = interface.is_some_and(|it| it.identity == record.identity);
        if stands || !inputs.is_vouched(&key) {
            inputs.vouch(&key, Live::of(record));
        }
    }
}

impl Agent {
    pub(crate) fn learn(
        &mut self,
        memory: &mut BTreeMap<String, Vec<u8>>,
        key: &str,
        value: Option<&[u8]>,
        revision: i64,
    ) {
        if self.view.is_ahead(key, revision) && self.inputs.in_sync().is_some() {
            return;
        }
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
