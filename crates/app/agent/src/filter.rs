//! The packet filter of this node: one table of ours, in which an interface drops until its
//! endpoint is committed.
//!
//! What the table should hold is computed by `policy::render`; here it meets the kernel, which
//! takes a change in one transaction or not at all.

pub(crate) mod audit;
mod commit;
mod isolate;
mod netfilter;
mod owner;
mod partly;
pub(crate) mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use intent::InSync;
use kernel::nft::{Nft, Table, TableFamily, TableId};
use kernel::{Netns, Remedy, Result};
use policy::input::PolicyId;
use policy::intent::{Dirty, Intent};
use policy::render::{Refusal, Refused, Renderer, Settings, Sizes, Surroundings};

use commit::{PATIENT, Setback};
pub(crate) use isolate::tiers_of;
use netfilter::Netfilter;
pub(crate) use partly::Absent;

pub(crate) use host::marks::TABLE;

/// How long another program may take to replace the tables.
const TURN_PATIENCE: Duration = Duration::from_secs(2);

/// How long the kernel is left alone with what it refused.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// How many of our transactions are remembered: their events are on the way for a moment only.
const OWN_MAX: usize = 1024;

/// The kernel's side of the filter.
#[derive(Debug)]
pub(crate) struct FilterTable<K = Nft> {
    kernel: K,
    settings: Settings,
    /// Whether our tables may be such that nobody else can change them.
    is_owner: bool,
    /// Whether the kernel lets tables have an owner and outlive it.
    knows_owners: bool,
    /// What the kernel holds; none if it has to be installed.
    installed: Option<Renderer>,
    /// What could not be carried out, and stands as before: by object, in words.
    refused: BTreeMap<Refused, String>,
    /// When the kernel last refused something: it is asked again after a while.
    refused_at: Option<Instant>,
    /// Of endpoints among them, the policy that is to blame.
    causes: BTreeMap<Refused, PolicyId>,
    /// The generations of the ruleset that our last transactions made.
    own: VecDeque<u32>,
    /// The generation in which our tables are known to be what we made them; none if they were not
    /// read since they were installed, or others have changed the ruleset since.
    vouched: Option<u32>,
    /// How many transactions were committed.
    n_commits: u64,
    /// How many were not.
    n_failed: u64,
    /// Whether what is owed is to be tried with the next change, because nothing was carried out.
    is_owing: bool,
    /// Whether somebody else changed or removed our tables.
    is_lost: bool,
    /// What of them, and who did it, in words, as far as that is known.
    damage: Option<String>,
    is_repaired: bool,
    /// Whether there was a time in which our rules were not in force, or not as we made them.
    had_gap: bool,
}

/// What the filter is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) intent: &'a Intent,
    /// What is different since the last time.
    pub(crate) dirty: &'a Dirty,
    pub(crate) around: &'a Surroundings,
}

impl FilterTable {
    /// For a namespace.
    pub(crate) fn new(netns: &Netns, settings: Settings) -> Result<Self> {
        Ok(Self::over(Nft::in_netns(netns)?, settings))
    }
}

impl<K: Netfilter> FilterTable<K> {
    fn over(kernel: K, settings: Settings) -> Self {
        Self {
            kernel,
            settings,
            is_owner: false,
            knows_owners: true,
            installed: None,
            refused: BTreeMap::new(),
            causes: BTreeMap::new(),
            refused_at: None,
            own: VecDeque::new(),
            vouched: None,
            n_commits: 0,
            n_failed: 0,
            is_owing: false,
            is_lost: false,
            damage: None,
            is_repaired: false,
            had_gap: false,
        }
    }

    /// How much stands, as far as that is known.
    pub(crate) fn sizes(&self) -> Sizes {
        self.installed.as_ref().map(Renderer::sizes).unwrap_or_default()
    }

    /// How many transactions were committed, and how many were not.
    pub(crate) fn n_transactions(&self) -> (u64, u64) {
        (self.n_commits, self.n_failed)
    }

    /// The settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes other settings: everything is installed anew.
    pub(crate) fn set(&mut self, settings: Settings) {
        if self.settings != settings {
            self.settings = settings;
            self.installed = None;
        }
    }

    /// Whether what the kernel holds is known.
    pub(crate) fn is_installed(&self) -> bool {
        self.installed.is_some()
    }

    /// Somebody else has changed our tables, or may have: they are installed anew.
    pub(crate) fn doubt(&mut self, is_sure: bool) {
        if self.installed.take().is_some() {
            self.is_lost |= is_sure || !self.stands();
        }
    }

