//! What a selector demands of single labels, for indexes that look up candidates first.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use super::expression::{Comparison, Expression};

/// Lower bounds on one label: labels that break them never match, others may or may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restriction<'a> {
    /// The label must be there.
    pub must_be_present: bool,
    /// The label must not be there.
    pub must_be_absent: bool,
    /// The only values possible; none at all when the selector contradicts itself.
    pub one_of: Option<BTreeSet<&'a str>>,
}

impl Restriction<'_> {
    /// Whether any set of labels could satisfy the restriction.
    pub fn is_satisfiable(&self) -> bool {
        let has_no_value = self.one_of.as_ref().is_some_and(BTreeSet::is_empty);
        let contradicts_itself = self.must_be_present && self.must_be_absent;
        !has_no_value && !contradicts_itself
    }

    fn present() -> Self {
        Self { must_be_present: true, ..Self::default() }
    }
}

type Restrictions<'a> = BTreeMap<&'a str, Restriction<'a>>;

impl Expression {
    pub(super) fn restrictions(&self) -> Restrictions<'_> {
        match self {
            Self::Has(label) => BTreeMap::from([(&**label, Restriction::present())]),
            Self::Compare { comparison: Comparison::NotEqual, .. } => BTreeMap::new(),
            Self::Compare { label, comparison, value } => {
                let one_of = (*comparison == Comparison::Equal).then(|| BTreeSet::from([&**value]));
                BTreeMap::from([(&**label, Restriction { one_of, ..Restriction::present() })])
            }
            Self::In { label, values, is_negated: false } => {
                // No member at all is recorded as "no list known", as Calico has it.
                let one_of = (!values.is_empty()).then(|| values.iter().map(|v| &**v).collect());
                BTreeMap::from([(&**label, Restriction { one_of, ..Restriction::present() })])
            }
            Self::Not(operand) => match &**operand {
                Self::Has(label) => {
                    let absent = Restriction { must_be_absent: true, ..Restriction::default() };
                    BTreeMap::from([(&**label, absent)])
                }
                // `!(a == 'x')` also holds where there is no label `a`.
                _ => BTreeMap::new(),
            },
            Self::And(operands) => {
                operands.iter().map(Self::restrictions).reduce(both).unwrap_or_default()
            }
            Self::Or(operands) => {
                operands.iter().map(Self::restrictions).reduce(either).unwrap_or_default()
            }
            Self::All | Self::Global | Self::In { is_negated: true, .. } => BTreeMap::new(),
        }
    }
}

fn both<'a>(mut left: Restrictions<'a>, mut right: Restrictions<'a>) -> Restrictions<'a> {
    if left.len() < right.len() {
        mem::swap(&mut left, &mut right);
    }
    for (label, other) in right {
        let base = left.entry(label).or_default();
        base.must_be_present |= other.must_be_present;
        base.must_be_absent |= other.must_be_absent;
        base.one_of = match (base.one_of.take(), other.one_of) {
            (Some(a), Some(b)) => Some(a.intersection(&b).copied().collect()),
            (a, b) => a.or(b),
        };
    }
    left
}

fn either<'a>(mut left: Restrictions<'a>, mut right: Restrictions<'a>) -> Restrictions<'a> {
    left.retain(|label, base| {
        let Some(other) = right.get_mut(label) else { return false };
        base.must_be_present &= other.must_be_present;
        base.must_be_absent &= other.must_be_absent;
        base.one_of = match (base.one_of.take(), other.one_of.take()) {
            (Some(a), Some(b)) if base.must_be_present => Some(union(a, b)),
            _ => None,
        };
        base.must_be_present || base.must_be_absent
    });
    left
}

fn union<'a>(mut larger: BTreeSet<&'a str>, mut smaller: BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    if larger.len() < smaller.len() {
        mem::swap(&mut larger, &mut smaller);
    }
    larger.extend(smaller);
    larger
}
