//! Tells the other nodes' operators how far this node's kernel has come with policy.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::realised::Realised;

use crate::node::Node;

/// How long the datastore is left alone after it could not be told.
const PAUSE: Duration = Duration::from_secs(5);

/// How far the kernel has come, and what was told of it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The newest revision of an object of policy that was absorbed.
    seen: i64,
    reached: Realised,
    told: Option<Realised>,
}

impl Progress {
    /// An object was absorbed as of a revision.
    pub(crate) fn seen(&self, key: &str, revision: i64) {
        if store::realised::counts(key) {
            let mut state = self.lock();
            state.seen = state.seen.max(revision);
        }
    }

    /// The newest revision of an object of policy so far.
    pub(crate) fn newest(&self) -> i64 {
        self.lock().seen
    }

    /// The kernel has come this far.
    pub(crate) fn reached(&self, reached: Realised) {
        let mut state = self.lock();
        if state.reached != reached {
            state.reached = reached;
            self.bell.notify_all();
        }
    }

    /// How far the kernel has come.
    pub(crate) fn realised(&self) -> Realised {
        self.lock().reached.clone()
    }

    /// Waits until there is something to tell.
    fn news(&self) -> Realised {
        let mut state = self.lock();
        while state.told.as_ref() == Some(&state.reached) || state.reached.revision == 0 {
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.reached.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts to tell.
pub(crate) fn start(node: &Arc<Node>) -> io::Result<()> {
    let node = Arc::clone(node);
    std::thread::Builder::new().name("progress".into()).spawn(move || {
        loop {
            let news = node.progress.news();
            let told = node.outage().is_none() && news.publish(node.store(), &node.name).is_ok();
            match told {
                true => node.progress.lock().told = Some(news),
                false => std::thread::sleep(PAUSE),
            }
        }
    })?;
    Ok(())
}
