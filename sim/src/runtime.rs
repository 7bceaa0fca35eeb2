//! Container runtimes: they call ADD and DEL, early, late, twice or not at all, and remove
//! namespaces.

use sandbox::failure::{Code, Failure};
use sandbox::identity::{Identity, Workload};

use crate::laws::{self, Violation};
use crate::look::REST_STEPS;
use crate::node::{Attachment, Job};
use crate::trace::{addresses, who};
use crate::world::{Container, State, World};

/// How many rounds everybody gets to come to rest after the faults have stopped.
const ROUNDS_MAX: usize = 60;

/// How many steps a node may need to do what it has to do.
const STEPS_MAX: usize = 10_000;

impl World {
    pub(crate) fn change(&mut self, at: usize, state: State) {
        let container = &mut self.containers[at];
        container.state = state;
        self.watch.follow(container.node, at, state == State::Running);
    }

    /// An ADD is about to give its answer.
    pub(crate) fn answer(&mut self, at: usize, is_meant: bool) {
        let node = self.containers[at].node;
        let identity = self.containers[at].asked.identity.clone();
        let is_taken = is_meant && self.containers[at].state == State::Adding(true);
        if is_taken {
            self.runs(at);
        }
        self.nodes[node].answered(&identity, is_taken);
    }

    /// A container was told its addresses.
    fn runs(&mut self, at: usize) {
        let identity = self.containers[at].asked.identity.clone();
        let node = self.containers[at].node;
        let Some(record) = self.nodes[node].journal.get(&identity) else { return };
        let told = record.wiring.addresses.clone();
        self.seen.from_reserve += usize::from(record.owed.is_some());
        self.seen.sandboxes += 1;
        self.seen.second_interfaces += usize::from(identity.interface != "eth0");
        self.seen.with_ipv6 += usize::from(told.iter().any(|it| it.is_ipv6()));
        self.containers[at].is_orphan = false;
        self.tell(|| format!("{} runs with{}", who(&identity), addresses(&told)));
        self.containers[at].addresses = told;
        self.change(at, State::Running);
    }

    /// A call has ended.
    pub(crate) fn ended(&mut self, at: usize, is_add: bool, failure: Option<Failure>) {
        match (self.containers[at].state, is_add) {
            (State::Adding(true), true) if failure.is_none() => self.runs(at),
            (State::Adding(_), true) => self.change(at, State::Stopping),
            (State::Deleting, false) => {
                match failure.is_none_or(|failure| failure.code == Code::TryAgainLater) {
                    true => self.forget(at),
                    false => self.change(at, State::Stopping),
                }
            }
            _ => {}
        }
    }

    /// The runtime forgets an interface, and with the last one removes the namespace. What was in
    /// it goes with it, at once or later.
    fn forget(&mut self, at: usize) {
        self.change(at, State::Gone);
        let node = self.containers[at].node;
        let container = self.containers[at].asked.identity.container.clone();
        let mut all = self.attachments(&container).into_iter();
        if all.any(|other| self.containers[other].state != State::Gone) {
            return;
        }
        if let Some(number) = self.nodes[node].namespaces.remove(&container) {
            self.closing.push((node, number));
            if self.chance.bool() {
                self.close_one();
            }
        }
    }

    /// The kernel comes to removing the interfaces of a namespace that is gone.
    pub(crate) fn close_one(&mut self) {
        if self.closing.is_empty() {
            return;
        }
        let (node, number) = self.closing.swap_remove(self.chance.usize(0..self.closing.len()));
        self.nodes[node].interfaces.retain(|_, it| it.netns != number);
        self.watch.touch(node);
    }

    /// Something happens to a pod.
    pub(crate) fn runtime(&mut self) {
        // Late and doubled DELs are for whatever is gone.
        let late = self.options.late_del;
        if !self.containers.is_empty() && self.happens(late) {
            let at = self.chance.usize(0..self.containers.len());
            if self.containers[at].state == State::Gone {
                return self.call_del(at);
            }
        }
        let pod = self.chance.usize(0..self.pods.len());
        let is_gone = |at: &usize| self.containers[*at].state == State::Gone;
        let are_gone = self.pods[pod].iter().all(is_gone);
        let Some(at) = self.chance.choice(&self.pods[pod]).copied() else {
            return self.create(pod);
        };
        match self.containers[at].state {
            State::Gone if self.chance.bool() => {
                self.change(at, State::New);
                self.call_add(at);
            }
            State::Gone if are_gone => self.create(pod),
            State::Gone => {}
            State::New => self.call_add(at),
            State::Adding(_) => {
                let rate = self.options.hang_up;
                if self.happens(rate) {
                    self.change(at, State::Adding(false));
                }
            }
            State::Running if self.chance.u8(0..4) == 0 => self.stop(pod),
            State::Running => {
                let rate = self.options.double_add;
                if self.happens(rate) {
                    self.call_add(at);
                }
            }
            State::Deleting => {}
            State::Stopping => self.call_del(at),
        }
    }