    /// Whether we made this generation of the ruleset. The kernel names the thread that did, which
    /// may be any of ours, by a number that means nothing inside a container.
    pub(crate) fn is_own(&self, generation: u32) -> bool {
        self.own.contains(&generation)
    }

    /// How many interfaces the kernel knows.
    pub(crate) fn count(&mut self) -> usize {
        match &self.installed {
            Some(installed) => installed.n_interfaces(),
            None => partly::n_interfaces(&mut self.kernel).unwrap_or(0),
        }
    }

    /// What could not be carried out, and stands as before.
    pub(crate) fn refused(&self) -> &BTreeMap<Refused, String> {
        &self.refused
    }

    /// The policies that are to blame for endpoints that are refused, where that is known.
    pub(crate) fn causes(&self) -> &BTreeMap<Refused, PolicyId> {
        &self.causes
    }

    /// Whether tables that somebody else had changed or removed were put right since the last time.
    pub(crate) fn take_repaired(&mut self) -> bool {
        std::mem::take(&mut self.is_repaired)
    }

    /// Takes what somebody else did to our tables, in words; the first of several counts.
    pub(crate) fn note_damage(&mut self, damage: String) {
        self.damage.get_or_insert(damage);
    }

    /// What of the tables that were put right was not as we made it, where that is known.
    pub(crate) fn take_damage(&mut self) -> Option<String> {
        self.damage.take()
    }

