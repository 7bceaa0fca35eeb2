//! Brings sandboxes up and takes them down, step by step, with the journal written in between.
//!
//! The steps and their order are [`sandbox::life`]'s; here they are performed. Calls for one
//! sandbox take turns. Whatever fails on the way up is taken down again before the runtime hears
//! of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernel::{LinkName, Netlink, Netns};
use sandbox::answer::{Answer, Interfaces, Route};
use sandbox::call::Call;
use sandbox::claim::{self, Fresh, Order, Wish};
use sandbox::failure::{Code, Failure};
use sandbox::identity::{Held, Identity, Workload};
use sandbox::life::{NetnsId, Phase, Record, Step, Target};
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

/// Who is being served, so that calls for one sandbox take turns.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<Identity, Arc<Turn>>>);

/// Whose turn it is with one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    busy: Mutex<()>,
    /// How many wait to take the sandbox down: nobody needs what is still being made of it.
    leaving: AtomicUsize,
}

impl Turns {
    pub(crate) fn of(&self, identity: &Identity) -> Arc<Turn> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(identity.clone()).or_default().clone()
    }
}

impl Turn {
    pub(crate) fn take(&self) -> MutexGuard<'_, ()> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn, and has an ADD that is under way give up at its next step.
    fn take_to_leave(&self) -> MutexGuard<'_, ()> {
        self.leaving.fetch_add(1, Ordering::SeqCst);
        let turn = self.take();
        self.leaving.fetch_sub(1, Ordering::SeqCst);
        turn
    }

    fn is_to_leave(&self) -> bool {
        self.leaving.load(Ordering::SeqCst) > 0
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
        let turn = self.turns.of(&identity);
        let _turn = turn.take();
        if let Some(record) = self.journal.get(&identity) {
            if self.is_the_same(&record, netns, &addition.conf)? {
                // Calico names no routes the second time.
                give(&Answer { routes: Vec::new(), ..answer_of(&record, addition) });
                return Ok(());
            }
            self.drive(record, Target::Gone, None)?;
        }
        let record = self.new_record(call, netns, addition)?;
        self.write(&record)?;
        let up = self.bring_up(record.clone(), netns, addition, &turn).and_then(|record| {
            let is_taken = give(&answer_of(&record, addition));
            let gone = || Failure::plugin(format!("{identity}: its caller is gone; taken back"));
            is_taken.then_some(()).ok_or_else(gone)
        });
        if up.is_err() {
            // What cannot be taken back now stays in the journal, and is taken back later.
            // An interface inside that is not the other end of ours is the container's own.
            let left = self.journal.get(&identity).unwrap_or(record);
            let _ = self.drive(left, Target::Gone, None);
        }
        up
    }

    /// Takes the interface of a container back.
    pub(crate) fn del(
        &self,
        call: &Call,
        conf: &NetConf,
        netns: Option<&Netns>,
    ) -> Result<(), Failure> {
        let identity = Identity::of(call);
        let turn = self.turns.of(&identity);
        let _turn = turn.take_to_leave();
        // The end inside goes with the host's end; only of a sandbox that somebody else made is the
        // host's end not known for sure.
        let (record, netns) = match self.journal.get(&identity) {
            Some(record) if record.network == conf.name => (record, None),
            Some(_) => return Ok(()),
            None => {
                let record = self.stranger(call, conf, netns)?;
                (record, netns.filter(|netns| !self.is_of_another(netns, &call.interface)))
            }
        };
        if self.may_be_locked()
            && let Ok(Err(failure)) = self.look(claim::locked)
        {
            return Err(failure);
        }
        match self.drive(record, Target::Gone, netns) {
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
        let lacks = self.transact(|planner| claim::lacking(planner, &record));
        faults.extend(lacks.map_err(|error| unavailable(&error))?);
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
            let turn = self.turns.of(&record.identity);
            let _turn = turn.take_to_leave();
            if let Err(failure) = self.drive(record, Target::Gone, None) {
                failures.push(failure.to_string());
            }
        }
        match failures.is_empty() {
            true => Ok(()),
            false => Err(Failure::plugin(failures.join("; "))),
        }
    }

    /// After a start: what was under way is taken back, what was leaving leaves.
    pub(crate) fn recover(&self) -> Vec<Failure> {
        let unfinished = self
            .journal
            .all()
            .into_iter()
            .filter(|record| record.phase != Phase::Ready || record.boot != self.boot);
        unfinished.filter_map(|record| self.drive(record, Target::Gone, None).err()).collect()
    }

    /// What was leaving and could not, because the datastore did not answer, leaves now.
    pub(crate) fn retry(&self) -> Vec<Failure> {
        let is_leaving = |record: &Record| record.phase >= Phase::Leaving;
        let leaving = self.journal.matching(is_leaving);
        leaving
            .into_iter()
            .filter_map(|record| {
                let turn = self.turns.of(&record.identity);
                let _turn = turn.take();
                // A call may have dealt with it meanwhile.
                let record = self.journal.get(&record.identity).filter(is_leaving)?;
                self.drive(record, Target::Gone, None).err()
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
        Ok(is_ready && record.netns == netns_id(netns))
    }

    fn new_record(
        &self,
        call: &Call,
        netns: &Netns,
        addition: &Addition,
    ) -> Result<Record, Failure> {
        let identity = Identity::of(call);
        let workload = Workload::of(call);
        let conf = &addition.conf;
        let host_interface = self.free_host_interface(&identity, &workload)?;
        let is_pod = matches!(workload, Workload::Pod { .. });
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
            container_interface: call.interface.clone(),
            mac: wiring::mac_from(self.random()),
            mtu: addition.mtu,
            queues: u32::try_from(conf.num_queues).unwrap_or(1).max(1),
            addresses: addresses.iter().map(|held| held.network.address()).collect(),
            routes,
            allow_forwarding: conf.container_settings.allow_ip_forwarding,
        };
        Ok(Record {
            endpoint: workload.endpoint_name(&self.name, &identity)?,
            identity,
            network: conf.name.clone(),
            workload,
            node: self.name.clone(),
            boot: self.boot.clone(),
            netns: netns_id(netns),
            netns_path: call.netns.clone(),
            ipam: conf.ipam.plugin.clone(),
            addresses,
            wiring,
            profiles: Some(if has_profile { vec![conf.name.clone()] } else { Vec::new() }),
            labels: conf.labels(),
            phase: Phase::Claiming,
        })
    }

    /// The usual name, unless another live sandbox has it. The interface of an earlier sandbox of
    /// the same pod makes room: its address stays with its own sandbox until that one leaves.
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
        match (owner, workload) {
            (Some(owner), Workload::Plain) if owner != *identity => {
                Ok(identity.spare_host_interface())
            }
            _ => Ok(usual),
        }
    }

    fn bring_up(
        &self,
        mut record: Record,
        netns: &Netns,
        addition: &Addition,
        turn: &Turn,
    ) -> Result<Record, Failure> {
        let mut motion = Some(self.motions.begin(&record.wiring.host_interface));
        while let Some(step) = record.next(Target::Up) {
            if turn.is_to_leave() {
                let message = format!("{}: a DEL came before its ADD was done", record.identity);
                return Err(Failure::new(Code::TryAgainLater, message));
            }
            self.fault(step, "before");
            match step {
                Step::Claim => self.claim(&mut record, addition)?,
                Step::Wire => {
                    let _inside = self.gate.enter();
                    wire::wire(&self.here, netns, &record.identity, &record.wiring)
                        .map_err(|error| failed(&record.identity, step.name(), &error))?;
                    drop(motion.take());
                    self.is_wired();
                }
                Step::Open => self.let_pass(&record)?,
                Step::Leave | Step::Unwire | Step::Release => {
                    unreachable!("a sandbox on its way up does not leave")
                }
            }
            self.fault(step, "after");
            record.phase = record.after(step).expect("only a release ends a record");
            self.write(&record)?;
        }
        Ok(record)
    }

    /// Addresses, endpoint and profile, in one transaction.
    fn claim(&self, record: &mut Record, addition: &Addition) -> Result<(), Failure> {
        let claimed = self.orders.claim(
            self,
            Order {
                record: record.clone(),
                wish: addition.wish.clone(),
                fresh: Fresh { endpoint_uid: self.uid(), profile_uid: self.uid() },
            },
        );
        *record = claimed.map_err(|error| unavailable(&error))??;
        Ok(())
    }

    fn let_pass(&self, record: &Record) -> Result<(), Failure> {
        self.flush().map_err(|error| failed(&record.identity, "open", &error))
    }

    /// Performs what is left to do until the target is reached.
    fn drive(
        &self,
        mut record: Record,
        target: Target,
        netns: Option<&Netns>,
    ) -> Result<(), Failure> {
        let _motion = self.motions.begin(&record.wiring.host_interface);
        // A full disk keeps nobody from leaving: who leaves for good needs no record. Only what
        // cannot be finished now has to be written down, or asked for again.
        let mut unwritten = None;
        while let Some(step) = record.next(target) {
            self.fault(step, "before");
            match step {
                Step::Leave => {}
                Step::Unwire => self.unwire(&record, netns)?,
                Step::Release => {
                    self.release(&record).map_err(|failure| unwritten.take().unwrap_or(failure))?;
                }
                Step::Claim | Step::Wire | Step::Open => return Ok(()),
            }
            self.fault(step, "after");
            match record.after(step) {
                Some(phase) => {
                    record.phase = phase;
                    unwritten = self.write(&record).err();
                }
                None => {
                    let forgotten = self.journal.forget(&record.identity);
                    return forgotten.map_err(|error| failed(&record.identity, "forget", &error));
                }
            }
        }
        Ok(())
    }

    fn unwire(&self, record: &Record, netns: Option<&Netns>) -> Result<(), Failure> {
        let identity = &record.identity;
        let removed = self.removals().and_then(|removals| {
            wire::unwire(&self.here, &removals, identity, &record.wiring.host_interface)
        });
        removed.map_err(|error| failed(identity, "unwire", &error))?;
        if let Some(netns) = netns {
            wire::unwire_inside(netns, &record.wiring.container_interface)
                .map_err(|error| failed(identity, "unwire", &error))?;
        }
        Ok(())
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

    fn addresses_of_others(&self, record: &Record) -> BTreeSet<IpAddr> {
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
    ) -> Result<Record, Failure> {
        let identity = Identity::of(call);
        let workload = Workload::of(call);
        let wiring = Wiring {
            host_interface: workload.host_interface(&identity),
            container_interface: call.interface.clone(),
            mac: [0; 6],
            mtu: None,
            queues: 1,
            addresses: Vec::new(),
            routes: Vec::new(),
            allow_forwarding: false,
        };
        Ok(Record {
            endpoint: workload.endpoint_name(&self.name, &identity)?,
            identity,
            network: conf.name.clone(),
            workload,
            node: self.name.clone(),
            boot: self.boot.clone(),
            netns: netns.map_or(NetnsId { device: 0, inode: 0 }, netns_id),
            netns_path: call.netns.clone(),
            ipam: conf.ipam.plugin.clone(),
            addresses: Vec::new(),
            wiring,
            profiles: None,
            labels: Vec::new(),
            phase: Phase::Leaving,
        })
    }

    /// Whether the interface of this name in a namespace was made for a sandbox that we know: a
    /// DEL that follows a refused ADD in the same namespace is not about it.
    fn is_of_another(&self, netns: &Netns, interface: &str) -> bool {
        let id = netns_id(netns);
        let is_it = |it: &Record| it.netns == id && it.wiring.container_interface == interface;
        !self.journal.matching(is_it).is_empty()
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

fn netns_id(netns: &Netns) -> NetnsId {
    let id = netns.id();
    NetnsId { device: id.device, inode: id.inode }
}

fn failed(identity: &Identity, step: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::plugin(format!("{identity}: {step}: {error}"))
}
