//! Sends numbered packets and says which of them arrived, and whether their answers did.
//!
//! The thread that sends is bound to one processor. What a virtual interface is given waits in one
//! queue of that processor, in order, so a later packet that has come as far as any probe could
//! have says that every probe has arrived or never will: nothing is waited for by the clock.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kernel::Netns;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use policy::Packet;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::packet::{self, ICMP, ICMPV6, SCTP, Seen, Sort, TCP, UDP};
use crate::trace::{Step, Tracer};
use crate::world::{NODE_ADDRESSES, World};

/// How many probes are under way at once: their receivers hold them all.
const BATCH: usize = 1024;
/// A packet and its answer pass two interfaces each.
const HOPS: u32 = 4;
/// The buffer of a receiver.
const BUFFER: usize = 64 << 20;
/// As long as a machine may take that does ten things at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a packet starts or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A pod of the node.
    Pod(usize),
    /// Somewhere else.
    Remote,
    /// Behind the second uplink.
    Aside,
    /// The node itself.
    Node,
}

/// A packet to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) packet: Packet,
    /// Whether the kernel shall tell of its way.
    pub(crate) is_traced: bool,
}

/// What became of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate {
    /// It was seen where it should go.
    pub(crate) arrived: bool,
    /// Its answer came back; none if nobody answers such a packet.
    pub(crate) answered: Option<bool>,
    /// Its way through the rules, if it was traced.
    pub(crate) trace: Vec<Step>,
}

/// The sockets of a namespace.
pub(crate) struct End {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
    senders: [OwnedFd; 2],
    receiver: OwnedFd,
    /// Whole packets that came for this end, if somebody wants to know.
    heard: RefCell<Option<Vec<Vec<u8>>>>,
}

impl End {
    /// Opens sockets in a namespace. They send packets as they are given, and see everything.
    pub(crate) fn open(name: &str, netns: &Netns, addresses: Vec<IpAddr>) -> Self {
        let (senders, receiver) = netns.enter(sockets).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, BUFFER).unwrap();
        Self { name: name.to_owned(), addresses, senders, receiver, heard: RefCell::new(None) }
    }

    /// Sends a whole packet as it is.
    pub(crate) fn send(&self, destination: IpAddr, bytes: &[u8]) {
        let sender = &self.senders[usize::from(destination.is_ipv6())];
        let to = SocketAddr::new(destination, 0);
        match rustix::net::sendto(sender, bytes, SendFlags::empty(), &to) {
            // Rules of the sender's own namespace have dropped it.
            Ok(_) | Err(Errno::PERM) => {}
            Err(error) => panic!("{} to {destination}: {error}", self.name),
        }
    }

    /// The address in the family of another one.
    pub(crate) fn address(&self, is_ipv4: bool) -> IpAddr {
        *self.addresses.iter().find(|address| address.is_ipv4() == is_ipv4).unwrap()
    }

    /// The numbered packets for this end that have come.
    pub(crate) fn drain(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut buffer = [0; 2048];
        loop {
            let received = rustix::net::recv(&self.receiver, &mut buffer, RecvFlags::DONTWAIT);
            let Ok((n, _)) = received else { return seen };
            let numbered = packet::read(&buffer[..n]);
            if let Some(heard) = &mut *self.heard.borrow_mut() {
                let is_sentinel = numbered.is_some_and(|it| it.sort == Sort::Sentinel);
                let is_ours = packet::destination(&buffer[..n])
                    .is_some_and(|destination| self.addresses.contains(&destination));
                if is_ours && !is_sentinel {
                    heard.push(buffer[..n].to_vec());
                }
            }
            // The receiver sees what leaves here, too.
            seen.extend(numbered.filter(|it| self.addresses.contains(&it.destination)));
        }
    }

    /// Keeps the packets that come for this end from now on.
    pub(crate) fn listen(&self) {
        self.drain();
        *self.heard.borrow_mut() = Some(Vec::new());
    }

    /// The packets that came since [`Self::listen`].
    pub(crate) fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.borrow_mut().take().unwrap_or_default()
    }

    fn wait(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "a packet from the node to {} is lost", self.name);
        self.pause(left.min(Duration::from_millis(100)));
    }

    /// Waits for a packet, but not for long.
    fn pause(&self, time: Duration) {
        let timeout = Timespec::try_from(time).unwrap();
        let mut descriptors = [PollFd::new(&self.receiver, PollFlags::IN)];
        rustix::event::poll(&mut descriptors, Some(&timeout)).unwrap();
    }
}