    /// Whether there was a time since the last call in which packets may have passed that our rules
    /// forbid.
    pub(crate) fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.had_gap)
    }

    /// Whether our tables are there; who cannot look does not say that they are gone.
    fn stands(&mut self) -> bool {
        let present = self.kernel.tables();
        present.map_or(true, |present| {
            let is_awake = |id: &TableId| present.iter().any(|it| it.id == *id && !it.is_dormant);
            tables().iter().all(|ours| is_awake(&ours.id))
        })
    }

    /// What the kernel's filter lacks of an interface with these addresses, in words.
    pub(crate) fn faults(&mut self, interface: &str, addresses: &[IpAddr]) -> Result<Vec<String>> {
        if !self.stands() {
            return Ok(vec![format!("the table {TABLE} of the packet filter is missing")]);
        }
        let unknown = self.unknown(policy::render::places(interface, addresses))?.into_iter();
        let said = |(name, _)| format!("the packet filter does not know {interface} ({name})");
        Ok(unknown.map(said).collect())
    }

    /// Makes the kernel's filter the wanted one, at one moment. Something that the kernel
    /// refuses is left out, and stands as before; everything else is carried out.
    pub(crate) fn apply(&mut self, _: InSync, wanted: Wanted<'_>) -> Result<()> {
        // Unless it is known what came of the transaction, the old picture is not trusted any more.
        let Some(mut renderer) = self.installed.take() else { return self.install(wanted) };
        let dirty = self.due(&renderer, wanted.dirty);
        let wanted = Wanted { dirty: &dirty, ..wanted };
        let mut done = self.carry_out(&mut renderer, &wanted, PATIENT);
        if let Err(Setback::Refused(error)) = &done {
            // Something is there that should not be, or the other way: others may have changed it.
            if error.remedy() == Remedy::Resync && self.has_drifted(&renderer, &wanted) {
                self.is_lost = true;
                return self.install(wanted);
            }
            done = self.isolate(&mut renderer, &wanted, true);
        }
        match done {
            Ok(()) => {}
            Err(Setback::Refused(error)) => {
                renderer.refused(&dirty);
                self.is_owing = true;
                self.installed = Some(renderer);
                return Err(error);
            }
            Err(Setback::Lost(error)) => return Err(error),
        }
        self.installed = Some(renderer);
        Ok(())
    }

    fn install(&mut self, wanted: Wanted<'_>) -> Result<()> {
        let mut renderer = self.renderer();
        self.refused.clear();
        self.causes.clear();
        let _turn = turn();
        if std::mem::take(&mut self.is_owner) {
            self.kernel.disown()?;
        }
        if self.is_done_by_owner(wanted.intent)? {
            return Ok(());
        }
        let present = self.ask(K::tables)?;
        let mut change = renderer.replace(wanted.intent, wanted.around, &present);
        let limits = std::mem::take(&mut change.refused);
        match self.take(&change.steps, PATIENT) {
            Ok(()) => renderer.committed(change),
            Err((_, Setback::Refused(error))) if self.lacks_owners(&error) => {
                self.knows_owners = false;
                return self.install(wanted);
            }
            Err((_, Setback::Refused(_))) => self.install_in_pieces(&mut renderer, &wanted)?,
            Err((_, lost)) => return Err(lost.into()),
        }
        let [inet, _] = tables();
        self.had_gap |= self.is_lost || !present.iter().any(|it| it.id == inet.id);
        self.settled(&Dirty::default(), limits);
        self.is_owing = false;
        self.vouched = None;
        self.is_repaired |= std::mem::take(&mut self.is_lost);
        self.own(&renderer);
        self.installed = Some(renderer);
        Ok(())
    }

    /// What is to be carried out: with what was refused before, once in a while.
    fn due(&mut self, renderer: &Renderer, dirty: &Dirty) -> Dirty {
        let mut dirty = dirty.clone();
        if self.is_due() {
            self.refused_at = None;
            self.is_owing = false;
            dirty.join(renderer.debts());
        }
        dirty
    }

    /// Whether chains or sets stand that nothing leads to any more: a change of nothing removes
    /// them.
    pub(crate) fn is_untidy(&self) -> bool {
        self.refused_at.is_none() && self.installed.as_ref().is_some_and(|it| !it.is_tidy())
    }

    /// Whether something that was not carried out is to be tried again by now.
    pub(crate) fn is_due(&self) -> bool {
        self.is_owing || self.refused_at.is_some_and(|at| at.elapsed() >= RETRY_PAUSE)
    }

    fn try_later(&mut self) {
        self.refused_at = Some(Instant::now());
    }

    /// Takes note of what was carried out, and of what cannot be.
    fn settled(&mut self, dirty: &Dirty, limits: Vec<Refusal>) {
        for object in objects(dirty).chain([Refused::Surroundings]) {
            self.refused.remove(&object);
            self.causes.remove(&object);
        }
        for Refusal { object, limit } in limits {
            self.refused.insert(object, limit.to_string());
        }
    }

    /// Makes the kernel's filter hold these as well, and nothing of what is absent; everything else
    /// in it stays. For a node that knows only its own part.
    pub(crate) fn apply_partly(&mut self, wanted: Wanted<'_>, absent: &Absent) -> Result<()> {
        self.installed = None;
        if self.is_done_by_owner(wanted.intent)? {
            return Ok(());
        }
        let renderer = Renderer::new(Settings { is_owned: false, ..self.settings.clone() });
        if self.stands() {
            let ruleset = renderer.whole(wanted.intent, wanted.around);
            let present = self.ask(partly::read)?;
            let steps = partly::complete(&ruleset, &present, absent);
            steps.iter().try_for_each(|batch| self.commit(batch, PATIENT))?;
            if absent.are_hosts_in_doubt {
                self.commit(&partly::renew_hosts(&ruleset, &present), PATIENT)?;
            }
        } else {
            let _turn = turn();
            let present = self.ask(K::tables)?;
            let change = renderer.replace(wanted.intent, wanted.around, &present);
            self.take(&change.steps, PATIENT).map_err(|(_, setback)| setback)?;
        }
        self.is_repaired |= std::mem::take(&mut self.is_lost);
        Ok(())
    }
}

/// The objects that are dirty.
fn objects(dirty: &Dirty) -> impl Iterator<Item = Refused> {
    let workloads = dirty.workloads.iter().map(|it| Refused::Workload(it.clone()));
    let hosts = dirty.hosts.iter().map(|it| Refused::Host(it.clone()));
    let policies = dirty.policies.iter().map(|it| Refused::Policy(it.clone()));
    let profiles = dirty.profiles.iter().map(|it| Refused::Profile(it.clone()));
    let sets = dirty.sets.keys().map(|it| Refused::Set(it.clone()));
    workloads.chain(hosts).chain(policies).chain(profiles).chain(sets)
}

/// Held by whoever replaces the tables of this network namespace: a plugin that acts alone beside
/// an agent waits for it, and the other way. It goes with the process. Whoever waits too long, or
/// cannot wait, does its work all the same: the other hears of it.
fn turn() -> Option<UnixDatagram> {
    let address = SocketAddr::from_abstract_name(b"margay-filter").ok()?;
    let began = Instant::now();
    loop {
        match UnixDatagram::bind_addr(&address) {
            Ok(turn) => return Some(turn),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return None,
            Err(_) if began.elapsed() > TURN_PATIENCE => return None,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn tables() -> [Table; 2] {
    [TableFamily::Inet, TableFamily::Arp].map(|family| Table::new(TableId::new(family, TABLE)))
}
