//! A synchronous netlink socket: requests with an acknowledgement, batches, dumps, events.
//!
//! The kernel carries a request out inside the call that sends it, so answers are there when the
//! call returns; the deadline bounds the wait for them, not the kernel's own locks.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_sys::SocketAddr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, sockopt};

use crate::error::{Errno, Error, Refusal, Result};
use crate::netns::Netns;
use crate::wire::{self, Malformed, Message, Sequence, Writer};

/// The kernel fills dump datagrams up to 32 KiB; events and repeated requests can be longer.
const RECEIVE_LEN: usize = 256 * 1024;
/// Room for the acknowledgements of a batch and for bursts of events.
const RECEIVE_QUEUE_LEN: usize = 8 * 1024 * 1024;
/// What an acknowledgement may cost of the receive queue, generously.
const ACKNOWLEDGEMENT_COST: usize = 2048;
const BATCH_MESSAGES_MAX: usize = 500;
/// A dump that changes under us this often is given up for now.
const DUMP_ATTEMPTS_MAX: u32 = 10;
/// How long an answer is waited for unless the caller says otherwise.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) const ROUTE: isize = 0;
pub(crate) const NETFILTER: isize = 12;

pub(crate) struct Socket {
    inner: netlink_sys::Socket,
    sequence: Sequence,
    deadline: Duration,
    buffer: Vec<u8>,
    /// How many requests with an acknowledgement each fit the receive queue.
    batch_messages_max: usize,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl Socket {
    /// Opens a socket in `netns`, or in the namespace of the calling thread.
    pub(crate) fn open(protocol: isize, netns: Option<&Netns>, groups: &[u32]) -> Result<Self> {
        let make = || Self::open_here(protocol, groups);
        match netns {
            Some(netns) => netns.enter(make)?,
            None => make(),
        }
    }

    fn open_here(protocol: isize, groups: &[u32]) -> Result<Self> {
        let system = |source| Error::system("open a netlink socket", source);
        let mut inner = netlink_sys::Socket::new(protocol).map_err(system)?;
        inner.bind_auto().map_err(system)?;
        // Connected sockets take messages from the kernel only.
        inner.connect(&SocketAddr::new(0, 0)).map_err(system)?;
        inner.set_ext_ack(true).map_err(system)?;
        inner.set_cap_ack(true).map_err(system)?;
        if protocol == ROUTE {
            inner.set_netlink_get_strict_chk(true).map_err(system)?;
        }
        let receive_queue_len = widen_receive_queue(&inner)?;
        for group in groups {
            inner.add_membership(*group).map_err(system)?;
        }
        let batch_messages_max =
            (receive_queue_len / ACKNOWLEDGEMENT_COST).clamp(1, BATCH_MESSAGES_MAX);
        Ok(Self {
            inner,
            sequence: 0,
            deadline: DEADLINE,
            buffer: vec![0; RECEIVE_LEN],
            batch_messages_max,
        })
    }

    pub(crate) fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    pub(crate) fn next_sequence(&mut self) -> Sequence {
        self.reserve_sequences(1)
    }

    /// Takes `n` numbers in a row and returns the first. None is 0, which events carry.
    pub(crate) fn reserve_sequences(&mut self, n: u32) -> Sequence {
        if self.sequence.checked_add(n).is_none() {
            self.sequence = 0;
        }
        let first = self.sequence + 1;
        self.sequence += n;
        first
    }

    /// Makes room for one datagram of `len` bytes; false if the system does not allow it.
    pub(crate) fn widen_send_queue(&self, len: usize) -> bool {
        let enough = |socket: &netlink_sys::Socket| {
            // The kernel keeps some bytes of the queue for itself.
            sockopt::socket_send_buffer_size(socket).is_ok_and(|size| size > len + 1024)
        };
        if enough(&self.inner) {
            return true;
        }
        let wanted = len.saturating_add(64 * 1024);
        if sockopt::set_socket_send_buffer_size_force(&self.inner, wanted).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(&self.inner, wanted);
        }
        enough(&self.inner)
    }

    pub(crate) fn send(&self, writer: &Writer, attempt: &dyn Display) -> Result<()> {
        if writer.is_oversized() {
            return Err(Error::TooLarge { attempt: attempt.to_string() });
        }
        loop {
            match rustix::net::send(&self.inner, writer.bytes(), SendFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                // The queue holds answers that nobody read; the request was not taken.
                Err(Errno::NOBUFS) => return Err(Error::Lost { attempt: attempt.to_string() }),
                Err(errno) => return Err(Error::system(attempt.to_string(), errno)),
            }
        }
    }