fn sockets() -> ([OwnedFd; 2], OwnedFd) {
    let raw = |family, kind, protocol: u32| {
        let protocol = Some(Protocol::from_raw(protocol.try_into().unwrap()));
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol).unwrap()
    };
    const WHOLE_PACKETS: u32 = 255;
    let every_protocol = u32::from(3_u16.to_be());
    let senders = [AddressFamily::INET, AddressFamily::INET6]
        .map(|family| raw(family, SocketType::RAW, WHOLE_PACKETS));
    (senders, raw(AddressFamily::PACKET, SocketType::DGRAM, every_protocol))
}

/// Sees the packets that a namespace takes for itself, after its rules have let them in.
struct Accepted {
    /// For each protocol and family.
    receivers: Vec<(u8, bool, OwnedFd)>,
}

impl Accepted {
    fn new(netns: &Netns) -> Self {
        let open = |is_ipv4: bool, protocol: u8| {
            let family = if is_ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
            let number = Some(Protocol::from_raw(u32::from(protocol).try_into().unwrap()));
            let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
            let receiver = rustix::net::socket_with(family, kind, flags, number).unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, BUFFER).unwrap();
            (protocol, is_ipv4, receiver)
        };
        let v4 = [4, TCP, UDP, SCTP, ICMP, 253].map(|it| (true, it));
        let v6 = [4, TCP, UDP, SCTP, ICMPV6, 253].map(|it| (false, it));
        let all = v4.into_iter().chain(v6);
        let open_all = || all.map(|(is_ipv4, protocol)| open(is_ipv4, protocol)).collect();
        Self { receivers: netns.enter(open_all).unwrap() }
    }

    /// The numbers of the probes that came since the last time.
    fn drain(&self) -> BTreeSet<u32> {
        let mut numbers = BTreeSet::new();
        let mut buffer = [0; 2048];
        for (protocol, is_ipv4, receiver) in &self.receivers {
            while let Ok((n, _)) = rustix::net::recv(receiver, &mut buffer, RecvFlags::DONTWAIT) {
                // The kernel gives the header of the one family and not that of the other.
                let (mut network, mut body) = (vec![0; 40], &buffer[..n]);
                (network[0], network[6]) = (0x60, *protocol);
                if *is_ipv4 {
                    let Some((header, rest)) = buffer[..n].split_at_checked(20) else { continue };
                    (network, body) = (header.to_vec(), rest);
                }
                let numbered = packet::number(&network, body);
                numbers.extend(numbered.filter(|it| it.0 == Sort::Probe).map(|it| it.1));
            }
        }
        numbers
    }
}

/// A packet as its sender sends it.
fn before_nat(packet: &Packet) -> Packet {
    let Some((destination, port)) = packet.before_nat else { return packet.clone() };
    let ports = packet.ports.map(|(source, _)| (source, port));
    Packet { destination, ports, before_nat: None, ..packet.clone() }
}

/// Keeps the calling thread, and what it starts, on one processor; tests take turns.
pub(crate) fn stay_on_one_processor() {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let own = Pid::from_raw(0);
    let allowed = sched_getaffinity(own).unwrap();
    let usable: Vec<usize> =
        (0..CpuSet::count()).filter(|it| allowed.is_set(*it).unwrap_or(false)).collect();
    let chosen = usable[NEXT.fetch_add(1, Ordering::Relaxed) % usable.len()];
    let mut one = CpuSet::new();
    one.set(chosen).unwrap();
    sched_setaffinity(own, &one).unwrap();
}

/// Sends probes in a world.
pub(crate) struct Prober {
    pub(crate) world: World,
    tracer: Tracer,
    accepted: Accepted,
    next: u32,
    /// How many probes have arrived so far.
    pub(crate) n_arrived: usize,
    /// How many have not.
    pub(crate) n_dropped: usize,
}

impl Prober {
    pub(crate) fn new(world: World) -> Self {
        stay_on_one_processor();
        let tracer = Tracer::new(&world.node);
        let accepted = Accepted::new(&world.node);
        let mut prober = Self { world, tracer, accepted, next: 1, n_arrived: 0, n_dropped: 0 };
        prober.await_links();
        prober
    }

    /// Waits until all interfaces take packets: the kernel lets that happen behind one's back, when
    /// it has nothing else to do, and drops in silence until then.
    fn await_links(&mut self) {
        let until = Instant::now() + PATIENCE;
        for end in self.world.ends() {
            for (from, to) in [(&self.world.host, end), (end, &self.world.host)] {
                let (source, destination) = (from.address(true), to.address(true));
                let id = self.next;
                self.next += 1;
                let is_it = |it: &Seen| it.sort == Sort::Sentinel && it.id == id;
                loop {
                    from.send(destination, &packet::sentinel(source, destination, id));
                    to.pause(Duration::from_millis(20));
                    if to.drain().iter().any(is_it) {
                        break;
                    }
                    assert!(Instant::now() < until, "no packet from {} to {}", from.name, to.name);
                }
            }
        }
    }

