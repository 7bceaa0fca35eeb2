//! The reserve of addresses: filled while the datastore answers, drawn on while it does not, and
//! accounted for when it is back.
//!
//! An address is taken by being in the record of a sandbox, so that one write of the journal is all
//! there is to it: after a crash it was taken or it was not. What is left is what the reserve
//! holds and no record does.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use intent::Restock;
use ipam::{Planner, Read, Step as Plan, reserve_handle};
use sandbox::claim::{Order, endpoint_key};
use sandbox::course::Outage;
use sandbox::failure::{Code, Failure};
use sandbox::life::{Phase, Record, Step};
use sandbox::reserve::{self, Unsettled};
use store::Store;

use crate::finding::{Finding, Severity};
use crate::node::Node;
use crate::supervisor::say;
use crate::{notes, wire};

/// How long a reserve that could not be filled is left as it is.
const FILL_PAUSE: Duration = Duration::from_secs(30);

/// How long a datastore that is back may take to hear of everything before that is said.
const SETTLE_WAIT: Duration = Duration::from_secs(30);

/// What the node holds, as was written down.
#[derive(Debug)]
pub(crate) struct Stock {
    /// How many of each family there should be.
    wanted: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    addresses: BTreeSet<IpAddr>,
    /// When filling it is worth another try.
    fill_after: Option<Instant>,
}

impl Stock {
    /// For so many addresses of each family, of which none is held yet.
    pub(crate) fn new(wanted: usize) -> Self {
        Self { wanted, held: Mutex::default() }
    }

    /// These were held before. Who wants no reserve draws on none.
    pub(crate) fn restore(&self, addresses: &BTreeSet<IpAddr>) {
        if self.wanted > 0 {
            self.lock().addresses.clone_from(addresses);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is written down.
    pub(crate) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.lock().addresses.clone()
    }
}

impl Node {
    /// How many addresses could be given without the datastore.
    pub(crate) fn n_in_stock(&self) -> usize {
        self.free(&self.stock.lock().addresses).len()
    }

    fn free(&self, held: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let taken = self.addresses_in_journal();
        held.iter().copied().filter(|address| !taken.contains(address)).collect()
    }

    pub(crate) fn addresses_in_journal(&self) -> BTreeSet<IpAddr> {
        let all = self.journal.all();
        let held = all.iter().flat_map(|record| &record.addresses);
        held.map(|held| held.network.address()).collect()
    }

    /// Gives a sandbox addresses of the reserve. Nobody else can get them from here on.
    pub(crate) fn take(
        &self,
        record: &Record,
        order: &Order,
        outage: &Outage,
    ) -> Result<Record, Failure> {
        let held = self.stock.lock();
        let mut view = self.dataplane().remembered().view();
        // What stands under that name is found when the datastore is told.
        view.observe(&endpoint_key(record), None, 1);
        let free = self.free(&held.addresses);
        let take = |planner: &mut Planner<'_>| reserve::take(planner, order, &free);
        let mut record = match ipam::plan(&view, store::ipam::now(), take) {
            Plan::Done(Ok(taken), _) => taken,
            Plan::Done(Err(failure), _) => return Err(refusal(outage, &failure)),
            Plan::Read(reads) => {
                let unknown: Vec<&str> = reads.iter().map(name_of).collect();
                let message = format!("not known here: {}", unknown.join(", "));
                return Err(refusal(outage, &Failure::new(Code::TryAgainLater, message)));
            }
            Plan::Commit(_) => unreachable!("one sandbox fits into a transaction"),
        };
        record.phase = record.after(Step::Take).expect("only a release ends a record");
        if let Some(owed) = &mut record.owed {
            owed.was_tried = outage.was_tried;
        }
        self.write(&record)?;
        drop(held);
        self.run_ahead(&record);
        let text = format!("{}: the datastore hears of it later", notes::spoken(&record));
        self.events.note("reserve", &text);
        Ok(record)
    }

    /// The endpoint of a sandbox counts, although the datastore does not know it.
    pub(crate) fn run_ahead(&self, record: &Record) {
        let mut dataplane = self.dataplane();
        dataplane.overlay.note(record);
        dataplane.retake(&endpoint_key(record));
    }

    /// Tells the datastore of all sandboxes that it does not know yet.
    pub(crate) fn settle_all(&self) {
        let is_due = |record: &Record| record.phase == Phase::Ready && record.owed.is_some();
        for record in self.journal.matching(is_due) {
            let turn = self.turns.of(&record.workload, &record.identity);
            let _turn = turn.take();
            if let Some(record) = self.journal.get(&record.identity).filter(is_due)
                && let Err(failure) = self.settle(record)
            {
                say(&format!("to be tried again: {failure}"));
            }
        }
    }