    /// The next datagram, or `None` when `until` has passed without one.
    pub(crate) fn receive(&mut self, until: Instant) -> Result<Option<&[u8]>, Errno> {
        loop {
            match rustix::net::recv(&self.inner, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((len, _)) => return Ok(Some(self.buffer.get(..len).unwrap_or(&[]))),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.wait(left)? {
                return Ok(None);
            }
        }
    }

    fn wait(&self, at_most: Duration) -> Result<bool, Errno> {
        let timeout = Timespec::try_from(at_most).ok();
        let mut descriptors = [PollFd::new(&self.inner, PollFlags::IN)];
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            // Read the clock again.
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// [`Self::receive`] with the errors of a request.
    fn answer(&mut self, until: Instant, attempt: &dyn Display) -> Result<&[u8]> {
        let waited = self.deadline;
        match self.receive(until) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(Error::TimedOut { attempt: attempt.to_string(), waited }),
            Err(Errno::NOBUFS) => Err(Error::Lost { attempt: attempt.to_string() }),
            Err(errno) => Err(Error::system(attempt.to_string(), errno)),
        }
    }

    /// Sends one request and waits until the kernel has acknowledged it. Answers that come before
    /// go to `each`.
    pub(crate) fn request(
        &mut self,
        attempt: &dyn Display,
        kind: u16,
        flags: u16,
        fill: impl FnOnce(&mut Writer),
        mut each: impl FnMut(&Message<'_>) -> Result<(), Malformed>,
    ) -> Result<()> {
        let sequence = self.next_sequence();
        let mut writer = Writer::default();
        writer.message(kind, flags | wire::REQUEST | wire::ACK, sequence, fill);
        self.send(&writer, attempt)?;
        let until = Instant::now() + self.deadline;
        let malformed = |source| Error::Malformed { attempt: attempt.to_string(), source };
        loop {
            let bytes = self.answer(until, attempt)?;
            for message in wire::messages(bytes) {
                let message = message.map_err(malformed)?;
                if message.sequence != sequence {
                    continue;
                }
                match outcome(&message).map_err(malformed)? {
                    Some(Ok(())) => return Ok(()),
                    Some(Err(refusal)) => {
                        return Err(Error::Refused { attempt: attempt.to_string(), refusal });
                    }
                    None => each(&message).map_err(malformed)?,
                }
            }
        }
    }

    /// Sends many requests, as many at once as the receive queue has room for answers, and returns
    /// the result of each. The requests name themselves in errors.
    pub(crate) fn exchange_all<T: Display>(
        &mut self,
        requests: &[T],
        header: impl Fn(&T) -> (u16, u16),
        encode: impl Fn(&T, &mut Writer),
    ) -> Vec<Result<()>> {
        let mut results = Vec::with_capacity(requests.len());
        for part in requests.chunks(self.batch_messages_max) {
            let first = self.reserve_sequences(u32::try_from(part.len()).unwrap_or(u32::MAX));
            let mut writer = Writer::default();
            for (sequence, request) in (first..).zip(part) {
                let (kind, flags) = header(request);
                let flags = flags | wire::REQUEST | wire::ACK;
                writer.message(kind, flags, sequence, |body| encode(request, body));
            }
            let mut answers = vec![None; part.len()];
            let all = self.send(&writer, &"send many requests");
            let all = all.and_then(|()| self.acknowledgements(first, &mut answers));
            results.extend(answers.into_iter().zip(part).map(|(answer, request)| {
                match answer {
                    Some(answer) => answer.map_err(|refusal| Error::Refused {
                        attempt: request.to_string(),
                        refusal,
                    }),
                    None => Err(unanswered(&all, request)),
                }
            }));
        }
        results
    }

    /// Reads until every request has its answer, in the order of their numbers.
    fn acknowledgements(
        &mut self,
        first: Sequence,
        answers: &mut [Option<Result<(), Refusal>>],
    ) -> Result<()> {
        let until = Instant::now() + self.deadline;
        let attempt = "read many answers";
        let malformed = |source| Error::Malformed { attempt: attempt.to_owned(), source };
        let mut n_open = answers.len();
        while n_open > 0 {
            let bytes = self.answer(until, &attempt)?;
            for message in wire::messages(bytes) {
                let message = message.map_err(malformed)?;
                let at = message.sequence.wrapping_sub(first) as usize;
                let Some(answer) = answers.get_mut(at) else { continue };
                let Some(found) = outcome(&message).map_err(malformed)? else { continue };
                n_open -= usize::from(answer.is_none());
                *answer = Some(found);
            }
        }
        Ok(())
    }

    /// Lists objects. Starts anew when the list changed under the reader.
    pub(crate) fn dump<T>(
        &mut self,
        attempt: &dyn Display,
        kind: u16,
        fill: impl Fn(&mut Writer),
        mut decode: impl FnMut(&Message<'_>) -> Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>> {
        for _ in 0..DUMP_ATTEMPTS_MAX {
            let sequence = self.next_sequence();
            let mut writer = Writer::default();
            writer.message(kind, wire::REQUEST | wire::DUMP, sequence, &fill);
            self.send(&writer, attempt)?;
            match self.dumped(sequence, attempt, &mut decode) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) | Err(Error::Lost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Interrupted { attempt: attempt.to_string(), attempts: DUMP_ATTEMPTS_MAX })
    }

    /// Reads one dump to its end; `None` if it was interrupted.
    fn dumped<T>(
        &mut self,
        sequence: Sequence,
        attempt: &dyn Display,
        decode: &mut impl FnMut(&Message<'_>) -> Result<Option<T>, Malformed>,
    ) -> Result<Option<Vec<T>>> {
        let until = Instant::now() + self.deadline;
        let malformed = |source| Error::Malformed { attempt: attempt.to_string(), source };
        let mut found = Vec::new();
        let mut was_interrupted = false;
        loop {
            let bytes = self.answer(until, attempt)?;
            for message in wire::messages(bytes) {
                let message = message.map_err(malformed)?;
                if message.sequence != sequence {
                    continue;
                }
                was_interrupted |= message.flags & wire::DUMP_INTERRUPTED != 0;
                match outcome(&message).map_err(malformed)? {
                    Some(Ok(())) => return Ok((!was_interrupted).then_some(found)),
                    // nf_tables says so when the rules change between two parts of a dump.
                    Some(Err(refusal)) if refusal.errno == Errno::INTR => return Ok(None),
                    Some(Err(refusal)) => {
                        return Err(Error::Refused { attempt: attempt.to_string(), refusal });
                    }
                    None => found.extend(decode(&message).map_err(malformed)?),
                }
            }
        }
    }
}

/// Why one of many requests has no answer.
fn unanswered(all: &Result<()>, request: &impl Display) -> Error {
    let attempt = request.to_string();
    match all {
        Err(Error::TimedOut { waited, .. }) => Error::TimedOut { attempt, waited: *waited },
        Err(Error::TooLarge { .. }) => Error::TooLarge { attempt },
        _ => Error::Lost { attempt },
    }
}

/// Asks for a long receive queue and returns the length that was granted.
fn widen_receive_queue(socket: &netlink_sys::Socket) -> Result<usize> {
    // Inside a user namespace only the unprivileged limit is to be had.
    if sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_QUEUE_LEN).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, RECEIVE_QUEUE_LEN);
    }
    sockopt::socket_recv_buffer_size(socket)
        .map_err(|errno| Error::system("read the length of a netlink queue", errno))
}

/// The result that a message brings: of a request, or of a dump that ends. `None`: it is content.
pub(crate) fn outcome(message: &Message<'_>) -> Result<Option<Result<(), Refusal>>, Malformed> {
    let fixed = match message.kind {
        wire::KIND_ERROR if message.flags & wire::CAPPED != 0 => 4 + wire::HEADER_LEN,
        wire::KIND_ERROR => {
            let repeated = wire::u32_at(message.body, 4).unwrap_or(0) as usize;
            repeated.max(wire::HEADER_LEN).next_multiple_of(4).saturating_add(4)
        }
        wire::KIND_DONE => 4,
        _ => return Ok(None),
    };
    let Some(code) = wire::u32_at(message.body, 0) else {
        // Some dumps end without a result.
        return Ok((message.kind == wire::KIND_DONE).then_some(Ok(())));
    };
    let code = code.cast_signed();
    if code == 0 {
        return Ok(Some(Ok(())));
    }
    // The number is negated; anything outside the range of error numbers is not one.
    let raw = code.checked_neg().filter(|raw| (1..4096).contains(raw));
    let errno = Errno::from_raw_os_error(raw.ok_or(Malformed("an error without a number"))?);
    let mut text = None;
    if message.flags & wire::ACK_ATTRIBUTES != 0 {
        for attribute in wire::attributes(message.body.get(fixed..).unwrap_or(&[])) {
            if let (1, value) = attribute? {
                text = Some(wire::read_text(value));
            }
        }
    }
    Ok(Some(Err(Refusal { errno, message: text })))
}
