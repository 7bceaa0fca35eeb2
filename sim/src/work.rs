//! One step of what a node has under way: the shipped course or transaction says what, the made-up
//! kernel and datastore do it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use intent::{Leftover, Live, Restock};
use ipam::{Next, Outcome, Planned, Planner, Pursuit, Release, View};
use sandbox::claim::{self, Order, endpoint_key};
use sandbox::course::{Act, Outage, Performed};
use sandbox::failure::{Code, Failure};
use sandbox::ghost;
use sandbox::identity::{Identity, Workload};
use sandbox::life::{Owed, Phase, Record, Step};
use sandbox::reclaim;
use sandbox::reserve::{self, Unsettled};

use crate::node::{Agent, Interface, Node, Running, Surroundings, Task};
use crate::options::Bug;

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
            work.task = self.open(&agent, &work.job);
        }
        let advanced = match &mut work.task {
            None => Advanced::Over(Ok(())),
            Some(Task::Add(running, order)) => {
                self.advance_course(&mut agent, running, Some(order), around)
            }
            Some(Task::Del(running)) => self.advance_course(&mut agent, running, None, around),
            Some(Task::Settle(record, pursuit)) => self.settle(&mut agent, record, pursuit, around),
            Some(Task::Keep(record, fresh, pursuit)) => {
                let held =
                    Record { identity: holder(record, around.options.bug), ..(**record).clone() };
                let keep = |planner: &mut Planner<'_>| reclaim::reclaim(planner, &held, fresh);
                self.keep(&mut agent, record, pursuit, around, keep)
            }
            Some(Task::Restock(restock, pursuit)) => {
                self.restock(&mut agent, restock, pursuit, around)
            }
            Some(Task::Sweep(leftover, pursuit)) => {
                self.sweep(&mut agent, leftover, pursuit, around)
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
            if let Some(Task::Add(running, _)) = &mut work.task
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
                return self.claim(agent, running, order, around);
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

    fn claim(
        &mut self,
        agent: &mut Agent,
        running: &mut Running,
        order: &Order,
        around: &mut Surroundings<'_>,
    ) -> Advanced {
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
                let identity = running.course.record().identity.clone();
                Performed::Made(Box::new(Record { identity, ..it }))
            }),
            Progress::Unreachable => outage(false),
            Progress::Uncertain => outage(true),
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
        let interface = self.interfaces.get(&record.wiring.host_interface);
        let is_current = interface.is_some_and(|it| it.identity == record.identity);
        let others = BTreeSet::new();
        let held = Record { identity: holder(record, around.options.bug), ..record.clone() };
        let settle =
            |planner: &mut Planner<'_>| reserve::settle(planner, &held, &others, is_current);
        match self.pursue(agent, pursuit, around, settle) {
            Progress::On => Advanced::On,
            Progress::Done(Ok(settled)) => {
                let settled = Record { identity: record.identity.clone(), ..settled };
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
        keep: impl FnMut(&mut Planner<'_>) -> Planned<Result<reclaim::Reclaimed, reclaim::Kept>>,
    ) -> Advanced {
        let holder = self.interfaces.get(&record.wiring.host_interface);
        if holder.is_none_or(|it| it.identity != record.identity) {
            return Advanced::Over(Ok(()));
        }
        match self.pursue(agent, pursuit, around, keep) {
            Progress::On => Advanced::On,
            Progress::Done(Ok(reclaimed)) => {
                let identity = record.identity.clone();
                self.write(agent, Record { identity, ..reclaimed.record });
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
        let name = self.name.clone();
        let plan = |planner: &mut Planner<'_>| -> Planned<()> {
            match leftover {
                Leftover::Endpoint { key, container, .. } => {
                    ghost::remove(planner, key, container, &name).map(drop)
                }
                Leftover::Addresses { handle, addresses } => {
                    let release = |(address, sequence): (&IpAddr, &Option<u64>)| Release {
                        address: address.to_string(),
                        handle: handle.clone(),
                        sequence: *sequence,
                    };
                    let releases: Vec<Release> = addresses.iter().map(release).collect();
                    planner.release_ips(&releases).map(drop)
                }
                Leftover::Sandbox(_) => Ok(()),
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
    order.record.identity = holder(&order.record, bug);
    order
}

/// Under whose name a sandbox holds its addresses.
pub(crate) fn holder(record: &Record, bug: Option<Bug>) -> Identity {
    let mut identity = record.identity.clone();
    if let (Some(Bug::NameKeyedHandle), Workload::Pod { name, .. }) = (bug, &record.workload) {
        identity.container.clone_from(name);
    }
    identity
}

fn released(mut record: Record, bug: Option<Bug>) -> Record {
    record.identity = holder(&record, bug);
    if bug == Some(Bug::NameKeyedHandle) {
        record.addresses.clear();
    }
    record
}
