//! The join of all witnesses: datastore, journal, kernel and who lives. What one of them has and
//! another contradicts is a [`Matter`], which is settled by the agent itself, by `margay
//! reconcile`, or by a person.
//!
//! Nothing is decided before all witnesses were heard. What is to go, goes when two looks in a row
//! have found it: a sandbox between two states may look dead for a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use intent::{Dispute, InSync, Leftover, Recognised, Stranger, Witnesses};
use kernel::{Netlink, Netns};
use sandbox::claim::endpoint_key;
use sandbox::failure::Failure;
use sandbox::ghost;
use sandbox::identity::Identity;
use sandbox::life::{Phase, Record};

use crate::addresses::unavailable;
use crate::node::Node;
use crate::sandboxes::netns_id;
use crate::supervisor::say;
use crate::{notes, wire};

/// The looks of a node.
#[derive(Debug)]
pub(crate) struct Looks {
    every: Option<Duration>,
    /// None before the first.
    last: Option<Instant>,
    found: BTreeSet<String>,
}

impl Looks {
    /// One at the start, and one every so many seconds; no more than the first for 0.
    pub(crate) fn new(seconds: u64) -> Self {
        let every = (seconds > 0).then(|| Duration::from_secs(seconds));
        Self { every, last: None, found: BTreeSet::new() }
    }

    fn is_due(&self) -> bool {
        match (self.last, self.every) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(last), Some(every)) => last.elapsed() >= every,
        }
    }
}

/// Something that the witnesses do not agree about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Matter {
    /// A sandbox whose container is gone.
    Dead(Box<Record>),
    /// An endpoint without interface and sandbox.
    Ghost {
        /// Its key.
        key: String,
        /// The interface that it names.
        interface: String,
        /// The container that it names.
        container: String,
        /// The interface that the next sandbox of that name asks for first.
        usual: String,
    },
    /// A sandbox that lives and is in no journal.
    Unrecorded {
        /// As the journal should have had it.
        record: Box<Record>,
        /// How one can tell.
        evidence: String,
        /// Whether the datastore has its endpoint: without one it may be just about to come, by
        /// Calico's hand.
        has_endpoint: bool,
    },
    /// A live sandbox of which something is missing in the datastore.
    Lacking(Box<Record>),
    /// An interface that is nobody's.
    Nobodys {
        /// What is seen of it.
        stranger: Box<Stranger>,
        /// Why nobody's.
        why: String,
        /// Whether somebody may use it all the same.
        is_claimed: bool,
    },
    /// Addresses that are held for nobody who is known here.
    Unused {
        /// The handle that holds them.
        handle: String,
        /// The addresses, with the numbers of their assignments.
        addresses: BTreeMap<IpAddr, Option<u64>>,
        /// Whether the handle is that of a sandbox that is up: then the journal knows all that it
        /// has, and this is what a request left that came after it was given up.
        is_surplus: bool,
    },
    /// An address with two owners.
    Disputed(Dispute),
}

impl Matter {
    /// What it is about: the same at every look.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Dead(record) => format!("sandbox {}", record.identity.alias()),
            Self::Ghost { key, container, .. } => format!("endpoint {key} {container}"),
            Self::Unrecorded { record, .. } => format!("record {}", record.identity.alias()),
            Self::Lacking(record) => format!("records of {}", record.identity.alias()),
            Self::Nobodys { stranger, .. } => format!("interface {}", stranger.interface),
            Self::Unused { handle, .. } => format!("addresses of {handle}"),
            Self::Disputed(dispute) => format!("address {}", dispute.address),
        }
    }
}

