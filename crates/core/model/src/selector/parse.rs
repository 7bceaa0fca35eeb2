//! Text → tree, in one pass with a stack of open groups instead of recursion.
//!
//! White space is space and tab. No word is reserved: whether `in` is an operator or a
//! label depends on where it stands. Strings have no escapes.

use std::fmt;

use super::expression::{Comparison, Expression};

/// A part of a selector that has no parts.
enum Term<'a> {
    All,
    Global,
    Has(&'a str),
    Compare { label: &'a str, comparison: Comparison, value: &'a str },
    In { label: &'a str, values: Vec<&'a str>, is_negated: bool },
}

/// What becomes of a text while it is read: a tree, or nothing when only its form is in question.
pub(super) trait Build: Sized {
    #[expect(private_interfaces, reason = "only this module calls it")]
    fn term(term: Term<'_>) -> Self;
    fn not(self) -> Self;
    fn and(operands: Vec<Self>) -> Self;
    fn or(operands: Vec<Self>) -> Self;
}

impl Build for () {
    #[expect(private_interfaces, reason = "only this module calls it")]
    fn term(_: Term<'_>) {}
    fn not(self) {}
    fn and(_: Vec<Self>) {}
    fn or(_: Vec<Self>) {}
}

impl Build for Expression {
    #[expect(private_interfaces, reason = "only this module calls it")]
    fn term(term: Term<'_>) -> Self {
        match term {
            Term::All => Self::All,
            Term::Global => Self::Global,
            Term::Has(label) => Self::Has(label.into()),
            Term::Compare { label, comparison, value } => {
                Self::Compare { label: label.into(), comparison, value: value.into() }
            }
            Term::In { label, mut values, is_negated } => {
                values.sort_unstable();
                values.dedup();
                let values = values.into_iter().map(Into::into).collect();
                Self::In { label: label.into(), values, is_negated }
            }
        }
    }

    fn not(self) -> Self {
        Self::Not(Box::new(self))
    }

    fn and(operands: Vec<Self>) -> Self {
        Self::And(operands)
    }

    fn or(operands: Vec<Self>) -> Self {
        Self::Or(operands)
    }
}

/// The deepest tree a selector may have, counted in nested groups and negations.
pub const DEPTH_MAX: usize = 1_000;

/// The longest name of a label, in bytes.
pub const LABEL_LENGTH_MAX: usize = 512;

/// How many parentheses may be open at once. A canonical text opens at most one for each
/// level of the tree, so the canonical text of a selector is always readable.
const OPEN_MAX: usize = 2 * DEPTH_MAX;

/// Where a text stops being a selector, and what would have been right there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The number of bytes before the place; always between two characters.
    pub offset: usize,
    /// What is wrong there, in plain words.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at position {}", self.message, self.offset + 1)
    }
}

impl std::error::Error for SyntaxError {}

/// Whether the text can be the name of a label in a selector.
pub fn is_label_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= LABEL_LENGTH_MAX && text.bytes().all(is_label_byte)
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_./-".contains(&byte)
}

/// A subtree and how deep it is.
struct Node<T> {
    expression: T,
    depth: usize,
}

impl<T: Build> Node<T> {
    fn leaf(term: Term<'_>) -> Self {
        Self { expression: T::term(term), depth: 1 }
    }

    fn group(mut operands: Vec<Self>, make: fn(Vec<T>) -> T) -> Self {
        if operands.len() == 1 {
            return operands.remove(0);
        }
        let depth = 1 + operands.iter().map(|node| node.depth).max().unwrap_or(0);
        let operands = operands.into_iter().map(|node| node.expression).collect();
        Self { expression: make(operands), depth }
    }

    fn negated_if(self, is_negated: bool) -> Self {
        if !is_negated {
            return self;
        }
        Self { expression: self.expression.not(), depth: self.depth + 1 }
    }
}

/// A group whose end has not been read: the selector itself, or an open parenthesis.
struct OpenGroup<T> {
    offset: usize,
    is_negated: bool,
    /// Finished operands of `||`.
    alternatives: Vec<Node<T>>,
    /// Operands of the `&&` being read.
    terms: Vec<Node<T>>,
}

