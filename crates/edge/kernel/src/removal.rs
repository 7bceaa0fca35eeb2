//! Removing interfaces without waiting for the kernel to tidy up after them.
//!
//! An interface is gone for everybody once the kernel announces it: it is in no list, no packet
//! passes, its addresses and routes are removed, at both ends of a veth. The call that removed it
//! goes on for another 10 to 50 ms, until every processor has let go of it; nobody needs to wait
//! for that. Interfaces that are to go at the same time go in one step, which costs the kernel
//! hardly more than one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::{Errno, Error, Result};
use crate::link::{LinkChange, LinkIndex};
use crate::monitor::{Event, Monitor, Topic};
use crate::netlink::Netlink;
use crate::netns::Netns;
use crate::operation::Operation;

/// How long the listener sleeps at most.
const IDLE: Duration = Duration::from_secs(3600);

/// Removes interfaces of one namespace. Clones share the work.
#[derive(Clone)]
pub struct Removals(Arc<Shared>);

impl fmt::Debug for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Removals({:?})", self.0.netns)
    }
}

struct Shared {
    netns: Netns,
    work: Mutex<Work>,
    /// Something has ended.
    news: Condvar,
}

#[derive(Default)]
struct Work {
    /// Asked for, and not begun.
    waiting: BTreeSet<LinkIndex>,
    /// Begun, and not known to be gone.
    leaving: BTreeSet<LinkIndex>,
    /// What became of those that somebody waits for; cleared by the last who does.
    ended: BTreeMap<LinkIndex, Option<Errno>>,
    /// How many wait for each.
    watchers: BTreeMap<LinkIndex, usize>,
}

impl Removals {
    /// For the interfaces of a namespace. A thread listens there until the process ends.
    pub fn new(netns: &Netns) -> Result<Self> {
        let mut monitor = Monitor::open(Some(netns), &[Topic::Links])?;
        let shared =
            Arc::new(Shared { netns: netns.clone(), work: Mutex::default(), news: Condvar::new() });
        let listener = Self(Arc::clone(&shared));
        thread::Builder::new()
            .name("removals".into())
            .spawn(move || {
                loop {
                    // Events that are lost are made up for by the end of the call itself.
                    if let Ok(Some(Event::LinkGone(link))) = monitor.next(IDLE) {
                        listener.end(&[link.index], None);
                    }
                }
            })
            .map_err(|error| Error::system("start a thread for removals", error))?;
        Ok(Self(shared))
    }

    /// Removes an interface, and with a veth its peer, and waits until it is gone. One that is not
    /// there is gone.
    pub fn remove(&self, link: LinkIndex) -> Result<()> {
        let mut work = self.work();
        *work.watchers.entry(link).or_default() += 1;
        if !work.leaving.contains(&link) {
            work.waiting.insert(link);
        }
        self.begin(&mut work);
        let ended = loop {
            if let Some(ended) = work.ended.get(&link) {
                break *ended;
            }
            work = self.0.news.wait(work).unwrap_or_else(PoisonError::into_inner);
        };
        let watchers = work.watchers.entry(link).or_default();
        *watchers -= 1;
        if *watchers == 0 {
            work.watchers.remove(&link);
            work.ended.remove(&link);
        }
        match ended {
            None | Some(Errno::NODEV) => Ok(()),
            Some(errno) => Err(Error::system(format!("remove {link}"), errno)),
        }
    }

    /// Begins with what is asked for, unless others are still on their way out: the kernel takes
    /// one step after the other, and whoever comes meanwhile goes with the next.
    fn begin(&self, work: &mut Work) {
        if !work.leaving.is_empty() || work.waiting.is_empty() {
            return;
        }
        work.leaving = std::mem::take(&mut work.waiting);
        let links: Vec<LinkIndex> = work.leaving.iter().copied().collect();
        let this = self.clone();
        let begun = thread::Builder::new().name("removal".into()).spawn({
            let links = links.clone();
            move || {
                for (link, errno) in this.carry_out(&links) {
                    this.end(&[link], errno);
                }
            }
        });
        if begun.is_err() {
            self.settle(work, &links, Some(Errno::AGAIN));
        }
    }

    fn carry_out(&self, links: &[LinkIndex]) -> Vec<(LinkIndex, Option<Errno>)> {
        let all = |errno: Option<Errno>| links.iter().map(|link| (*link, errno)).collect();
        let mut netlink = match Netlink::in_netns(&self.0.netns) {
            Ok(netlink) => netlink,
            Err(error) => return all(error.errno().or(Some(Errno::IO))),
        };
        let errno_of = |result: &Result<()>| match result {
            Ok(()) => None,
            Err(error) => error.errno().or(Some(Errno::IO)),
        };
        if let [link] = links {
            return all(errno_of(&netlink.apply(&Operation::DeleteLink(*link))));
        }
        let group = fresh_group();
        let change = LinkChange { group: Some(group), ..LinkChange::default() };
        let mark = |link: &LinkIndex| Operation::ChangeLink(*link, change.clone());
        let marked = netlink.apply_all(&links.iter().map(mark).collect::<Vec<_>>());
        let gone = errno_of(&netlink.apply(&Operation::DeleteGroup(group)));
        let each = links.iter().zip(&marked);
        each.map(|(link, marked)| (*link, errno_of(marked).or(gone))).collect()
    }

    fn end(&self, links: &[LinkIndex], errno: Option<Errno>) {
        let mut work = self.work();
        self.settle(&mut work, links, errno);
        self.begin(&mut work);
    }

    /// Notes what became of some. The first word counts: the announcement comes before the end of
    /// the call.
    fn settle(&self, work: &mut Work, links: &[LinkIndex], errno: Option<Errno>) {
        for link in links {
            // Others remove interfaces too.
            if work.leaving.remove(link) | work.waiting.remove(link) {
                work.ended.entry(*link).or_insert(errno);
            }
        }
        self.0.news.notify_all();
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.0.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group that nobody uses: people number theirs from 1.
fn fresh_group() -> u32 {
    let mut random = [0u8; 4];
    let _ = rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty());
    u32::from_ne_bytes(random) | (1 << 30)
}
