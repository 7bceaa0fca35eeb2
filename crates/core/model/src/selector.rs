//! The label selector language: text → [`Selector`] → matches over labels.
//!
//! Canonical text and unique id are those of Calico, because the id names IP sets that
//! other programs see. Parsing is linear and never recurses; the tree it gives is at most
//! [`DEPTH_MAX`] deep, so walking or dropping it is safe whatever the input was.

mod expression;
mod parse;
mod restrictions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha224};

use expression::{Comparison, Expression};
pub use parse::{DEPTH_MAX, LABEL_LENGTH_MAX, SyntaxError, is_label_name};
pub use restrictions::Restriction;

/// A parsed selector. Two selectors are equal when their canonical texts are.
#[derive(Clone)]
pub struct Selector {
    root: Expression,
    canonical: Box<str>,
}

impl Selector {
    /// Matches every set of labels.
    pub fn all() -> Self {
        Self::new(Expression::All)
    }

    /// Matches labels of which `label` has this value.
    pub fn equals(label: &str, value: &str) -> Self {
        let (label, value) = (label.into(), value.into());
        Self::new(Expression::Compare { label, comparison: Comparison::Equal, value })
    }

    /// Matches labels of which `label` has one of these values.
    pub fn is_in<'a>(label: &str, values: impl IntoIterator<Item = &'a str>) -> Self {
        let distinct = values.into_iter().collect::<BTreeSet<_>>();
        let values = distinct.into_iter().map(Into::into).collect();
        Self::new(Expression::In { label: label.into(), values, is_negated: false })
    }

    /// Matches what both match: `(self) && (other)`.
    pub fn and(&self, other: &Self) -> Self {
        Self::new(Expression::And(vec![self.root.clone(), other.root.clone()]))
    }

    /// Matches what this does not: `!(self)`.
    pub fn negated(&self) -> Self {
        Self::new(Expression::Not(Box::new(self.root.clone())))
    }

    fn new(root: Expression) -> Self {
        let canonical = root.to_string().into_boxed_str();
        Self { root, canonical }
    }

    /// The selector printed in the one way that equal selectors share.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The id that names the IP set of the selector: `s:` and a hash of the canonical text.
    pub fn unique_id(&self) -> String {
        unique_id("s", &self.canonical)
    }

    /// Whether the labels that `get` finds by name satisfy the selector. Does not allocate.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.root.matches(&get)
    }

    /// Whether the labels satisfy the selector.
    pub fn matches_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches(|name| labels.get(name).map(String::as_str))
    }

    /// What the selector is known to demand of each label; a label not named is free.
    pub fn restrictions(&self) -> BTreeMap<&str, Restriction<'_>> {
        self.root.restrictions()
    }

    /// The selector with `prefix` put before every label name.
    pub fn prefixed(&self, prefix: &str) -> Self {
        Self::new(self.root.prefixed(prefix))
    }

    /// Whether the selector is `all()` and nothing else.
    pub fn is_all(&self) -> bool {
        matches!(self.root, Expression::All)
    }

    /// Whether the selector is `global()` and nothing else.
    pub fn is_global(&self) -> bool {
        matches!(self.root, Expression::Global)
    }

    /// Whether `global()` is the selector or a part of it.
    pub fn has_global(&self) -> bool {
        self.root.has_global()
    }
}

/// Reads a selector; empty text is `all()`.
impl FromStr for Selector {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        parse::parse(text).map(Self::new)
    }
}

impl Default for Selector {
    fn default() -> Self {
        Self::all()
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(source)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.canonical)
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Selector({})", self.canonical)
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for Selector {}

impl PartialOrd for Selector {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Selector {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.canonical.cmp(&other.canonical)
    }
}

/// Whether a text is a selector; empty text is. Cheaper than reading one.
pub fn check(text: &str) -> Result<(), SyntaxError> {
    parse::parse(text)
}

/// The canonical text of a selector; a text that is none comes back trimmed.
pub fn normalise(text: &str) -> String {
    // The trimming is wider than the white space of the language: a line end after the
    // selector is an error for the parser and nothing here.
    let trimmed = text.trim();
    match trimmed.parse::<Selector>() {
        Ok(selector) => selector.canonical.into_string(),
        Err(_) => trimmed.to_owned(),
    }
}

/// `prefix:` and the unpadded URL-safe base64 of SHA-224 over `prefix:content`.
pub fn unique_id(prefix: &str, content: &str) -> String {
    let hash = Sha224::new().chain_update(prefix).chain_update(":").chain_update(content);
    format!("{prefix}:{}", URL_SAFE_NO_PAD.encode(hash.finalize()))
}
