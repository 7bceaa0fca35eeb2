//! Brings sandboxes up and takes them down, step by step, with the journal written in between.
//!
//! What comes next is [`sandbox::course`]'s to say; here it is performed. Calls for one sandbox
//! take turns.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernel::{LinkName, Netlink, Netns};
use sandbox::answer::{Answer, Interfaces, Route};
use sandbox::call::Call;
use sandbox::claim::{self, Fresh, Order, Wish, endpoint_key};
use sandbox::course::{Act, Course, Outage, Performed};
use sandbox::failure::{Code, Failure};
use sandbox::identity::{Held, Identity, Workload};
use sandbox::life::{NetnsId, Origin, Owed, Phase, Record, Step};
use sandbox::netconf::NetConf;
use sandbox::wiring::{self, Wiring};

use crate::addresses::unavailable;
use crate::node::Node;
use crate::wire;

/// What an ADD asks for, once it is understood.
#[derive(Debug)]
pub(crate) struct Addition {
    /// The network configuration.
    pub(crate) conf: NetConf,
    /// Which addresses it gets; without our address manager, none.
    pub(crate) wish: Wish,
    /// What another address manager answered.
    pub(crate) delegated: Option<Answer>,
    /// The MTU of the pair, if it is decided.
    pub(crate) mtu: Option<u32>,
}

/// What an ADD works with.
struct Making<'a> {
    netns: &'a Netns,
    order: Order,
    turn: &'a Turn,
    give: &'a mut dyn FnMut(&Record) -> bool,
}

/// Who is being served, so that calls for one sandbox take turns. All that want the same name for
/// the host's interface share a turn: sandboxes of one pod, and containers whose ids begin alike.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<String, Arc<Turn>>>);

/// Whose turn it is with one name.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    busy: Mutex<()>,
    /// How many wait to take each sandbox down: nobody needs what is still being made of it.
    leaving: Mutex<BTreeMap<Identity, usize>>,
}

impl Turns {
    pub(crate) fn of(&self, workload: &Workload, identity: &Identity) -> Arc<Turn> {
        self.named(workload.host_interface(identity))
    }

    pub(crate) fn named(&self, interface: String) -> Arc<Turn> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(interface).or_default().clone()
    }
}

