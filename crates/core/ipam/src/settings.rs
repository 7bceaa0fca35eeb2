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
        if !after.strict_affinity && !after.auto_allocate_blocks {
            return Err(Error::NeitherBorrowNorClaim.into());
        }
        if after.max_blocks_per_host > 0 && !after.strict_affinity {
            return Err(Error::LimitNeedsStrictAffinity.into());
        }
        self.put_json(&settings_key(), &after.encode())?;
        Ok(after)
    }
}
