//! Packets, connections and answers between two namespaces, all by one thread on one processor: the
//! kernel carries a packet to its receiver inside the call that sends it, so that the thread's own
//! processor time is what the way costs, whatever else the machine does.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context;
use kernel::Netns;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{ClockId, clock_gettime};

use crate::process::ms;
use crate::report::percentile;

/// Packets that are under way at once.
const BURST: usize = 16;
const SIZE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);
const CLIENT_PORT: u16 = 40_000;

/// Two pods that talk.
pub(super) struct Ends {
    client: Netns,
    sender: UdpSocket,
    receiver: UdpSocket,
    listener: TcpListener,
    server: SocketAddrV4,
}

/// What traffic costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    /// Of processor time for one packet of a flow that is established.
    pub(super) packet_us: f64,
    /// The same for a connection, from its first packet to its last.
    pub(super) connection_us: f64,
    /// Of processor time for a packet and its answer.
    pub(super) answer_us: f64,
    /// On the clock.
    pub(super) packets_per_second: f64,
    pub(super) connections_per_second: f64,
    pub(super) answer_p50_us: f64,
    pub(super) answer_p99_us: f64,
}

impl Ends {
    /// In the namespaces of two pods, to a port of the second one.
    pub(super) fn new(
        (client, from): (&Netns, Ipv4Addr),
        (server, to): (&Netns, Ipv4Addr),
        port: u16,
    ) -> anyhow::Result<Self> {
        let there = SocketAddrV4::new(to, port);
        let here = SocketAddrV4::new(from, CLIENT_PORT);
        let sender = client.enter(|| UdpSocket::bind(here))??;
        let receiver = server.enter(|| UdpSocket::bind(there))??;
        sender.connect(there)?;
        receiver.connect(here)?;
        for socket in [&sender, &receiver] {
            socket.set_read_timeout(Some(PATIENCE))?;
        }
        let listener = server.enter(|| TcpListener::bind(there))??;
        Ok(Self { client: client.clone(), sender, receiver, listener, server: there })
    }

    /// Measures each sort of traffic for about so long.
    pub(super) fn measure(&self, each: Duration) -> anyhow::Result<Traffic> {
        let (packet_us, packets_per_second) = timed(each, || self.burst())?;
        let (connection_us, connections_per_second) =
            self.client.enter(|| timed(each, || self.connect()))??;
        let mut answers = Vec::new();
        let (answer_us, _) = timed(each, || {
            let began = Instant::now();
            self.answer()?;
            answers.push(ms(began.elapsed()) * 1000.0);
            Ok(1)
        })?;
        Ok(Traffic {
            packet_us,
            connection_us,
            answer_us,
            packets_per_second,
            connections_per_second,
            answer_p50_us: percentile(answers.iter().copied(), 50.0),
            answer_p99_us: percentile(answers, 99.0),
        })
    }

    /// One packet and its answer, and then once more.
    pub(super) fn exchange(&self) -> anyhow::Result<()> {
        self.answer()?;
        self.answer()
    }

    fn burst(&self) -> anyhow::Result<usize> {
        let mut packet = [0; SIZE];
        for _ in 0..BURST {
            self.sender.send(&packet)?;
        }
        for _ in 0..BURST {
            self.receiver.recv(&mut packet).context("a packet is lost")?;
        }
        Ok(BURST)
    }

    fn answer(&self) -> anyhow::Result<()> {
        let mut packet = [0; SIZE];
        self.sender.send(&packet)?;
        self.receiver.recv(&mut packet).context("a packet is lost")?;
        self.receiver.send(&packet)?;
        self.sender.recv(&mut packet).context("an answer is lost")?;
        Ok(())
    }

    fn connect(&self) -> anyhow::Result<usize> {
        let mut there = TcpStream::connect_timeout(&self.server.into(), PATIENCE)?;
        let (mut here, _) = self.listener.accept()?;
        there.write_all(&[1])?;
        here.read_exact(&mut [0])?;
        // Whoever resets leaves no connection behind that waits, and none of its ports.
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        setsockopt(&there, sockopt::Linger, &linger)?;
        drop(there);
        drop(here);
        Ok(1)
    }
}

/// Does something again and again; its processor time for one, in microseconds, and how many a
/// second there were.
fn timed(
    each: Duration,
    mut work: impl FnMut() -> anyhow::Result<usize>,
) -> anyhow::Result<(f64, f64)> {
    let cpu_ns = || -> anyhow::Result<f64> {
        let used: TimeSpec = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
        Ok(used.num_nanoseconds() as f64)
    };
    for _ in 0..10 {
        work()?;
    }
    let (began, cpu_began, mut n_done) = (Instant::now(), cpu_ns()?, 0);
    while began.elapsed() < each {
        n_done += work()?;
    }
    let (wall, cpu) = (began.elapsed(), cpu_ns()? - cpu_began);
    let n_done = n_done as f64;
    Ok((cpu / 1000.0 / n_done, n_done / wall.as_secs_f64()))
}