impl Turn {
    pub(crate) fn take(&self) -> MutexGuard<'_, ()> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn, and has an ADD that is under way give up at its next step.
    fn take_to_leave(&self, identity: &Identity) -> MutexGuard<'_, ()> {
        *self.leaving().entry(identity.clone()).or_default() += 1;
        let turn = self.take();
        let mut leaving = self.leaving();
        match leaving.get_mut(identity) {
            Some(n) if *n > 1 => *n -= 1,
            _ => drop(leaving.remove(identity)),
        }
        turn
    }

    fn is_to_leave(&self, identity: &Identity) -> bool {
        self.leaving().contains_key(identity)
    }

    fn leaving(&self) -> MutexGuard<'_, BTreeMap<Identity, usize>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Makes a container its interface, and gives the answer. Whoever is not there to take it has
    /// no use for the interface: it is taken back before anybody else's turn comes.
    pub(crate) fn add(
        &self,
        call: &Call,
        netns: &Netns,
        addition: &Addition,
        give: &mut dyn FnMut(&Answer) -> bool,
    ) -> Result<(), Failure> {
        let identity = Identity::of(call);
        let turn = self.turns.of(&Workload::of(call), &identity);
        let _turn = turn.take();
        let mut debt = None;
        let mut wish = addition.wish.clone();
        if let Some(record) = self.journal.get(&identity) {
            if self.is_the_same(&record, netns, &addition.conf)? {
                // Calico names no routes the second time.
                give(&Answer { routes: Vec::new(), ..answer_of(&record, addition) });
                return Ok(());
            }
            wish.avoid.retain(|address| !record.wiring.addresses.contains(address));
            debt = self.make_room(record, &addition.conf)?;
        }
        let record = Record { owed: debt, ..self.new_record(call, netns, addition)? };
        let order = Order {
            record: record.clone(),
            wish,
            fresh: Fresh { endpoint_uid: self.uid(), profile_uid: self.uid() },
        };
        let mut give = |record: &Record| give(&answer_of(record, addition));
        let making = Making { netns, order, turn: &turn, give: &mut give };
        self.run(Course::up(record, self.has_agent()), Some(making))
    }

    /// Takes back what an earlier ADD of the same sandbox left. What the datastore cannot be told
    /// now goes over to the next one: both have one handle, by which it is found.
    fn make_room(&self, record: Record, conf: &NetConf) -> Result<Option<Owed>, Failure> {
        let is_heir = record.network == conf.name && self.has_agent();
        match self.take_down(record) {
            Ok(()) => Ok(None),
            Err(failure) if failure.code == Code::TryAgainLater && is_heir => {
                Ok(Some(Owed { was_tried: true, ..Owed::default() }))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Takes the interface of a container back.
    pub(crate) fn del(
        &self,
        call: &Call,
        conf: &NetConf,
        netns: Option<&Netns>,
    ) -> Result<(), Failure> {
        let identity = Identity::of(call);
        let known = self.journal.get(&identity);
        let workload = known.map_or_else(|| Workload::of(call), |record| record.workload);
        let turn = self.turns.of(&workload, &identity);
        let _turn = turn.take_to_leave(&identity);
        // Its endpoint knows better than a call that may name another pod, or none.
        let named = self.dataplane().inputs.interface_of(&identity);
        let usual = named.unwrap_or_else(|| workload.host_interface(&identity));
        let goes = self.journal.get(&identity).is_some() || self.meet(&identity, &usual, netns);
        let record = match self.journal.get(&identity) {
            Some(record) if record.is_of(&conf.name) => record,
            Some(_) => return Ok(()),
            None => {
                // The name that nobody else's interface has leads to none, or to its own.
                let interface = if goes { usual } else { identity.spare_host_interface() };
                self.stranger(call, conf, netns, interface)?
            }
        };
        if self.may_be_locked()
            && let Ok(Err(failure)) = self.look(claim::locked)
        {
            return Err(failure);
        }
        match self.take_down(record) {
            Err(failure) if failure.code == Code::TryAgainLater && self.has_agent() => Ok(()),
            result => result,
        }
    }

    /// Looks whether everything is as ADD left it.
    pub(crate) fn check(&self, call: &Call, netns: &Netns) -> Result<(), Failure> {
        let identity = Identity::of(call);
        let Some(record) = self.journal.get(&identity) else {
            return Err(Failure::new(
                Code::UnknownContainer,
                format!("{identity} was never added"),
            )
            .with_details("the runtime must call ADD first"));
        };
        let mut faults = wire::faults(&self.here, netns, &identity, &record.wiring)
            .map_err(|error| failed(&identity, "look at", &error))?;
        if record.phase != Phase::Ready {
            faults.insert(0, "its ADD was never finished".to_owned());
        }
        let interface = &record.wiring.host_interface;
        let unseen = self.dataplane().filter.faults(interface, &record.wiring.addresses);
        faults.extend(unseen.map_err(|error| failed(&identity, "look at", &error))?);
        // What the datastore is still to hear of is not missing there.
        if record.owed.is_none() {
            let lacks = self.transact(|planner| claim::lacking(planner, &record));
            faults.extend(lacks.map_err(|error| unavailable(&error))?);
        }
        match faults.is_empty() {
            true => Ok(()),
            false => Err(Failure::plugin(format!("{identity}: {}", faults.join("; ")))
                .with_details("delete the container; its runtime makes it anew")),
        }
    }

    /// Takes everything of a network back but these attachments.
    pub(crate) fn collect(&self, network: &str, valid: &BTreeSet<Identity>) -> Result<(), Failure> {
        let mut failures = Vec::new();
        for record in self.journal.all() {
            if record.network != network || valid.contains(&record.identity) {
                continue;
            }
            let turn = self.turns.of(&record.workload, &record.identity);
            let _turn = turn.take_to_leave(&record.identity);
            if let Err(failure) = self.take_down(record) {
                failures.push(failure.to_string());
            }
        }
        match failures.is_empty() {
            true => self.collect_unlisted(network, valid),
            false => Err(Failure::plugin(failures.join("; "))),
        }
    }

    /// A sandbox is gone, whatever the datastore says.
    fn depart(&self, record: &Record) {
        let mut dataplane = self.dataplane();
        dataplane.overlay.note(record);
        dataplane.retake(&endpoint_key(record));
    }

    /// Nothing is left of a sandbox.
    fn forget(&self, record: &Record) -> Result<(), Failure> {
        let forgotten = self.journal.forget(&record.identity);
        forgotten.map_err(|error| failed(&record.identity, "forget", &error))?;
        let mut dataplane = self.dataplane();
        dataplane.overlay.forget(record);
        dataplane.retake(&endpoint_key(record));
        Ok(())
    }

    /// After a start: what was under way is taken back, what was leaving leaves.
    pub(crate) fn recover(&self) -> Vec<Failure> {
        let unfinished = self
            .journal
            .all()
            .into_iter()
            .filter(|record| record.phase != Phase::Ready || record.boot != self.boot);
        unfinished.filter_map(|record| self.take_down(record).err()).collect()
    }

    /// What was leaving and could not, because the datastore did not answer, leaves now.
    pub(crate) fn retry(&self) -> Vec<Failure> {
        // Whoever has its turn is not on its way up: an ADD keeps its turn until it is done.
        let is_leaving = |record: &Record| record.phase != Phase::Ready;
        let leaving = self.journal.matching(is_leaving);
        leaving
            .into_iter()
            .filter_map(|record| {
                let turn = self.turns.of(&record.workload, &record.identity);
                let _turn = turn.take();
                // A call may have dealt with it meanwhile.
                let record = self.journal.get(&record.identity).filter(is_leaving)?;
                self.take_down(record).err()
            })
            .collect()
    }

    fn is_the_same(&self, record: &Record, netns: &Netns, conf: &NetConf) -> Result<bool, Failure> {
        let is_ready = record.phase == Phase::Ready && record.boot == self.boot;
        if is_ready && record.network != conf.name {
            return Err(Failure::new(
                Code::InvalidEnvironment,
                format!("{} is attached to network {}", record.identity, record.network),
            )
            .with_details("an interface is in one network; name another interface (CNI_IFNAME)"));
        }
        if !is_ready || record.netns != netns_id(netns) {
            return Ok(false);
        }
        // The kernel gives the number of a namespace that is gone to the next one.
        let faults = wire::faults(&self.here, netns, &record.identity, &record.wiring);
        let faults = faults.map_err(|error| failed(&record.identity, "look at", &error))?;
        if let Some(fault) = faults.first() {
            self.note(&format!("{}: added anew: {fault}", record.identity));
        }
        Ok(faults.is_empty())
    }

    fn new_record(
        &self,
        call: &Call,
        netns: &Netns,
        addition: &Addition,
    ) -> Result<Record, Failure> {
        let conf = &addition.conf;
        let record = Record::of(self.origin(call, conf, Some(netns)), Phase::Claiming)?;
        let host_interface = self.free_host_interface(&record.identity, &record.workload)?;
        let is_pod = matches!(record.workload, Workload::Pod { .. });
        let has_profile = conf.policy.kind.is_empty();
        let named = addition.delegated.iter().flat_map(|answer| &answer.routes);
        let mut routes: Vec<_> = named.map(|route| route.destination).collect();
        if !is_pod || routes.is_empty() {
            routes = wiring::default_routes();
        } else if conf.include_default_routes {
            routes.splice(0..0, wiring::default_routes());
        }
        let given = addition.delegated.iter().flat_map(|answer| &answer.addresses);
        let addresses: Vec<Held> =
            given.map(|network| Held { network: *network, sequence: None }).collect();
        let wiring = Wiring {
            host_interface,
            mac: wiring::mac_from(self.random()),
            mtu: addition.mtu,
            queues: u32::try_from(conf.num_queues).unwrap_or(1).max(1),
            addresses: addresses.iter().map(|held| held.network.address()).collect(),
            routes,
            allow_forwarding: conf.container_settings.allow_ip_forwarding,
            ..record.wiring
        };
        let profiles = Some(if has_profile { vec![conf.name.clone()] } else { Vec::new() });
        Ok(Record { addresses, wiring, profiles, labels: conf.labels(), ..record })
    }

    /// The usual name, unless another live sandbox has it, or another interface of this container.
    /// The interface of an earlier sandbox of the same pod makes room: its address stays with its
    /// own sandbox until that one leaves.
    fn free_host_interface(
        &self,
        identity: &Identity,
        workload: &Workload,
    ) -> Result<String, Failure> {
        let usual = workload.host_interface(identity);
        let look = || -> kernel::Result<Option<Identity>> {
            let link = Netlink::in_netns(&self.here)?.link_by_name(&LinkName::new(&usual)?)?;
            Ok(link.and_then(|link| link.alias).as_deref().and_then(Identity::from_alias))
        };
        let owner = look().map_err(|error| failed(identity, "look at", &error))?;
        let is_taken = owner.is_some_and(|owner| {
            let makes_room =
                matches!(workload, Workload::Pod { .. }) && owner.container != identity.container;
            owner != *identity && !makes_room
        });
        Ok(if is_taken { identity.spare_host_interface() } else { usual })
    }

    pub(crate) fn take_down(&self, record: Record) -> Result<(), Failure> {
        self.run(Course::down(record, self.has_agent()), None)
    }

    /// Does what a course says until it ends.
    fn run(&self, mut course: Course, mut making: Option<Making<'_>>) -> Result<(), Failure> {
        let begin = |course: &Course| self.motions.begin(&course.record().wiring.host_interface);
        let mut motion = Some(begin(&course));
        loop {
            match course.next() {
                Act::Write => course.written(self.write(course.record())),
                Act::Perform(step) => {
                    let identity = &course.record().identity;
                    let is_late = making.as_ref().is_some_and(|it| it.turn.is_to_leave(identity));
                    if is_late && course.is_up() {
                        course.give_up();
                        continue;
                    }
                    if step == Step::Leave && motion.is_none() {
                        motion = Some(begin(&course));
                    }
                    self.fault(step, "before");
                    let performed = self.perform(step, &course, making.as_ref());
                    if matches!(performed, Ok(Performed::Done | Performed::Made(_))) {
                        self.fault(step, "after");
                    }
                    if step == Step::Wire && performed.is_ok() {
                        drop(motion.take());
                        self.is_wired();
                    }
                    course.performed(performed);
                }
                Act::Answer => {
                    let is_taken = making.as_mut().is_none_or(|it| (it.give)(course.record()));
                    course.answered(is_taken);
                }
                Act::Forget => course.forgotten(self.forget(course.record())),
                Act::End(result) => return result,
            }
        }
    }

    fn perform(
        &self,
        step: Step,
        course: &Course,
        making: Option<&Making<'_>>,
    ) -> Result<Performed, Failure> {
        let record = course.record();
        let making = || making.expect("only what is made has steps on its way up");
        match step {
            Step::Claim => return self.claim(&making().order),
            Step::Take => {
                let outage = course.outage().expect("the reserve is for outages");
                let taken = self.take(record, &making().order, outage)?;
                return Ok(Performed::Made(Box::new(taken)));
            }
            Step::Wire => {
                let _inside = self.gate.enter();
                wire::wire(&self.here, making().netns, &record.identity, &record.wiring)
                    .map_err(|error| failed(&record.identity, step.name(), &error))?;
            }
            Step::Open => {
                self.flush().map_err(|error| failed(&record.identity, step.name(), &error))?;
            }
            Step::Leave => {}
            Step::Unwire => self.unwire(record)?,
            Step::Release => self.release(record)?,
            Step::Settle | Step::Name | Step::Adopt => {
                unreachable!("only a sandbox that is up settles, or is adopted")
            }
        }
        Ok(Performed::Done)
    }

    /// Addresses, endpoint and profile, in one transaction.
    fn claim(&self, order: &Order) -> Result<Performed, Failure> {
        let error = match self.orders.claim(self, order.clone()) {
            Ok(claimed) => return Ok(Performed::Made(Box::new(claimed?))),
            Err(error) => error,
        };
        let failure = unavailable(&error);
        let was_tried = match &*error {
            store::ipam::Error::Store(store::Error::Unreachable(_)) => false,
            store::ipam::Error::Store(store::Error::Uncertain(_)) => true,
            _ => return Err(failure),
        };
        Ok(Performed::Away(Outage { failure, was_tried }))
    }

    /// The end inside goes with the host's end.
    fn unwire(&self, record: &Record) -> Result<(), Failure> {
        let identity = &record.identity;
        self.rename(record);
        let removed = self.removals().and_then(|removals| {
            wire::unwire(&self.here, &removals, identity, &record.wiring.host_interface)
        });
        removed.map_err(|error| failed(identity, "unwire", &error))?;
        // Whatever the datastore says, and whether it says anything.
        self.depart(record);
        self.flush().map_err(|error| failed(identity, "unwire", &error))
    }

    fn release(&self, record: &Record) -> Result<(), Failure> {
        let others = self.addresses_of_others(record);
        let released = self.orders.release(self, record.clone(), others);
        let released = released.map_err(|error| unavailable(&error))?;
        if let Err(error) = released {
            self.note(&format!(
                "{}: its address is not its own any more: {error}",
                record.identity
            ));
        }
        self.flush().map_err(|error| failed(&record.identity, "release", &error))
    }

    pub(crate) fn addresses_of_others(&self, record: &Record) -> BTreeSet<IpAddr> {
        let handle = record.handle();
        let others = self.journal.matching(|other| {
            other.identity.container == record.identity.container
                && other.identity != record.identity
                && other.handle() == handle
        });
        let addresses = others.iter().flat_map(|other| &other.addresses);
        addresses.map(|held| held.network.address()).collect()
    }

    /// A sandbox that no journal knows: one that Calico made, or one that never was.
    fn stranger(
        &self,
        call: &Call,
        conf: &NetConf,
        netns: Option<&Netns>,
        host_interface: String,
    ) -> Result<Record, Failure> {
        let record = Record::of(self.origin(call, conf, netns), Phase::Leaving)?;
        let wiring = Wiring { host_interface, ..record.wiring };
        Ok(Record { wiring, ..record })
    }

    fn origin(&self, call: &Call, conf: &NetConf, netns: Option<&Netns>) -> Origin {
        Origin {
            identity: Identity::of(call),
            workload: Workload::of(call),
            network: conf.name.clone(),
            node: self.name.clone(),
            boot: self.boot.clone(),
            netns: netns.map_or(NetnsId { device: 0, inode: 0 }, netns_id),
            netns_path: call.netns.clone(),
            ipam: conf.ipam.plugin.clone(),
        }
    }

    pub(crate) fn write(&self, record: &Record) -> Result<(), Failure> {
        self.vouch(record);
        self.journal.put(record).map_err(|error| {
            let folder = self.journal.folder().display();
            Failure::new(Code::Io, format!("{}: write the journal: {error}", record.identity))
                .with_details(format!("the journal is in {folder}"))
        })
    }
}

/// What the runtime is told about a sandbox that is up.
fn answer_of(record: &Record, addition: &Addition) -> Answer {
    let wiring = &record.wiring;
    let routes = match &addition.delegated {
        Some(answer) => answer.routes.clone(),
        None => {
            let networks = record.addresses.iter().map(|held| held.network);
            networks.map(|destination| Route { destination, gateway: None }).collect()
        }
    };
    Answer {
        interfaces: Some(Interfaces {
            host: wiring.host_interface.clone(),
            container: wiring.container_interface.clone(),
            mac: wiring::mac_text(wiring.mac),
            mtu: wiring.mtu,
            netns: record.netns_path.clone(),
        }),
        addresses: wiring.addresses.iter().copied().map(net::Cidr::host).collect(),
        routes,
    }
}

pub(crate) fn netns_id(netns: &Netns) -> NetnsId {
    let id = netns.id();
    NetnsId { device: id.device, inode: id.inode }
}

fn failed(identity: &Identity, step: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::plugin(format!("{identity}: {step}: {error}"))
}