impl<T: Build> OpenGroup<T> {
    fn new(offset: usize, is_negated: bool) -> Self {
        Self { offset, is_negated, alternatives: Vec::new(), terms: Vec::new() }
    }

    fn end_alternative(&mut self) {
        let terms = std::mem::take(&mut self.terms);
        self.alternatives.push(Node::group(terms, T::and));
    }

    fn close(mut self) -> Node<T> {
        if self.alternatives.is_empty() {
            return Node::group(self.terms, T::and).negated_if(self.is_negated);
        }
        self.end_alternative();
        Node::group(self.alternatives, T::or).negated_if(self.is_negated)
    }
}

pub(super) fn parse<T: Build>(text: &str) -> Result<T, SyntaxError> {
    let mut cursor = Cursor { text, offset: 0 };
    cursor.skip_blanks();
    if cursor.is_at_end() {
        return Ok(T::term(Term::All));
    }
    let mut enclosing: Vec<OpenGroup<T>> = Vec::new();
    let mut group = OpenGroup::new(0, false);
    loop {
        let is_negated = cursor.negations();
        let offset = cursor.offset;
        if cursor.take("(") {
            if enclosing.len() == OPEN_MAX {
                let message = format!("more than {OPEN_MAX} parentheses are open");
                return Err(SyntaxError { offset, message });
            }
            enclosing.push(std::mem::replace(&mut group, OpenGroup::new(offset, is_negated)));
            cursor.skip_blanks();
            continue;
        }
        group.terms.push(Node::leaf(cursor.term()?).negated_if(is_negated));
        loop {
            cursor.skip_blanks();
            let offset = cursor.offset;
            if cursor.take("&&") {
                break;
            } else if cursor.take("||") {
                group.end_alternative();
                break;
            } else if let Some(outer) = enclosing.pop_if(|_| cursor.take(")")) {
                let closed = std::mem::replace(&mut group, outer).close();
                if closed.depth > DEPTH_MAX {
                    return Err(too_deep(offset));
                }
                group.terms.push(closed);
            } else if cursor.is_at_end() && enclosing.is_empty() {
                return finish(group);
            } else {
                return Err(cursor.unexpected_after_term(enclosing.last().map(|_| group.offset)));
            }
        }
        cursor.skip_blanks();
    }
}

fn finish<T: Build>(group: OpenGroup<T>) -> Result<T, SyntaxError> {
    let root = group.close();
    if root.depth > DEPTH_MAX { Err(too_deep(0)) } else { Ok(root.expression) }
}

fn too_deep(offset: usize) -> SyntaxError {
    let message = format!("selector is nested more than {DEPTH_MAX} levels deep");
    SyntaxError { offset, message }
}

