//! Whose bytes a key holds: from what is stored now, back through the writes that are kept.

use std::collections::BTreeMap;

use super::{Change, Entry};

/// How a key stands to what a write left of it.
#[derive(Debug, PartialEq)]
pub(super) enum Standing {
    /// It is as the write left it, or was put back to that.
    AsLeft,
    /// These writes changed it since. Taken back in this order, they lead to where it was left.
    After(Vec<u64>),
    /// This write has taken the write back.
    TakenBack(u64),
    /// Somebody else left it at this revision, or removed it.
    Foreign(Option<i64>),
}

/// The writes that are kept, by the keys they changed.
pub(super) struct Lineage<'e> {
    by_key: BTreeMap<&'e str, Vec<Made<'e>>>,
}

struct Made<'e> {
    number: u64,
    undoes: Option<u64>,
    change: &'e Change,
}

impl<'e> Lineage<'e> {
    /// The lineage of the keys of one cluster; the entries are in the order of their numbers.
    pub(super) fn of(entries: impl Iterator<Item = &'e (u64, Entry)>) -> Self {
        let mut by_key: BTreeMap<&str, Vec<Made<'_>>> = BTreeMap::new();
        for (number, entry) in entries {
            for change in entry.changes.iter().filter(|change| !change.is_unknown()) {
                let made = Made { number: *number, undoes: entry.undoes, change };
                by_key.entry(&change.key).or_default().push(made);
            }
        }
        Self { by_key }
    }

    /// How a key that is now at this revision, or absent, stands to the write of this number.
    pub(super) fn standing(&self, key: &str, now: Option<i64>, number: u64) -> Standing {
        let (mut state, mut before, mut later) = (now, u64::MAX, Vec::new());
        let all = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        // Each step leads to an earlier write, so this ends.
        loop {
            let makes = |made: &&Made<'_>| made.number < before && made.change.revision == state;
            let Some(made) = all.iter().rev().find(makes).filter(|made| made.number >= number)
            else {
                return Standing::Foreign(state);
            };
            (state, before) = match made.undoes {
                _ if made.number == number && later.is_empty() => return Standing::AsLeft,
                _ if made.number == number => return Standing::After(later),
                Some(undone) if undone == number => return Standing::TakenBack(made.number),
                Some(undone) if undone > number => (made.change.stands_for, undone),
                // What was written over itself is as it was before.
                None if made.change.stands_for.is_some() => (made.change.stands_for, made.number),
                _ => {
                    later.push(made.number);
                    (made.change.before_revision, made.number)
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::*;

    /// A write of the key: its number, what it undoes, the revision before and after, and what
    /// that stands for.
    type Write = (u64, Option<u64>, Option<i64>, Option<i64>, Option<i64>);

    fn standing(writes: &[Write], now: Option<i64>, number: u64) -> Standing {
        let entries: Vec<(u64, Entry)> = writes
            .iter()
            .map(|(number, undoes, before_revision, revision, stands_for)| {
                let mut entry = entry(*undoes);
                let change = &mut entry.changes[0];
                change.before_revision = *before_revision;
                change.revision = *revision;
                change.stands_for = *stands_for;
                (*number, entry)
            })
            .collect();
        Lineage::of(entries.iter()).standing("k", now, number)
    }

    #[test]
    fn later_writes_are_named_until_the_one_that_is_meant() {
        let mut writes = vec![
            (1, None, None, Some(1), None),
            (2, None, Some(1), Some(2), None),
            (3, None, Some(2), Some(3), None),
        ];
        assert_eq!(standing(&writes, Some(3), 3), Standing::AsLeft);
        assert_eq!(standing(&writes, Some(3), 1), Standing::After(vec![3, 2]));
        assert_eq!(standing(&writes, Some(9), 1), Standing::Foreign(Some(9)));
        assert_eq!(standing(&writes, None, 1), Standing::Foreign(None));
        // What was taken back is not in the way any more, nor is the taking back.
        writes.push((4, Some(3), Some(3), Some(4), Some(2)));
        assert_eq!(standing(&writes, Some(4), 1), Standing::After(vec![2]));
        assert_eq!(standing(&writes, Some(4), 3), Standing::TakenBack(4));
        writes.push((5, Some(2), Some(4), Some(5), Some(1)));
        assert_eq!(standing(&writes, Some(5), 1), Standing::AsLeft);
        // To make write 3 again, the later taking back goes first.
        assert_eq!(standing(&writes, Some(5), 4), Standing::After(vec![5]));
        writes.push((6, Some(5), Some(5), Some(6), Some(4)));
        assert_eq!(standing(&writes, Some(6), 1), Standing::After(vec![2]));
        assert_eq!(standing(&writes, Some(6), 4), Standing::AsLeft);
    }

    #[test]
    fn removals_are_told_apart_by_their_order() {
        let writes = [
            (1, None, None, Some(1), None),
            (2, None, Some(1), None, None),
            (3, Some(2), None, Some(3), Some(1)),
            (4, None, Some(3), None, None),
            (5, None, None, Some(5), None),
            (6, Some(5), Some(5), None, None),
        ];
        assert_eq!(standing(&writes[..5], Some(5), 1), Standing::After(vec![5, 4]));
        assert_eq!(standing(&writes, None, 1), Standing::After(vec![4]));
        assert_eq!(standing(&writes[..3], None, 3), Standing::Foreign(None));
    }

    #[test]
    fn a_write_of_somebody_else_in_between_is_said_at_once() {
        let writes = [(1, None, None, Some(1), None), (2, None, Some(7), Some(8), None)];
        assert_eq!(standing(&writes, Some(8), 1), Standing::Foreign(Some(7)));
    }
}
