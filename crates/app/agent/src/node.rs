//! One node: its records in the datastore, its kernel, its journal, and what connects them.

mod grief;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use api::Kind;
use host::events::Events;
use host::journal::Journal;
use host::tickets::Tickets;
use intent::{Changed, Hop, InSync, Inputs, Live, Overlay, Read, hold};
use ipam::{Plan, Planned, Planner, View};
use kernel::nft::{Nft, TableId};
use kernel::{LinkName, Netlink, Netns, Removals};
use net::Cidr;
use policy::intent::Dirty;
use sandbox::claim::{self, endpoint_key, resource_key};
use sandbox::life::{Phase, Record, Step};
use store::Store;
use store::ipam::Driver;
use store::realised::Realised;

use crate::drops::Drops;
use crate::endpoint_status::{EndpointStatus, InForce};
use crate::features::Kernel;
use crate::filter::audit::{self, Audit};
use crate::filter::settings::{Options, settings as settings_of};
use crate::filter::{Absent, FilterTable, Wanted};
use crate::finding::Finding;
use crate::foreign::{self, Foreign, World};
use crate::health::{self, Flushed, Health, Registration};
use crate::interfaces::{self, Networks};
use crate::memory::{self, Memory};
use crate::motion::{Gate, Motions};
use crate::orders::Orders;
use crate::parameters::Parameters;
use crate::realised::{Progress, key_at, refusals};
use crate::reserve::Stock;
use crate::routes::RouteTable;
use crate::sandboxes::Turns;
use crate::settings::Round;
use crate::trial::Trials;
use crate::upkeep::Doubts;
use crate::wire;

use grief::Grief;

/// How often our tables are read if they are changed meanwhile.
const AUDITS_MAX: usize = 3;

/// Where a node keeps its files, and who it is.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The node's name in the datastore.
    pub(crate) name: String,
    /// The folder that survives a reboot.
    pub(crate) state: PathBuf,
    /// Where the agent listens, unless a plugin acts alone.
    pub(crate) agent_socket: Option<PathBuf>,
    /// How many addresses of each family to hold for times without a datastore.
    pub(crate) reserve: usize,
    /// What the packet filter tells.
    pub(crate) filter: Options,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) boot: String,
    pub(crate) here: Netns,
    pub(crate) journal: Journal,
    pub(crate) turns: Turns,
    pub(crate) orders: Orders,
    pub(crate) events: Events,
    pub(crate) health: Health,
    pub(crate) motions: Motions,
    pub(crate) drops: Drops,
    /// Before the making of interfaces.
    pub(crate) gate: Gate,
    /// The addresses that lead to sandboxes, as of the last flush; none if nobody knows.
    in_use: Mutex<Option<Arc<BTreeSet<IpAddr>>>>,
    /// Interfaces were made whose routes are still to come.
    has_wired: AtomicBool,
    /// Whether the records may be locked: only then is it worth looking.
    may_be_locked: AtomicBool,
    /// Takes interfaces away, once one has to go.
    removals: Mutex<Option<Removals>>,
    pub(crate) doubts: Doubts,
    pub(crate) round: Round,
    store: Store,
    records: Driver,
    /// What is known of the records: hints, which every transaction checks.
    view: Mutex<View>,
    dataplane: Mutex<Dataplane>,
    /// What was asked of the agent while it was away; a plugin that acts alone is never away.
    pub(crate) tickets: Option<Tickets>,
    /// Where what is remembered of the datastore is written down.
    pub(crate) memory_file: PathBuf,
    pub(crate) stock: Stock,
    /// How far the kernel has come with policy.
    pub(crate) progress: Progress,
    pub(crate) endpoint_status: EndpointStatus,
    /// Interfaces that are nobody's as of the last look, and why.
    pub(crate) nobodys: Mutex<BTreeMap<String, String>>,
    /// What other programs' tables of the packet filter drop.
    foreign: Mutex<Foreign>,
    pub(crate) kernel: Kernel,
    pub(crate) filter_options: Options,
}

