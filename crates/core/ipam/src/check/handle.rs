//! What handles say, each by its name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use api::keys::ipam::Handle;
use net::Cidr;

/// What a handle says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandleFacts {
    pub(crate) revision: i64,
    counts: Counts,
}

/// How many addresses a handle has in which block. Nearly all have theirs in one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Counts {
    Plain((Cidr, i64)),
    Other(Box<Oddities>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Oddities {
    blocks: Vec<(Cidr, i64)>,
    odd: Vec<String>,
    is_deleted: bool,
    unreadable: Option<String>,
}

impl HandleFacts {
    pub(crate) fn read(bytes: &[u8], revision: i64) -> Self {
        let handle = match Handle::read(bytes) {
            Ok(handle) => handle,
            Err(error) => {
                let unreadable = Some(error.to_string());
                let oddities = Oddities { unreadable, ..Oddities::default() };
                return Self { revision, counts: Counts::Other(Box::new(oddities)) };
            }
        };
        let (mut blocks, mut odd) = (Vec::new(), Vec::new());
        for (text, count) in handle.blocks {
            match text.parse::<Cidr>() {
                Ok(cidr) if cidr.to_string() == text => blocks.push((cidr, count)),
                _ => odd.push(text),
            }
        }
        let counts = match blocks[..] {
            [only] if odd.is_empty() && !handle.deleted => Counts::Plain(only),
            _ => {
                let (is_deleted, unreadable) = (handle.deleted, None);
                Counts::Other(Box::new(Oddities { blocks, odd, is_deleted, unreadable }))
            }
        };
        Self { revision, counts }
    }

    fn oddities(&self) -> Option<&Oddities> {
        match &self.counts {
            Counts::Plain(_) => None,
            Counts::Other(oddities) => Some(oddities),
        }
    }

    /// How many addresses it has in which block.
    pub(crate) fn blocks(&self) -> &[(Cidr, i64)] {
        match &self.counts {
            Counts::Plain(only) => std::slice::from_ref(only),
            Counts::Other(oddities) => &oddities.blocks,
        }
    }

    /// What it names in the place of blocks and is none.
    pub(crate) fn odd(&self) -> &[String] {
        self.oddities().map_or(&[], |it| &it.odd)
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.oddities().is_some_and(|it| it.is_deleted)
    }

    /// Why it cannot be read.
    pub(crate) fn unreadable(&self) -> Option<&str> {
        self.oddities()?.unreadable.as_deref()
    }

    /// The only block in which it has addresses, and how many, if nothing about it is odd.
    pub(crate) fn plain(&self) -> Option<(Cidr, i64)> {
        match self.counts {
            Counts::Plain(only) => Some(only),
            Counts::Other(_) => None,
        }
    }
}

/// The handles that are there, and the names of those that blocks name, each kept once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handles(BTreeMap<Arc<str>, Option<HandleFacts>>);

impl Handles {
    /// The name of a handle, whether it is there or not.
    pub(crate) fn name(&mut self, id: &str) -> Arc<str> {
        match self.0.entry(id.into()) {
            Entry::Occupied(known) => known.key().clone(),
            Entry::Vacant(new) => {
                let name = new.key().clone();
                new.insert(None);
                name
            }
        }
    }

    /// The name of a handle, if it was met before.
    pub(crate) fn named(&self, id: &str) -> Option<&Arc<str>> {
        self.0.get_key_value(id).map(|(name, _)| name)
    }

    pub(crate) fn insert(&mut self, id: &str, facts: HandleFacts) {
        match self.0.get_mut(id) {
            Some(known) => *known = Some(facts),
            None => drop(self.0.insert(id.into(), Some(facts))),
        }
    }

    pub(crate) fn remove(&mut self, id: &str) {
        if let Some(known) = self.0.get_mut(id) {
            *known = None;
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<&HandleFacts> {
        self.0.get(id)?.as_ref()
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.get(id).is_some()
    }

    /// Those that are there, in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &HandleFacts)> {
        self.0.iter().filter_map(|(id, facts)| Some((id, facts.as_ref()?)))
    }
}

impl PartialEq for Handles {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
