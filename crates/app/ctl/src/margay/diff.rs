//! `margay diff -f`: what apply would change, as a unified diff of the YAML of each object.

use std::collections::BTreeMap;

use serde_json::Value;
use similar::{ChangeTag, TextDiff};
use store::resources::{Error, Preview};

use super::arguments::Files;
use super::failure::Failure;
use super::read_documents::{Input, refusal};
use super::session::{Session, spoken};
use super::terminal::{Colour, Terminal};

/// Shows the differences; true when there are none.
pub(crate) fn run(session: &Session, files: &Files) -> Result<bool, Failure> {
    let input = Input::read(files)?;
    let mut text = String::new();
    let mut refused = Vec::new();
    let mut help = None;
    let objects = input.values();
    // Of an object that is given more than once, the last one counts: it is compared with what is
    // stored, which only the first preview shows.
    let mut stored: BTreeMap<String, String> = BTreeMap::new();
    let last: BTreeMap<String, usize> =
        input.objects.iter().enumerate().map(|(n, given)| (given.name.key(), n)).collect();
    let previews = input.objects.iter().zip(session.resources.preview(&objects));
    for (n, (given, preview)) in previews.enumerate() {
        match preview {
            Ok(Preview { before, after }) => {
                let key = given.name.key();
                let before = before.map(comparable).unwrap_or_default();
                let before = stored.entry(key.clone()).or_insert(before);
                if last.get(&key) == Some(&n) {
                    let after = comparable(after);
                    text += &one(session.terminal, &spoken(&given.name), before, &after);
                }
            }
            Err(error @ Error::Store(_)) => return Err(error.into()),
            Err(error) => {
                let (lines, next) = refusal(&input, given, &error);
                refused.extend(lines);
                help = help.or(next);
            }
        }
    }
    session.terminal.page(&text)?;
    match refused.is_empty() {
        true => Ok(text.is_empty()),
        false => {
            let first = Failure::new("apply would be refused");
            Err(refused.into_iter().fold(first, Failure::detail).help_if(help))
        }
    }
}

/// An object without what only the store gives it: a new one has none of it yet.
pub(super) fn comparable(mut object: Value) -> String {
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        object["metadata"].as_object_mut().map(|metadata| metadata.shift_remove(field));
    }
    text::yaml::to_string(&object)
}

/// The difference of one object: nothing when there is none.
fn one(terminal: Terminal, name: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let what = if before.is_empty() { "would be created" } else { "would change" };
    let mut text = terminal.paint(Colour::Bold, &format!("{name} {what}")) + "\n";
    let diff = TextDiff::from_lines(before, after);
    for group in diff.grouped_ops(3) {
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = change.value().trim_end_matches('\n');
            text += &match change.tag() {
                ChangeTag::Delete => terminal.paint(Colour::Red, &format!("- {line}")),
                ChangeTag::Insert => terminal.paint(Colour::Green, &format!("+ {line}")),
                ChangeTag::Equal => format!("  {line}"),
            };
            text.push('\n');
        }
    }
    text
}
