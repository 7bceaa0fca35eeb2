//! A watch that speaks of objects instead of keys.

use std::time::{Duration, Instant};

use api::Kind;

use super::name::list_prefix;
use super::read::stored;
use super::{Name, Quarantined, Resources, Stored};
use crate::Event;

/// Something that a watch of objects has to say.
#[derive(Clone, Debug)]
pub enum ResourceEvent {
    /// The object is like this now.
    Put(Stored),
    /// The object is there but cannot be used; what it was before no longer holds.
    Quarantined(Quarantined),
    /// The object is gone.
    Deleted {
        /// Which one.
        name: Name,
        /// The revision that removed it.
        revision: i64,
    },
    /// Everything up to this revision was delivered.
    InSync(i64),
    /// The store does not answer; the watch goes on trying by itself.
    Disconnected {
        /// The endpoint or file concerned.
        endpoint: String,
        /// What is wrong.
        error: String,
        /// When the trouble began.
        since: Instant,
    },
}

/// A running watch of the objects of a kind. Dropping it ends it.
#[derive(Debug)]
pub struct ResourceWatch {
    kind: Kind,
    watch: crate::Watch,
}

impl Resources {
    /// Watches the objects of a kind, in one namespace or in all: first the present ones, then
    /// each change. The built-in profile never changes and is not among them.
    pub fn watch(&self, kind: Kind, namespace: Option<&str>) -> ResourceWatch {
        ResourceWatch { kind, watch: self.store.watch(&list_prefix(kind, namespace)) }
    }
}

impl ResourceWatch {
    /// Waits for the next event. None if there is none within `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Option<ResourceEvent> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.watch.next(left)? {
                Event::Put(entry) => {
                    return Some(match stored(self.kind, &entry) {
                        Ok(stored) => ResourceEvent::Put(stored),
                        Err(quarantined) => ResourceEvent::Quarantined(quarantined),
                    });
                }
                Event::Delete { key, mod_revision: revision } => {
                    // A key that was never an object was reported when it came.
                    if let Some(name) = Name::from_key(self.kind, &key) {
                        return Some(ResourceEvent::Deleted { name, revision });
                    }
                }
                Event::InSync(revision) => return Some(ResourceEvent::InSync(revision)),
                Event::Disconnected { endpoint, error, since } => {
                    return Some(ResourceEvent::Disconnected { endpoint, error, since });
                }
            }
        }
    }
}
