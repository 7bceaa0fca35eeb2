//! Who uses an address, where its handle stays: virtual machines that move between nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::keys::ipam::Attribute;

use crate::block::settled;
use crate::plan::Stop;
use crate::reads::block_of;
use crate::{Error, Planned, Planner};

/// What to do with one of the two owners of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerUpdate {
    /// The new attributes; none not to set them.
    pub set: Option<BTreeMap<String, String>>,
    /// Whether to clear them. Not together with new ones.
    pub clear: bool,
    /// Who must be the owner before; none not to check that. Looked at only when it changes.
    pub expect: Option<OwnerCheck>,
}

/// Who an owner must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerCheck {
    /// Nobody.
    Nobody,
    /// A pod.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// A change of the owners of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerChange {
    /// Who uses the address now.
    pub active: OwnerUpdate,
    /// Who used it before, or will next.
    pub alternate: OwnerUpdate,
}

impl OwnerUpdate {
    fn check(&self, which: &'static str) -> Result<(), Error> {
        match self.clear && self.set.is_some() {
            true => Err(Error::SetAndCleared { which }),
            false => Ok(()),
        }
    }

    fn is_met(&self, now: &BTreeMap<String, String>) -> bool {
        let changes = self.clear || self.set.is_some();
        let text = |name: &str| now.get(name).map(String::as_str);
        match &self.expect {
            Some(OwnerCheck::Pod { namespace, name })
                if changes && !(namespace.is_empty() && name.is_empty()) =>
            {
                text("pod") == Some(name) && text("namespace") == Some(namespace)
            }
            Some(_) if changes => now.is_empty(),
            _ => true,
        }
    }

    fn apply(&self, to: &mut BTreeMap<String, String>) {
        match &self.set {
            Some(attributes) => to.clone_from(attributes),
            None if self.clear => to.clear(),
            None => {}
        }
    }
}

impl Planner<'_> {
    /// Changes who uses an address. Addresses that share their attributes change together.
    pub fn set_owner_attributes(
        &mut self,
        address: IpAddr,
        handle: &str,
        change: &OwnerChange,
    ) -> Planned<Result<(), Error>> {
        let result = self.change_owner(address, handle, change);
        self.settle(result)
    }

    fn change_owner(
        &mut self,
        address: IpAddr,
        handle: &str,
        change: &OwnerChange,
    ) -> Result<(), Stop> {
        change.active.check("Active")?;
        change.alternate.check("Alternate")?;
        let pool = self.pool_of(address)?.ok_or(Error::OwnerNotInPool { address })?;
        let settings = self.settings()?;
        let cidr = block_of(address, &pool).ok_or(Error::OwnerNotInPool { address })?;
        let mut block = self.fresh_block(cidr, &settings)?.ok_or(Error::NoSuchBlock { cidr })?;
        let ordinal =
            block.ordinal(address).ok_or(Error::NotInBlock { address, cidr: block.cidr })?;
        let index = block.allocations.get(ordinal).copied().flatten();
        let index = index.and_then(|index| usize::try_from(index).ok());
        let holder: &mut Attribute = index
            .and_then(|index| block.attributes.get_mut(index))
            .ok_or(Error::Unassigned { address })?;
        if holder.handle.as_deref().map(settled) != Some(handle) {
            return Err(Error::NotOfHandle { address, handle: handle.to_owned() }.into());
        }
        if !change.active.is_met(&holder.active_owner) {
            return Err(Error::OtherOwner { address, field: "ActiveOwnerAttrs" }.into());
        }
        if !change.alternate.is_met(&holder.alternate_owner) {
            return Err(Error::OtherOwner { address, field: "AlternateOwnerAttrs" }.into());
        }
        change.active.apply(&mut holder.active_owner);
        change.alternate.apply(&mut holder.alternate_owner);
        Ok(self.write_block(cidr, &mut block)?)
    }
}
