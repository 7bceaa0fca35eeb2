//! Selectors by a label that they demand.

use std::collections::BTreeMap;

use model::selector::Selector;

use super::super::texts::{TextId, Texts};
use super::SelectorId;
use super::groups::Pair;

/// For each selector one of its demands, and the way back.
#[derive(Debug, Default)]
pub(super) struct Demands {
    by_selector: BTreeMap<SelectorId, Demand>,
    by_value: BTreeMap<Pair, Vec<SelectorId>>,
    by_label: BTreeMap<TextId, Vec<SelectorId>>,
    /// Those that demand no label, and may match anything.
    free: Vec<SelectorId>,
}

/// What a selector is found by.
#[derive(Debug)]
enum Demand {
    OneOf(TextId, Box<[TextId]>),
    Present(TextId),
    Nothing,
}

impl Demands {
    pub(super) fn add(&mut self, id: SelectorId, selector: &Selector, texts: &mut Texts) {
        let demand = self.best(selector, texts);
        match &demand {
            Demand::OneOf(label, values) => {
                for value in values {
                    self.by_value.entry((*label, *value)).or_default().push(id);
                }
            }
            Demand::Present(label) => self.by_label.entry(*label).or_default().push(id),
            Demand::Nothing => self.free.push(id),
        }
        self.by_selector.insert(id, demand);
    }

    pub(super) fn remove(&mut self, id: SelectorId, texts: &mut Texts) {
        match self.by_selector.remove(&id) {
            Some(Demand::OneOf(label, values)) => {
                for value in values {
                    take(&mut self.by_value, (label, value), id);
                    texts.release(value);
                }
                texts.release(label);
            }
            Some(Demand::Present(label)) => {
                take(&mut self.by_label, label, id);
                texts.release(label);
            }
            Some(Demand::Nothing) => self.free.retain(|other| *other != id),
            None => {}
        }
    }

    /// The selectors that demand a label, or this value of it.
    pub(super) fn candidates(&self, label: Pair) -> impl Iterator<Item = SelectorId> {
        let by_value = self.by_value.get(&label).into_iter();
        by_value.chain(self.by_label.get(&label.0)).flatten().copied()
    }

    /// The selectors that demand no label.
    pub(super) fn free(&self) -> impl Iterator<Item = SelectorId> {
        self.free.iter().copied()
    }

    /// The demand that the fewest other selectors are found by: labels meet few selectors when
    /// those are spread. Values are better than mere presence.
    fn best(&self, selector: &Selector, texts: &mut Texts) -> Demand {
        let restrictions = selector.restrictions();
        let n_others = |label: &str, value: &str| {
            let pair = texts.find(label).zip(texts.find(value));
            pair.and_then(|pair| self.by_value.get(&pair)).map_or(0, Vec::len)
        };
        let one_of = restrictions.iter().filter_map(|(label, restriction)| {
            let values = restriction.one_of.as_ref().filter(|_| restriction.must_be_present)?;
            let crowd: usize = values.iter().map(|value| n_others(label, value)).sum();
            Some((crowd + values.len(), label, values))
        });
        if let Some((_, label, values)) = one_of.min() {
            let values = values.iter().map(|value| texts.acquire(value)).collect();
            return Demand::OneOf(texts.acquire(label), values);
        }
        let mut present = restrictions.iter().filter(|(_, it)| it.must_be_present);
        match present.next() {
            Some((label, _)) => Demand::Present(texts.acquire(label)),
            None => Demand::Nothing,
        }
    }
}

fn take<K: Ord>(map: &mut BTreeMap<K, Vec<SelectorId>>, key: K, id: SelectorId) {
    if let Some(ids) = map.get_mut(&key) {
        ids.retain(|other| *other != id);
        if ids.is_empty() {
            map.remove(&key);
        }
    }
}
