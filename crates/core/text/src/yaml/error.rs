//! Why a document could not be read, and where.

use super::document::Position;

/// A document that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {problem}", .at.line, .at.column)]
pub struct Error {
    /// Where in the file, counted from 1.
    pub at: Position,
    /// The line within the document that the Go library would name, if it names one.
    pub document_line: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text does not follow YAML's grammar.
    #[error("{0}")]
    Syntax(String),
    /// A key occurs twice in one map.
    #[error("key \"{key}\" is already set on line {first_line}")]
    DuplicateKey {
        /// The key, as text.
        key: String,
        /// Line of its first occurrence in the file.
        first_line: usize,
    },
    /// A map key that is a map, a list or null.
    #[error("a map key must be text, a number or a bool, not {0}")]
    KeyKind(&'static str),
    /// A scalar does not fit its tag.
    #[error("{0}")]
    Tag(String),
    /// `.inf` and `.nan`, which JSON cannot hold.
    #[error("the number {0} cannot be stored")]
    NotFinite(&'static str),
    /// The value of `<<` is not a map or a list of maps.
    #[error("map merge requires a map or a list of maps as the value of <<")]
    MergeKind,
    /// An alias without its anchor before it, or inside of it.
    #[error("the alias *{0} refers to an anchor that is not complete at this point")]
    UnknownAnchor(String),
    /// Aliases would blow up the document.
    #[error("aliases expand to more than {} values", super::limits::ALIASED_VALUES)]
    TooManyAliases,
    /// More values than anybody stores.
    #[error("the document has more than {} values", super::limits::VALUES)]
    TooManyValues,
    /// Nested too deeply.
    #[error("lists and maps are nested more than {} levels deep", super::limits::DEPTH)]
    TooDeep,
    /// Over the size limit.
    #[error("the document is longer than {} bytes", super::limits::DOCUMENT_BYTES)]
    TooLong,
    /// The bytes are not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// A character that YAML does not allow.
    #[error("control character U+{0:04X} is not allowed")]
    ControlCharacter(u32),
    /// Something follows the end of the document.
    #[error("text after the end of the document; separate documents with a line ---")]
    TrailingText,
}

impl Error {
    pub(super) fn new(line: usize, column: usize, problem: Problem) -> Self {
        Self { at: Position { line, column }, document_line: line, problem }
    }

    /// The message in the Go library's words, where these are known; they come after
    /// `error converting YAML to JSON: ` in what users of calicoctl see.
    pub fn go_message(&self) -> String {
        let line = self.document_line;
        match &self.problem {
            Problem::DuplicateKey { key, .. } => {
                let key = crate::template::go_quote(key);
                format!("yaml: unmarshal errors:\n  line {line}: key {key} already set in map")
            }
            Problem::Tag(message) => format!("yaml: {message}"),
            Problem::NotFinite(number) => format!("json: unsupported value: {number}"),
            Problem::MergeKind => {
                "yaml: map merge requires map or sequence of maps as the value".to_owned()
            }
            Problem::UnknownAnchor(name) => format!("yaml: unknown anchor '{name}' referenced"),
            Problem::TooManyAliases => "yaml: document contains excessive aliasing".to_owned(),
            Problem::NotUtf8 => "yaml: invalid UTF-8".to_owned(),
            Problem::ControlCharacter(_) => "yaml: control characters are not allowed".to_owned(),
            Problem::TooLong => "bufio.Scanner: token too long".to_owned(),
            problem if line > 0 => format!("yaml: line {line}: {problem}"),
            problem => format!("yaml: {problem}"),
        }
    }
}
