//! One step of what a node has under way: the shipped course or transaction says what, the made-up
//! kernel and datastore do it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use intent::{Leftover, Live};
use ipam::{Next, Outcome, Planned, Planner, Pursuit, View};
use sandbox::claim::{self, Order, endpoint_key};
use sandbox::course::{Act, Outage, Performed};
use sandbox::failure::{Code, Failure};
use sandbox::ghost;
use sandbox::identity::{Identity, Workload};
use sandbox::life::{Owed, Phase, Record, Step};
use sandbox::reclaim;
use sandbox::reserve::{self, Unsettled};

use crate::node::{Adding, Agent, Interface, Job, Node, Running, Surroundings, Task};
use crate::options::Bug;
use crate::trace::{addresses, changes, moves, spoken, who};

/// How many steps a request may be under way: less than a datastore that is back is left alone.
const DELAY_STEPS_MAX: usize = crate::look::REST_STEPS - 5;

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

impl Node {
    /// Whether it is the turn of a work.
    pub(crate) fn has_turn(&self, index: usize) -> bool {
        let Some(agent) = &self.agent else { return false };
        let turn = &agent.works[index].turn;
        !agent.works[..index].iter().any(|earlier| earlier.turn == *turn)
    }

    /// One step of one work.
    pub(crate) fn advance(&mut self, index: usize, around: &mut Surroundings<'_>) -> Advanced {
        let Some(mut agent) = self.agent.take() else { return Advanced::On };
        let mut work = agent.works.remove(index);
        if work.task.is_none() {
            work.task = self.open(&agent, &work.job, around.options.bug);
        }
        let advanced = match &mut work.task {
            None | Some(Task::Again) => Advanced::Over(Ok(())),
            Some(Task::Add(adding)) => self.advance_add(&mut agent, adding, around),
            Some(Task::Del(running)) => self.advance_course(&mut agent, running, None, around),
            Some(Task::Settle(record, pursuit)) => self.settle(&mut agent, record, pursuit, around),
            Some(Task::Keep(record, fresh, pursuit)) => {
                let held = held(record, around.options.bug);
                let keep = |planner: &mut Planner<'_>| reclaim::reclaim(planner, &held, fresh);
                self.transact(&mut agent, pursuit, around, keep, |node, agent, kept| {
                    if let Ok(reclaimed) = kept {
                        let identity = record.identity.clone();
                        node.write(agent, Record { identity, ..reclaimed.record });
                    }
                })
            }
            Some(Task::Restock(restock, pursuit)) => {
                let name = self.name.clone();
                let plan = |planner: &mut Planner<'_>| restock.plan(planner, &name);
                self.transact(&mut agent, pursuit, around, plan, |_, _, ()| {})
            }
            Some(Task::Sweep(leftover, pursuit)) => {
                let name = self.name.clone();
                let used: BTreeSet<IpAddr> = match around.has(Bug::GhostWithoutJournal) {
                    true => BTreeSet::new(),
                    false => {
                        let used = self.journal.values().flat_map(|it| &it.wiring.addresses);
                        used.copied().collect()
                    }
                };
                let plan = |planner: &mut Planner<'_>| sweep(planner, leftover, &name, &used);
                self.transact(&mut agent, pursuit, around, plan, |_, _, ()| {})
            }
        };
        if !matches!(advanced, Advanced::Over(_)) {
            agent.works.insert(index, work);
        }
        self.agent = Some(agent);
        advanced
    }

    /// Tells the ADD that was about to answer whether anybody listens.
    pub(crate) fn answered(&mut self, identity: &Identity, is_taken: bool) {
        let works = self.agent.iter_mut().flat_map(|agent| &mut agent.works);
        for work in works {
            if let Some(Task::Add(adding)) = &mut work.task
                && let Some((running, _)) = &mut adding.up
                && running.course.record().identity == *identity
                && running.course.next() == Act::Answer
            {
                running.course.answered(is_taken);
            }
        }
    }

