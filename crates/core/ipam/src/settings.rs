//! The settings of address management.

use api::keys::ipam::IpamConfig;

use crate::plan::Stop;
use crate::record::settings_key;
use crate::{Error, Planned, Planner};

impl Planner<'_> {
    /// The settings; the defaults while none are stored.
    pub fn get_config(&mut self) -> Planned<Result<IpamConfig, Error>> {
        let result = self.settings();
        self.settle(result)
    }

    /// Changes the settings, and returns what holds then. Setting what holds writes nothing.
    pub fn set_config(
        &mut self,
        change: impl FnOnce(&mut IpamConfig),
    ) -> Planned<Result<IpamConfig, Error>> {
        let result = self.change_settings(change);
        self.settle(result)
    }

    fn change_settings(
        &mut self,
        change: impl FnOnce(&mut IpamConfig),
    ) -> Result<IpamConfig, Stop> {
        let before = self.settings()?;
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(after);
        }
        check_settings(&after)?;
        self.put_json(&settings_key(), &after.encode())?;
        Ok(after)
    }
}

/// Refuses settings under which nobody would get an address as meant.
pub fn check_settings(settings: &IpamConfig) -> Result<(), Error> {
    if !settings.strict_affinity && !settings.auto_allocate_blocks {
        return Err(Error::NeitherBorrowNorClaim);
    }
    if settings.max_blocks_per_host > 0 && !settings.strict_affinity {
        return Err(Error::LimitNeedsStrictAffinity);
    }
    Ok(())
}
