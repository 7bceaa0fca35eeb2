//! The settings that `ipam configure` writes. They are not the IPAMConfiguration resource.

use api::Kind;
use api::keys::Key;
use api::keys::ipam::IpamConfig;

use super::super::{Change, Error, Name, Resources};
use super::read;
use crate::{Committed, Compare, KeyValue, Op, Txn};

/// Where the settings lie.
pub fn settings_key() -> String {
    Key::IpamConfig.path().expect("the path of the settings is fixed")
}

impl Resources {
    /// The settings of address management; the defaults when none are stored.
    pub fn ipam_settings(&self) -> Result<IpamConfig, Error> {
        Ok(self.stored_settings()?.2)
    }

    fn stored_settings(&self) -> Result<(String, Option<KeyValue>, IpamConfig), Error> {
        let key = settings_key();
        match self.store.get(&key)?.0 {
            None => Ok((key, None, IpamConfig::default())),
            Some(entry) => {
                let settings = read(&Key::IpamConfig, &entry, IpamConfig::decode);
                let settings = settings.map_err(Error::Unreadable)?;
                Ok((key, Some(entry), settings))
            }
        }
    }

    /// Changes the settings of address management and returns what holds then.
    pub fn change_ipam_settings(
        &self,
        change: impl Fn(&mut IpamConfig),
    ) -> Result<IpamConfig, Error> {
        loop {
            let (key, entry, before) = self.stored_settings()?;
            let mut after = before.clone();
            change(&mut after);
            if after == before && !self.manner.rewrite_unchanged {
                return Ok(after);
            }
            check(&after)?;
            let value = text::json::to_string(&after.encode()).into_bytes();
            let compare = match &entry {
                Some(entry) => Compare::ModRevision(key.clone(), entry.mod_revision),
                None => Compare::Absent(key.clone()),
            };
            let op = Op::Put { key: key.clone(), value: value.clone() };
            let txn = Txn { compares: vec![compare], ops: vec![op] };
            let before = entry.map(|entry| (entry.value, entry.mod_revision));
            let told = || vec![Change::new(key, before, Some(&value))];
            if let Committed::Applied { .. } = self.commit_told(txn, told)? {
                return Ok(after);
            }
        }
    }
}

fn check(settings: &IpamConfig) -> Result<(), Error> {
    ::ipam::check_settings(settings).map_err(|refusal| {
        let reason = match refusal {
            ::ipam::Error::NeitherBorrowNorClaim => {
                "without strict affinity nodes must be able to claim blocks"
            }
            _ => "a limit of blocks per node needs strict affinity",
        };
        // The settings are no resource; the name is for messages.
        let name = Name::cluster(Kind::IpamConfiguration, "default");
        Error::Refused { name, reason: reason.to_owned(), calico: refusal.to_string() }
    })
}
