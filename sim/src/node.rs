//! A made-up node: what of it survives a crash of its agent, the agent itself, and what it has
//! under way.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use intent::{Inputs, Leftover, Live, Restock};
use ipam::{Pursuit, View};
use sandbox::claim::{CALICO_IPAM, Fresh, Order, Wish, endpoint_key};
use sandbox::course::Course;
use sandbox::failure::Failure;
use sandbox::identity::{Identity, Workload};
use sandbox::life::{NetnsId, Origin, Owed, Phase, Record};
use sandbox::reclaim;
use sandbox::reserve::Unsettled;

use crate::options::{Bug, Options};
use crate::store::Store;
use crate::trace::who;

/// An interface of a sandbox on the host.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) identity: Identity,
    /// The number of the namespace that its other end is in.
    pub(crate) netns: u64,
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
    /// Containers whose namespace is there, and its number.
    pub(crate) namespaces: BTreeMap<String, u64>,
    /// Whether the datastore cannot be reached.
    pub(crate) is_away: bool,
    /// Since which step it answers.
    pub(crate) answers_since: usize,
    pub(crate) agent: Option<Agent>,
}

/// What is lost with the process.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) view: View,
    pub(crate) inputs: Inputs,
    /// The revision up to which the watch has delivered.
    pub(crate) watched: i64,
    /// Revisions of our own writes that it has not delivered yet.
    pub(crate) ahead: BTreeMap<String, i64>,
    pub(crate) works: Vec<Work>,
}

/// What a runtime asks an interface for.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    pub(crate) identity: Identity,
    pub(crate) workload: Workload,
    pub(crate) network: &'static str,
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
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
    /// An ADD, with the number of its namespace.
    Add(Box<Attachment>, u64, Fresh),
    Del(Box<Attachment>),
    /// Take down what could not leave.
    Down(Identity, Workload),
    /// Take down what the join found dead.
    Dead(Box<Record>),
    Settle(Identity, Workload),
    Keep(Identity, Workload, Fresh),
    Restock(Restock),
    Sweep(Leftover),
}

#[derive(Debug)]
pub(crate) enum Task {
    Add(Box<Adding>),
    /// It was added before, and is as it should be.
    Again,
    Del(Box<Running>),
    Settle(Box<Record>, Pursuit<Result<Record, Unsettled>>),
    Keep(Box<Record>, Fresh, Pursuit<Result<reclaim::Reclaimed, reclaim::Kept>>),
    Restock(Restock, Pursuit<()>),
    Sweep(Leftover, Pursuit<()>),
}

/// An ADD on its way.
#[derive(Debug)]
pub(crate) struct Adding {
    pub(crate) asked: Attachment,
    pub(crate) netns: u64,
    pub(crate) fresh: Fresh,
    /// An earlier attempt that makes room first.
    pub(crate) room: Option<Running>,
    pub(crate) up: Option<(Running, Order)>,
}

impl Job {
    /// Whose it is.
    pub(crate) fn sandbox(&self) -> Option<(&Identity, &Workload)> {
        match self {
            Self::Add(asked, ..) | Self::Del(asked) => Some((&asked.identity, &asked.workload)),
            Self::Down(identity, workload)
            | Self::Settle(identity, workload)
            | Self::Keep(identity, workload, _) => Some((identity, workload)),
            Self::Dead(record) => Some((&record.identity, &record.workload)),
            Self::Restock(_) | Self::Sweep(_) => None,
        }
    }

    fn turn(&self) -> String {
        match self {
            Self::Restock(_) => "the reserve".to_owned(),
            Self::Sweep(Leftover::Endpoint { usual, .. }) => usual.clone(),
            Self::Sweep(leftover) => format!("{leftover:?}"),
            _ => {
                let (identity, workload) = self.sandbox().expect("all others have one");
                workload.host_interface(identity)
            }
        }
    }