    pub(crate) fn end(&self, place: Place) -> &End {
        match place {
            Place::Pod(number) => &self.world.pods[number],
            Place::Remote => &self.world.remote,
            Place::Aside => self.world.aside.as_ref().expect("a second uplink"),
            Place::Node => &self.world.host,
        }
    }

    /// Sends all of them, and says what became of each.
    pub(crate) fn send(&mut self, probes: &[Probe]) -> Vec<Fate> {
        let fates: Vec<Fate> =
            probes.chunks(BATCH).flat_map(|batch| self.send_batch(batch)).collect();
        let n_arrived = fates.iter().filter(|fate| fate.arrived).count();
        self.n_arrived += n_arrived;
        self.n_dropped += fates.len() - n_arrived;
        fates
    }

    fn send_batch(&mut self, probes: &[Probe]) -> Vec<Fate> {
        let first = self.next;
        self.next += u32::try_from(probes.len()).unwrap();
        for (probe, id) in probes.iter().zip(first..) {
            let dscp = if probe.is_traced { packet::TRACED } else { 0 };
            let sent = before_nat(&probe.packet);
            let bytes = packet::build(&sent, id, dscp);
            self.end(probe.from).send(sent.destination, &bytes);
        }
        let mut seen = self.settle();
        let accepted = self.accepted.drain();
        let mut fates: Vec<Fate> = probes.iter().map(|_| Fate::default()).collect();
        for (probe, fate) in probes.iter().zip(&mut fates) {
            fate.answered = is_answered(probe).then_some(false);
        }
        note(&seen, first, &mut fates);
        for (id, (probe, fate)) in (first..).zip(probes.iter().zip(&fates)) {
            if fate.arrived && probe.packet.protocol == UDP {
                let bytes = packet::answer(&probe.packet, id);
                self.end(probe.to).send(probe.packet.source, &bytes);
            }
        }
        seen = self.settle();
        note(&seen, first, &mut fates);
        for (id, (probe, fate)) in (first..).zip(probes.iter().zip(&mut fates)) {
            // Whoever sees all packets of the node sees those that it refuses, too.
            if probe.to == Place::Node {
                fate.arrived = accepted.contains(&id);
            }
        }
        for (id, steps) in self.tracer.drain() {
            let number = id.checked_sub(first).and_then(|it| usize::try_from(it).ok());
            if let Some(fate) = number.and_then(|number| fates.get_mut(number)) {
                fate.trace.extend(steps);
            }
        }
        fates
    }

    /// Waits until nothing is under way any more; what was seen meanwhile.
    pub(crate) fn settle(&mut self) -> Vec<Seen> {
        let mut all = Vec::new();
        let until = Instant::now() + PATIENCE;
        for _ in 0..HOPS {
            let id = self.next;
            self.next += 1;
            for end in self.world.ends() {
                let to = end.addresses[0];
                let own = NODE_ADDRESSES[usize::from(to.is_ipv6())];
                self.world.host.send(to, &packet::sentinel(own, to, id));
            }
            for end in self.world.ends() {
                loop {
                    let seen = end.drain();
                    let is_last = |it: &Seen| it.sort == Sort::Sentinel && it.id == id;
                    let is_over = seen.iter().any(is_last);
                    all.extend(seen.into_iter().filter(|it| it.sort != Sort::Sentinel));
                    if is_over {
                        break;
                    }
                    end.wait(until);
                }
            }
        }
        all
    }
}

/// Whether somebody answers such a packet where it goes.
fn is_answered(probe: &Probe) -> bool {
    // Nobody looks for answers at the node itself.
    probe.from != Place::Node
        && match probe.packet.protocol {
            TCP => true,
            UDP => probe.to != Place::Node,
            ICMP => matches!(probe.packet.icmp, Some((8, 0))),
            ICMPV6 => matches!(probe.packet.icmp, Some((128, 0))),
            _ => false,
        }
}

fn note(seen: &[Seen], first: u32, fates: &mut [Fate]) {
    for it in seen {
        let number = it.id.checked_sub(first).and_then(|it| usize::try_from(it).ok());
        let Some(fate) = number.and_then(|number| fates.get_mut(number)) else { continue };
        match it.sort {
            Sort::Probe => fate.arrived = true,
            Sort::Answer => fate.answered = Some(true),
            Sort::Sentinel => {}
        }
    }
}
