//! Claims and releases of sandboxes, several in one transaction.
//!
//! Whoever comes while a transaction is under way waits in the queue; the next transaction takes
//! all that have gathered, and is carried out by the first of them. Alone, a call costs one
//! transaction; under load, a fraction of one.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipam::{Planned, Planner};
use sandbox::claim::{self, Order};
use sandbox::failure::Failure;
use sandbox::life::Record;
use sandbox::reserve;

use crate::node::Node;

/// So many at once: each may write a block, a claim, a handle, an endpoint and a profile, and etcd
/// takes 128 changes.
const AT_ONCE: usize = 20;

/// What became of a claim, if the datastore answered.
type Claimed = Result<Result<Record, Failure>, Arc<store::ipam::Error>>;
/// What became of a release, if the datastore answered.
type Released = Result<Result<(), ipam::Error>, Arc<store::ipam::Error>>;

/// What somebody in the queue is told.
#[derive(Debug)]
enum Word<T> {
    /// What became of it.
    Answer(T),
    /// The next transaction is yours to carry out.
    Lead,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Orders(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Whether somebody carries a transaction out, or was told to.
    is_led: bool,
}

#[derive(Debug)]
enum Job {
    Claim(Box<Order>, Sender<Word<Claimed>>),
    Release(Box<Record>, BTreeSet<IpAddr>, Sender<Word<Released>>),
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

    fn queue<T>(&self, node: &Node, job: Job, told: &Receiver<Word<T>>) -> T {
        let mut queue = self.lock();
        queue.waiting.push_back(job);
        let leads = !std::mem::replace(&mut queue.is_led, true);
        drop(queue);
        if leads {
            self.lead(node);
        }
        loop {
            match told.recv() {
                Ok(Word::Answer(answer)) => return answer,
                Ok(Word::Lead) => self.lead(node),
                Err(_) => {
                    panic!("the call that carried this one along ended before its transaction")
                }
            }
        }
    }

    /// Carries out a transaction for the first in the queue, and has the next one lead.
    fn lead(&self, node: &Node) {
        let _next = HandOver(self);
        let jobs = {
            let mut queue = self.lock();
            let n = queue.waiting.len().min(AT_ONCE);
            queue.waiting.drain(..n).collect::<Vec<Job>>()
        };
        carry_out(node, jobs);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the next one lead, even after a panic.
struct HandOver<'o>(&'o Orders);

impl Drop for HandOver<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_led = queue.waiting.front().is_some_and(Job::lead);
    }
}

/// Carries out jobs in one transaction. One that the datastore refuses for good, such as a request
/// that is too large, must not take the others with it: each is then tried by itself.
fn carry_out(node: &Node, jobs: Vec<Job>) {
    let leaving: Vec<IpAddr> = jobs.iter().filter_map(Job::leaving).flatten().copied().collect();
    let planned = std::thread::scope(|threads| {
        // Nobody on this node is given an address before both are done: the queue waits.
        if !leaving.is_empty() {
            threads.spawn(|| node.forget_connections(&leaving));
        }
        node.transact(|planner| {
            jobs.iter().map(|job| job.plan(planner)).collect::<Planned<Vec<Answer>>>()
        })
    });
    match planned {
        Ok(answers) => {
            for (job, answer) in jobs.into_iter().zip(answers) {
                job.tell(answer);
            }
        }
        Err(store::ipam::Error::Store(store::Error::Rejected(_))) if jobs.len() > 1 => {
            jobs.into_iter().for_each(|job| carry_out(node, vec![job]));
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
                let released = match record.owed {
                    Some(_) => reserve::release(planner, record, others),
                    None => claim::release(planner, record, others),
                };
                released.map(Answer::Released)
            }
        }
    }

    /// The addresses of a sandbox that leaves.
    fn leaving(&self) -> Option<&[IpAddr]> {
        match self {
            Self::Claim(..) => None,
            Self::Release(record, ..) => Some(&record.wiring.addresses),
        }
    }

    /// Has whoever asked carry out the next transaction. Whoever is in the queue listens.
    fn lead(&self) -> bool {
        match self {
            Self::Claim(_, tell) => tell.send(Word::Lead).is_ok(),
            Self::Release(_, _, tell) => tell.send(Word::Lead).is_ok(),
        }
    }

    fn tell(self, answer: Answer) {
        match (self, answer) {
            (Self::Claim(_, tell), Answer::Claimed(claimed)) => {
                drop(tell.send(Word::Answer(Ok(*claimed))));
            }
            (Self::Release(_, _, tell), Answer::Released(released)) => {
                drop(tell.send(Word::Answer(Ok(released))));
            }
            (Self::Claim(..), Answer::Released(_)) | (Self::Release(..), Answer::Claimed(_)) => {
                unreachable!("answers are in the order of the jobs")
            }
        }
    }

    fn fail(self, error: &Arc<store::ipam::Error>) {
        match self {
            Self::Claim(_, tell) => drop(tell.send(Word::Answer(Err(Arc::clone(error))))),
            Self::Release(_, _, tell) => drop(tell.send(Word::Answer(Err(Arc::clone(error))))),
        }
    }
}