    /// In words.
    pub(crate) fn label(&self) -> String {
        let what = match self {
            Self::Add(..) => "ADD",
            Self::Del(_) => "DEL",
            Self::Down(..) => "take down",
            Self::Dead(_) => "take down the dead",
            Self::Settle(..) => "settle",
            Self::Keep(..) => "keep",
            Self::Restock(_) => "fill the reserve",
            Self::Sweep(Leftover::Endpoint { key, .. }) => {
                return format!("remove the ghost {}", crate::trace::short(key));
            }
            Self::Sweep(_) => "let go what is unused",
        };
        match self.sandbox() {
            Some((identity, _)) => format!("{what} {}", who(identity)),
            None => what.to_owned(),
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
    pub(crate) step: usize,
    /// What is worth telling; none if nobody reads it.
    pub(crate) notes: Option<Vec<String>>,
}

impl Surroundings<'_> {
    pub(crate) fn happens(&mut self, rate: u32) -> bool {
        self.chance.u32(0..1000) < rate
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.options.bug == Some(bug)
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(notes) = &mut self.notes {
            notes.push(what());
        }
    }

    pub(crate) fn fresh(&mut self) -> Fresh {
        let mut uid = || format!("{:032x}", self.chance.u128(..));
        Fresh { endpoint_uid: uid(), profile_uid: uid() }
    }
}

impl Running {
    pub(crate) fn new(course: Course) -> Self {
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
            namespaces: BTreeMap::new(),
            is_away: false,
            answers_since: 0,
            agent: None,
        }
    }

    /// Starts the agent: what was under way is taken back, what was leaving leaves.
    pub(crate) fn start(&mut self) {
        let inputs = self.vouched();
        let (view, ahead) = (View::default(), BTreeMap::new());
        self.agent = Some(Agent { view, inputs, watched: 0, ahead, works: Vec::new() });
        self.retry();
    }

    /// What was leaving and could not leaves now.
    pub(crate) fn retry(&mut self) {
        let unfinished = self.journal.values().filter(|it| !self.is_up(it));
        let downs: Vec<Job> =
            unfinished.map(|it| Job::Down(it.identity.clone(), it.workload.clone())).collect();
        downs.into_iter().for_each(|job| self.begin(job));
    }

    /// Begins a job when its turn comes; once is enough for what the agent does by itself.
    pub(crate) fn begin(&mut self, job: Job) {
        let Some(agent) = &mut self.agent else { return };
        let turn = job.turn();
        let is_call = matches!(job, Job::Add(..) | Job::Del(..));
        let is_same = |other: &Job| match (other, &job) {
            (Job::Sweep(other), Job::Sweep(leftover)) => other == leftover,
            _ => {
                let sandbox = other.sandbox().map(|it| it.0);
                std::mem::discriminant(other) == std::mem::discriminant(&job)
                    && sandbox == job.sandbox().map(|it| it.0)
            }
        };
        let is_busy = agent.works.iter().any(|work| is_same(&work.job));
        if is_call || !is_busy {
            agent.works.push(Work { turn, job, task: None });
        }
    }

    /// The turn of a job has come: what it is about may have changed meanwhile.
    pub(crate) fn open(&self, agent: &Agent, job: &Job, bug: Option<Bug>) -> Option<Task> {
        let known = job.sandbox().and_then(|(identity, _)| self.journal.get(identity)).cloned();
        let down = |record| Running::new(Course::down(record, true));
        let leave = |record| Task::Del(Box::new(down(record)));
        match job {
            Job::Add(asked, netns, fresh) => {
                if known.as_ref().is_some_and(|it| self.is_the_same(it, *netns)) {
                    return Some(Task::Again);
                }
                let (asked, netns, fresh) = (Attachment::clone(asked), *netns, fresh.clone());
                let room = known.map(down);
                Some(Task::Add(Box::new(Adding { asked, netns, fresh, room, up: None })))
            }
            Job::Del(asked) => {
                let stranger = || self.record(asked, 0, Phase::Leaving);
                Some(leave(known.unwrap_or_else(stranger)))
            }
            Job::Down(..) => known.filter(|it| !self.is_up(it)).map(leave),
            Job::Dead(_) if bug == Some(Bug::DeadAtFirstLook) => known.map(leave),
            Job::Dead(record) => known.filter(|it| it == &**record).map(leave),
            Job::Settle(..) => known
                .filter(|it| self.is_up(it) && it.owed.is_some())
                .map(|it| Task::Settle(Box::new(it), Pursuit::new(&agent.view))),
            Job::Keep(_, _, fresh) => known
                .filter(|it| self.is_up(it) && it.owed.is_none() && self.stands(it))
                .map(|it| Task::Keep(Box::new(it), fresh.clone(), Pursuit::new(&agent.view))),
            Job::Restock(restock) => {
                Some(Task::Restock(restock.clone(), Pursuit::new(&agent.view)))
            }
            // A later sandbox may have come to that name.
            Job::Sweep(Leftover::Endpoint { key, .. })
                if bug != Some(Bug::GhostWithoutJournal)
                    && self.journal.values().any(|it| endpoint_key(it) == *key) =>
            {
                None
            }
            Job::Sweep(leftover) => Some(Task::Sweep(leftover.clone(), Pursuit::new(&agent.view))),
        }
    }