impl Node {
    /// Looks for what is not as it should be, if it is time, and settles what the agent may settle
    /// by itself.
    pub(crate) fn join(&self, looks: &mut Looks) {
        if !looks.is_due() {
            return;
        }
        looks.last = Some(Instant::now());
        let before = std::mem::take(&mut looks.found);
        let Ok(matters) = self.matters() else { return };
        for matter in &matters {
            let name = matter.name();
            let is_done = match matter {
                Matter::Unrecorded { has_endpoint, .. }
                    if *has_endpoint || before.contains(&name) =>
                {
                    self.settle_matter(matter).map(drop)
                }
                Matter::Dead(_)
                | Matter::Ghost { .. }
                | Matter::Unused { is_surplus: true, .. }
                    if before.contains(&name) =>
                {
                    self.settle_matter(matter).map(drop)
                }
                // What lacks is the upkeep's; the rest is for people.
                _ => Ok(()),
            };
            if let Err(failure) = is_done {
                say(&format!("to be tried again: {failure}"));
            }
            looks.found.insert(name);
        }
        self.flush_or_say();
    }

    /// Takes over what lives here and is in no journal.
    pub(crate) fn adopt_all(&self) {
        let (Some(proof), Ok(strangers)) = (self.in_sync_proof(), self.strangers()) else { return };
        for matter in self.recognised(proof, strangers) {
            if let Matter::Unrecorded { .. } = matter
                && let Err(failure) = self.settle_matter(&matter)
            {
                say(&format!("to be tried again: {failure}"));
            }
        }
    }

    /// What the witnesses do not agree about as of now; why not, if one of them cannot be heard.
    pub(crate) fn matters(&self) -> Result<Vec<Matter>, String> {
        let unheard = "the datastore was not read yet, or does not answer";
        if self.outage().is_some() {
            return Err(unheard.to_owned());
        }
        let proof = self.in_sync_proof().ok_or(unheard)?;
        let mut seen = self.witnesses().map_err(|error| error.to_string())?;
        let strangers = self.strangers().map_err(|error| error.to_string())?;
        let inside = strangers.iter().filter_map(|stranger| stranger.inside.as_ref());
        seen.routed.extend(inside.flat_map(|inside| &inside.addresses));
        let mut matters = self.recognised(proof, strangers);
        let dataplane = self.dataplane();
        let mut found = Vec::new();
        for leftover in dataplane.inputs.leftovers(proof, &seen) {
            match leftover {
                Leftover::Sandbox(record) => found.push(Matter::Dead(record)),
                Leftover::Endpoint { key, interface, container, usual } => {
                    found.push(Matter::Ghost { key, interface, container, usual });
                }
                Leftover::Addresses { handle, addresses } => {
                    let is_surplus = seen.journal.iter().any(|it| it.handle() == handle);
                    found.push(Matter::Unused { handle, addresses, is_surplus });
                }
            }
        }
        let is_up = |record: &&Record| {
            record.phase == Phase::Ready
                && record.owed.is_none()
                && seen.living.contains(&record.identity)
                && dataplane.inputs.lacks(&endpoint_key(record))
        };
        let lacking = seen.journal.iter().filter(is_up);
        found.extend(lacking.map(|record| Matter::Lacking(Box::new(record.clone()))));
        found.extend(dataplane.inputs.disputes().into_iter().map(Matter::Disputed));
        drop(dataplane);
        matters.extend(found);
        without_those_of_ghosts(&mut matters);
        Ok(matters)
    }

    /// Whose the interfaces are that no record has. Those that are nobody's are kept in mind.
    fn recognised(&self, proof: InSync, strangers: Vec<Stranger>) -> Vec<Matter> {
        let dataplane = self.dataplane();
        let matters = strangers.into_iter().map(|stranger| {
            match dataplane.inputs.recognise(proof, &stranger, &self.boot) {
                Recognised::Sandbox { record, evidence } => {
                    let has_endpoint = !dataplane.inputs.is_unknown(&endpoint_key(&record));
                    Matter::Unrecorded { record, evidence, has_endpoint }
                }
                Recognised::Nobodys { why, is_claimed } => {
                    Matter::Nobodys { stranger: Box::new(stranger), why, is_claimed }
                }
            }
        });
        let matters: Vec<Matter> = matters.collect();
        drop(dataplane);
        let nobodys = matters.iter().filter_map(|matter| match matter {
            Matter::Nobodys { stranger, why, .. } => {
                Some((stranger.interface.clone(), why.clone()))
            }
            _ => None,
        });
        *self.nobodys.lock().unwrap_or_else(PoisonError::into_inner) = nobodys.collect();
        matters
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
        let interfaces = links.iter().filter(|link| wire::is_veth(link));
        let interfaces =
            interfaces.map(|link| (link.name.to_string(), owner(&link.alias))).collect();
        Ok(Witnesses { journal, interfaces, routed: self.addresses_in_use(), living })
    }