    fn create(&mut self, pod: usize) {
        let node = self.chance.usize(0..self.nodes.len());
        let n = self.containers.len();
        let (plain, second) = (self.options.plain, self.options.second_interface);
        let is_plain = self.happens(plain);
        let (container, workload) = match is_plain {
            // The name of the host's interface is the beginning of this, and many begin alike.
            true if self.chance.bool() => (format!("container-c{n:04}"), Workload::Plain),
            true => (format!("c{n:04}"), Workload::Plain),
            false => {
                let name = format!("web-{pod}");
                (format!("c{n:04}"), Workload::Pod { namespace: "d".to_owned(), name })
            }
        };
        let mut interfaces = vec![("eth0", "net")];
        if self.happens(second) {
            interfaces.push(("net1", if self.chance.bool() { "net" } else { "net2" }));
        }
        self.pods[pod].clear();
        for (interface, network) in interfaces {
            let (ipv4, ipv6) = match self.families {
                (true, true) => [(true, true), (true, true), (true, false), (false, true)]
                    [self.chance.usize(0..4)],
                families => families,
            };
            let (container, interface) = (container.clone(), interface.to_owned());
            let identity = Identity { container, interface };
            let workload = workload.clone();
            let at = self.containers.len();
            self.known.insert(identity.clone(), at);
            let asked = Attachment { identity, workload, network, ipv4, ipv6 };
            let (addresses, state) = (Vec::new(), State::New);
            let (netns, is_orphan) = (0, false);
            let container = Container { asked, node, state, netns, addresses, is_orphan };
            self.containers.push(container);
            self.pods[pod].push(at);
            self.call_add(at);
        }
    }

    fn call_add(&mut self, at: usize) {
        let Container { asked, node, state, .. } = &self.containers[at];
        let (asked, node, state) = (asked.clone(), *node, *state);
        if self.nodes[node].agent.is_none() {
            return;
        }
        let number = self.new_number();
        let namespaces = &mut self.nodes[node].namespaces;
        let netns = *namespaces.entry(asked.identity.container.clone()).or_insert(number);
        self.containers[at].netns = netns;
        self.tell(|| {
            let endpoint = asked.workload.endpoint_name("n", &asked.identity).unwrap_or_default();
            format!("n{node}: ADD {} for {endpoint} comes", who(&asked.identity))
        });
        if state == State::New {
            self.change(at, State::Adding(true));
        }
        self.with_node(node, |node, around| {
            let fresh = around.fresh();
            node.begin(Job::Add(Box::new(asked), netns, fresh));
        });
    }

    fn call_del(&mut self, at: usize) {
        let Container { asked, node, state, .. } = &self.containers[at];
        let (asked, node, state) = (asked.clone(), *node, *state);
        if self.nodes[node].agent.is_none() {
            return;
        }
        self.tell(|| format!("n{node}: DEL {} comes", who(&asked.identity)));
        self.nodes[node].begin(Job::Del(Box::new(asked)));
        if state != State::Gone {
            self.change(at, State::Deleting);
        }
    }

    /// A pod ends, with all its interfaces.
    fn stop(&mut self, pod: usize) {
        let missing = self.options.missing_del;
        let runs = |at: &usize| self.containers[*at].state == State::Running;
        let may_die = self.pods[pod].iter().all(runs);
        let is_silent = self.happens(missing) && may_die;
        for at in self.pods[pod].clone() {
            if self.containers[at].state != State::Running {
                continue;
            }
            if is_silent {
                let identity = self.containers[at].asked.identity.clone();
                self.tell(|| format!("{} dies and nobody says so", who(&identity)));
                self.forget(at);
                continue;
            }
            self.change(at, State::Stopping);
            self.call_del(at);
            let double = self.options.double_del;
            if self.happens(double) {
                self.call_del(at);
            }
        }
    }

    /// The faults stop: everybody does what is to be done, and one pass of the join.
    pub(crate) fn settle_down(&mut self) -> Result<(), Violation> {
        self.tell(|| "the faults stop".to_owned());
        self.options.lost_answer = 0;
        self.options.compaction = 0;
        for node in 0..self.nodes.len() {
            self.nodes[node].is_away = false;
            self.nodes[node].answers_since = self.step;
            if self.nodes[node].agent.is_none() {
                self.start(node);
            }
        }
        for at in 0..self.containers.len() {
            if self.containers[at].state == State::New {
                self.forget(at);
            }
        }
        (0..REST_STEPS).for_each(|_| self.pass());
        self.come_to_rest()?;
        for node in 0..self.nodes.len() {
            self.catch_up(node);
            self.with_node(node, crate::node::Node::join);
            self.finish_works(node)?;
        }
        self.come_to_rest()?;
        laws::everywhere(self)?;
        laws::at_the_end(self)
    }

    /// Everybody does what is to be done until nothing changes any more.
    fn come_to_rest(&mut self) -> Result<(), Violation> {
        let is_moving = |it: &Container| {
            matches!(it.state, State::Adding(_) | State::Stopping | State::Deleting)
        };
        // What one round leaves undone is begun by the next.
        let mut n_quiet = 0;
        for _ in 0..ROUNDS_MAX {
            self.pass();
            let before = self.store.revision;
            while !self.closing.is_empty() {
                self.close_one();
            }
            for at in 0..self.containers.len() {
                if self.containers[at].state == State::Stopping {
                    self.call_del(at);
                }
            }
            for node in 0..self.nodes.len() {
                self.catch_up(node);
                self.with_node(node, crate::node::Node::look_around);
                self.finish_works(node)?;
                self.catch_up(node);
            }
            let is_quiet = before == self.store.revision && self.closing.is_empty();
            let is_quiet = is_quiet && !self.containers.iter().any(is_moving);
            n_quiet = if is_quiet { n_quiet + 1 } else { 0 };
            if n_quiet == 2 {
                break;
            }
        }
        Ok(())
    }

    fn catch_up(&mut self, node: usize) {
        while self.nodes[node].agent.as_ref().is_some_and(|it| it.watched < self.store.revision) {
            self.with_node(node, |node, around| node.deliver(around, usize::MAX));
        }
    }

    fn finish_works(&mut self, node: usize) -> Result<(), Violation> {
        for _ in 0..STEPS_MAX {
            if self.nodes[node].agent.as_ref().is_none_or(|agent| agent.works.is_empty()) {
                break;
            }
            self.advance(node, 0);
            laws::where_something_happened(self)?;
        }
        Ok(())
    }
}
