//! Keeps what live sandboxes own theirs.
//!
//! An endpoint, an address with its handle, or the claim on a block in use may be removed by
//! somebody else: a person, a collector that was wrong, a restored backup. Whatever others change
//! near a sandbox of ours is looked at, and what is missing is written back from the journal, by
//! compare-and-swap. An address that has another holder by then is not touched: its interface is
//! closed, which is [`intent`]'s doing, and a finding names both.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::keys::Key;
use intent::{InSync, Live};
use sandbox::claim::{Fresh, endpoint_key};
use sandbox::failure::{Code, Failure};
use sandbox::life::{Phase, Record};
use sandbox::reclaim::{self, Kept, Reclaimed};
use sandbox::wiring::Wiring;

use crate::node::Node;
use crate::supervisor::say;
use crate::{notes, wire};

/// How often what could not be written is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// More doubted keys than this are as good as all.
const KEYS_MAX: usize = 1000;

/// What others have changed since the last look.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    doubted: Mutex<Doubted>,
    bell: Condvar,
}

/// Which sandboxes are to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Doubted {
    all: bool,
    keys: BTreeSet<String>,
}

impl Doubts {
    /// Every sandbox is to be looked at.
    pub(crate) fn all(&self) {
        self.lock().all = true;
        self.bell.notify_one();
    }

    /// Somebody else has changed or removed this key.
    pub(crate) fn key(&self, key: &str) {
        let mut doubted = self.lock();
        doubted.keys.insert(key.to_owned());
        doubted.all |= doubted.keys.len() > KEYS_MAX;
        self.bell.notify_one();
    }

    /// Waits until something is doubted.
    fn wait(&self) -> Doubted {
        let mut doubted = self.lock();
        while !doubted.all && doubted.keys.is_empty() {
            doubted = self.bell.wait(doubted).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut doubted)
    }

    fn lock(&self) -> MutexGuard<'_, Doubted> {
        self.doubted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doubted {
    fn has_handle(&self, record: &Record) -> bool {
        let key = Key::IpamHandle { id: record.handle() }.path();
        key.is_ok_and(|key| self.keys.contains(&key))
    }

    fn concerns(&self, record: &Record) -> bool {
        let mut addresses = record.addresses.iter().map(|held| held.network.address());
        self.all
            || self.has_handle(record)
            || self.keys.contains(&endpoint_key(record))
            || self.keys.iter().any(|key| match Key::parse(key) {
                Some(Key::Block { cidr }) => addresses.any(|it| cidr.contains(it)),
                Some(Key::BlockAffinity(claim)) => {
                    claim.owner == record.node && addresses.any(|it| claim.cidr.contains(it))
                }
                _ => false,
            })
    }
}

/// Looks after the sandboxes of a node until the process ends.
pub(crate) fn start(node: &Arc<Node>) -> io::Result<()> {
    let node = Arc::clone(node);
    let body = move || {
        loop {
            let doubted = node.doubts.wait();
            let Some(proof) = node.in_sync_proof() else {
                std::thread::sleep(RETRY);
                node.doubts.all();
                continue;
            };
            let left = node.keep(proof, &doubted);
            if !left.is_empty() {
                std::thread::sleep(RETRY);
                left.iter().for_each(|key| node.doubts.key(key));
            }
        }
    };
    std::thread::Builder::new().name("upkeep".into()).spawn(body).map(drop)
}

impl Node {
    /// Lets the host pass packets on again, should somebody have switched that off: no event of the
    /// kernel tells of it, and no sandbox would reach another.
    pub(crate) fn keep_forwarding(&self) {
        let has = |is_so: fn(&Wiring) -> bool| {
            self.journal.any(|record| record.phase == Phase::Ready && is_so(&record.wiring))
        };
        match wire::forward(&self.here, has(Wiring::has_ipv4), has(Wiring::has_ipv6)) {
            Ok(false) => {}
            Ok(true) => {
                self.events.note("repaired", "forwarding of packets was off; it is on again");
            }
            Err(error) => say(&format!("forwarding of packets cannot be switched on: {error}")),
        }
    }

