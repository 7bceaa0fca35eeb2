//! Reads the resources in files, folders and standard input.
//!
//! A file holds YAML or JSON documents; a document is a resource, a list of a kind
//! (`IPPoolList`), or an array of resources. Faults are collected, not thrown: whoever wants the
//! first only takes the first, and each says it in our words and in those of Calico's tools.
//! The order of the objects and of the faults is that of the files.

mod reader;

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use api::{Kind, Problem, Stage};
use serde_json::Value;
use text::yaml::{self, Places, Position, Step};

use host::bounded;

/// The version that all kinds are of.
pub const API_VERSION: &str = "projectcalico.org/v3";

/// An object that a user handed in.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its kind.
    pub kind: Kind,
    /// The object, in Calico's field order, without the defaults.
    pub object: Value,
    /// Where it was read.
    pub origin: Origin,
}

/// Where in the files an object stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Which of the files.
    file: usize,
    /// Which document of it.
    document: usize,
    /// The items of lists and arrays around it: `items[3]`, `[3]`, or nothing.
    within: String,
}

/// What is wrong with a file or a part of it.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The file; `-` is standard input.
    pub file: String,
    /// Where in the file.
    pub position: Option<Position>,
    /// The object it is about, as far as it is known (`IPPool(p1)`).
    pub object: Option<String>,
    /// What is wrong, in our words; begins with the field where there is one.
    pub message: String,
    /// The sentence of Calico's tools.
    pub calico: Calico,
}

/// The words of Calico's tools for a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calico {
    /// A file that cannot be read or understood: their commands put words in front of these.
    Unreadable(String),
    /// A file with nothing in it.
    Empty(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.file)?;
        if let Some(Position { line, column }) = self.position {
            write!(formatter, ":{line}:{column}")?;
        }
        if let Some(object) = &self.object {
            write!(formatter, ": {object}")?;
        }
        write!(formatter, ": {}", self.message)
    }
}

/// What was read from files.
#[derive(Debug, Default)]
pub struct Documents {
    /// The objects that could be read.
    pub objects: Vec<Loaded>,
    /// What is wrong with the rest.
    pub faults: Vec<Fault>,
    /// The objects that could be read only in part, each with the problems among the faults.
    pub partial: Vec<(Loaded, Vec<Problem>)>,
    takes_kubectl_lists: bool,
    files: Vec<File>,
    /// The places of the document that was asked about last: questions come in order, and a
    /// document may have thousands of bad fields.
    places: RefCell<Option<(usize, usize, Places)>>,
}

/// A file, and the bytes and first line of each document in it.
#[derive(Debug)]
struct File {
    name: String,
    bytes: Vec<u8>,
    documents: Vec<(Range<usize>, usize)>,
}

impl Documents {
    /// Reads a file, a folder (its own files, or with `recursive` those below too), or with `-`
    /// standard input.
    pub fn read(path: impl AsRef<Path>, recursive: bool) -> Self {
        Self::default().with_files(path.as_ref(), recursive)
    }

    /// The same, and a `List` of `v1` is read too: it is what `kubectl get -o yaml` writes.
    pub fn read_with_lists(path: impl AsRef<Path>, recursive: bool) -> Self {
        let documents = Self { takes_kubectl_lists: true, ..Self::default() };
        documents.with_files(path.as_ref(), recursive)
    }

    fn with_files(self, path: &Path, recursive: bool) -> Self {
        let mut documents = self;
        if path == Path::new("-") {
            match bounded::read(io::stdin().lock(), FILE_BYTES_MAX) {
                Ok(bytes) => documents.add("-".to_owned(), bytes),
                Err(error) => documents.unreadable("-", "read", &error),
            }
            return documents;
        }
        for file in files(path, recursive) {
            let name = |path: &Path| path.display().to_string();
            match file {
                Ok(file) => match bounded::read_file(&file, FILE_BYTES_MAX) {
                    Ok(bytes) => documents.add(name(&file), bytes),
                    Err(error) => {
                        let step = if file.is_dir() { "read" } else { "open" };
                        documents.unreadable(&name(&file), step, &error);
                    }
                },
                Err((folder, error)) => documents.unreadable(&name(&folder), "open", &error),
            }
        }
        documents
    }

    /// Reads a text as if it were a file of that name.
    pub fn from_text(name: &str, text: &[u8]) -> Self {
        let mut documents = Self::default();
        documents.add(name.to_owned(), text.to_vec());
        documents
    }

    /// The file that an object came from.
    pub fn file(&self, origin: &Origin) -> &str {
        self.files.get(origin.file).map_or("", |file| &file.name)
    }

    /// Where in its file a field of an object stands (`spec.nets[0]`; empty for the object).
    pub fn position(&self, origin: &Origin, field: &str) -> Option<Position> {
        let mut last = self.places.borrow_mut();
        let is_last = |(file, document, _): &mut (usize, usize, Places)| {
            (*file, *document) == (origin.file, origin.document)
        };
        if !last.as_mut().is_some_and(is_last) {
            let file = self.files.get(origin.file)?;
            let (bytes, first_line) = file.documents.get(origin.document)?;
            let text = std::str::from_utf8(file.bytes.get(bytes.clone())?).ok()?;
            *last = Some((origin.file, origin.document, Places::of(text, *first_line)));
        }
        let (_, _, places) = last.as_ref()?;
        let steps: Vec<Step<'_>> = steps(&origin.within).chain(steps(field)).collect();
        Some(places.find(&steps))
    }

