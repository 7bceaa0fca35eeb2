//! What this node knows better than its datastore: endpoints that are not written there yet, and
//! endpoints of sandboxes that are gone and not removed there yet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sandbox::claim::endpoint_key;
use sandbox::life::{Phase, Record};
use sandbox::reserve;

/// Both, by key of the endpoint.
#[derive(Debug, Default)]
pub struct Overlay {
    ahead: BTreeMap<String, Ahead>,
    gone: BTreeMap<String, Gone>,
}

/// An endpoint that is not written yet.
#[derive(Debug)]
struct Ahead {
    container: String,
    value: Vec<u8>,
}

/// A sandbox whose endpoint is to be taken for removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    container: String,
    /// The host's interface.
    pub interface: String,
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
}

impl Overlay {
    /// What the journal says after a start.
    pub fn of(records: &[Record]) -> Self {
        let mut overlay = Self::default();
        for record in records {
            overlay.note(record);
        }
        overlay
    }

    /// Takes note of a record that was written.
    pub fn note(&mut self, record: &Record) {
        if record.phase >= Phase::Leaving {
            self.settle(record);
            self.gone.insert(endpoint_key(record), Gone::of(record));
        } else if record.owed.is_some()
            && record.phase >= Phase::Claimed
            && let Some(value) = reserve::endpoint_value(record)
        {
            self.run_ahead(record, value);
        }
    }

    /// The datastore knows a later sandbox of the same pod: what an earlier one is ahead with does
    /// not count any more. Whether there was any.
    pub fn supersede(&mut self, record: &Record) -> bool {
        let key = endpoint_key(record);
        let is_other = |it: &Ahead| it.container != record.identity.container;
        self.ahead.get(&key).is_some_and(is_other) && self.ahead.remove(&key).is_some()
    }

    /// The endpoint of a sandbox stands, whatever the datastore says.
    fn run_ahead(&mut self, record: &Record, value: Vec<u8>) {
        let container = record.identity.container.clone();
        self.ahead.insert(endpoint_key(record), Ahead { container, value });
    }

    /// The datastore decides about the endpoint of a sandbox again.
    pub fn settle(&mut self, record: &Record) {
        let key = endpoint_key(record);
        if self.ahead.get(&key).is_some_and(|it| it.container == record.identity.container) {
            self.ahead.remove(&key);
        }
    }

    /// The record is forgotten: the datastore knows as much.
    pub fn forget(&mut self, record: &Record) {
        let key = endpoint_key(record);
        if self.gone.get(&key).is_some_and(|gone| gone.container == record.identity.container) {
            self.gone.remove(&key);
        }
    }

    /// What counts for a key of which the datastore says this.
    pub fn over<'a>(&'a self, key: &str, stored: Option<&'a [u8]>) -> Option<&'a [u8]> {
        if let Some(ahead) = self.ahead.get(key) {
            return Some(&ahead.value);
        }
        match self.gone.get(key) {
            Some(gone) => stored.filter(|value| !gone.owns(value)),
            None => stored,
        }
    }

    /// The sandboxes that are gone.
    pub fn gone(&self) -> impl Iterator<Item = &Gone> {
        self.gone.values()
    }
}

impl Gone {
    fn of(record: &Record) -> Self {
        Self {
            container: record.identity.container.clone(),
            interface: record.wiring.host_interface.clone(),
            addresses: record.wiring.addresses.iter().copied().collect(),
        }
    }

    /// A later sandbox of the same pod has an endpoint of the same name, which stays.
    fn owns(&self, value: &[u8]) -> bool {
        let value = text::json::parse(value).unwrap_or_default();
        let owner = value["spec"]["containerID"].as_str().unwrap_or_default();
        owner.is_empty() || owner == self.container
    }
}