    /// The journal vouches for a sandbox as long as it is up.
    pub(crate) fn vouch(&self, record: &Record) {
        let key = endpoint_key(record);
        let container = &record.identity.container;
        let mut dataplane = self.dataplane();
        let changed = match record.phase {
            // An earlier sandbox of the same pod may still be written of.
            Phase::Ready
                if dataplane.inputs.is_of_another(&key, container) && !self.stands(record) =>
            {
                return;
            }
            Phase::Ready => dataplane.inputs.vouch(&key, Live::of(record)),
            Phase::Leaving => dataplane.inputs.withdraw(&key, container),
            Phase::Claimed if record.owed.is_none() && dataplane.overlay.supersede(record) => {
                return dataplane.retake(&key);
            }
            // It was not vouched for yet, or is not any more.
            Phase::Claiming | Phase::Claimed | Phase::Wired | Phase::Releasing => return,
        };
        dataplane.changed |= changed;
    }

    /// Writes back what live sandboxes have lost. Returns the keys of what has to be tried again.
    fn keep(&self, _: InSync, doubted: &Doubted) -> Vec<String> {
        // What the datastore was not told yet, nobody can have removed from it.
        let is_up = |record: &Record| {
            record.phase == Phase::Ready && record.boot == self.boot && record.owed.is_none()
        };
        let mut left = Vec::new();
        for record in self.journal.all() {
            if !is_up(&record) || !doubted.concerns(&record) {
                continue;
            }
            let turn = self.turns.of(&record.workload, &record.identity);
            let _turn = turn.take();
            // A call may have changed it meanwhile.
            let Some(record) = self.journal.get(&record.identity).filter(is_up) else { continue };
            // Most changes near a sandbox take nothing away from it.
            let is_whole = !doubted.all
                && !doubted.has_handle(&record)
                && !self.dataplane().inputs.lacks(&endpoint_key(&record));
            if !is_whole && self.stands(&record) && !self.keep_one(&record) {
                left.push(endpoint_key(&record));
            }
        }
        left
    }

    /// Writes back at once what a live sandbox has lost; none if nothing was missing any more.
    pub(crate) fn keep_now(&self, record: &Record) -> Result<Option<String>, Failure> {
        let turn = self.turns.of(&record.workload, &record.identity);
        let _turn = turn.take();
        let is_same = |it: &Record| it == record && it.phase == Phase::Ready;
        let Some(record) = self.journal.get(&record.identity).filter(is_same) else {
            return Ok(None);
        };
        let is_missing = self.dataplane().inputs.lacks(&endpoint_key(&record));
        match is_missing && self.stands(&record) {
            false => Ok(None),
            true if self.keep_one(&record) => Ok(Some("written back from the journal".to_owned())),
            true => {
                let message = format!("{}: its records could not be written", record.identity);
                Err(Failure::new(Code::TryAgainLater, message))
            }
        }
    }

    /// Whether nothing is left to do for a sandbox, as far as one can tell.
    fn keep_one(&self, record: &Record) -> bool {
        let fresh = Fresh { endpoint_uid: self.uid(), profile_uid: self.uid() };
        let done = self.transact(|planner| reclaim::reclaim(planner, record, &fresh));
        let reclaimed = match done {
            Ok(Ok(reclaimed)) => reclaimed,
            // The filter has closed it, and the status says so.
            Ok(Err(Kept::Disputed { .. })) => return true,
            Ok(Err(Kept::Waiting(_))) | Err(_) => return false,
        };
        // The release of an address names the number under which it is held now.
        if reclaimed.record != *record && self.write(&reclaimed.record).is_err() {
            return false;
        }
        self.note_reclaimed(&reclaimed);
        self.flush_or_say();
        true
    }

    fn note_reclaimed(&self, reclaimed: &Reclaimed) {
        if reclaimed.restored.is_empty() {
            return;
        }
        let who = notes::spoken(&reclaimed.record);
        let what = reclaimed.restored.join(", ");
        let interface = &reclaimed.record.wiring.host_interface;
        let text = format!(
            "{who}: somebody removed {what}; written back from the journal, because its interface \
             {interface} stands and bears its name"
        );
        self.events.note("repaired", &text);
    }

    /// Whether the sandbox's interface is there and its own: the kernel says that it lives.
    fn stands(&self, record: &Record) -> bool {
        let interface = &record.wiring.host_interface;
        wire::is_of(&self.here, &record.identity, interface).unwrap_or(false)
    }
}
