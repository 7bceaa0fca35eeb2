//! Whether handles count what blocks hold.

use std::collections::{BTreeMap, BTreeSet};

use net::Cidr;

use super::handle::HandleFacts;
use super::problem::Class;
use super::stock::Slot;
use super::verdict::{Judgement, SlotVerdict};
use super::witness::held_first;

/// What should become of a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandleVerdict {
    /// It should count so many addresses in these blocks.
    Count(BTreeMap<String, i64>),
    /// It should go.
    Remove,
}

/// How many addresses each handle should get or lose, by block.
type Deltas = BTreeMap<String, BTreeMap<Cidr, i64>>;

impl Judgement<'_> {
    /// Looks at every handle, once it is decided what blocks should hold.
    pub(super) fn judge_handles(&mut self) {
        let deltas = self.deltas();
        let inventory = self.inventory;
        let mut at = 0;
        let mut odd = Vec::new();
        // Both are in the order of their names.
        for (id, facts) in inventory.handles.iter() {
            let rest = self.witnesses.all_held().get(at..).unwrap_or_default();
            at += rest.iter().take_while(|(held, _)| *held < &**id).count();
            let rest = self.witnesses.all_held().get(at..).unwrap_or_default();
            let held = held_first(rest, id);
            at += held.len();
            if deltas.contains_key(&**id) || !is_plain(facts, held) {
                odd.push((&**id, facts));
            }
        }
        for (id, facts) in odd {
            self.judge_handle(id, Some(facts), deltas.get(id));
        }
        let named = self.witnesses.all_held().chunk_by(|one, two| one.0 == two.0);
        let named = named.filter_map(|group| group.first()).map(|(id, _)| *id);
        let missing: BTreeSet<String> = named
            .chain(deltas.keys().map(String::as_str))
            .filter(|id| !inventory.handles.contains(id))
            .map(str::to_owned)
            .collect();
        for id in missing {
            self.judge_handle(&id, None, deltas.get(&id));
        }
    }

    fn deltas(&self) -> Deltas {
        let mut deltas = Deltas::new();
        let mut add = |handle: &str, cidr: Cidr, count: i64| {
            *deltas.entry(handle.to_owned()).or_default().entry(cidr).or_default() += count;
        };
        for (cidr, verdict) in &self.blocks {
            let stock = self.inventory.blocks.get(cidr);
            for (ordinal, slot) in &verdict.slots {
                let before = match stock.and_then(|stock| stock.slot(*ordinal)) {
                    Some(Slot::Held(holder)) => holder.counted_handle(),
                    _ => None,
                };
                let after = match slot {
                    SlotVerdict::Keep => continue,
                    SlotVerdict::Free => None,
                    SlotVerdict::Hold(holding) => holding.handle.as_deref().or(before),
                };
                for (handle, count) in [(before, -1), (after, 1)] {
                    if let Some(handle) = handle {
                        add(handle, *cidr, count);
                    }
                }
            }
        }
        deltas
    }

    fn judge_handle(
        &mut self,
        id: &str,
        facts: Option<&HandleFacts>,
        deltas: Option<&BTreeMap<Cidr, i64>>,
    ) {
        let mut present: BTreeMap<Cidr, i64> = BTreeMap::new();
        for (_, cidr) in self.witnesses.held_by(id) {
            *present.entry(*cidr).or_default() += 1;
        }
        let mut wanted = present.clone();
        for (cidr, delta) in deltas.into_iter().flatten() {
            *wanted.entry(*cidr).or_default() += delta;
        }
        wanted.retain(|_, count| *count > 0);
        let is_unread = |cidr: &Cidr| self.blocks.get(cidr).is_some_and(|it| it.left.is_some());
        let mut should: BTreeMap<String, i64> =
            wanted.iter().map(|(cidr, count)| (cidr.to_string(), *count)).collect();
        // What a block that cannot be read holds is known to the handle alone.
        let counted = facts.into_iter().flat_map(HandleFacts::blocks);
        let kept = counted.filter(|(cidr, _)| is_unread(cidr));
        should.extend(kept.map(|(cidr, count)| (cidr.to_string(), *count)));
        let is_right = facts.is_some_and(|facts| {
            let same = |(cidr, count): &(Cidr, i64)| should.get(&cidr.to_string()) == Some(count);
            facts.unreadable().is_none()
                && !facts.is_deleted()
                && facts.odd().is_empty()
                && facts.blocks().len() == should.len()
                && facts.blocks().iter().all(same)
        });
        self.name_handle(id, facts, &present);
        match (should.is_empty(), facts) {
            (true, None) => {}
            (true, Some(_)) => drop(self.handles.insert(id.to_string(), HandleVerdict::Remove)),
            (false, _) if is_right => {}
            (false, _) => drop(self.handles.insert(id.to_string(), HandleVerdict::Count(should))),
        }
    }

    /// Says what is wrong with a handle, given what blocks hold for it.
    fn name_handle(
        &mut self,
        id: &str,
        facts: Option<&HandleFacts>,
        present: &BTreeMap<Cidr, i64>,
    ) {
        let key = format!("/calico/ipam/v2/handle/{id}");
        let Some(facts) = facts else {
            if !present.is_empty() {
                let text = format!("{id} is named in blocks, and is not there");
                self.name(Class::WrongHandle, &key, text);
            }
            return;
        };
        if let Some(why) = facts.unreadable() {
            self.name(Class::Unreadable, &key, why);
            return;
        }
        let lost = |cidr: &Cidr| self.inventory.blocks.get(cidr).is_some_and(|it| it.is_lost);
        let mut wrong: Vec<String> =
            facts.odd().iter().map(|text| format!("block[{text}]: not a block")).collect();
        for (cidr, count) in facts.blocks() {
            let held = present.get(cidr).copied().unwrap_or(0);
            if held != *count && !lost(cidr) && !present.is_empty() {
                wrong.push(format!("counts {count} in {cidr}, which holds {held} for it"));
            }
        }
        let is_counted = |cidr: &Cidr| facts.blocks().iter().any(|(counted, _)| counted == cidr);
        let uncounted = present.iter().filter(|(cidr, _)| !is_counted(cidr));
        wrong.extend(uncounted.map(|(cidr, held)| format!("does not count {held} in {cidr}")));
        if present.is_empty() && !facts.blocks().iter().any(|(cidr, _)| lost(cidr)) {
            self.name(Class::GhostHandle, &key, format!("{id} holds no address"));
        }
        if facts.is_deleted() {
            self.name(Class::WrongField, &key, "deleted: it is marked as about to go");
        }
        for text in wrong {
            self.name(Class::WrongHandle, &key, format!("{id} {text}"));
        }
    }
}

/// Whether a handle counts what the only block that it names holds for it, as nearly all do.
fn is_plain(facts: &HandleFacts, held: &[(&str, Cidr)]) -> bool {
    facts.plain().is_some_and(|(cidr, count)| {
        i64::try_from(held.len()) == Ok(count)
            && count > 0
            && held.iter().all(|(_, block)| *block == cidr)
    })
}
