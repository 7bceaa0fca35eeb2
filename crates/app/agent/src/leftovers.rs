//! The join of all witnesses, again and again: what one of them has and none of the others confirms
//! goes.
//!
//! What is left over is [`intent`]'s to say. It goes when two looks in a row have found it and a
//! third one still does: a sandbox between two states may look dead for a moment.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use intent::{Leftover, Witnesses};
use kernel::{Netlink, Netns};
use sandbox::claim::endpoint_key;
use sandbox::ghost;
use sandbox::identity::Identity;
use sandbox::life::{Phase, Record};

use crate::node::Node;
use crate::notes;
use crate::supervisor::say;

/// The looks of a node.
#[derive(Debug)]
pub(crate) struct Looks {
    every: Option<Duration>,
    last: Instant,
    found: BTreeSet<String>,
}

impl Looks {
    /// One every so many seconds; none for 0.
    pub(crate) fn new(seconds: u64) -> Self {
        let every = (seconds > 0).then(|| Duration::from_secs(seconds));
        Self { every, last: Instant::now(), found: BTreeSet::new() }
    }
}

impl Node {
    /// Looks for what is left over, if it is time.
    pub(crate) fn join(&self, looks: &mut Looks) {
        if looks.every.is_none_or(|every| looks.last.elapsed() < every) {
            return;
        }
        looks.last = Instant::now();
        let before = std::mem::take(&mut looks.found);
        for leftover in self.leftovers() {
            let name = name(&leftover);
            if before.contains(&name) && self.leftovers().contains(&leftover) {
                self.sweep(&leftover);
            }
            looks.found.insert(name);
        }
    }

    /// What is left over as of now; nothing as long as one of the witnesses cannot be heard.
    fn leftovers(&self) -> Vec<Leftover> {
        let (Some(proof), Ok(seen)) = (self.in_sync_proof(), self.witnesses()) else {
            return Vec::new();
        };
        let mut leftovers = self.dataplane().inputs.leftovers(proof, &seen);
        leftovers.retain(|leftover| match leftover {
            Leftover::Sandbox(_) | Leftover::Endpoint { .. } => true,
            // Addresses without an endpoint may be in use under another plugin, and an interface
            // that stands leads to a namespace that lives.
            Leftover::Addresses { .. } | Leftover::Interface { .. } => false,
        });
        leftovers
    }

    fn witnesses(&self) -> kernel::Result<Witnesses> {
        let journal = self.journal.all();
        let links = Netlink::in_netns(&self.here)?.links()?;
        let owner = |alias: &Option<String>| alias.as_deref().and_then(Identity::from_alias);
        let owners: BTreeSet<Identity> =
            links.iter().filter_map(|link| owner(&link.alias)).collect();
        let lives = |record: &&Record| {
            record.boot == self.boot && (owners.contains(&record.identity) || has_namespace(record))
        };
        let living = journal.iter().filter(lives).map(|record| record.identity.clone()).collect();
        let interfaces =
            links.iter().map(|link| (link.name.to_string(), owner(&link.alias))).collect();
        Ok(Witnesses { journal, interfaces, routed: self.addresses_in_use(), living })
    }

    fn sweep(&self, leftover: &Leftover) {
        match leftover {
            Leftover::Sandbox(record) => {
                if let Err(failure) = self.remove_dead(record) {
                    say(&format!("to be tried again: {failure}"));
                }
            }
            Leftover::Endpoint { key, interface, container } => {
                self.remove_ghost(key, interface, container);
            }
            Leftover::Addresses { .. } | Leftover::Interface { .. } => {}
        }
    }

    fn remove_dead(&self, record: &Record) -> Result<(), sandbox::failure::Failure> {
        let turn = self.turns.of(&record.workload, &record.identity);
        let _turn = turn.take();
        // A call may have dealt with it meanwhile.
        let is_same = |it: &Record| it == record && it.phase == Phase::Ready;
        let Some(record) = self.journal.get(&record.identity).filter(is_same) else {
            return Ok(());
        };
        let who = notes::spoken(&record);
        let text = format!(
            "{who}: its interface and its network namespace are gone and nobody called DEL"
        );
        self.take_down(record)?;
        self.events.note("removed", &text);
        Ok(())
    }

    fn remove_ghost(&self, key: &str, interface: &str, container: &str) {
        // Whoever adds the next sandbox of the pod has the turn, or waits for it.
        let turn = self.turns.named(interface.to_owned());
        let _turn = turn.take();
        if self.journal.any(|record| endpoint_key(record) == key) {
            return;
        }
        let released =
            match self.transact(|planner| ghost::remove(planner, key, container, &self.name)) {
                Ok(released) => released,
                Err(error) => return say(&format!("{key} stays for now: {error}")),
            };
        if let Err(error) = self.flush() {
            say(&format!("the kernel could not be brought up to date: {error}"));
        }
        let mut words = key.rsplit('/');
        let (name, namespace) = (words.next().unwrap_or(key), words.next().unwrap_or_default());
        let addresses: Vec<String> = released.iter().map(ToString::to_string).collect();
        let with = match addresses.is_empty() {
            true => String::new(),
            false => format!(", and {} with it", addresses.join(", ")),
        };
        let text = format!(
            "endpoint {namespace}/{name} is removed{with}: its interface {interface} is not there, \
             and no sandbox of the journal has it"
        );
        self.events.note("removed", &text);
    }
}

/// Whether the namespace of a sandbox is still where it was.
fn has_namespace(record: &Record) -> bool {
    let Ok(netns) = Netns::open(&record.netns_path) else { return false };
    let id = netns.id();
    (id.device, id.inode) == (record.netns.device, record.netns.inode)
}

fn name(leftover: &Leftover) -> String {
    match leftover {
        Leftover::Sandbox(record) => format!("sandbox {}", record.identity.alias()),
        Leftover::Interface { name, .. } => format!("interface {name}"),
        Leftover::Endpoint { key, .. } => format!("endpoint {key}"),
        Leftover::Addresses { handle, .. } => format!("addresses {handle}"),
    }
}
