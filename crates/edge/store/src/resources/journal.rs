//! What a client is about to change, told before it does: whoever keeps it can take it back, even
//! when the program does not live to see the end of the write.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::Resources;
use crate::{Committed, Error, Txn};

/// What a transaction does to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// Its stored bytes before and their revision; none if it was not there.
    pub before: Option<(Vec<u8>, i64)>,
    /// The [`digest`] of the bytes to be stored; none if the key goes.
    pub digest: Option<String>,
}

impl Change {
    pub(super) fn new(key: String, before: Option<(Vec<u8>, i64)>, after: Option<&[u8]>) -> Self {
        Self { key, before, digest: after.map(digest) }
    }
}

/// Somebody who wants to know of every change that users ask for.
pub trait Journal: fmt::Debug + Send + Sync {
    /// One transaction is about to make these changes. An error stops it: nothing is written that
    /// could not be told. Without changes it only tells that the request is about to begin.
    fn intend(&self, changes: Vec<Change>) -> Result<(), String>;

    /// It has made them and got this revision, or it has made none. Not called when the answer of
    /// the datastore was lost, and nobody knows.
    fn settle(&self, revision: Option<i64>);
}

/// What tells stored bytes from others: their SHA-256 in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Resources {
    /// Tells that a request begins whose first steps are not told key by key.
    pub(super) fn tell_ahead(&self) -> Result<(), Error> {
        if let Some(journal) = &self.journal {
            journal.intend(Vec::new()).map_err(Error::NotRecorded)?;
            journal.settle(None);
        }
        Ok(())
    }

    /// Commits a transaction that users asked for.
    pub(super) fn commit_told(
        &self,
        txn: Txn,
        changes: impl FnOnce() -> Vec<Change>,
    ) -> Result<Committed, Error> {
        let Some(journal) = &self.journal else { return self.store.commit(txn) };
        journal.intend(changes()).map_err(Error::NotRecorded)?;
        let committed = self.store.commit(txn);
        match &committed {
            Ok(Committed::Applied { revision }) => journal.settle(Some(*revision)),
            Ok(Committed::Conflict { .. }) => journal.settle(None),
            Err(Error::Uncertain(_)) => {}
            Err(_) => journal.settle(None),
        }
        committed
    }
}
