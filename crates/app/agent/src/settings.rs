//! Keeps the kernel settings of sandboxes' interfaces on the host as ADD made them.
//!
//! The kernel tells of some of these settings when they change, of others never. So a few sandboxes
//! at a time are looked at, in turn: that costs a fraction of a millisecond, and with few sandboxes
//! every one is looked at each time.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use sandbox::identity::Identity;
use sandbox::life::{Phase, Record};

use crate::node::Node;
use crate::{notes, wire};

/// So many sandboxes are looked at in one go.
const AT_ONCE: usize = 16;

/// How far the looks have come.
#[derive(Debug, Default)]
pub(crate) struct Round {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Identity>,
    /// Whose settings were wrong at the last look. Somebody who changes them again and again is
    /// noted once.
    wrong: BTreeSet<Identity>,
}

impl Node {
    /// Looks at the settings of the next sandboxes, and puts them right.
    pub(crate) fn keep_settings(&self) {
        let mut state = self.round.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.journal.after(state.last.as_ref(), AT_ONCE);
        state.last = match next.last() {
            Some(record) if next.len() == AT_ONCE => Some(record.identity.clone()),
            // That was the end: those that are gone are forgotten, and it begins anew.
            _ => {
                state.wrong.retain(|identity| self.journal.get(identity).is_some());
                None
            }
        };
        for record in next.iter().filter(|record| record.phase == Phase::Ready) {
            let mended = wire::mend_settings(&self.here, &record.wiring);
            match mended.is_empty() {
                true => {
                    state.wrong.remove(&record.identity);
                }
                false if state.wrong.insert(record.identity.clone()) => {
                    self.note_settings(record, &mended);
                }
                false => {}
            }
        }
    }

    fn note_settings(&self, record: &Record, mended: &[String]) {
        let text = format!(
            "{}: kernel settings were changed by another program and put back: {}",
            notes::spoken(record),
            mended.join(", ")
        );
        self.events.note("repaired", &text);
    }
}
