//! Claims and releases of sandboxes, several in one transaction.
//!
//! Whoever comes while a transaction is under way waits in the queue; the next transaction takes
//! all that have gathered. Alone, a call costs one transaction; under load, a fraction of one.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};

use ipam::{Planned, Planner};
use sandbox::claim::{self, Order};
use sandbox::failure::Failure;
use sandbox::life::Record;

use crate::node::Node;

/// So many at once: each may write a block, a claim, a handle, an endpoint and a profile, and etcd
/// takes 128 changes.
const AT_ONCE: usize = 20;

/// What became of a claim, if the datastore answered.
type Claimed = Result<Result<Record, Failure>, Arc<store::ipam::Error>>;
/// What became of a release, if the datastore answered.
type Released = Result<Result<(), ipam::Error>, Arc<store::ipam::Error>>;

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    waiting: Mutex<Vec<Job>>,
    /// Held by whoever carries a transaction out.
    turn: Mutex<()>,
}

#[derive(Debug)]
enum Job {
    Claim(Box<Order>, Sender<Claimed>),
    Release(Box<Record>, BTreeSet<IpAddr>, Sender<Released>),
}

enum Answer {
    Claimed(Box<Result<Record, Failure>>),
    Released(Result<(), ipam::Error>),
}

impl Orders {
    pub(crate) fn claim(&self, node: &Node, order: Order) -> Claimed {
        let (tell, told) = channel();
        self.queue(node, Job::Claim(Box::new(order), tell), &told)
    }

    pub(crate) fn release(
        &self,
        node: &Node,
        record: Record,
        others: BTreeSet<IpAddr>,
    ) -> Released {
        let (tell, told) = channel();
        self.queue(node, Job::Release(Box::new(record), others, tell), &told)
    }

    fn queue<T>(&self, node: &Node, job: Job, told: &Receiver<T>) -> T {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        loop {
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            // Somebody else's transaction may have carried this one along.
            match told.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    panic!("the call that carried this one along ended before its transaction")
                }
            }
            let jobs = {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let n = waiting.len().min(AT_ONCE);
                waiting.drain(..n).collect::<Vec<Job>>()
            };
            carry_out(node, jobs);
            drop(turn);
        }
    }
}

fn carry_out(node: &Node, jobs: Vec<Job>) {
    let planned = node.transact_with_changes(|planner| {
        jobs.iter().map(|job| job.plan(planner)).collect::<Planned<Vec<Answer>>>()
    });
    match planned {
        Ok((answers, changes)) => {
            node.absorb(&changes);
            for (job, answer) in jobs.into_iter().zip(answers) {
                job.tell(answer);
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            jobs.into_iter().for_each(|job| job.fail(&error));
        }
    }
}

/// Whoever asked may be gone; then nobody is told.
impl Job {
    fn plan(&self, planner: &mut Planner<'_>) -> Planned<Answer> {
        match self {
            Self::Claim(order, _) => {
                claim::claim(planner, order).map(|it| Answer::Claimed(Box::new(it)))
            }
            Self::Release(record, others, _) => {
                claim::release(planner, record, others).map(Answer::Released)
            }
        }
    }

    fn tell(self, answer: Answer) {
        match (self, answer) {
            (Self::Claim(_, tell), Answer::Claimed(claimed)) => drop(tell.send(Ok(*claimed))),
            (Self::Release(_, _, tell), Answer::Released(released)) => {
                drop(tell.send(Ok(released)));
            }
            (Self::Claim(..), Answer::Released(_)) | (Self::Release(..), Answer::Claimed(_)) => {
                unreachable!("answers are in the order of the jobs")
            }
        }
    }

    fn fail(self, error: &Arc<store::ipam::Error>) {
        match self {
            Self::Claim(_, tell) => drop(tell.send(Err(Arc::clone(error)))),
            Self::Release(_, _, tell) => drop(tell.send(Err(Arc::clone(error)))),
        }
    }
}
