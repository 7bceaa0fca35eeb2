//! Who is there, and what happens next.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::Moment;
use sandbox::identity::Identity;
use serde_json::json;

use crate::Summary;
use crate::laws::{self, Violation};
use crate::node::{Attachment, Job, Node, Surroundings};
use crate::options::Options;
use crate::others::Others;
use crate::store::Store;
use crate::trace::{self, Trace};
use crate::work::Advanced;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// How often the laws are checked in full: in between, where something happened.
const FULL_CHECK_STEPS: usize = 250;

/// A sandbox, as its runtime sees it.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) asked: Attachment,
    pub(crate) node: usize,
    pub(crate) state: State,
    /// The number of the namespace that it was last added with.
    pub(crate) netns: u64,
    /// As it was told.
    pub(crate) addresses: Vec<IpAddr>,
    /// Its record is lost.
    pub(crate) is_orphan: bool,
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
    pub(crate) known: BTreeMap<Identity, usize>,
    /// The interfaces of the latest container of each pod.
    pub(crate) pods: Vec<Vec<usize>>,
    /// Namespaces that nobody holds any more and whose interfaces are still there.
    pub(crate) closing: Vec<(usize, u64)>,
    pub(crate) others: Others,
    /// Which families there are pools of.
    pub(crate) families: (bool, bool),
    pub(crate) step: usize,
    pub(crate) trace: Trace,
    pub(crate) watch: laws::Watch,
    pub(crate) seen: Summary,
    /// The last number that was given to a boot, a namespace or a machine.
    number: u64,
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options, is_traced: bool) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let options = options.drawn(seed, &mut chance);
        let families = [(true, false), (true, false), (false, true), (true, true)];
        let families = families[chance.usize(0..families.len())];
        let nodes: Vec<Node> = (0..options.nodes).map(|n| Node::new(format!("n{n}"), 1)).collect();
        let calico: Vec<String> = (0..options.calico_nodes).map(|n| format!("calico{n}")).collect();
        let seen = Summary { nodes: nodes.len(), ..Summary::default() };
        let mut world = Self {
            chance,
            store: Store::new(),
            watch: laws::Watch::new(nodes.len()),
            nodes,
            containers: Vec::new(),
            known: BTreeMap::new(),
            pods: vec![Vec::new(); options.pods],
            closing: Vec::new(),
            others: Others::new(calico.clone()),
            families,
            step: 0,
            trace: Trace::new(is_traced),
            seen,
            number: 1,
            options,
        };
        world.furnish();
        calico.iter().for_each(|name| world.register(name));
        (0..world.nodes.len()).for_each(|node| world.start(node));
        world
    }

    /// What an operator sets up: pools, and that the datastore may be used.
    fn furnish(&mut self) {
        let Options { pool, block, .. } = self.options;
        let pools = [
            (self.families.0, "pool4", format!("10.0.0.0/{pool}"), block),
            (self.families.1, "pool6", format!("fd00::/{}", pool + 96), block + 96),
        ];
        for (is_there, name, cidr, block) in pools {
            if is_there {
                let spec = json!({
                    "cidr": cidr, "blockSize": block,
                    "ipipMode": "Never", "vxlanMode": "Never", "nodeSelector": "all()",
                    "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic",
                });
                self.put("ippools", "IPPool", name, &spec);
            }
        }
        let ready = json!({"datastoreReady": true});
        self.put("clusterinformations", "ClusterInformation", "default", &ready);
    }

    fn put(&mut self, plural: &str, kind: &str, name: &str, spec: &serde_json::Value) {
        let uid = self.new_number().to_string();
        let object = json!({
            "kind": kind, "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name, "uid": uid}, "spec": spec,
        });
        let value = text::json::to_string(&object).into_bytes();
        self.store.put(&format!("{RESOURCES}/{plural}/{name}"), Some(value));
    }

    /// Tells the datastore about a node, if it does not know it.
    fn register(&mut self, name: &str) {
        if !self.store.has(&format!("{RESOURCES}/nodes/{name}")) {
            self.put("nodes", "Node", name, &json!({}));
        }
    }

    pub(crate) fn new_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary { steps: self.step, transactions: self.store.revision, ..self.seen }
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        self.trace.tell(self.step, what);
    }

    pub(crate) fn now(&self) -> Moment {
        // A step is a tenth of a second.
        let step = u64::try_from(self.step).unwrap_or(u64::MAX);
        Moment::from_nanoseconds(1_700_000_000_000_000_000 + step * 100_000_000)
    }

    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        while self.step < self.options.steps {
            self.pass();
            self.happen()?;
            laws::where_something_happened(self)?;
            if self.step.is_multiple_of(FULL_CHECK_STEPS) {
                laws::everywhere(self)?;
            }
        }
        self.settle_down()
    }

    /// Time passes.
    pub(crate) fn pass(&mut self) {
        self.step += 1;
        let before = self.store.moved.len();
        for plan in self.store.arrive(self.step) {
            let moved = trace::moves(&self.store.moved[before..]);
            self.tell(|| format!("a request arrives late:{moved}{}", trace::changes(&plan)));
        }
    }

    pub(crate) fn happens(&mut self, rate: u32) -> bool {
        self.chance.u32(0..1000) < rate
    }

    /// One thing happens.
    fn happen(&mut self) -> Result<(), Violation> {
        let node = self.chance.usize(0..self.nodes.len());
        match self.chance.u32(0..100) {
            0..50 => return self.advance_any(),
            50..65 => self.deliver(node),
            65..79 => self.runtime(),
            79..85 => self.with_node(node, Node::look_around),
            85..88 => self.with_node(node, Node::join),
            88..93 => self.others_act(),
            93..94 => self.close_one(),
            _ => self.fault(node),
        }
        Ok(())
    }

    fn others_act(&mut self) {
        let mut others = std::mem::take(&mut self.others);
        others.act(self);
        self.others = others;
    }

    fn fault(&mut self, node: usize) {
        let options = self.options.clone();
        if self.nodes[node].agent.is_none() {
            self.start(node);
            return;
        }
        if self.happens(options.crash * 10) {
            self.tell(|| format!("n{node}: the agent is killed"));
            self.crash(node);
        }
        if self.happens(options.reboot * 10) {
            self.tell(|| format!("n{node}: the machine starts anew"));
            self.reboot(node);
        }
        if self.happens(options.replace * 10) {
            self.tell(|| format!("n{node}: is deleted, and another machine gets the name"));
            self.reboot(node);
            self.lose_disk(node);
            self.store.put(&format!("{RESOURCES}/nodes/n{node}"), None);
        }
        if self.happens(options.journal_lost * 10) {
            self.tell(|| format!("n{node}: the disk of the agent is lost"));
            self.crash(node);
            self.lose_disk(node);
        }
        if self.happens(options.partition * 10) {
            let is_away = !self.nodes[node].is_away;
            self.nodes[node].is_away = is_away;
            self.nodes[node].answers_since = self.step;
            let how = if is_away { "loses" } else { "has" };
            self.tell(|| format!("n{node}: {how} the datastore"));
        }
        if self.happens(options.compaction * 10) {
            self.store.compact();
            self.tell(|| "the datastore forgets its past".to_owned());
        }
    }

    /// The agent of a node starts.
    pub(crate) fn start(&mut self, node: usize) {
        self.tell(|| format!("n{node}: the agent starts"));
        let spoilt = self.options.record_spoilt * 10;
        if self.happens(spoilt)
            && let Some(identity) = self.chance.choice(self.nodes[node].journal.keys()).cloned()
        {
            self.nodes[node].journal.remove(&identity);
            self.orphan(node);
        }
        if !self.nodes[node].is_away {
            self.register(&format!("n{node}"));
        }
        self.nodes[node].answers_since = self.step;
        self.nodes[node].start();
    }

    fn lose_disk(&mut self, node: usize) {
        let machine = &mut self.nodes[node];
        machine.journal.clear();
        machine.stock.clear();
        machine.memory.clear();
        self.orphan(node);
    }

    /// Takes note of containers whose record is lost.
    fn orphan(&mut self, node: usize) {
        let journal = &self.nodes[node].journal;
        for container in self.containers.iter_mut().filter(|it| it.node == node) {
            container.is_orphan |= !journal.contains_key(&container.asked.identity);
        }
    }

    /// The agent of a node is killed: callers see their calls fail.
    fn crash(&mut self, node: usize) {
        self.nodes[node].agent = None;
        self.seen.crashes += 1;
        for container in self.containers.iter_mut().filter(|it| it.node == node) {
            container.state = match container.state {
                State::Adding(_) | State::Deleting => State::Stopping,
                state => state,
            };
        }
    }

    fn reboot(&mut self, node: usize) {
        self.crash(node);
        let boot = self.new_number();
        let machine = &mut self.nodes[node];
        machine.boot = boot;
        machine.interfaces.clear();
        machine.namespaces.clear();
        self.closing.retain(|(at, _)| *at != node);
        for at in 0..self.containers.len() {
            if self.containers[at].node == node {
                self.change(at, State::Gone);
            }
        }
        // Some runtimes start the same containers again.
        for at in self.pods.concat() {
            if self.containers[at].node == node && self.chance.bool() {
                self.change(at, State::New);
            }
        }
    }

    pub(crate) fn with_node<T>(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut Node, &mut Surroundings<'_>) -> T,
    ) -> T {
        let now = self.now();
        let mut around = Surroundings {
            store: &mut self.store,
            chance: &mut self.chance,
            options: &self.options,
            now,
            step: self.step,
            notes: self.trace.is_read().then(Vec::new),
        };
        let result = act(&mut self.nodes[node], &mut around);
        let notes = around.notes.unwrap_or_default();
        self.watch.touch(node);
        for note in notes {
            self.tell(|| format!("n{node}: {note}"));
        }
        result
    }

    /// The watch of a node delivers one transaction, or several at once.
    fn deliver(&mut self, node: usize) {
        let n = [1, 1, 3, usize::MAX][self.chance.usize(0..4)];
        self.with_node(node, |node, around| node.deliver(around, n));
    }

    /// A node goes on with something, for one step or some.
    fn advance_any(&mut self) -> Result<(), Violation> {
        let has_works =
            |node: &Node| node.agent.as_ref().is_some_and(|agent| !agent.works.is_empty());
        let busy: Vec<usize> =
            (0..self.nodes.len()).filter(|at| has_works(&self.nodes[*at])).collect();
        let Some(node) = self.chance.choice(busy) else { return Ok(()) };
        let n_steps = [1, 1, 2, 6][self.chance.usize(0..4)];
        for _ in 0..n_steps {
            let machine = &self.nodes[node];
            let n_works = machine.agent.as_ref().map_or(0, |agent| agent.works.len());
            let ready: Vec<usize> = (0..n_works).filter(|at| machine.has_turn(*at)).collect();
            let Some(index) = self.chance.choice(ready) else { return Ok(()) };
            self.advance(node, index);
            laws::where_something_happened(self)?;
            self.pass();
        }
        Ok(())
    }

    pub(crate) fn advance(&mut self, node: usize, index: usize) {
        let Some(agent) = &self.nodes[node].agent else { return };
        let job = &agent.works[index].job;
        let label = self.trace.is_read().then(|| job.label());
        let call = match job {
            Job::Add(asked, netns, _) => Some((asked.identity.clone(), Some(*netns))),
            Job::Del(asked) => Some((asked.identity.clone(), None)),
            _ => None,
        };
        let advanced = self.with_node(node, |node, around| {
            let advanced = node.advance(index, around);
            for note in around.notes.iter_mut().flatten() {
                *note = format!("{}: {note}", label.as_deref().unwrap_or_default());
            }
            advanced
        });
        let Some((identity, netns)) = call else { return };
        let Some(at) = self.known.get(&identity).copied() else { return };
        // Whoever called for an earlier namespace of the container is not there any more.
        let is_meant = netns.is_none_or(|netns| self.containers[at].netns == netns);
        match advanced {
            Advanced::On => {}
            Advanced::Answers => self.answer(at, is_meant),
            Advanced::Over(result) if is_meant => self.ended(at, netns.is_some(), result.err()),
            Advanced::Over(_) => {}
        }
    }

    /// Containers whose namespace is there, of one node.
    pub(crate) fn attachments(&self, container: &str) -> BTreeSet<usize> {
        let first = Identity { container: container.to_owned(), interface: String::new() };
        let of = self.known.range(first..).take_while(|(it, _)| it.container == container);
        of.map(|(_, at)| *at).collect()
    }
}
