//! Keys that are no text, as no key of ours or Calico's: nobody can ask for them, the others must
//! not suffer from them, and people must hear of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// So many are enough to know what goes on.
const KEYS_MAX: usize = 100;

/// Those that listings have met.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignKeys(Arc<Mutex<BTreeSet<String>>>);

impl ForeignKeys {
    /// Notes a key if it is no text, and says whether it is none.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        if std::str::from_utf8(key).is_ok() {
            return false;
        }
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() < KEYS_MAX {
            keys.insert(key.escape_ascii().to_string());
        }
        true
    }

    /// The keys, with what is no printable ASCII spelled out.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