/// What the kernel should hold, and what holds it.
#[derive(Debug)]
pub(crate) struct Dataplane {
    pub(crate) inputs: Inputs,
    pub(crate) routes: RouteTable,
    pub(crate) filter: FilterTable,
    pub(crate) changed: Changed,
    pub(crate) overlay: Overlay,
    pub(crate) memory: Memory,
    /// What is known of an earlier run; none once the datastore was read, or while it may be.
    pub(crate) recalled: Option<Recalled>,
    /// The interfaces of this host as of the last look; none where no endpoint of it asks for them.
    pub(crate) networks: Option<Networks>,
    findings: Vec<Finding>,
    pub(crate) parameters: Parameters,
    filter_options: Options,
    grief: Grief,
    pub(crate) trials: Trials,
    /// Revisions of our own writes that the watch has not delivered yet: what it delivers before
    /// them is out of date.
    ahead: BTreeMap<String, i64>,
    /// The keys of endpoints that the filter knows anew, and whose status is still to be told.
    unreported: BTreeSet<String>,
}

/// What an earlier run of the agent knew.
#[derive(Debug)]
pub(crate) struct Recalled {
    pub(crate) memory: Memory,
    pub(crate) inputs: Inputs,
    /// When it was last known to be true; none if there is no such memory.
    pub(crate) as_of: Option<SystemTime>,
}