/// A place in the text.
struct Cursor<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or("")
    }

    fn is_at_end(&self) -> bool {
        self.offset >= self.text.len()
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.offset += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    fn take(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        if is_next {
            self.offset += token.len();
        }
        is_next
    }

    /// Skips `!` and says whether their number is odd.
    fn negations(&mut self) -> bool {
        let mut is_negated = false;
        // `!=` is one token, and no term starts with it.
        while !self.rest().starts_with("!=") && self.take("!") {
            is_negated = !is_negated;
            self.skip_blanks();
        }
        is_negated
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError { offset: self.offset, message: message.into() })
    }

    /// `expected X but found Y` for what stands here.
    fn expected<T>(&self, wanted: &str) -> Result<T, SyntaxError> {
        let found = match self.rest().chars().next() {
            None => "the end of the selector".to_owned(),
            Some(c) => format!("{c:?}"),
        };
        self.error(format!("expected {wanted} but found {found}"))
    }

    fn unexpected_after_term(&self, open: Option<usize>) -> SyntaxError {
        let wanted = match open {
            Some(offset) => {
                format!("&&, || or the ) that closes the parenthesis at position {}", offset + 1)
            }
            None => "&&, || or the end of the selector".to_owned(),
        };
        match self.expected::<()>(&wanted) {
            Err(error) => error,
            Ok(()) => too_deep(self.offset),
        }
    }

    fn label(&mut self) -> Result<&'a str, SyntaxError> {
        let rest = self.rest();
        let end = rest.bytes().position(|byte| !is_label_byte(byte)).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or("");
        if name.is_empty() {
            return self.expected("a label name");
        }
        if name.len() > LABEL_LENGTH_MAX {
            return self.error(format!(
                "label name of {} bytes is too long, the most is {LABEL_LENGTH_MAX}",
                name.len()
            ));
        }
        self.offset += name.len();
        Ok(name)
    }

    /// A term without its negations and without parentheses around it.
    fn term(&mut self) -> Result<Term<'a>, SyntaxError> {
        for (start, term) in [("all(", Term::All), ("global(", Term::Global)] {
            if self.take(start) {
                self.skip_blanks();
                return self.close_call(start, term);
            }
        }
        if self.take("has(") {
            self.skip_blanks();
            let label = self.label()?;
            self.skip_blanks();
            return self.close_call("has(", Term::Has(label));
        }
        if !self.rest().bytes().next().is_some_and(is_label_byte) {
            return self.expected("a label, has(), all(), global(), ! or (");
        }
        let label = self.label()?;
        self.skip_blanks();
        self.operation(label)
    }

    fn close_call(&mut self, start: &str, term: Term<'a>) -> Result<Term<'a>, SyntaxError> {
        match self.take(")") {
            true => Ok(term),
            false => self.expected(&format!("the ) that closes {start}")),
        }
    }

    /// The operator and the operand after a label.
    fn operation(&mut self, label: &'a str) -> Result<Term<'a>, SyntaxError> {
        for (words, comparison) in [
            (&["=="][..], Comparison::Equal),
            (&["!="], Comparison::NotEqual),
            (&["contains"], Comparison::Contains),
            (&["starts", "with"], Comparison::StartsWith),
            (&["ends", "with"], Comparison::EndsWith),
        ] {
            if self.take_words(words) {
                let value = self.string("a value in quotes")?;
                return Ok(Term::Compare { label, comparison, value });
            }
        }
        for (words, is_negated) in [(&["not", "in"][..], true), (&["in"], false)] {
            if self.take_words(words) {
                let values = self.set()?;
                return Ok(Term::In { label, values, is_negated });
            }
        }
        self.expected(&format!(
            "==, !=, in, not in, contains, starts with or ends with after the label {label:?}"
        ))
    }

    /// Takes an operator of one or two words, perhaps with blanks between, and the blanks
    /// after it. A word must end where the operator does: `inx` is left alone.
    fn take_words(&mut self, words: &[&str]) -> bool {
        let before = self.offset;
        for word in words {
            self.skip_blanks();
            if !self.take(word) {
                self.offset = before;
                return false;
            }
        }
        let is_word = words.iter().all(|word| word.bytes().all(is_label_byte));
        if is_word && self.rest().bytes().next().is_some_and(is_label_byte) {
            self.offset = before;
            return false;
        }
        self.skip_blanks();
        true
    }

    fn string(&mut self, wanted: &str) -> Result<&'a str, SyntaxError> {
        let rest = self.rest();
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            return self.expected(wanted);
        };
        let Some(value) = rest.get(1..).and_then(|body| body.split_once(quote)).map(|(v, _)| v)
        else {
            return self.error(format!("the string that starts with {quote} has no end"));
        };
        self.offset += value.len() + 2;
        Ok(value)
    }

    fn set(&mut self) -> Result<Vec<&'a str>, SyntaxError> {
        if !self.take("{") {
            return self.expected("a set in braces");
        }
        let mut values: Vec<&str> = Vec::new();
        loop {
            self.skip_blanks();
            if self.take("}") {
                break;
            }
            values.push(self.string("a value in quotes or }")?);
            self.skip_blanks();
            if !self.take(",") && !self.rest().starts_with('}') {
                return self.expected("a comma or }");
            }
        }
        Ok(values)
    }
}