    /// Settles a matter; what was done, or nothing if it was settled meanwhile.
    pub(crate) fn settle_matter(&self, matter: &Matter) -> Result<Option<String>, Failure> {
        match matter {
            Matter::Dead(record) => self.remove_dead(record),
            Matter::Ghost { key, interface, container, usual } => {
                // Whoever adds the next sandbox of that name has the turn, or waits for it.
                let turn = self.turns.named(usual.clone());
                let _turn = turn.take();
                self.remove_ghost(key, interface, container)
            }
            Matter::Unrecorded { record, evidence, .. } => {
                let is_done = self.adopt(record, evidence)?;
                Ok(is_done.then(|| "taken into the journal".to_owned()))
            }
            Matter::Lacking(record) => self.keep_now(record),
            Matter::Nobodys { stranger, is_claimed: false, .. } => self.remove_nobodys(stranger),
            Matter::Unused { handle, addresses, is_surplus: true } => {
                self.release_unused(handle, addresses, "its sandbox has others")
            }
            Matter::Nobodys { .. } | Matter::Unused { .. } | Matter::Disputed(_) => Ok(None),
        }
    }

    fn remove_dead(&self, record: &Record) -> Result<Option<String>, Failure> {
        let turn = self.turns.of(&record.workload, &record.identity);
        let _turn = turn.take();
        // A call may have dealt with it meanwhile.
        let is_same = |it: &Record| it == record && it.phase == Phase::Ready;
        let Some(record) = self.journal.get(&record.identity).filter(is_same) else {
            return Ok(None);
        };
        let who = notes::spoken(&record);
        let text = format!(
            "{who}: its interface and its network namespace are gone and nobody called DEL"
        );
        self.take_down(record)?;
        self.events.note("removed", &text);
        Ok(Some("taken down".to_owned()))
    }

    fn remove_ghost(
        &self,
        key: &str,
        interface: &str,
        container: &str,
    ) -> Result<Option<String>, Failure> {
        if self.journal.any(|record| endpoint_key(record) == key) || self.has_link(interface) {
            return Ok(None);
        }
        let in_use = self.in_use_here();
        let removed = self.transact(|it| ghost::remove(it, key, container, &self.name, &in_use));
        let removed = removed.map_err(|error| unavailable(&error))?;
        let Some(released) = removed else { return Ok(None) };
        let addresses: Vec<String> = released.iter().map(ToString::to_string).collect();
        let with = match addresses.is_empty() {
            true => String::new(),
            false => format!(", and {} with it", addresses.join(", ")),
        };
        let endpoint = notes::endpoint(key);
        let text = format!(
            "endpoint {endpoint} is removed{with}: its interface {interface} is not there or \
             another's, and no sandbox of the journal has it"
        );
        self.events.note("removed", &text);
        Ok(Some(format!("removed{with}")))
    }

    /// Removes an interface that is nobody's and leads to a place where nobody is.
    fn remove_nobodys(&self, stranger: &Stranger) -> Result<Option<String>, Failure> {
        let name = &stranger.interface;
        let turn = self.turns.named(name.clone());
        let _turn = turn.take();
        let failed = |error: kernel::Error| Failure::plugin(format!("{name}: {error}"));
        let now = self.strangers().map_err(failed)?;
        let now = now.iter().find(|it| *it == stranger).filter(|it| it.is_abandoned());
        let (Some(now), Some(proof)) = (now, self.in_sync_proof()) else { return Ok(None) };
        // The datastore may have heard of it since the look.
        let recognised = self.dataplane().inputs.recognise(proof, now, &self.boot);
        if !matches!(recognised, Recognised::Nobodys { is_claimed: false, .. }) {
            return Ok(None);
        }
        let removed = self.removals().and_then(|it| wire::remove_named(&self.here, &it, name));
        removed.map_err(failed)?;
        self.nobodys.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let at = now.inside.as_ref().map_or("", |inside| inside.path.as_str());
        let text = format!(
            "interface {name}: nobody's by the journal and the datastore, and no process is where \
             it leads to ({at})"
        );
        self.events.note("removed", &text);
        Ok(Some("removed".to_owned()))
    }

