//! Packets flow while rules change: what both the old and the new state forbid never passes, and
//! what both allow is never lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use policy::intent::{Intent, Workload};

use crate::conntrack;
use crate::dataplane::{self, Dataplane};
use crate::objects::{Cluster, Party, Shape};
use crate::oracle::wanted;
use crate::packet::{TCP, UDP};
use crate::probes::{Place, Probe, Prober};
use crate::random::Changing;
use crate::semantics::all_shapes;

const N_UPDATES: usize = 300;
const N_PROBES: usize = 64;

/// The states there were, are, and may already be.
#[derive(Default)]
struct States {
    all: Mutex<Vec<Arc<Intent>>>,
    /// The newest that is on its way into the kernel.
    begun: AtomicUsize,
    /// The newest that is certainly there.
    done: AtomicUsize,
    is_over: AtomicBool,
}

impl States {
    /// What may be in force for a packet that leaves after `first` was there, until now.
    fn since(&self, first: usize) -> Vec<Arc<Intent>> {
        let last = self.begun.load(Ordering::SeqCst);
        self.all.lock().unwrap()[first..=last].to_vec()
    }
}

/// Changes the rules as fast as it can; now and then everything is made anew, as by an agent that
/// starts.
fn change(cluster: &Cluster, dataplane: &mut Dataplane, changing: &mut Changing, states: &States) {
    let mut rng = Rng::with_seed(11);
    for number in 1..=N_UPDATES {
        changing.change(cluster);
        let dirty = changing.graph.flush();
        let intent = changing.graph.intent().clone();
        states.all.lock().unwrap().push(Arc::new(intent.clone()));
        states.begun.store(number, Ordering::SeqCst);
        match rng.u8(0..8) {
            0 => dataplane.start_anew(intent),
            _ => dataplane.update(intent, &dirty),
        }
        states.done.store(number, Ordering::SeqCst);
    }
    states.is_over.store(true, Ordering::SeqCst);
}

/// The packets of a moment: each the first of a connection.
fn some<'a>(
    cluster: &'a Cluster,
    rng: &mut Rng,
    n_sent: usize,
) -> Vec<(&'a Party, &'a Party, Shape)> {
    let (pairs, shapes) = (cluster.pairs(), all_shapes());
    let usable: Vec<(&Party, &Party)> = pairs
        .into_iter()
        .filter(|(from, to)| ![from.place, to.place].contains(&Place::Node))
        .collect();
    let mut chosen = Vec::new();
    while chosen.len() < N_PROBES {
        let (from, to) = usable[rng.usize(..usable.len())];
        let mut shape = shapes[rng.usize(..shapes.len())];
        if let (TCP | UDP, Some((_, port))) = (shape.protocol, shape.ports) {
            let source = 10_000 + (n_sent + chosen.len()) % 50_000;
            shape.ports = Some((u16::try_from(source).unwrap(), port));
            chosen.push((from, to, shape));
        } else if shape.icmp.is_some() {
            chosen.push((from, to, shape));
        }
    }
    chosen
}

/// Sends until the changes are over; how many packets flew while the rules changed.
fn send(cluster: &Cluster, prober: &mut Prober, states: &States) -> usize {
    let (mut rng, mut n_sent, mut n_during) = (Rng::with_seed(12), 0, 0);
    while !states.is_over.load(Ordering::SeqCst) {
        if n_sent % 1000 < N_PROBES {
            conntrack::forget(&prober.world.node);
        }
        let chosen = some(cluster, &mut rng, n_sent);
        n_sent += chosen.len();
        let probes: Vec<Probe> = chosen
            .iter()
            .map(|(from, to, shape)| {
                let packet = shape.packet(from, to);
                Probe { from: from.place, to: to.place, packet, is_traced: true }
            })
            .collect();
        let first = states.done.load(Ordering::SeqCst);
        let fates = prober.send(&probes);
        let possible = states.since(first);
        n_during += if possible.len() > 1 { probes.len() } else { 0 };
        for ((from, to, shape), (probe, fate)) in chosen.iter().zip(probes.iter().zip(fates)) {
            let verdicts: Vec<bool> = possible
                .iter()
                .map(|intent| wanted(intent, (from, to), &probe.packet).is_allowed)
                .collect();
            let what = || {
                let (from, to, way) = (&from.name, &to.name, &fate.trace);
                format!("{from} > {to} {shape:?}, {verdicts:?}, {way:?}")
            };
            assert!(!fate.arrived || verdicts.contains(&true), "it slipped through: {}", what());
            assert!(fate.arrived || verdicts.contains(&false), "it was lost: {}", what());
            let is_known =
                |intent: &Arc<Intent>| [from, to].iter().all(|party| is_present(intent, party));
            let is_answered = fate.answered != Some(false) || !possible.iter().all(is_known);
            assert!(!fate.arrived || is_answered, "its answer was lost: {}", what());
        }
    }
    n_during
}

/// Whether somebody has no endpoint here, or one that is there.
fn is_present(intent: &Intent, party: &Party) -> bool {
    let has = |it: &Workload| it.addresses.iter().any(|net| net.contains(party.addresses[0]));
    party.place == Place::Remote || intent.workloads.values().any(has)
}

#[test]
fn nothing_slips_through_and_nothing_is_lost_while_rules_change() {
    let everywhere: CpuSet = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cluster = Cluster::read();
    let Some(mut prober) = cluster.prober() else { return };
    let mut dataplane = Dataplane::new(&prober.world.node, dataplane::settings());
    let mut changing = Changing::new(&cluster, 5);
    changing.graph.flush();
    dataplane.install(changing.graph.intent().clone());
    let states = States::default();
    states.all.lock().unwrap().push(Arc::new(changing.graph.intent().clone()));
    let n_during = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The rules change on one processor while packets are on another.
            sched_setaffinity(Pid::from_raw(0), &everywhere).unwrap();
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                change(&cluster, &mut dataplane, &mut changing, &states);
            }));
            states.is_over.store(true, Ordering::SeqCst);
            assert!(done.is_ok(), "the changes did not come to their end");
        });
        send(&cluster, &mut prober, &states)
    });
    assert!(n_during > 500, "{n_during} packets flew while rules changed");
    assert!(prober.n_arrived > 500 && prober.n_dropped > 500);
}
