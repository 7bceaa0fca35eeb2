//! The tree of a selector: what it matches and how it is printed.

use std::fmt;

/// How a label is compared with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Contains,
    StartsWith,
    EndsWith,
}

/// A node of the tree. The groups have two operands or more.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    All,
    Global,
    Has(Box<str>),
    Compare {
        label: Box<str>,
        comparison: Comparison,
        value: Box<str>,
    },
    /// `values` are sorted by byte value and without duplicates.
    In {
        label: Box<str>,
        values: Box<[Box<str>]>,
        is_negated: bool,
    },
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

impl Expression {
    pub(super) fn matches<'a>(&self, get: &impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::All | Self::Global => true,
            Self::Has(label) => get(label).is_some(),
            Self::Compare { label, comparison, value } => match (get(label), comparison) {
                (Some(actual), Comparison::Equal) => actual == &**value,
                (Some(actual), Comparison::NotEqual) => actual != &**value,
                (Some(actual), Comparison::Contains) => actual.contains(&**value),
                (Some(actual), Comparison::StartsWith) => actual.starts_with(&**value),
                (Some(actual), Comparison::EndsWith) => actual.ends_with(&**value),
                (None, comparison) => *comparison == Comparison::NotEqual,
            },
            Self::In { label, values, is_negated } => {
                let is_member = get(label)
                    .is_some_and(|actual| values.binary_search_by(|v| (**v).cmp(actual)).is_ok());
                is_member != *is_negated
            }
            Self::Not(operand) => !operand.matches(get),
            Self::And(operands) => operands.iter().all(|operand| operand.matches(get)),
            Self::Or(operands) => operands.iter().any(|operand| operand.matches(get)),
        }
    }

    pub(super) fn prefixed(&self, prefix: &str) -> Self {
        let name = |label: &str| format!("{prefix}{label}").into_boxed_str();
        let all = |operands: &[Self]| operands.iter().map(|node| node.prefixed(prefix)).collect();
        match self {
            Self::All => Self::All,
            Self::Global => Self::Global,
            Self::Has(label) => Self::Has(name(label)),
            Self::Compare { label, comparison, value } => {
                Self::Compare { label: name(label), comparison: *comparison, value: value.clone() }
            }
            Self::In { label, values, is_negated } => {
                Self::In { label: name(label), values: values.clone(), is_negated: *is_negated }
            }
            Self::Not(operand) => Self::Not(Box::new(operand.prefixed(prefix))),
            Self::And(operands) => Self::And(all(operands)),
            Self::Or(operands) => Self::Or(all(operands)),
        }
    }

    pub(super) fn has_global(&self) -> bool {
        match self {
            Self::Global => true,
            Self::Not(operand) => operand.has_global(),
            Self::And(operands) | Self::Or(operands) => operands.iter().any(Self::has_global),
            Self::All | Self::Has(_) | Self::Compare { .. } | Self::In { .. } => false,
        }
    }
}

/// A value between quotes that it does not hold itself; the language has no escapes, so a
/// value never holds both kinds.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = if self.0.contains('"') { '\'' } else { '"' };
        write!(formatter, "{quote}{}{quote}", self.0)
    }
}

fn write_group(
    formatter: &mut fmt::Formatter<'_>,
    operands: &[Expression],
    operator: &str,
) -> fmt::Result {
    for (index, operand) in operands.iter().enumerate() {
        formatter.write_str(if index == 0 { "(" } else { operator })?;
        write!(formatter, "{operand}")?;
    }
    formatter.write_str(")")
}

impl fmt::Display for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => formatter.write_str("all()"),
            Self::Global => formatter.write_str("global()"),
            Self::Has(label) => write!(formatter, "has({label})"),
            Self::Compare { label, comparison, value } => {
                let operator = match comparison {
                    Comparison::Equal => "==",
                    Comparison::NotEqual => "!=",
                    Comparison::Contains => "contains",
                    Comparison::StartsWith => "starts with",
                    Comparison::EndsWith => "ends with",
                };
                write!(formatter, "{label} {operator} {}", Quoted(value))
            }
            Self::In { label, values, is_negated } => {
                let operator = if *is_negated { "not in" } else { "in" };
                write!(formatter, "{label} {operator} {{")?;
                for (index, value) in values.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(formatter, "{separator}{}", Quoted(value))?;
                }
                formatter.write_str("}")
            }
            Self::Not(operand) => write!(formatter, "!{operand}"),
            Self::And(operands) => write_group(formatter, operands, " && "),
            Self::Or(operands) => write_group(formatter, operands, " || "),
        }
    }
}
