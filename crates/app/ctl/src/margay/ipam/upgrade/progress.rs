//! Says what is waited for, on standard error, for as long as it takes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::super::get::complain;
use super::super::super::terminal::printable_line;

/// So often a wait is said.
const EVERY: Duration = Duration::from_secs(5);

/// Tells of a step that takes its time. Dropping it ends it.
pub(super) struct Progress {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    wait: Option<Wait>,
    is_over: bool,
}

struct Wait {
    what: String,
    reason: Option<String>,
    since: Instant,
    limit: Duration,
}

impl Progress {
    /// Begins to tell.
    pub(super) fn begin() -> Self {
        let shared = Arc::new(Shared::default());
        let mine = Arc::clone(&shared);
        std::thread::spawn(move || mine.tell());
        Self { shared }
    }

    /// A step is done, or about to be.
    pub(super) fn say(&self, line: &str) {
        let _ = complain(&printable_line(line));
    }

    /// From now on this is waited for, for so long at most.
    pub(super) fn wait(&self, what: &str, limit: Duration) {
        let wait = Wait { what: what.to_owned(), reason: None, since: Instant::now(), limit };
        self.shared.state().wait = Some(wait);
        self.shared.changed.notify_all();
    }

    /// Why it takes so long.
    pub(super) fn because(&self, reason: &str) {
        if let Some(wait) = &mut self.shared.state().wait {
            wait.reason = Some(reason.to_owned());
        }
    }

    /// It is there.
    pub(super) fn done(&self) {
        self.shared.state().wait = None;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let mut state = self.state();
        let mut n_said = 0;
        let mut said_of = None;
        while !state.is_over {
            let (since, line) = match &state.wait {
                Some(wait) => (Some(wait.since), wait.line()),
                None => (None, String::new()),
            };
            if said_of != since {
                (said_of, n_said) = (since, 0);
            }
            let next = since.map(|since| since + EVERY * (n_said + 1));
            let left = next.map_or(EVERY, |next| next.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                let _ = complain(&printable_line(&line));
                n_said += 1;
                continue;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Wait {
    fn line(&self) -> String {
        let (elapsed, limit) = (self.since.elapsed().as_secs(), self.limit.as_secs());
        let reason = self.reason.as_deref().unwrap_or("no answer yet");
        format!("waiting for {}, {elapsed} s of {limit} s: {reason}", self.what)
    }
}
