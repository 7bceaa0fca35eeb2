//! Parts of stored objects that were met before.
//!
//! Of ten thousand policies most rules are the same few. Whoever judges many objects keeps the
//! texts of the items that passed, and need not look at the next one with the same text again.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::Value;

/// How many bytes of texts are kept; beyond that, what is new stays so.
const BYTES_MAX: usize = 1 << 20;
/// A longer text is not worth keeping.
const TEXT_BYTES_MAX: usize = 8 << 10;
/// After so many new items it is time to ask whether any come again.
const TRIAL: usize = 1000;

/// The texts of items that passed, by the list of the spec that they stand in.
#[derive(Debug)]
pub struct FamiliarItems {
    lists: Vec<(&'static str, BTreeSet<Box<str>>)>,
    n_bytes: usize,
    n_fresh: usize,
    n_familiar: usize,
}

impl FamiliarItems {
    /// Knows none yet, and will know those of these lists.
    pub fn of(lists: &[&'static str]) -> Self {
        let lists = lists.iter().map(|list| (*list, BTreeSet::new())).collect();
        Self { lists, n_bytes: 0, n_fresh: 0, n_familiar: 0 }
    }

    /// Whether there are no lists to know items of, or none any more.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Whether it is a list whose items it knows, or may come to know.
    pub fn has_list(&self, list: &str) -> bool {
        self.lists.iter().any(|(known, _)| *known == list)
    }

    fn has(&self, list: &str, text: &str) -> bool {
        self.lists.iter().any(|(known, texts)| *known == list && texts.contains(text))
    }

    /// Keeps the items of an object that passed. Where nearly all are new, that costs more than it
    /// saves, and everything is forgotten.
    pub fn learn(&mut self, met: Met) {
        self.n_fresh += met.fresh.len();
        self.n_familiar += met.n_familiar;
        if self.n_fresh > TRIAL && self.n_familiar < self.n_fresh / 2 {
            self.lists.clear();
        }
        for (list, text) in met.fresh {
            let known = self.lists.iter_mut().find(|(known, _)| *known == list);
            let is_worth = text.len() <= TEXT_BYTES_MAX && self.n_bytes + text.len() <= BYTES_MAX;
            if let Some((_, texts)) = known.filter(|_| is_worth) {
                self.n_bytes += text.len();
                texts.insert(text);
            }
        }
    }
}

/// Which items of an object were met before, and which were not.
#[derive(Debug, Default)]
pub struct Met {
    fresh: Vec<(&'static str, Box<str>)>,
    n_familiar: usize,
    /// Those of the familiar ones that were read all the same, by list and index.
    kept: Vec<(&'static str, usize)>,
}

impl Met {
    /// Runs `judge` on the object without the items that were met before; `null` stands for each.
    pub fn without_familiar<T>(&self, object: &mut Value, judge: impl FnOnce(&Value) -> T) -> T {
        let mut kept = vec![Value::Null; self.kept.len()];
        self.swap(object, &mut kept);
        let judged = judge(object);
        self.swap(object, &mut kept);
        judged
    }

    fn swap(&self, object: &mut Value, kept: &mut [Value]) {
        let Some(spec) = object.get_mut("spec") else { return };
        for ((list, index), kept) in self.kept.iter().zip(kept) {
            if let Some(item) = spec.get_mut(*list).and_then(|list| list.get_mut(*index)) {
                std::mem::swap(item, kept);
            }
        }
    }
}

/// A reading that passes over what is familiar.
#[derive(Debug)]
pub(super) struct Reading<'f> {
    pub(super) items: &'f FamiliarItems,
    /// Whether familiar items are read all the same; else `null` stands for them.
    pub(super) keeps_items: bool,
    pub(super) met: RefCell<Met>,
}

impl Reading<'_> {
    /// Notes an item; says whether it has to be read.
    pub(super) fn meet(&self, list: &'static str, index: usize, text: &str) -> bool {
        let mut met = self.met.borrow_mut();
        if !self.items.has(list, text) {
            met.fresh.push((list, text.into()));
            return true;
        }
        met.n_familiar += 1;
        if self.keeps_items {
            met.kept.push((list, index));
        }
        self.keeps_items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(n: usize, items: &FamiliarItems) -> Met {
        let reading = Reading { items, keeps_items: false, met: RefCell::default() };
        reading.meet("ingress", 0, &n.to_string());
        reading.met.into_inner()
    }

    #[test]
    fn lists_whose_items_come_again_are_known_and_others_are_given_up() {
        for (n_different, is_known) in [(100, true), (10_000, false)] {
            let mut items = FamiliarItems::of(&["ingress"]);
            for n in 0..3000 {
                let met = met(n % n_different, &items);
                items.learn(met);
            }
            assert_eq!(!items.is_empty(), is_known);
            assert_eq!(items.has("ingress", "7"), is_known);
            assert!(!items.has("egress", "7"), "another list");
        }
    }

    fn fresh(text: Box<str>) -> Met {
        Met { fresh: vec![("ingress", text)], ..Met::default() }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut items = FamiliarItems::of(&["ingress"]);
        let long = "x".repeat(TEXT_BYTES_MAX + 1).into_boxed_str();
        items.learn(fresh(long.clone()));
        assert!(!items.has("ingress", &long));
        for n in 0..200 {
            let text = format!("{n:08000}").into_boxed_str();
            items.learn(fresh(text));
        }
        assert!(items.n_bytes <= BYTES_MAX);
    }
}
