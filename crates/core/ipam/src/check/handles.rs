//! Whether handles count what blocks hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use net::Cidr;

use super::inventory::HandleFacts;
use super::problem::Class;
use super::stock::{Purpose, Slot};
use super::verdict::{Judgement, SlotVerdict};

/// What should become of a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandleVerdict {
    /// It should count so many addresses in these blocks.
    Count(BTreeMap<String, i64>),
    /// It should go.
    Remove,
}

/// Addresses by handle and block, in order.
type Held = Vec<(Arc<str>, Cidr)>;

impl Judgement<'_> {
    /// Looks at every handle, once it is decided what blocks should hold.
    pub(super) fn judge_handles(&mut self) {
        let (present, wanted) = self.held();
        let mut present = Groups::of(&present);
        let mut wanted = Groups::of(&wanted);
        let inventory = self.inventory;
        for (id, facts) in &inventory.handles {
            self.judge_handle(id, Some(facts), &present.take(id), &wanted.take(id));
        }
        let missing: Vec<Arc<str>> = present.left().chain(wanted.left()).cloned().collect();
        for id in missing {
            if self.handles.contains_key(&*id) {
                continue;
            }
            self.judge_handle(&id, None, &present.take(&id), &wanted.take(&id));
        }
    }

    /// What blocks hold, and what they should.
    fn held(&self) -> (Held, Held) {
        let (mut present, mut wanted) = (Held::new(), Held::new());
        for (cidr, verdict) in &self.blocks {
            let slots = self.inventory.blocks.get(cidr).into_iter().flat_map(|it| &it.slots);
            for (ordinal, slot) in slots {
                let Slot::Held(holder) = slot else { continue };
                let Some(handle) = holder.settled_handle() else { continue };
                if holder.purpose == Purpose::Windows {
                    continue;
                }
                let handle = match &holder.handle {
                    Some(written) if written.len() == handle.len() => written.clone(),
                    _ => Arc::from(handle),
                };
                let is_kept = match verdict.slots.get(ordinal) {
                    None | Some(SlotVerdict::Keep) => true,
                    Some(SlotVerdict::Hold(holding)) => holding.handle.is_none(),
                    Some(SlotVerdict::Free) => false,
                };
                if is_kept {
                    wanted.push((handle.clone(), *cidr));
                }
                present.push((handle, *cidr));
            }
            for slot in verdict.slots.values() {
                if let SlotVerdict::Hold(holding) = slot
                    && let Some(handle) = &holding.handle
                {
                    wanted.push((Arc::from(handle.as_str()), *cidr));
                }
            }
        }
        present.sort_unstable();
        wanted.sort_unstable();
        (present, wanted)
    }

    fn judge_handle(
        &mut self,
        id: &Arc<str>,
        facts: Option<&HandleFacts>,
        present: &BTreeMap<Cidr, i64>,
        wanted: &BTreeMap<Cidr, i64>,
    ) {
        let key = format!("/calico/ipam/v2/handle/{id}");
        let is_unread = |cidr: &Cidr| self.blocks.get(cidr).is_some_and(|it| it.left.is_some());
        let mut counted = BTreeMap::new();
        let mut wrong = Vec::new();
        for (text, count) in facts.into_iter().flat_map(|it| &it.blocks) {
            match text.parse::<Cidr>() {
                Ok(cidr) if cidr.to_string() == **text => drop(counted.insert(cidr, *count)),
                _ => wrong.push(format!("block[{text}]: not a block")),
            }
        }
        let lost = |cidr: &Cidr| self.inventory.blocks.get(cidr).is_some_and(|it| it.is_lost);
        for (cidr, count) in &counted {
            let held = present.get(cidr).copied().unwrap_or(0);
            if held != *count && !lost(cidr) && !present.is_empty() {
                wrong.push(format!("counts {count} in {cidr}, which holds {held} for it"));
            }
        }
        let uncounted = present.iter().filter(|(cidr, _)| !counted.contains_key(cidr));
        wrong.extend(uncounted.map(|(cidr, held)| format!("does not count {held} in {cidr}")));
        let is_of_lost = counted.keys().any(lost);
        let mut should: BTreeMap<String, i64> =
            wanted.iter().map(|(cidr, count)| (cidr.to_string(), *count)).collect();
        // What a block that cannot be read holds is known to the handle alone.
        let kept = counted.iter().filter(|(cidr, _)| is_unread(cidr));
        should.extend(kept.map(|(cidr, count)| (cidr.to_string(), *count)));
        let is_right = facts.is_some_and(|facts| {
            let same = |(text, count): &(Box<str>, i64)| should.get(&**text) == Some(count);
            facts.unreadable.is_none()
                && !facts.is_deleted
                && facts.blocks.len() == should.len()
                && facts.blocks.iter().all(same)
        });
        match facts {
            None if !present.is_empty() => {
                self.name(
                    Class::WrongHandle,
                    &key,
                    format!("{id} is named in blocks, and is not there"),
                );
            }
            None => {}
            Some(HandleFacts { unreadable: Some(why), .. }) => {
                self.name(Class::Unreadable, &key, why.clone());
            }
            Some(facts) => {
                if facts.is_deleted {
                    self.name(Class::WrongField, &key, "deleted: it is marked as about to go");
                }
                if present.is_empty() && !is_of_lost {
                    self.name(Class::GhostHandle, &key, format!("{id} holds no address"));
                }
                for text in wrong {
                    self.name(Class::WrongHandle, &key, format!("{id} {text}"));
                }
            }
        }
        match (should.is_empty(), facts) {
            (true, None) => {}
            (true, Some(_)) => drop(self.handles.insert(id.to_string(), HandleVerdict::Remove)),
            (false, _) if is_right => {}
            (false, _) => drop(self.handles.insert(id.to_string(), HandleVerdict::Count(should))),
        }
    }
}

/// A sorted list, taken apart handle by handle.
struct Groups<'h> {
    rest: Vec<&'h [(Arc<str>, Cidr)]>,
    at: BTreeMap<&'h str, usize>,
}

impl<'h> Groups<'h> {
    fn of(held: &'h [(Arc<str>, Cidr)]) -> Self {
        let rest: Vec<_> = held.chunk_by(|one, two| one.0 == two.0).collect();
        let at = rest.iter().enumerate();
        let at = at.filter_map(|(index, group)| Some((&*group.first()?.0, index))).collect();
        Self { rest, at }
    }

    fn take(&mut self, handle: &str) -> BTreeMap<Cidr, i64> {
        let mut counts = BTreeMap::new();
        let group = self.at.remove(handle).and_then(|index| self.rest.get(index));
        for (_, cidr) in group.into_iter().copied().flatten() {
            *counts.entry(*cidr).or_default() += 1;
        }
        counts
    }

    /// Those that were not taken.
    fn left(&self) -> impl Iterator<Item = &'h Arc<str>> {
        self.at.values().filter_map(|index| Some(&self.rest.get(*index)?.first()?.0))
    }
}