    /// Addresses that sandboxes of this node have, by the journal or by the routes.
    fn in_use_here(&self) -> BTreeSet<IpAddr> {
        let mut in_use = self.addresses_in_use();
        in_use.extend(self.addresses_in_journal());
        in_use
    }

    fn has_link(&self, interface: &str) -> bool {
        let look = || -> kernel::Result<bool> {
            let name = kernel::LinkName::new(interface)?;
            let link = Netlink::in_netns(&self.here)?.link_by_name(&name)?;
            // One that bears the name of a sandbox of the journal is that one's.
            let owner = |alias: String| Identity::from_alias(&alias);
            Ok(link.filter(wire::is_veth).is_some_and(|link| {
                let owner = link.alias.and_then(owner);
                owner.is_none_or(|owner| self.journal.get(&owner).is_none())
            }))
        };
        // What no interface can be called is not there.
        look().unwrap_or(false)
    }

    /// Lets go what nobody of a network uses, by the list of those that its runtime has.
    pub(crate) fn collect_unlisted(
        &self,
        network: &str,
        valid: &BTreeSet<Identity>,
    ) -> Result<(), Failure> {
        // Whoever lives here unrecorded speaks for its addresses first.
        self.adopt_all();
        let Ok(matters) = self.matters() else { return Ok(()) };
        let is_listed = |container: &str| valid.iter().any(|it| it.container == container);
        for matter in &matters {
            match matter {
                Matter::Ghost { container, .. } if !is_listed(container) => {
                    self.settle_matter(matter)?;
                }
                Matter::Unused { handle, addresses, .. } => {
                    let container =
                        handle.strip_prefix(network).and_then(|it| it.strip_prefix('.'));
                    if container.is_some_and(|it| !is_listed(it)) {
                        let why = "the runtime does not list its container";
                        self.release_unused(handle, addresses, why)?;
                    }
                }
                _ => {}
            }
        }
        self.flush_or_say();
        Ok(())
    }

    fn release_unused(
        &self,
        handle: &str,
        addresses: &BTreeMap<IpAddr, Option<u64>>,
        why: &str,
    ) -> Result<Option<String>, Failure> {
        let released = self.transact(|planner| ghost::release(planner, handle, addresses));
        let released = released.map_err(|error| unavailable(&error))?;
        if released.is_empty() {
            return Ok(None);
        }
        let addresses: Vec<String> = released.iter().map(ToString::to_string).collect();
        let text = format!(
            "{} of {handle}: let go, because nothing here uses it and {why}",
            addresses.join(", ")
        );
        self.events.note("removed", &text);
        Ok(Some("let go".to_owned()))
    }

    pub(crate) fn flush_or_say(&self) {
        if let Err(error) = self.flush() {
            say(&format!("the kernel could not be brought up to date: {error}"));
        }
    }
}

/// The addresses of an endpoint without a sandbox go with it.
fn without_those_of_ghosts(matters: &mut Vec<Matter>) {
    let container = |matter: &Matter| match matter {
        Matter::Ghost { container, .. } => Some(container.clone()),
        _ => None,
    };
    let ghosts: BTreeSet<String> = matters.iter().filter_map(container).collect();
    matters.retain(|matter| match matter {
        Matter::Unused { handle, .. } => {
            !handle.rsplit_once('.').is_some_and(|(_, container)| ghosts.contains(container))
        }
        _ => true,
    });
}

/// Whether the namespace of a sandbox is still where it was.
fn has_namespace(record: &Record) -> bool {
    Netns::open(&record.netns_path).is_ok_and(|netns| netns_id(&netns) == record.netns)
}
