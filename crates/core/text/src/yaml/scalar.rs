//! How a text is written: plain, quoted, or as a literal block; and the writing itself.

use super::resolve::{self, Scalar};

/// Lines longer than this are broken at the next blank.
const WIDTH: usize = 80;

/// The ways to write a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// What matters about a text for its style.
pub(super) struct Shape {
    /// It contains a line end of any sort.
    pub(super) multiline: bool,
    plain: bool,
    single: bool,
    literal: bool,
}

/// Line ends in YAML 1.1.
fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Characters that may stand outside of double quotes. Tabs and everything beyond the basic
/// plane may not.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{fffd}') && c != '\u{feff}'
}

/// Looks at the characters of a non-empty text.
pub(super) fn shape(text: &str) -> Shape {
    let simple = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/' | b'_');
    if !text.is_empty() && !text.starts_with("...") && text.bytes().all(simple) {
        return Shape { multiline: false, plain: true, single: true, literal: true };
    }
    let mut plain = !(text.starts_with("---") || text.starts_with("..."));
    let (mut single, mut literal, mut multiline) = (true, true, false);
    let mut before: Option<char> = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let after = rest.clone().next();
        let blank_after = after.is_none_or(|c| matches!(c, ' ' | '\t'));
        let edge = before.is_none() || after.is_none();
        match c {
            '#' if before.is_none_or(|b| matches!(b, ' ' | '\t' | '\0') || is_break(b)) => {
                plain = false;
            }
            ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
            | '`'
                if before.is_none() =>
            {
                plain = false;
            }
            ':' if blank_after => plain = false,
            '?' | '-' if before.is_none() && blank_after => plain = false,
            ' ' => {
                if edge {
                    plain = false;
                    literal &= after.is_some();
                }
                if before.is_some_and(is_break) {
                    plain = false;
                    single = false;
                }
            }
            _ => {}
        }
        if is_break(c) {
            (multiline, plain) = (true, false);
            if before == Some(' ') {
                (single, literal) = (false, false);
            }
        }
        if !is_printable(c) {
            (plain, single, literal) = (false, false, false);
        }
        before = Some(c);
    }
    Shape { multiline, plain, single, literal }
}

/// The style for `text`. A simple key must stay on its line.
pub(super) fn style(text: &str, shape: &Shape, simple_key: bool) -> Style {
    if text.is_empty() {
        return Style::Double;
    }
    if text.contains('\n') {
        return if shape.literal && !simple_key { Style::Literal } else { Style::Double };
    }
    // Go writes the name `<<` plainly, and then merges where it should set a field.
    let reads_as_merge = simple_key && text == "<<";
    if resolve::plain(text) != Scalar::Text || is_base_60(text) || reads_as_merge {
        return Style::Double;
    }
    match (shape.plain, shape.single) {
        (true, _) => Style::Plain,
        (false, true) => Style::Single,
        (false, false) => Style::Double,
    }
}

/// `12:30` and its like, which other readers take for a number to base 60.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let Some(first) = parts.next() else { return false };
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if !first.starts_with(|c: char| c.is_ascii_digit()) || !digits(first) {
        return false;
    }
    let rest: Vec<&str> = parts.collect();
    let Some((last, middle)) = rest.split_last() else { return false };
    let sixty = |part: &str| {
        part.len() <= 2
            && part.bytes().all(|b| b.is_ascii_digit())
            && part.parse::<u8>().is_ok_and(|n| n < 60)
    };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    middle.iter().all(|part| sixty(part)) && sixty(last) && digits(fraction)
}

/// Text being written, with the column kept.
pub(super) struct Line<'o> {
    out: &'o mut String,
    column: usize,
    /// Whether a key or a dash may come here: at the start of a line, or after another dash.
    pub(super) fresh: bool,
}

impl<'o> Line<'o> {
    pub(super) fn new(out: &'o mut String) -> Self {
        Self { out, column: 0, fresh: true }
    }

    pub(super) fn push(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
        self.fresh = false;
    }

    pub(super) fn push_ascii(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.len();
        self.fresh = false;
    }

    pub(super) fn end(&mut self) {
        self.text_break('\n');
    }

    /// Blanks up to `column`.
    pub(super) fn pad(&mut self, column: usize) {
        self.out.extend(std::iter::repeat_n(' ', column.saturating_sub(self.column)));
        self.column = self.column.max(column);
    }

    fn fold(&mut self, indent: usize) {
        self.end();
        self.pad(indent);
    }

    /// A line end that is part of the text.
    fn text_break(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
        self.fresh = true;
    }

    pub(super) fn plain(&mut self, text: &str, indent: usize, may_fold: bool) {
        if text.is_ascii() && (!may_fold || self.column + text.len() <= WIDTH) {
            self.push_ascii(text);
            return;
        }
        let mut after_blank = false;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            let folds = c == ' ' && may_fold && !after_blank && self.column > WIDTH;
            if folds && rest.peek() != Some(&' ') {
                self.fold(indent);
            } else {
                self.push(c);
            }
            after_blank = c == ' ';
        }
    }

    pub(super) fn single(&mut self, text: &str, indent: usize, may_fold: bool) {
        self.push('\'');
        let (mut after_blank, mut after_break, mut first) = (false, false, true);
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if c == ' ' {
                let inside = !first && rest.peek().is_some_and(|next| *next != ' ');
                if may_fold && inside && !after_blank && self.column > WIDTH {
                    self.fold(indent);
                } else {
                    self.push(c);
                }
            } else if is_break(c) {
                self.text_break(c);
            } else {
                if after_break {
                    self.pad(indent);
                }
                if c == '\'' {
                    self.push('\'');
                }
                self.push(c);
            }
            after_blank = c == ' ';
            after_break = is_break(c);
            first = false;
        }
        self.push('\'');
    }

    pub(super) fn double(&mut self, text: &str, indent: usize, may_fold: bool) {
        self.push('"');
        // A byte order mark in front makes the original escape everything after it too.
        let escape_all = text.starts_with('\u{feff}');
        let (mut after_blank, mut first) = (false, true);
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if escape_all || !is_printable(c) || is_break(c) || c == '"' || c == '\\' {
                self.escape(c);
                after_blank = false;
            } else if c == ' ' {
                let next = rest.peek();
                if may_fold && !after_blank && self.column > WIDTH && !first && next.is_some() {
                    let blank_follows = next == Some(&' ');
                    self.fold(indent);
                    if blank_follows {
                        self.push('\\');
                    }
                } else {
                    self.push(c);
                }
                after_blank = true;
            } else {
                self.push(c);
                after_blank = false;
            }
            first = false;
        }
        self.push('"');
    }

    fn escape(&mut self, c: char) {
        let short = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ => {
                let code = u32::from(c);
                let hex = match code {
                    0..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                };
                self.push_ascii(&hex);
                return;
            }
        };
        self.push('\\');
        self.push(short);
    }

    /// A literal block with its header. Leaves the last line open if the text does.
    pub(super) fn literal(&mut self, text: &str, indent: usize) {
        self.push('|');
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.push('2');
        }
        let mut backwards = text.chars().rev();
        match (backwards.next().is_some_and(is_break), backwards.next().is_none_or(is_break)) {
            (false, _) => self.push('-'),
            (true, true) => self.push('+'),
            (true, false) => {}
        }
        self.end();
        let mut at_start = true;
        for c in text.chars() {
            if is_break(c) {
                self.text_break(c);
                at_start = true;
            } else {
                if at_start {
                    self.pad(indent);
                }
                self.push(c);
                at_start = false;
            }
        }
    }
}