    fn add(&mut self, name: String, bytes: Vec<u8>) {
        let file = self.files.len();
        let before = (self.objects.len(), self.faults.len());
        let mut documents = Vec::new();
        for (number, document) in yaml::documents(&bytes).enumerate() {
            let origin = Origin { file, document: number, within: String::new() };
            match document {
                Ok(document) => {
                    let end = document.offset + document.text().len();
                    documents.push((document.offset..end, document.first_line));
                    reader::read(self, &name, &document, origin);
                }
                Err(error) => {
                    documents.push((0..0, error.at.line));
                    self.faults.push(Fault {
                        file: name.clone(),
                        position: Some(error.at),
                        object: None,
                        message: syntax_message(&bytes, &error),
                        calico: Calico::Unreadable(format!(
                            "error converting YAML to JSON: {}",
                            error.go_message()
                        )),
                    });
                }
            }
        }
        if before == (self.objects.len(), self.faults.len()) {
            self.faults.push(Fault {
                file: name.clone(),
                position: None,
                object: None,
                message: "no resources in this file".to_owned(),
                calico: Calico::Empty(format!("no resources specified in file {name}")),
            });
        }
        self.files.push(File { name, bytes, documents });
    }

    fn unreadable(&mut self, name: &str, step: &str, error: &io::Error) {
        let reason = text::plain_reason(error);
        self.faults.push(Fault {
            file: name.to_owned(),
            position: None,
            object: None,
            message: reason.clone(),
            calico: Calico::Unreadable(format!("{step} {name}: {reason}")),
        });
    }
}

/// What is wrong with the form of a document; of tabs the reader only says that they fit nowhere.
fn syntax_message(bytes: &[u8], error: &yaml::Error) -> String {
    let message = error.problem.to_string();
    let line = bytes.split(|byte| *byte == b'\n').nth(error.at.line.saturating_sub(1));
    let indent = line.unwrap_or_default().iter().take_while(|byte| byte.is_ascii_whitespace());
    match indent.into_iter().any(|byte| *byte == b'\t') {
        true => format!("{message}: the line is indented with a tab; YAML takes blanks only"),
        false => message,
    }
}

/// Far more than any file of documents; without an end, a device would fill the memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

type Found = Result<PathBuf, (PathBuf, io::Error)>;

/// The files that a path means: itself, or for a folder those that look like documents, in the
/// order of their names.
fn files(path: &Path, recursive: bool) -> Vec<Found> {
    if !path.is_dir() {
        return vec![Ok(path.to_owned())];
    }
    let mut found = Vec::new();
    walk(path, recursive, &mut found);
    found
}

fn walk(folder: &Path, recursive: bool, found: &mut Vec<Found>) {
    let entries = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => return found.push(Err((folder.to_owned(), error))),
    };
    entries.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    for path in entries {
        // Links to folders are not followed, so that a loop of links cannot hang us.
        let is_folder = path.symlink_metadata().is_ok_and(|data| data.is_dir());
        if is_folder {
            if recursive {
                walk(&path, recursive, found);
            }
        } else if is_document(&path) && !is_special(&path) {
            found.push(Ok(path));
        }
    }
}

/// A pipe or device in a folder is nobody's document, and reading it may never end.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| !data.is_file() && !data.is_dir())
}

fn is_document(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// The kind of the name in documents that users may hand in. Calico has two more that its tools
/// do not take.
pub(crate) fn kind_of(name: &str) -> Option<Kind> {
    name.parse().ok().filter(|&kind| is_user_kind(kind))
}

/// Whether the kind is one that users read and write themselves.
pub(crate) fn is_user_kind(kind: Kind) -> bool {
    !matches!(kind, Kind::BlockAffinity | Kind::LiveMigration)
}

/// The kind of a list (`IPPoolList`).
fn list_of(name: &str) -> Option<Kind> {
    name.strip_suffix("List").and_then(kind_of)
}

/// What Calico's reader says about a field, before its tools shorten it.
pub(crate) fn calico_reason(problem: &Problem) -> String {
    match problem.stage {
        Stage::UnknownField => format!("json: unknown field \"{}\"", problem.calico.field),
        _ => problem.calico.reason.clone(),
    }
}

fn position(document: &yaml::Document<'_>, within: &str, field: &str) -> Position {
    let steps: Vec<Step<'_>> = steps(within).chain(steps(field)).collect();
    document.position(&steps)
}

/// The steps of a path like `spec.nets[0].labels[a.b/c]`.
fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    let mut rest = path;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches('.');
        if let Some(inner) = rest.strip_prefix('[') {
            let end = inner.find(']').unwrap_or(inner.len());
            let step = &inner[..end];
            rest = inner.get(end + 1..).unwrap_or_default();
            return Some(step.parse().map_or(Step::Key(step), Step::Index));
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let step = &rest[..end];
        rest = &rest[end..];
        (!step.is_empty()).then_some(Step::Key(step))
    })
}

#[cfg(test)]
mod tests;
