//! Listening to what the kernel tells everybody.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::error::{Errno, Error, Result};
use crate::socket::Socket;
use crate::wire::{self, Malformed, Message};

/// Listens in one namespace. Open it before reading the state, so that nothing falls between.
pub struct Listener<E> {
    socket: Socket,
    pending: VecDeque<E>,
    decode: fn(&[u8]) -> Vec<E>,
    /// What stands for events that were dropped.
    lost: E,
    /// What it does, for errors.
    doing: &'static str,
}

impl<E> fmt::Debug for Listener<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({} pending)", self.pending.len())
    }
}

/// Readable when there may be an event; call [`Listener::next`] until it returns `None`.
impl<E> AsFd for Listener<E> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<E: Clone> Listener<E> {
    pub(crate) fn on(
        socket: Socket,
        decode: fn(&[u8]) -> Vec<E>,
        lost: E,
        doing: &'static str,
    ) -> Self {
        Self { socket, pending: VecDeque::new(), decode, lost, doing }
    }

    /// The next event, or `None` if none came within `at_most`.
    pub fn next(&mut self, at_most: Duration) -> Result<Option<E>> {
        let until = Instant::now() + at_most;
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            match self.socket.receive(until) {
                Ok(Some(datagram)) => self.pending.extend((self.decode)(datagram)),
                Ok(None) => return Ok(None),
                Err(Errno::NOBUFS) => return Ok(Some(self.lost.clone())),
                Err(errno) => return Err(Error::system(self.doing, errno)),
            }
        }
    }
}

/// The events of one datagram; what cannot be read counts as lost.
pub(crate) fn events<E: Clone>(
    datagram: &[u8],
    decode: fn(&Message<'_>) -> Result<Option<E>, Malformed>,
    lost: &E,
) -> Vec<E> {
    let decode = |message: Result<Message<'_>, Malformed>| {
        message.and_then(|message| decode(&message)).unwrap_or_else(|_| Some(lost.clone()))
    };
    wire::messages(datagram).filter_map(decode).collect()
}
