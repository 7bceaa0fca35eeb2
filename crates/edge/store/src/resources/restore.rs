//! Whether objects may be put back as they were: the rules between objects that a create or a
//! delete would enforce.

use std::collections::BTreeSet;

use api::Kind;
use model::prepare::{Neighbours, check_delete, delete_needs_policies, prepare_create};

use super::batch::entry;
use super::read::stored;
use super::view::View;
use super::write::{metadata_mut, refused};
use super::{Error, Name, Resources};

impl Resources {
    /// What speaks against storing these bytes (none: removing the object), all of them at once.
    ///
    /// Only what other objects have to say counts. What is odd about an object alone was stored
    /// before, and comes back as it was.
    pub fn check_restore(&self, restored: &[(Name, Option<Vec<u8>>)]) -> Result<Vec<Error>, Error> {
        let mut view = View::new(&self.store);
        let mut refusals = Vec::new();
        for (name, _) in restored.iter().filter(|(_, value)| value.is_none()) {
            view.pend_removal(name)?;
            refusals.extend(self.check_removal(name, restored)?);
        }
        let puts = restored.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let (tiers, others): (Vec<_>, Vec<_>) = puts.partition(|(name, _)| name.kind == Kind::Tier);
        for (name, value) in tiers.into_iter().chain(others) {
            refusals.extend(self.check_put(&mut view, name, value)?);
            view.pend(name, value.clone())?;
        }
        Ok(refusals)
    }

    fn check_removal(
        &self,
        name: &Name,
        restored: &[(Name, Option<Vec<u8>>)],
    ) -> Result<Option<Error>, Error> {
        let mut policies = Vec::new();
        if delete_needs_policies(name.kind, &name.name) {
            let removed = restored.iter().filter(|(_, value)| value.is_none());
            let removed: BTreeSet<&Name> = removed.map(|(name, _)| name).collect();
            for policy in self.policies_in_tiers()?.0 {
                if !removed.contains(&policy.name) {
                    policies.push(policy.object);
                }
            }
            for (other, value) in restored {
                let put_back = value.as_ref().map(|value| entry(other, value.clone(), 0));
                let put_back = put_back.and_then(|entry| stored(other.kind, &entry).ok());
                policies.extend(put_back.map(|policy| policy.object));
            }
        }
        Ok(check_delete(name.kind, &name.name, &policies).err().map(|it| refused(name, it)))
    }

    fn check_put(
        &self,
        view: &mut View<'_>,
        name: &Name,
        value: &[u8],
    ) -> Result<Option<Error>, Error> {
        // The rules between objects are those for a new one.
        if view.entry(name)?.is_some() {
            return Ok(None);
        }
        let Ok(shown) = stored(name.kind, &entry(name, value.to_vec(), 0)) else {
            return Ok(None);
        };
        let mut object = shown.object;
        metadata_mut(&mut object).shift_remove("resourceVersion");
        let (neighbours, _) = view.neighbours(name.kind, &object, true)?;
        let alone = Neighbours {
            tier_exists: true,
            bgp_filters: neighbours.bgp_filters.clone(),
            ..Neighbours::default()
        };
        let context = self.context();
        let judged = |neighbours| prepare_create(name.kind, object.clone(), &context, neighbours);
        let refusal = judged(&neighbours).err();
        let is_about_others = refusal != judged(&alone).err();
        Ok(refusal.filter(|_| is_about_others).map(|refusal| refused(name, refusal)))
    }
}