    fn advance_add(
        &mut self,
        agent: &mut Agent,
        adding: &mut Adding,
        around: &mut Surroundings<'_>,
    ) -> Advanced {
        if let Some(room) = &mut adding.room {
            match self.advance_course(agent, room, None, around) {
                Advanced::Over(Ok(())) => self.bring_up(adding, None),
                Advanced::Over(Err(failure)) if failure.code == Code::TryAgainLater => {
                    let debt = Owed { was_tried: true, ..Owed::default() };
                    self.bring_up(adding, Some(debt));
                }
                advanced => return advanced,
            }
            return Advanced::On;
        }
        let Some((running, order)) = &mut adding.up else {
            self.bring_up(adding, None);
            return Advanced::On;
        };
        let identity = &adding.asked.identity;
        let leaves = |job: &Job| matches!(job, Job::Del(asked) if asked.identity == *identity);
        let is_late = agent.works.iter().any(|work| leaves(&work.job));
        if is_late && running.course.is_up() && matches!(running.course.next(), Act::Perform(_)) {
            around.note(|| "gives up: a DEL waits".to_owned());
            running.course.give_up();
        }
        self.advance_course(agent, running, Some(order), around)
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
                around.note(|| format!("writes {}", spoken(&record)));
                self.write(agent, record);
                running.course.written(Ok(()));
            }
            Act::Perform(Step::Claim) => {
                let order = order.expect("only an ADD claims");
                return self.claim(agent, running, order, around);
            }
            Act::Perform(Step::Take) => {
                let order = order.expect("only an ADD takes");
                let was_tried = running.course.outage().is_some_and(|it| it.was_tried);
                let taken = self.take(order, was_tried, around);
                if let Ok(Performed::Made(record)) = &taken {
                    around.note(|| format!("takes of the reserve: {}", spoken(record)));
                    self.write(agent, (**record).clone());
                }
                running.course.performed(taken);
            }
            Act::Perform(Step::Release) => return self.release(agent, running, around),
            Act::Perform(step) => {
                let performed = self.in_the_kernel(step, running.course.record(), around);
                running.course.performed(performed.map(|()| Performed::Done));
            }
            Act::Answer => return Advanced::Answers,
            Act::Forget => {
                around.note(|| "forgets it".to_owned());
                self.journal.remove(&running.course.record().identity);
                running.course.forgotten(Ok(()));
            }
            Act::End(result) => {
                if let Err(failure) = &result {
                    around.note(|| format!("fails: {}", failure.message));
                }
                return Advanced::Over(result);
            }
        }
        Advanced::On
    }

    fn claim(
        &mut self,
        agent: &mut Agent,
        running: &mut Running,
        order: &Order,
        around: &mut Surroundings<'_>,
    ) -> Advanced {
        let order =
            Order { record: held(&order.record, around.options.bug), ..Order::clone(order) };
        let pursuit = running.claim.get_or_insert_with(|| Pursuit::new(&agent.view));
        let claim = |planner: &mut Planner<'_>| claim::claim(planner, &order);
        let outage = |was_tried| {
            let failure = Failure::new(Code::TryAgainLater, "the datastore is away");
            Ok(Performed::Away(Outage { failure, was_tried }))
        };
        let performed = match self.pursue(agent, pursuit, around, claim) {
            Progress::On => return Advanced::On,
            Progress::Done(claimed) => claimed.map(|it| {
                let identity = running.course.record().identity.clone();
                Performed::Made(Box::new(Record { identity, ..it }))
            }),
            Progress::Unreachable => outage(false),
            Progress::Uncertain => outage(true),
        };
        running.course.performed(performed);
        Advanced::On
    }

    fn release(
        &mut self,
        agent: &mut Agent,
        running: &mut Running,
        around: &mut Surroundings<'_>,
    ) -> Advanced {
        let others = match around.has(Bug::HandleOfOneInterface) {
            true => BTreeSet::new(),
            false => self.addresses_of_others(running.course.record()),
        };
        let record = released(running.course.record(), around.options.bug);
        let pursuit = running.release.get_or_insert_with(|| Pursuit::new(&agent.view));
        let release = |planner: &mut Planner<'_>| match record.owed {
            Some(_) => reserve::release(planner, &record, &others),
            None => claim::release(planner, &record, &others),
        };
        let performed = match self.pursue(agent, pursuit, around, release) {
            Progress::On => return Advanced::On,
            Progress::Done(_) => Ok(Performed::Done),
            Progress::Unreachable | Progress::Uncertain => {
                Err(Failure::new(Code::TryAgainLater, "the datastore is away"))
            }
        };
        running.course.performed(performed);
        Advanced::On
    }

    fn write(&mut self, agent: &mut Agent, record: Record) {
        let key = endpoint_key(&record);
        match record.phase {
            Phase::Ready if self.is_superseded(agent, &record) => {}
            Phase::Ready => drop(agent.inputs.vouch(&key, Live::of(&record))),
            Phase::Leaving => {
                agent.inputs.withdraw(&key, &record.identity.container);
            }
            _ => {}
        }
        self.journal.insert(record.identity.clone(), record);
    }

    /// Whether a later sandbox of the same pod is vouched for, and has the interface.
    fn is_superseded(&self, agent: &Agent, record: &Record) -> bool {
        agent.inputs.is_of_another(&endpoint_key(record), &record.identity.container)
            && !self.stands(record)
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
                let namespace = self.namespaces.get(&record.identity.container);
                if namespace != Some(&record.netns.inode) {
                    return Err(Failure::plugin("the namespace is gone"));
                }
                around.note(|| format!("makes {name} with{}", addresses(&record.wiring.addresses)));
                let addresses = record.wiring.addresses.iter().copied().collect();
                let (identity, netns) = (record.identity.clone(), record.netns.inode);
                let interface = Interface { identity, netns, addresses };
                self.interfaces.insert(name.clone(), interface);
            }
            Step::Unwire => {
                let is_own = |it: &Interface| it.identity == record.identity;
                let takes_any = around.has(Bug::DelByInterfaceName);
                if self.interfaces.get(name).is_some_and(|it| takes_any || is_own(it))
                    && let Some(gone) = self.interfaces.remove(name)
                {
                    let (of, with) = (who(&gone.identity), addresses(&gone.addresses));
                    around.note(|| format!("removes {name} of {of} with{with}"));
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
        let mut order = order.clone();
        let free = match around.has(Bug::ReserveTwice) {
            true => {
                order.wish.avoid.clear();
                self.stock.clone()
            }
            false => {
                let taken = self.journal.values().flat_map(|it| &it.wiring.addresses);
                self.stock.difference(&taken.copied().collect()).copied().collect()
            }
        };
        let take = |planner: &mut Planner<'_>| reserve::take(planner, &order, &free);
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
        let is_current = self.stands(record);
        let others = self.addresses_of_others(record);
        let held = held(record, around.options.bug);
        let settle =
            |planner: &mut Planner<'_>| reserve::settle(planner, &held, &others, is_current);
        self.transact(agent, pursuit, around, settle, |node, agent, settled| {
            if let Ok(settled) = settled {
                let settled = Record { identity: record.identity.clone(), ..settled };
                for address in &settled.wiring.addresses {
                    node.stock.remove(address);
                }
                node.write(agent, settled);
            }
        })
    }

    /// One step of a transaction that is all there is to a work; `then` is done with its answer.
    fn transact<T>(
        &mut self,
        agent: &mut Agent,
        pursuit: &mut Pursuit<T>,
        around: &mut Surroundings<'_>,
        operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
        then: impl FnOnce(&mut Self, &mut Agent, T),
    ) -> Advanced {
        match self.pursue(agent, pursuit, around, operations) {
            Progress::On => return Advanced::On,
            Progress::Done(answer) => then(self, agent, answer),
            Progress::Unreachable | Progress::Uncertain => {}
        }
        Advanced::Over(Ok(()))
    }

    /// One step of a transaction. What it has read stays known when it ends.
    fn pursue<T>(
        &mut self,
        agent: &mut Agent,
        pursuit: &mut Pursuit<T>,
        around: &mut Surroundings<'_>,
        operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Progress<T> {
        let progress = self.pursue_on(agent, pursuit, around, operations);
        if !matches!(progress, Progress::On) {
            let ended = std::mem::replace(pursuit, Pursuit::new(&agent.view));
            ended.end(&mut agent.view);
        }
        progress
    }

    fn pursue_on<T>(
        &mut self,
        agent: &mut Agent,
        pursuit: &mut Pursuit<T>,
        around: &mut Surroundings<'_>,
        operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Progress<T> {
        let view = &mut agent.view;
        match pursuit.next(view, around.now, operations) {
            Next::Read(_) | Next::Commit(_) if self.is_away => return Progress::Unreachable,
            Next::Look(_) if self.is_away => return Progress::Uncertain,
            Next::Read(reads) => {
                let view = pursuit.view(view);
                reads.iter().for_each(|read| around.store.read(view, read));
            }
            Next::Commit(plan) => {
                let outcome = commit(plan, around);
                pursuit.committed(view, outcome);
            }
            Next::Look(plan) => {
                let current: Vec<ipam::Entry> =
                    plan.changes.iter().map(|change| around.store.get(&change.key)).collect();
                pursuit.looked(view, &current, around.store.revision);
            }
            Next::Wait(_) => {}
            Next::Done(done) => {
                let revision = done.revision.unwrap_or_default();
                agent.absorb(&mut self.memory, &done.plan, revision);
                return Progress::Done(done.answer);
            }
            Next::GiveUp => return Progress::Unreachable,
        }
        Progress::On
    }
}

/// A transaction reaches the datastore, or does so later or never, and its answer comes or not.
fn commit(plan: &ipam::Plan, around: &mut Surroundings<'_>) -> Outcome {
    let is_blind = around.has(Bug::WithoutCompareAndSwap);
    let is_lost = around.happens(around.options.lost_answer);
    // The answer was lost on the way back, or the request on the way there.
    let arrives = !is_lost || around.chance.bool();
    if !arrives {
        let is_late = around.chance.bool();
        let until = around.step + around.chance.usize(1..=DELAY_STEPS_MAX);
        if is_late {
            around.store.delay(plan, until);
        }
        around.note(|| {
            let how = if is_late { "asks, and it takes its time" } else { "asks in vain" };
            format!("{how}:{}", changes(plan))
        });
        return match around.has(Bug::LostAnswerIsYes) {
            true => Outcome::Applied(around.store.revision),
            false => Outcome::Lost,
        };
    }
    if !is_blind && !around.store.allows(plan) {
        around.note(|| format!("is refused:{}", changes(plan)));
        return match is_lost {
            true => Outcome::Lost,
            false => Outcome::Conflict(around.store.current(plan), around.store.revision),
        };
    }
    let before = around.store.moved.len();
    let revision = around.store.apply(plan);
    let moved = around.store.moved.get(before..).map(moves).unwrap_or_default();
    let lost = if is_lost { ", and the answer is lost" } else { "" };
    around.note(|| format!("revision {revision}{lost}:{moved}{}", changes(plan)));
    match is_lost && !around.has(Bug::LostAnswerIsYes) {
        true => Outcome::Lost,
        false => Outcome::Applied(revision),
    }
}

fn sweep(
    planner: &mut Planner<'_>,
    leftover: &Leftover,
    node: &str,
    used: &BTreeSet<IpAddr>,
) -> Planned<()> {
    match leftover {
        Leftover::Endpoint { key, container, .. } => {
            ghost::remove(planner, key, container, node, used).map(drop)
        }
        Leftover::Addresses { handle, addresses } => {
            ghost::release(planner, handle, addresses).map(drop)
        }
        Leftover::Sandbox(_) => Ok(()),
    }
}

/// A sandbox under the name by which it holds its addresses.
pub(crate) fn held(record: &Record, bug: Option<Bug>) -> Record {
    let mut record = record.clone();
    if let (Some(Bug::NameKeyedHandle), Workload::Pod { name, .. }) = (bug, &record.workload) {
        record.identity.container.clone_from(name);
    }
    record
}

fn released(record: &Record, bug: Option<Bug>) -> Record {
    let mut record = held(record, bug);
    if let Some(Bug::NameKeyedHandle | Bug::HandleOfOneInterface) = bug {
        record.addresses.clear();
    }
    record
}