    fn settle(&self, mut record: Record) -> Result<(), Failure> {
        if let Some(owed) = record.owed.as_mut().filter(|owed| !owed.was_tried) {
            owed.was_tried = true;
            self.write(&record)?;
        }
        self.fault(Step::Settle, "before");
        let others = self.addresses_of_others(&record);
        let interface = &record.wiring.host_interface;
        let is_current = wire::is_of(&self.here, &record.identity, interface);
        let is_current =
            is_current.map_err(|error| Failure::plugin(format!("{interface}: {error}")))?;
        let told = self.transact(|planner| reserve::settle(planner, &record, &others, is_current));
        let answer = told.map_err(|error| crate::addresses::unavailable(&error))?;
        match answer {
            Ok(settled) => {
                // From here on the address is not the reserve's, whatever becomes of the sandbox.
                let own = settled.addresses.iter().map(|held| held.network.address());
                let own: BTreeSet<IpAddr> = own.collect();
                let rest = self.stock.addresses().difference(&own).copied().collect();
                self.note_stock(&rest);
                let mut dataplane = self.dataplane();
                dataplane.overlay.settle(&record);
                dataplane.retake(&endpoint_key(&record));
                drop(dataplane);
                self.fault(Step::Settle, "after");
                self.write(&settled)?;
                self.flush()
                    .map_err(|error| Failure::plugin(format!("{}: {error}", settled.identity)))?;
                let text = format!("{}: the datastore knows it now", notes::spoken(&settled));
                self.events.note("settled", &text);
                Ok(())
            }
            Err(Unsettled::Later(failure)) => Err(failure),
            // It is closed until the other lets go of the address, and named: see `intent`.
            Err(Unsettled::Contested) => Ok(()),
        }
    }

    /// Brings the reserve to its size, and writes down what is in it.
    pub(crate) fn keep_stock(&self) {
        if !matches!(self.store(), Store::Etcd(_)) || !self.dataplane().is_complete() {
            return;
        }
        let handle = reserve_handle(&self.name);
        let look = || self.dataplane().inputs.reserve(&handle, self.stock.wanted);
        let taken = self.addresses_in_journal();
        let change = Restock::of(&look(), &taken);
        if change.is_nothing() {
            return self.note_stock(&look().fit);
        }
        let mut held = self.stock.lock();
        if held.fill_after.is_some_and(|after| after > Instant::now()) && change.back.is_empty() {
            drop(held);
            // What it has lost, it must not give to anybody.
            return self.note_stock(&look().fit);
        }
        held.fill_after = Some(Instant::now() + FILL_PAUSE);
        drop(held);
        // What is given back is not in the stock any more by then, whatever happens in between.
        let kept: BTreeSet<IpAddr> = look().fit.difference(&change.back).copied().collect();
        self.note_stock(&kept);
        if let Err(error) = self.transact(|planner| change.plan(planner, &self.name)) {
            return say(&format!("the reserve could not be filled: {error}"));
        }
        let now = look();
        if Restock::of(&now, &taken).is_nothing() {
            self.stock.lock().fill_after = None;
        }
        self.note_stock(&now.fit);
        if let Err(error) = self.flush() {
            say(&format!("the kernel could not be brought up to date: {error}"));
        }
    }

    fn note_stock(&self, addresses: &BTreeSet<IpAddr>) {
        let mut held = self.stock.lock();
        if held.addresses == *addresses {
            return;
        }
        // What goes is gone before it is written down, what comes is there after that.
        held.addresses.retain(|address| addresses.contains(address));
        drop(held);
        self.write_memory(addresses);
        self.stock.lock().addresses.clone_from(addresses);
    }

    /// What is said of sandboxes that the datastore is still to hear of.
    pub(crate) fn stock_finding(&self, records: &[Record]) -> Option<Finding> {
        let is_owed = |record: &&Record| record.phase == Phase::Ready && record.owed.is_some();
        let n = records.iter().filter(is_owed).count();
        let (hears, fix) = match self.health.connected_for() {
            None => ("it hears of them when it is back", ""),
            Some(time) if time < SETTLE_WAIT => return None,
            Some(_) => ("it does not take them", "less the log of the agent, which says why"),
        };
        let came = text::words::count(n, "sandbox");
        let problem = format!("{came} came without it; {hears}");
        let (code, fix) = ("MG-STORE-003", fix.to_owned());
        (n > 0).then(|| Finding::new(code, Severity::Degraded, "STORE", problem, fix))
    }
}

/// What the runtime is told when neither the datastore nor the reserve can give anything.
fn refusal(outage: &Outage, failure: &Failure) -> Failure {
    let code = match failure.code {
        Code::Plugin => Code::Plugin,
        _ => Code::TryAgainLater,
    };
    Failure::new(code, format!("{}; {}", outage.failure.message, failure.message))
        .with_details("the runtime tries again by itself; margay status says how the node is")
}

fn name_of(read: &Read) -> &str {
    let (Read::Key(key) | Read::Prefix(key)) = read;
    key.strip_prefix("/calico/resources/v3/projectcalico.org/").unwrap_or(key)
}
