//! Who is there, and what happens next.

use ipam::Moment;
use sandbox::identity::{Identity, Workload};
use serde_json::json;

use crate::node::{Job, Node, Surroundings, Task, Work};
use crate::options::Options;
use crate::others::Others;
use crate::store::Store;
use crate::work::Advanced;
use crate::{Summary, laws};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// How many rounds everybody gets after the faults have stopped.
const ROUNDS_MAX: usize = 60;

/// A sandbox, as its runtime sees it.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) identity: Identity,
    pub(crate) workload: Workload,
    pub(crate) node: usize,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// ADD is to be called.
    New,
    /// ADD was called; whether its caller still listens.
    Adding(bool),
    /// It runs.
    Running,
    /// DEL is to be called.
    Stopping,
    /// DEL was called.
    Deleting,
    /// The runtime has forgotten it.
    Gone,
}

/// A cluster.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) chance: fastrand::Rng,
    pub(crate) options: Options,
    pub(crate) store: Store,
    pub(crate) nodes: Vec<Node>,
    pub(crate) containers: Vec<Container>,
    /// The latest container of each pod.
    pods: Vec<Option<usize>>,
    pub(crate) others: Others,
    pub(crate) step: usize,
    pub(crate) trace: Vec<String>,
    n_running: usize,
    from_reserve: usize,
    boots: u64,
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let options = options.drawn(&mut chance);
        let mut store = Store::new();
        let object = |kind: &str, name: &str, spec: serde_json::Value| {
            json!({
                "kind": kind, "apiVersion": "projectcalico.org/v3",
                "metadata": {"name": name}, "spec": spec,
            })
        };
        let pool = object(
            "IPPool",
            "pool",
            json!({
                "cidr": format!("10.0.0.0/{}", options.pool), "blockSize": options.block,
                "ipipMode": "Never", "vxlanMode": "Never", "nodeSelector": "all()",
                "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic",
            }),
        );
        let put = |store: &mut Store, key: String, value: serde_json::Value| {
            store.put(&key, Some(text::json::to_string(&value).into_bytes()));
        };
        put(&mut store, format!("{RESOURCES}/ippools/pool"), pool);
        let ready = object("ClusterInformation", "default", json!({"datastoreReady": true}));
        put(&mut store, format!("{RESOURCES}/clusterinformations/default"), ready);
        let names = (0..options.nodes).map(|n| format!("n{n}"));
        let calico = (0..options.calico_nodes).map(|n| format!("calico{n}"));
        for name in names.clone().chain(calico.clone()) {
            let node = object("Node", &name, json!({}));
            put(&mut store, format!("{RESOURCES}/nodes/{name}"), node);
        }
        let mut nodes: Vec<Node> = names.map(|name| Node::new(name, 1)).collect();
        nodes.iter_mut().for_each(Node::start);
        Self {
            chance,
            store,
            nodes,
            containers: Vec::new(),
            pods: vec![None; options.pods],
            others: Others::new(calico.collect()),
            step: 0,
            trace: Vec::new(),
            n_running: 0,
            from_reserve: 0,
            boots: 1,
            options,
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            steps: self.step,
            sandboxes: self.n_running,
            transactions: self.store.revision,
            from_reserve: self.from_reserve,
        }
    }

    pub(crate) fn tell(&mut self, what: String) {
        self.trace.push(format!("{:>5}  {what}", self.step));
    }

    pub(crate) fn now(&self) -> Moment {
        // A step is a tenth of a second.
        let step = u64::try_from(self.step).unwrap_or(u64::MAX);
        Moment::from_nanoseconds(1_700_000_000_000_000_000 + step * 100_000_000)
    }

    pub(crate) fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.options.steps {
            self.step += 1;
            self.happen();
            laws::at_every_step(self)?;
        }
        self.settle_down()
    }

    fn happens(&mut self, rate: u32) -> bool {
        self.chance.u32(0..1000) < rate
    }

    /// One thing happens.
    fn happen(&mut self) {
        let node = self.chance.usize(0..self.nodes.len());
        match self.chance.u32(0..100) {
            0..45 => self.advance_any(),
            45..62 => self.deliver(node),
            62..82 => self.runtime(),
            82..87 => self.look_around(node),
            87..89 => self.join(node),
            89..94 => self.others_act(),
            _ => self.fault(node),
        }
    }

    fn others_act(&mut self) {
        let mut others = std::mem::take(&mut self.others);
        others.act(self);
        self.others = others;
    }

    fn fault(&mut self, node: usize) {
        let options = self.options.clone();
        if self.nodes[node].agent.is_none() {
            self.tell(format!("n{node}: the agent starts"));
            self.nodes[node].start();
            return;
        }
        if self.happens(options.crash * 10) {
            self.tell(format!("n{node}: the agent is killed"));
            self.crash(node);
        }
        if self.happens(options.reboot * 10) {
            self.tell(format!("n{node}: the machine starts anew"));
            self.reboot(node);
        }
        if self.happens(options.replace * 10) {
            self.tell(format!("n{node}: another machine takes the name"));
            self.reboot(node);
            self.nodes[node].journal.clear();
            self.nodes[node].stock.clear();
            self.nodes[node].memory.clear();
        }
        if self.happens(options.partition * 10) {
            let is_away = !self.nodes[node].is_away;
            self.nodes[node].is_away = is_away;
            let how = if is_away { "loses" } else { "has" };
            self.tell(format!("n{node}: {how} the datastore"));
        }
        if self.happens(options.compaction * 10) {
            self.store.compact();
            self.tell("the datastore forgets its past".to_owned());
        }
    }

    /// The agent of a node is killed: callers see their calls fail.
    fn crash(&mut self, node: usize) {
        self.nodes[node].agent = None;
        for container in self.containers.iter_mut().filter(|it| it.node == node) {
            container.state = match container.state {
                State::Adding(_) | State::Deleting => State::Stopping,
                state => state,
            };
        }
    }

    fn reboot(&mut self, node: usize) {
        self.crash(node);
        self.boots += 1;
        let machine = &mut self.nodes[node];
        machine.boot = self.boots;
        machine.interfaces.clear();
        machine.namespaces.clear();
        for container in self.containers.iter_mut().filter(|it| it.node == node) {
            container.state = State::Gone;
        }
    }

    fn with_node<T>(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut Node, &mut Surroundings<'_>) -> T,
    ) -> T {
        let now = self.now();
        let mut notes = Vec::new();
        let mut around = Surroundings {
            store: &mut self.store,
            chance: &mut self.chance,
            options: &self.options,
            now,
            notes: &mut notes,
        };
        let result = act(&mut self.nodes[node], &mut around);
        for note in notes {
            self.tell(format!("n{node}: {note}"));
        }
        result
    }

    fn deliver(&mut self, node: usize) {
        self.with_node(node, |node, around| node.deliver(around));
    }

    fn look_around(&mut self, node: usize) {
        self.with_node(node, |node, around| node.look_around(around));
    }

    fn join(&mut self, node: usize) {
        let bug = self.options.bug;
        self.nodes[node].join(bug);
    }

    fn advance_any(&mut self) {
        let n_works = |node: &Node| node.agent.as_ref().map_or(0, |agent| agent.works.len());
        let busy: Vec<usize> =
            (0..self.nodes.len()).filter(|at| n_works(&self.nodes[*at]) > 0).collect();
        if let Some(node) = self.chance.choice(busy) {
            let index = self.chance.usize(0..n_works(&self.nodes[node]));
            self.advance(node, index);
        }
    }

    fn advance(&mut self, node: usize, index: usize) {
        if !self.nodes[node].has_turn(index) {
            return;
        }
        let (what, job) = self.nodes[node].describe(index);
        let advanced = self.with_node(node, |node, around| node.advance(index, around));
        self.tell(format!("n{node}: {what}"));
        let (Job::Add(identity, ..) | Job::Del(identity, _)) = &job else { return };
        let is_add = matches!(job, Job::Add(..));
        let at = self.containers.iter().position(|container| container.identity == *identity);
        let Some(at) = at else { return };
        let state = self.containers[at].state;
        match advanced {
            Advanced::On => {}
            Advanced::Answers => {
                let is_taken = state == State::Adding(true);
                let identity = self.containers[at].identity.clone();
                if is_taken {
                    self.containers[at].state = State::Running;
                    self.n_running += 1;
                    let record = self.nodes[node].journal.get(&identity);
                    let is_owed = record.is_some_and(|record| record.owed.is_some());
                    self.from_reserve += usize::from(is_owed);
                }
                self.nodes[node].answered(&identity, is_taken);
            }
            Advanced::Over(result) => match (state, is_add) {
                (State::Adding(_), true) => self.containers[at].state = State::Stopping,
                (State::Deleting, false) => {
                    let is_excused = result.as_ref().is_err_and(|failure| {
                        failure.code == sandbox::failure::Code::TryAgainLater
                    });
                    match result.is_ok() || is_excused {
                        true => self.forget(at),
                        false => self.containers[at].state = State::Stopping,
                    }
                }
                _ => {}
            },
        }
    }

    /// The runtime removes the namespace.
    fn forget(&mut self, at: usize) {
        let container = &mut self.containers[at];
        container.state = State::Gone;
        self.nodes[container.node].namespaces.remove(&container.identity.container);
    }

    /// Something happens to a pod.
    fn runtime(&mut self) {
        let pod = self.chance.usize(0..self.pods.len());
        // Late and doubled DELs are for whatever is gone.
        let late = self.options.late_del;
        if !self.containers.is_empty() && self.happens(late) {
            let at = self.chance.usize(0..self.containers.len());
            if self.containers[at].state == State::Gone {
                return self.call_del(at);
            }
        }
        let Some(at) = self.pods[pod] else { return self.create(pod) };
        match self.containers[at].state {
            State::Gone if self.chance.u8(0..3) == 0 => self.attach_again(at),
            State::Gone => self.create(pod),
            State::New => self.call_add(at),
            State::Adding(_) => {
                let rate = self.options.hang_up;
                if self.happens(rate) {
                    self.containers[at].state = State::Adding(false);
                }
            }
            State::Running if self.chance.u8(0..4) == 0 => self.stop(at),
            State::Running | State::Deleting => {}
            State::Stopping => self.call_del(at),
        }
    }

    fn create(&mut self, pod: usize) {
        let node = self.chance.usize(0..self.nodes.len());
        let container = format!("{:016x}", self.chance.u64(..));
        let identity = Identity { container, interface: "eth0".to_owned() };
        let workload = Workload::Pod { namespace: "d".to_owned(), name: format!("web-{pod}") };
        self.containers.push(Container { identity, workload, node, state: State::New });
        let at = self.containers.len() - 1;
        self.pods[pod] = Some(at);
        self.call_add(at);
    }

    /// The same container is attached once more.
    fn attach_again(&mut self, at: usize) {
        self.containers[at].state = State::New;
        self.call_add(at);
    }

    fn call_add(&mut self, at: usize) {
        let Container { identity, workload, node, .. } = &self.containers[at];
        let (identity, workload, node) = (identity.clone(), workload.clone(), *node);
        if self.nodes[node].agent.is_none() {
            return;
        }
        self.nodes[node].namespaces.insert(identity.container.clone());
        let endpoint = workload.endpoint_name("n", &identity).unwrap_or_default();
        self.tell(format!("n{node}: ADD {identity} for {endpoint}"));
        self.containers[at].state = State::Adding(true);
        self.with_node(node, |node, around| {
            let fresh = around.fresh();
            node.begin(Job::Add(identity, workload, fresh));
        });
    }

    fn call_del(&mut self, at: usize) {
        let Container { identity, workload, node, state } = &self.containers[at];
        let (identity, workload, node, state) = (identity.clone(), workload.clone(), *node, *state);
        if self.nodes[node].agent.is_none() {
            return;
        }
        self.tell(format!("n{node}: DEL {identity}"));
        self.nodes[node].begin(Job::Del(identity, workload));
        if state != State::Gone {
            self.containers[at].state = State::Deleting;
        }
    }

    fn stop(&mut self, at: usize) {
        let missing = self.options.missing_del;
        if self.happens(missing) {
            let identity = self.containers[at].identity.clone();
            self.tell(format!("{identity} dies and nobody says so"));
            return self.forget(at);
        }
        self.containers[at].state = State::Stopping;
        self.call_del(at);
        let double = self.options.double_del;
        if self.happens(double) {
            self.call_del(at);
        }
    }

    /// The faults stop: everybody does what is to be done, and one pass of the join.
    fn settle_down(&mut self) -> Result<(), String> {
        self.tell("the faults stop".to_owned());
        self.options.lost_answer = 0;
        self.options.compaction = 0;
        for node in 0..self.nodes.len() {
            self.nodes[node].is_away = false;
            if self.nodes[node].agent.is_none() {
                self.nodes[node].start();
            }
        }
        for at in 0..self.containers.len() {
            if self.containers[at].state == State::New {
                self.forget(at);
            }
        }
        for round in 0..ROUNDS_MAX {
            self.step += 1;
            for at in 0..self.containers.len() {
                if self.containers[at].state == State::Stopping {
                    self.call_del(at);
                }
            }
            for node in 0..self.nodes.len() {
                self.catch_up(node);
                self.look_around(node);
                self.finish_works(node);
                self.catch_up(node);
                // The second half of the rounds is for what the pass itself has set in motion.
                if round == ROUNDS_MAX / 3 {
                    self.join(node);
                    self.finish_works(node);
                }
            }
            laws::at_every_step(self)?;
        }
        laws::at_the_end(self)
    }

    fn catch_up(&mut self, node: usize) {
        while self.nodes[node].agent.as_ref().is_some_and(|it| it.watched < self.store.revision) {
            self.deliver(node);
        }
    }

    fn finish_works(&mut self, node: usize) {
        for _ in 0..10_000 {
            let n_works = self.nodes[node].agent.as_ref().map_or(0, |agent| agent.works.len());
            if n_works == 0 {
                return;
            }
            self.advance(node, 0);
        }
    }
}

impl Node {
    /// What a work is about to do.
    fn describe(&self, index: usize) -> (String, Job) {
        let agent = self.agent.as_ref().expect("only an agent has works");
        let Work { job, task, .. } = &agent.works[index];
        let act = match task {
            Some(Task::Add(running, _) | Task::Del(running)) => running.course.next(),
            _ => return (format!("{job:?}"), job.clone()),
        };
        let name = match job {
            Job::Add(..) => "ADD",
            Job::Del(..) => "DEL",
            _ => "takes down",
        };
        let identity = job.sandbox().map(|it| it.0.to_string()).unwrap_or_default();
        (format!("{name} {identity}: {act:?}"), job.clone())
    }
}
