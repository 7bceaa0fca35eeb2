//! One line of a plan, and how it is done.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::failure::Failure;
use super::item::{self, Item, Standing};
use super::layout::Root;
use super::records::{Record, Records};

/// What happens to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// It was not there.
    Make,
    /// It is ours, and not as it should be.
    Change,
    /// Somebody else's is put aside for it.
    Replace,
    /// It goes away.
    Remove,
    /// What was put aside comes back.
    Restore,
}

impl Verb {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Make => ("make", "made"),
            Self::Change => ("change", "changed"),
            Self::Replace => ("replace", "replaced"),
            Self::Remove => ("remove", "removed"),
            Self::Restore => ("restore", "restored"),
        }
    }
}

/// One change.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) verb: Verb,
    /// What sort of thing it is, for programs.
    pub(crate) kind: &'static str,
    /// What it is called.
    pub(crate) name: String,
    /// What people want to know of it beside the name.
    pub(crate) detail: String,
    act: Act,
}

#[derive(Debug)]
enum Act {
    Put(Item),
    Remove(Item),
    Clear(PathBuf),
    Write(Record),
}

impl Change {
    /// What is to be done about an item, if anything.
    pub(crate) fn of_item(item: Item, standing: &Standing) -> Option<Self> {
        let (verb, detail) = match standing {
            Standing::Same => return None,
            Standing::Missing => (Verb::Make, item.detail()),
            Standing::Different => (Verb::Change, item.detail()),
            Standing::Foreign(what) => (Verb::Replace, format!("{what}; kept as {}", item::ASIDE)),
        };
        Some(Self {
            verb,
            kind: item.kind(),
            name: item.path().display().to_string(),
            detail,
            act: Act::Put(item),
        })
    }

    /// The removal of an item.
    pub(crate) fn removal(item: Item, verb: Verb, detail: &str) -> Self {
        let (kind, name) = (item.kind(), item.path().display().to_string());
        Self { verb, kind, name, detail: detail.to_owned(), act: Act::Remove(item) }
    }

    /// The removal of what a program left.
    pub(crate) fn clearing(path: PathBuf, detail: &str) -> Self {
        let (name, detail) = (path.display().to_string(), detail.to_owned());
        Self { verb: Verb::Remove, kind: "file", name, detail, act: Act::Clear(path) }
    }

    /// A record of the datastore.
    pub(crate) fn of_record(record: Record, verb: Verb, detail: String) -> Self {
        let name = record.spoken();
        Self { verb, kind: "record", name, detail, act: Act::Write(record) }
    }

    /// Does it.
    pub(crate) fn perform(&self, root: &Root, records: &mut Records) -> Result<(), Failure> {
        match &self.act {
            Act::Put(item) => item.put(root),
            Act::Remove(item) => item.remove(root),
            Act::Clear(path) => fs::remove_file(root.join(path)).map_err(|error| {
                Failure::new(format!("{}: {}", path.display(), text::plain_reason(&error)))
            }),
            Act::Write(record) => records.write(record),
        }
    }

    /// For programs.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "action": self.verb.words().0,
            "kind": self.kind,
            "name": self.name,
            "detail": self.detail,
        })
    }
}

/// The changes for people, one a line.
pub(crate) fn lines(changes: &[Change], is_done: bool) -> String {
    let rows = changes.iter().map(|change| {
        let (to_do, done) = change.verb.words();
        (if is_done { done } else { to_do }, change.name.as_str(), change.detail.as_str())
    });
    columns(&rows.collect::<Vec<_>>())
}

/// Words, names and details below each other.
pub(crate) fn columns(rows: &[(&str, &str, &str)]) -> String {
    let width = |of: fn(&(&str, &str, &str)) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let (first, second) = (width(|row| row.0.len()), width(|row| row.1.chars().count()));
    let line = |(word, name, detail): &(&str, &str, &str)| {
        format!("  {word:first$}  {name:second$}  {detail}").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