    /// Nothing stands in the way of an ADD any more. What an earlier attempt could not tell the
    /// datastore goes over to this one.
    pub(crate) fn bring_up(&self, adding: &mut Adding, debt: Option<Owed>) {
        let mut record = self.record(&adding.asked, adding.netns, Phase::Claiming);
        record.wiring.host_interface = self.free_host_interface(&record);
        record.profiles = Some(vec![record.network.clone()]);
        record.owed = debt;
        let Attachment { ipv4, ipv6, .. } = adding.asked;
        let wish = Wish { ipv4, ipv6, avoid: self.routed(), ..Wish::default() };
        let order = Order { record: record.clone(), wish, fresh: adding.fresh.clone() };
        adding.room = None;
        adding.up = Some((Running::new(Course::up(record, true)), order));
    }

    /// The usual name, unless another live sandbox has it, or another interface of this container;
    /// an earlier sandbox of the same pod makes room.
    fn free_host_interface(&self, record: &Record) -> String {
        let (identity, usual) = (&record.identity, &record.wiring.host_interface);
        let is_pod = matches!(record.workload, Workload::Pod { .. });
        let is_taken = self.interfaces.get(usual).map(|it| &it.identity).is_some_and(|owner| {
            let makes_room = is_pod && owner.container != identity.container;
            owner != identity && !makes_room
        });
        if is_taken { identity.spare_host_interface() } else { usual.clone() }
    }

    pub(crate) fn record(&self, asked: &Attachment, netns: u64, phase: Phase) -> Record {
        let origin = Origin {
            identity: asked.identity.clone(),
            workload: asked.workload.clone(),
            network: asked.network.to_owned(),
            node: self.name.clone(),
            boot: self.boot.to_string(),
            netns: NetnsId { device: 0, inode: netns },
            netns_path: String::new(),
            ipam: CALICO_IPAM.to_owned(),
        };
        Record::of(origin, phase).expect("names here are good ones")
    }

    /// Whether a sandbox came up, since the machine did.
    pub(crate) fn is_up(&self, record: &Record) -> bool {
        record.phase == Phase::Ready && record.boot == self.boot.to_string()
    }

    /// Whether a sandbox has what another ADD asks for.
    fn is_the_same(&self, record: &Record, netns: u64) -> bool {
        self.is_up(record) && record.netns.inode == netns && self.stands(record)
    }

    /// Whether the interface of a sandbox is there and its own.
    pub(crate) fn stands(&self, record: &Record) -> bool {
        let interface = self.interfaces.get(&record.wiring.host_interface);
        interface.is_some_and(|it| it.identity == record.identity)
    }

    /// Whether somebody may use a sandbox.
    pub(crate) fn lives(&self, record: &Record) -> bool {
        let namespace = self.namespaces.get(&record.identity.container);
        let has_interface = || self.interfaces.values().any(|it| it.identity == record.identity);
        record.boot == self.boot.to_string()
            && (namespace == Some(&record.netns.inode) || has_interface())
    }

    pub(crate) fn routed(&self) -> BTreeSet<IpAddr> {
        self.interfaces.values().flat_map(|it| &it.addresses).copied().collect()
    }

    /// Addresses that other interfaces of the same container hold under the same handle.
    pub(crate) fn addresses_of_others(&self, record: &Record) -> BTreeSet<IpAddr> {
        let handle = record.handle();
        let others = self.journal.values().filter(|other| {
            other.identity.container == record.identity.container
                && other.identity != record.identity
                && other.handle() == handle
        });
        others.flat_map(|other| &other.wiring.addresses).copied().collect()
    }

    /// Nothing absorbed yet. The journal vouches for what is up; of several sandboxes of one pod,
    /// for the one that has the interface.
    pub(crate) fn vouched(&self) -> Inputs {
        let mut inputs = Inputs::new(&self.name);
        for record in self.journal.values().filter(|it| self.is_up(it)) {
            let key = endpoint_key(record);
            if self.stands(record) || !inputs.is_vouched(&key) {
                inputs.vouch(&key, Live::of(record));
            }
        }
        inputs
    }
}
