//! Transactions, and what becomes of them: carried out, refused, or nobody knows.

use std::time::Duration;

use kernel::nft::Batch;
use kernel::{Errno, Error};
use policy::render::{Renderer, Step};

use super::netfilter::Netfilter;
use super::{FilterTable, OWN_MAX, Wanted};

/// How often a transaction is tried that fails for a reason that may pass.
pub(super) const PATIENT: u32 = 4;

/// The same while the one that is bad is looked for among many.
pub(super) const HASTY: u32 = 2;

/// How long is waited before the second time, and four times as long before each next one.
const PAUSE: Duration = Duration::from_millis(1);

/// A transaction that was not carried out.
#[derive(Debug)]
pub(super) enum Setback {
    /// Nothing of it is in force: what stands is what stood.
    Refused(Error),
    /// Nobody knows what stands.
    Lost(Error),
}

impl From<Setback> for Error {
    fn from(setback: Setback) -> Self {
        match setback {
            Setback::Refused(error) | Setback::Lost(error) => error,
        }
    }
}

/// Whether the same may be carried out a moment later: no object is to blame.
pub(super) fn is_passing(error: &Error) -> bool {
    const PASSING: [Errno; 6] =
        [Errno::BUSY, Errno::NOBUFS, Errno::AGAIN, Errno::INTR, Errno::NOMEM, Errno::TIMEDOUT];
    match error.errno() {
        Some(errno) => PASSING.contains(&errno),
        None => {
            matches!(error, Error::Lost { .. } | Error::Interrupted { .. } | Error::TimedOut { .. })
        }
    }
}

impl<K: Netfilter> FilterTable<K> {
    /// Carries out what is dirty in one go. What nothing leads to afterwards may stay for a while:
    /// it goes with a later change, or once there is nothing else to do.
    pub(super) fn carry_out(
        &mut self,
        renderer: &mut Renderer,
        wanted: &Wanted<'_>,
        n_tries: u32,
    ) -> Result<(), Setback> {
        let mut change = renderer.update(wanted.intent, wanted.dirty, wanted.around);
        let limits = std::mem::take(&mut change.refused);
        let n_pressing = change.pressing().len();
        match self.take(change.pressing(), n_tries) {
            Ok(()) if n_pressing == change.steps.len() => renderer.committed(change),
            Ok(()) => drop(renderer.stopped(change, n_pressing)),
            Err((n_committed, Setback::Refused(error))) => {
                if !renderer.stopped(change, n_committed) {
                    return Err(Setback::Refused(error));
                }
                self.try_later();
            }
            Err((_, lost)) => return Err(lost),
        }
        self.settled(wanted.dirty, limits);
        Ok(())
    }

    /// Commits one transaction after the other; how many, if not all.
    pub(super) fn take(&mut self, steps: &[Step], n_tries: u32) -> Result<(), (usize, Setback)> {
        for (at, step) in steps.iter().enumerate() {
            if step.waits {
                self.kernel.await_packets();
            }
            self.commit(&step.batch, n_tries).map_err(|setback| (at, setback))?;
        }
        Ok(())
    }

    /// Commits one transaction.
    pub(super) fn commit(&mut self, batch: &Batch, n_tries: u32) -> Result<(), Setback> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut pause = PAUSE;
        for _ in 1..n_tries {
            match self.commit_once(batch) {
                Err(Setback::Refused(error)) if is_passing(&error) => {
                    self.kernel.rest(pause);
                    pause *= 4;
                }
                done => return done,
            }
        }
        self.commit_once(batch)
    }

    fn commit_once(&mut self, batch: &Batch) -> Result<(), Setback> {
        let before = self.ask(K::generation).map_err(Setback::Refused)?;
        let done = self.kernel.commit(batch);
        self.n_failed += u64::from(done.is_err());
        if let Err(error @ (Error::Rejected(_) | Error::Outdated { .. })) = done {
            return Err(Setback::Refused(error));
        }
        let after = self.ask(K::generation);
        match done {
            Ok(()) => {
                self.n_commits += 1;
                // If others came in between, nobody can say which one is ours: it counts as
                // theirs, and the tables are installed once more.
                let own = after.ok().filter(|after| *after == before.wrapping_add(1));
                self.vouched = own.filter(|_| self.vouched == Some(before));
                if self.own.len() >= OWN_MAX {
                    self.own.pop_front();
                }
                self.own.extend(own);
                Ok(())
            }
            // A transaction that is carried out makes another generation.
            Err(error) if after.is_ok_and(|after| after == before) => Err(Setback::Refused(error)),
            Err(error) => {
                self.vouched = None;
                Err(Setback::Lost(error))
            }
        }
    }

    /// Asks the kernel something, several times if it cannot answer at the moment.
    pub(super) fn ask<T>(
        &mut self,
        question: impl Fn(&mut K) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut pause = PAUSE;
        for _ in 1..PATIENT {
            match question(&mut self.kernel) {
                Err(error) if is_passing(&error) => {
                    self.kernel.rest(pause);
                    pause *= 4;
                }
                answer => return answer,
            }
        }
        question(&mut self.kernel)
    }
}
