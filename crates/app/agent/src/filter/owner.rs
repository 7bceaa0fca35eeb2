//! Whose the tables are: ours alone where the kernel has tables that outlive their owner, so that
//! nobody else changes them or flushes them away.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use kernel::nft::{Key, Table};
use kernel::{Errno, Error, Refusal, Result};
use policy::intent::Intent;
use policy::render::{Renderer, Settings, places};

use super::commit::{PATIENT, Setback};
use super::netfilter::Netfilter;
use super::{FilterTable, tables};

/// How long a process takes to end, and to let its tables go.
const ENDING: Duration = Duration::from_millis(200);

/// How long another process may take to carry out what we want as well, or to let go.
const PATIENCE: Duration = Duration::from_secs(2);

const LOOK_EVERY: Duration = Duration::from_millis(5);

impl<K: Netfilter> FilterTable<K> {
    /// A renderer that knows nothing of what stands.
    pub(super) fn renderer(&self) -> Renderer {
        let is_owned = self.settings.is_owned && self.knows_owners;
        Renderer::new(Settings { is_owned, ..self.settings.clone() })
    }

    /// Makes the tables ours alone, if they shall be. Who may not changes them all the same, and
    /// hears of what others do to them.
    pub(super) fn own(&mut self, renderer: &Renderer) {
        if renderer.settings().is_owned {
            let owned = self.commit(&renderer.owned().batch, PATIENT);
            self.is_owner = !matches!(owned, Err(Setback::Refused(_)));
        }
    }

    /// Whether that is why the kernel has refused our tables: it knows no tables that outlive their
    /// owner.
    pub(super) fn lacks_owners(&self, error: &Error) -> bool {
        let is_unknown = [Errno::INVAL, Errno::OPNOTSUPP].map(Some).contains(&error.errno());
        let is_about_tables = match error {
            Error::Rejected(failures) => {
                failures.iter().all(|it| it.attempt.starts_with("add table"))
            }
            _ => false,
        };
        self.settings.is_owned && self.knows_owners && is_unknown && is_about_tables
    }

    /// Our tables may be another process's: of one that is about to end, or of an agent that a
    /// plugin acts without. Whether that one has carried out what is wanted.
    pub(super) fn is_done_by_owner(&mut self, intent: &Intent) -> Result<bool> {
        let began = Instant::now();
        while !self.is_owner && is_anothers(&self.ask(K::tables)?) {
            let waited = began.elapsed();
            if !self.settings.is_owned && waited > ENDING && self.knows(intent)? {
                return Ok(true);
            }
            if waited > PATIENCE {
                let message = "another process owns it, which neither does it nor ends".to_owned();
                let refusal = Refusal { errno: Errno::PERM, message: Some(message) };
                let [inet, _] = tables();
                return Err(Error::Refused { attempt: format!("replace {}", inet.id), refusal });
            }
            self.kernel.rest(LOOK_EVERY);
        }
        Ok(false)
    }

    /// Whether the kernel's filter has all workloads.
    fn knows(&mut self, intent: &Intent) -> Result<bool> {
        let mut wanted = Vec::new();
        for workload in intent.workloads.values() {
            let addresses: Vec<IpAddr> = workload.addresses.iter().map(|it| it.address()).collect();
            wanted.extend(places(&workload.interface, &addresses));
        }
        Ok(self.unknown(wanted)?.is_empty())
    }

    /// What of these is not in the sets and maps of our table: the name of one, and the key.
    pub(super) fn unknown(&mut self, wanted: Vec<(String, Key)>) -> Result<Vec<(String, Key)>> {
        let [inet, _] = tables();
        let mut known = BTreeMap::new();
        for set in self.kernel.sets(&inet.id)? {
            if wanted.iter().any(|(name, _)| *name == set.name) {
                let elements = self.kernel.elements(&inet.id, &set)?;
                let keys: Vec<Key> = elements.into_iter().map(|it| it.key).collect();
                known.insert(set.name, keys);
            }
        }
        let is_unknown = |(name, key): &(String, Key)| {
            known.get(name).is_none_or(|keys: &Vec<Key>| !keys.contains(key))
        };
        Ok(wanted.into_iter().filter(is_unknown).collect())
    }
}

fn is_anothers(present: &[Table]) -> bool {
    let ours = tables();
    present.iter().any(|it| it.is_owned && ours.iter().any(|ours| ours.id == it.id))
}