/// Why a node cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kernel.
    #[error("{0}")]
    Kernel(#[from] kernel::Error),
    /// The datastore.
    #[error("{0}")]
    Store(#[from] store::Error),
    /// The journal cannot be opened.
    #[error("the journal of sandboxes in {}: {why}; choose another folder with --state-dir",
        .folder.display())]
    Journal {
        /// Where it lies.
        folder: PathBuf,
        /// Why not.
        why: io::Error,
    },
    /// A file.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Node {
    /// Opens a node. Nothing is changed yet.
    pub(crate) fn open(settings: &Settings, store: Store) -> Result<Self, Error> {
        let here = Netns::current()?;
        let folder = settings.state.join("sandboxes");
        let (journal, unreadable) =
            Journal::open(&folder).map_err(|why| Error::Journal { folder, why })?;
        let events = Events::open(settings.state.join("events.jsonl"));
        for file in unreadable {
            let place = file.path.display();
            events.note("quarantine", &format!("journal file put aside: {place}: {}", file.why));
        }
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let records = current(&here, journal.all());
        let inputs = inputs_of(&settings.name, &records, &boot);
        let parameters = Parameters::read(&settings.name);
        let dataplane = Dataplane {
            inputs,
            routes: RouteTable::new(Netlink::in_netns(&here)?),
            filter: FilterTable::new(&here, settings_of(&parameters.config, settings.filter))?,
            changed: Changed { routes: true, filter: true, settings: true },
            overlay: Overlay::of(&records),
            memory: Memory::new(&settings.name),
            recalled: None,
            networks: None,
            findings: Vec::new(),
            parameters,
            filter_options: settings.filter,
            grief: Grief::new(&settings.state),
            trials: Trials::read(&settings.state, &settings.name, &store.describe(), &events),
            ahead: BTreeMap::new(),
            unreported: BTreeSet::new(),
        };
        let has_agent = settings.agent_socket.is_some();
        let lost_before = has_agent.then(|| health::lost_before(&events)).flatten();
        let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            name: settings.name.clone(),
            boot,
            here,
            journal,
            turns: Turns::default(),
            orders: Orders::default(),
            events,
            health: Health::new(lost_before),
            motions: Motions::default(),
            gate: Gate::new(n_cores * 2),
            in_use: Mutex::new(None),
            has_wired: AtomicBool::new(false),
            may_be_locked: AtomicBool::new(true),
            removals: Mutex::new(None),
            doubts: Doubts::default(),
            round: Round::default(),
            records: Driver::new(store.clone()),
            view: Mutex::new(View::default()),
            store,
            dataplane: Mutex::new(dataplane),
            tickets: settings.agent_socket.as_deref().map(Tickets::beside),
            memory_file: settings.state.join("known.json"),
            stock: Stock::new(settings.reserve),
            progress: Progress::default(),
            endpoint_status: EndpointStatus::default(),
            nobodys: Mutex::new(BTreeMap::new()),
            foreign: Mutex::new(Foreign::default()),
            kernel: Kernel::default(),
            filter_options: settings.filter,
            drops: Drops::default(),
        })
    }

    /// The datastore.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// What takes interfaces away.
    pub(crate) fn removals(&self) -> Result<Removals, kernel::Error> {
        let mut removals = self.removals.lock().unwrap_or_else(PoisonError::into_inner);
        if removals.is_none() {
            *removals = Some(Removals::new(&self.here)?);
        }
        Ok(removals.clone().expect("it was made just now"))
    }

    pub(crate) fn has_agent(&self) -> bool {
        self.tickets.is_some()
    }

    /// Takes a change that the datastore reports, and its value as it was read, if it was.
    pub(crate) fn observe(
        &self,
        key: &str,
        value: Option<&[u8]>,
        revision: i64,
        read: Option<Read>,
    ) {
        if key == claim::lock_key() {
            let may_be = value.is_some_and(|value| claim::says_ready(value) != Some(true));
            self.may_be_locked.store(may_be, Ordering::Release);
        }
        // Nothing is planned with the endpoints of others, of which there are many.
        if memory::is_of_node(key, &self.name) != Some(false) {
            let entry = value.map(|value| (value.to_vec(), revision));
            self.view().observe(key, entry, revision);
        }
        let mut dataplane = self.dataplane();
        match dataplane.ahead.get(key) {
            // What comes now is out of date, or our own write, which was absorbed when it was made.
            Some(ahead) if *ahead >= revision => return self.progress.seen(key, revision),
            _ => dataplane.ahead.remove(key),
        };
        if dataplane.inputs.in_sync().is_some() && dataplane.inputs.carries_live(key) {
            self.doubts.key(key);
        }
        if value.is_none() && key == resource_key(Kind::Node, "", &self.name) {
            self.health.registered(&self.events, Registration::Waiting);
        }
        dataplane.take_in(key, value, revision, read);
        self.progress.seen(key, revision);
    }

    /// Takes a change of our own, before the datastore reports it back.
    fn absorb(&self, plan: &Plan, revision: i64) {
        let mut dataplane = self.dataplane();
        for change in &plan.changes {
            dataplane.take_in(&change.key, change.value.as_deref(), revision, None);
            if self.has_agent() {
                dataplane.ahead.insert(change.key.clone(), revision);
            }
        }
    }

    /// Makes the kernel what it should be. Waits for an engine that is built anew: nobody is told
    /// that a sandbox is ready while its policy is not known.
    pub(crate) fn flush(&self) -> Result<(), kernel::Error> {
        self.await_rebuilding();
        let flushed = self.flush_now();
        // A plugin that acts alone has nobody else to build it anew.
        if !self.has_agent() && self.is_broken() {
            self.start_anew();
            return match self.load() {
                Ok(()) => self.flush_now(),
                Err(_) => flushed,
            };
        }
        flushed
    }

    /// The same for who builds the engine anew.
    pub(crate) fn flush_now(&self) -> Result<(), kernel::Error> {
        let mut dataplane = self.dataplane();
        let dataplane = &mut *dataplane;
        if let Some(error) = dataplane.grief.error() {
            return Err(error);
        }
        // What looks superfluous may belong to a sandbox that was not read yet.
        let proof = dataplane.inputs.in_sync();
        if proof.is_none() && dataplane.recalled.is_none() {
            return Ok(());
        }
        dataplane.changed.routes |= self.has_wired.swap(false, Ordering::AcqRel);
        let changed = std::mem::take(&mut dataplane.changed);
        let newest = self.progress.newest();
        let began = Instant::now();
        let result = dataplane.guarded(|dataplane| match proof {
            Some(proof) => dataplane.apply(proof, changed, &self.motions),
            None => dataplane.apply_partly(),
        });
        match result {
            Ok(()) if proof.is_some() => {
                dataplane.grief.is_over();
                dataplane.memory.settle(&dataplane.inputs);
                let mut refused = refusals(dataplane.filter.refused(), &dataplane.inputs);
                refused.extend(dataplane.trials.refused());
                let now = InForce {
                    config: &dataplane.parameters.config,
                    intent: dataplane.inputs.policy(),
                    memory: &dataplane.memory,
                    refused: &refused,
                };
                self.endpoint_status.applied(std::mem::take(&mut dataplane.unreported), &now);
                let absent = dataplane.trials.absent();
                let interfaces = dataplane.networks.clone();
                self.progress.reached(Realised { revision: newest, refused, absent, interfaces });
                // Without the host's own addresses nobody can tell what is forbidden.
                if dataplane.filter.take_gap()
                    && let Ok(networks) = dataplane.routes.networks()
                {
                    let own = interfaces::addresses(&networks).into_values().flatten().collect();
                    self.close_window(dataplane.inputs.policy(), &own);
                }
            }
            Ok(()) => {}
            Err(_) => dataplane.changed |= changed,
        }
        if changed.routes {
            *self.in_use() = dataplane.routes.addresses().map(Arc::new);
        }
        // What could not be put in place is tried again with the next change, whatever it is of.
        dataplane.changed.routes |= !dataplane.findings.is_empty();
        let flushed = Flushed {
            problem: result.as_ref().err().map(ToString::to_string),
            took: began.elapsed(),
            routes: dataplane.routes.take_repaired(),
            filter: dataplane.filter.take_repaired(),
            damage: dataplane.filter.take_damage(),
            quarantined: dataplane.inputs.quarantined(),
            disputes: dataplane.inputs.disputes(),
        };
        self.health.flushed(&self.events, &flushed);
        result
    }

    /// Tries again what the kernel did not take, and removes what earlier changes left, though
    /// nothing has changed since.
    pub(crate) fn catch_up(&self) {
        let mut dataplane = self.dataplane();
        let is_due = dataplane.filter.is_due() || dataplane.filter.is_untidy();
        dataplane.changed.filter |= is_due;
        drop(dataplane);
        if is_due || self.health.vitals().kernel_problem.is_some() {
            self.flush_or_say();
        }
    }

    /// Links or routes have changed. Whether ours have to be compared again: somebody else may have
    /// touched them, or what stood in the way of one may be gone.
    pub(crate) fn doubts_routes(&self, events: &[kernel::Event]) -> bool {
        let mut dataplane = self.dataplane();
        let is_blocked = !dataplane.findings.is_empty();
        let is_moving = |name: &LinkName| self.motions.contains(name.as_str());
        if !is_blocked && !dataplane.routes.has_news(events, is_moving) {
            return false;
        }
        dataplane.routes.doubt();
        dataplane.changed.routes = true;
        *self.in_use() = None;
        true
    }

    /// An interface was made: now its routes can be.
    pub(crate) fn is_wired(&self) {
        self.has_wired.store(true, Ordering::Release);
    }

    /// Whether it is worth looking whether the records are locked.
    pub(crate) fn may_be_locked(&self) -> bool {
        !self.has_agent() || self.may_be_locked.load(Ordering::Acquire)
    }

    /// The addresses that lead to sandboxes, as of the last flush.
    pub(crate) fn in_use(&self) -> MutexGuard<'_, Option<Arc<BTreeSet<IpAddr>>>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody has changed our tables of the packet filter, and how, or may have: they are
    /// installed anew.
    pub(crate) fn doubt_filter(&self, damage: Option<String>) {
        let mut dataplane = self.dataplane();
        dataplane.filter.doubt(damage.is_some());
        damage.into_iter().for_each(|damage| dataplane.filter.note_damage(damage));
        dataplane.changed.filter = true;
    }

    /// Reads our tables of the packet filter back, unless nobody else can have changed them; what
    /// is not as it was made is installed anew.
    pub(crate) fn audit_filter(&self, nft: &mut Nft) {
        for _ in 0..AUDITS_MAX {
            if self.dataplane().filter.is_vouched() {
                return;
            }
            let Ok(dump) = audit::read(nft) else { return };
            let mut dataplane = self.dataplane();
            let dataplane = &mut *dataplane;
            match dataplane.filter.audit(dataplane.inputs.policy(), &dump) {
                Ok(Audit::Moved) => {}
                Ok(Audit::Same) | Err(_) => return,
                Ok(Audit::Drift(words)) => {
                    let text = format!("the packet filter is not as it was made: {words}");
                    self.events.note("drift", &text);
                    dataplane.filter.doubt(true);
                    dataplane.filter.note_damage(words);
                    dataplane.changed.filter = true;
                    break;
                }
            }
        }
        if self.dataplane().changed.filter {
            self.flush_or_say();
        }
    }

    /// Looks at what other programs' tables drop: at these, or at all, and always at all if pods,
    /// their addresses or the ways out are others than the last time.
    pub(crate) fn look_at_foreign(&self, nft: &mut Nft, only: Option<&BTreeSet<TableId>>) {
        let Ok(world) = self.world() else { return };
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let foreign = &mut *foreign;
        let only = only.filter(|_| foreign.world == world);
        // A list that changes while it is read is read at the next change again.
        let is_read = foreign::look(nft, &world, only, &mut foreign.drops).is_ok();
        foreign.world = if is_read { world } else { World::default() };
    }

    /// What of this node the packets of pods pass.
    fn world(&self) -> kernel::Result<World> {
        let mut netlink = Netlink::in_netns(&self.here)?;
        let dataplane = self.dataplane();
        let inputs = dataplane.recalled.as_ref().map_or(&dataplane.inputs, |it| &it.inputs);
        let around = inputs.surroundings();
        let addresses = inputs.policy().workloads.values().flat_map(|it| &it.addresses);
        let addresses: BTreeSet<Cidr> = addresses.copied().collect();
        let prefixes = dataplane.filter.settings().interface_prefixes.clone();
        drop(dataplane);
        foreign::world(&mut netlink, &prefixes, &around, &addresses)
    }

    /// The routes are compared with the kernel's at the next flush.
    pub(crate) fn doubt_routes(&self) {
        let mut dataplane = self.dataplane();
        dataplane.routes.doubt();
        dataplane.changed.routes = true;
    }

    /// What is wrong.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let dataplane = self.dataplane();
        let quarantined = dataplane.inputs.quarantined().iter();
        let bad = quarantined
            .map(|(key, problems)| Finding::quarantined(key, problems, &dataplane.inputs));
        let inputs = &dataplane.inputs;
        let mut findings: Vec<Finding> = dataplane.findings.iter().cloned().chain(bad).collect();
        findings.extend(self.kernel.findings().iter().cloned());
        findings.extend(inputs.disputes().iter().map(Finding::disputed));
        findings.extend(inputs.twins().iter().map(Finding::twin));
        findings.extend(inputs.impostors().iter().map(Finding::impostor));
        findings.extend(inputs.contradictions().iter().map(Finding::contradicted));
        findings.extend(dataplane.parameters.findings());
        findings.extend(dataplane.trials.findings());
        findings.extend(dataplane.rival_claims());
        let nobodys = self.nobodys.lock().unwrap_or_else(PoisonError::into_inner);
        findings.extend(nobodys.iter().map(|(name, why)| Finding::nobodys(name, why)));
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        findings.extend(foreign.drops.iter().map(foreign::finding));
        let causes = dataplane.filter.causes();
        let refused = dataplane.filter.refused().iter();
        let alone = refused.filter(|(it, _)| !causes.contains_key(it));
        findings.extend(alone.map(|(it, why)| Finding::refused((&it.to_string(), why))));
        findings.extend(Finding::refused_policies(causes, dataplane.filter.refused()));
        for is_ipv4 in [true, false] {
            findings.extend(inputs.full_pools(is_ipv4).map(|it| Finding::full(is_ipv4, &it)));
        }
        findings
    }

    /// Looks records up. With an agent the watch keeps what is known of them, and nothing is asked.
    pub(crate) fn look<T>(
        &self,
        mut question: impl FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Result<T, store::ipam::Error> {
        if self.has_agent()
            && let ipam::Step::Done(answer, _) =
                ipam::plan(&self.view(), store::ipam::now(), &mut question)
        {
            return Ok(answer);
        }
        self.transact(question)
    }

    /// Changes records in one transaction.
    pub(crate) fn transact<T>(
        &self,
        operations: impl FnMut(&mut Planner<'_>) -> Planned<T>,
    ) -> Result<T, store::ipam::Error> {
        if let Some(problem) = self.outage() {
            return Err(problem.into());
        }
        let mut view = self.view();
        let done = self.records.run(&mut view, operations);
        if let Err(store::ipam::Error::Store(error)) = &done {
            self.judge(error);
        }
        let done = done?;
        // While the view is held, the watch cannot deliver what came after.
        self.absorb(&done.plan, done.revision.unwrap_or_default());
        Ok(done.answer)
    }

    /// Why the datastore need not be asked: it is a remote one that is known not to answer.
    pub(crate) fn outage(&self) -> Option<store::Error> {
        let is_remote = self.has_agent() && matches!(self.store, Store::Etcd(_));
        let reason = self.health.outage().filter(|_| is_remote)?;
        let lasting = self.health.vitals().connection_since.elapsed().unwrap_or_default();
        let outage = store::Outage { endpoint: self.store.describe(), reason, lasting };
        Some(store::Error::Unreachable(vec![outage]))
    }

    /// Takes note of a request that was not answered, so that the next ones need not wait. False
    /// if that is not what went wrong.
    pub(crate) fn judge(&self, error: &store::Error) -> bool {
        let is_silent = matches!(error, store::Error::Unreachable(_) | store::Error::Uncertain(_));
        if is_silent {
            let place = self.store.describe();
            self.health.unanswered(&self.events, &place, &error.to_string());
        }
        is_silent
    }

    /// The watch has delivered everything up to a revision; the first time, that is all there is.
    pub(crate) fn in_sync(&self, revision: i64, is_first: bool) {
        let mut dataplane = self.dataplane();
        dataplane.complete();
        dataplane.recalled = None;
        dataplane.ahead.retain(|_, ahead| *ahead > revision);
        drop(dataplane);
        if is_first {
            self.doubts.all();
        }
        let mut view = self.view();
        for prefix in ["/calico/ipam/v2/", "/calico/resources/v3/projectcalico.org/"] {
            match is_first {
                true => view.complete(prefix, revision),
                false => view.advance(prefix, revision),
            }
        }
    }

    /// Proof that everything was read once, if it was.
    pub(crate) fn in_sync_proof(&self) -> Option<InSync> {
        self.dataplane().inputs.in_sync()
    }

    pub(crate) fn note(&self, text: &str) {
        self.events.note("ignored", text);
    }

    /// Six random bytes.
    pub(crate) fn random(&self) -> [u8; 6] {
        let bytes = uuid::Uuid::new_v4().into_bytes();
        [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]]
    }

    pub(crate) fn uid(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    /// A place where a test ends the process.
    pub(crate) fn fault(&self, step: Step, when: &str) {
        host::fault::point(when, step.name());
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn dataplane(&self) -> MutexGuard<'_, Dataplane> {
        self.dataplane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kernel's side is served: within this time nobody holds it.
    pub(crate) fn is_moving(&self, patience: Duration) -> bool {
        let began = Instant::now();
        while let Err(TryLockError::WouldBlock) = self.dataplane.try_lock() {
            if began.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

/// The records without those of sandboxes whose pod has a later one: the kernel knows whose the
/// interface is. Whoever leaves is still to be heard of.
fn current(here: &Netns, mut records: Vec<Record>) -> Vec<Record> {
    let mut n_of_name: BTreeMap<String, usize> = BTreeMap::new();
    for record in &records {
        *n_of_name.entry(endpoint_key(record)).or_default() += 1;
    }
    records.retain(|record| {
        record.phase.is_leaving()
            || n_of_name.get(&endpoint_key(record)) == Some(&1)
            || wire::is_of(here, &record.identity, &record.wiring.host_interface).unwrap_or(true)
    });
    records
}

/// What a node knows before it has read anything: the sandboxes that its journal vouches for.
fn inputs_of(name: &str, records: &[Record], boot: &str) -> Inputs {
    let mut inputs = Inputs::new(name);
    for record in records {
        if record.phase == Phase::Ready && record.boot == boot {
            inputs.vouch(&endpoint_key(record), Live::of(record));
        }
    }
    inputs
}

impl Dataplane {
    /// Whether everything was read once.
    pub(crate) fn is_complete(&self) -> bool {
        self.inputs.in_sync().is_some()
    }

    /// What is kept in mind of the datastore.
    pub(crate) fn remembered(&self) -> &Memory {
        self.recalled.as_ref().map_or(&self.memory, |recalled| &recalled.memory)
    }

    /// Takes what the datastore says of a key, as far as this node does not know better.
    fn take_in(&mut self, key: &str, stored: Option<&[u8]>, revision: i64, read: Option<Read>) {
        self.trials.changed(key, self.memory.get(key), stored, revision);
        let was_usable = self.is_complete() && !self.inputs.quarantined().contains_key(key);
        self.memory.take(key, stored, revision, was_usable);
        self.absorb(key, stored, read);
    }

    /// Everything was read: what is still in force although it is gone was not told of.
    fn settle(&mut self) {
        let memory = &self.memory;
        for key in self.trials.settle(|key| memory.get(key).is_some()) {
            self.retake(&key);
        }
    }

    /// What this node knows of a key has changed.
    pub(crate) fn retake(&mut self, key: &str) {
        let stored = self.memory.get(key).map(<[u8]>::to_vec);
        self.absorb(key, stored.as_deref(), None);
        if let Some(recalled) = &mut self.recalled {
            let stored = self.trials.over(key, recalled.memory.get(key));
            let stored = self.overlay.over(key, stored);
            self.changed |= recalled.memory.tell(&mut recalled.inputs, key, stored, None);
        }
    }

    /// Brings the kernel up to date with what is known of an earlier run and what happened since;
    /// nothing else is touched.
    fn apply_partly(&mut self) -> Result<(), kernel::Error> {
        if self.recalled.is_none() {
            return Ok(());
        }
        let interfaces = self.look_at_interfaces()?;
        let Some(recalled) = &mut self.recalled else { return Ok(()) };
        let are_hosts_in_doubt = self.trials.is_any_back();
        let mut absent = Absent { are_hosts_in_doubt, ..Absent::default() };
        for gone in self.overlay.gone() {
            absent.interfaces.insert(gone.interface.clone());
            absent.addresses.extend(&gone.addresses);
        }
        let dirty = recalled.inputs.flush_policy();
        let mut around = recalled.inputs.surroundings();
        around.interfaces = interfaces;
        let wanted = Wanted { intent: recalled.inputs.policy(), dirty: &dirty, around: &around };
        self.filter.apply_partly(wanted, &absent)?;
        self.routes.add(&recalled.inputs.routes().0)
    }

    /// What concerns endpoints of this host is on trial from now on.
    fn stage(&mut self, dirty: &Dirty, is_anew: bool) {
        let intent = self.inputs.policy();
        let hosts = intent.hosts.keys().map(|it| key_at(Kind::HostEndpoint, it)).collect();
        let concerns_hosts =
            is_anew && !intent.hosts.is_empty() || hold::concerns_hosts(intent, dirty);
        if self.trials.stage(concerns_hosts, &hosts) {
            self.memory.doubt();
        }
    }

    fn apply(
        &mut self,
        proof: InSync,
        changed: Changed,
        motions: &Motions,
    ) -> Result<(), kernel::Error> {
        // Closed before reachable: the filter knows a sandbox before any route leads to it.
        let is_set = changed.settings && self.parameters.take(self.inputs.settings());
        if is_set {
            self.filter.set(settings_of(&self.parameters.config, self.filter_options));
        }
        if changed.filter || changed.settings {
            let dirty = self.inputs.flush_policy();
            grief::rehearse(&dirty);
            let workloads = dirty.workloads.iter().map(|it| key_at(Kind::WorkloadEndpoint, it));
            let hosts = dirty.hosts.iter().map(|it| key_at(Kind::HostEndpoint, it));
            self.unreported.extend(workloads.chain(hosts));
            let mut around = self.inputs.surroundings();
            // Reading them takes the kernel longer than most changes, and only endpoints of the
            // host need them. What is different is told once: what fails here is all made anew.
            if self.inputs.policy().hosts.is_empty() {
                self.networks = None;
            } else {
                let read = self.look_at_interfaces();
                around.interfaces = read.inspect_err(|_| self.filter.doubt(false))?;
            }
            self.stage(&dirty, is_set || !self.filter.is_installed());
            let wanted = Wanted { intent: self.inputs.policy(), dirty: &dirty, around: &around };
            self.filter.apply(proof, wanted)?;
            self.trials.committed();
        }
        if changed.routes {
            let (mut wanted, unroutable) = self.inputs.routes();
            // What is not known to be there would be taken away from under a live sandbox.
            self.routes.learn()?;
            wanted.retain(|destination, hop| match hop {
                Hop::Interface(name) if motions.contains(name) => {
                    self.routes.holds(destination, hop)
                }
                _ => true,
            });
            let troubles = self.routes.apply(proof, &wanted)?;
            self.findings = troubles.findings;
            self.findings.extend(unroutable.iter().map(Finding::unroutable));
            let missing = troubles.missing.iter().map(|(destination, interface)| {
                let endpoint = self.inputs.endpoint_with(interface);
                Finding::interface_missing(*destination, interface, endpoint)
            });
            self.findings.extend(missing);
        }
        Ok(())
    }
}
